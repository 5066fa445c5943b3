"""When the next message of a key may be handed out, in groups that keep the order of keys."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.log.frame import StateRecord

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup


class KeysFreed:  # decision 28
    """Keys of messages that are being settled: the next ones of them come once that is durable, so that no crash
    brings back a message behind those that came after it."""

    count = 0

    def __init__(self, group: LeasedGroup, prefetcher: Prefetcher, offsets: list[int]) -> None:
        self._group = group
        self._prefetcher = prefetcher
        self._offsets = offsets
        self._moved = prefetcher.cursor.moved

    def records(self, first_id: int) -> list[StateRecord]:
        return []

    def applied(self) -> None:
        if self._moved == self._prefetcher.cursor.moved and self._prefetcher.free_keys(self._offsets):
            self._group.cursor_ready(self._prefetcher)

    def failed(self) -> None:
        """The cursor has been put back to what is stored."""
