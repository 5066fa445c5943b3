"""What a client's frame says: a JSON object with a `type`, and an `id` of the client's own that the answer repeats.

Refused with a problem document, as a request would be; the connection stays. Pure.
"""
from __future__ import annotations

from typing import Any, Final

import orjson

from gatehouse.gateways.http.problems import Refusal

MAX_ID_CHARS: Final = 128
MAX_NAME_CHARS: Final = 128
MAX_CREDIT: Final = 1_000_000
"""Messages that a client can let the hub send ahead."""

FIELDS: Final[dict[str, frozenset[str]]] = {
    "publish": frozenset(("messages", "idempotency_key")),
    "subscribe": frozenset(("subscription", "topic", "filter", "selector", "from", "cursor", "credit", "values")),
    "credit": frozenset(("subscription", "credit")),
    "unsubscribe": frozenset(("subscription",)),
    "pop": frozenset(("group", "topic", "queue", "max", "invisible", "wait", "values")),
    "ack": frozenset(("group", "queue", "receipt_handles")),
    "extend": frozenset(("group", "queue", "receipt_handles", "invisible")),
    "release": frozenset(("group", "queue", "receipt_handles", "delay", "dead_letter")),
    "hold": frozenset(("group", "messages", "check", "idempotency_key")),
    "decide": frozenset(("transaction", "decision")),
    "checks": frozenset(("group", "credit")),
    "unlisten": frozenset(("group",)),
    "ping": frozenset(),
}
"""What each type of frame holds beside `type` and `id`."""

Frame = dict[str, Any]


def read_frame(data: bytes) -> Frame:
    """The object in a frame. Refuses `invalid_frame` where it is none. Raises UnicodeDecodeError where it is not UTF-8.
    """
    try:
        frame = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        data.decode()
        raise Refusal("invalid_frame", f"the frame is no JSON: {error}") from None
    if not isinstance(frame, dict):
        raise Refusal("invalid_frame", "a frame is a JSON object")
    return frame


def id_of(frame: Frame) -> str | int | None:
    """The client's number or text for its frame. Refuses what is neither."""
    frame_id = frame.get("id")
    if frame_id is None or type(frame_id) is int or isinstance(frame_id, str) and len(frame_id) <= MAX_ID_CHARS:
        return frame_id
    raise Refusal("invalid_frame", f"'id' is a whole number, or a text of up to {MAX_ID_CHARS} characters")


def check_fields(frame: Frame) -> str:
    """The frame's type. Refuses one that is unknown, and fields that it does not have."""
    kind = frame.get("type")
    fields = FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise Refusal("invalid_frame", f"'type' is one of: {', '.join(FIELDS)}")
    for name in frame:
        if name not in fields and name not in ("type", "id"):
            names = ", ".join(sorted(fields)) or "none"
            raise Refusal("invalid_frame", f"a {kind} has no {name[:64]!r}; it has: {names}")
    return str(kind)


def text_in(frame: Frame, name: str, max_chars: int = 8192) -> str:
    """A text of the frame, "" where it is not given. Refuses anything else."""
    text = frame.get(name)
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > max_chars:
        raise Refusal("invalid_frame", f"{name!r} is a text of up to {max_chars} characters")
    return text


def name_in(frame: Frame, name: str) -> str:
    """A text that must be there."""
    text = text_in(frame, name, MAX_NAME_CHARS)
    if not text:
        raise Refusal("invalid_frame", f"{name!r} is needed")
    return text


def credit_in(frame: Frame, default: int | None = None) -> int:
    """How many messages more may be sent. Refuses what is no such number."""
    credit = frame.get("credit", default)
    if type(credit) is not int or not 0 <= credit <= MAX_CREDIT:
        raise Refusal("invalid_frame", f"'credit' is a whole number from 0 to {MAX_CREDIT}")
    return int(credit)


def query_of(frame: Frame, *names: str) -> dict[str, str]:
    """Numbers and texts of the frame as a query's parameters say them, so that both are read by the same rules."""
    query = {}
    for name in names:
        value = frame.get(name)
        if type(value) in (int, float):
            query[name] = f"{value:.9f}".rstrip("0").rstrip(".") if type(value) is float else str(value)
        elif isinstance(value, str) and len(value) <= 1024:
            query[name] = value
        elif value is not None:
            raise Refusal("invalid_frame", f"{name!r} is a number or a text")
    return query
