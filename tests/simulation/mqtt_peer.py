"""An MQTT 3.1.1 client of the simulator: publishes with QoS 1, or subscribes. Its own few lines of codec."""
from __future__ import annotations

from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.kernel.message import RETAIN
from tests.simulation.checker import Attempt, Broken, Ledger, Sent
from tests.simulation.clients import ELSEWHERE, FILTERS
from tests.simulation.wire import Wire

CONNECT = bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")       # clean session, no keep alive, no client id
CONNACK, PUBLISH, PUBACK, SUBACK = 0x20, 0x30, 0x40, 0x90
PACKET_IDS = 60_000


def packet(first: int, body: bytes) -> bytes:
    size, header = len(body), bytearray((first,))
    while size > 127:
        header.append(size & 127 | 128)
        size >>= 7
    header.append(size)
    return bytes(header) + body


def text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


class MqttPeer:
    """One connection. What it publishes counts as acknowledged when it has read the PUBACK."""

    spec = GATEWAY

    def __init__(self, wire: Wire, ledger: Ledger) -> None:
        self.wire = wire
        self._ledger = ledger
        self._buffer = b""
        self._next_id = 1
        self._unanswered: dict[int, Attempt] = {}
        self._matches = FILTERS[0][1]
        self._heard: set[tuple[int, int]] = set()
        self._newest: dict[str, tuple[int, int]] = {}       # by address, the last marked to be retained that came live
        self.listening = False
        self.owed: list[Attempt] = []                       # sent to the hub while this one listens
        wire.client = self
        wire.send(CONNECT)

    # ---- what it does

    def publish(self, attempt: Attempt) -> None:
        """A packet per message; each is acknowledged by itself, so an attempt is one message."""
        sent, = attempt.messages
        self._unanswered[self._next_id] = attempt
        attempt.waiting += 1
        attempt.calls += 1
        self.wire.send(packet(PUBLISH | 2, text(sent.address) + self._next_id.to_bytes(2, "big") + sent.value))
        self._next_id = self._next_id % PACKET_IDS + 1

    def subscribe(self, number: int) -> None:
        name, self._matches = FILTERS[number % len(FILTERS)]
        self.wire.send(packet(0x82, b"\0\1" + text(name) + b"\1"))

    # ---- what it hears

    def on_data(self, data: bytes) -> None:
        self._buffer += data
        while True:
            found = self._next_packet()
            if found is None:
                return
            first, body = found
            if first == PUBACK:
                self._acknowledged(int.from_bytes(body, "big"))
            elif first & 0xF0 == PUBLISH:
                self._deliver(first, body)
            elif first == SUBACK:
                if body[2:] != b"\1":
                    raise Broken(f"a subscription was refused: {body!r}")
                self.listening = True
            elif (first, body) != (CONNACK, b"\0\0"):
                raise Broken(f"an MQTT client was sent {first:#x} {body!r}")

    def _next_packet(self) -> tuple[int, bytes] | None:
        buffer, size, at = self._buffer, 0, 1
        while True:
            if at >= len(buffer):
                return None
            size |= (buffer[at] & 127) << 7 * (at - 1)
            at += 1
            if buffer[at - 1] < 128:
                break
        if at + size > len(buffer):
            return None
        self._buffer = buffer[at + size:]
        return buffer[0], buffer[at:at + size]

    def _acknowledged(self, packet_id: int) -> None:
        if next(iter(self._unanswered), None) != packet_id:
            raise Broken(f"PUBACK {packet_id} where {next(iter(self._unanswered), None)} is next")
        self._ledger.confirm(self._unanswered.pop(packet_id))

    def _deliver(self, first: int, body: bytes) -> None:
        size = int.from_bytes(body[:2], "big")
        address, rest = body[2:2 + size].decode(), body[2 + size:]
        if first & 6:
            self.wire.send(packet(PUBACK, rest[:2]))
            rest = rest[2:]
        if address.startswith(ELSEWHERE):
            return
        found = self._ledger.identify(rest)
        sent = self._ledger.attempts[found[0]].messages[found[1]]
        if sent.address != address or not self._matches(address):
            raise Broken(f"{found} was sent to {sent.address} and delivered as {address}")
        if first & 1:
            self._check_retained(found, sent)
            return
        if sent.attributes & RETAIN:
            self._newest[address] = max(found, self._newest.get(address, found))
        if found in self._heard:
            raise Broken(f"doubled: {found} was delivered twice over MQTT")
        self._heard.add(found)
        self._ledger.promise(*found)

    def _check_retained(self, found: tuple[int, int], sent: Sent) -> None:
        """What a subscription is given first: it may have been heard live as well, and is never older than that."""
        if not sent.attributes & RETAIN or found < self._newest.get(sent.address, found):
            raise Broken(f"{found} was given as the value of {sent.address}, which is {self._newest.get(sent.address)}")

    def check(self, partition_ids: set[int]) -> None:
        """At rest: as for `clients.Listener`."""
        for attempt in self.owed:
            for index, sent in enumerate(attempt.messages):
                if attempt.answered and self._matches(sent.address) \
                        and (attempt.number, index) not in self._heard \
                        and (attempt.kind != "batch" or sent.partition_id in partition_ids):
                    raise Broken(f"an MQTT subscriber never heard {attempt.number}.{index} at {sent.address}")
        self.owed.clear()

    def on_lost(self) -> None:
        for attempt in self._unanswered.values():
            attempt.lost_call()
        self._unanswered.clear()
        self.listening = False
