"""Half messages for a door that tells its clients in JSON: to hold, to decide, to be told, to be asked. A door says
only how its clients write that, and how they are told.

    HalfWords       the names under which a client is told, as this door writes them
    HalfWish        what a client asked for, as the door has read it
    HalfClient      what one client holds and decides
    HalfListener    whoever is told under one of the names; under that of checks it is a member of the group

`gateways.checks` has the documents. HTTP answers requests instead of telling anybody.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import (
    InvalidDecision,
    InvalidHalfName,
    describe_check,
    describe_decided,
    describe_refused,
    read_check_settings,
    read_decision,
)
from gatehouse.kernel.errors import AlreadyDecided, Busy, InvalidFilter, KernelError, UnknownTransaction
from gatehouse.kernel.groups.group_settings import check_name

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.door_side import Submitter
    from gatehouse.kernel.api import HalfMessage
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.coordinator import Check, Decision, Membership

CHECKS_AHEAD: Final = 100              # that a member may be asked and has not settled
NOT_HELD: Final = (Denied, InvalidHalfName, KernelError)
"""Refusals of a half message. Its sender is told, whatever else the protocol does about it."""

REFUSALS: Final = (InvalidDecision, UnknownTransaction, AlreadyDecided, Busy)
"""Refusals of a decision that are its maker's business; all others say that the hub cannot do its work."""

Document = dict[str, Any]
"""What a client is told, as JSON has it."""


class HalfWords(NamedTuple):
    """The names under which clients of one door are told."""

    held: str
    """Before a group: what became of half messages of one's own."""

    check: str
    """Before a group: what its members are asked."""

    decided: str
    """What came of one's own decisions."""

    def group_of(self, name: str) -> str:
        """The group that one of these names speaks of; "" for `decided`. Raises InvalidFilter, InvalidGroup."""
        if name == self.decided:
            return ""
        for prefix in (self.check, self.held):
            if name.startswith(prefix):
                group = name.removeprefix(prefix)
                check_name(group, "group")
                return group
        raise InvalidFilter(f"{name[:200]!r} is none of {self.check}GROUP, {self.held}GROUP, {self.decided}")


class HalfWish(NamedTuple):
    """What a client asked for."""

    halves: list[HalfMessage]
    name: str | None = None
    """What makes it repeatable."""

    check: object = None
    """When it is asked about, for `checks.read_check_settings`; None: as configured."""

    size_bytes: int | None = None
    """What it took on the wire; None: the door counts it with what it came in."""


