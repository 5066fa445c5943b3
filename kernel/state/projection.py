"""What a copy of the definitions outside the log is told at every checkpoint. The SQL catalogue is one; none is needed.

A projection is derived: nothing reads it to decide anything, and it may be thrown away at any time. It says how far it
is complete; what it missed, it is given whole.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gatehouse.kernel.state.state import Kind, StateChanges, StateTable, behind, decode_held, store_key

if TYPE_CHECKING:
    from gatehouse.kernel.state.store import StoreCursor


PROJECTED: Final = frozenset((Kind.TOPIC, Kind.OFFSET))


class Definition(NamedTuple):
    """A state record's key and its newest value; None: deleted."""

    kind: int
    key: bytes
    value: bytes | None


class Step(NamedTuple):
    """One checkpoint: what brings a projection that is complete up to `start` to `end`, log positions."""

    hub: bytes                                       # 16 bytes: which hub's log this is
    epoch: int
    start: int
    end: int
    changed: list[Definition]
    whole: Callable[[], Iterator[Definition]]        # everything there is at `end`, for one that is not at `start`


class Projection(Protocol):  # decision 19
    def take(self, step: Step) -> None:
        """Called on the checkpoints' thread once the index holds the step. Deals with its own failures."""


def changed_definitions(changes: StateChanges) -> list[Definition]:
    """What of a checkpoint's changes is projected."""
    return [Definition(kind, key, value) for (kind, key), (_, _, value) in changes.newest.items() if kind in PROJECTED]


def whole_definitions(scan: Callable[[int], Iterable[tuple[bytes, bytes]]]) -> Iterator[Definition]:
    """All definitions, from a scan of every key of a kind."""
    for kind in sorted(PROJECTED):
        for key, value in scan(kind):
            yield Definition(kind, key, value)


# The state, read on another thread than the kernel's: key by key, or all of a kind page by page.
#
# What changed since the last checkpoint is in memory, everything else in the store; both may move on meanwhile.

class StateWalk:
    """Records of one kind as they are now, key by key on another thread: keys that nobody changes meanwhile.

    Where keys ascend and there is little between them, the next is one step away instead of a search in the store.
    """

    def __init__(self, state: StateTable, kind: int) -> None:
        self._store, self._parts = state.parts()
        self._kind = kind
        self._cursor: StoreCursor | None = None
        self._at: bytes | None = None

    def get(self, key: bytes) -> bytes | None:
        for changes in self._parts:
            newest = changes.newest.get((self._kind, key))
            if newest is not None:
                return newest[2]
        name = store_key(self._kind, key)
        if self._cursor is None:
            self._cursor = self._store.cursor()
        elif self._at is not None and self._at < name:
            self._at = self._cursor.next()
        if self._at is None or self._at != name:
            self._at = self._cursor.seek(name)
        return decode_held(self._cursor.value()).value if self._at == name else None


class StatePages:
    """Every live key of a kind that begins so, and its value, as of now, in order, page by page on another thread.

    What is changed between two pages may be in those that follow as it was, as it is, or not at all: whoever changes
    something has to know that. What has changed since the last checkpoint is listed when this is made.
    """

    def __init__(self, state: StateTable, kind: int, prefix: bytes) -> None:
        self._store, parts = state.parts()
        self._recent: dict[bytes, bytes | None] = {}
        for changes in reversed(parts):                  # the newest last
            for (of_kind, key), (_, _, value) in changes.newest.items():
                if of_kind == kind and key.startswith(prefix):
                    self._recent[key] = value
        self._order = sorted(self._recent)
        self._at = 0
        self._prefix = store_key(kind, b"")
        lowest = store_key(kind, prefix)
        self._next = lowest
        self._below = behind(lowest)

    def page(self, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """The next keys and values, and whether there are more. Looks at twice `limit` keys at most."""
        assert limit > 0, "a page without room would never end"
        stored = list(islice(self._store.scan(self._next, self._below), limit))
        changed = self._order[self._at:self._at + limit]
        ends = [part[-1] for part in ([key[len(self._prefix):] for key, _ in stored], changed) if len(part) == limit]
        records = {key[len(self._prefix):]: held for key, held in stored}
        if ends:
            end = min(ends)
            self._next = self._prefix + end + b"\0"
            changed = changed[:bisect_right(changed, end)]
            records = {key: held for key, held in records.items() if key <= end}
        self._at += len(changed)
        if not ends:
            self._order = []
        values = {key: decode_held(held).value for key, held in records.items()}
        for key in changed:
            values[key] = self._recent.pop(key)
        return [(key, value) for key in sorted(values) if (value := values[key]) is not None], bool(ends)
