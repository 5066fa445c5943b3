"""Retained values for one client that has subscribed: a page at a time, and never more than it can take now.

[MQTT-3.3.1-6] a new subscription is sent the last retained message of every topic that matches, [MQTT-3.3.1-8] with
RETAIN set. Where socket or window are full nothing is kept: the address that was to come next is remembered, and the
values from there on are asked for again when there is room. So no value is sent that has been replaced meanwhile.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt.codec import PACKET_ID_BYTES
from gatehouse.gateways.mqtt.packets import encode_retained
from gatehouse.kernel.message import TRANSIENT, Retained

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.outbox import Outbox

PAGE_VALUES: Final = 256
UNREADABLE: Final = "retained_unreadable"


class RetainedFeed:
    """Made by an `Outbox` with its client's first subscription."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[str, int] = {}         # granted QoS by filter, in the order of subscribing
        self._filter = ""                          # the one under way
        self._granted = 0
        self._start: str | None = None             # where it goes on; None: no filter is under way
        self._asking = False

    def add(self, topic_filter: str, granted: int) -> None:
        """A client that subscribes again is sent all of it again [MQTT-3.8.4-3]."""
        self._waiting[topic_filter] = granted
        self.pump()

    def remove(self, topic_filter: str) -> None:
        self._waiting.pop(topic_filter, None)
        if topic_filter == self._filter:
            self._start = None

    def clear(self) -> None:
        self._waiting.clear()
        self._start = None

    def pump(self) -> None:
        """Ask for the next page if there is room for it."""
        if self._asking:
            return
        if self._start is None:
            if not self._waiting:
                return
            self._filter, self._granted = next(iter(self._waiting.items()))
            del self._waiting[self._filter]
            self._start = ""
        if self._outbox.may_send(self._granted > 0):
            self._asking = True
            count = min(PAGE_VALUES, self._outbox.window.room()) if self._granted else PAGE_VALUES
            self._outbox.guard.retained(self._filter, self._on_page, max_values=count, start=self._start)

    def _on_page(self, values: list[Retained], after: str | None, error: Exception | None) -> None:
        self._asking = False
        if self._start is None:                    # unsubscribed, or the connection is over
            self.pump()
            return
        if error is not None:
            self._outbox.trace.on_event("mqtt", UNREADABLE)
        self._start = after
        for value in values:
            acknowledged = self._granted > 0 and not value.record[5] & TRANSIENT
            if not self._outbox.may_send(acknowledged):
                self._start = value.address
                break
            self._send(value, acknowledged)
        self.pump()

    def _send(self, value: Retained, acknowledged: bool) -> None:
        packet_id = PACKET_ID_BYTES[self._outbox.window.take(1)] if acknowledged else b""
        encoded = encode_retained(value.address, packet_id, value.record[3] or b"")
        self._outbox.link.write(encoded)
        self._outbox.flow.messages_out += 1
        self._outbox.flow.bytes_out += len(encoded)
