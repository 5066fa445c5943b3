"""Producers' batches between their arrival and their entering: checked here, or opened and checked on another thread.

What is small is checked at once, as long as this turn of the loop has not had its share of it. What is more goes to the
worker, which takes one job after the other, so batches enter in the order in which they came; what comes for a
partition after one that is still there goes there, too, and never overtakes it. So the sequences of producers are
looked at in order, when a batch enters and not when it comes.

What a batch means is found out record by record, in slices, before it enters: its last step is its entering, and until
then nothing of its partitions does.

Of what waits only the bytes as they were sent are held; what is given to the worker opens to MAX_OPENED_BYTES at most,
all together. Where what waits comes to VALIDATING_BYTES the hub is congested, and publishers are not read.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import KernelError, MessageTooLarge, Stopping
from gatehouse.kernel.message import Owner, Stored, tell
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.records.batch import CODEC_MASK, MAX_OPENED_BYTES, BatchHeader
from gatehouse.kernel.records.compression import NONE, OpenedTooLarge
from gatehouse.kernel.records.validation import SMALL_BYTES, Validated, opened_limit, validate
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.write.committer import Slices

VALIDATING_BYTES: Final = 32 << 20         # half a second's work at the pace of gzip, some five times as much as sent
OPEN_HERE_BYTES: Final = 64 << 10          # stored; what is more is opened on another thread
TURN_RECORDS: Final = 100_000              # walked over in one turn: two to five milliseconds; SMALL_BYTES are opened
OPEN_HERE_RECORDS: Final = 1_000           # some milliseconds
OBJECT_BYTES: Final = 256                  # of a record that was made into objects, beside its own
MAX_RECORDS: Final = 1 << 18               # of all batches that enter together: a request for bulk writers is some MiB


class Arrived(NamedTuple):
    """A batch whose header is checked."""

    partition_id: int
    batch: bytes
    header: BatchHeader
    of: tuple[Topic, int]                  # topic and number of the partition
    record_bytes: int                      # what the topic takes
    wanted: bool                           # its records, by whoever looks into it
    traces: bool = False                   # its sender may have records followed
    opened_bytes: int = 0                  # at most, of one that was sound when it came

    @property
    def is_opened(self) -> bool:
        """Whether it takes more than walking over it where it lies."""
        return self.wanted or self.header.attributes & CODEC_MASK != NONE

    @property
    def object_bytes(self) -> int:
        """What its records take as objects."""
        return OBJECT_BYTES * self.header.record_count if self.wanted else 0

    @property
    def most_bytes(self) -> int:
        """What it may take when it is open."""
        return opened_limit(len(self.batch), self.record_bytes) + self.object_bytes if self.is_opened else 0

    def validated(self, most_bytes: int) -> Validated:
        """Raises what `validate` does."""
        return validate(self.batch, self.header, self.record_bytes, self.wanted, most_bytes, self.traces)


Entering = Iterator[None]
"""Steps of a batch that is sound: it has entered when they end, and nothing of it before that."""


class Waiting(NamedTuple):
    """Batches that enter together, on their way through the worker."""

    arrived: list[Arrived]
    owner: Owner | None
    token: object
    enter: Callable[[list[Validated]], Entering]
    on_refused: Callable[[KernelError], None]
    size_bytes: int                        # as sent
    most_bytes: int                        # opened


class Validating:  # decision 114
    """Opens and checks producers' batches, here or on a thread, in the order in which they came."""

    def __init__(self, loop: Loop, worker: Worker, backpressure: Backpressure,
                 on_error: Callable[[Exception], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._backpressure = backpressure
        self._on_error = on_error
        self._waiting: deque[Waiting] = deque()      # for the worker
        self._working: deque[Waiting] = deque()      # with the worker, or entering: the first of them
        self._done: deque[tuple[list[Validated] | None, BaseException | None]] = deque()   # of the first in `_working`
        self.slices = Slices(loop, on_error)
        self._working_bytes = 0                      # that they may open to
        self._partitions: dict[int, int] = {}            # waiting batches of each partition that has any
        self._spent_records = 0                      # of this turn's TURN_RECORDS
        self._spent_bytes = 0                        # opened in this turn
        self._resetting = False
        self._stopped = False
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether publishers should not be read."""
        return self.size_bytes > VALIDATING_BYTES

    def validate(self, arrived: list[Arrived], owner: Owner | None, token: object,
                 enter: Callable[[list[Validated]], Entering], on_refused: Callable[[KernelError], None]) -> None:
        """Take the steps of `enter` when all batches are sound and everything before them has entered.

        What is found at once, by this or by `enter`, is raised; what is found later is told to `on_refused`, and to the
        owner.
        """
        waits = self._partitions and any(
            arrival.partition_id in self._partitions for arrival in arrived)
        validated = None if waits else self._validated_here(arrived)
        if validated is not None:
            for _ in enter(validated):
                pass                                 # what is checked here is little
            return
        if self._stopped:
            raise Stopping("the hub is shutting down")
        size_bytes = sum([len(arrival.batch) for arrival in arrived])
        most_bytes = min(sum([arrival.most_bytes for arrival in arrived]), MAX_OPENED_BYTES)
        for arrival in arrived:
            self._partitions[arrival.partition_id] = self._partitions.get(arrival.partition_id, 0) + 1
        self.size_bytes += size_bytes
        self._waiting.append(Waiting(arrived, owner, token, enter, on_refused, size_bytes, most_bytes))
        self._work()
        if self.is_full:
            self._backpressure.report(self, True)

    def stop(self) -> None:
        """Refuse what waits; nothing is taken any more that does not enter at once."""
        self._stopped = True
        for waiting in (*self._working, *self._waiting):
            self._refuse(waiting, Stopping("the hub is shutting down"))
        self._waiting.clear()

    def open(self, arrived: list[Arrived], on_open: Callable[[list[Validated] | None, BaseException | None], None]
             ) -> None:
        """Open those of which somebody wants the records, or some are to be followed, of batches that were sound when
        they came: here, where they are small, else on the thread, in no order with what waits for that."""
        wanted = [arrival for arrival in arrived if arrival.wanted or arrival.traces]
        if (sum([len(arrival.batch) for arrival in wanted]) > OPEN_HERE_BYTES
                or sum([arrival.header.record_count for arrival in wanted]) > OPEN_HERE_RECORDS):
            self._worker.submit(partial(_open_all, arrived), on_open)
            return
        try:
            validated = _open_all(arrived)
        except KernelError as error:
            on_open(None, error)
        else:
            on_open(validated, None)

    # ---- here

    def _validated_here(self, arrived: list[Arrived]) -> list[Validated] | None:
        """None: it is too much for this turn. Raises what `validate` does; who is refused has had the turn's share."""
        if not self._resetting:
            self._resetting = True
            self._loop.call_soon(self._reset)
        opened = [arrival for arrival in arrived if arrival.is_opened]
        if self._is_too_much(arrived, opened):
            return None
        batches = []
        try:
            for arrival in arrived:
                validated = arrival.validated(max(0, SMALL_BYTES - self._spent_bytes) if opened else SMALL_BYTES)
                if opened and arrival.is_opened:
                    self._spent_bytes += validated.opened_bytes
                batches.append(validated)
        except OpenedTooLarge:
            self._spent_bytes = SMALL_BYTES
            return None
        except KernelError:
            self._spent_bytes = SMALL_BYTES
            raise
        return batches

    def _is_too_much(self, arrived: list[Arrived], opened: list[Arrived]) -> bool:
        """By what can be seen before anything is opened, which those in `opened` will be."""
        for arrival in arrived:
            self._spent_records += arrival.header.record_count
        if not opened:
            return self._spent_records > TURN_RECORDS
        self._spent_bytes += sum([arrival.object_bytes for arrival in opened])
        return (self._spent_records > TURN_RECORDS or self._spent_bytes > SMALL_BYTES
                or sum([len(arrival.batch) for arrival in opened]) > OPEN_HERE_BYTES)

    def _reset(self) -> None:
        self._spent_records = self._spent_bytes = 0
        self._resetting = False

    # ---- on the worker

    def _work(self) -> None:
        while self._waiting and (not self._working
                                 or self._working_bytes + self._waiting[0].most_bytes <= MAX_OPENED_BYTES):
            waiting = self._waiting.popleft()
            self._working.append(waiting)
            self._working_bytes += waiting.most_bytes
            self._worker.submit(partial(_validate_all, waiting.arrived), self._validated)

    def _validated(self, validated: list[Validated] | None, error: BaseException | None) -> None:
        if self._stopped:
            return
        self._done.append((validated, error))
        self._go_on()

    def _go_on(self) -> None:
        if self._done and not self.slices.busy and not self._stopped:
            validated, error = self._done.popleft()
            self.slices.run(self._entering(self._working[0], validated, error), self._go_on)

    def _entering(self, waiting: Waiting, validated: list[Validated] | None, error: BaseException | None) -> Entering:
        try:
            if validated is None:
                raise error or RuntimeError("no batches and no error")
            for _ in waiting.enter(validated):
                yield
                if self._stopped:
                    return                           # and refused
        except KernelError as refusal:
            waiting.on_refused(refusal)
            self._refuse(waiting, refusal)
        except Exception as fault:
            self._on_error(fault)
            self._refuse(waiting, fault)
        assert self._working[0] is waiting, "batches enter in the order in which they came"
        self._working.popleft()
        self._release(waiting)
        self._work()
        if not self.is_full:
            self._backpressure.report(self, False)

    def _release(self, waiting: Waiting) -> None:
        self.size_bytes -= waiting.size_bytes
        self._working_bytes -= waiting.most_bytes
        assert self.size_bytes >= 0 and self._working_bytes >= 0, "nobody is let go of twice"
        for arrival in waiting.arrived:
            self._partitions[arrival.partition_id] -= 1
            if not self._partitions[arrival.partition_id]:
                del self._partitions[arrival.partition_id]

    def _refuse(self, waiting: Waiting, error: Exception) -> None:
        if waiting.owner is None:
            return
        try:
            tell(waiting.owner, [Stored(waiting.token, error.with_traceback(None), self._loop.now_ms(), [])])
        except Exception as fault:           # one owner's bug must not cost the others their answers
            self._on_error(fault)


def _open_all(arrived: list[Arrived]) -> list[Validated]:
    """Raises what `validate` does."""
    return [arrival.validated(MAX_OPENED_BYTES) if arrival.wanted or arrival.traces
            else Validated(arrival.batch, arrival.header, None, arrival.opened_bytes, [], []) for arrival in arrived]


def _validate_all(arrived: list[Arrived]) -> list[Validated]:
    """Raises what `validate` does, MessageTooLarge where they are too large together."""
    batches, left_bytes = [], MAX_OPENED_BYTES
    for arrival in arrived:
        try:
            validated = arrival.validated(left_bytes)
        except OpenedTooLarge:
            raise MessageTooLarge(f"batches that are to be stored together are larger than {MAX_OPENED_BYTES} bytes "
                                  "when opened") from None
        left_bytes = max(0, left_bytes - validated.opened_bytes)
        batches.append(validated)
    return batches
