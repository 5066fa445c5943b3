"""Group commit: one frame at a time goes to the log; what arrives meanwhile gathers into the next.

    Patience     how long a frame waits for more publishers
    Answering    owners are told what became of what they appended
    WorkerWriter a frame gets to the end of the log by a job of Python on the log's thread, for every log and disk
    Committer    the pending frame, the frame on its way, and what becomes of both
    Appending    messages enter the pending frame

    append ... append     fill the pending frame, in the order of arrival
    flush                 at the end of the turn, or when the frame before is durable: seal, write, fdatasync on the
                          log's thread
    applied               back on the kernel's thread: memory, then answers, then deliveries; then the next flush

A frame that finds the disk full fails, and with it everything gathered behind it, since that may build on it. Before
that, where some of it frees more than it takes, the reserve is given up and the frame is tried again. Any other failure
of the disk ends the process: what it would answer from here on could not be believed.

A frame that could be sealed waits a moment for more publishers, as few of them as there are:

    frame durable ─► 7 are answered, 3 wait ─► up to 10 are awaited ─► the next frame is sealed with all 10

Publishers with one message in flight answer an acknowledgement with the next publish. Were the next frame sealed with
whoever comes first, each frame would hold a few, and a frame costs the same with one message as with a hundred. So it
waits until as many have come as are awaited, for a few turns of the loop at most: some 100 µs, in which messages are
read. Who publishes from time to time is not waited for: a wait in vain is paid once in a while, ever more rarely.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, Protocol

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import KeptFull, KernelError, Stopping, StorageFull
from gatehouse.kernel.ids import NUMBER_BITS
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.log.log import FrameWriter, Log, LogFull, Place
from gatehouse.kernel.log.log import Written as FrameWritten
from gatehouse.kernel.message import (
    RETAIN,
    Encoded,
    Judge,
    Message,
    Origin,
    Owner,
    Placement,
    Speaker,
    StateRecord,
    Stored,
    When,
    encode_head,
    note_names,
)
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.state.state import Clock, StateTable, Watermarks
from gatehouse.kernel.write.idempotency import Idempotency, fingerprint
from gatehouse.kernel.write.pending_frame import (
    Entering,
    Follower,
    Forgetter,
    Heard,
    Participant,
    PendingFrame,
    Sealed,
    answers,
    check,
)
from gatehouse.kernel.write.pending_frame import Places as MessagePlaces

# --- how long a frame waits for more publishers -------------------------------------------------------------------

# decision 277: a frame waits for those who were answered a moment ago

AWAITED_MAX: Final = 1_024             # more than that fill a frame anyhow
MOMENT_MS: Final = 1                   # after their answers; whoever comes later is far away
SKIPPED_MAX: Final = 256               # frames that are not waited with, after waits in vain


class Patience:
    """Says of each frame of one committer whether it waits: for `turns` of the loop at most; 0: none waits."""

    def __init__(self, turns: int) -> None:
        self.turns: int = turns
        self._left: int = 0            # turns
        self._awaited: int = 0         # who would fill the frame that gathers
        self._enough: int = 0          # with whom the wait was not in vain
        self._until_ms: int = 0
        self._skip: int = 0            # frames
        self._skipped: int = 0         # frames after the wait before

    def on_answered(self, answered: int, waiting: int, now_ms: int) -> None:
        """A frame is durable: so many are answered, and so many wait for the next frame."""
        self._left = 0
        if not answered or answered + waiting < 2 or waiting >= AWAITED_MAX:
            return
        if self._skip:
            self._skip -= 1
            return
        self._left = self.turns
        self._awaited = min(answered + waiting, AWAITED_MAX)
        self._enough = waiting + (answered + 1) // 2
        self._until_ms = now_ms + MOMENT_MS

    def waits(self, waiting: int, now_ms: int) -> bool:
        """Whether the next frame, for which so many wait, is sealed in a later turn; it is asked again in that."""
        if not self._left:
            return False
        if waiting < self._awaited and now_ms <= self._until_ms:
            self._left -= 1
            if self._left:
                return True
        self._left = 0
        if waiting >= self._enough:
            self._skipped = 0
        else:
            self._skipped = min(2 * self._skipped + 1, SKIPPED_MAX)
            self._skip = self._skipped
        return False


# --- answers, and the committer -----------------------------------------------------------------------------------

SYNC_INTERVAL_MS: Final = 1_000
NOTHING: Final[AbstractSet[int]] = frozenset()

DURABLE_MS: Final = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000]
"""Upper bounds of what is counted of flushes: from the first message to the disk."""

Keeper = Callable[[StateRecord], None]
"""Keeps state of some kind in memory, and is given each record of it once that is durable."""

MAX_WAITING: Final = 2
"""Flushes behind the one whose owners are being told: more, and publishers wait."""

WAITED_BYTES: Final = 32 << 10
"""What has more does not wait for others: to write it is what takes time, and that goes on beside the loop."""

STEP_OWNERS: Final = 16
"""Told before the clock is read: 0.2 to 0.4 ms."""


SLICE_MS: Final = 5
"""How long one turn may work, in ms. Shorter slices cost more turns than they save waiting: a turn itself takes some
0.1 ms."""


class Slices:  # decision 122
    """Work that grows with subscribers or records, a few milliseconds a turn of the loop, so that everybody else is
    served in between. It is an iterator that yields wherever it may be interrupted. The first slice runs at once: what
    is small is done before `run` returns, and costs no turn.

    One work at a time. `slice_ms` 0 makes a turn of every step, for tests that want all the turns there are."""

    def __init__(self, loop: Loop, on_error: Callable[[Exception], None], slice_ms: int = SLICE_MS) -> None:
        self.slice_ms = slice_ms
        self._loop = loop
        self._on_error = on_error
        self._in_turn = False
        self._work: Iterator[None] | None = None
        self._done: Callable[[], None] = _nothing

    @property
    def busy(self) -> bool:
        """Whether there is work that has not ended."""
        return self._work is not None

    def run(self, work: Iterator[None], done: Callable[[], None]) -> None:
        """`done` is called in the turn in which the work ends, whether it came to its end or failed."""
        assert self._work is None, "one work at a time"
        self._work, self._done = work, done
        if not self._in_turn:
            self._turn()

    def _turn(self) -> None:
        """One slice: of the work, and of what `done` begins when it ends, together."""
        self._in_turn = True
        try:
            until_ms = self._loop.now_ms() + self.slice_ms
            while self._work is not None:
                if not self._goes_on(self._work, until_ms):
                    self._loop.call_soon(self._turn)
                    break
        finally:
            self._in_turn = False

    def _goes_on(self, work: Iterator[None], until_ms: int) -> bool:
        """Work until the slice is over; whether there is time left."""
        now_ms = self._loop.now_ms
        try:
            for _ in work:
                if now_ms() >= until_ms:
                    return False
        except Exception as error:           # our own fault, and the next work is not to suffer for it
            self._on_error(error)
        done, self._work, self._done = self._done, None, _nothing
        done()
        return now_ms() < until_ms or not self.busy        # `done` may have begun more


def _nothing() -> None:
    """What is done after no work."""


class Answering:  # decision 122
    """Owners are told what has become of what they appended, flush after flush, in slices: thousands of publishers that
    wait for one flush do not hold up everybody else.

    What is little is told before `tell` returns. What is more is told over the next turns of the loop, and later
    flushes wait behind it, so every owner hears in the order of its calls.
    """

    def __init__(self, loop: Loop, backpressure: Backpressure, on_error: Callable[[Exception], None]) -> None:
        self._backpressure = backpressure
        self.slices = Slices(loop, on_error)
        self._on_error = on_error
        self._waiting: deque[dict[Owner, list[Stored]]] = deque()
        self._on_idle: list[Callable[[], None]] = []

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call it once everybody has been told: now, or later."""
        self._on_idle.append(callback)
        self._go_on()

    def tell(self, pending_frame: PendingFrame, error: Exception | None) -> None:
        """Whoever appended to it is told: it is durable, or why not."""
        if pending_frame.submissions:
            self._waiting.append(answers(pending_frame.submissions, pending_frame.builder.now_ms, error))
            if len(self._waiting) > MAX_WAITING:
                self._backpressure.report(self, True)
            self._go_on()

    def _go_on(self) -> None:
        if self.slices.busy:
            return
        if self._waiting:
            self.slices.run(self._tell_all(), self._go_on)
        while self._on_idle and not self._waiting and not self.slices.busy:
            self._on_idle.pop(0)()

    def _tell_all(self) -> Iterator[None]:
        count = 0
        while self._waiting:
            flush = self._waiting.popleft()
            if len(self._waiting) == MAX_WAITING:
                self._backpressure.report(self, False)
            for owner, stored in flush.items():
                try:
                    steps = owner.on_stored(stored)
                    if steps is not None:
                        yield from steps
                except Exception as fault:       # one owner's bug must not cost the others their answers
                    self._on_error(fault)
                count += 1
                if count % STEP_OWNERS == 0:
                    yield


