"""Who is answered once several frames are durable."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.message import Owner, Stored, tell

if TYPE_CHECKING:
    from gatehouse.kernel.groups.core import Core


class DeadLetterAnswer:
    """Stands for an owner that waits for several frames: the one that ends the leases, and after it that in which the
    messages of each cursor are given up, or come again. What is given up is read before. The owner is answered once,
    when all of them are durable."""

    def __init__(self, core: Core, owner: Owner, token: object, cursors: int) -> None:
        self._core = core
        self._owner = owner
        self._token = token
        self._left = cursors + 1
        self._error: Exception | None = None

    def on_given_up(self) -> None:
        """One cursor's are in the pending frame. Raises Stopping."""
        self._core.answer(self, None)

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel for each of the frames."""
        for answer in stored:
            assert self._left > 0, "every frame answers once"
            self._left -= 1
            self._error = self._error or answer.error
            if not self._left:
                tell(self._owner, [Stored(self._token, self._error, answer.append_ms, [])])
