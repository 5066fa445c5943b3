"""The HTTP door's pure parts: what is encoded comes back, and garbage raises only the peer's error."""
from __future__ import annotations

from typing import Any

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from gatehouse.gateways.http.exchange import decode_levels, decode_query, split_target
from gatehouse.gateways.http.mapping import Publication, read_headers, read_message
from gatehouse.gateways.http.page import Cursor, decode_cursor, encode_cursor
from gatehouse.gateways.http.problems import PROBLEMS, Refusal
from gatehouse.gateways.http.routes import build_table
from gatehouse.gateways.http.routes.messages import address_of_path
from gatehouse.gateways.json_messages import record_to_json
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, unescape
from gatehouse.kernel.errors import InvalidAddress

U64 = st.integers(0, (1 << 64) - 1)
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                    max_leaves=8)
FIELDS = st.sampled_from(["key", "key_base64", "value", "value_base64", "headers", "timestamp", "priority", "utf8",
                          "message_id", "expires_in", "expires_at", "traceparent", "content_type", "other"])
NAMES = st.sampled_from([b"X-Priority", b"X-Timestamp", b"X-Expires-In", b"Idempotency-Key", b"Prefer", b"X-Header-a",
                         b"traceparent", b"Content-Type", b"X-Message-Key", b"Host"])


@given(st.binary(min_size=16, max_size=16), st.none() | st.integers(0, 1000), st.integers(0, 1000),
       st.dictionaries(st.integers(0, 1000), U64.map(lambda n: n >> 1), max_size=20))
def test_cursors_come_back(uuid: bytes, partition: int | None, turn: int, positions: dict[int, int]) -> None:
    cursor = Cursor(uuid, partition, turn, positions)
    assert decode_cursor(encode_cursor(cursor)) == cursor


@given(st.text() | st.text("ABCDabcd0123-_", max_size=80))
def test_no_text_but_a_cursor_is_one(text: str) -> None:
    try:
        cursor = decode_cursor(text)
    except ValueError:
        return
    assert encode_cursor(cursor) == text


@given(st.text("ab/%2Ff0+#\0é\udc80?&=") | st.text())
def test_targets_raise_only_refusals(text: str) -> None:
    path, query = split_target(text)
    build_table().find(path)
    for function in (decode_levels, address_of_path):
        try:
            function(path)
        except (Refusal, InvalidAddress) as refusal:
            assert refusal.code == "invalid_address"
    try:
        decode_query(query, frozenset("ab"))
    except Refusal as refusal:
        assert PROBLEMS[refusal.code].status == 400


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_an_address_keeps_its_levels(levels: list[str]) -> None:
    assume("/" not in levels[0])               # an address that was escaped whole, as it seems: refused
    raw = "/".join("".join(f"%{byte:02x}" for byte in level.encode()) for level in levels)
    address = address_of_path(raw)
    assert [unescape(level, LEVEL_ESCAPES) for level in address.split("/")] == levels


@given(st.lists(st.tuples(NAMES, st.binary(max_size=40) | st.sampled_from([b"5", b"respond-async"])), max_size=6))
def test_request_headers_raise_only_refusals(pairs: list[tuple[bytes, bytes]]) -> None:
    try:
        assert isinstance(read_headers(pairs, 1_700_000_000_000), Publication)
    except Refusal as refusal:
        assert refusal.code == "invalid_header"


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=4))
def test_json_messages_raise_only_refusals(item: Any) -> None:
    try:
        read_message(orjson.loads(orjson.dumps(item)), 1_700_000_000_000)
    except Refusal as refusal:
        assert refusal.code in ("invalid_body", "invalid_header")
    except orjson.JSONEncodeError:
        pass    # a lone surrogate, which no JSON body can hold


@given(st.none() | st.binary(), st.none() | st.binary(),
       st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode), st.none() | st.binary())))
def test_what_a_page_shows_can_be_published_again(key: bytes | None, value: bytes | None,
                                                  headers: list[tuple[bytes, bytes | None]]) -> None:
    shown = record_to_json((0, 5, key, value, tuple(headers), 2, 1), "t", 0, "t/k", "http")
    read = orjson.loads(orjson.dumps(shown))
    again = {name: read[name] for name in read
             if name not in ("id", "topic", "partition", "offset", "address", "door", "deliver_at", "retain")}
    try:
        publication = read_message(again, 0)
    except Refusal as refusal:
        assert refusal.code == "invalid_header" and {b"retain", b"dead-letter"} & {name for name, _ in headers}
        return
    assert (publication.key, publication.value) == (key, value)
    hidden = {b"deliver-at", b"address", b"traceparent"}
    assert sorted(map(repr, publication.headers)) == sorted(repr(pair) for pair in headers if pair[0] not in hidden)


@given(st.text("ab=&;1", max_size=40) | st.lists(st.sampled_from(["a", "b=", "=c", "d=e=f", "", "é=ü"]),
                                                 max_size=40).map("&".join))
def test_a_query_with_nothing_to_decode_is_read_as_any(raw: str) -> None:
    names = frozenset(["", "a", "b", "ab", "1", "d", "é", "a;", "b;"])

    def read(text: str) -> Any:
        try:
            return decode_query(text, names)
        except Refusal as refusal:
            return refusal.code

    assert read(raw) == read(raw.replace("a", "%61"))
