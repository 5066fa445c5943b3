"""When those who give messages up are answered: what they gave up is read before it is dead-lettered."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.kernel.groups.members import Core
    from gatehouse.kernel.message import Owner


class DeadLetterAnswer:
    """Stands for an owner that waits for several frames: the one that ends the leases, and after it that in which the
    messages of each cursor are dead-lettered, or come again. The owner is answered once, when all of them are
    durable."""

    def __init__(self, core: Core, owner: Owner, token: object, cursors: int) -> None:
        self._core = core
        self._owner = owner
        self._token = token
        self._left = cursors + 1
        self._error: Exception | None = None

    def on_dead_lettered(self) -> None:
        """One cursor's are in the pending frame. Raises Stopping."""
        self._core.answer(self, None)

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel for each of the frames."""
        for answer in stored:
            self._left -= 1
            self._error = self._error or answer.error
            if not self._left:
                self._owner.on_stored([Stored(self._token, self._error, answer.append_ms, [])])
