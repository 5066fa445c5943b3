"""Transactions as HTTP says them: what a request asks for, and transactions and checks as JSON. Pure.

A transaction, here one that was committed by its sender after one check that nobody answered:

    {"id": "281474976710657", "state": "committed", "group": "shop", "by": "ada", "address": "orders/17",
     "messages": 1, "begun": 1700000000000, "check": {"after": 6.0, "every": 30.0, "times": 15},
     "checks": [{"at": 1700000006000, "to": ""}], "next": null, "decided": 1700000007000, "decided_by": "ada"}

`gateways.checks` says how a check looks in JSON.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gatehouse.gateways.checks import NOT_YET, read_check_settings
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
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import InvalidCheckBack
from gatehouse.transactions.coordinator import CheckSettings, State, Transaction
from gatehouse.transactions.settings import MAX_CHECKS, MAX_TIME_MS

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
