"""CloudEvents in and out, in every mode; the examples are those of the specifications, in our words."""
from __future__ import annotations

from base64 import b64encode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.cloud_events import (
    BATCH,
    STRUCTURED,
    asks_for,
    attributes_of,
    read_binary,
    read_structured,
    to_binary,
    to_structured,
)
from gatehouse.gateways.http.exchange import Head
from gatehouse.gateways.http.mapping import read_headers
from gatehouse.gateways.http.problems import Refusal
from tests.gateways.http.fake_kernel import NOW_MS
from tests.gateways.http.kit import run_door

EVENT = {"specversion": "1.0", "id": "A234-1234", "source": "/machines/7", "type": "com.example.measured",
         "subject": "line1/temp", "time": "2018-04-05T17:31:00.123456Z", "datacontenttype": "application/json",
         "dataschema": "https://example.com/schema", "site": "Köln 😀", "least": "-2147483648"}
HEADERS = {"ce-specversion": "1.0", "ce-id": "A234-1234", "ce-source": "/machines/7", "ce-type": "com.example.measured",
           "ce-subject": "line1/temp", "ce-time": "2018-04-05T17:31:00.123456Z",
           "ce-dataschema": "https://example.com/schema", "ce-site": "K%C3%B6ln%20%F0%9F%98%80",
           "ce-least": "-2147483648", "Content-Type": "application/json"}
DATA = {"value": 21.5}


async def read_page(client, topic="plant"):
    answer = await client.ask("GET", f"/v1/topics/{topic}/messages", headers={"Accept": BATCH})
    assert answer.headers["Content-Type"] == BATCH
    assert answer.headers["X-Cursor"]
    return answer.json


def record(value, headers=(), key=b"line1/temp", timestamp_ms=NOW_MS):
    return (3, timestamp_ms, key, value, tuple(headers), 2, 99)


@pytest.mark.parametrize("target", ["/v1/publish/plant/a", "/v1/topics/plant/messages"])
@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_an_event_comes_back_as_it_was_sent(target, mode):
    async def test(client):
        headers, body = {
            "binary": (HEADERS, b'{"value": 21.5}'),
            "structured": ({"Content-Type": STRUCTURED + "; charset=utf-8"}, orjson.dumps({**EVENT, "data": DATA})),
            "batch": ({"Content-Type": BATCH}, orjson.dumps([{**EVENT, "data": DATA}])),
        }[mode]
        assert (await client.ask("POST", target, headers=headers, data=body)).status == 201
        assert await read_page(client) == [{**EVENT, "data": DATA}]
        shown = (await client.ask("GET", "/v1/topics/plant/messages")).json["messages"][0]
        assert (shown["message_id"], shown["timestamp"], shown["content_type"]) == (
            "A234-1234", 1_522_949_460_123, "application/json")
        assert ["ce_site", "Köln 😀"] in shown["headers"]
    run_door(test)


def test_a_batch_is_answered_event_by_event():
    async def test(client):
        events = [EVENT, {**EVENT, "id": ""}, {**EVENT, "id": "2", "partitionkey": "k"}]
        answer = await client.ask("POST", "/v1/topics/plant/messages", headers={"Content-Type": BATCH},
                                  data=orjson.dumps(events))
        assert answer.status == 207
        assert [one.get("code", one["status"]) for one in answer.json["messages"]] == [201, "invalid_cloud_event", 201]
        assert answer.json["messages"][2]["address"] == "plant/k"
        empty = await client.ask("POST", "/v1/topics/plant/messages", headers={"Content-Type": BATCH}, data=b"[]")
        assert (empty.status, empty.json) == (201, {"messages": []})
    run_door(test)


def test_the_key_is_the_partition_key_unless_it_is_given():
    async def test(client):
        for query, key in (("", "plant/p"), ("?key=q", "plant/q")):
            answer = await client.ask("POST", f"/v1/topics/plant/messages{query}", data=b"x",
                                      headers={**HEADERS, "ce-partitionkey": "p"})
            assert answer.json["address"] == key
    run_door(test)


def test_a_stream_of_events():
    async def test(client):
        client.kernel.publish("plant/a", b"21.5")
        response = await client.session.get(f"http://{client.address}/v1/topics/plant/events?from=earliest",
                                            headers={"Accept": f"text/event-stream, {STRUCTURED}"})
        async for line in response.content:
            if line.startswith(b"data: "):
                event = orjson.loads(line[6:])
                assert (event["type"], event["subject"], event["data"]) == ("gatehouse.message", "plant/a", 21.5)
                return
    run_door(test)


