"""What happens on this machine, as events: processes that begin and end go through the Kafka door, busy times and a
heartbeat through the HTTP door. Values are JSON objects; addresses lie below `events/`.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from gatehouse_client.errors import HubError
from gatehouse_client.sync import SyncClient

TOPIC: Final = "events"
EVERY_S: Final = 1.0
FLUSH_S: Final = 2.0
HEARTBEAT_EVERY_S: Final = 15.0
BUSY_PERCENT: Final = 80.0
CALM_PERCENT: Final = 50.0
MAX_PROCESSES: Final = 20
"""Events of one look; a build that starts hundreds a second is told as their number."""

Event = tuple[str, dict[str, Any]]


def process_events(before: Mapping[int, str], now: Mapping[int, str]) -> list[Event]:
    """Key and value of what began and ended between two looks at (process id, name)."""
    begun = [("process/started", {"pid": pid, "name": name}) for pid, name in now.items() if pid not in before]
    ended = [("process/ended", {"pid": pid, "name": name}) for pid, name in before.items() if pid not in now]
    events = begun + ended
    left_out = len(events) - MAX_PROCESSES
    return events if left_out <= 0 else [*events[:MAX_PROCESSES], ("process/more", {"count": left_out})]


class Alarm:
    """Begins above one bound and ends below a lower one, so that it does not flutter between."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def look(self, percent: float, now_s: float) -> Event | None:
        """The event that this reading makes, if any."""
        if self._since_s is None and percent >= BUSY_PERCENT:
            self._since_s = now_s
            return "alarm/processors", {"state": "busy", "percent": percent}
        if self._since_s is not None and percent <= CALM_PERCENT:
            lasted_s, self._since_s = round(now_s - self._since_s, 1), None
            return "alarm/processors", {"state": "calm", "percent": percent, "lasted_s": lasted_s}
        return None


class Events:
    """Looks once a second, from its own thread, until stopped."""

    def __init__(self, kafka: str, url: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random", "linger.ms": 50,
                                   "enable.idempotence": True, "log_level": 0})
        self._hub = SyncClient(url)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what is left."""
        self._stopped.set()
        self._thread.join()
        self._producer.flush(FLUSH_S)
        self._hub.close()

    def _run(self) -> None:
        alarm, processes = Alarm(), names_by_id()
        began = heartbeat_at = time.monotonic()
        while not self._stopped.wait(EVERY_S):
            now, seen = time.monotonic(), names_by_id()
            self._send_kafka(process_events(processes, seen))
            processes = seen
            events = [alarm.look(psutil.cpu_percent(), now)]
            if now >= heartbeat_at:
                heartbeat_at = now + HEARTBEAT_EVERY_S
                events.append(("heartbeat", {"running_s": round(now - began), "processes": len(seen)}))
            self._send_http([event for event in events if event is not None])

    def _send_kafka(self, events: Iterable[Event]) -> None:
        for key, value in events:
            self._producer.produce(TOPIC, json.dumps(value).encode(), key)
        self._producer.poll(0)

    def _send_http(self, events: list[Event]) -> None:
        for key, value in events:
            try:
                self._hub.publish(f"{TOPIC}/{key}", json.dumps(value), content_type="application/json")
            except HubError:
                return    # the hub is away; the next event says that it is back


def names_by_id() -> dict[int, str]:
    """Every process, but for those that end while one looks."""
    return {process.pid: str(process.info["name"]) for process in psutil.process_iter(["name"])}
