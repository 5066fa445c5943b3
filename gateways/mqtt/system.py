"""`$SYS/broker/...`: figures of the hub, under the names that mosquitto gives them.

They belong to no topic and are not stored: whoever subscribes is given those that match, with RETAIN, and every
`sys_interval_s` those that have changed. They are counted together, once an interval, while somebody listens. The right
to consume `$SYS/...` is a rule of its own, as no wildcard at the front of a rule covers it. They are the whole hub's,
so the default tenant alone has them. A figure that a client has no room for is left out: the next look finds it
changed.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt.clients import Clients
from gatehouse.gateways.mqtt.mapping import SYSTEM, topic_field
from gatehouse.gateways.version import hub_version
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.door_side import Timers
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.outbox import Outbox

DOOR: Final = "mqtt"
BROKER: Final = SYSTEM + "broker/"
MINUTES: Final = (1, 5, 15)
DROPPED: Final = ("dropped_slow", "dropped_large", "dropped_denied", "expired", "lost_retention")
"""Events that count a message which a client was not sent."""

Figures = dict[str, bytes]
"""Values by topic name."""


class SystemFigures:
    """The figures under `$SYS`, and who listens to them. One per hub, found through `Services.shared`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clients = Clients.of(services)
        self._begun_ms = services.now_ms()
        self._looked_ms = 0
        self._most_connected = 0
        self._counted: dict[str, int] = {}
        self._loads: dict[tuple[str, int], float] = {}
        self._figures: Figures = {}

    @classmethod
    def of(cls, services: Services) -> SystemFigures:
        return services.share("mqtt system", lambda: cls(services))

    def look(self, interval_ms: int) -> Figures:
        """As they are, not older than the interval."""
        now_ms = self._services.now_ms()
        if not self._figures or now_ms - self._looked_ms >= interval_ms:
            self._count(now_ms, now_ms - self._looked_ms if self._figures else 0)
            self._looked_ms = now_ms
        return self._figures

    def _count(self, now_ms: int, passed_ms: int) -> None:
        trace = self._services.admission.trace
        flow, statistics = trace.flow(DOOR), self._services.kernel.statistics()
        connected = len(self._clients)
        asleep = statistics["sessions"] - statistics["sessions_connected"]
        self._most_connected = max(self._most_connected, connected)
        dropped = sum([trace.counts[DOOR, event] for event in DROPPED])
        counted = {"messages/received": flow.messages_in, "messages/sent": flow.messages_out,
                   "publish/received": flow.messages_in, "publish/sent": flow.messages_out,
                   "publish/dropped": dropped, "bytes/received": flow.bytes_in, "bytes/sent": flow.bytes_out}
        shown: dict[str, object] = {
            "version": f"gatehouse version {hub_version()}",
            "uptime": f"{(now_ms - self._begun_ms) // 1000} seconds",
            "clients/total": connected + asleep, "clients/connected": connected, "clients/active": connected,
            "clients/disconnected": asleep, "clients/inactive": asleep, "clients/maximum": self._most_connected,
            "subscriptions/count": len(self._services.door(DOOR)),
            "messages/received": flow.messages_in, "messages/sent": flow.messages_out,
            "publish/messages/received": flow.messages_in, "publish/messages/sent": flow.messages_out,
            "publish/messages/dropped": dropped,
            "publish/bytes/received": flow.bytes_in, "publish/bytes/sent": flow.bytes_out,
            "bytes/received": flow.bytes_in, "bytes/sent": flow.bytes_out,
            "store/messages/bytes": statistics["log_bytes"],
        }
        for name, value in counted.items():
            for minutes in MINUTES:
                shown[f"load/{name}/{minutes}min"] = f"{self._load(name, value, minutes, passed_ms):.2f}"
        self._counted = counted
        self._figures = {BROKER + name: str(value).encode() for name, value in shown.items()}

    def _load(self, name: str, value: int, minutes: int, passed_ms: int) -> float:
        """What comes in a minute, the average of some minutes."""
        before = self._loads.get((name, minutes), 0.0)
        if passed_ms > 0:
            in_a_minute = (value - self._counted.get(name, value)) * 60_000 / passed_ms
            before = in_a_minute + math.exp(-passed_ms / (60_000 * minutes)) * (before - in_a_minute)
        self._loads[name, minutes] = before
        return before


class System:
    """The `$SYS` filters of one client, made with the first."""

    def __init__(self, services: Services, outbox: Outbox, config: MqttConfig, timers: Timers) -> None:
        self._figures = SystemFigures.of(services)
        self._now_ms: Callable[[], int] = services.now_ms
        self._outbox = outbox
        self._interval_ms = config.sys_interval_s * 1000
        self._timer = timers.add(self._on_time)
        self._filters: dict[str, tuple[tuple[str, ...], int]] = {}     # with their QoS
        self._sent: Figures = {}

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Raises InvalidFilter."""
        self._filters[topic_filter] = parse_filter(topic_filter), qos

    def give(self, topic_filter: str) -> None:
        """SUBACK has left: the figures that match follow, as what is retained."""
        if topic_filter in self._filters:
            pattern, qos = self._filters[topic_filter]
            self._send([(topic, value, qos) for topic, value in self._figures.look(self._interval_ms).items()
                        if matches(pattern, levels_of(topic))], retain=True)
            self._timer.at(self._now_ms() + self._interval_ms)

    def unsubscribe(self, topic_filter: str) -> None:
        self._filters.pop(topic_filter, None)
        if not self._filters:
            self._timer.at(0)

    def _on_time(self, now_ms: int) -> None:
        changed: list[tuple[str, bytes, int]] = []
        for topic, value in self._figures.look(self._interval_ms).items():
            if self._sent.get(topic) == value:
                continue
            levels = levels_of(topic)
            qos = max([qos for pattern, qos in self._filters.values() if matches(pattern, levels)], default=-1)
            if qos >= 0:
                changed.append((topic, value, qos))
        self._send(changed, retain=False)
        if self._filters:
            self._timer.at(now_ms + self._interval_ms)

    def _send(self, figures: list[tuple[str, bytes, int]], *, retain: bool) -> None:
        for topic, value, qos in figures:
            if not self._outbox.send_document(topic_field(topic), qos, value, retain=retain):
                return
            self._sent[topic] = value
