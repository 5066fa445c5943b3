"""History first: what a filter that was subscribed with `from` is sent before it hears of what is new.

    SUBSCRIBE ──► [where it begins, partition by partition] ──► read ──► sent ──► at the end: live
                                                                 └────────┘

Without a durable session the end is where nothing durable is left: what comes live until then is left out, as it is
read from the log. With one it is where messages began to wait for the session, which hands them out behind the history;
what the client is done with is noted there, so that a history goes on after a sleep. Either way nothing between the two
is left out or comes twice. What is in flight with its connection when that ends comes again.
"""
from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.mqtt.codec import PACKET_ID_BYTES, encode_publish, first_too_large
from gatehouse.gateways.mqtt.mapping import qos_of, stored_message, topic_field
from gatehouse.gateways.properties.envelope import Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.message import RETAIN
from gatehouse.kernel.sessions.session_values import BY_TIME

if TYPE_CHECKING:
    from gatehouse.gateways.admission.history import FilterHistory, Stretch
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.message import Record
    from gatehouse.kernel.selectors.selector import Selector
    from gatehouse.kernel.sessions.session_values import Owed

READ_BYTES: Final = 64 << 10           # of history in memory for one filter
AT_ONCE: Final = 64                    # partitions that are read in one go; the others come in the next
EARLIEST: Final = "earliest"
OFFSET_DIGITS: Final = 18


class Begin(NamedTuple):
    """Where a history begins."""

    offset: int
    """In every partition that can hold what matches."""

    time_ms: int = -1
    """Where it is not -1: what has at least this timestamp."""


def begin_of(text: str, *, offsets: bool) -> Begin | None:
    """`earliest`, an RFC 3339 time, and a number: an offset, or else ms since 1970. None for anything else."""
    if text == EARLIEST:
        return Begin(0)
    if offsets and text.isascii() and text.isdigit():
        return Begin(int(text)) if len(text) <= OFFSET_DIGITS else None
    time_ms = normalize(Kind.TIME, text.encode())
    return None if time_ms is None else Begin(0, int(time_ms))


def owed_of(stored: FilterHistory, begin: Begin) -> Owed:
    """What there is of a history at this moment: up to what is appended next."""
    first = begin.offset if begin.time_ms < 0 else BY_TIME + begin.time_ms
    stops = {partition_id: stored.next_offset(partition_id) for partition_id in stored.partitions()}
    return {partition_id: (first if first >= BY_TIME else min(first, stop), stop)
            for partition_id, stop in stops.items()}


class FilterWish(NamedTuple):
    """What the subscription that a history is for says of it."""

    filter: str
    qos: int
    identifier: int = 0
    as_published: bool = False
    selector: Selector | None = None


