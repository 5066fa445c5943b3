"""WebSocket frames as a link: RFC 6455's rules by clause, cut anywhere; the session inside sees a stream of bytes."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.contract import Link
from gatehouse.gateways.kit import FakeLink
from gatehouse.gateways.websocket.codec import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Broken,
    Control,
    WebSocketReader,
    encode_head,
    unmask,
)
from gatehouse.gateways.websocket.session import WebSocketSession

MASK = b"\x37\xfa\x21\x3d"


def frame(opcode: int, payload: bytes = b"", fin: bool = True, mask: bytes = MASK) -> bytes:
    """A frame as a client sends it."""
    head = bytearray(encode_head(opcode, len(payload)))
    head[0] = (0x80 if fin else 0) | opcode
    head[1] |= 0x80
    return bytes(head) + mask + unmask(payload, mask)


def test_the_example_of_the_specification() -> None:
    """5.7: a single-frame masked text message, here as binary."""
    assert WebSocketReader().feed(b"\x82\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58") == [b"Hello"]


def payload_of(found: list[bytes | Control]) -> bytes:
    return b"".join([one for one in found if isinstance(one, bytes)])


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.booleans())),
       st.lists(st.integers(0, 3000), max_size=20))
def test_a_stream_of_bytes_comes_out_as_it_went_in_however_it_is_cut(parts: list[tuple[bytes, bytes, bool]],
                                                                     cuts: list[int]) -> None:
    """Messages in pieces, pings between them, other masks: the same bytes and the same pings."""
    wire, opcode, pings = b"", BINARY, []
    for payload, mask, fin in parts:
        wire += frame(opcode, payload, fin, mask)
        opcode = BINARY if fin else CONTINUATION
        pings.append(payload[:100])
        wire += frame(PING, payload[:100])
    reader, found, at = WebSocketReader(), [], 0
    for cut in sorted({min(cut, len(wire)) for cut in cuts} | {len(wire)}):
        found += reader.feed(wire[at:cut])
        at = cut
    assert payload_of(found) == b"".join(payload for payload, _, _ in parts)
    assert [one.payload for one in found if isinstance(one, Control)] == pings


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_every_width_of_length(size: int) -> None:
    payload = bytes(size)
    assert payload_of(WebSocketReader().feed(frame(BINARY, payload))) == payload
    head = encode_head(BINARY, size)
    assert len(head) == (2 if size < 126 else 4 if size < 65536 else 10)


def test_a_large_frame_is_not_held() -> None:
    reader = WebSocketReader()
    wire = frame(BINARY, b"x" * 1_000_000)
    assert payload_of(reader.feed(wire[:5000])) == b"x" * (5000 - 14)
    assert len(reader._held) == 0


@pytest.mark.parametrize(("wire", "code", "text"), [
    (b"\x82\x05Hello", 1002, "not masked"),                                   # 5.1
    (b"\xc2\x80" + MASK, 1002, "reserved bit"),                               # 5.2
    (b"\x83\x80" + MASK, 1002, "opcode 3"),                                   # 5.2
    (b"\x8b\x80" + MASK, 1002, "opcode 11"),                                  # 5.2
    (b"\x82\xfe\x00\x05" + MASK, 1002, "shortest"),                           # 5.2
    (b"\x82\xff" + (5).to_bytes(8, "big") + MASK, 1002, "shortest"),          # 5.2
    (b"\x82\xff" + b"\xff" * 8 + MASK, 1002, "shortest"),                     # 5.2: the first bit is 0
    (b"\x89\xfe\x00\x7e" + MASK, 1002, "control frame"),                      # 5.5
    (b"\x09\x80" + MASK, 1002, "control frame"),                              # 5.5: not in pieces
    (frame(CONTINUATION), 1002, "continues nothing"),                         # 5.4
    (frame(BINARY, b"a", fin=False) + frame(BINARY, b"b"), 1002, "should have continued"),     # 5.4
    (frame(TEXT, b"hello"), 1003, "text frame"),                              # [MQTT-6.0.0-1]
])
def test_what_breaks_the_protocol(wire: bytes, code: int, text: str) -> None:
    with pytest.raises(Broken, match=text) as caught:
        WebSocketReader().feed(wire)
    assert caught.value.code == code
    with pytest.raises(Broken):
        reader = WebSocketReader()
        for byte in wire:
            reader.feed(bytes((byte,)))


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_garbage_raises_only_the_peers_error(chunks: list[bytes]) -> None:
    reader = WebSocketReader()
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except Broken:
        pass


class Inner:
    """A door's session that keeps what it gets."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.seen = b""
        self.calls: list[str] = []

    def handle_data(self, data: bytes) -> None:
        self.seen += data
        if data.endswith(b"!"):
            self.link.write(b"bye")
            self.link.close("done: by itself")

    def handle_drained(self) -> None:
        self.calls.append("drained")

    def handle_timer(self, now_ms: int) -> None:
        self.calls.append(f"timer {now_ms}")

    def handle_closed(self) -> None:
        self.calls.append("closed")

    def handle_stopping(self) -> None:
        self.link.close("stopping")

    def on_principal_ended(self, reason: str) -> None:
        self.link.close(f"principal_ended: {reason}")

    def describe(self) -> dict[str, Any]:
        return {"client_id": "c"}


