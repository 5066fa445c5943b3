"""Half messages in the kernel: taken in, read back, and let go of, each within the pending frame.

Whatever is asked between two turns of the loop is one frame. So a decision is: the messages into their partitions, or
to their time, or to a dead-letter queue; a consumer's acks and offsets; the records of the half messages deleted; and
what whoever decides notes about it. Checks come first and raise; what follows them cannot fail but as a whole. Hot.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.errors import InvalidDelay, KernelError, OffsetOutOfRange
from gatehouse.kernel.groups.dead_lettering import HEADER, DeadLetters, deaths_of, with_history
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.halves.half_records import Half, HeldMessage, Row, decode_rows, encode_place, half_key, pending_in
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import NOW, RETAIN, Handle, Message, Owner, Placement, StateRecord, When
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.records.batch import add_header, encode_header, read_headers
from gatehouse.kernel.records.headers import asking_among
from gatehouse.kernel.scheduling.schedule_records import Pending
from gatehouse.kernel.scheduling.scheduling import AT_ONCE, MAX_DELAY_MS, Due, Scheduling, first_due, pending_of
from gatehouse.kernel.state.reading import StatePages, StateWalk
from gatehouse.kernel.state.state import Clock, Kind, StateTable, offset_record
from gatehouse.kernel.write.committer import Adding, Appending, Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Places, Submission

Name = tuple[int, bytes]
"""Kind and key of a state record."""

Acks = Sequence[tuple[LeasedGroup, Sequence[Handle]]]
Offsets = dict[str, dict[int, tuple[int, bytes]]]

MAX_OFFSET: Final = (1 << 63) - 1
PUBLISHED: Final = ~RETAIN
PLACES: Final = 10_000              # encoded places that are remembered

Way = tuple[Placement, bytes, int]
"""From a place to the dead letters: the partition, the headers that are new, encoded, and how many these are."""


class Halves:
    """What whoever decides works with. `worker` is the reading thread; `fatal` ends the process, `on_error` is told of
    a fault that was contained."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, clock: Clock,
                 committer: Committer, appending: Appending, scheduling: Scheduling,
                 leasing: Leasing, identity: Identity, fatal: Callable[[str], None],
                 on_error: Callable[[Exception], None], receipts: Receipts, recorder: Recorder | None = None) -> None:
        self.loop = loop
        self.worker = worker
        self.fatal = fatal
        self.on_error = on_error
        self._identity = identity
        self._receipts = receipts
        self._recorder = recorder
        self._index = index
        self._state = state
        self._clock = clock
        self._committer = committer
        self._appending = appending
        self._scheduling = scheduling
        self._leasing = leasing
        self._rows = Rows()

    def open_frame(self) -> PendingFrame:
        """The pending frame. Raises Stopping."""
        return self._committer.open_frame()

    def answer(self, owner: Owner | None, token: object, stamp_ms: int, places: Places | None = None) -> None:
        """Once the pending frame is durable. `stamp_ms` is hub time, and told as wall time."""
        if owner is not None:
            fixed: tuple[int, list[tuple[int, int, int]]] | None = None
            if places is None:
                fixed = self.wall_of(stamp_ms), []
            self.open_frame().submissions.append(Submission(owner, token, places, fixed))

    def wall_of(self, hub_ms: int) -> int:
        """What the wall clock said then, for what is shown."""
        return self._clock.wall_of(hub_ms)

    # ---- coming in

    def check(self, halves: list[Half]) -> None:
        """Whether these may be held; what senders say of addresses is put right, as in any append. Raises InvalidDelay,
        InvalidSchedule and what `Kernel.append` raises."""
        messages = [half.message for half in halves]
        self._appending.require(messages)
        for half, message in zip(halves, messages, strict=True):
            half.put_right(message)
            if not 0 <= half.delay_ms <= MAX_DELAY_MS:
                raise InvalidDelay("a message can wait for ten years at most")
            when = half.when
            if when is not None:
                if when.delay_ms:
                    raise InvalidDelay("a delay of a half message counts from its commit")
                first_due(when, self.loop.now_ms(), self.loop.wall_ms())

    def rows(self, halves: list[Half]) -> list[Row]:
        """These as they are kept."""
        return self._rows.of(halves)

    def append_once(self, halves: list[Half], owner: Owner | None, token: object, key: str, add: Adding) -> None:
        """Unless the key is known: then its first answer is given again, where addresses and values are the same;
        clients put times and traces of their own into what they send again. Raises what `Kernel.append` raises."""
        # decision 47: neither headers nor times
        messages = [half.message for half in halves]
        compared = [(placement, value, b"", attributes, 0) for placement, value, _, attributes, _ in messages]
        self._appending.append_once(compared, owner, token, key, add)

    def note_bytes(self, pending_frame: PendingFrame, size_bytes: int) -> None:
        """So much has been added to the pending frame."""
        pending_frame.builder.note_bytes(size_bytes)
        self._committer.note_size()

    # ---- what is told of them

    def on_held(self, pending_frame: PendingFrame, halves: list[Half], places: Places, transaction_id: int) -> None:
        """These are in the pending frame as half messages of a transaction; 0: it begins with them."""
        if self._recorder is not None:
            self._recorder.on_held(pending_frame, [half.message for half in halves], [run for run, _ in places],
                                   transaction_id)

    def on_checked(self, transaction_id: int, group: str, asked: str, attempt: int) -> None:
        """A member of the group is asked about a transaction; "": nobody was there."""
        if self._recorder is not None:
            self._recorder.on_checked(transaction_id, group, asked, attempt)

    def on_undone(self, transaction_id: int, by: str) -> None:
        """It is rolled back."""
        if self._recorder is not None:
            self._recorder.on_undone(transaction_id, by)

    def on_unanswered(self, transaction_id: int, group: str, reason: str) -> None:
        """Nobody decided about it."""
        if self._recorder is not None:
            self._recorder.on_unanswered(transaction_id, group, reason)

    # ---- reading back

    @property
    def first_id(self) -> int:
        """All message ids of earlier starts are below."""
        return self._identity.first_id

    def walk(self, kind: Kind) -> StateWalk:
        """State records of a kind, key by key on the reading thread."""
        return StateWalk(self._state, kind)

    def pages(self, kind: Kind, prefix: bytes) -> StatePages:
        """State records of a kind whose keys begin so, page by page on the reading thread."""
        return StatePages(self._state, kind, prefix)

    def recent(self, names: Iterable[Name]) -> list[bytes | None] | None:
        """The values of these state records where all of them are in memory."""
        values: list[bytes | None] = []
        for kind, key in names:
            newest = self._state.recent(kind, key)
            if newest is None:
                return None
            values.append(newest[2])
        return values

    def read(self, names: Sequence[Name], on_read: Callable[[list[bytes | None]], None]) -> None:
        """Their values, later. For keys that nobody changes meanwhile."""
        state = self._state
        recent_values = {at: newest[2] for at, name in enumerate(names) if (newest := state.recent(*name)) is not None}
        self.worker.submit(partial(self._read, names, recent_values), partial(self._done, on_read))

    def _read(self, names: Sequence[Name], recent_values: dict[int, bytes | None]) -> list[bytes | None]:
        """On the reading thread."""
        values: list[bytes | None] = []
        for at, name in enumerate(names):
            held = self._index.held(*name) if at not in recent_values else None
            values.append(held.value if held is not None else recent_values.get(at))
        return values

    def _done(self, on_read: Callable[[list[bytes | None]], None], values: list[bytes | None] | None,
              error: BaseException | None) -> None:
        if values is None:
            self.fatal(f"the index cannot be read: {error}")
        else:
            on_read(values)

    # ---- what becomes of them

    def check_commit(self, acks: Acks, offsets: Offsets) -> None:
        """Raises ExpiredReceipt or UnknownReceipt for the first lease that has ended, GroupIsLeased, InvalidGroup,
        OffsetOutOfRange: whatever `settle` cannot carry out, since the messages are in the frame already then."""
        for group, handles in acks:
            refused, _ = group.good_handles(handles)
            error = next((error for error in refused if error is not None), None)
            if error is not None:
                raise error
        for name, of_group in offsets.items():
            check_name(name, "group")
            if not all(0 <= offset <= MAX_OFFSET for offset, _ in of_group.values()):
                raise OffsetOutOfRange(f"an offset is 0 to {MAX_OFFSET}")
            self._leasing.check_commits(name, of_group)

    # decision 40: acks and offsets are in the frame of the commit
    def settle(self, acks: Acks, offsets: Offsets) -> None:
        """A consumer's acks and offsets, as checked."""
        for group, handles in acks:
            group.ack(handles)
        for name, of_group in offsets.items():
            self._committer.put_state([offset_record(name, partition_id, offset)
                                       for partition_id, offset in of_group.items()])

    # decision 39: written a second time, under the ids they were promised
    def release(self, pending_frame: PendingFrame, halves: list[HeldMessage], by: str) -> None:
        """All of a transaction, which `by` commits: into their partitions under their ids, or to their time."""
        assert not halves or halves[0].id > 0, "a half message was promised its id"
        messages: list[Message] = []
        ids: list[int] = []
        transaction_id = halves[0].id if halves else 0
        for message_id, delay_ms, what in halves:
            due = self._due(delay_ms, what)
            if due is not AT_ONCE:
                self._scheduling.book.plan_of(pending_frame).keep(
                    message_id, what._replace(due_ms=due.due_ms, by_wall=due.by_wall, start_ms=due.start_ms,
                                              accepted_ms=self.loop.wall_ms()))
                if self._recorder is not None:
                    self._recorder.on_kept(message_id, transaction_id, by, self._hub_ms(due))
                continue
            destinations = self._scheduling.destinations
            messages.append(destinations.choose((destinations.of(what), what.value, what.headers, what.attributes,
                                                 what.timestamp_ms)))
            ids.append(message_id)
        self._receipts.add_copies(pending_frame, messages, ids)
        if self._recorder is not None:
            self._recorder.on_moved(messages, ids, transaction_id, by)
        self._committer.note_size()

    def release_unchanged(self, pending_frame: PendingFrame, messages: list[Message], first_id: int, by: str) -> bool:
        """Release half messages as they came, all of them for at once. False, and nothing is done: places have changed
        since."""
        for placement, _, _, _, _ in messages:
            if placement.version != placement.first_level.version or placement.choosing:
                return False
        ids = list(range(first_id, first_id + len(messages)))
        if asking_among(messages):                       # as few do
            self._receipts.add_copies(pending_frame, messages, ids)
        else:
            pending_frame.builder.add_copies(messages, ids, None)
        if self._recorder is not None:
            self._recorder.on_moved(messages, ids, first_id, by)
        self._committer.note_size()
        return True

    def _hub_ms(self, due: Due) -> int:
        """When it falls due, by hub time."""
        return due.due_ms - self.loop.wall_ms() + self.loop.now_ms() if due.by_wall else due.due_ms

    def _due(self, delay_ms: int, what: Pending) -> Due:
        if not delay_ms and not what.due_ms and not what.repeat:
            return AT_ONCE
        now_ms, wall_ms = self.loop.now_ms(), self.loop.wall_ms()
        if what.due_ms and delay_ms:
            when = When(max(what.due_ms, wall_ms + delay_ms), what.repeat)
        else:
            when = When(what.due_ms, what.repeat, delay_ms)
        try:
            return first_due(when, now_ms, wall_ms)
        except KernelError:                  # a repetition that is over by now: once, and at once
            return AT_ONCE

    def dead_letter(self, pending_frame: PendingFrame, pages: list[bytes], group: str, tenant: str,
                    death: dict[str, Any]) -> None:
        """All of these pages into the group's dead-letter queue, with what `death` says beside where each message was
        to go. Raises Stopping, with nothing done."""
        letters = Letters(self._leasing.letters, group, tenant, death)
        messages: list[Message] = []
        ids: list[int] = []
        for page in pages:
            first_id, rows = decode_rows(page)
            messages += letters.of(rows)
            ids += range(first_id, first_id + len(rows))
        self._receipts.add_copies(pending_frame, messages, ids)
        self._committer.note_size()

    @staticmethod
    def deletions(transaction_id: int, pages: int) -> list[StateRecord]:
        """The records that delete the pages of a transaction's half messages."""
        return [StateRecord(Kind.HALF, half_key(transaction_id, page), None) for page in range(pages)]


