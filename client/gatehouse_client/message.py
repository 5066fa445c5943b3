"""Messages as they are sent and as they come back: JSON of the HTTP door on one side, dataclasses on the other. Pure.

Times are milliseconds since 1970. Bytes that are no UTF-8 travel as base64; here they are bytes again.
"""
from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import orjson

Value = bytes | str | None
Headers = Iterable[tuple[str, Value]]


class Properties(TypedDict, total=False):
    """What can be said of a message beside its place and value. The hub knows what each means (docs/client.md)."""

    content_type: str
    content_encoding: str
    correlation_id: str
    reply_to: str
    message_id: str
    """An identifier of the sender's own."""
    priority: int
    timestamp: int
    expires_in: float
    """Seconds; the client makes `expires_at` of it, so that a repeated request says the same."""
    expires_at: int
    delay: float
    """Seconds; becomes `deliver_at`."""
    deliver_at: int
    repeat: str
    retain: bool
    traceparent: str


_RELATIVE: Final = {"expires_in": "expires_at", "delay": "deliver_at"}
_PLACE: Final = frozenset(("id", "topic", "partition", "offset", "key", "key_base64", "value", "value_base64",
                           "headers",
                           "address", "timestamp", "door", "receipt_handle", "attempt"))


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a published message is. `id` and `offset` are None while they are not known: accepted only, or delayed."""

    id: str | None
    topic: str
    partition: int
    offset: int | None
    address: str
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the hub gives it."""

    id: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    address: str
    timestamp: int
    door: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Every other field that is set: `content_type`, `correlation_id`, `expires_at`, ... (see `Properties`)."""
    receipt_handle: str = ""
    """The receipt handle of a leased message, by which it is acknowledged."""
    attempt: int = 0
    """The number of this delivery of a leased message, from 1."""

    @property
    def text(self) -> str:
        """The value as UTF-8 text, empty where there is none. Raises UnicodeDecodeError."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """The value read as JSON. Raises ValueError."""
        return orjson.loads(self.value or b"")

    def header(self, name: str) -> bytes | None:
        """The first header of this name, or None."""
        return next((value for header_name, value in self.headers if header_name == name), None)


def encode(value: Value, *, address: str | None = None, topic: str | None = None, key: Value = None,
           headers: Headers = (), properties: Properties | None = None, now_ms: int = 0, half: bool = False) -> bytes:
    """One message as JSON; the delay of a `half` one is counted by the hub, from its commit.

    Raises TypeError for what cannot be in one, ValueError where its place is not clear.
    """
    if (address is None) == (topic is None):
        raise ValueError("a message goes to an address, or to a topic (with a key)")
    if address is not None and key is not None:
        raise ValueError("an address says the key; give a topic and a key instead")
    message: dict[str, Any] = {"topic": topic} if address is None else {"address": address}
    if key is not None:
        _put(message, "key", key)
    _put(message, "value", value)
    pairs = [[name, _header_value(header)] for name, header in headers]
    if pairs:
        message["headers"] = pairs
    for name, said in (properties or {}).items():
        if said is None:
            continue
        if name in _RELATIVE and not (half and name == "delay"):
            # decision 78
            message[_RELATIVE[name]] = now_ms + round(float(said) * 1000)    # type: ignore[arg-type]
        else:
            message[name] = said
    return orjson.dumps(message)


def decode_half(document: Mapping[str, Any]) -> tuple[
        bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], dict[str, Any]]:
    """Key, value, headers and properties: what a message has before it has a place."""
    headers = tuple((str(name), _header_bytes(value)) for name, value in document.get("headers", ()))
    properties = {name.removesuffix("_base64"): b64decode(value) if name.endswith("_base64") else value
                  for name, value in document.items() if name not in _PLACE}
    return _take(document, "key"), _take(document, "value"), headers, properties


def decode(document: Mapping[str, Any]) -> Message:
    """A message of the hub's JSON."""
    key, value, headers, properties = decode_half(document)
    return Message(document["id"], document["topic"], document["partition"], document["offset"], key, value, headers,
                   document["address"], document["timestamp"], document["door"], properties,
                   document.get("receipt_handle", ""), document.get("attempt", 0))


def decode_stored(document: Mapping[str, Any]) -> Stored:
    """Where a message went, from the hub's answer."""
    return Stored(document.get("id"), document["topic"], document["partition"], document.get("offset"),
                  document["address"], document.get("timestamp"))


def _put(message: dict[str, Any], name: str, value: Value) -> None:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            message[name + "_base64"] = b64encode(value).decode()    # type: ignore[arg-type]
            return
    elif value is not None and not isinstance(value, str):
        raise TypeError(f"a {name} is bytes, text or None, not {type(value).__name__}")
    message[name] = value


def _take(document: Mapping[str, Any], name: str) -> bytes | None:
    value = document.get(name)
    if value is not None:
        return str(value).encode()
    encoded = document.get(name + "_base64")
    return None if encoded is None else b64decode(encoded)


def _header_value(value: Value) -> Any:
    box: dict[str, Any] = {}
    _put(box, "header", value)
    return {"base64": box["header_base64"]} if "header_base64" in box else box["header"]


def _header_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()
