"""Work that can wait yields to work that somebody waits for.

Cold replays, bulk reads, checkpoints, retention and compaction run on other threads, but they take the disk, the
interpreter's lock and turns of the kernel's thread from live messages. So their jobs go through here on their way to
their workers:

    nobody publishes    each job is handed on as it comes: background work has the hub for itself
    somebody does       a *lane* (one worker) has one job at a time, from its users in turn; after a job the lane rests,
                        in proportion to what the job took, answer included

    the hub has too much   lanes that may be left undone (reads in bulk, see `shedding`) rest a tenth of a second after
    to do                  each job, whoever publishes: who reads gets on, and takes little from anybody

How long it rests is the *share*: of 1/8 the lane works 1 ms of 8. It is found out: ten times a second the mean time
that live messages took to be durable is compared with what it is without background work (the *calm* time). Where that
has suffered, or the kernel's thread comes late, the share is halved; else it grows, up to `MOST_SHARE`: a mean hides
what becomes of the slowest. A reader that lags must be faster than what it lags behind: where live messages come at
more than `LIGHT_BYTES_PER_S`, the lane may as many times more. The calm time is learnt where nothing ran; where
something always runs, all of it pauses once in a while to listen.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.shedding import BULK_READS, Shedding

T = TypeVar("T")

Done = Callable[[Any, "BaseException | None"], None]

LIVE_MS: Final = 1_000             # for so long after the newest message somebody is said to publish
LOOK_MS: Final = 100               # between two looks at how live messages do
LISTEN_MS: Final = 10_000          # after so long without a calm time everything pauses
PAUSE_MS: Final = 2 * LOOK_MS      # for so long: one look is whole within it
LATE_MS: Final = 5                 # of a timer: the kernel's thread has too much to do
SLICE_BYTES: Final = 128 << 10     # of one cold read beside live messages: less than a millisecond, with its answer
SHED_REST_MS: Final = 100          # after each job of what is left undone first
LONGEST_REST_MS: Final = 250       # whatever a job took: what waits must come to an end

FIRST_SHARE: Final = 1 / 10
LEAST_SHARE: Final = 1 / 32
MOST_SHARE: Final = 1 / 8          # `bench.cold_replay`: without it the p99 of live messages trebles
LIGHT_BYTES_PER_S: Final = 2 << 20
GROWTH: Final = 1.1                # of the share, from look to look
SUFFERED: Final = 1.2              # times the calm time,
SUFFERED_MS: Final = 0.2           # and so much more: what is short varies


class LiveWork(NamedTuple):
    """Live messages since the start."""

    messages: int
    waited_ms: int           # until they were durable, in sum
    size_bytes: int          # as they are stored
    newest_ms: int           # when the newest was durable, by hub time


class _Job(NamedTuple):
    user: str
    job: Callable[[], Any]
    done: Done


class _Lane:
    """One worker, and who wants it."""

    def __init__(self, background: Background, loop: Loop, worker: Worker, may_be_shed: bool) -> None:
        self._background = background
        self._may_be_shed = may_be_shed
        self._loop = loop
        self._worker = worker
        self._waiting: dict[str, deque[_Job]] = {}         # by user; whose turn is next stands first
        self._passed = 0                                   # jobs that were handed on while nobody published
        self._works = False
        self._rests = False
        self._owed_ms = 0.0                                # of rest

    @property
    def works(self) -> bool:
        """Whether a job is under way."""
        return self._works or self._passed > 0

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def submit(self, job: _Job) -> None:
        """Hand a job on now, or when it is its user's turn."""
        is_shed = self._may_be_shed and self._background.sheds()
        if is_shed:
            self._background.note_shed()
        elif not self._waiting and not self._works and not self._rests and not self._background.yields():
            self._passed += 1
            self._background.note_job(job.user)
            self._worker.submit(job.job, partial(self._has_passed, job.done))
            return
        self._waiting.setdefault(job.user, deque()).append(job)
        self.go_on()

    def _has_passed(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._passed -= 1
        done(result, error)

    def go_on(self) -> None:
        """Begin what may begin."""
        while not self._works and not self._rests or self._background.stopped:
            job = self._next()
            if job is None:
                return
            self._works = True
            self._background.note_job(job.user)
            self._worker.submit(job.job, partial(self._ended, job.done, self._loop.now_ms()))

    def _next(self) -> _Job | None:
        """The next job: of each user one, in turn."""
        user = next(iter(self._waiting), None)
        if user is None:
            return None
        jobs = self._waiting.pop(user)
        job = jobs.popleft()
        if jobs:
            self._waiting[user] = jobs
        return job

    def _ended(self, done: Done, began_ms: int, result: Any, error: BaseException | None) -> None:
        """A job has come back; what is done with its result belongs to it."""
        try:
            done(result, error)
        finally:
            self._works = False
            now_ms = self._loop.now_ms()
            self._rest_for(now_ms - began_ms, now_ms)
            self.go_on()

    def _rest_for(self, took_ms: int, now_ms: int) -> None:
        """What the lane owes for a job that took so long."""
        if self._may_be_shed and self._background.sheds():
            self._owed_ms = 0.0
            self.rest(now_ms, SHED_REST_MS)
            return
        if not self._background.yields():
            self._owed_ms = 0.0
            return
        self._owed_ms += max(0, took_ms) * (1 / self._background.allowed - 1)
        rest_ms = min(int(self._owed_ms), LONGEST_REST_MS)
        if rest_ms > 0 and self._background.listens(now_ms):
            return
        if rest_ms > 0:
            self._owed_ms = 0.0 if rest_ms == LONGEST_REST_MS else max(0.0, self._owed_ms - rest_ms)
            self.rest(now_ms, rest_ms)

    def rest(self, now_ms: int, rest_ms: int) -> None:
        """Begin no job for so long."""
        if not self._rests:
            self._rests = True
            self._loop.call_at(now_ms + rest_ms, partial(self._rested, now_ms, now_ms + rest_ms))

    def _rested(self, began_ms: int, due_ms: int) -> None:
        now_ms = self._loop.now_ms()
        self._background.note_rest(now_ms - began_ms, now_ms - due_ms)
        self._rests = False
        self._owed_ms = max(0.0, self._owed_ms - (now_ms - due_ms))
        self.go_on()


class YieldingWorker:
    """A `Worker` whose jobs yield to live messages. Jobs of one user keep their order."""

    def __init__(self, lane: _Lane, user: str) -> None:
        self._lane = lane
        self._user = user

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._lane.submit(_Job(self._user, job, done))


class Background:  # decision 255
    """The lanes of work that can wait, and their share of the time. `begin` once messages can come; before it, nobody
    publishes."""

    def __init__(self, loop: Loop, shedding: Shedding | None = None) -> None:
        self.share = FIRST_SHARE
        """Of its time that a lane works while somebody publishes."""

        self.jobs: dict[str, int] = {}
        """Jobs so far, by user."""

        self.rested_ms = 0
        self.stopped = False
        """Nothing rests any more."""

        self._loop = loop
        self._shedding = shedding or Shedding()
        self._live: Callable[[], LiveWork] | None = None
        self._hurried: Callable[[], bool] = bool
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        self._known = LiveWork(0, 0, 0, 0)
        self._looked_ms = 0
        self._live_ms = -LIVE_MS               # when there was a live message, as far as was looked
        self._calm_ms = 0.0                    # mean time of a live message where nothing else ran
        self._listened_ms = 0                  # when that was learnt
        self._worked = True                    # something ran since the last look
        self._pace = 1.0                       # how many times more than lightly live messages come
        self._came_late = False                # the kernel's thread did, since then

    def begin(self, live: Callable[[], LiveWork], hurried: Callable[[], bool]) -> None:
        """`live` counts live messages. While `hurried` says so nothing rests: somebody needs what is done here."""
        self._live, self._hurried = live, hurried
        self._known = live()
        self._looked_ms = self._listened_ms = self._loop.now_ms()
        self._live_ms = self._looked_ms - LIVE_MS

    def stop(self) -> None:
        """Nothing waits from here on: the kernel ends."""
        self.stopped = True
        for lane in self._lanes.values():
            lane.go_on()

    def worker(self, worker: Worker, user: str, *, may_be_shed: bool = False) -> YieldingWorker:
        """`worker` for one user. Those of one worker share a lane, and those that `may_be_shed` another."""
        self.jobs.setdefault(user, 0)
        lane = self._lanes.setdefault((id(worker), may_be_shed), _Lane(self, self._loop, worker, may_be_shed))
        return YieldingWorker(lane, user)

    @property
    def allowed(self) -> float:
        """The share, with what the pace of live messages adds to it."""
        return min(1.0, self.share * self._pace)

    def slice_bytes(self, most: int) -> int:
        """How much a background read takes at once, `most` where nobody publishes."""
        return min(most, SLICE_BYTES) if self.yields() else most

    def yields(self) -> bool:
        """Whether somebody publishes, so that background work has to wait."""
        if self._live is None or self.stopped:
            return False
        now_ms = self._loop.now_ms()
        if now_ms - self._looked_ms >= LOOK_MS:
            self._look(now_ms, self._live())
        return now_ms - self._live_ms < LIVE_MS and not self._hurried()

    def sheds(self) -> bool:
        """Whether the hub has too much to do to read in bulk."""
        return self._shedding.level >= BULK_READS and not self.stopped

    def note_shed(self) -> None:
        """A job waits for that."""
        self._shedding.counts[BULK_READS] += 1

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return sum(lane.waiting for lane in self._lanes.values())

    # ---- how live messages do

    def _look(self, now_ms: int, live: LiveWork) -> None:
        before, self._known, looked_ms, self._looked_ms = self._known, live, self._looked_ms, now_ms
        worked, late = self._worked, self._came_late
        self._worked, self._came_late = any(lane.works for lane in self._lanes.values()), False
        messages = live.messages - before.messages
        if not messages:
            return
        size_bytes, elapsed_ms = live.size_bytes - before.size_bytes, max(1, now_ms - looked_ms)
        self._pace = max(1.0, size_bytes * 1000 / elapsed_ms / LIGHT_BYTES_PER_S)
        self._live_ms = live.newest_ms         # the look before may be long ago
        mean_ms = (live.waited_ms - before.waited_ms) / messages
        if not worked:
            self._calm_ms = mean_ms if not self._calm_ms else (3 * self._calm_ms + mean_ms) / 4
            self._listened_ms = now_ms
        elif late or self._calm_ms and mean_ms > SUFFERED * self._calm_ms + SUFFERED_MS:
            self.share = max(LEAST_SHARE, self.share / 2)
        elif self._calm_ms:
            self.share = min(MOST_SHARE, self.share * GROWTH)

    # ---- what lanes say

    def listens(self, now_ms: int) -> bool:
        """Whether everything pauses, since nothing has been heard of live messages alone for long: it does from here
        on. What is on its way comes to its end meanwhile."""
        if now_ms - self._listened_ms < LISTEN_MS:
            return False
        self._listened_ms = now_ms               # whether or not anything is heard
        for lane in self._lanes.values():
            lane.rest(now_ms, PAUSE_MS)
        return True

    def note_job(self, user: str) -> None:
        """A job of this user begins."""
        self._worked = True
        self.jobs[user] += 1

    def note_rest(self, rested_ms: int, late_ms: int) -> None:
        """A lane has rested, and its timer came so late."""
        self.rested_ms += rested_ms
        self._came_late |= late_ms >= LATE_MS
