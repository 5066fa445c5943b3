"""What is answered, in which coding, and to whom not again: chosen as asked, bounded on the way in. What `If-Match` and
`If-None-Match` of changes compare, and that one of several wins.
"""
from __future__ import annotations

import asyncio
import gzip
import zlib

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.representation import (
    accepts,
    check_conditions,
    choose,
    decode,
    encode,
    matches,
    strong_tag,
    tag_of,
)
from tests.gateways.http.kit import Client, run_door

# --- media types --------------------------------------------------------------------------------------------------

JSON = frozenset(("application/json",))


@pytest.mark.parametrize(("accept", "taken"), [
    ("application/json", True), ("application/*", True), ("*/*", True), ("text/html, application/json;q=0.5", True),
    ("Application/JSON ; q=0.1", True), ("text/html", False), ("application/json;q=0", False), ("", False),
    ("*/*, application/json;q=0", False), ("application/*;q=0, application/json", True), (";;,,=", False),
    ("application/json;q=2", True), ("text/plain;charset=utf-8, */*;q=0.001", True),
])
def test_what_a_header_takes(accept: str, taken: bool) -> None:
    assert accepts(accept, JSON) is taken


def test_nothing_is_done_for_who_does_not_take_the_answer() -> None:
    async def test(client: Client) -> None:
        html = {"Accept": "text/html"}
        refused = await client.ask("POST", "/v1/publish/plant", data=b"x", headers=html)
        assert (refused.status, refused.code, client.kernel.appended) == (406, "not_acceptable", [])
        assert (await client.ask("GET", "/v1/topics", headers=html)).code == "not_acceptable"
        assert (await client.ask("GET", "/metrics", headers={"Accept": "text/plain"})).status == 200
        assert (await client.ask("GET", "/v1/topics", headers={"Accept": ""})).status == 200
        taken = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Accept": "application/json"})
        assert taken.status == 201
        gone = await client.ask("DELETE", "/v1/topics/plant", headers=html)
        assert gone.status == 204, "an answer without a body is no type"
    run_door(test)


# --- content codings ----------------------------------------------------------------------------------------------

MANY = b'{"messages":[' + b",".join([b'{"value":"a value that repeats itself"}'] * 300) + b"]}"
BOMB = b"\0" * 50_000_000


@pytest.mark.parametrize(("asked", "coding"), [
    ("gzip", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("zstd;q=0.5, gzip", "gzip"), ("gzip;q=0", None),
    ("identity", None), ("", None), ("*", "gzip"), ("*;q=0, zstd", "zstd"), ("GZIP;Q=1", "gzip"),
    ("gzip;q=nonsense", None), ("br", None), (",,;;gzip", None)])
def test_the_best_that_both_know(asked, coding):
    assert choose(asked) == coding


@given(st.binary(max_size=3000))
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_document_comes_through(coding, body):
    assert decode(encode(body, coding), coding, 3000) == body


@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress(BOMB, mtime=0)),
                                                ("zstd", zstandard.compress(BOMB))])
def test_a_bomb_is_refused_before_it_is_unpacked(coding, packed):
    with pytest.raises(Refusal) as refused:
        decode(packed, coding, 1_000_000)
    assert refused.value.code == "body_too_large"


@pytest.mark.parametrize(("coding", "body", "code"), [
    ("gzip", b"{}", "invalid_body"), ("zstd", b"{}", "invalid_body"),
    ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-5], "invalid_body"),
    ("gzip", gzip.compress(b"x", mtime=0) + b"more", "invalid_body"), ("br", b"", "unsupported_media_type"),
    ("gzip, gzip", b"", "unsupported_media_type"), ("gzip", zlib.compress(b"x"), "invalid_body"),
    ("zstd", b"", "invalid_body"), ("zstd", zstandard.compress(b"x") + b"more", "invalid_body"),
    *(("zstd", zstandard.compress(b"x" * 99)[:size], "invalid_body") for size in range(1, 12))])
def test_what_cannot_be_undone_is_refused(coding, body, code):
    with pytest.raises(Refusal) as refused:
        decode(body, coding, 1000)
    assert refused.value.code == code


@pytest.mark.parametrize(("coding", "unpack"), [("gzip", gzip.decompress),
                                                ("zstd", zstandard.ZstdDecompressor().decompress)])
def test_large_pages_are_compressed_for_who_asks(coding, unpack):
    async def test(client):
        for _ in range(100):
            client.kernel.publish("plant/a", b"a value that repeats itself")
        target = "/v1/topics/plant/messages"
        plain = await client.ask("GET", target, headers={"Accept-Encoding": "identity"})
        packed = await client.ask("GET", target, headers={"Accept-Encoding": coding})
        assert (packed.headers["Content-Encoding"], packed.headers["Vary"]) == (coding, "Accept-Encoding")
        assert "Content-Encoding" not in plain.headers
        assert orjson.loads(unpack(packed.body))["messages"] == plain.json["messages"]
        assert len(packed.body) < len(plain.body) / 5
        small = await client.ask("GET", target + "?max=1", headers={"Accept-Encoding": coding})
        assert "Content-Encoding" not in small.headers
    run_door(test)


