"""Transactions as HTTP says them: transactions and checks as JSON, half messages that come in, and decisions, by
whichever call or frame they do. Hot.

A transaction, here one that was committed by its sender after one check that nobody answered:

    {"id": "281474976710657", "state": "committed", "group": "shop", "by": "ada", "address": "orders/17",
     "messages": 1, "begun": 1700000000000, "check": {"after": 6.0, "every": 30.0, "times": 15},
     "checks": [{"at": 1700000006000, "to": ""}], "next": null, "decided": 1700000007000, "decided_by": "ada"}

`gateways.checks` says how a check looks in JSON.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import NOT_YET, describe_decided, read_check_settings
from gatehouse.gateways.http.declaring import (
    MESSAGE_ID,
    SECONDS,
    TEXT,
    TIME_MS,
    WHOLE,
    Named,
    Schema,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import DOOR, NAME
from gatehouse.gateways.http.exchange import JSON, Response, json_answer
from gatehouse.gateways.http.mapping import describe_place
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import InvalidCheckBack, UnknownTransaction
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.message import NOW, When
from gatehouse.kernel.scheduling.scheduling import first_due
from gatehouse.transactions.coordinator import CheckSettings, Decision, State, Transaction
from gatehouse.transactions.settings import MAX_CHECKS, MAX_TIME_MS

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.door_side import Submitter
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.exchange import Call
    from gatehouse.gateways.http.mapping import Publication
    from gatehouse.kernel.api import Message, ReceiptsByGroup
    from gatehouse.kernel.halves.halves import Offsets
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.deciding import Guarded

STATES: Final = {state.name.lower(): state for state in State}
_TIME: Final[Schema] = {"type": "number", "minimum": 0.001, "maximum": MAX_TIME_MS / 1000}
CHECK_BACK: Final = object_of({}, {
    "after": {**_TIME, "description": "Seconds of silence before the first check."},
    "every": {**_TIME, "description": "Seconds from one check to the next."},
    "times": {"type": "integer", "minimum": 0, "maximum": MAX_CHECKS}}, closed=True)

TRANSACTION: Final = Named("Transaction", object_of({
    "id": MESSAGE_ID, "state": one_of(*STATES), "group": TEXT, "by": TEXT, "address": TEXT, "messages": WHOLE,
    "begun": TIME_MS, "check": object_of({"after": SECONDS, "every": SECONDS, "times": WHOLE}),
    "checks": list_of(object_of({"at": TIME_MS, "to": TEXT})), "next": nullable(TIME_MS),
    "decided": nullable(TIME_MS), "decided_by": nullable(TEXT)}))

CHECK: Final = Named("Check", object_of({
    "id": MESSAGE_ID, "group": TEXT, "attempt": WHOLE, "max_attempts": WHOLE, "age_ms": WHOLE, "messages": WHOLE,
    "by": TEXT, "message": object_of({name: schema for name, schema in MESSAGE_FIELDS.items() if name not in NOT_YET},
                                     MESSAGE_OPTIONS)}))


def describe(transaction: Transaction, wall_of: Callable[[int], int]) -> dict[str, Any]:
    """A transaction with its checks and its decision; `wall_of` a hub time."""
    first_ms, every_ms, times = transaction.settings
    is_open = transaction.state is State.OPEN
    return {"id": str(transaction.id), "state": transaction.state.name.lower(), "group": transaction.group,
            "by": transaction.by, "address": transaction.address, "messages": transaction.messages,
            "begun": wall_of(transaction.begun_ms),
            "check": {"after": first_ms / 1000, "every": every_ms / 1000, "times": times},
            "checks": [{"at": wall_of(at_ms), "to": to} for at_ms, to in transaction.checks],
            "next": transaction.next_ms and wall_of(transaction.next_ms) if is_open else None,
            "decided": None if is_open else wall_of(transaction.decided_ms),
            "decided_by": None if is_open else transaction.decided_by}


def read_check_back(given: object, default: CheckSettings) -> CheckSettings:
    """The member `check` of a document; what it leaves out is as configured. Refuses `invalid_body`."""
    try:
        return default if given is None else read_check_settings(given, default)
    except InvalidCheckBack as error:
        raise Refusal("invalid_body", str(error)) from None


def read_state(text: str) -> State:
    """A state's name. Refuses `invalid_parameter`."""
    state = STATES.get(text)
    if state is None:
        raise Refusal("invalid_parameter", f"'state' is one of {', '.join(STATES)}", parameter="state")
    return state