class WorkerWriter:
    """See `log.FrameWriter`. One frame is on its way at a time."""

    def __init__(self, worker: Worker, log: Log) -> None:
        self._worker = worker
        self._log = log

    def write(self, head: bytes, body: bytes, sync: bool, done: FrameWritten) -> None:
        self._worker.submit(partial(self._write, head, body, sync), done)

    def _write(self, head: bytes, body: bytes, sync: bool) -> Place:
        """On the log's thread."""
        position = self._log.append(head, body)
        if sync:
            self._log.sync()
        return position, self._log.end()


class Committer:
    """Owns the pending frame, and the one that is on its way to the disk. `deliver` hands to live subscribers
    what they hear of."""

    def __init__(self, *, loop: Loop, worker: Worker, log: Log, writer: FrameWriter, clock: Clock,
                 disk_guard: DiskGuard, backpressure: Backpressure, watermarks: Watermarks, memtables: Memtables,
                 state: StateTable, answering: Answering, deliver: Callable[[Heard], None], policy: str,
                 pending_bytes: int, gather_turns: int, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._log = log
        self._writer = writer
        self._clock = clock
        self._disk_guard = disk_guard
        self._backpressure = backpressure
        self._watermarks = watermarks
        self._memtables = memtables
        self._state = state
        self._answering = answering
        self._deliver = deliver
        self._policy = policy
        self._max_pending_bytes = pending_bytes
        self._fatal = fatal
        self._epoch = 0
        self._keepers: dict[int, Keeper] = {}
        self._participants: list[Participant] = []
        self._noting: list[Participant] = []
        self._copying: list[Participant] = []
        self._followers: list[Follower] = []
        self._forgetters: list[Forgetter] = []
        self._on_grown: Callable[[], None] | None = None
        self._recorder: Recorder | None = None
        self._recorder_waits = False                     # to write into the next frame
        self._pending_frame: PendingFrame | None = None
        self._joining: dict[Participant, None] = {}      # in the next frame that is begun
        self._gathering: list[tuple[Callable[[], None], Callable[[], int]]] = []     # see `gather`
        self._patience: Patience = Patience(gather_turns)
        self._to_answer: int = 0                         # who wants an answer of the frame on its way
        self._scheduled = False
        self._is_large = False                           # what is pending: more than `pending_bytes`
        self._unsynced = False
        self._failed = False
        self._on_idle: Callable[[], None] | None = None
        self.flight: PendingFrame | None = None
        self.next_id = 0
        self._end = 0                            # of the newest frame in the log
        self._append_ms = 0                      # of the newest frame that was sealed
        self.flushes = 0
        self.flushed_bytes = 0
        self.messages = 0
        self.newest_ms = 0                       # when the newest of them was durable, the hub's own events aside
        self.refused = 0
        self.durable = [0] * (len(DURABLE_MS) + 1)      # messages by how long their flush took, see DURABLE_MS
        self.durable_ms = 0                             # the same in sum

    def begin(self, epoch: int, next_id: int, *, keepers: Mapping[int, Keeper], participants: Sequence[Participant],
              noting: Sequence[Participant], followers: Sequence[Follower], forgetters: Sequence[Forgetter],
              copying: Sequence[Participant], on_grown: Callable[[], None], recorder: Recorder | None = None) -> None:
        """From here on frames are written, of this epoch and with message ids from `next_id` on.

        `keepers` by kind of state record. `participants` are told of a refused frame in this order, and before any
        others. Those in `noting` take part in each frame with messages that change state of their own, those in
        `copying` in each with messages that have ids from before. `followers` are
        told in this order, after them `on_grown`, and `forgetters` of what was deleted. `recorder` writes into
        each frame what is told of messages' journeys.
        """
        self._epoch, self.next_id = epoch, next_id
        self._keepers.update(keepers)
        self._participants += participants
        self._noting += noting
        self._copying += copying
        self._followers += followers
        self._forgetters += forgetters
        self._on_grown = on_grown
        self._recorder = recorder
        self._clock.start(self.put_state)

    # ---- the pending frame

    def open_frame(self) -> PendingFrame:
        """What the next frame will be made of; a flush is on its way. Raises Stopping after `stop`."""
        if self._on_idle is not None:
            raise Stopping("the hub is shutting down")
        pending_frame = self._pending_frame
        if pending_frame is None:
            now_ms = self._loop.now_ms()
            pending_frame = self._pending_frame = PendingFrame(self._clock.append_time(now_ms), now_ms)
            if self._joining:
                pending_frame.participants.update(dict.fromkeys(self._joining, False))
                self._joining.clear()
            if self.flight is None and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._flush)
        return pending_frame

    def gather(self, enter: Callable[[], None], waiting: Callable[[], int]) -> None:  # decision 220
        """Call `enter` once, before the next frame is sealed: what it appends is in that frame. A flush is on its way;
        it may wait for a moment for others, who were answered just now. `waiting`: how many want an answer so far.
        Neither must raise. Raises Stopping after `stop`."""
        if self._on_idle is not None:
            raise Stopping("the hub is shutting down")
        self._gathering.append((enter, waiting))
        if self.flight is None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _enter(self) -> None:
        """What was gathered enters the pending frame."""
        scheduled, self._scheduled = self._scheduled, True           # whoever enters need not ask for a flush
        entering, self._gathering = self._gathering, []
        for enter, _ in entering:
            enter()
        self._scheduled = scheduled

    def _waiting(self) -> int:
        """How many want an answer of the frame that gathers."""
        frame = self._pending_frame
        count = 0 if frame is None else len(frame.submissions)
        for _, waiting in self._gathering:
            count += waiting()
        return count

    def _waits(self, waiting: int) -> bool:
        """Whether the next frame, of which so many want an answer, is sealed in a later turn."""
        frame = self._pending_frame
        return (frame is None or frame.builder.size_bytes < WAITED_BYTES) and self._patience.waits(
            waiting, self._loop.now_ms())

    def take_id(self) -> int:
        """A message id that no message gets: the next frame gives out those behind it."""
        self.next_id += 1
        return self.next_id - 1

    def pending(self) -> list[PendingFrame]:
        """What is not applied yet: the frame on its way, and the pending one."""
        return [frame for frame in (self.flight, self._pending_frame) if frame is not None]

    def next_offset(self, partition_id: int) -> int:
        """The offset of what is appended next, behind all that is on its way to the disk."""
        return self._watermarks.next_offset(partition_id) + sum(
            [frame.builder.entering(partition_id) for frame in self.pending()])

    @property
    def pending_bytes(self) -> int:
        """What is taken and not applied yet."""
        return sum([frame.builder.size_bytes for frame in self.pending()])

    def join_next(self, participant: Participant) -> None:
        """Take part in the pending frame, or else in the next one that somebody begins and that is stored."""
        if self._pending_frame is None:
            self._joining[participant] = None
        else:
            self._pending_frame.participants.setdefault(participant, False)

    def ask_recorder(self) -> None:
        """The recorder has something to write with the next frame that is sealed."""
        self._recorder_waits = True

    def note_size(self) -> None:
        """Call after adding to the pending frame: too much of it, and publishers are to be left unread."""
        frame = self._pending_frame
        if not self._is_large and frame is not None and frame.builder.size_bytes > self._max_pending_bytes:
            self._is_large = True
            self._backpressure.report(self, True)

    def put_state(self, records: list[StateRecord], owner: Owner | None = None, token: object = None) -> PendingFrame:
        """Into the pending frame; the owner is told when it is durable. Raises Stopping."""
        pending_frame = self.open_frame()
        pending_frame.state += records
        pending_frame.answer(owner, token)
        return pending_frame

    def delete_state(self, records: list[StateRecord]) -> None:
        """Delete keys whose records were looked at, unless a newer one is on its way already, or the hub stops."""
        newer = set() if self.flight is None else {(record.kind, record.key) for record in self.flight.state}
        gone = [record for record in records if (record.kind, record.key) not in newer]
        try:
            if gone:
                self.put_state(gone)
        except Stopping:
            pass                                     # whoever looks the next time deletes them

    # ---- flushing

    def _flush(self) -> None:  # decision 1
        self._scheduled = False
        if self._failed or self.flight is not None:
            return
        waiting = self._to_answer = self._waiting()
        if waiting and self._patience.turns and self._waits(waiting):
            self._scheduled = True
            self._loop.call_soon(self._flush)
            return
        if self._gathering:
            self._enter()
        pending_frame = self._pending_frame
        if pending_frame is None:
            return
        self._pending_frame = None
        if pending_frame.stores_nothing:
            for participant in pending_frame.participants:
                self.join_next(participant)
            self._answering.tell(pending_frame, None)
            self._next()
            return
        pending_frame.state += self._clock.records()
        first_id = self.next_id
        sealed = self._seal(pending_frame, first_id)
        self.next_id += sealed.id_count
        assert self.next_id >= first_id, "ids rise"
        assert self.next_id >> NUMBER_BITS == first_id >> NUMBER_BITS, "the shard has no message ids left"
        append_ms = pending_frame.builder.now_ms
        assert append_ms >= self._append_ms, "append time never falls"
        self._append_ms = append_ms
        head = encode_head(self._epoch, append_ms, first_id, sealed.id_count, sealed.entries,
                           pending_frame.state)
        self.flight = pending_frame
        self._submit(pending_frame, sealed, head, False)
        self._relieve()

    def _seal(self, pending_frame: PendingFrame, first_id: int) -> Sealed:
        """Give records their offsets and complete the state records. The frame before has been applied."""
        builder, participants = pending_frame.builder, pending_frame.participants
        recorder = self._recorder
        if recorder is not None and (self._recorder_waits or pending_frame.has_journeys or builder.has_copies):
            self._recorder_waits = False
            recorder.write(pending_frame, first_id)
        sealed = builder.seal(self._watermarks.next_offsets(builder.partition_ids()), first_id, self._epoch,
                              self._log.newest_base() if builder.has_authors else 0)
        if builder.noted:
            participants.update(dict.fromkeys(self._noting, True))
        if builder.has_copies:
            participants.update(dict.fromkeys(self._copying, True))
        for participant in pending_frame.giving_ids:
            id_count = participant.seal(pending_frame, first_id + sealed.id_count)
            assert id_count >= 0, "ids rise"
            sealed.id_count += id_count
        for participant in participants:
            if participant not in pending_frame.giving_ids:
                id_count = participant.seal(pending_frame, first_id + sealed.id_count)
                assert id_count == 0, "only who gives ids uses some up"
        return sealed

    def _submit(self, pending_frame: PendingFrame, sealed: Sealed, head: bytes, again: bool) -> None:
        self._writer.write(head, sealed.body, self._policy == "commit",
                           partial(self._written, pending_frame, sealed, head, again))

    def _written(self, pending_frame: PendingFrame, sealed: Sealed, head: bytes, again: bool,
                 place: tuple[int, int] | None,
                 error: BaseException | None) -> None:
        if isinstance(error, LogFull) and not again and any(frame.frees for frame in self.pending()):
            self._disk_guard.lend_emergency_reserve(partial(self._submit, pending_frame, sealed, head, True))
            return
        assert self.flight is pending_frame, "one frame is on its way at a time"
        self.flight = None
        if place is None:
            self._refuse(pending_frame, error)
            return
        if self._disk_guard.full:
            self._disk_guard.note_stored()
        assert self._end <= place[0] <= place[1], "positions rise"
        self._end = place[1]
        self.flushes += 1
        self.flushed_bytes += len(sealed.body)
        self._apply(pending_frame, sealed, place[0], place[1])
        if self._patience.turns:
            self._patience.on_answered(self._to_answer, self._waiting(), self._loop.now_ms())
        if self._policy == "interval":
            self._sync_later()
        self._next()

    def _apply(self, pending_frame: PendingFrame, sealed: Sealed, position: int, end: int) -> None:
        """The frame lies at this position, for good: into memory, to its owners, to whoever listens and goes on."""
        builder, entries = pending_frame.builder, sealed.entries
        self._watermarks.apply(entries)
        if sealed.naming:
            note_names(sealed.naming, position)
        self._memtables.absorb(position, end, builder.now_ms, sealed.body, entries)
        if pending_frame.state:
            self._state.absorb(position, pending_frame.state)
            for record in pending_frame.state:
                keeper = self._keepers.get(record.kind)
                if keeper is not None:
                    keeper(record)
        for participant in pending_frame.participants:
            participant.applied(pending_frame)
        now_ms = self._loop.now_ms()
        took_ms = max(0, now_ms - pending_frame.now_ms)
        if sealed.record_count:
            self.messages += sealed.record_count
            if sealed.record_count > builder.beside_count:
                self.newest_ms = now_ms
        self.durable[bisect_left(DURABLE_MS, took_ms)] += sealed.record_count
        self.durable_ms += took_ms * sealed.record_count
        self._answering.tell(pending_frame, None)
        if builder.heard:
            self._deliver(builder.heard)
        entered: AbstractSet[int] | None = None
        for follower in self._followers:
            if follower.waiting:
                if entered is None:
                    entered = set(entries.partition_id) if builder.runs else NOTHING
                follower.follow(entered)
        if self._on_grown is not None:
            self._on_grown()
        if pending_frame.deleted:
            for forgetter in self._forgetters:
                forgetter.forget_partitions(pending_frame.deleted)

    def _next(self) -> None:
        if self._pending_frame is not None or self._gathering:
            self._flush()
        elif self._on_idle is not None and self.flight is None:
            self._on_idle()

    def _refuse(self, pending_frame: PendingFrame, error: BaseException | None) -> None:
        if not isinstance(error, LogFull):
            self._fail(error)
            return
        self._disk_guard.note_full()
        self._clock.refused()
        refused = [pending_frame]
        if self._gathering:                  # behind what is refused nothing of the same sender is stored
            self._enter()
        if self._pending_frame is not None:
            refused.append(self._pending_frame)
            self._pending_frame = None
        self._take_back(refused, StorageFull(f"the disk is full: {error}"))
        self._relieve()
        self._next()

    def _take_back(self, frames: list[PendingFrame], error: KernelError) -> None:
        """None of these frames was stored: whoever took part hears of it first, then the owners."""
        self.refused += len(frames)
        joined = {participant: None for frame in frames for participant in frame.participants}
        for participant in [standing for standing in self._participants if standing in joined]:
            del joined[participant]
            participant.failed(frames)
        for participant in joined:
            participant.failed(frames)
        for frame in frames:
            self._answering.tell(frame, error)

    def _relieve(self) -> None:
        """What was pending is on its way or refused: publishers are read again, unless there is too much elsewhere."""
        if self._is_large:
            self._is_large = False
            self._backpressure.report(self, False)

    # ---- the relaxed policy

    def _sync_later(self) -> None:
        if not self._unsynced:
            self._unsynced = True
            self._loop.call_at(self._loop.now_ms() + SYNC_INTERVAL_MS, self._sync_now)

    def _sync_now(self) -> None:
        self._unsynced = False
        self._worker.submit(self._log.sync, self._synced)

    def _synced(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException | None) -> None:  # decision 7
        """The process ends; until it has, nothing more goes to the log, whose next sync might say that all is well."""
        self._failed = True
        self._fatal(f"the log failed, nothing more can be promised: {error}")

    # ---- the end

    def stop(self, on_idle: Callable[[], None]) -> None:
        """Take nothing new; call back when everything gathered is flushed and answered."""
        if self._gathering:
            self._enter()
        if self._pending_frame is not None and self.flight is None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)
        self._on_idle = on_idle
        if self.flight is None and self._pending_frame is None:
            on_idle()