class HalfClient:  # decision 152
    """One client. `tell(name, document)` tells whoever of it listens under a name; False: there was no room."""

    def __init__(self, guard: Guard, words: HalfWords, tell: Callable[[str, Document], bool]) -> None:
        self._guard = guard
        self._words = words
        self._tell = tell

    def hold(self, group: str, read: Callable[[], HalfWish], about: Document, owner: Submitter, token: object) -> int:
        """Hold what `read` gives; `owner` is answered, and calls `tell_held`. `about` is what the client is told with
        the outcome, whole when `read` has returned. Returns for how many ms the sender is to be slowed down. Raises
        `NOT_HELD`, with the client told."""
        guard = self._guard
        try:
            check_name(group, "group")
            guard.require_group(Operation.TRANSACT, group)
            wish = read()
            checks, transactions = None, guard.transactions
            if wish.check is not None:
                checks = read_check_settings(wish.check, transactions.checks_for(wish.halves[0].message[0], group))
            return transactions.begin(wish.halves, group, checks, wish.name, owner, token, wish.size_bytes)
        except NOT_HELD as refused:
            self.refuse_held(group, about, refused)
            raise

    def tell_held(self, group: str, about: Document, stored: Stored) -> None:
        """What `hold` was asked for is durable, or is not."""
        if stored.error is not None:
            self.refuse_held(group, about, stored.error)
        else:
            self._note(self._words.held + group, {"id": str(stored.positions[0][2]), **about})

    def refuse_held(self, group: str, about: Document, error: Exception) -> None:
        """It is not held: the same may be sent again."""
        code = getattr(error, "code", "internal_error")
        self._count(f"half_{code}")
        self._note(self._words.held + group, {**about, "code": code, "detail": str(error)})

    def decide(self, payload: bytes | None, on_result: Callable[[Exception | None], None]) -> None:
        """Carry out a decision, a document of `checks`. `on_result` is called when it is durable, or with the error,
        perhaps before this returns; the client has been told then."""
        try:
            transaction_id, decision = read_decision(payload)
        except InvalidDecision as error:
            self._refuse(error.given, error)
            on_result(error)
            return
        if decision is None:
            on_result(None)
            return
        decided = _Decided(self, transaction_id, decision, on_result)
        self._guard.transactions.decide(transaction_id, decision, decided, None)

    def tell_decided(self, transaction_id: int, decision: Decision, stored: Stored) -> None:
        """A decision is durable, or is refused."""
        if stored.error is not None:
            self._refuse(transaction_id, stored.error)
        else:
            self._note(self._words.decided, describe_decided(transaction_id, decision, stored.append_ms))

    def _refuse(self, transaction_id: int | str | None, error: Exception) -> None:
        document = describe_refused(transaction_id, error)
        self._count(f"decision_{document['code']}")
        self._note(self._words.decided, document)

    def _note(self, name: str, document: Document) -> None:
        if not self._tell(name, document):
            self._count("notice_dropped")

    def _count(self, event: str) -> None:
        self._guard.count(event)


class _Decided:
    """The `Owner` of one decision."""

    def __init__(self, client: HalfClient, transaction_id: int, decision: Decision,
                 on_result: Callable[[Exception | None], None]) -> None:
        self._client = client
        self._id = transaction_id
        self._decision = decision
        self._on_result = on_result

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            self._client.tell_decided(self._id, self._decision, answer)
            self._on_result(answer.error)


class HalfListener:
    """Whoever is told under one name. `send(document)` is False where there is no room; a check waits then for `pump`.
    """

    def __init__(self, services: Services, words: HalfWords, name: str, tenant: str, client: str,
                 send: Callable[[Document], bool], *, credit: int = CHECKS_AHEAD, is_acknowledged: bool = False
                 ) -> None:
        """`client` is what the hub calls the member. With `is_acknowledged` there is room for as many checks again
        when `add_credit` says so, else as soon as one is sent. Raises InvalidFilter, InvalidGroup."""
        self.group = words.group_of(name)
        self.send = send
        self._services = services
        self._is_asked = name.startswith(words.check)
        self._tenant = tenant
        self._client = client
        self._credit = credit
        self._is_acknowledged = is_acknowledged
        self._waiting: list[Check] = []
        self._membership: Membership | None = None

    def may_listen(self, principal: Principal) -> bool:
        """Whether this user may be told of the group; of what is their own everybody may."""
        return not self.group or self._services.admission.may_group(principal, Operation.TRANSACT, self.group)

    def join(self) -> None:
        """Be asked from now on, where the name is that of checks."""
        if self._is_asked:
            self._membership = self._services.transactions.join(self.group, self._tenant, self, name=self._client,
                                                                credit=self._credit)

    def leave(self) -> None:
        """Be asked nothing more; what was asked is asked of others in time."""
        membership, self._membership = self._membership, None
        if membership is not None:
            membership.leave()
        self._waiting = []

    def on_checks(self, checks: list[Check]) -> None:
        """Sent as far as there is room; the rest waits for `pump`."""
        self._waiting += checks
        self.pump()

    def pump(self) -> None:
        """Send checks that wait."""
        names = self._services.door_numbers.names
        while self._waiting and self.send(describe_check(self._waiting[0], names)):
            self._waiting.pop(0)
            if not self._is_acknowledged:
                self.add_credit(1)

    def add_credit(self, count: int) -> None:
        """There is room for so many checks more."""
        if self._membership is not None:
            self._membership.add_credit(count)
