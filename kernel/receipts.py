"""Tells senders what became of their messages: that a group has acknowledged one, or that it died or expired.

    a message with the header `receipt` enters ──► may its sender publish at that address? ──► it waits, durably
    a group acks it, gives it up, commits an offset behind it ──► a receipt, in the frame of that

A receipt is a message at the address that the sender named, with the correlation id and the trace of his own:

    {"receipt": "acked", "id": "7", "group": "billing", "address": "orders/7", "attempts": 1, "at": ms}

`receipt` is `acked`, `dead` (with a `reason`), `expired` or `dropped`. A group is told of once as having acknowledged;
a death is told of each time, as what is redriven may be acknowledged later. A receipt asks for none.

The state record of a message that waits for one, by its id (u64), is JSON:

    [tenant, address of the receipt, group, asked at (ms), correlation id, traceparent,
     [[partition id, offset], ...], [told, ...], address, may create, maker]

The two headers are Latin-1 text, so that any bytes fit. `told` are the groups that have acknowledged it; the last two
are what its sender might do at the address, see `Allowed`.
"""
from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gatehouse.kernel.addresses.address import check_address
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.errors import KernelError, ReceiptDenied, Stopping
from gatehouse.kernel.message import Allowed, Judge, Message, Placement, StateRecord
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.headers import CORRELATION, TRACEPARENT, Asked, asked_in, asking_among
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.write.committer import Committer, QueueLimits
from gatehouse.kernel.write.pending_frame import PendingFrame, Run, check

KEPT_MS: Final = 7 * 24 * 3_600_000
"""For how long a message waits for its receipts."""

MAX_WAITING: Final = 50_000
"""Messages that may wait for receipts at a time. Of those beyond, the oldest are let go of, and counted."""

MAX_PLACES: Final = 32
"""Of one message: its partition, queues that it entered, dead letters, what was redriven."""

MAX_TOLD: Final = 64
"""Groups that one message is told of."""

MAX_PASSED: Final = 10_000
"""Groups and partitions of which it is known how far their commits were looked at; else they are looked at again."""

WORDS: Final = {"expired": "expired", "overflow": "dropped"}
"""What a receipt says of the reasons in `groups.policy`; of any other that it died."""

_ID: Final = struct.Struct(">Q")

ACKED: Final = "acked"
DEAD: Final = "dead"
JSON: Final = b"application/json"
CONTENT_TYPE: Final = b"content-type"


BEFORE: Final = Allowed(False, "")
"""Of a message that was judged before."""


class Asking(NamedTuple):
    """One message of a call that asks for a receipt, judged: its index, and whose it is."""

    at: int
    asked: Asked
    tenant: str
    address: str                 # of the message
    allowed: Allowed


class _Entering(NamedTuple):
    """In a pending frame, without an id before that is sealed."""

    run: Run
    at: int
    asking: Asking


class _OfFrame:
    """What one frame changes, until it is durable."""

    __slots__ = ("entering", "told", "ended", "copied")

    def __init__(self) -> None:
        self.entering: list[_Entering] = []
        self.told: list[tuple[Awaited, str]] = []         # and the group that has acknowledged it
        self.ended: list[Awaited] = []
        self.copied: list[tuple[Awaited, int, int]] = []  # partition id and offset of a copy that is in it