# --- messages enter the pending frame -----------------------------------------------------------------------------

# Producers' batches enter it by `batches`.

Adding = Callable[[PendingFrame, list[Message], MessagePlaces], None]
"""Puts messages into a frame and tells the place of each."""

UNFOLLOWED: Final = 1 << 60
"""Messages before one that is followed, where nobody records journeys."""

KEPT_FULL = "what is kept beyond retention has reached kept_bytes: nothing that would have to be kept is taken"


class QueueLimits(Protocol):
    """What queues that are full refuse."""

    def refuse_full(self, messages: list[Message]) -> None:
        """Raises QueueFull for messages that have no room in a queue they would enter; else they are counted."""

    def require_room(self, messages: list[Message]) -> object:
        """Raises QueueFull for messages that will enter a queue later, and have no room there now."""


class ReceiptKeeper(Protocol):
    """Who tells senders what became of their messages: see `kernel.receipts`. `judge` says of an address what the
    sender may there."""

    def asking(self, messages: list[Any], placements: dict[int, Placement] | None, candidates: list[int],
               judge: Judge | None) -> list[Any]:
        """Those of these candidates that ask for a receipt. Raises ReceiptDenied."""

    def judged(self, asks: list[Any], judge: Judge | None) -> list[Any]:
        """Which records of a producer's batch ask for a receipt, of (index, what is asked, tenant, address). Raises
        ReceiptDenied."""

    def on_entered(self, frame: PendingFrame, askings: list[Any], places: MessagePlaces) -> None:
        """These messages are in the pending frame, each in its place by its index."""


