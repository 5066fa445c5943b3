"""WebSocket byte by byte, as RFC 6455 and 7692 have it: what a client may write, however it is cut, and what not."""
from __future__ import annotations

import asyncio
import struct
import tracemalloc
import zlib
from typing import Any

import pytest

from gatehouse.gateways.websocket.codec import Broken, Control, Deflated, MessageReader, read_close, unmask
from tests.gateways.http.kit import Client, run_door

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"\x11\x22\x33\x44"
ASK = b'{"type":"ping","id":1}'
PONG_FRAME = b'{"type":"pong","id":1}'
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate\r\n"


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    size, mask = len(payload), 0x80 if masked else 0
    head = bytes((fin << 7 | reserved << 4 | opcode,))
    if size < 126:
        head += bytes((mask | size,))
    else:
        head += bytes((mask | 126,)) + struct.pack("!H", size) if size < 1 << 16 else \
            bytes((mask | 127,)) + struct.pack("!Q", size)
    return head + (KEY + unmask(payload, KEY) if masked else payload)


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason)


def squeezed(payload: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


GOOD = [frame(TEXT, b"a"), frame(TEXT, b"a" * 125), frame(TEXT, b"a" * 126), frame(TEXT, b"a" * 70_000),
        frame(TEXT, b"x", fin=False) + frame(PING, b"p") + frame(CONTINUATION, b"y"), frame(TEXT), frame(PONG),
        frame(TEXT, squeezed(b"x"), reserved=4), frame(CLOSE), closing(1000), closing(4999, b"bye")]
WRONG = [frame(TEXT, b"a", masked=False), frame(PING, b"a", reserved=4), frame(CONTINUATION, b"a", reserved=4),
         *map(closing, (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535))]


def read(sent: bytes, size: int) -> list[bytes | Control]:
    """What a reader makes of it, cut into pieces of this size; a close frame is read, too."""
    reader, found = MessageReader(1 << 20, compressed=True), []
    for at in range(0, len(sent), size):
        parts = reader.feed(sent[at:at + size])
        found += [reader.inflate(part) if isinstance(part, Deflated) else part for part in parts]
        if isinstance(found[-1] if found else None, Control) and found[-1].opcode == CLOSE:
            read_close(found[-1].payload)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_what_a_client_may_write_is_read_as_it_was_meant(size: int) -> None:
    assert read(b"".join(GOOD), size) == [
        b"a", b"a" * 125, b"a" * 126, b"a" * 70_000, Control(PING, b"p"), b"xy", b"", Control(PONG, b""), b"x",
        Control(CLOSE, b""), Control(CLOSE, b"\x03\xe8"), Control(CLOSE, b"\x13\x87bye")]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one[:4].hex())
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_what_it_may_not_is_told_in_its_place(wrong: bytes, size: int) -> None:
    assert read(GOOD[0] + GOOD[2], size) == [b"a", b"a" * 126]
    with pytest.raises(Broken) as fault:
        read(GOOD[0] + GOOD[2] + wrong, size)
    assert fault.value.code == 1002


