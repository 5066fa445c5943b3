"""Which packet ids of our PUBLISH packets are in flight. Hot: compiled by mypyc with the codec.

Ids are given in order, 1 after 65535, so that what is in flight is a span of the ring and acknowledgements in the
order of sending, as [MQTT-4.6.0-2] demands, are checked a run at a time by comparing bytes. Those that come out of
order are kept until what is before them has come: no id is given again while it is in flight. A client that never
acknowledges one message therefore gets no more than `inflight_max` after it.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt.codec import PACKET_IDS, PUBACK_SIZE, PUBACKS
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError

RUN_MAX: Final = 1024          # acknowledgements compared at once: a longer try costs too much when it fails
LAST_ID: Final = PACKET_IDS - 1
INFLIGHT_LIMIT: Final = LAST_ID - 1


class Window:
    """`inflight_max`: 1 to `INFLIGHT_LIMIT`."""

    def __init__(self, inflight_max: int) -> None:
        self._inflight_max: int = inflight_max
        self._oldest: int = 1                      # the id that was given longest ago and is not acknowledged
        self._span: int = 0                        # ids given from there on, acknowledged out of order or not
        self._early: set[int] = set()              # those of the span that are acknowledged already

    def room(self) -> int:
        """How many messages may be sent now."""
        return self._inflight_max - self._span

    def in_flight(self) -> int:
        return self._span - len(self._early)

    def take(self, count: int) -> int:
        """Give out `count` ids, at most `room()`; returns the first, the others follow it on the ring."""
        first = self._oldest + self._span
        if first > LAST_ID:
            first -= LAST_ID
        self._span += count
        return first

    def acknowledge(self, data: bytes, pos: int) -> int:
        """Take the whole PUBACK packets from `pos` on; returns the position of what is no whole PUBACK.

        An id that is not in flight is ignored: it may be a late answer on a connection that began anew.
        Raises ProtocolError.
        """
        end = len(data)
        while end - pos >= PUBACK_SIZE and data[pos] == 0x40:
            run = min((end - pos) // PUBACK_SIZE, RUN_MAX)
            in_order = min(run, self._span, PACKET_IDS - self._oldest)
            size = in_order * PUBACK_SIZE
            at = self._oldest * PUBACK_SIZE
            if in_order > 0 and not self._early and data[pos:pos + size] == PUBACKS[at:at + size]:
                self._advance(in_order)
                pos += size
                continue
            while run > 0 and data[pos] == 0x40:
                if data[pos + 1] != 2:
                    raise MalformedPacket("a PUBACK whose remaining length is not 2 (3.4.1)")
                self._acknowledge_one(data[pos + 2] << 8 | data[pos + 3])
                pos += PUBACK_SIZE
                run -= 1
        return pos

    def _acknowledge_one(self, packet_id: int) -> None:
        if packet_id == 0:
            raise ProtocolError("[MQTT-2.3.1-1] a PUBACK with packet id 0")
        distance = packet_id - self._oldest
        if distance < 0:
            distance += LAST_ID
        if distance >= self._span:
            return
        if distance:
            self._early.add(packet_id)
            return
        self._advance(1)
        while self._oldest in self._early:
            self._early.discard(self._oldest)
            self._advance(1)

    def _advance(self, count: int) -> None:
        self._span -= count
        self._oldest += count
        if self._oldest > LAST_ID:
            self._oldest -= LAST_ID
