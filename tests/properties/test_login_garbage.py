"""Whatever a client sends to log in: nothing is raised, nobody is let in by it, and the connection ends or goes on as
the protocol says."""
from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from gatehouse.gateways.kafka.login import MECHANISMS, SaslFault, read_bearer, read_plain
from tests.gateways.accounts import KnownUsers
from tests.gateways.amqp.fakes import Hub
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import framed

parts = st.sampled_from([b"", b"\0", b"\1", b"n,,", b"n,a=ada,", b"n=ada", b",r=fyko", b"r=x,", b"c=biws,", b"p=",
                         b"auth=Bearer ", b"ada", b"lovelace", b"header.ada.signature", b"\xff", b"=2C", b"y,,"])
messages = st.binary(max_size=200) | st.lists(parts, max_size=12).map(b"".join)


def is_right(message: bytes) -> bool:
    """What happens to be a login."""
    try:
        plain = read_plain(message)
        if (plain.user, plain.password) == ("ada", "lovelace"):
            return True
    except SaslFault:
        pass
    try:
        return read_bearer(message)[0].token == "header.ada.signature"
    except SaslFault:
        return False


@given(st.sampled_from(MECHANISMS), st.lists(messages, min_size=1, max_size=6), st.sampled_from([0, 1]),
       st.integers(1, 300))
def test_sasl_messages(mechanism: str, said: list[bytes], version: int, size: int) -> None:
    peer = Peer(admission=KnownUsers, allow_anonymous=False)
    stream = framed(SaslHandshakeRequest(version=version, mechanism=mechanism), 1)
    for message in said:
        stream += struct.pack(">i", len(message)) + message if version == 0 \
            else framed(SaslAuthenticateRequest(version=2, auth_bytes=message), 2)
    for at in range(0, len(stream), size):
        peer.session.handle_data(stream[at:at + size])
        peer.wait(10)
    if not any(map(is_right, said)):
        assert not peer.session.is_known, "nobody showed a password"
        peer.send(framed(MetadataRequest(version=1, topics=[]), 3))
        peer.wait(10_000)
        assert peer.link.closed
    assert not any(b"lovelace" in text.encode() for text in (peer.link.reason,))


@given(st.sampled_from(["PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS", ""]), messages, st.integers(1, 300))
def test_amqp_responses(mechanism: str, response: bytes, size: int) -> None:
    from gatehouse.gateways.amqp import codec
    from gatehouse.gateways.amqp.methods import encode_method

    hub: Any = Hub()
    hub.admission = hub.services.admission = KnownUsers(hub.kernel, hub.now_ms)
    client = hub.client()
    stream = b"AMQP\0\0\x09\x01" + codec.frame(codec.METHOD, 0, encode_method(
        "connection.start-ok", mechanism=mechanism, response=response, locale="en_US"))
    for at in range(0, len(stream), size):
        client.send(stream[at:at + size])
    names = client.names()
    assert names[0] == "connection.start"
    if mechanism != "PLAIN" or response.split(b"\0")[1:] != [b"ada", b"lovelace"]:
        assert "connection.tune" not in names
        hub.advance(20_000)
        assert client.link.closed