class Receipts:
    """Tells senders what became of their messages; a `write.pending_frame.Participant`."""

    def __init__(self, *, committer: Committer, state: StateTable, places: Places,
                 wall_ms: Callable[[], int]) -> None:
        self._committer = committer
        self._state = state
        self._places = places
        self._queue_limits: QueueLimits | None = None
        self._wall_ms = wall_ms
        self._all = AllAwaited()
        self.waiting: Mapping[int, Awaited] = self._all.messages
        """Messages that wait for one, by their ids."""

        self._frames: dict[PendingFrame, _OfFrame] = {}
        self._passed: dict[tuple[str, int], int] = {}     # up to where a group's commits of a partition were looked at
        self.told = 0
        """Receipts that were sent, since the start."""

        self.lost = 0
        """Receipts that their addresses did not take, and messages that were let go of before their time."""

    def begin(self, queue_limits: QueueLimits) -> None:
        """There are queues, which may be full."""
        self._queue_limits = queue_limits

    def open(self) -> None:
        """Those of before the start wait still."""
        stored = [decode(key, value) for key, value in self._state.scan(Kind.RECEIPT)]
        for waiting in sorted(stored, key=lambda awaited: awaited.message_id):
            self._all.add(waiting)

    # ---- asking

    @staticmethod
    def judged(asks: Iterable[tuple[int, Asked, str, str]], judge: Judge | None) -> list[Asking]:  # decision 233
        """Those of these (index, what is asked, tenant, address) that are to be told, nobody where nobody judges: what
        comes from elsewhere asks for nothing here. Raises ReceiptDenied."""
        judged: list[Asking] = []
        if judge is None:
            return judged
        for at, asked, tenant, address in asks:
            try:
                check_address(asked.address)
                allowed = judge(asked.address)
            except KernelError as error:
                raise ReceiptDenied(f"no receipt can be sent to {asked.address[:100]!r}: {error}", at) from None
            if allowed is None:
                raise ReceiptDenied(f"its sender may not publish at {asked.address[:100]!r}, where it would go", at)
            judged.append(Asking(at, asked, tenant, address, allowed))
        return judged

    def asking(self, messages: Sequence[Any], placements: dict[int, Placement] | None, candidates: Sequence[int],
               judge: Judge | None) -> list[Asking]:
        """Which messages of a call are to be told of; `candidates` are those that perhaps ask. Raises ReceiptDenied."""
        if judge is None:
            return []
        asks: list[tuple[int, Asked, str, str]] = []
        for at in candidates:
            where, _, headers, _, _ = messages[at]
            asked = asked_in(headers)
            if asked is not None:
                placement: Placement = where if placements is None else placements[where]
                asks.append((at, asked, placement.tenant, placement.address))
        return self.judged(asks, judge)

    def on_entered(self, frame: PendingFrame, askings: Sequence[Asking], places: Sequence[tuple[Run, int]]) -> None:
        """These are in the pending frame, each in its place by its index."""
        mine = self._of(frame)
        for asking in askings:
            run, at = places[asking.at]
            mine.entering.append(_Entering(run, at, asking))

    def require(self, messages: Sequence[Message], judge: Judge | None) -> None:
        """These will enter later. Raises ReceiptDenied."""
        candidates = asking_among(messages)
        if candidates:
            self.asking(messages, None, candidates, judge)

    def add_copies(self, frame: PendingFrame, messages: list[Message], ids: list[int]) -> None:
        """These enter with the ids that they were given before; their senders were judged when they sent them."""
        candidates = asking_among(messages)
        places: list[tuple[Run, int]] = []
        frame.builder.add_copies(messages, ids, places if candidates else None)
        if candidates:
            self.on_entered(frame, self.asking(messages, None, candidates, lambda _: BEFORE), places)

    def add(self, frame: PendingFrame, messages: list[Message], places: list[tuple[Run, int]]) -> None:
        """These enter and are given ids; their senders were judged when they sent them."""
        candidates = asking_among(messages)
        mine: list[tuple[Run, int]] = []
        frame.builder.add(messages, mine)
        places += mine
        if candidates:
            self.on_entered(frame, self.asking(messages, None, candidates, lambda _: BEFORE), mine)

    # ---- telling

    def on_acked(self, name: str, partition_id: int, offsets: Sequence[int], attempt_of: Callable[[int], int]) -> bool:
        """A group acknowledges these. Whether somebody is told: then the ack is to be in this frame. Raises
        Stopping, with nothing done."""
        is_told = False
        for offset in offsets if self._all.reads(partition_id) else ():
            waiting = self._all.at(partition_id, offset)
            if waiting is not None and waiting.wants(name):
                self._acknowledge(waiting, name, attempt_of(offset))
                is_told = True
        return is_told

    def on_committed(self, name: str, partition_id: int, offset: int) -> None:
        """An assigned group has read what is before this. Raises Stopping, with nothing done."""
        if not self._all.reads(partition_id):
            return
        passed = self._passed.get((name, partition_id), 0)
        for waiting in self._all.within(partition_id, passed, offset):
            if waiting.wants(name):
                self._acknowledge(waiting, name, 0)
        if len(self._passed) >= MAX_PASSED:
            self._passed.clear()
        self._passed[name, partition_id] = offset

    def _acknowledge(self, waiting: Awaited, name: str, attempts: int) -> None:
        mine = self._of(self._committer.open_frame())
        self._send(waiting, ACKED, name, attempts, "")
        waiting.told.append(name)
        mine.told.append((waiting, name))
        if waiting.asked.group:
            self._all.remove(waiting)
            mine.ended.append(waiting)

    def on_given_up(self, name: str, partition_id: int, messages: Sequence[Any], reason: str) -> None:
        """A group is done with these without an ack. Raises Stopping, with nothing done."""
        if not self._all.reads(partition_id):
            return
        for message in messages:
            waiting = self._all.at(partition_id, message[1])
            if waiting is not None and waiting.wants(name):
                self._of(self._committer.open_frame())
                self._send(waiting, WORDS.get(reason, DEAD), name, message[2], reason)

    def _send(self, waiting: Awaited, what: str, name: str, attempts: int, reason: str) -> None:
        frame = self._committer.open_frame()
        asked = waiting.asked
        said = {"receipt": what, "id": str(waiting.message_id), "group": name,
                "address": waiting.address, "attempts": attempts, "reason": reason,
                "at": self._wall_ms()}
        headers: list[tuple[bytes, bytes | None]] = [(CONTENT_TYPE, JSON)]
        headers += [(header, value) for header, value in ((CORRELATION, asked.correlation),
                                                          (TRACEPARENT, asked.traceparent)) if value]
        try:
            placement = self._places.place(asked.address, waiting.tenant, waiting.may_create, waiting.maker)
            messages: list[Any] = [(placement, orjson.dumps({key: value for key, value in said.items() if value != ""}),
                                    encode_headers(headers), 0, 0)]
            if check(messages, self._places.refresh) and self._queue_limits is not None:
                self._queue_limits.refuse_full(messages)
        except Stopping:
            raise
        except KernelError:
            self.lost += 1
            return
        frame.builder.add(messages, None)
        self.told += 1

    # ---- frames

    def _of(self, frame: PendingFrame) -> _OfFrame:
        mine = self._frames.get(frame)
        if mine is None:
            mine = self._frames[frame] = _OfFrame()
        frame.join(self)
        return mine

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """See `Participant`: who waits, and for what still, is in the frame."""
        mine = self._of(frame)
        entered = [(entering, self._entered(entering)) for entering in mine.entering]
        self._refer(frame, entered)
        changed = {waiting.message_id: waiting for waiting, _ in mine.told}
        if frame.builder.has_copies:
            changed |= self._copied(frame, mine)
        for _, waiting in entered:
            self._all.add(waiting)
            changed[waiting.message_id] = waiting
        gone = {waiting.message_id for waiting in mine.ended}
        gone |= self._let_go(mine)
        frame.state += [StateRecord(Kind.RECEIPT, key_of(message_id), waiting.encode())
                        for message_id, waiting in changed.items() if message_id not in gone]
        frame.state += [StateRecord(Kind.RECEIPT, key_of(message_id), None) for message_id in gone]
        return 0

    def _entered(self, entering: _Entering) -> Awaited:
        run, at, asking = entering
        waiting = Awaited(run.first_id + at, asking.tenant, asking.asked, self._wall_ms(), asking.address,
                          asking.allowed.may_create, asking.allowed.maker)
        waiting.places.append((run.partition_id, run.first_offset + at))
        return waiting

    @staticmethod
    def _refer(frame: PendingFrame, entered: Sequence[tuple[_Entering, Awaited]]) -> None:
        """They are in the queues, too, that they entered by reference."""
        for entering, waiting in entered:
            for reference in frame.builder.references:
                if reference.run is entering.run and reference.start <= entering.at < reference.stop:
                    waiting.places.append((reference.partition_id,
                                           reference.first_offset + entering.at - reference.start))

    def _copied(self, frame: PendingFrame, mine: _OfFrame) -> dict[int, Awaited]:
        """Those of which this frame has a copy: a dead letter, or what is redriven."""
        copied: dict[int, Awaited] = {}
        for run in frame.builder.runs:
            if run.own_id < 0 or run.beside:
                continue
            for message_id in self._all.ids_within(run.first_id, run.count):
                waiting = self._all.by_id(message_id)
                if waiting is not None:
                    offset = run.first_offset + message_id - run.first_id
                    if self._all.place(waiting, run.partition_id, offset):
                        mine.copied.append((waiting, run.partition_id, offset))
                    copied[message_id] = waiting
        return copied

    def _let_go(self, mine: _OfFrame) -> set[int]:
        """Those that have waited too long, or are too many."""
        earliest_ms = self._wall_ms() - KEPT_MS
        gone: set[int] = set()
        while (oldest := next(iter(self._all), None)) is not None \
                and (oldest.asked_ms < earliest_ms or not self._all.has_room):
            self.lost += oldest.asked_ms >= earliest_ms
            self._all.remove(oldest)
            mine.ended.append(oldest)
            gone.add(oldest.message_id)
        return gone

    def applied(self, frame: PendingFrame) -> None:
        """See `Participant`."""
        self._frames.pop(frame, None)

    def failed(self, frames: list[PendingFrame]) -> None:
        """What was said in these was not said: who was told waits again, and what would have entered does not, nor lies
        a copy anywhere: others will lie there."""
        for frame in reversed(frames):
            mine = self._frames.pop(frame, None)
            if mine is None:
                continue
            for waiting, name in mine.told:
                waiting.told.remove(name)
            for waiting in mine.ended:
                self._all.add(waiting)
            for waiting, partition_id, offset in mine.copied:
                self._all.take_away(waiting, partition_id, offset)
            for entering in mine.entering:
                entered = self._all.by_id(entering.run.first_id + entering.at) if entering.run.first_id >= 0 else None
                if entered is not None:
                    self._all.remove(entered)
        self._passed.clear()

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        return {"receipts_waiting": len(self._all), "receipts_total": self.told, "receipts_lost_total": self.lost}


