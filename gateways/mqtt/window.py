"""Which packet ids of our PUBLISH packets to one client are in flight, and what of QoS 2 has been said of them. Pure.

    QoS 1    PUBLISH ─► PUBACK
    QoS 2    PUBLISH ─► PUBREC ─► PUBREL ─► PUBCOMP
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt.codec import PACKET_IDS, PUBACK_SIZE, PUBACKS
from gatehouse.gateways.mqtt.errors import ProtocolError

RUN_MAX: Final = 1024          # acknowledgements compared at once: a longer try costs too much when it fails
LAST_ID: Final = PACKET_IDS - 1
INFLIGHT_LIMIT: Final = LAST_ID - 1
NOTHING_EARLY: Final[set[int]] = set()         # of who acknowledges in order: a set of its own takes 216 bytes
NOTHING_EXACT: Final[dict[int, bool]] = {}


class Window:
    """Which packet ids of our PUBLISH packets are in flight. `inflight_max`: 1 to `INFLIGHT_LIMIT`.

    Ids are given in order, 1 after 65535, so that what is in flight is a span of the ring and acknowledgements in the
    order of sending, as [MQTT-4.6.0-2] demands, are checked a run at a time by comparing bytes. Those that come out of
    order are kept until what is before them has come: no id is given again while it is in flight. A client that never
    acknowledges one message therefore gets no more than `INFLIGHT_LIMIT` after it.

    `lowest`: the ids below belong to somebody else, the client's durable session. Then what is given at once does not
    go beyond the end of the ring.
    """

    def __init__(self, inflight_max: int, lowest: int = 1) -> None:
        self._inflight_max: int = inflight_max
        self._lowest: int = lowest
        self._size: int = LAST_ID - lowest + 1     # of the ring
        self._oldest: int = lowest                     # the id that was given longest ago and is not acknowledged
        self._span: int = 0                        # ids given from there on, acknowledged out of order or not
        self._early: set[int] = NOTHING_EARLY      # those of the span that are acknowledged already
        self._exact: dict[int, bool] = NOTHING_EXACT   # those with QoS 2, and whether PUBREC has come

    def room(self) -> int:
        """How many messages may be sent now."""
        span_room = self._size - 1 - self._span
        quota = self._inflight_max - self._span + len(self._early)
        if self._lowest > 1:
            span_room = min(span_room, PACKET_IDS - self._first())
        return quota if quota < span_room else span_room

    def set_max(self, inflight_max: int) -> None:
        """So many may be in flight from now on."""
        self._inflight_max = inflight_max

    def _first(self) -> int:
        """The id that is given next."""
        first = self._oldest + self._span
        return first - self._size if first > LAST_ID else first

    def in_flight(self) -> int:
        return self._span - len(self._early)

    def take(self, count: int, exact: bool = False) -> int:
        """Give out `count` ids, at most `room()`; returns the first, the others follow it on the ring. `exact`: for
        QoS 2."""
        first = self._first()
        self._span += count
        if exact:
            if self._exact is NOTHING_EXACT:
                self._exact = {}
            for n in range(count):
                self._exact[(first - self._lowest + n) % self._size + self._lowest] = False
        return first

    def acknowledge(self, data: bytes, pos: int) -> int:
        """Take the whole PUBACK packets from `pos` on; returns the position of what is no whole PUBACK of four bytes.

        An id that is not in flight is ignored: it may be a late answer on a connection that began anew.
        Raises ProtocolError.
        """
        end = len(data)
        while end - pos >= PUBACK_SIZE and data[pos] == 0x40:
            run = min((end - pos) // PUBACK_SIZE, RUN_MAX)
            in_order = min(run, self._span, PACKET_IDS - self._oldest)
            size = in_order * PUBACK_SIZE
            at = self._oldest * PUBACK_SIZE
            if in_order > 0 and not self._early and not self._exact and data[pos:pos + size] == PUBACKS[at:at + size]:
                self._advance(in_order)
                pos += size
                continue
            while run > 0 and data[pos] == 0x40:
                if data[pos + 1] != 2:
                    return pos
                self.acknowledge_one(data[pos + 2] << 8 | data[pos + 3])
                pos += PUBACK_SIZE
                run -= 1
        return pos

    def acknowledge_one(self, packet_id: int) -> None:
        """A PUBACK. Raises ProtocolError."""
        if packet_id == 0:
            raise ProtocolError("[MQTT-2.3.1-1] a PUBACK with packet id 0")
        if packet_id in self._exact:
            raise ProtocolError("[MQTT-4.3.3-1] a PUBACK for a PUBLISH with QoS 2")
        self._give_back(packet_id)

    def has_received(self, packet_id: int) -> bool:
        """A PUBREC that says yes: the client has the message. False where no such PUBLISH with QoS 2 is in flight."""
        if packet_id not in self._exact:
            return False
        self._exact[packet_id] = True
        return True

    def complete(self, packet_id: int) -> bool:
        """A PUBCOMP, or a PUBREC that says no: the id is free. False where no such PUBLISH with QoS 2 is in flight."""
        if self._exact.pop(packet_id, None) is None:
            return False
        self._give_back(packet_id)
        return True

    def _give_back(self, packet_id: int) -> None:
        if packet_id < self._lowest:
            return
        distance = packet_id - self._oldest
        if distance < 0:
            distance += self._size
        if distance >= self._span:
            return
        if distance:
            if self._early is NOTHING_EARLY:
                self._early = set()
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
            self._oldest -= self._size
