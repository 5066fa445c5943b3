"""The state, read on another thread than the kernel's: key by key, or all of a kind page by page.

What changed since the last checkpoint is in memory, everything else in the store; both may move on meanwhile.
"""
from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from gatehouse.kernel.state.state import StateTable, behind, decode_held, store_key

if TYPE_CHECKING:
    from gatehouse.kernel.state.store import StoreCursor


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