async def talk(client: Client, sent: bytes, extensions: str = "") -> list[tuple[int, bytes]]:
    """Frames that come back, up to the first that is no pong."""
    host, _, port = client.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(("GET /v1/ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                  f"{extensions}\r\n").encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(sent)
    found: list[tuple[int, bytes]] = []
    while head := await reader.read(2):
        size = head[1]
        if size == 126:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
        found.append((head[0] & 0xF, await reader.readexactly(size)))
        if found[-1][0] != PONG:
            break
    writer.close()
    return found


def code_of(found: list[tuple[int, bytes]]) -> int:
    assert found[-1][0] == CLOSE, found
    return int.from_bytes(found[-1][1][:2], "big")


@pytest.mark.parametrize(("sent", "code", "extensions"), [
    (frame(TEXT, ASK, masked=False), 1002, ""), (frame(TEXT, ASK, reserved=4), 1002, ""),
    (frame(TEXT, ASK, reserved=2), 1002, DEFLATE), (frame(3), 1002, ""), (frame(11), 1002, ""),
    (frame(PING, b"a" * 126), 1002, ""), (frame(PING, fin=False), 1002, ""), (frame(CONTINUATION, b"a"), 1002, ""),
    (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002, ""), (frame(CLOSE, b"\x03"), 1002, ""),
    (closing(1005), 1002, ""), (closing(1006), 1002, ""), (closing(1000, b"\xff"), 1007, ""),
    (frame(TEXT, b'{"type":"\xff"}'), 1007, ""), (frame(TEXT, b'{"id":"\xed\xa0\x80"}'), 1007, ""),
    (frame(TEXT, b"\xff\xff\xff\xff", reserved=4), 1007, DEFLATE), (frame(BINARY, b"a"), 1003, ""),
    (frame(TEXT, squeezed(bytes(10_000_000)), reserved=4), 1009, DEFLATE),
    (frame(PING, b"a", reserved=4), 1002, DEFLATE), (closing(3000), 1000, ""), (frame(CLOSE), 1000, ""),
])
def test_how_the_hub_closes(sent: bytes, code: int, extensions: str) -> None:
    async def test(client: Client) -> None:
        assert code_of(await talk(client, sent, extensions)) == code
    run_door(test, max_body_bytes=65_536)


@pytest.mark.parametrize("sent", [
    frame(TEXT, ASK[:5], fin=False) + frame(PING, b"x") + frame(CONTINUATION, ASK[5:]),
    b"".join([frame(TEXT if at == 0 else CONTINUATION, ASK[at:at + 1], fin=at == len(ASK) - 1)
              for at in range(len(ASK))]),
    frame(TEXT, fin=False) + frame(CONTINUATION, fin=False) * 100 + frame(CONTINUATION, ASK),
    frame(PONG, b"x") + frame(TEXT, ASK),
])
def test_a_message_in_pieces(sent: bytes) -> None:
    async def test(client: Client) -> None:
        assert (await talk(client, sent))[-1] == (TEXT, PONG_FRAME)
    run_door(test)


@pytest.mark.parametrize("instead", [{"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Version": "14"},
                                     {"Sec-WebSocket-Key": "short"}])
def test_a_handshake_of_another_version_is_told_ours(instead: dict[str, Any]) -> None:
    async def test(client: Client) -> None:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **instead}
        answer = await client.ask("GET", "/v1/ws", headers=headers)
        assert (answer.code, answer.headers["Sec-WebSocket-Version"]) == ("upgrade_required", "13")     # RFC 6455, 4.4
    run_door(test)


@pytest.mark.parametrize("name", ["Sec-WebSocket-Key", "Upgrade", "Connection", "Sec-WebSocket-Version",
                                  "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"])
@pytest.mark.parametrize("value", ["dGhlIHNhbXBsZSBub25jZ\u00fc==", "\u212aeep", "websoc\u212aet"])
def test_a_handshake_in_other_letters_is_refused(name: str, value: str) -> None:
    async def test(client: Client) -> None:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", name: value}
        asked = "".join(f"{one}: {text}\r\n" for one, text in headers.items())
        host, _, port = client.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /v1/ws HTTP/1.1\r\nHost: h\r\n{asked}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 "), answer
    run_door(test)


def measured(reader: MessageReader, pieces: list[bytes]) -> tuple[int, int]:
    """How many messages have come, and the most memory that this took."""
    tracemalloc.start()
    try:
        kept = [reader.feed(piece) for piece in pieces]
        return sum([len(parts) for parts in kept]), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_small_messages_that_are_large_once_they_are_decompressed_are_held_as_they_came() -> None:
    small = frame(TEXT, squeezed(b" " * (1 << 20)), reserved=4)
    messages, most_bytes = measured(MessageReader(1 << 20, True, False), [small * 50])
    assert messages == 50 and most_bytes < 1 << 20


def test_a_message_in_many_frames_is_held_in_little_more_than_its_bytes() -> None:
    pieces = [frame(TEXT, b"xy", fin=False), *[frame(CONTINUATION, b"xy", fin=False) * 100] * 200]
    reader = MessageReader(1 << 20, False)
    messages, most_bytes = measured(reader, pieces)
    assert messages == 0 and reader.held_bytes == 40_002 and most_bytes < 10 * reader.held_bytes
