"""`Selector`: which messages a consumer wants; and the forms in which one is written.

    tags:a || b              the header `tags` is one of these; `tags:*` is any message
    headers:unit=C, site=x   every one of these headers has exactly this value
    address:plant/+/temp     the address matches this filter of addresses
    plant/+/temp             the same, where no condition could be meant: no blank, quote, bracket, = < or >, but
                             a `/`, or `+` or `#` alone
    unit = 'C' AND temp > 20 a condition in SQL-92's words

A name without quotes is a header's, but for the parts that every message has: `key`, `address`, `topic`, `timestamp`
(milliseconds since 1970), `value` (its bytes), and `value.temp`, `value.rooms.0.name`: what a value that is JSON holds
there. In double quotes it is always a header's. Of several headers of one name the first counts.

What stands at a place in a value that is JSON is as the bytes that a header with the same content would have:

    {"temp": 21.5, "rooms": [{"name": "hall"}], "on": true}

    temp             21.5
    rooms.0.name     hall
    on               true
    rooms            the list, as JSON

What is not there, null, or looked for in a value that is no JSON, is None.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gatehouse.kernel.addresses.filters import matches as filter_matches
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.errors import InvalidFilter, InvalidSelector
from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.batch import named_headers
from gatehouse.kernel.selectors.conditions import Condition, Slots, compile_condition
from gatehouse.kernel.selectors.parser import MAX_TERMS, Source, parse_condition
from gatehouse.kernel.selectors.tokens import check_text

PARTS: Final = ("key", "address", "topic", "timestamp", "value")
"""What every message has, and what a name without quotes may mean beside a header."""

VALUE_PREFIX: Final = "value."
"""Begins the names of what stands in a value that is JSON."""

MAX_JSON_BYTES: Final = 65_536
"""Larger values are not looked into: half a millisecond each. What is named in them is NULL."""

TAGS: Final = b"tags"
"""The header that holds a message's tag."""

ANY_TAG: Final = "*"

_ADDRESS: Final = re.compile(r"""(?=[^/]*+/|[+#]\Z)[^\s'"()=<>]*+""")


class Selector:
    """One parsed selector: immutable, so it may be shared by consumers and threads."""

    __slots__ = ("text", "tags", "names", "_headers", "_parts", "_paths", "_size", "_test")

    def __init__(self, text: str, sources: list[Source], test: Condition, names: Mapping[str, str],
                 tags: frozenset[bytes] | None = None) -> None:
        self.text = text
        self.tags = tags
        """The tags, where they are all that it asks for: many such selectors can stand in one dictionary."""
        self.names = [name for name, _ in sources]
        """The names of its slots, as they are written in the text."""
        self._size = len(sources)
        self._test = test
        self._paths: list[tuple[int, list[str]]] = []
        self._headers: dict[bytes, list[int]] = {}
        self._parts: list[tuple[int, int]] = []
        for slot, (name, quoted) in enumerate(sources):
            if not quoted and name in PARTS:
                self._parts.append((slot, PARTS.index(name)))
            elif not quoted and name.startswith(VALUE_PREFIX):
                self._paths.append((slot, name.removeprefix(VALUE_PREFIX).split(".")))
            else:
                header = name if quoted else names.get(name, name)
                self._headers.setdefault(header.encode(), []).append(slot)

    @property
    def reads_address(self) -> bool:
        """Whether `matches` needs the address, which is not free to make."""
        return any(PARTS[part] == "address" for _, part in self._parts)

    def matches(self, headers: Headers, key: bytes | None = None, address: str = "", topic: str = "",
                timestamp_ms: int = 0, value: bytes | None = None) -> bool:
        """Whether a message with these headers and parts is wanted: unknown is not."""
        return self.wants(self.slots_of(headers, key, address, topic, timestamp_ms, value))

    def wants(self, slots: Slots) -> bool:
        """Whether the selector wants a message of which `slots_of` has found these."""
        return self._test(slots) is True

    def slots_of(self, headers: Headers, key: bytes | None = None, address: str = "", topic: str = "",
                 timestamp_ms: int = 0, value: bytes | None = None) -> Slots:
        """What a message has of the names; None where it is missing or null."""
        slots: Slots = [None] * self._size
        wanted = self._headers
        if wanted:
            for name, header in reversed(headers):        # so that the first of a name is the last to be put in
                header_slots = wanted.get(name)
                if header_slots is not None:
                    for slot in header_slots:
                        slots[slot] = header
        if self._parts:
            parts = (key, address, topic, timestamp_ms, value)
            for slot, part in self._parts:
                slots[slot] = _part(parts[part])
        if self._paths and value is not None and len(value) <= MAX_JSON_BYTES:
            document = read_json(value)
            for slot, path in self._paths:
                slots[slot] = found_in(document, path)
        return slots

    def matches_encoded(self, headers: bytes, key: bytes | None = None, address: str = "", topic: str = "",
                        timestamp_ms: int = 0, value: bytes | None = None) -> bool:
        """Whether it wants a message whose headers stand as at the end of a record; only those that are named are
        decoded.

        Raises CorruptBatch where a length lies.
        """
        decoded_headers = named_headers(headers, self._headers) if self._headers else ()
        return self.matches(decoded_headers, key, address, topic, timestamp_ms, value)


