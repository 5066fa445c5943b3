"""The device: publishes this machine's readings over MQTT once a second, QoS 1, with paho as any device would."""
from __future__ import annotations

import threading
import time
from typing import Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from gatehouse.demo.telemetry import Telemetry

EVERY_S: Final = 1.0
QOS: Final = 1
MAX_QUEUED: Final = 10_000
"""Readings that wait in the client while the hub is away; then the newest are lost, as on any device."""


def value_of(number: float) -> str:
    """A reading as a message's value."""
    return str(round(number)) if number >= 1e6 else f"{number:g}"


class Device:
    """Publishes from its own thread until stopped."""

    def __init__(self, host: str, port: int) -> None:
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="machine")
        self._client.max_queued_messages_set(MAX_QUEUED)
        self._client.connect(host, port)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device")
        self.published = 0

    def start(self) -> None:
        self._client.loop_start()
        self._thread.start()

    def stop(self) -> None:
        """Publish nothing more, and go when what was published is acknowledged or a second has passed."""
        self._stopped.set()
        self._thread.join()
        self._client.disconnect()
        self._client.loop_stop()

    def _run(self) -> None:
        telemetry = Telemetry(time.monotonic())
        due = time.monotonic() + EVERY_S
        last = None
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            due += EVERY_S
            for address, value in telemetry.read(time.monotonic()):
                last = self._client.publish(address, value_of(value), QOS)
                self.published += 1
        if last is not None and self._client.is_connected():
            last.wait_for_publish(EVERY_S)
