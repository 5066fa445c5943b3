"""What one principal may do with messages for a later time. Made by a guard.

A name that recalls a message is the principal's own: another may use the same one for a message of his.
"""
# decision 147: rights are part of each call, not questions beside it
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gatehouse.gateways.admission.decision import Operation
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.scheduling.schedule_records import Pending

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import Submitter, Switchboard
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import When
    from gatehouse.kernel.scheduling.queries import Page, Scheduled


class GuardedSchedule:
    """Messages for later within one principal's rights."""

    def __init__(self, guard: Guard, switchboard: Switchboard) -> None:
        self._guard = guard
        self._port = switchboard.port

    def add(self, messages: list[Message], whens: list[When], owner: Submitter | None, token: object, size_bytes: int,
            *, idempotency_key: str | None = None, refuses: bool = False) -> int:
        """Append each message when it falls due; otherwise as `Guard.append`. Raises as `KernelPort.schedule`."""
        guard = self._guard
        number = guard.number
        key = None if idempotency_key is None else guard.scoped(idempotency_key)
        charges = guard.weigh(messages, size_bytes, refuses, key)
        whens = [when._replace(name=self._own_name(when.name)) if when.name else when for when in whens]
        with guard.submission(owner, token) as submitted:
            self._port.schedule(number, messages, whens, submitted, key)
        size_bytes = max(size_bytes, sum([len(message[1] or b"") for message in messages]))
        return guard.charge(charges, len(messages), size_bytes, messages if refuses else ())

    def _own_name(self, name: str) -> str:
        return f"{self._guard.principal.name}\0{name}"

    def recall_named(self, name: str, owner: Submitter, token: object) -> None:
        """Take back what this principal has scheduled under a name; see `KernelPort.recall_named`."""
        with self._guard.submission(owner, token) as number:
            self._port.recall_named(self._own_name(name), self._guard.tenant, number)

    def recall(self, message: Scheduled, owner: Submitter, token: object) -> None:
        """Take back what was shown. Raises Denied where the principal may not publish at its address, and what
        `KernelPort.recall` raises."""
        if isinstance(message.what, Pending):
            self._guard.require(Operation.PUBLISH, message.what.address)
        with self._guard.submission(owner, token) as number:
            self._port.recall(message.id, self._guard.tenant, number)

    def _may_see(self, message: Scheduled) -> bool:
        """Who may read or write where it goes; what became of one says nothing about that."""
        what = message.what
        return not isinstance(what, Pending) or any(
            self._guard.may(operation, what.address) for operation in (Operation.CONSUME, Operation.PUBLISH))

    def page(self, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        """What waits for its time, without what the principal may not know of; see `KernelPort.scheduled`."""
        def on_page(page: Page | StorageFailed) -> None:
            if not isinstance(page, StorageFailed):
                page = [message for message in page[0] if self._may_see(message)], page[1]
            on_done(page)

        self._port.scheduled(self._guard.tenant, start, limit, on_page)

    def show(self, message_id: int, on_done: Callable[[Scheduled | None], None]) -> None:
        """See `KernelPort.show_scheduled`; None also where the principal may not know of it."""
        def on_shown(message: Scheduled | None) -> None:
            on_done(message if message is not None and self._may_see(message) else None)

        self._port.show_scheduled(message_id, self._guard.tenant, on_shown)