class History:
    """One filter's of one client. A `backlog.Continuing`."""

    def __init__(self, outbox: Outbox, stored: FilterHistory, asked: FilterWish, begin: Begin | None,
                 owed: Owed | None = None) -> None:
        """`owed`: what a durable session is owed; else from `begin` up to what is new. Times are looked for."""
        self.asked = asked
        self.is_sent = False
        """All of it; without a durable session that is: live."""

        self._begun = False
        self._is_durable = owed is not None
        self._outbox = outbox
        self._stored = stored
        self._ahead: deque[tuple[int, str, str, Record]] = deque()     # partition id, topic, address
        self._reading = False
        self._judged_under: object = outbox.guard.version      # the rights that these were judged by, or later ones
        self._over = False
        self._turn = 0
        self._watch = 0
        self._positions: dict[int, int] = {}         # what is before has been read
        self._stops: dict[int, int] = {}             # what is before was on its way when the filter came, or is owed
        self._unacknowledged: dict[int, tuple[int, int]] = {}          # partition id and offset, by packet id
        self._in_flight: dict[int, OrderedDict[int, None]] = {}        # their offsets, in order, by partition id
        self._moved: dict[int, None] = {}            # partitions of which the session is to be told
        self._locating = 0
        if owed is None:
            owed = owed_of(stored, begin or Begin(0))
        there = stored.partitions()
        self._stops = {partition_id: stop for partition_id, (_, stop) in owed.items()}
        self._positions = {partition_id: 0 if first >= BY_TIME else first for partition_id, (first, _) in owed.items()}
        self._locate({partition_id: first - BY_TIME for partition_id, (first, _) in owed.items()
                      if first >= BY_TIME and partition_id in there})

    def _locate(self, times_ms: dict[int, int]) -> None:
        self._locating = len(times_ms)

        def found(partition_id: int, offset: int | None, _: int) -> None:
            stop = self._stops[partition_id]
            self._positions[partition_id] = stop if offset is None else min(offset, stop)
            if self.is_durable:
                self._moved[partition_id] = None
            self._locating -= 1
            if not self._locating:
                self.pump()

        for partition_id, time_ms in times_ms.items():
            self._stored.offset_for_time(partition_id, time_ms, partial(found, partition_id))

    @property
    def is_durable(self) -> bool:
        return self._is_durable

    def begin(self) -> None:
        """It may be sent from now on."""
        self._begun = True
        self.pump()

    def end(self) -> None:
        """The filter is over, or the connection."""
        self._over = True
        self._ahead.clear()
        self._outbox.clients.catching_up.remove(self)
        if self._watch:
            self._outbox.guard.unwatch(self._watch)
            self._watch = 0

    def takes(self, partition_id: int, offset: int, transient: bool) -> bool:
        """Whether a message that comes live is none of the history."""
        if self.is_durable:
            return offset >= self._stops.get(partition_id, 0) if transient else True
        return self.is_sent and offset >= self._positions.get(partition_id, 0)

    # ---- its turn

    def pump(self) -> None:
        """Go on when its turn comes, where there is room."""
        if self._begun and not (self._over or self.is_sent or self._locating or self._reading or self._watch) \
                and self._outbox.may_send(self.asked.qos > 0):
            self._outbox.clients.catching_up.add(self)

    def go_on(self) -> None:
        """Send a piece, or read the next one."""
        if self._over or self.is_sent:
            return
        if self._ahead:
            self._look_again()
            self._send()
        if not self._ahead and not self._reading:
            self._read()
        self.pump_rest()

    def pump_rest(self) -> None:
        """Go on where something is in hand."""
        if self._ahead:
            self.pump()

    def _read(self) -> None:
        try:
            partitions = self._stored.partitions()
        except Denied:
            self.end()
            return
        wants: list[int] = []
        waits: list[int] = []
        for partition_id in self._stops if self.is_durable else partitions:
            at = self._positions.setdefault(partition_id, 0)
            if partition_id not in partitions:
                self._positions[partition_id] = max(at, self._stops.get(partition_id, 0))      # it was deleted
                continue
            durable = self._stored.bounds(partition_id)[1]
            stop = self._stops.get(partition_id, 0)
            if at < (min(durable, stop) if self.is_durable else durable):
                wants.append(partition_id)
            elif at < stop:
                waits.append(partition_id)
        if wants:
            if len(wants) > AT_ONCE:
                self._turn = (self._turn + AT_ONCE) % len(wants)
                wants = (wants[self._turn:] + wants[:self._turn])[:AT_ONCE]
            self._reading = True
            self._stored.read([(partition_id, self._positions[partition_id], READ_BYTES // len(wants))
                               for partition_id in wants], READ_BYTES, self._on_read)
        elif waits:
            self._watch = self._outbox.guard.watch(waits, self._on_durable)
        else:
            self._finish()

    def _on_durable(self) -> None:
        self._watch = 0
        self.pump()

    def _on_read(self, stretches: list[Stretch]) -> None:
        self._reading = False
        if self._over:
            return
        for stretch in stretches:
            partition_id, before = stretch.partition_id, self._positions[stretch.partition_id]
            if stretch.error is not None and stretch.topic:
                self._outbox.session.give_up(f"storage_failed: the history of {self.asked.filter} cannot be read")
                return
            stop = self._stops.get(partition_id, 0) if self.is_durable else stretch.next_offset
            self._positions[partition_id] = max(before, min(stretch.next_offset, stop))
            if self.is_durable:
                self._moved[partition_id] = None
            self._ahead.extend([(partition_id, stretch.topic, address, record) for address, record in stretch.records
                                if record[0] < stop])
        self._outbox.clients.catching_up.add(self)

    def _finish(self) -> None:
        self.is_sent = True
        durable = self._outbox.durable
        if self.is_durable and durable is not None:
            self._note()
            durable.end_history(self.asked.filter)

    # ---- sending

    def _look_again(self) -> None:  # decision 336
        """Where rights have changed: what was read and may not be had any more is dropped and counted."""
        guard, count = self._outbox.guard, len(self._ahead)
        if self._judged_under is guard.version:
            return
        self._judged_under = guard.version
        self._ahead = deque([each for each in self._ahead if guard.may_consume(each[2])])
        if len(self._ahead) < count:
            self._outbox.trace.on_event("mqtt", "dropped_denied", count - len(self._ahead))

    def _send(self) -> None:
        outbox, ahead, parts = self._outbox, self._ahead, list[bytes]()
        sent: list[tuple[str, str, int]] = []
        size, room = 0, min(READ_BYTES, outbox.room_now())
        while ahead and size < room:
            partition_id, topic, address, record = ahead[0]
            qos = qos_of(record[5], self.asked.qos)
            if not outbox.may_send(qos > 0) or len(parts) >= outbox.left:
                break
            ahead.popleft()
            packet = self._encode(partition_id, topic, address, record, qos)
            if packet:
                parts.append(packet)
                size += len(packet)
                sent.append((topic, address, len(packet)))
        if parts:
            outbox.link.write_many(parts)
        for (topic, address), together in groupby(sent, itemgetter(0, 1)):
            sizes = [each[2] for each in together]
            outbox.handed_out(len(sizes), sum(sizes), topic, address)
        self._note()

    def _encode(self, partition_id: int, topic: str, address: str, record: Record, qos: int) -> bytes:
        """The PUBLISH; nothing where the client is not to have it."""
        outbox, asked = self._outbox, self.asked
        if asked.selector is not None and not asked.selector.matches(record[4], record[2], address, topic, record[1],
                                                                     record[3]):
            return b""
        message, tail, name = stored_message(record), b"", topic_field(address)
        if outbox.outgoing is not None:
            shown = outbox.outgoing.shared_tail(message, address, asked.identifier)
            if shown is None:
                return b""
            tail = shown
            if not first_too_large([message], 0, 1, len(name) + len(tail) + (2 if qos else 0),
                                   outbox.outgoing.packet_bytes_max):
                outbox.trace.on_event("mqtt", "dropped_large")
                return b""
        raw_id = b""
        if qos:
            packet_id = outbox.take(1, qos == 2)
            raw_id = PACKET_ID_BYTES[packet_id]
            if self.is_durable:
                self._unacknowledged[packet_id] = partition_id, record[0]
                self._in_flight.setdefault(partition_id, OrderedDict())[record[0]] = None
        retain = asked.as_published and record[5] & RETAIN != 0
        return encode_publish(0x30 | qos << 1 | retain, name, raw_id, tail, message[1] or b"")

    # ---- with a durable session

    def on_answered(self, packet_id: int) -> None:
        """The client is done with what was sent under this packet id, or has it."""
        place = self._unacknowledged.pop(packet_id, None)
        if place is not None:
            self._in_flight[place[0]].pop(place[1], None)
            self._moved[place[0]] = None

    def settle(self) -> bool:
        """Tell the session what the client is done with; whether that is all."""
        self._note()
        return self.is_sent and not self._unacknowledged

    def _note(self) -> None:
        durable = self._outbox.durable
        if not self._moved or durable is None:
            return
        waiting: dict[int, int] = {}
        for partition_id, _, _, record in self._ahead:
            waiting.setdefault(partition_id, record[0])
        reached: dict[int, int] = {}
        for partition_id in self._moved:
            sent = waiting.get(partition_id, self._positions[partition_id])
            reached[partition_id] = next(iter(self._in_flight.get(partition_id, ())), sent)
        self._moved = {}
        durable.move_history(self.asked.filter, reached)
