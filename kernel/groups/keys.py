"""When the next message of a key may be handed out, in groups that keep the order of keys."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup


class KeysFreed:  # decision 28
    """Keys of messages that are being settled: the next ones of them come once that is durable, so that no crash
    brings back a message behind those that came after it."""

    def __init__(self, group: LeasedGroup, prefetcher: Prefetcher, offsets: list[int]) -> None:
        self._group = group
        self._prefetcher = prefetcher
        self._offsets = offsets
        self._moved = prefetcher.cursor.moved

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The cursor says it all."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """The next ones come."""
        if self._moved == self._prefetcher.cursor.moved and self._prefetcher.free_keys(self._offsets):
            self._group.cursor_ready(self._prefetcher)

    def failed(self, frames: list[PendingFrame]) -> None:
        """The cursor has been put back to what is stored."""
