"""Transactions as the doors speak of them where JSON is what they speak: checks, decisions, what became of them. Pure.

A check has the transaction's first message with it:

    {"id": "281474976710657", "group": "shop", "attempt": 1, "max_attempts": 15, "age_ms": 6003, "messages": 1,
     "by": "ada", "message": {"address": "orders/17", "topic": "orders", "key": "17", "value": "...", ...}}

A decision is {"id": "281474976710657", "decision": "commit"} or "rollback"; "unknown" decides nothing.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import orjson

from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.errors import AlreadyDecided, InvalidCheckBack
from gatehouse.kernel.records.batch import public_headers
from gatehouse.transactions.coordinator import Check, CheckSettings, Decision
from gatehouse.transactions.settings import MAX_TIME_MS

NOT_YET: Final = frozenset(("id", "partition", "offset", "timestamp"))
"""What of a message a half message does not have."""

DECISIONS: Final[Mapping[object, Decision | None]] = {
    "commit": Decision.COMMIT, "rollback": Decision.ROLLBACK, "unknown": None}
MAX_DECISION_BYTES: Final = 1024
MAX_GIVEN: Final = 64                       # characters of an id that is none, repeated in a refusal
MAX_NAME_BYTES: Final = 255                 # as of an `Idempotency-Key`


class InvalidHalfName(ValueError):
    """What came names no half message."""

    code: ClassVar[str] = "invalid_half_name"


class InvalidDecision(ValueError):
    """What came is no decision. `given` is the id that it names, if it names one."""

    code: ClassVar[str] = "invalid_decision"
    given: str | None = None


def read_half_name(given: bytes | None) -> str:
    """The name that makes a half message repeatable. Raises InvalidHalfName."""
    try:
        if given is not None and 0 < len(given) <= MAX_NAME_BYTES and b"\0" not in given:
            return given.decode()
    except UnicodeDecodeError:
        pass                      # refused like one of the wrong size
    raise InvalidHalfName(f"a half message's name is UTF-8 text of 1 to {MAX_NAME_BYTES} bytes without NUL")


def read_check_settings(given: object, default: CheckSettings) -> CheckSettings:
    """When one transaction is asked about: {"after": seconds, "every": seconds, "times": number}, or that as JSON; what
    it leaves out is as configured. Raises InvalidCheckBack."""
    if isinstance(given, bytes):
        try:
            given = orjson.loads(given) if len(given) <= MAX_DECISION_BYTES else None
        except orjson.JSONDecodeError:
            given = None
    if not isinstance(given, dict) or given.keys() - {"after", "every", "times"}:
        raise InvalidCheckBack("'check' is an object with 'after' and 'every', in seconds, and 'times'")
    times = given.get("times", default.max_checks)
    if type(times) is not int:
        raise InvalidCheckBack("'times' is a whole number")
    return CheckSettings(_read_ms(given, "after", default.first_ms), _read_ms(given, "every", default.every_ms), times)


def _read_ms(given: Mapping[str, Any], name: str, default_ms: int) -> int:
    seconds = given.get(name, default_ms / 1000)
    if type(seconds) not in (int, float) or not 0 < seconds * 1000 <= MAX_TIME_MS:
        raise InvalidCheckBack(f"{name!r} is a number of seconds from 0.001 to {MAX_TIME_MS // 1000}")
    return max(1, int(round(seconds * 1000)))


def describe_check(check: Check, door_names: Mapping[int, str]) -> dict[str, Any]:
    """The question what became of a transaction."""
    headers = public_headers(check.headers)
    number = door_of(check.attributes)
    record = (-1, 0, check.key, check.value, headers, check.attributes, check.id)
    message = record_to_json(record, check.topic, 0, check.address, door_names.get(number, str(number)))
    return {"id": str(check.id), "group": check.group, "attempt": check.attempt, "max_attempts": check.max_checks,
            "age_ms": check.age_ms, "messages": check.messages, "by": check.by,
            "message": {name: value for name, value in message.items() if name not in NOT_YET}}


def describe_decided(transaction_id: int, decision: Decision, decided_ms: int) -> dict[str, Any]:
    """What came of a decision."""
    state = "committed" if decision is Decision.COMMIT else "rolled_back"
    return {"id": str(transaction_id), "state": state, "decided": decided_ms}


def describe_refused(transaction_id: int | str | None, error: Exception) -> dict[str, Any]:
    """Why nothing came of one; None where it names no transaction."""
    document: dict[str, Any] = {"id": None if transaction_id is None else str(transaction_id),
                                "code": getattr(error, "code", "internal_error"), "detail": str(error)}
    if isinstance(error, AlreadyDecided):
        document |= {"state": error.state, "decided": error.when_ms}
    return document


def read_decision(payload: bytes | None) -> tuple[int, Decision | None]:
    """(id, decision) of a JSON document; None: it is not known yet. Raises InvalidDecision."""
    try:
        document = orjson.loads(payload or b"") if len(payload or b"") <= MAX_DECISION_BYTES else None
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise InvalidDecision('a decision is {"id": "...", "decision": "commit" or "rollback"}')
    given = document.get("id")
    try:
        return read_id(given), read_verdict(document.get("decision"))
    except InvalidDecision as error:
        error.given = str(given)[:MAX_GIVEN] if type(given) in (str, int) else None
        raise


def read_verdict(given: object) -> Decision | None:
    """`commit`, `rollback` or `unknown`. Raises InvalidDecision."""
    if not isinstance(given, str) or given not in DECISIONS:
        raise InvalidDecision("a decision is 'commit', 'rollback' or 'unknown'")
    return DECISIONS[given]


def read_id(given: object) -> int:
    """A transaction's id, as text or as a number. Raises InvalidDecision."""
    text = str(given) if type(given) is int else given
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >> 64:
        raise InvalidDecision("a transaction's id is a number of 64 bits")
    return int(text)
