"""Leased messages are read first and given up later: their dead letters are in the frame in which that is said."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gatehouse.kernel.groups.policy import REJECTED

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.message import Handle, Leased

OnRead = Callable[["list[Leased] | None"], None]


def read_leased(group: LeasedGroup, handles: Sequence[Handle], on_read: OnRead) -> None:
    """Read messages that are leased; nothing of them changes. None where one of them cannot be read."""
    by_cursor = group.good_handles(handles)[1]
    gathering = _Gathering(len(by_cursor), on_read)
    for prefetcher, offsets in by_cursor:
        prefetcher.read_leased(offsets, gathering.add)


def reject_read(group: LeasedGroup, handles: Sequence[Handle], messages: list[Leased]) -> None:
    """Give up what `read_leased` has read, in the frame that is being filled. Raises Stopping."""
    by_place = {(message[0], message[1]): message for message in messages}
    for prefetcher, offsets in group.good_handles(handles)[1]:
        key = prefetcher.cursor.key
        there = [by_place[key, offset] for offset in offsets if (key, offset) in by_place]
        group.give_up_leased(prefetcher, offsets, there, REJECTED)


class _Gathering:
    """What several cursors have, until all of them have answered."""

    def __init__(self, cursors: int, on_read: OnRead) -> None:
        self._left = cursors
        self._on_read = on_read
        self._messages: list[Leased] = []
        self._failed = False
        if not cursors:
            on_read([])

    def add(self, messages: list[Leased] | None) -> None:
        self._left -= 1
        self._failed = self._failed or messages is None
        self._messages += messages or []
        if not self._left:
            self._on_read(None if self._failed else self._messages)
