"""What an administrator asks for in parts: each is refused by itself, and all are answered when the last is durable."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.errors import AccountError, Denied
from gatehouse.gateways.kafka.mapping import Refused, code_of
from gatehouse.kernel.errors import KernelError

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.cold import Row
    from gatehouse.kernel.message import Stored

REFUSALS = (Refused, KernelError, Denied, AccountError)
"""What a part of a request can be refused with."""


def refuse(row: Row, refusal: Exception) -> None:
    """Say in a part's row why it was not done."""
    row.error_code = refusal.code if isinstance(refusal, Refused) else code_of(refusal)
    row.error_message = str(refusal)


class AskedParts:
    """One request until each of its parts has its answer; then `answer` is called."""

    __slots__ = ("pending", "answer")

    def __init__(self, answer: Callable[[], None]) -> None:
        self.pending = 1             # parts without an answer; one more while the request is gone through
        self.answer = answer

    def begin(self, row: Row, start: Callable[[AskedPart], Any], done: Callable[[], None] | None = None) -> None:
        """Begin a part with the token of what it is to wait for. Where it is refused, now or by the disk, its row says
        so; else `done` is called."""
        self.pending += 1
        part = AskedPart(self, row, done)
        try:
            start(part)
        except REFUSALS as refusal:
            refuse(row, refusal)
            self.settle()

    def settle(self) -> None:
        """A part is answered, or the request has been gone through."""
        self.pending -= 1
        if not self.pending:
            self.answer()


class AskedPart:
    """The token of a part that waits for the disk, or for the database of users and rights."""

    __slots__ = ("parts", "row", "done", "waits", "refused")

    def __init__(self, parts: AskedParts, row: Row, done: Callable[[], None] | None) -> None:
        self.parts = parts
        self.row = row
        self.done = done
        self.waits = 1               # for so many answers
        self.refused = False

    def also(self) -> None:
        """It waits for one answer more."""
        self.waits += 1

    def on_stored(self, stored: Stored) -> None:
        self.end(stored.error)

    def on_changed(self, result: object) -> None:
        """An account was changed, or not: that comes as an AccountError."""
        self.end(result if isinstance(result, AccountError) else None)

    def end(self, error: Exception | None = None) -> None:
        """What the part waits for is done, or was refused."""
        self.waits -= 1
        if error is not None:
            self.refused = True
            refuse(self.row, error)
        if self.waits:
            return
        if self.done is not None and not self.refused:
            self.done()
        self.parts.settle()