class Letters:
    """Makes dead letters of one transaction's half messages that nobody decided about: `death` says how it ended. What
    those to one place have in common is made once. They go to the dead-letter queue of the group that was to be asked,
    and say where each was to go. Raises Stopping."""

    def __init__(self, dead_letters: DeadLetters, group: str, tenant: str, death: dict[str, Any]) -> None:
        self._dead_letters = dead_letters
        self._group = group
        self._queue = dead_letters.own_queue(group, tenant)
        self._death = death
        self._ways: dict[bytes, Way] = {}

    def of(self, rows: list[Row]) -> list[Message]:
        """What these become."""
        messages: list[Message] = []
        for place, value, headers, attributes, timestamp_ms in rows:
            way = self._ways.get(place)
            if way is None:
                way = self._ways[place] = self._way(pending_in(place))
            to, extra, extra_count = way
            if headers.find(HEADER) >= 0 or headers.find(ADDRESS_HEADER) >= 0:
                encoded = self._once_more(pending_in(place), headers)
            else:
                encoded = add_header(headers, extra, extra_count)
            messages.append((to, value, encoded, attributes & PUBLISHED, timestamp_ms))
        return messages

    def _way(self, what: Pending) -> Way:
        extra = encode_header(HEADER, json.dumps([{**self._where(what), **self._death}]).encode())
        to = self._dead_letters.place(self._queue, what.key)
        if what.to_queue:
            return to, extra, 1
        return to, encode_header(ADDRESS_HEADER, what.address.encode()) + extra, 2

    def _where(self, what: Pending) -> dict[str, Any]:
        """It was to go."""
        topic = "" if what.to_queue else what.topic
        return {"group": self._group, "topic": topic, "partition": what.partition, "offset": -1,
                "address": what.address}

    def _once_more(self, what: Pending, headers_encoded: bytes) -> bytes:
        """With what it has died of before, and one address."""
        headers = list(read_headers(headers_encoded, 0)[0])
        if not what.to_queue:
            headers = [header for header in headers if header[0] != ADDRESS_HEADER]
            headers.append((ADDRESS_HEADER, what.address.encode()))
        return with_history(headers, [*deaths_of(headers_encoded), {**self._where(what), **self._death}])


class Rows:
    """Half messages as they come in become rows of pages; a place is encoded once, however many messages go there."""

    def __init__(self) -> None:
        self._known: dict[Placement, tuple[int, bytes]] = {}         # with the version that it was encoded of

    def of(self, halves: list[Half]) -> list[Row]:
        """Their placements are fresh."""
        rows: list[Row] = []
        for half in halves:
            to, value, headers, attributes, timestamp_ms = half.message
            when, delay_ms = half.when, half.delay_ms
            place = self._place(to) if when is None and not delay_ms else _encode(to, when or NOW, delay_ms)
            rows.append((place, value, headers, attributes, timestamp_ms))
        return rows

    def _place(self, to: Placement) -> bytes:
        cached = self._known.get(to)
        if cached is None or cached[0] != to.version:
            if len(self._known) >= PLACES:
                self._known.clear()
            cached = to.version, _encode(to, NOW, 0)
            self._known[to] = cached
        return cached[1]


def _encode(to: Placement, when: When, delay_ms: int) -> bytes:
    return encode_place(delay_ms, pending_of((to, None, b"", 0, 0), Due(when.due_ms, True, 0), 0, when))
