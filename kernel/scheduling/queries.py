"""Questions about what is scheduled, and recalling it. What is not in memory is read on the reading thread."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

from gatehouse.kernel.errors import AlreadyDelivered, KernelError, StorageFailed, UnknownScheduled
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import NOBODY, Origin, Owner, Stored, tell
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.scheduling.book import Book
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule_records import (
    FIRST_FORGET,
    FIRST_WALL,
    NAME_BYTES,
    Fate,
    Pending,
    Settled,
    decode,
    due_of,
    id_key,
    id_of,
    is_by_wall,
    name_of,
    number_of,
    timer_key,
    timer_of,
)
from gatehouse.kernel.state.state import Changed, Clock, Kind, StateTable

READS: Final = 3                   # of one that changes while it is read
PAGE: Final = 1_000                # entries at most
PAGE_BYTES: Final = 4 << 20        # of messages, or one of them
MAX_ID: Final = (1 << 64) - 1
BEYOND_IDS: Final = b"\xff" * 9   # behind every id
RECALLED_AT_ONCE: Final = 1_000    # of what waits under one name; the next call takes the next


class Scheduled(NamedTuple):
    """One schedule: what waits, or what became of it."""

    id: int
    what: Pending | Settled


class View(NamedTuple):
    """Timers of both clocks in one order: keys of hub time as if of the wall clock, which is `apart_ms` ahead.

    A page's start is such a key, with a zero byte behind it, or nothing.
    """

    apart_ms: int

    def shown_key(self, key: bytes) -> bytes:
        due_ms = due_of(key) if is_by_wall(key) else due_of(key) + self.apart_ms
        return timer_key(max(0, due_ms), False, number_of(id_of(key)))

    def hub_key(self, start: bytes) -> bytes:
        return self._key(due_of(start) - self.apart_ms, False, start) if start else b""

    def wall_key(self, start: bytes) -> bytes:
        return self._key(due_of(start), True, start) if start else FIRST_WALL

    @staticmethod
    def _key(due_ms: int, by_wall: bool, start: bytes) -> bytes:
        return timer_key(max(0, due_ms), by_wall, 0)[:8] + start[8:]


Page = tuple[list[Scheduled], "bytes | None"]
"""Entries by due time, and where the next page begins."""


class Queries:
    """What answers questions about scheduled messages, and recalls them. `worker` reads the index."""

    def __init__(self, *, worker: Worker, index: Index, state: StateTable, clock: Clock, book: Book,
                 fatal: Callable[[str], None], recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._worker = worker
        self._index = index
        self._state = state
        self._clock = clock
        self._book = book
        self._fatal = fatal
        self._held: list[Callable[[], None]] = []        # recalls of what is on its way to the disk
        book.listeners.append(self._ended)

    def _ended(self, plan: Plan, stored: bool) -> None:
        held, self._held = self._held, []
        for again in held:
            again()

    # ---- one

    def show(self, message_id: int, tenant: str, on_done: Callable[[Scheduled | None], None]) -> None:
        """See `KernelPort.show_scheduled`."""
        self._find(message_id, lambda what: on_done(
            Scheduled(message_id, self._shown(what)) if what is not None and what.tenant == tenant else None))

    def _find(self, message_id: int, on_found: Callable[[Pending | Settled | None], None], reads: int = 1) -> None:
        key = id_key(message_id) if 0 <= message_id <= MAX_ID else b"?"
        recent = self._state.recent(Kind.SCHEDULED, key)
        if recent is not None:
            on_found(None if recent[2] is None else decode(recent[2]))
        else:
            self._worker.submit(partial(self._get, key), partial(self._got, message_id, on_found, reads))

    def _get(self, key: bytes) -> Pending | Settled | None:
        """On the reading thread."""
        held = self._index.held(Kind.SCHEDULED, key)
        return None if held is None or held.value is None else decode(held.value)

    def _got(self, message_id: int, on_found: Callable[[Pending | Settled | None], None], reads: int,
             record: Pending | Settled | None, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the index cannot be read: {error}")
        elif self._state.recent(Kind.SCHEDULED, id_key(message_id)) is not None \
                or isinstance(record, Pending) and self._is_late(message_id, record) and reads < READS:
            self._find(message_id, on_found, reads + 1)      # it has changed since it was read
        else:
            on_found(record)

    def _is_late(self, message_id: int, pending: Pending) -> bool:
        """Whether this was read before it was delivered or recalled: its timer is gone."""
        timer = timer_of(pending, message_id)
        timers = self._book.timers_for(timer)
        return timer < timers.horizon and timer not in timers and id_of(timer) not in self._book.settling

    def _shown(self, what: Pending | Settled) -> Pending | Settled:
        """With what is due by hub time as the wall clock would say it now."""
        if isinstance(what, Settled) or what.by_wall:
            return what
        return what._replace(due_ms=self._clock.wall_of(what.due_ms))

    # ---- recall

    def recall(self, message_id: int, tenant: str, owner: Owner, token: object) -> None:
        """See `KernelPort.recall`."""
        self._recall_for(self._speaking(), message_id, tenant, owner, token)

    def _speaking(self) -> Origin:
        return NOBODY if self._recorder is None else self._recorder.speaking()

    def _recall_for(self, who: Origin, message_id: int, tenant: str, owner: Owner, token: object) -> None:
        self._find(message_id, partial(self._recall, who, message_id, tenant, owner, token))

    def _recall(self, who: Origin, message_id: int, tenant: str, owner: Owner, token: object,
                what: Pending | Settled | None) -> None:
        try:
            if what is None or what.tenant != tenant:
                raise UnknownScheduled(f"nothing that waits or waited within a day has the id {message_id}")
            key = id_key(message_id)
            fate = what.fate if isinstance(what, Settled) else self._book.settling.get(key)
            if isinstance(what, Pending) and fate is Fate.DELIVERED:
                # Behind its frame: that may be refused, or the message be one repetition of more.
                self._held.append(partial(self._recall_for, who, message_id, tenant, owner, token))
                return
            if fate is Fate.DELIVERED:
                raise AlreadyDelivered(f"message {message_id} has been delivered")
            if isinstance(what, Pending) and fate is None:
                self._book.plan().recall(timer_of(what, message_id), what)
                self._book.settling[key] = Fate.RECALLED
                if self._recorder is not None:
                    self._recorder.on_recalled(message_id, tenant, what.address, who)
            self._book.answer(owner, token)      # with the frame that recalls it, or behind it
        except KernelError as error:
            tell(owner, [Stored(token, error, 0, [])])

    def recall_named(self, name: str, tenant: str, owner: Owner, token: object) -> None:  # decision 229
        """See `KernelPort.recall_named`."""
        digest = name_of(tenant, name)
        self._worker.submit(partial(self._ids_of, digest, self._state.changed(Kind.NAMED)),
                            partial(self._found_ids, self._speaking(), tenant, owner, token))

    def _ids_of(self, name: bytes, changed: Changed) -> list[int]:
        """On the reading thread: what waits under a name, as many as one recall takes."""
        stored = self._index.state_range(Kind.NAMED, name, name + BEYOND_IDS)
        waiting = {key for key, value in stored if value is not None}
        for key in changed.keys():
            if key.startswith(name):
                (waiting.add if changed.has(key) else waiting.discard)(key)
        return sorted([number_of(key[NAME_BYTES:]) for key in waiting])[:RECALLED_AT_ONCE]

    def _found_ids(self, who: Origin, tenant: str, owner: Owner, token: object, ids: list[int] | None,
                   error: BaseException | None) -> None:
        if ids is None:
            self._fatal(f"the index cannot be read: {error}")
        elif ids:
            gathering = _Recalls(owner, token, ids)
            for message_id in ids:
                self._recall_for(who, message_id, tenant, gathering, message_id)
        else:
            tell(owner, [Stored(token, UnknownScheduled("nothing waits under this name"), 0, [])])

    # ---- many

    def page(self, tenant: str, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        """See `KernelPort.scheduled`."""
        limit = min(limit, PAGE)
        view = View(self._clock.apart_ms)      # the same for every page, unless there was a step
        unseen = [self._book.timers.unseen_from(view.hub_key(start), limit),
                  self._book.wall_timers.unseen_from(view.wall_key(start), limit)]
        recent_values = {key: recent[2] for part in unseen for key in part
                         if (recent := self._state.recent(Kind.SCHEDULED, id_of(key))) is not None}
        self._worker.submit(partial(self._scan, view, start, limit, unseen, recent_values),
                                         partial(self._scanned, tenant, on_done))

    def _scan(self, view: View, start: bytes, limit: int, unseen: list[list[bytes]],
              recent_values: dict[bytes, bytes | None]) -> tuple[list[tuple[bytes, bytes | None]], bytes | None]:
        """On the reading thread: timers and what the store says of them, and where to go on."""
        index = self._index
        stored = [[key for key, _ in islice(index.scan_state(Kind.TIMER, first, beyond), limit)]
                  for first, beyond in ((view.hub_key(start), FIRST_WALL), (view.wall_key(start), FIRST_FORGET))]
        ends = [view.shown_key(part[-1]) for part in (*stored, *unseen) if len(part) >= limit]
        keys = sorted({key for part in (*stored, *unseen) for key in part}, key=view.shown_key)
        keys = [key for key in keys if not ends or view.shown_key(key) <= min(ends)]
        rows: list[tuple[bytes, bytes | None]] = []
        total = 0
        for key in keys[:limit]:
            value = recent_values.get(key)
            held = index.held(Kind.SCHEDULED, id_of(key)) if key not in recent_values else None
            value = held.value if held is not None else value
            rows.append((key, value))
            total += len(value or b"")
            if total > PAGE_BYTES:
                break
        more = bool(ends) or len(rows) < len(keys)
        return rows, view.shown_key(rows[-1][0]) + b"\0" if more and rows else None

    def _scanned(self, tenant: str, on_done: Callable[[Page | StorageFailed], None],
                 page: tuple[list[tuple[bytes, bytes | None]], bytes | None] | None,
                 error: BaseException | None) -> None:
        if page is None:
            on_done(StorageFailed(f"the index cannot be read: {error}"))
            return
        waiting = [(key, self._book.waiting(key, value)) for key, value in page[0]]
        on_done(([Scheduled(number_of(id_of(key)), self._shown(pending)) for key, pending in waiting
                  if pending is not None and pending.tenant == tenant], page[1]))


class _Recalls:
    """The `Owner` of several recalls, which answers another one once: with all that was recalled, or with what went
    wrong. What has been delivered meanwhile is none of either."""

    def __init__(self, owner: Owner, token: object, ids: list[int]) -> None:
        self._owner = owner
        self._token = token
        self._left = len(ids)
        self._recalled: list[tuple[int, int, int]] = []
        self._error: Exception = UnknownScheduled("nothing waits under this name any more")

    def on_stored(self, stored: list[Stored]) -> None:
        append_ms = 0
        for answer in stored:
            self._left -= 1
            if answer.error is None:
                self._recalled.append((0, -1, cast(int, answer.token)))
                append_ms = answer.append_ms
            elif not isinstance(answer.error, (AlreadyDelivered, UnknownScheduled)):
                self._error = answer.error
        if not self._left:
            error = None if self._recalled and isinstance(self._error, UnknownScheduled) else self._error
            tell(self._owner, [Stored(self._token, error, append_ms, [] if error else self._recalled)])