@pytest.mark.parametrize(("value", "content_type", "shown"), [
    (b'{"a":  1}', b"application/json", {"data": {"a": 1}}),
    (b'{"a":\n1}', b"application/vnd.x+json; v=1", {"data": {"a": 1}}),
    (b"12345678901234567890123", None, {"data": 12345678901234567890123}),
    (b"plain", b"text/plain", {"data": "plain"}),
    (b"21.5", b"text/plain", {"data": "21.5"}),
    (b"plain", None, {"data_base64": "cGxhaW4="}),
    (b"{broken", b"application/json", {"data_base64": "e2Jyb2tlbg=="}),
    (b"\xff\x00", b"application/octet-stream", {"data_base64": "/wA="}),
    (b"", b"text/plain", {}), (None, None, {}),
])
def test_the_value_is_shown_as_its_type_says(value, content_type, shown):
    headers = [] if content_type is None else [(b"content-type", content_type)]
    event = orjson.loads(orjson.dumps(to_structured(record(value, headers), "plant", "plant/line1/temp")))
    found = {name: event[name] for name in ("data", "data_base64") if name in event}
    assert found == (shown if value != b"12345678901234567890123" else {"data": 1.2345678901234568e22})
    assert b"\n" not in orjson.dumps(to_structured(record(value, headers), "plant", "plant/line1/temp"))
    again = read_structured(event, True)
    if value and b"\n" not in value and b"  " not in value and len(value) < 20:
        assert again.value == value


def test_a_message_that_was_none_is_shown_as_an_event():
    headers = [(b"content-type", b"text/plain"), (b"correlation-id", b"c7"), (b"priority", b"4"), (b"Unit", b"C"),
               (b"unit", b"C"), (b"traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")]
    attributes = attributes_of(record(b"x", headers), "plant", "plant/line1/temp")
    assert attributes == {
        "specversion": "1.0", "id": "99", "source": "/v1/topics/plant", "type": "gatehouse.message",
        "subject": "plant/line1/temp", "time": "2023-11-14T22:13:20.000Z", "partitionkey": "line1/temp",
        "datacontenttype": "text/plain", "correlationid": "c7", "priority": "4", "unit": "C",
        "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}


def test_what_the_hub_notes_of_a_value_is_no_attribute():
    """`utf8` is made of a content type's charset."""
    async def test(client):
        for attributes in (HEADERS, {}):
            await client.ask("POST", "/v1/publish/plant/a", data=b"21",
                             headers={**attributes, "Content-Type": "text/plain; charset=utf-8"})
        page = await client.ask("GET", "/v1/topics/plant/messages", headers={"Accept": BATCH})
        assert len(page.json) == 2
        assert not any("utf8" in event for event in page.json)
    run_door(test)


def test_a_whole_number_is_one_however_it_is_written():
    assert (b"ce_ext", b"-5") in read_structured({**EVENT, "ext": -5.0}, False).headers


def test_half_an_event_is_none():
    attributes = attributes_of(record(b"x", [(b"ce_id", b"1"), (b"ce_type", b"t")]), "plant", "plant/a")
    assert (attributes["id"], attributes["type"]) == ("99", "gatehouse.message")


def test_binary_headers_are_percent_encoded():
    headers = to_binary(record(b"x", [(b"ce_" + name.encode(), value.encode()) for name, value in (
        ("specversion", "1.0"), ("id", "a b"), ("source", "/€"), ("type", 't"%'), ("ext", "ok!"))]), "plant", "plant/a")
    assert headers == {"ce-specversion": "1.0", "ce-id": "a%20b", "ce-source": "/%E2%82%AC", "ce-type": "t%22%25",
                       "ce-ext": "ok!"}


def test_an_attribute_in_quotes_is_what_they_hold():
    """HTTP binding, 3.1.3.2: unescaped as a quoted string first, then percent-decoded once."""
    for sent, subject in (('"a b"', "a b"), (r'"say \"hi\" %20"', 'say "hi"  '), ('"%22"', '"'), ('""x""', '""x""'),
                          ('"open', '"open'), (r'"open\"', r'"open\"'), ('"', '"'), (r"a\b", r"a\b"),
                          ('"a" "b"', '"a" "b"')):
        publication = read_headers([(f"ce-{name}".encode(), value.encode()) for name, value in (
            ("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t"), ("subject", sent))],
                                   NOW_MS)
        read_binary(publication, of_topic=True)
        assert (b"ce_subject", subject.encode()) in publication.headers, sent


TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=30)


