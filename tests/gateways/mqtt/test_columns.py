"""The MQTT 5 column of the property table, cell by cell: what is in it is what the door does, both ways, and what each
other door makes of it."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.mqtt import codec
from gatehouse.gateways.mqtt import properties as P
from gatehouse.gateways.mqtt.column import MQTT5
from gatehouse.gateways.mqtt.properties import Packet, Properties, decode_properties, shown_properties, stored_headers
from gatehouse.gateways.properties.envelope import Where
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope, to_door
from gatehouse.kernel.records.batch import encode_headers, read_headers
from tests.gateways.columns import COLUMNS

NOW = 1_700_000_000_000
KAFKA = 0                                 # the number of another door
NUMBERS = {"content_type": P.CONTENT_TYPE, "payload_format_indicator": P.FORMAT, "correlation_data": P.CORRELATION,
           "response_topic": P.RESPONSE_TOPIC, "message_expiry_interval": P.EXPIRY}
STORED: dict[str, bytes] = {
    "id": b"order-7", "content-type": b"text/plain", "content-encoding": b"gzip", "utf8": b"true",
    "correlation-id": b"\0\xff", "reply-to": b"answers/here", "expires-at": b"%d" % (NOW + 60_000),
    "priority": b"7", "deliver-at": b"%d" % (NOW + 5_000),
    "traceparent": b"-".join((b"00", b"a" * 32, b"b" * 16, b"01")), "x-trace": b"always", "receipt": b"told/me",
    "receipt-group": b"billing"}
"""A value of each field that is a record header."""

GIVEN: dict[str, Any] = {"content-type": "text/plain", "utf8": 1, "correlation-id": b"\0\xff",
                         "reply-to": "answers/here", "expires-at": 60}
"""The same where MQTT has a property for it."""


def shown(headers: list[tuple[bytes, bytes | None]], timestamp_ms: int = 0) -> Properties:
    encoded = shown_properties(encode_headers(headers), KAFKA, timestamp_ms, NOW)
    assert encoded is not None
    return decode_properties(encoded, 0, len(encoded), Packet.PUBLISH)


def as_door(properties: Properties) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """(by the column's names, user properties)."""
    names = {number: name for name, number in NUMBERS.items()}
    values: dict[str, Any] = {names[number]: value for number, value in properties.values.items()}
    if "payload_format_indicator" in values:
        values["payload_format_indicator"] = bool(values["payload_format_indicator"])
    return values, properties.user


@pytest.mark.parametrize("name", STORED)
def test_a_field_of_another_door_is_shown_as_its_cell_says(name: str) -> None:
    dressed = to_door(MQTT5, Envelope([(name.encode(), STORED[name])]), NOW)
    dressed.properties.pop("qos")
    assert not dressed.lost
    assert as_door(shown([(name.encode(), STORED[name])])) == (dressed.properties, dressed.headers)


def test_a_time_of_another_door_is_shown_as_its_cell_says() -> None:
    dressed = to_door(MQTT5, Envelope(timestamp_ms=NOW), NOW)
    assert [(name, str(value)) for name, value in dressed.headers] == shown([], NOW).user == [("ts", str(NOW))]


@pytest.mark.parametrize("name", STORED)
def test_what_a_client_says_is_stored_as_its_cell_says(name: str) -> None:
    cell = MQTT5.cells[name][0]
    given = Properties()
    if cell.where is Where.PROPERTY:
        given.values[NUMBERS[cell.name]] = GIVEN[name]
        door = DoorProperties(properties={cell.name: GIVEN[name]})
    else:
        given.user.append((cell.name, STORED[name].decode()))
        door = DoorProperties(headers=[(cell.name, STORED[name].decode())])
    envelope, problems = from_door(MQTT5, door, NOW)
    headers, _ = stored_headers(given, NOW)
    assert not problems
    assert list(read_headers(headers, 0)[0]) == envelope.headers == [(name.encode(), STORED[name])]


def test_the_time_that_a_client_says_is_the_records() -> None:
    _, timestamp_ms = stored_headers(Properties(user=[("ts", str(NOW))]), NOW)
    assert timestamp_ms == NOW


def test_every_cell_is_looked_at() -> None:
    elsewhere = {"key", "timestamp", "durability", "retain"}      # the address, `ts`, QoS and the bit RETAIN
    assert set(MQTT5.cells) == STORED.keys() | elsewhere


@pytest.mark.parametrize("door", [name for name in COLUMNS if not name.startswith("mqtt")])
@pytest.mark.parametrize("name", STORED)
def test_what_a_client_says_is_read_at_the_other_doors(name: str, door: str) -> None:
    """And comes back from there as it was."""
    column = COLUMNS[door]
    cell = MQTT5.cells[name][0]
    given = Properties(values={NUMBERS[cell.name]: GIVEN[name]} if cell.where is Where.PROPERTY else {},
                       user=[] if cell.where is Where.PROPERTY else [(cell.name, STORED[name].decode())])
    headers, _ = stored_headers(given, NOW)
    dressed = to_door(column, Envelope(list(read_headers(headers, 0)[0])), NOW)
    if name in dressed.lost:
        assert not column.carries(name) or door != "kafka", f"{door} has a cell for {name} and cannot say it"
        return
    envelope, _ = from_door(column, dressed, NOW)
    back = shown([pair for pair in envelope.headers if pair[0] == name.encode()])
    assert as_door(back) == as_door(shown(list(read_headers(headers, 0)[0])))


def test_user_properties_keep_their_order_and_their_doubles_at_kafka() -> None:
    user = [("b", "1"), ("a", "2"), ("b", "1")]
    headers, _ = stored_headers(Properties(user=list(user)), NOW)
    dressed = to_door(COLUMNS["kafka"], Envelope(list(read_headers(headers, 0)[0])), NOW)
    envelope, _ = from_door(COLUMNS["kafka"], dressed, NOW)
    assert shown(envelope.headers).user == user


@pytest.mark.parametrize(("headers", "said"), [
    ([(b"\xff", b"x")], []), ([(b"x", b"\xff")], []), ([(b"x", None)], []), ([(b"x", b"y" * 65_536)], []),
    ([(b"content-type", b"\xff")], []), ([(b"reply-to", b"a/+")], []), ([(b"x", b"a\0b")], []),
    ([(b"utf8", b"perhaps")], [("utf8", "perhaps")]),
    ([(b"content-type", b"a"), (b"content-type", b"b")], [("content-type", "b")]),
])
def test_what_cannot_be_said_is_left_out(headers: list[tuple[bytes, bytes | None]], said: list[tuple[str, str]]
                                         ) -> None:
    assert [pair for pair in shown(headers).user if pair[0] != "�"] == said


def test_sparkplugs_names_pass_unharmed() -> None:
    """Sparkplug B's topics have dots and colons in them, and nothing here gives them a meaning."""
    name = "spBv1.0/Plant.1/DDATA/Edge:7/Pump.2"
    assert codec.publish_topic(codec.encode_publish(0x30, len(name).to_bytes(2, "big") + name.encode(), b"", b"", b""),
                               0).decode() == name