def test_a_compressed_list_is_taken():
    async def test(client):
        for coding in ("gzip", "zstd"):
            answer = await client.ask("POST", "/v1/topics/plant/messages", data=encode(MANY, coding),
                                      headers={"Content-Type": "application/json", "Content-Encoding": coding})
            assert (answer.status, len(answer.json["messages"])) == (201, 300)
        assert len(client.kernel.appended) == 600
    run_door(test)


def test_a_values_coding_is_kept_with_it():
    async def test(client):
        await client.ask("POST", "/v1/publish/plant/a", data=b"\x1f\x8b as it is", headers={"Content-Encoding": "gzip"})
        (message,) = (await client.ask("GET", "/v1/topics/plant/messages")).json["messages"]
        assert message["content_encoding"] == "gzip"
        assert "value_base64" in message
    run_door(test)


def test_frames_one_behind_the_other_are_one_document():
    assert decode(zstandard.compress(b"[1,") + zstandard.compress(b"2]"), "zstd", 1000) == b"[1,2]"


def test_what_is_asked_again_is_not_sent_again():
    async def test(client):
        client.kernel.publish("plant/a", b"1")
        first = await client.ask("GET", "/v1/topics/plant")
        same = await client.ask("GET", "/v1/topics/plant", headers={"If-None-Match": first.headers["Etag"]})
        assert (same.status, same.body, same.headers["Etag"]) == (304, b"", first.headers["Etag"])
        client.kernel.publish("plant/a", b"2")
        other = await client.ask("GET", "/v1/topics/plant", headers={"If-None-Match": first.headers["Etag"]})
        assert other.status == 200
        assert other.headers["Etag"] != first.headers["Etag"]
        refused = await client.ask("PUT", "/v1/groups/g/offsets", headers={"If-Match": first.headers["Etag"]})
        assert (refused.status, refused.code) == (501, "not_built")
    run_door(test)


def test_tags_are_compared_weakly():
    tag = tag_of(b"x")
    assert all(matches(asked, tag) for asked in (tag, tag.removeprefix("W/"), f'"a", {tag}', "*"))
    assert not matches("", tag) and not matches('"a"', tag)


# --- entity tags --------------------------------------------------------------------------------------------------

DEFINITION = {"name": "a"}
TAG = strong_tag(b'{"name":"a"}')
FULL = strong_tag(b'{"name":"a"}', b'{"name":"a","ready":7}')


@pytest.mark.parametrize("wanted", [TAG, FULL, "*", f'"other", {FULL}', FULL.partition(".")[0] + '.of-before"'])
def test_what_was_seen(wanted: str) -> None:
    check_conditions({"if-match": wanted}, DEFINITION)
    with pytest.raises(Refusal) as refused:
        check_conditions({"if-match": wanted}, None)
    assert refused.value.code == "precondition_failed"


@pytest.mark.parametrize("wanted", ["", '"other"', f"W/{TAG}", f"W/{FULL}", TAG.strip('"'), "." + FULL, '"."'])
def test_what_was_not(wanted: str) -> None:
    with pytest.raises(Refusal):
        check_conditions({"if-match": wanted}, DEFINITION)


@pytest.mark.parametrize(("unwanted", "goes"), [
    ("*", False), (TAG, False), (FULL, False), (f"W/{FULL}", False), ('"other"', True)])
def test_what_must_not_be_there(unwanted: str, goes: bool) -> None:
    check_conditions({"if-none-match": unwanted}, None)
    if goes:
        check_conditions({"if-none-match": unwanted}, DEFINITION)
    else:
        with pytest.raises(Refusal):
            check_conditions({"if-none-match": unwanted}, DEFINITION)


def test_a_topic_is_changed_as_it_was_seen() -> None:
    async def test(client: Client) -> None:
        path, only_new = "/v1/topics/plant", {"If-None-Match": "*"}
        assert (await client.ask("PUT", path, json={"partitions": 2}, headers=only_new)).status == 201
        assert (await client.ask("PUT", path, json={"partitions": 4}, headers=only_new)).code == "precondition_failed"
        seen = {"If-Match": (await client.ask("GET", path)).headers["Etag"]}
        client.kernel.publish("plant/a", b"1")
        assert (await client.ask("GET", path)).headers["Etag"] != seen["If-Match"], "its bounds are others"
        answers = await asyncio.gather(*[
            client.ask("PATCH", path, json={"retention_ms": 1000 + number}, headers=seen) for number in range(10)])
        assert sorted(answer.status for answer in answers) == [200] + [412] * 9
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await client.ask(method, path, headers=seen)).code == "precondition_failed"
        seen = {"If-Match": (await client.ask("GET", path)).headers["Etag"]}
        assert (await client.ask("DELETE", path, headers=seen)).status == 204
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await client.ask(method, path, headers=seen)).code == "precondition_failed"
        assert (await client.ask("GET", path)).code == "unknown_topic"
    run_door(test)


@pytest.mark.parametrize("condition", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize(("method", "target"), [
    ("POST", "/v1/publish/plant/a"), ("POST", "/v1/topics/plant/messages"), ("PUT", "/v1/queues/work")])
def test_nothing_is_published_or_made_on_a_condition(method: str, target: str, condition: str) -> None:
    async def test(client: Client) -> None:
        await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        refused = await client.ask(method, target, data=b"2", headers={condition: "*"})
        assert (refused.status, refused.code) == (501, "not_built")
        assert [message[1] for message in client.kernel.appended] == [b"1"]
    run_door(test)
