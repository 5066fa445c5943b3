"""WebSocket frames as the client's library reads them."""
from __future__ import annotations

import zlib

import pytest

from gatehouse.gateways.websocket.codec import MIN_COMPRESSED_BYTES, encode_text


@pytest.mark.parametrize(("size", "head"), [
    (0, "8100"), (125, "817d"), (126, "817e007e"), (65535, "817effff"), (65536, "817f0000000000010000")])
def test_the_length_stands_in_the_shortest_form(size, head):
    frame = encode_text(b"x" * size)
    assert frame.hex().startswith(head)
    assert frame[len(head) // 2:] == b"x" * size


def test_a_compressed_message_stands_alone():
    for _ in range(2):
        frame = encode_text(b"abc" * 500, 15)
        assert frame[0] == 0xC1
        assert zlib.decompressobj(-15).decompress(frame[2:] + b"\x00\x00\xff\xff") == b"abc" * 500


def test_small_messages_are_not_compressed():
    assert encode_text(b"x" * (MIN_COMPRESSED_BYTES - 1), 15)[0] == 0x81