def opened() -> tuple[WebSocketSession, Inner, FakeLink]:
    link, made = FakeLink(certificate="ann"), []
    link.certificate_ends_ms = 7

    def make(framed: Link) -> Inner:
        made.append(Inner(framed))
        return made[0]
    return WebSocketSession(link, make), made[0], link


def test_the_session_inside_writes_frames_and_sees_the_link() -> None:
    session, inner, link = opened()
    session.handle_data(frame(BINARY, b"abc") + frame(BINARY, b"def"))
    assert inner.seen == b"abcdef"
    inner.link.write(b"one")
    inner.link.write_many([b"two", b"three"])
    assert link.take() == b"\x82\x03one" + b"\x82\x08twothree"
    assert (inner.link.certificate, inner.link.peer) == ("ann", link.peer)
    assert inner.link.certificate_ends_ms == link.certificate_ends_ms == 7
    inner.link.wake_at(7)
    inner.link.pause()
    assert link.wake_ms == 7 and link.paused
    inner.link.resume()
    session.handle_timer(7)
    session.handle_drained()
    session.handle_closed()
    assert inner.calls == ["timer 7", "drained", "closed"] and not link.paused
    assert session.describe() == {"client_id": "c", "transport": "websocket"}


def test_a_ping_is_answered_with_its_payload() -> None:
    session, inner, link = opened()
    session.handle_data(frame(PING, b"there?") + frame(PONG, b"unasked"))
    assert link.take() == b"\x8a\x06there?" and inner.seen == b"" and not link.closed


@pytest.mark.parametrize(("payload", "said", "reason"), [
    (b"", b"\x03\xe8", ""), (b"\x03\xe9bye", b"\x03\xe9", ""), (b"\x0f\xa0", b"\x0f\xa0", ""),
    (b"\x03", b"\x03\xea", "websocket"), (b"\x03\xed", b"\x03\xea", "websocket"),
    (b"\x00\x00", b"\x03\xea", "websocket"),
    (b"\x03\xe8\xff", b"\x03\xef", "websocket"),
])
def test_a_close_is_answered_with_a_close(payload: bytes, said: bytes, reason: str) -> None:
    """5.5.1, 7.4: the same code back; one that cannot be sent is a fault; nothing after it is read."""
    session, inner, link = opened()
    session.handle_data(frame(CLOSE, payload) + frame(BINARY, b"late"))
    answer = link.take()
    assert answer[0] == 0x88 and answer[2:4] == said and link.closed
    assert link.reason.partition(":")[0] == reason and inner.seen == b""


def test_the_session_inside_ends_it() -> None:
    session, inner, link = opened()
    session.handle_data(frame(BINARY, b"end!"))
    session.handle_data(frame(PING) + frame(BINARY, b"late"))
    assert link.take() == b"\x82\x03bye" + b"\x88\x06\x03\xf0done"       # 1008
    assert link.closed and link.reason == "done: by itself" and inner.seen == b"end!"


def test_what_breaks_the_protocol_is_told_and_closed() -> None:
    session, inner, link = opened()
    session.handle_data(b"\x82\x05Hello")
    assert link.take()[2:4] == b"\x03\xea" and link.closed and link.reason.startswith("websocket: ")


def test_the_hub_goes_away() -> None:
    session, _, link = opened()
    session.handle_stopping()
    assert link.take()[2:4] == b"\x03\xe9" and link.closed


def test_somebody_in_charge_ends_it() -> None:
    session, _, link = opened()
    session.on_principal_ended("closed by an administrator")
    assert link.take()[2:4] == b"\x03\xf0" and link.closed