def key_of(message_id: int) -> bytes:
    """The key of its state record."""
    return _ID.pack(message_id)


class Awaited:
    """One message. `group`: "" for whoever acknowledges it."""

    __slots__ = ("message_id", "tenant", "asked", "asked_ms", "places", "told", "address", "may_create", "maker")

    def __init__(self, message_id: int, tenant: str, asked: Asked, asked_ms: int, address: str, may_create: bool,
                 maker: str) -> None:
        self.message_id = message_id
        self.tenant = tenant
        self.asked = asked
        self.asked_ms = asked_ms
        self.address = address
        self.may_create = may_create
        self.maker = maker
        self.places: list[tuple[int, int]] = []
        self.told: list[str] = []

    def wants(self, group: str) -> bool:
        """Whether its sender is to be told of this group."""
        return self.asked.group in ("", group) and group not in self.told and len(self.told) < MAX_TOLD

    def encode(self) -> bytes:
        """The value of its state record."""
        asked = self.asked
        return orjson.dumps([
            self.tenant, asked.address, asked.group, self.asked_ms, asked.correlation.decode("latin-1"),
            asked.traceparent.decode("latin-1"), self.places, self.told, self.address, self.may_create, self.maker])


def decode(key: bytes, value: bytes) -> Awaited:
    """From a state record."""
    tenant, to, group, asked_ms, correlation, traceparent, places, groups, address, may_create, maker = (
        orjson.loads(value))
    waiting = Awaited(_ID.unpack(key)[0], tenant, Asked(
        to, group, correlation.encode("latin-1"), traceparent.encode("latin-1")), asked_ms, address, may_create, maker)
    waiting.places = [(partition_id, offset) for partition_id, offset in places]
    waiting.told = groups
    return waiting


