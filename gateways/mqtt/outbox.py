"""What one client is still to be sent, in order and bounded: the wire, then memory, then the log.

    on_delivery -> [sent at once]                     while the client keeps up
                -> waiting messages (memory)          QoS 1, when its window or its socket is full
                -> waiting ranges (queue and offsets) QoS 1, when memory's share is used up; read back with kernel.fetch
                -> dropped and counted                QoS 0, when its socket is full

What waits is sent before anything newer of QoS 1, so the order of each topic and QoS is kept [MQTT-4.6.0-6]; QoS 0
never waits. When more ranges are owed than may be remembered, the client is disconnected: a silent gap would be a
lie.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from gateways.mqtt import mapping
from gateways.mqtt.codec import encode_qos0, encode_qos1, run_of, size_of
from gateways.mqtt.window import Window
from kernel.batch import records_of
from kernel.errors import CorruptBatch, OffsetOutOfRange, StorageFailed, UnknownQueue
from kernel.message import TRANSIENT, Delivery, Fetched, Message, Placement, Record

if TYPE_CHECKING:
    from gateways.admission.trace import Trace
    from gateways.contract import Link
    from gateways.mqtt.clients import Clients
    from gateways.mqtt.config import MqttConfig
    from kernel.kernel import Kernel

FETCH_RANGES: Final = 64               # ranges read back in one go
FETCH_BYTES: Final = 256 * 1024        # and bytes

Waiting = tuple[Placement, "list[Message]", int]
"""(placement, messages, index of the first that has not been sent)"""


class _Range:
    """Consecutive offsets of one queue, all of one placement, that the client is owed.

    The queue is noted, since a placement moves when its topic gets more queues.
    """

    __slots__ = ("count", "first_offset", "placement", "queue_id")

    def __init__(self, placement: Placement, first_offset: int, count: int) -> None:
        self.placement = placement
        self.queue_id = placement.queue_id
        self.first_offset = first_offset
        self.count = count

    def goes_on(self, placement: Placement, offset: int) -> bool:
        """Whether a message of this placement at this offset is the next."""
        return (self.placement is placement and self.queue_id == placement.queue_id
                and self.first_offset + self.count == offset)


class Outbox:
    """The kernel's `Subscriber`.

    `give_up(reason)` ends the connection of a client that can no longer be served without a gap.
    """

    def __init__(self, link: Link, kernel: Kernel, clients: Clients, config: MqttConfig, trace: Trace,
                 give_up: Callable[[str], None]) -> None:
        self.window = Window(config.max_inflight)
        self._link = link
        self._kernel = kernel
        self._clients = clients
        self._config = config
        self._trace = trace
        self._give_up = give_up
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._ranges: deque[_Range] = deque()
        self._fetching = False
        self._pumping = False
        self._ended = False

    def describe(self) -> dict[str, int]:
        return {"in_flight": self.window.in_flight(), "waiting_bytes": self._waiting_bytes,
                "waiting_ranges": len(self._ranges)}

    def end(self) -> None:
        """The connection is over: nothing is sent any more and nothing is kept."""
        self._ended = True
        self._waiting.clear()
        self._ranges.clear()

    # --- live --------------------------------------------------------------------------------------------------------

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Everything of one flush for this client, in append order. `options` of a delivery is the granted QoS."""
        if self._ended:
            return
        try:
            self._deliver(deliveries)
        except Exception:
            self._give_up("internal_error: a delivery failed")     # rather than go on with a gap; the kernel logs it
            raise
        if self._waiting or self._ranges:
            self.pump()

    def _deliver(self, deliveries: list[Delivery]) -> None:
        clients = self._clients
        unsent = self._link.unsent_bytes
        unsent_max = self._config.max_unsent_bytes
        parts: list[bytes] = []
        for placement, messages, offset, granted_qos in deliveries:
            end = len(messages)
            start = 0
            while start < end:
                stop = run_of(messages, start) if granted_qos else end
                if granted_qos and not messages[start][3] & TRANSIENT:
                    encoded = self._begin(placement, messages, start, stop, offset + start, unsent <= unsent_max)
                elif unsent > unsent_max:
                    self._trace.on_event("mqtt", "dropped_slow", stop - start)
                    encoded = b""
                elif stop - start == end and len(placement.targets) > 1:
                    encoded = clients.encode_shared(clients.topic_field(placement), messages)
                else:
                    encoded = encode_qos0(clients.topic_field(placement), messages, start, stop)
                if encoded:
                    parts.append(encoded)
                    unsent += len(encoded)
                start = stop
        if len(parts) == 1:
            self._link.write(parts[0])
        elif parts:
            self._link.write_many(parts)

    def _begin(self, placement: Placement, messages: list[Message], start: int, stop: int, offset: int,
               may_send: bool) -> bytes:
        """Send what may be sent of a QoS 1 run now, which is returned encoded, and keep the rest."""
        count = 0
        encoded = b""
        if may_send and not self._waiting and not self._ranges:
            window = self.window
            count = min(window.room(), stop - start)
            if count > 0:
                encoded = encode_qos1(self._clients.topic_field(placement), messages, start, start + count,
                                      window.take(count))
        if count < stop - start:
            self._keep(placement, messages, start + count, stop, offset + count)
        return encoded

    def _keep(self, placement: Placement, messages: list[Message], start: int, stop: int, offset: int) -> None:
        ranges = self._ranges
        if not ranges:
            size = size_of(messages, start, stop)
            if self._waiting_bytes + size <= self._config.max_waiting_bytes:
                self._waiting.append((placement, messages[start:stop], 0))
                self._waiting_bytes += size
                return
        elif ranges[-1].goes_on(placement, offset):
            ranges[-1].count += stop - start
            return
        if len(ranges) >= self._config.max_waiting_ranges:
            self._give_up(f"slow_consumer: it is owed more than {len(ranges)} stretches of the log")
            return
        ranges.append(_Range(placement, offset, stop - start))

    # --- catching up -------------------------------------------------------------------------------------------------

    def acknowledge(self, data: bytes, pos: int) -> int:
        """`Window.acknowledge`, and send what was waiting for room."""
        pos = self.window.acknowledge(data, pos)
        if self._waiting or self._ranges:
            self.pump()
        return pos

    def pump(self) -> None:
        """Send what waits, as far as window and socket allow."""
        if self._pumping:
            return
        self._pumping = True
        self._send_waiting()
        while self._ranges and not self._waiting and not self._fetching and self._may_send():
            self._fetch()                # answered before it returns where all is in memory
            self._send_waiting()
        self._pumping = False

    def _may_send(self) -> bool:
        return self.window.room() > 0 and self._link.unsent_bytes <= self._config.max_unsent_bytes

    def _send_waiting(self) -> None:
        link, window, waiting = self._link, self.window, self._waiting
        unsent = link.unsent_bytes
        unsent_max = self._config.max_unsent_bytes
        while waiting and unsent <= unsent_max:
            placement, messages, start = waiting[0]
            count = min(window.room(), len(messages) - start)
            if count <= 0:
                return
            stop = start + count
            encoded = encode_qos1(self._clients.topic_field(placement), messages, start, stop, window.take(count))
            link.write(encoded)
            unsent += len(encoded)
            self._waiting_bytes -= size_of(messages, start, stop)
            if stop == len(messages):
                waiting.popleft()
            else:
                waiting[0] = (placement, messages, stop)

    def _fetch(self) -> None:
        firsts: dict[int, int] = {}
        for owed in islice(self._ranges, FETCH_RANGES):
            firsts.setdefault(owed.queue_id, owed.first_offset)
        share = FETCH_BYTES // len(firsts)
        self._fetching = True
        self._kernel.fetch([(queue_id, offset, share) for queue_id, offset in firsts.items()], FETCH_BYTES,
                           self._on_fetched)

    def _on_fetched(self, answers: list[Fetched]) -> None:
        self._fetching = False
        if self._ended:
            return
        try:
            self._take_fetched({answer.queue_id: _Found(answer) for answer in answers})
        except (StorageFailed, CorruptBatch) as error:
            self._give_up(f"{error.code}: what the client is owed cannot be read")
            return
        self.pump()

    def _take_fetched(self, found: dict[int, _Found]) -> None:
        """Move what was read to the waiting messages, in the order it is owed, up to the first gap."""
        ranges = self._ranges
        first = True
        while ranges:
            owed = ranges[0]
            source = found.get(owed.queue_id)
            if source is None:
                return
            lost = source.lost_of(owed)
            if lost:
                self._trace.on_event("mqtt", "lost_retention", lost)
                owed.first_offset += lost
                owed.count -= lost
            messages = source.take(owed) if owed.count else []
            if messages:
                self._waiting.append((owed.placement, messages, 0))
                self._waiting_bytes += size_of(messages, 0, len(messages))
                owed.first_offset += len(messages)
                owed.count -= len(messages)
            elif owed.count and lost:        # the answer was for what is gone: ask again from where it begins now
                return
            elif owed.count and first:       # promised, not lost, and not there: never wait for it for ever
                raise StorageFailed(f"queue {owed.queue_id} has nothing at offset {owed.first_offset}")
            first = False
            if owed.count:
                return
            ranges.popleft()


class _Found:
    """The answer for one queue, decoded once and taken from front to back."""

    __slots__ = ("_answer", "_at", "_records")

    def __init__(self, answer: Fetched) -> None:
        self._answer = answer
        if answer.error is not None and not isinstance(answer.error, OffsetOutOfRange | UnknownQueue):
            raise StorageFailed(str(answer.error))
        self._records: list[Record] = []
        for piece in answer.pieces:
            self._records += records_of(piece)
        self._at = 0

    def lost_of(self, owed: _Range) -> int:
        """How many of the range retention, or the deletion of its topic, has taken."""
        if isinstance(self._answer.error, UnknownQueue):
            return owed.count
        return max(0, min(owed.count, self._answer.log_start_offset - owed.first_offset))

    def take(self, owed: _Range) -> list[Message]:
        """The messages of the range from its first offset on, as far as they were read."""
        records = self._records
        at = self._at
        while at < len(records) and records[at][0] < owed.first_offset:
            at += 1
        start = at
        stop_offset = owed.first_offset + owed.count
        while at < len(records) and records[at][0] < stop_offset:
            at += 1
        self._at = at
        return [mapping.stored_message(record, owed.placement) for record in records[start:at]]
