"""What a client with a no-local filter has published itself, by offset, until it was delivered to others. Pure."""
from __future__ import annotations

from collections import deque
from typing import Final

REMEMBERED_MAX: Final = 131_072        # offsets; a flush is delivered before the next ones are answered


class OwnMessages:  # decision 172
    """Answers come before the deliveries of the same flush: so a delivery finds whether it is the client's own."""

    def __init__(self) -> None:
        self._offsets: set[tuple[int, int]] = set()
        self._order: deque[tuple[int, int]] = deque()

    def note(self, positions: list[tuple[int, int, int]]) -> None:
        """These (partition id, offset, message id) are the client's own."""
        for partition_id, offset, _ in positions:
            self._offsets.add((partition_id, offset))
            self._order.append((partition_id, offset))
        while len(self._order) > REMEMBERED_MAX:
            self._offsets.discard(self._order.popleft())

    def holds(self, partition_id: int, offset: int) -> bool:
        """Whether the client has published what stands there."""
        return (partition_id, offset) in self._offsets
