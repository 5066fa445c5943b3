"""Assigned groups under their names, as those of both protocols are kept.

Whoever comes first, members or leases, has a name. A group is in memory while it has members, and ten minutes longer;
each is looked at when something of it may fall due.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, Protocol, TypeVar

from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.errors import GroupFull, GroupIsLeased, KernelError, Stopping
from gatehouse.kernel.groups.definitions import Definitions, LiveGroups
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings
from gatehouse.kernel.message import Owner, StateRecord, Stored
from gatehouse.kernel.ports import Loop

OURS: Final = GroupSettings(kind=ASSIGNED)
"""The definition that a group gets from its first member."""

MAX_GROUPS: Final = 50_000
"""Groups of one protocol that are in memory."""

UNUSED_MS: Final = 600_000
"""How long a group without members is remembered, whose next generation or epoch is to have the next number."""

MAX_STALE: Final = 1_000
"""Times in the heap at which nothing is looked at any more, beside one for each entry."""

PutState = Callable[[list[StateRecord], "Owner | None", object], None]
"""Puts records into the pending frame. Raises Stopping."""

ForgetOffsets = Callable[[str, str, Collection[int]], None]
"""Is told of a group, by tenant and name, and the partitions in which its offsets are deleted. Raises Stopping."""


# decision 159: one table of names
class GroupNames:
    """Who has a name: whoever comes first, members or leases. And which groups have members, which `live` learns.
    `has_offsets` says whether a group has committed any."""

    def __init__(self, definitions: Definitions[GroupSettings], live: LiveGroups, put_state: PutState,
                 has_offsets: Callable[[str, str], bool]) -> None:
        self._definitions = definitions
        self._live = live
        self._put_state = put_state
        self._has_offsets = has_offsets

    def claim(self, tenant: str, name: str) -> bool:
        """The name is an assigned group's from now on; whether it is only now. Raises GroupIsLeased, Stopping."""
        if self.require_not_leased(tenant, name) is not None:
            return False
        self._put_state([self._definitions.put(tenant, name, OURS)], None, None)
        return True

    def disclaim(self, tenant: str, name: str) -> list[StateRecord]:
        """Records that forget the definition that was made for a group's first member, where it is still that one and
        nothing was committed under it."""
        if self._definitions.get(tenant, name) == OURS and not self._has_offsets(tenant, name):
            return [self._definitions.put(tenant, name, None)]
        return []

    def is_there(self, tenant: str, name: str) -> bool:
        """Whether the group is defined, or has committed. Raises GroupIsLeased."""
        return self.require_not_leased(tenant, name) is not None or self._has_offsets(tenant, name)

    def require_not_leased(self, tenant: str, name: str) -> GroupSettings | None:
        """The definition, if there is one. Raises GroupIsLeased."""
        settings = self._definitions.get(tenant, name)
        if settings is not None and settings.kind != ASSIGNED:
            raise GroupIsLeased(f"messages of group {name!r} are leased and acked; nobody is assigned its partitions")
        return settings

    def note(self, tenant: str, name: str, has_members: bool) -> None:
        """Whether a group has members now."""
        self._live.note(tenant, name, has_members)


class Watched(Protocol):
    """`due_ms` is when it is looked at next; 0: never."""

    due_ms: int


T = TypeVar("T", bound=Watched)


# decision 161: one entry in one heap
class DueHeap(Generic[T]):
    """What is looked at next: every entry once in one heap, at the earliest time at which something of it may fall due.
    Calls `look` with an entry and the time; too early does no harm, so that heartbeats need not say anything."""

    def __init__(self, loop: Loop, look: Callable[[T, int], None], count: Callable[[], int]) -> None:
        self._loop = loop
        self._look = look
        self._count = count                    # how many entries there are
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = 0
        self._alarm = Alarm(loop.call_at, self._on_time)
        self._stopped = False

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, entry: T, when_ms: int | None) -> None:
        """Look at the entry then, if not before; None: never, as far as this goes."""
        if when_ms is None or entry.due_ms and entry.due_ms <= when_ms:
            return
        entry.due_ms = when_ms
        self._numbers += 1
        heappush(self._heap, (when_ms, self._numbers, entry))
        if len(self._heap) > 2 * self._count() + MAX_STALE:
            self._heap = list({id(row[2]): row for row in self._heap if row[2].due_ms == row[0]}.values())
            heapify(self._heap)
        self._set_timer()

    def stop(self) -> None:
        self._stopped = True

    def _set_timer(self) -> None:
        if self._heap:
            self._alarm.ring_by(self._heap[0][0])

    def _on_time(self) -> None:
        now_ms = self._loop.now_ms()
        while self._heap and self._heap[0][0] <= now_ms and not self._stopped:
            when_ms, _, entry = heappop(self._heap)
            if entry.due_ms == when_ms:            # else it was looked at earlier
                entry.due_ms = 0
                self._look(entry, now_ms)
        self._set_timer()


