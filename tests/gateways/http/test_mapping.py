"""Every cell of the property table, in and out, and every refusal."""
from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from gatehouse.gateways.http.column import HTTP, show_user_header
from gatehouse.gateways.http.mapping import (
    DELIVER_AT,
    Publication,
    add_of_all,
    preferred_wait_s,
    prefers_async,
    read_headers,
    read_idempotency_key,
    read_message,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import record_to_json
from gatehouse.gateways.properties.envelope import FIELDS, Kind, Where
from gatehouse.kernel.message import RETAIN, TRANSIENT, Headers
from gatehouse.kernel.records.batch import SENT_HEADERS

NOW_MS = 1_700_000_000_000
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def headers_of(*pairs: tuple[bytes, bytes]) -> Publication:
    return read_headers(pairs, NOW_MS)


def shown(headers: Headers, value: bytes | None = b"v", key: bytes | None = b"k",
          attributes: int = 2) -> dict[str, Any]:
    return record_to_json((7, NOW_MS, key, value, headers, attributes, 1 << 60), "plant", 3, "plant/k", "http")


@pytest.mark.parametrize(("name", "value", "header", "field", "out"), [
    (b"X-Message-Id", b"m-1", b"id", "message_id", "m-1"),
    (b"Content-Type", b"text/plain; x=y", b"content-type", "content_type", "text/plain; x=y"),
    (b"Content-Encoding", b"gzip", b"content-encoding", "content_encoding", "gzip"),
    (b"X-Correlation-Id", b"c-1", b"correlation-id", "correlation_id", "c-1"),
    (b"X-Reply-To", "antwort/grün".encode(), b"reply-to", "reply_to", "antwort/grün"),
    (b"X-Priority", b"7", b"priority", "priority", 7),
    (b"X-Expires-At", b"1700000000000", b"expires-at", "expires_at", 1_700_000_000_000),
    (b"traceparent", TRACE, b"traceparent", "traceparent", TRACE.decode()),
])
def test_a_property_goes_in_by_its_header_and_comes_out_by_its_field(
        name: bytes, value: bytes, header: bytes, field: str, out: object) -> None:
    publication = headers_of((name, value))
    assert publication.headers == [(header, value)]
    message = shown(tuple(publication.headers))
    assert message[field] == out
    assert message["headers"] == []
    assert read_message({"value": "v", field: out}, NOW_MS).headers == [(header, value)]


def test_every_request_header_of_the_table_is_understood() -> None:
    """What the table says of HTTP."""
    for field in FIELDS:
        for cell in HTTP.cells.get(field.name, ()):
            if cell.where is not Where.HEADER:
                continue
            value = {Kind.PRIORITY: b"1", Kind.TIME: b"5", Kind.TRACEPARENT: TRACE, Kind.FLAG: b"true"}.get(
                field.kind, b"a; charset=utf-8")
            if field.name == "utf8":
                value = b"a; charset=utf-8"
            publication = headers_of((cell.name.encode(), value))
            if field.name == DELIVER_AT:
                assert publication.later and publication.headers == [], "carried out, not handed on"
                continue
            assert field.name.encode() in dict(publication.headers) or publication.key or publication.timestamp_ms \
                or publication.attributes == RETAIN


def test_the_charset_is_a_property() -> None:
    publication = headers_of((b"Content-Type", b'text/plain; charset="UTF-8"'))
    assert publication.headers == [(b"content-type", b'text/plain; charset="UTF-8"'), (b"utf8", b"true")]
    assert shown(tuple(publication.headers))["utf8"] is True
    assert headers_of((b"Content-Type", b"text/plain; charset=latin-1")).headers[1:] == []
    assert read_message({"utf8": True}, NOW_MS).headers == [(b"utf8", b"true")]


def test_a_correlation_id_may_be_bytes() -> None:
    publication = headers_of((b"X-Correlation-Id", b"\xff"))
    assert shown(tuple(publication.headers))["correlation_id_base64"] == "/w=="
    assert read_message({"correlation_id_base64": "/w=="}, NOW_MS).headers == [(b"correlation-id", b"\xff")]


def test_expiry_key_timestamp_and_preferences() -> None:
    publication = headers_of((b"X-Expires-In", b"1.5"), (b"X-Message-Key", b"\xff"), (b"Prefer", b"wait=5"),
                             (b"X-Timestamp", b"2023-11-14T22:13:20Z"), (b"Prefer", b"respond-async; x=1"),
                             (b"Idempotency-Key", b'"abc"'))
    assert publication.headers == [(b"expires-at", b"1700000001500")]
    assert publication.key == b"\xff"
    assert publication.timestamp_ms == NOW_MS
    assert publication.respond_async
    assert publication.idempotency_key == "abc"
    assert shown(tuple(publication.headers))["expires_at"] == 1_700_000_001_500


def test_user_headers_keep_order_bytes_and_duplicates() -> None:
    publication = headers_of((b"X-Header-Unit", b"C"), (b"Host", b"h"), (b"x-header-b", b"\xff"),
                             (b"X-Header-UNIT", b""))
    assert publication.headers == [(b"unit", b"C"), (b"b", b"\xff"), (b"unit", b"")]
    assert shown(tuple(publication.headers))["headers"] == [["unit", "C"], ["b", {"base64": "/w=="}], ["unit", ""]]


@pytest.mark.parametrize(("pairs", "code"), [
    ([(b"X-Priority", b"256")], "invalid_header"), ([(b"X-Priority", b"high")], "invalid_header"),
    ([(b"X-Timestamp", b"yesterday")], "invalid_header"), ([(b"X-Expires-In", b"-1")], "invalid_header"),
    ([(b"X-Reply-To", b"\xff")], "invalid_header"), ([(b"X-Header-", b"v")], "invalid_header"),
    ([(b"Idempotency-Key", b"")], "invalid_header"), ([(b"Idempotency-Key", b"k" * 256)], "invalid_header"),
    ([(b"X-Reply-To", b"a"), (b"x-reply-to", b"b")], "invalid_header"),
    ([(b"X-Retain", b"maybe")], "invalid_header"),
    ([(b"X-Header-Dead-Letter", b"[]")], "invalid_header"),
    ([(b"X-Header-Deliver-At", b"5")], "invalid_header"), ([(b"X-Header-Retain", b"1")], "invalid_header"),
])
def test_header_refusals(pairs: list[tuple[bytes, bytes]], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_headers(pairs, NOW_MS)
    assert refused.value.code == code


def test_a_broken_traceparent_is_left_out() -> None:
    """W3C Trace Context, 4.3: a traceparent that cannot be parsed starts a new trace."""
    assert headers_of((b"traceparent", b"garbage")).headers == []
    assert headers_of((b"traceparent", b"\xff")).headers == []
    assert read_message({"traceparent": "garbage"}, NOW_MS).headers == []


def test_the_state_of_a_trace_goes_with_its_context() -> None:
    """W3C Trace Context, 3.3: several headers are one list, and what cannot be read says nothing."""
    context, state = (b"traceparent", TRACE), (b"tracestate", b"a=1,b=2")
    assert headers_of((b"tracestate", b"a=1"), context, (b"TraceState", b"b=2")).headers == [context, state]
    assert show_user_header("tracestate", b"a=1,b=2") == ("tracestate", "a=1,b=2")
    for said in ([state], [(b"traceparent", b"garbage"), state], [context, context, state]):
        assert headers_of(*said).headers == []
    assert headers_of(context, (b"tracestate", b"a=" + b"x" * 511)).headers == [context]
    assert headers_of(context, (b"tracestate", b"a=\xff")).headers == [context]


def test_the_state_of_a_request_is_not_that_of_a_message_with_a_context_of_its_own() -> None:
    of_request = [(b"traceparent", TRACE), (b"tracestate", b"a=1"), (b"content-type", b"application/json")]
    bare: list[tuple[bytes, bytes | None]] = [(b"unit", b"C")]
    add_of_all(bare, of_request)
    assert bare == [(b"unit", b"C"), (b"traceparent", TRACE), (b"tracestate", b"a=1")]
    own: list[tuple[bytes, bytes | None]] = [(b"traceparent", TRACE.replace(b"1", b"2"))]
    add_of_all(own, of_request)
    assert [name for name, _ in own] == [b"traceparent"]


def test_preferences() -> None:
    assert prefers_async(b"respond-async")
    assert prefers_async(b"wait=10, Respond-Async")
    said = (b"respond-async, wait=10", b'wait="3"; a=b', b"wait=-1", b"wait=x", b"await=3", b"WAIT = 0")
    assert [preferred_wait_s(value) for value in said] == [10, 3, None, None, None, 0]
    assert not prefers_async(b"respond-asynchronously")
    assert read_idempotency_key(b'"') == '"'


def test_a_json_message() -> None:
    publication = read_message({
        "key": "line1", "value": "21.5", "headers": [["Unit", "C"], ["raw", {"base64": "/w=="}], ["none", None]],
        "timestamp": "2023-11-14T22:13:20Z", "priority": 0, "expires_at": 5, "message_id": "m",
        "traceparent": None}, NOW_MS)
    assert (publication.key, publication.value, publication.timestamp_ms) == (b"line1", b"21.5", NOW_MS)
    assert publication.headers == [(b"priority", b"0"), (b"expires-at", b"5"), (b"id", b"m"),
                                   (b"Unit", b"C"), (b"raw", b"\xff"), (b"none", None)]
    assert read_message({}, NOW_MS).value is None
    assert read_message({"value_base64": "AP8="}, NOW_MS).value == b"\0\xff"
    assert read_message({"expires_in": 2}, NOW_MS).headers == [(b"expires-at", b"1700000002000")]


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """JSON Schema, 6.1.1."""
    publication = read_message({"timestamp": 46430.0, "deliver_at": NOW_MS + 5000.0, "priority": 7.0}, NOW_MS)
    assert (publication.timestamp_ms, publication.due_ms) == (46430, NOW_MS + 5000)
    assert (b"priority", b"7") in publication.headers


@pytest.mark.parametrize(("item", "code"), [
    ("text", "invalid_body"), ([], "invalid_body"), ({"vlaue": "x"}, "invalid_body"),
    ({"value": {"a": 1}, "value_base64": "AA=="}, "invalid_body"),
    ({"value": "a", "value_base64": "AA=="}, "invalid_body"),
    ({"value_base64": "AA"}, "invalid_body"), ({"value_base64": 1}, "invalid_body"), ({"key": 1}, "invalid_body"),
    ({"headers": {"a": "b"}}, "invalid_body"), ({"headers": [["a"]]}, "invalid_body"),
    ({"headers": [["a", "b"]] * (SENT_HEADERS + 1)}, "invalid_body"),
    ({"headers": [[1, "b"]]}, "invalid_body"), ({"headers": [["a", 1]]}, "invalid_body"),
    ({"headers": [["a", {"base64": "x", "y": 1}]]}, "invalid_body"), ({"headers": [["", "b"]]}, "invalid_header"),
    ({"timestamp": "x"}, "invalid_body"), ({"timestamp": True}, "invalid_body"), ({"timestamp": -1}, "invalid_body"),
    ({"priority": True}, "invalid_body"), ({"priority": "1"}, "invalid_body"), ({"message_id": 7}, "invalid_body"),
    ({"expires_in": -1}, "invalid_body"), ({"expires_in": 1, "expires_at": 1}, "invalid_body"),
    ({"utf8": "true"}, "invalid_body"), ({"traceparent": 5}, "invalid_body"),
    ({"correlation_id": "a", "correlation_id_base64": "AA=="}, "invalid_body"), ({"delay": -1}, "invalid_body"),
    ({"delay": True}, "invalid_body"), ({"delay": "5"}, "invalid_body"), ({"deliver_at": "soon"}, "invalid_body"),
    ({"deliver_at": 5, "delay": 5}, "invalid_body"), ({"repeat": ""}, "invalid_body"), ({"repeat": 5}, "invalid_body"),
    ({"retain": 1}, "invalid_body"), ({"headers": [["retain", "1"]]}, "invalid_header"),
    ({"headers": [["dead-letter", "[]"]]}, "invalid_header"),
    ({"specversion": "1.0"}, "invalid_body"), ({"headers": [["deliver-at", "5"]]}, "invalid_header"),
])
def test_json_refusals(item: object, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_message(item, NOW_MS)
    assert refused.value.code == code


@pytest.mark.parametrize(("header", "item", "due_ms", "delay_ms"), [
    ((b"X-Delay", b"2.5"), {"delay": 2.5}, 0, 2_500),
    ((b"x-deliver-at", b"1700000009000"), {"deliver_at": 1_700_000_009_000}, 1_700_000_009_000, 0),
    ((b"X-Deliver-At", b"2023-11-14T22:13:21Z"), {"deliver_at": "2023-11-14T22:13:21Z"}, 1_700_000_001_000, 0),
])
def test_a_delay_is_carried_out_and_no_property_of_the_message(header: tuple[bytes, bytes], item: dict[str, Any],
                                                              due_ms: int, delay_ms: int) -> None:
    for publication in (headers_of(header), read_message(item, NOW_MS)):
        assert (publication.due_ms, publication.delay_ms) == (due_ms, delay_ms)
        assert publication.later and publication.headers == []


def test_a_repetition_is_text_that_the_kernel_reads() -> None:
    for publication in (headers_of((b"X-Repeat", b" every 10s ")), read_message({"repeat": " every 10s "}, NOW_MS)):
        assert (publication.repeat, publication.due_ms, publication.later) == ("every 10s", 0, True)
    assert not headers_of((b"X-Priority", b"1")).later


@pytest.mark.parametrize("pairs", [
    [(b"X-Delay", b"soon")], [(b"X-Delay", b"-1")], [(b"X-Deliver-At", b"tomorrow")], [(b"X-Repeat", b" ")],
    [(b"X-Repeat", b"\xff")], [(b"X-Delay", b"1"), (b"X-Deliver-At", b"5")], [(b"X-Delay", b"1"), (b"X-Delay", b"1")],
    [(b"X-Header-Deliver-At", b"5")],
])
def test_a_delay_that_is_none_is_refused(pairs: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Refusal) as refused:
        headers_of(*pairs)
    assert refused.value.code == "invalid_header"


def test_bytes_that_are_no_text_go_out_as_base64() -> None:
    message = shown((), value=b"\xff\0", key=b"\xfe")
    assert message["value_base64"] == b64encode(b"\xff\0").decode()
    assert message["key_base64"] == b64encode(b"\xfe").decode()
    assert "value" not in message
    assert "key" not in message
    assert shown((), value=None, key=None)["value"] is None


def test_ids_are_text_and_offsets_numbers() -> None:
    message = shown(())
    assert (message["id"], message["offset"], message["partition"]) == (str(1 << 60), 7, 3)


def test_what_does_not_read_as_a_property_stays_a_header() -> None:
    headers = ((b"priority", b"high"), (b"id", b"\xff"), (b"content-type", b"a"), (b"content-type", b"b"),
               (b"reply-to", None))
    message = shown(headers)
    assert message["content_type"] == "a"
    assert message["headers"] == [["priority", "high"], ["id", {"base64": "/w=="}], ["content-type", "b"],
                                  ["reply-to", None]]


def test_an_address_header_shows_only_where_it_was_not_believed() -> None:
    assert shown(((b"address", b"plant/k"),))["headers"] == []
    assert shown(((b"address", b"elsewhere"),))["headers"] == [["address", "elsewhere"]]


def test_attributes() -> None:
    assert "transient" not in shown(())
    assert shown((), attributes=2 | TRANSIENT)["transient"] is True
    assert shown((), attributes=1 | RETAIN)["retain"] is True