EXTENSIONS = st.dictionaries(st.from_regex(r"x[a-z0-9]{0,30}", fullmatch=True), TEXT, max_size=5)


@given(EXTENSIONS, TEXT, TEXT, st.binary(max_size=40))
def test_both_modes_carry_everything(extensions, source, kind, value):
    event = {"specversion": "1.0", "id": "1", "source": source, "type": kind, **extensions}
    one = read_structured({**event, "data_base64": b64encode(value).decode()}, False)
    stored = record(one.value, one.headers)
    assert attributes_of(stored, "plant", "plant/a") == event
    raw = [(name.lower().encode(), text.encode()) for name, text in to_binary(stored, "plant", "plant/a").items()]
    publication = read_headers(raw, NOW_MS)
    assert publication.event and Head(tuple(raw)).is_event
    assert orjson.loads(orjson.dumps(to_structured(stored, "plant", "plant/a"))).keys() >= event.keys()


@pytest.mark.parametrize("timestamp_ms", [1 << 62, -(1 << 62), 253_402_300_800_000])
def test_a_time_without_a_year_is_not_told(timestamp_ms):
    record = (0, timestamp_ms, None, b"1", (), 0, 7)
    event = to_structured(record, "plant", "plant/a")
    assert event["id"] == "7" and "time" not in event
    assert "ce-time" not in to_binary(record, "plant", "plant/a")


@pytest.mark.parametrize("spoil", [
    {"specversion": "0.3"}, {"specversion": None}, {"id": ""}, {"id": None}, {"type": None}, {"source": None},
    {"Upper": "x"}, {"under_score": "x"}, {"a" * 65: "x"}, {"time": "yesterday"}, {"ext": {"a": 1}}, {"ext": [1]},
    {"ext": 1 << 40}, {"ext": 1.5}, {"data_base64": "%%"}, {"data": 1, "data_base64": ""}, {"datacontenttype": 7},
    {"datacontenttype": "text"}, {"ext": -(1 << 31) - 1},
    {"data": orjson.loads("[" * 400 + "]" * 400)}, {"ext": "bell\x07"}, {f"a{number}": "x" for number in range(65)},
])
def test_what_is_no_event_is_refused(spoil):
    with pytest.raises(Refusal) as refused:
        read_structured({**EVENT, **spoil}, True)
    assert refused.value.code in ("invalid_cloud_event", "invalid_body")


@pytest.mark.parametrize(("headers", "body", "code"), [
    ({**HEADERS, "ce-id": ""}, b"", "invalid_cloud_event"),
    ({**HEADERS, "ce-specversion": "2.0"}, b"", "invalid_cloud_event"),
    ({**HEADERS, "ce-site": "%FF"}, b"", "invalid_cloud_event"),
    ({**HEADERS, "X-Message-Id": "other"}, b"", "invalid_cloud_event"),
    ({"Content-Type": STRUCTURED}, b"[]", "invalid_cloud_event"),
    ({"Content-Type": STRUCTURED}, b"{", "invalid_body"),
    ({"Content-Type": BATCH}, b"{}", "invalid_body"),
    ({"Content-Type": "application/cloudevents+avro"}, b"", "unsupported_media_type"),
    ({"Content-Type": STRUCTURED, "X-Priority": "1"}, orjson.dumps(EVENT), "invalid_header"),
    ({"Content-Type": STRUCTURED, "X-Delay": "1"}, orjson.dumps(EVENT), "invalid_header"),
    ({"Content-Type": STRUCTURED, "Content-Encoding": "br"}, orjson.dumps(EVENT), "unsupported_media_type"),
])
@pytest.mark.parametrize("target", ["/v1/publish/plant/a", "/v1/topics/plant/messages"])
def test_refusals(target, headers, body, code):
    async def test(client):
        assert (await client.ask("POST", target, headers=headers, data=body)).code == code
        assert client.kernel.appended == []
    run_door(test)


@pytest.mark.parametrize(("accept", "asked"), [
    (BATCH, True), (f"{BATCH};q=0.5, */*", True), ("application/json, " + BATCH.upper(), True), (f"{BATCH};q=0", False),
    (f"{BATCH}; q=0.000", False), ("*/*", False), ("", False), ("application/json", False)])
def test_who_asks_for_events(accept, asked):
    assert asks_for(accept, BATCH) is asked