class GroupEntry:
    """A group under its name."""

    __slots__ = ("tenant", "name", "is_ours", "size_bytes", "due_ms", "unused_ms")

    def __init__(self, tenant: str, name: str) -> None:
        self.tenant = tenant
        self.name = name
        self.is_ours = False                   # its definition was made for its first member
        self.size_bytes = 0
        self.due_ms = 0                        # when it is looked at next, 0: never
        self.unused_ms = 0                     # since when it has had no members, 0: it has


E = TypeVar("E", bound=GroupEntry)


class GroupTable(Generic[E]):
    """All groups of one protocol. A subclass says how one is forgotten, and what it does when time has gone on."""

    def __init__(self, loop: Loop, names: GroupNames, put_state: PutState, on_error: Callable[[Exception], None]
                 ) -> None:
        self._loop = loop
        self._names = names
        self._put_state = put_state
        self._on_error = on_error
        self._entries: dict[tuple[str, str], E] = {}
        self._unused: dict[E, None] = {}       # groups without members, the longest unused first
        self._due: DueHeap[E] = DueHeap(loop, self._look, lambda: len(self._entries))
        self._size_bytes = 0
        self._stopped = False

    def _stop(self) -> None:
        """Nothing is looked at any more, and nobody is served."""
        self._stopped = True
        self._due.stop()

    def _require_running(self) -> None:
        if self._stopped:
            raise Stopping("the hub is stopping")

    def _make_room(self) -> None:
        """For one more group. Raises GroupFull."""
        if len(self._entries) >= MAX_GROUPS:
            if not self._unused:
                raise GroupFull(f"there are {MAX_GROUPS} groups with members, as many as may be")
            self._forget(next(iter(self._unused)))

    def _note(self, entry: E, size_bytes: int, is_unused: bool) -> None:
        """So large is the group now; `is_unused`: it has no members."""
        self._size_bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes
        if not is_unused:
            entry.unused_ms = 0
            self._unused.pop(entry, None)
        elif not entry.unused_ms:
            entry.unused_ms = self._loop.now_ms()
            self._unused[entry] = None

    def _look_next(self, entry: E, when_ms: int | None) -> None:
        """Look at the group when it is to be forgotten, or else then."""
        self._due.at(entry, entry.unused_ms + UNUSED_MS if entry.unused_ms else when_ms)

    def _drop(self, entry: E) -> None:
        """The group is in memory no more."""
        del self._entries[entry.tenant, entry.name]
        self._unused.pop(entry, None)
        self._size_bytes -= entry.size_bytes

    def _tell(self, answers: Iterable[tuple[Any, object]]) -> None:
        for waiting, answer in answers:
            try:
                waiting(answer)
            except Exception as fault:             # one member's bug must not cost the others their answers
                self._on_error(fault)

    def _look(self, entry: E, now_ms: int) -> None:
        """Something of the group may have fallen due."""
        if self._entries.get((entry.tenant, entry.name)) is not entry:
            return
        try:
            if entry.unused_ms and entry.unused_ms + UNUSED_MS <= now_ms:
                self._forget(entry)
            else:
                self._go_on(entry, now_ms)
        except Stopping:
            self._stop()

    def _forget(self, entry: E) -> None:
        """The group has had no members for long. Raises Stopping."""
        raise NotImplementedError

    def _go_on(self, entry: E, now_ms: int) -> None:
        """It is so late now for the group. Raises Stopping."""
        raise NotImplementedError


def answered(stored: list[Stored]) -> Iterator[tuple[Any, KernelError | None]]:
    """What became of records: for each what was asked with, and why they were refused."""
    for answer in stored:
        assert answer.error is None or isinstance(answer.error, KernelError)
        yield answer.token, answer.error
