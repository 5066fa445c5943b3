"""Messages to the HTTP door's JSON and back."""
from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.mapping import read_message
from gatehouse.gateways.json_messages import record_to_json
from gatehouse.kernel.addresses.address import join_address
from gatehouse_client.message import decode, decode_stored, encode

HEADERS = st.lists(st.tuples(st.text(min_size=1, max_size=8).filter(lambda name: name.isalnum()),
                             st.none() | st.binary(max_size=8) | st.text(max_size=8)), max_size=4)


def sent(**said: Any) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(encode(said.pop("value", None), **said))
    return document


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@given(key=st.none() | st.binary(max_size=8), value=st.none() | st.binary(max_size=64) | st.text(max_size=64),
       headers=HEADERS)
def test_what_is_sent_is_what_the_door_reads_and_what_comes_back(key, value, headers):
    document = sent(topic="plant", key=key, value=value, headers=headers)
    assert document.pop("topic") == "plant"
    read = read_message(document, 0)
    expected = tuple((name, as_bytes(header)) for name, header in headers)
    assert (read.key, read.value) == (key, as_bytes(value))
    assert tuple((name.decode(), header) for name, header in read.headers) == expected
    record = (7, 1_700_000_000_000, read.key, read.value, tuple(read.headers), 2, 99)
    shown = orjson.loads(orjson.dumps(record_to_json(record, "plant", 3, join_address("plant", key), "http")))
    message = decode(shown)
    assert (message.key, message.value, message.id, message.partition, message.offset) == (
        key, as_bytes(value), "99", 3, 7)
    taken = [pair for pair in expected if pair in message.headers]
    assert taken == list(message.headers)        # a header named like an envelope field comes back as a property


def test_seconds_from_now_are_made_absolute_once():
    document = sent(address="a/b", properties={"expires_in": 1.5, "delay": 2, "content_type": "text/plain"},
                    now_ms=1000)
    assert document == {"address": "a/b", "value": None, "expires_at": 2500, "deliver_at": 3000,
                        "content_type": "text/plain"}


def test_properties_come_back_with_the_message():
    message = decode({"id": "1", "topic": "t", "partition": 0, "offset": 0, "key": None, "value": "{\"a\": 1}",
                      "headers": [["unit", "C"], ["raw", {"base64": "/w=="}], ["none", None]], "address": "t",
                      "timestamp": 5, "door": "mqtt", "content_type": "application/json",
                      "correlation_id_base64": "/w==", "receipt_handle": "h", "attempt": 2})
    assert message.json() == {"a": 1}
    assert message.headers == (("unit", b"C"), ("raw", b"\xff"), ("none", None))
    assert (message.header("unit"), message.header("other")) == (b"C", None)
    assert message.properties == {"content_type": "application/json", "correlation_id": b"\xff"}
    assert (message.receipt_handle, message.attempt) == ("h", 2)


@pytest.mark.parametrize(("said", "error"), [
    ({}, ValueError), ({"address": "a", "topic": "a"}, ValueError), ({"address": "a/b", "key": "c"}, ValueError),
    ({"address": "a", "value": 5}, TypeError), ({"topic": "a", "key": 5}, TypeError),
    ({"address": "a", "headers": [("n", 5)]}, TypeError)])
def test_what_cannot_be_sent_is_refused_before_it_is(said, error):
    with pytest.raises(error):
        sent(**said)


def test_a_message_that_is_only_accepted_has_no_place_yet():
    stored = decode_stored({"id": None, "topic": "t", "partition": 1, "offset": None, "address": "t/a",
                            "timestamp": None})
    assert (stored.id, stored.offset, stored.partition) == (None, None, 1)