class Appending:
    """Has messages enter the pending frame. What `check` finds is refused before anything of a call is taken."""

    def __init__(self, *, committer: Committer, places: Places, disk_guard: DiskGuard, idempotency: Idempotency,
                 queue_limits: QueueLimits, receipts: ReceiptKeeper, speaker: Speaker,
                 recorder: Recorder | None = None) -> None:
        self._committer = committer
        self._places = places
        self._disk_guard = disk_guard
        self._idempotency = idempotency
        self._queue_limits = queue_limits
        self._receipts = receipts
        self._speaker = speaker
        self._recorder = recorder
        self.unfollowed: int = UNFOLLOWED if recorder is None else recorder.gap()     # until one is looked at
        if recorder is not None:
            recorder.on_calm(self._shorten)

    def _shorten(self, gap: int) -> None:
        """At most so many messages pass before one that may be followed."""
        self.unfollowed = min(self.unfollowed, gap)

    def append(self, messages: list[Entering], owner: Owner | None, token: object, positions: bool,
               placements: dict[int, Placement] | None = None, judge: Judge | None = None,
               encoded: Sequence[Encoded] = ()) -> None:
        """See `Kernel.append`. With `placements` the messages have numbers of them in front: raises UnknownPlace for
        others. What is `encoded` enters before them; none of it may be followed."""
        if self._disk_guard.short:
            self._disk_guard.refuse()
        pending_frame = self._committer.open_frame()
        candidates: list[int] = []
        tracing: list[int] | None = [] if self._speaker.origin.traces else None
        limited = check(messages, self._places.refresh, placements, candidates, tracing)
        askings = self._receipts.asking(messages, placements, candidates, judge) if candidates else None
        if limited or self._disk_guard.kept_full:
            placed: list[Message] = messages if placements is None else [
                (placements[message[0]], *message[1:]) for message in messages]
            if limited:
                placed = self._places.choose(placed)
                messages, placements = placed, None
            if self._disk_guard.kept_full:
                self.refuse_owed(placed)
            if limited:
                self._queue_limits.refuse_full(placed)
        places: MessagePlaces | None = [] if positions or askings else None
        if encoded:
            self._add_encoded(pending_frame, encoded)
        self.unfollowed -= len(messages)                # decision 199
        if self.unfollowed < 0 or tracing:
            self._add_followed(pending_frame, messages, places, placements, tracing or ())
        else:
            pending_frame.builder.add(messages, places, None, placements, *self._authors())
        if askings:
            self._receipts.on_entered(pending_frame, askings, places or [])
        pending_frame.wait(owner, token, places if positions else None)
        self._committer.note_size()

    def _add_encoded(self, pending_frame: PendingFrame, encoded: Sequence[Encoded]) -> None:
        origin = self._speaker.origin
        for records in encoded:
            pending_frame.builder.add_encoded(records, origin if origin.door else None)
            self.unfollowed -= records.record_count

    def append_once(self, messages: list[Message], owner: Owner | None, token: object, key: str,
                    add: Adding | None = None, judge: Judge | None = None, whens: Sequence[When] = ()) -> None:
        """Unless the key is known: then its first answer is given again. `add` puts them elsewhere than in
        partitions. `whens`: what it does so for, of each."""
        pending_frame = self._committer.open_frame()
        mine = fingerprint(messages, whens)
        if self._idempotency.answered(pending_frame, mine, owner, token, key):
            return
        if self._disk_guard.short:
            self._disk_guard.refuse()
        candidates: list[int] = []
        tracing: list[int] | None = [] if self._speaker.origin.traces else None
        limited = check(messages, self._places.refresh, None, candidates, tracing)
        if limited:
            messages = self._places.choose(messages)
        askings = self._receipts.asking(messages, None, candidates, judge) if candidates else None
        if self._disk_guard.kept_full:
            self.refuse_owed(messages)
        if limited and add is None:
            self._queue_limits.refuse_full(messages)
        places: MessagePlaces = []
        if add is not None:
            add(pending_frame, messages, places)
        else:
            self.unfollowed -= len(messages)
            if self.unfollowed < 0 or tracing:
                self._add_followed(pending_frame, messages, places, None, tracing or ())
            else:
                pending_frame.builder.add(messages, places, None, None, *self._authors())
        if askings and add is None:
            self._receipts.on_entered(pending_frame, askings, places)
        self._idempotency.remember(pending_frame, mine, places, key)
        pending_frame.wait(owner, token, places)
        self._committer.note_size()

    def _add_followed(self, pending_frame: PendingFrame, messages: list[Entering], places: MessagePlaces | None,
                      placements: dict[int, Placement] | None, asking: Sequence[int]) -> None:
        """Some of these may be followed: they are told to whoever records journeys."""
        recorder = self._recorder
        assert recorder is not None, "nobody speaks, and nobody counts down, to what is not recorded"
        followed, self.unfollowed = recorder.follow(messages, placements, self.unfollowed + len(messages), asking)
        all_places: MessagePlaces = [] if places is None else places
        pending_frame.builder.add(messages, all_places if followed else places, None, placements, *self._authors())
        if followed:
            recorder.on_entered(pending_frame, messages, placements, all_places)

    def _authors(self) -> tuple[Origin | None, list[int] | None, list[Origin] | None]:
        """Who publishes what enters now, as `BatchBuilder.add` takes it."""
        speaker = self._speaker
        if speaker.stops:
            return None, speaker.stops, speaker.origins
        return (speaker.origin if speaker.origin.door else None), None, None

    def require(self, messages: list[Message]) -> None:
        """Look whether messages may enter later. Raises StorageFull, KeptFull, QueueFull, and what `check` raises."""
        if self._disk_guard.short:
            self._disk_guard.refuse()
        if self._disk_guard.kept_full:
            raise KeptFull(KEPT_FULL)
        if check(messages, self._places.refresh):
            self._queue_limits.require_room(messages)

    def refuse_full(self, messages: list[Message]) -> None:
        """These messages enter now, and were checked. Raises KeptFull, QueueFull, with nothing done."""
        if self._disk_guard.kept_full:
            self.refuse_owed(messages)
        self._queue_limits.refuse_full(messages)

    def check_entering(self, messages: list[Message]) -> None:
        """These messages are about to enter. Raises QueueFull, and what `check` raises."""
        if check(messages, self._places.refresh):
            self._queue_limits.refuse_full(messages)

    @staticmethod
    def refuse_owed(messages: list[Message]) -> None:
        """Nothing new is taken that would have to outlive retention. Raises KeptFull, with nothing done."""
        for placement, value, _, attributes, _ in messages:
            if placement.queue is not None or placement.also or value and (placement.compact or attributes & RETAIN):
                raise KeptFull(KEPT_FULL)
