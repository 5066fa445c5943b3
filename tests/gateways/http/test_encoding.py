"""Content codings and entity tags: chosen as asked, bounded on the way in, the same words on the way out."""
from __future__ import annotations

import gzip
import zlib

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.encoding import choose, decode, encode, matches, tag_of
from gatehouse.gateways.http.problems import Refusal
from tests.gateways.http.kit import run_door

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
        url = f"http://{client.address}/v1/groups/g/offsets"
        async with client.session.put(url, headers={"If-Match": first.headers["Etag"]}) as refused:
            assert (refused.status, (await refused.json(content_type=None))["code"]) == (501, "not_built")
    run_door(test)


def test_tags_are_compared_weakly():
    tag = tag_of(b"x")
    assert all(matches(asked, tag) for asked in (tag, tag.removeprefix("W/"), f'"a", {tag}', "*"))
    assert not matches("", tag) and not matches('"a"', tag)
