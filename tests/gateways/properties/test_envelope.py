"""The property table, cell by cell: where each door keeps each field, and that it comes back."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.properties.envelope import FIELD_BY_NAME, FIELDS, RECORD_FIELDS, USER_HEADERS, losses
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope, to_door
from tests.gateways.columns import COLUMNS

NOW = 1_700_000_000_000
LATER = b"1700000060000"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# (field, door) -> the stored value, then each place and value that readers at the door find.
CELLS: dict[tuple[str, str], tuple[bytes, dict[str, Any]]] = {
    ("id", "mqtt5"): (b"m1", {"header id": "m1"}),
    ("id", "amqp"): (b"m1", {"message_id": "m1"}),
    ("id", "kafka"): (b"m1", {"header id": b"m1"}),
    ("id", "http"): (b"m1", {"header X-Message-Id": "m1"}),
    ("key", "mqtt5"): (b"k", {"header key": "k"}),
    ("key", "amqp"): (b"\xff", {"header x-key": b"\xff"}),
    ("key", "kafka"): (b"\xff", {"key": b"\xff"}),
    ("key", "http"): (b"k", {"header X-Message-Key": "k"}),
    ("content-type", "mqtt5"): (b"text/css", {"content_type": "text/css"}),
    ("content-type", "amqp"): (b"text/css", {"content_type": "text/css"}),
    ("content-type", "kafka"): (b"text/css", {"header content-type": b"text/css"}),
    ("content-type", "http"): (b"text/css", {"header Content-Type": "text/css"}),
    ("content-encoding", "mqtt5"): (b"gzip", {"header content-encoding": "gzip"}),
    ("content-encoding", "amqp"): (b"gzip", {"content_encoding": "gzip"}),
    ("content-encoding", "kafka"): (b"gzip", {"header content-encoding": b"gzip"}),
    ("content-encoding", "http"): (b"gzip", {"header Content-Encoding": "gzip"}),
    ("utf8", "mqtt5"): (b"true", {"payload_format_indicator": True}),
    ("utf8", "amqp"): (b"true", {"content_type": "a/b; charset=utf-8"}),
    ("utf8", "kafka"): (b"true", {"header utf8": b"true"}),
    ("utf8", "http"): (b"true", {"header Content-Type": "a/b; charset=utf-8"}),
    ("correlation-id", "mqtt5"): (b"\xff1", {"correlation_data": b"\xff1"}),
    ("correlation-id", "amqp"): (b"c1", {"correlation_id": "c1"}),
    ("correlation-id", "kafka"): (b"\xff1", {"header correlation-id": b"\xff1"}),
    ("correlation-id", "http"): (b"c1", {"header X-Correlation-Id": "c1"}),
    ("reply-to", "mqtt5"): (b"replies/1", {"response_topic": "replies/1"}),
    ("reply-to", "amqp"): (b"$queue/answers", {"reply_to": "answers"}),
    ("reply-to", "kafka"): (b"replies/1", {"header reply-to": b"replies/1"}),
    ("reply-to", "http"): (b"replies/1", {"header X-Reply-To": "replies/1"}),
    ("expires-at", "mqtt5"): (LATER, {"message_expiry_interval": 60}),
    ("expires-at", "amqp"): (LATER, {"expiration": "60000"}),
    ("expires-at", "kafka"): (LATER, {"header expires-at": LATER}),
    ("expires-at", "http"): (LATER, {"header X-Expires-At": LATER.decode()}),
    ("timestamp", "mqtt5"): (b"1700000000001", {"header ts": "1700000000001"}),
    ("timestamp", "amqp"): (b"1700000000001", {"timestamp": 1_700_000_000,
                                               "header timestamp_in_ms": 1_700_000_000_001}),
    ("timestamp", "kafka"): (b"1700000000001", {"timestamp": 1_700_000_000_001}),
    ("timestamp", "http"): (b"1700000000001", {"header X-Timestamp": "1700000000001"}),
    ("priority", "mqtt5"): (b"9", {"header priority": "9"}),
    ("priority", "amqp"): (b"9", {"priority": 9}),
    ("priority", "kafka"): (b"9", {"header priority": b"9"}),
    ("priority", "http"): (b"9", {"header X-Priority": "9"}),
    ("durability", "mqtt3"): (b"false", {"qos": 0}),
    ("durability", "mqtt5"): (b"false", {"qos": 0}),
    ("durability", "amqp"): (b"false", {"delivery_mode": 1}),
    ("durability", "kafka"): (b"false", {}),
    ("durability", "http"): (b"false", {"status": 202}),
    ("deliver-at", "mqtt5"): (LATER, {"header deliver-at": LATER.decode()}),
    ("deliver-at", "amqp"): (LATER, {"header x-opt-delivery-time": 1_700_000_060_000}),
    ("deliver-at", "kafka"): (LATER, {"header deliver-at": LATER}),
    ("deliver-at", "http"): (LATER, {"header X-Deliver-At": LATER.decode()}),
    ("retain", "mqtt3"): (b"true", {"retain": True}),
    ("retain", "mqtt5"): (b"true", {"retain": True}),
    ("retain", "amqp"): (b"true", {"header x-retain": True}),
    ("retain", "kafka"): (b"true", {"header retain": b"true"}),
    ("retain", "http"): (b"true", {"header X-Retain": "true"}),
    ("traceparent", "mqtt5"): (TRACE.encode(), {"header traceparent": TRACE}),
    ("traceparent", "amqp"): (TRACE.encode(), {"header traceparent": TRACE}),
    ("traceparent", "kafka"): (TRACE.encode(), {"header traceparent": TRACE.encode()}),
    ("traceparent", "http"): (TRACE.encode(), {"header traceparent": TRACE}),
    ("x-trace", "mqtt5"): (b"always", {"header x-trace": "always"}),
    ("x-trace", "amqp"): (b"always", {"header x-trace": "always"}),
    ("x-trace", "kafka"): (b"always", {"header x-trace": b"always"}),
    ("x-trace", "http"): (b"always", {"header X-Trace": "always"}),
    ("receipt", "mqtt5"): (b"told/me", {"header receipt": "told/me"}),
    ("receipt", "amqp"): (b"told/me", {"header receipt": "told/me"}),
    ("receipt", "kafka"): (b"told/me", {"header receipt": b"told/me"}),
    ("receipt", "http"): (b"told/me", {"header X-Receipt": "told/me"}),
    ("receipt-group", "mqtt5"): (b"billing", {"header receipt-group": "billing"}),
    ("receipt-group", "amqp"): (b"billing", {"header receipt-group": "billing"}),
    ("receipt-group", "kafka"): (b"billing", {"header receipt-group": b"billing"}),
    ("receipt-group", "http"): (b"billing", {"header X-Receipt-Group": "billing"}),
}

# Cells that later ones of the same door stand in for: (field, door, stored value, places and values).
SECOND_CELLS: list[tuple[str, str, bytes, dict[str, Any]]] = [
    ("correlation-id", "amqp", b"\xff1", {"header x-correlation-id": b"\xff1"}),
    ("correlation-id", "amqp", b"c" * 256, {"header x-correlation-id": b"c" * 256}),
    ("reply-to", "amqp", b"replies/1", {"reply_to": "amq.reply-to.replies/1"}),
    ("reply-to", "amqp", b"r" * 256, {"header x-reply-to-topic": "r" * 256}),
    ("reply-to", "amqp", b"$queue/" + b"q" * 256, {"header x-reply-to-topic": "$queue/" + "q" * 256}),
    ("timestamp", "amqp", b"1700000000000", {"timestamp": 1_700_000_000}),
]

# Cells that are only read: (field, door, place, value, what is stored).
READ_ONLY_CELLS: list[tuple[str, str, str, Any, bytes]] = [
    ("expires-at", "http", "header X-Expires-In", "1.5", b"1700000001500"),
    ("deliver-at", "http", "header X-Delay", "60", LATER),
    ("deliver-at", "mqtt5", "header delay", "60", LATER),
    ("deliver-at", "amqp", "header x-delay", 60000, LATER),
    ("durability", "kafka", "acks", False, b"false"),
]


def envelope_with(name: str, value: bytes) -> Envelope:
    if name == "key":
        return Envelope(key=value)
    if name == "timestamp":
        return Envelope(timestamp_ms=int(value))
    if name == "durability":
        return Envelope(durable=value == b"true")
    if name == "utf8":
        return Envelope([(b"content-type", b"a/b"), (b"utf8", value)])
    return Envelope([(name.encode(), value)])


def value_in(envelope: Envelope, name: str) -> bytes | None:
    if name == "key":
        return envelope.key
    if name == "timestamp":
        return b"%d" % envelope.timestamp_ms
    if name in ("durability", "retain"):
        return b"true" if (envelope.durable if name == "durability" else envelope.retain) else b"false"
    return dict(envelope.headers)[name.encode()]


def places(dressed: DoorProperties) -> dict[str, Any]:
    return dressed.properties | {"header " + name: value for name, value in dressed.headers}


@pytest.mark.parametrize(("name", "door", "value", "expected"), [
    *((name, door, value, expected) for (name, door), (value, expected) in CELLS.items()), *SECOND_CELLS])
def test_cell(name: str, door: str, value: bytes, expected: dict[str, Any]) -> None:
    dressed = to_door(COLUMNS[door], envelope_with(name, value), NOW)
    there = places(dressed)
    assert {place: there.get(place) for place in expected} == expected
    assert dressed.lost == ([] if COLUMNS[door].carries(name) else [name])
    if COLUMNS[door].carries(name):
        envelope, problems = from_door(COLUMNS[door], dressed, NOW)
        assert problems == []
        assert value_in(envelope, name) == value


@pytest.mark.parametrize(("name", "door", "place", "shown", "stored"), READ_ONLY_CELLS)
def test_cell_that_is_only_read(name: str, door: str, place: str, shown: Any, stored: bytes) -> None:
    header = place.removeprefix("header ")
    dressed = DoorProperties({}, [(header, shown)]) if header != place else DoorProperties({place: shown})
    envelope, problems = from_door(COLUMNS[door], dressed, NOW)
    assert problems == []
    assert value_in(envelope, name) == stored
    assert not any(row.name == name and cell.name == header and not cell.read_only
                   for row in FIELDS for cell in COLUMNS[door].cells.get(row.name, ()))


def test_every_cell_of_the_table_has_a_test() -> None:
    assert {(name, door) for door, column in COLUMNS.items() for name in column.cells} == set(CELLS)
    several = [(name, door, len(cells)) for door, column in COLUMNS.items() for name, cells in column.cells.items()
               if len(cells) > 1]
    second = {(name, door) for name, door, *_ in SECOND_CELLS} | {(name, door) for name, door, *_ in READ_ONLY_CELLS}
    assert {(name, door) for name, door, _ in several} <= second


@pytest.mark.parametrize(("name", "door"), [
    (row.name, door) for row in FIELDS for door, column in COLUMNS.items() if row.name not in column.cells])
def test_a_field_without_a_cell_is_named_as_lost(name: str, door: str) -> None:
    value = CELLS[name, "kafka"][0]
    dressed = to_door(COLUMNS[door], envelope_with(name, value), NOW)
    assert name in dressed.lost
    assert name in losses(COLUMNS["kafka"], COLUMNS[door])


# --- values that do not fit -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("door", "name", "value"), [
    ("amqp", "id", b"m" * 256), ("amqp", "content-type", b"t" * 256), ("amqp", "content-encoding", b"e" * 256),
    ("mqtt5", "id", b"a\0"), ("mqtt5", "key", b"\xff"), ("mqtt5", "correlation-id", b"c" * 65536),
    ("mqtt5", "reply-to", b"a/#"), ("http", "key", b"\xff"), ("http", "id", b"a\r\nX: y"), ("http", "id", b" a"),
])
def test_a_value_that_does_not_fit_is_named_as_lost(door: str, name: str, value: bytes) -> None:
    dressed = to_door(COLUMNS[door], envelope_with(name, value), NOW)
    assert dressed.lost == [name]
    assert not places(dressed).keys() - {"qos", "delivery_mode", "status"}


def test_a_long_content_type_leaves_no_room_for_the_charset() -> None:
    envelope = Envelope([(b"content-type", b"t" * 250), (b"utf8", b"true")])
    assert to_door(COLUMNS["amqp"], envelope, NOW).lost == ["utf8"]


@pytest.mark.parametrize(("content_type", "lost"), [
    (b"text/plain; charset=UTF-8", []), (b"text/plain; charset=latin-1", ["utf8"]), (b'text/plain;charset="utf-8"', []),
])
def test_a_charset_that_is_stated_stays(content_type: bytes, lost: list[str]) -> None:
    dressed = to_door(COLUMNS["amqp"], Envelope([(b"content-type", content_type), (b"utf8", b"true")]), NOW)
    assert dressed.properties["content_type"] == content_type.decode()
    assert dressed.lost == lost


def test_utf8_without_a_content_type_has_nowhere_to_go() -> None:
    assert to_door(COLUMNS["http"], Envelope([(b"utf8", b"true")]), NOW).lost == ["utf8"]


@pytest.mark.parametrize(("left_ms", "seconds", "milliseconds"), [
    (1, 1, "1"), (1000, 1, "1000"), (1001, 2, "1001"), (0, 0, "0"), (-5000, 0, "0"),
    (10**13, 0xFFFFFFFF, "10000000000000"),
])
def test_time_left_is_rounded_up_and_never_negative(left_ms: int, seconds: int, milliseconds: str) -> None:
    envelope = Envelope([(b"expires-at", b"%d" % (NOW + left_ms))])
    assert to_door(COLUMNS["mqtt5"], envelope, NOW).properties["message_expiry_interval"] == seconds
    assert to_door(COLUMNS["amqp"], envelope, NOW).properties["expiration"] == milliseconds


# --- what comes in ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("place", "shown"), [
    ("X-Priority", "high"), ("X-Priority", "256"), ("X-Priority", "-1"), ("X-Expires-In", "soon"), ("X-Delay", "-1"),
    ("X-Deliver-At", "tomorrow"), ("X-Deliver-At", "2026-02-30T00:00:00Z"), ("X-Retain", "maybe"),
    ("traceparent", "00-0-0-0"), ("X-Timestamp", "9" * 30),
])
def test_an_http_header_that_does_not_read_so_is_named(place: str, shown: str) -> None:
    envelope, problems = from_door(COLUMNS["http"], DoorProperties({}, [(place, shown)]), NOW)
    assert len(problems) == 1 and problems[0].startswith(place)
    assert envelope == Envelope()


def test_a_property_that_does_not_read_so_is_named() -> None:
    _, problems = from_door(COLUMNS["amqp"], DoorProperties({"expiration": "later", "priority": 300}), NOW)
    assert [problem.split()[0] for problem in problems] == ["expiration", "priority"]


@pytest.mark.parametrize("door", ["mqtt5", "amqp", "kafka"])
def test_a_header_that_only_looks_like_a_field_is_the_users(door: str) -> None:
    shown: Any = "high" if door == "mqtt5" else b"high"
    headers = [("retain", shown), ("x-retain", shown), ("priority", shown)]
    envelope, problems = from_door(COLUMNS[door], DoorProperties({}, headers), NOW)
    assert problems == []
    assert envelope.headers == [(b"retain", b"high"), (b"x-retain", b"high"), (b"priority", b"high")]


def test_http_names_have_no_case_and_times_may_be_rfc_3339() -> None:
    headers = [("x-message-ID", "m"), ("X-DELIVER-AT", "2023-11-14T22:14:20.0009Z"), ("X-Header-Unit", "C"),
               ("User-Agent", "curl"), ("X-Header-", "no")]
    envelope, _ = from_door(COLUMNS["http"], DoorProperties({}, headers), NOW)
    assert envelope.headers == [(b"id", b"m"), (b"deliver-at", LATER), (b"unit", b"C")]


def test_only_the_first_header_of_a_name_is_the_field() -> None:
    headers: list[tuple[bytes, bytes | None]] = [(b"id", b"first"), (b"x", b"1"), (b"id", b"second")]
    dressed = to_door(COLUMNS["amqp"], Envelope(headers), NOW)
    assert dressed.properties["message_id"] == "first"
    assert dressed.headers == [("x", b"1"), ("id", b"second")]


@pytest.mark.parametrize(("value", "stored"), [
    (None, None), (b"\xff", b"\xff"), ("ü", "ü".encode()), (True, b"true"), (-7, b"-7"), (1.5, b"1.5"),
    ([1, {"a": b"b"}], b'[1,{"a":"b"}]'), ({"t": None}, b'{"t":null}'),
])
def test_typed_amqp_headers_become_plain(value: Any, stored: bytes | None) -> None:
    envelope, _ = from_door(COLUMNS["amqp"], DoorProperties({}, [("h", value)]), NOW)
    assert envelope.headers == [(b"h", stored)]


# --- the user's headers -----------------------------------------------------------------------------------------------

HEADERS: list[tuple[bytes, bytes | None]] = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")]


@pytest.mark.parametrize("door", ["mqtt5", "kafka", "http"])
def test_order_and_duplicates_are_kept(door: str) -> None:
    dressed = to_door(COLUMNS[door], Envelope(list(HEADERS)), NOW)
    assert [str(name).removeprefix("X-Header-") for name, _ in dressed.headers] == ["b", "a", "b"]
    assert from_door(COLUMNS[door], dressed, NOW)[0].headers == HEADERS


def test_a_table_keeps_the_first_and_an_array_of_all() -> None:
    dressed = to_door(COLUMNS["amqp"], Envelope(list(HEADERS)), NOW)
    assert dressed.headers == [("b", b"1"), ("x-dup-b", [b"1", b"3"]), ("a", b"2")]
    assert from_door(COLUMNS["amqp"], dressed, NOW)[0].headers == [(b"b", b"1"), (b"b", b"3"), (b"a", b"2")]


@pytest.mark.parametrize(("door", "name", "value"), [
    ("mqtt3", b"a", b"1"), ("mqtt5", b"a", None), ("mqtt5", b"a", b"\xff"), ("mqtt5", b"a\0", b"1"),
    ("mqtt5", b"a", b"x" * 65536), ("amqp", b"n" * 256, b"1"), ("amqp", b"\xff", b"1"), ("http", b"a b", b"1"),
    ("http", b"a", b"1\n"), ("http", b"a", None),
])
def test_a_users_header_that_cannot_be_carried_is_named(door: str, name: bytes, value: bytes | None) -> None:
    dressed = to_door(COLUMNS[door], Envelope([(name, value)]), NOW)
    assert dressed.lost == ["header " + name.decode(errors="replace")]
    assert dressed.headers == []


@pytest.mark.parametrize("value", [None, b"", b"\xff\0"])
@pytest.mark.parametrize("door", ["amqp", "kafka"])
def test_any_value_is_carried_by_a_table_and_by_a_record(door: str, value: bytes | None) -> None:
    dressed = to_door(COLUMNS[door], Envelope([(b"a", value)]), NOW)
    assert (dressed.headers, dressed.lost) == ([("a", value)], [])


# --- the table itself -------------------------------------------------------------------------------------------------

def test_losses_are_what_the_other_side_has_no_cell_for() -> None:
    assert losses(COLUMNS["mqtt5"], COLUMNS["amqp"]) == []
    assert losses(COLUMNS["mqtt3"], COLUMNS["kafka"]) == ["durability"]
    assert losses(COLUMNS["mqtt3"], COLUMNS["mqtt5"]) == []
    assert losses(COLUMNS["kafka"], COLUMNS["kafka"]) == []
    not_carried = [row.name for row in FIELDS if row.name not in ("durability", "retain")]
    assert losses(COLUMNS["http"], COLUMNS["mqtt3"]) == [*not_carried, USER_HEADERS]


def test_every_column_has_a_title_of_its_own_and_known_fields() -> None:
    assert len({column.title for column in COLUMNS.values()}) == len(COLUMNS) == 5
    assert all(set(column.cells) <= set(FIELD_BY_NAME) for column in COLUMNS.values())


def test_fields_are_named_once_and_explained() -> None:
    assert len(FIELD_BY_NAME) == len(FIELDS) == 17
    assert all(row.help for row in FIELDS)
    assert set(FIELD_BY_NAME) >= RECORD_FIELDS