MAX_ID_DIGITS: Final = 20
OPEN: Final = State.OPEN               # decision 357: looked up once


# decision 132
def begin_at_once(door: Door, call: Call, guard: Guard) -> Reply[Response] | None:
    """Begin the transaction of one message whose value is the body: the answer, once it is durable. None: the body is
    something else, or something has to be waited for before."""
    if call.media == JSON or door.must_wait:
        return None
    query = call.query()
    publication = publication_of(door, call)
    place = place_of_query(guard, call, query, publication)
    if not door.bodies.has_whole(call):
        return None
    half = half_of_body(door, call, place, publication, call.take_body())
    holding = Holding(door, guard, query["group"], [half], None, publication.idempotency_key)
    return door.change(holding.begin).finished_by(holding.answer)


def publication_of(door: Door, call: Call) -> Publication:
    """What the request's headers say. Refuses what a half message cannot have."""
    publication = call.head.publication(door.services.wall_ms)
    if publication.respond_async:
        raise Refusal("invalid_header", "Prefer: a half message is durable before it is answered")
    return publication


# decision 51: the right to the group is remembered with the place
def place_of_query(guard: Guard, call: Call, query: dict[str, str], publication: Publication) -> int:
    """Where a message that is the body goes. Remembered once both may be had: the group, and the place."""
    raw = b"?" + call.raw_query.encode()                     # no address in a path has a "?"
    place = guard.places.get(raw) if publication.key is None else None
    if place is None:
        guard.require_group(Operation.TRANSACT, group_name(query.get("group")))
        place = place_named(guard, query, publication)
        if publication.key is None:
            guard.remember_raw(raw, place)
    return place


def place_named(guard: Guard, query: dict[str, str], publication: Publication) -> int:
    """Where a message goes whose destination stands in the query."""
    address, topic = query.get("address"), query.get("topic")
    if (address is None) == (topic is None):
        raise Refusal("invalid_parameter", "a half message goes to an 'address' or a 'topic'", parameter="address")
    key = query["key"].encode() if "key" in query else publication.key
    if address is not None:
        if key is not None:
            raise Refusal("invalid_parameter", "a message has an 'address', or a 'topic' and a 'key'", parameter="key")
        return guard.place(address, publication.trace)
    return guard.place_key(topic or "", key, publication.trace)


def group_name(given: object) -> str:
    """The name of a group whose members are asked. Refuses `invalid_group`."""
    if not isinstance(given, str) or not given:
        raise Refusal("invalid_group", "a transaction has a 'group', whose members are asked what became of it")
    check_name(given, "group")
    return given


def half_of_body(door: Door, call: Call, place: int, publication: Publication, value: bytes | None) -> HalfMessage:
    """The half message whose value is the body."""
    when = publication.when
    if when is not NOW:
        first_due(when, door.services.now_ms(), door.services.wall_ms())
    headers = call.head.encoded_headers(publication)
    message = (place, value, headers, DOOR | publication.attributes, publication.timestamp_ms)
    return half_of(door, message, when)


def half_of(door: Door, message: Message, when: When) -> HalfMessage:
    """A delay counts from the commit; that of a repetition from now."""
    if when.delay_ms and not when.repeat:
        return HalfMessage(message, None, when.delay_ms)
    if when.delay_ms:
        when = When(door.services.wall_ms() + when.delay_ms, when.repeat)
    return HalfMessage(message, None if when is NOW else when)