def _part(value: bytes | str | int | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else b"%d" % value


def parse_selector(text: str, names: Mapping[str, str] | None = None) -> Selector:
    """The selector in a text, in any of its forms. Raises InvalidSelector.

    `names` are other names of headers, for names without quotes: {"content_type": "content-type"}.
    """
    form, colon, rest = text.partition(":")
    if colon and form in _FORMS:
        return _FORMS[form](rest, text)
    if _ADDRESS.fullmatch(text):
        return parse_address(text)
    node, sources = parse_condition(text)
    return Selector(text, sources, compile_condition(node), names or {})


def parse_tags(expression: str, text: str | None = None) -> Selector:
    """`a || b`, or `*` for any message. Raises InvalidSelector. `text` is the whole that it is the end of."""
    text = expression if text is None else text
    check_text(text)
    at = len(text) - len(expression)
    tags: set[bytes] = set()
    if expression.strip() == ANY_TAG:
        return Selector(text, [], lambda slots: True, {})
    for number, part in enumerate(expression.split("||")):
        tag = part.strip()
        if not tag or "|" in tag or number >= MAX_TERMS:
            raise InvalidSelector(at, f"a tag, as in a || b, and of those at most {MAX_TERMS}", repr(tag))
        tags.add(tag.encode())
        at += len(part) + len("||")
    return Selector(text, [(TAGS.decode(), True)], lambda slots: slots[0] in tags, {}, frozenset(tags))


def parse_headers(expression: str, text: str | None = None) -> Selector:
    """`name=value, name=value`: all of these, exactly. Raises InvalidSelector."""
    text = expression if text is None else text
    check_text(text)
    at = len(text) - len(expression)
    sources: list[Source] = []
    values: Slots = []
    for part in expression.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or len(values) >= MAX_TERMS:
            raise InvalidSelector(at, f"name=value, and of those at most {MAX_TERMS}", repr(part.strip()))
        if (name, True) in sources:
            raise InvalidSelector(at, "each header once", repr(name))
        sources.append((name, True))
        values.append(value.encode())
        at += len(part) + len(",")
    return Selector(text, sources, lambda slots: slots == values, {})


def parse_address(expression: str, text: str | None = None) -> Selector:
    """A filter of addresses. Raises InvalidSelector."""
    text = expression if text is None else text
    check_text(text)
    try:
        levels = parse_filter(expression)
    except InvalidFilter as error:
        raise InvalidSelector(len(text) - len(expression), f"a filter of addresses: {error}") from None

    def test(slots: Slots) -> bool:
        return filter_matches(levels, tuple((slots[0] or b"").decode().split("/")))
    return Selector(text, [("address", False)], test, {})


_FORMS: Final = {"tags": parse_tags, "headers": parse_headers, "address": parse_address}


MAX_INDEX_DIGITS: Final = 5              # of a place in a list: no value that is looked into has more


def read_json(value: bytes) -> Any:
    """The document; None where it is none."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def found_in(document: Any, path: list[str]) -> bytes | None:
    """What stands at the end of the path: names of members, and places in lists, from 0."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit() and len(step) <= MAX_INDEX_DIGITS:
            at = int(step)
            document = document[at] if at < len(document) else None
        else:
            return None
    return _written(document)


def _written(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(orjson.dumps(value))
    except TypeError:                    # nested deeper than it writes
        return None