class AllAwaited:
    """All messages that wait for a receipt, by their ids and by where they lie."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self.messages: dict[int, Awaited] = {}                      # by id, the oldest first
        self._ids: list[int] = []                                  # sorted
        self._of: dict[int, dict[int, Awaited]] = {}               # by partition id, then by offset
        self._offsets: dict[int, list[int]] = {}                   # by partition id, sorted

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Awaited]:
        """The oldest first."""
        return iter(self.messages.values())

    @property
    def has_room(self) -> bool:
        """Whether one more may wait without another being let go of."""
        return len(self.messages) < self._most

    def by_id(self, message_id: int) -> Awaited | None:
        """The one with this id."""
        return self.messages.get(message_id)

    def add(self, waiting: Awaited) -> None:
        """It waits; its places are in it."""
        if waiting.message_id in self.messages:
            self.remove(waiting)
        self.messages[waiting.message_id] = waiting
        insort(self._ids, waiting.message_id)
        for partition_id, offset in waiting.places:
            self._note(waiting, partition_id, offset)

    def place(self, waiting: Awaited, partition_id: int, offset: int) -> bool:
        """It lies there, too. Whether that is new, and there was room for it."""
        if len(waiting.places) >= MAX_PLACES or (partition_id, offset) in waiting.places:
            return False
        waiting.places.append((partition_id, offset))
        self._note(waiting, partition_id, offset)
        return True

    def take_away(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        """It does not lie there after all."""
        waiting.places.remove((partition_id, offset))
        self._forget(waiting, partition_id, offset)

    def _note(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        of = self._of.setdefault(partition_id, {})
        if offset not in of:
            insort(self._offsets.setdefault(partition_id, []), offset)
        of[offset] = waiting

    def remove(self, waiting: Awaited) -> None:
        """Nobody is told of it any more."""
        if self.messages.pop(waiting.message_id, None) is None:
            return
        del self._ids[bisect_left(self._ids, waiting.message_id)]
        for partition_id, offset in waiting.places:
            self._forget(waiting, partition_id, offset)

    def _forget(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        of = self._of.get(partition_id, {})
        if of.get(offset) is waiting:
            del of[offset]
            offsets = self._offsets[partition_id]
            del offsets[bisect_left(offsets, offset)]
            if not of:
                del self._of[partition_id], self._offsets[partition_id]

    def at(self, partition_id: int, offset: int) -> Awaited | None:
        """The one at this offset."""
        of = self._of.get(partition_id)
        return None if of is None else of.get(offset)

    def reads(self, partition_id: int) -> bool:
        """Whether one lies in this partition."""
        return partition_id in self._of

    def within(self, partition_id: int, start: int, stop: int) -> list[Awaited]:
        """Those that lie from one offset to before another."""
        offsets = self._offsets.get(partition_id)
        if offsets is None:
            return []
        of = self._of[partition_id]
        return [of[offset] for offset in offsets[bisect_left(offsets, start):bisect_left(offsets, stop)]]

    def ids_within(self, first_id: int, count: int) -> list[int]:
        """Those with ids from `first_id` on."""
        at = bisect_left(self._ids, first_id)
        return self._ids[at:bisect_left(self._ids, first_id + count, at)]