class Holding:
    """Half messages of one request, and what their sender is told once they are durable."""

    __slots__ = ("_checks", "_door", "_group", "_guard", "_halves", "_name", "_places", "_size_bytes")

    def __init__(self, door: Door, guard: Guard, group: str, halves: list[HalfMessage],
                 checks: CheckSettings | None = None, name: str | None = None) -> None:
        self._door = door
        self._guard = guard
        self._group = group
        self._halves = halves
        self._checks = checks
        self._name = name
        self._places = [guard.look(half.message[0]) for half in halves]
        self._size_bytes = sum([len(half.message[2]) + len(half.message[1] or b"") for half in halves])

    def begin(self, owner: Any, token: object) -> None:
        """Ask for a transaction of them; `owner` is answered. Raises OverQuota."""
        numbers = self._numbers()
        self._door.slow_down(self._guard, self._guard.transactions.begin(
            self._halves, self._group, self._checks, self._name, owner, token, self._size_bytes, refuses=True), numbers)

    def add(self, transaction_id: int, owner: Any, token: object) -> None:
        """Ask for them to be added to a transaction; `owner` is answered. Raises OverQuota."""
        numbers = self._numbers()
        self._door.slow_down(self._guard, self._guard.transactions.add(
            transaction_id, self._halves, owner, token, self._size_bytes, refuses=True), numbers)

    def _numbers(self) -> list[int]:
        """The numbers of the half messages' places. Raises OverQuota where a limit of them is overdrawn."""
        numbers = [half.message[0] for half in self._halves]
        self._door.require_quota(self._guard, numbers)
        return numbers

    def answer(self, stored: Stored) -> Response:
        """What a request is answered with by which a transaction has begun."""
        return json_answer(self.begun(stored), 201)

    def begun(self, stored: Stored) -> dict[str, Any]:
        """A transaction has begun with them."""
        return self.added(stored.positions[0][2], stored)

    def added(self, transaction_id: int, stored: Stored) -> dict[str, Any]:
        """The answer when these half messages are durable as part of this transaction."""
        messages: list[dict[str, Any]] = []
        for half, place, position in zip(self._halves, self._places, stored.positions, strict=True):
            messages.append(describe_place(place, position, half.message[4], 0))
        return {"id": str(transaction_id), "state": "open", "group": self._group, "messages": messages}


def decide_at_once(door: Door, call: Call, guard: Guard, decision: Decision) -> Reply[Response] | None:
    """Carry out the decision that a request without a body asks for: the answer, once it is durable. None: it has a
    body."""
    call.query()
    if not door.bodies.has_whole(call) or call.received_bytes or "content-encoding" in call.headers:
        return None
    deciding = HttpDeciding(door, guard, id_of(call), decision)
    return door.change(deciding.submit).finished_by(deciding.answer)


def id_of(call: Call) -> int:
    """The transaction that the path names. Raises UnknownTransaction."""
    text = call.captures[0]
    if text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS and int(text) < 1 << 64:
        return int(text)
    raise UnknownTransaction(f"there is no transaction {text[:32]!r}")


async def decide(door: Door, guard: Guard, transaction_id: int, decision: Decision, receipts: ReceiptsByGroup = (),
                 offsets: Offsets | None = None) -> dict[str, Any]:
    """Carry out a decision; what its maker is told. Raises what `GuardedTransactions.decide` refuses."""
    deciding = HttpDeciding(door, guard, transaction_id, decision, receipts, offsets)
    return deciding.finish(await door.stored(deciding.submit))


class HttpDeciding:
    """One decision. Where it is about somebody else's transaction the audit topic is told."""

    __slots__ = ("_decision", "_door", "_guard", "_id", "_offsets", "_others", "_receipts")

    def __init__(self, door: Door, guard: Guard, transaction_id: int, decision: Decision,
                 receipts: ReceiptsByGroup = (), offsets: Offsets | None = None) -> None:
        self._door = door
        self._guard = guard
        self._id = transaction_id
        self._decision = decision
        self._receipts = receipts
        self._offsets = offsets
        self._others: Guarded | None = None

    def submit(self, owner: Submitter, token: object) -> None:
        """Ask for it; `owner` is answered."""
        self._guard.transactions.decide(self._id, self._decision, owner, token, self._receipts, self._offsets,
                                        self._look)

    def answer(self, stored: Stored) -> Response:
        """What a request is answered with that asked for it."""
        return json_answer(self.finish(stored))

    def finish(self, stored: Stored) -> dict[str, Any]:
        """What whoever made the decision is told, once it is durable."""
        if self._others is not None:
            self._door.admission.audit(Author(self._guard.logged_in.name, NAME),
                                       f"transaction.{self._decision.value}",
                                       {"id": str(self._id), "group": self._others.group, "by": self._others.by})
        return describe_decided(self._id, self._decision, stored.append_ms)

    def _look(self, transaction: Guarded) -> None:
        if transaction.by != self._guard.logged_in.name and transaction.state is OPEN:
            self._others = transaction
