"""The byte conversations in tests/vectors/kafka: fed whole, byte by byte, and cut off at every byte."""
from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.gateways.kafka.fakes import FakeKernel, Peer

FOLDER = Path(__file__).parents[2] / "vectors" / "kafka"
LONGEST_WAIT_MS = 600        # above what any request in the files asks for


@dataclass
class Turn:
    """One request and its answer: bytes, None where the APIs are listed."""

    request: bytes = b""
    answer: bytes | None = b""


@dataclass
class Conversation:
    """One connection. `closed` is the reason that ends it."""

    title: str
    turns: list[Turn] = field(default_factory=list)
    closed: str | None = None


def read(path: Path) -> list[Conversation]:
    conversations: list[Conversation] = []
    last = ""
    for line in path.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "==":
            conversations.append(Conversation(rest))
        elif mark == ">":
            if last != ">":
                conversations[-1].turns.append(Turn())
            conversations[-1].turns[-1].request += bytes.fromhex(rest)
        elif mark == "<":
            turn = conversations[-1].turns[-1]
            turn.answer = (turn.answer or b"") + bytes.fromhex(rest)
        elif mark == "<*":
            conversations[-1].turns[-1].answer = None
        elif mark == "!":
            conversations[-1].closed = rest
        last = "" if mark == "#" else mark
    return conversations


FILES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.txt"))}


def hub() -> FakeKernel:
    kernel = FakeKernel()
    kernel.create_topic("plant", partitions=2)
    kernel.flush()
    return kernel


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at:at + size] for at in range(0, len(data), size))


def settle(peer: Peer) -> bytes:
    """Everything that is answered once what is pending is stored and a wait is over."""
    peer.kernel.flush()
    if not peer.link.sent and not peer.link.closed:
        peer.now_ms += LONGEST_WAIT_MS
        peer.session.handle_timer(peer.now_ms)
    return peer.link.take()


def play(conversation: Conversation, kernel: FakeKernel, size: int) -> None:
    peer = Peer(kernel)
    for turn in conversation.turns:
        for piece in pieces(turn.request, size or len(turn.request)):
            peer.session.handle_data(piece)
        answer = settle(peer)
        if turn.answer is None:
            assert answer[4:8] == struct.pack(">i", *struct.unpack_from(">i", turn.request, 8))
        else:
            assert answer.hex() == turn.answer.hex()
    assert (peer.link.reason or None) == conversation.closed
    if not peer.link.closed:
        peer.session.handle_closed()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", [0, 1, 7])
def test_conversations(name: str, size: int) -> None:
    kernel = hub()
    for conversation in FILES[name]:
        play(conversation, kernel, size)
    assert kernel.watches == []


@pytest.mark.parametrize("name", FILES)
def test_conversations_that_are_cut_off(name: str) -> None:
    """Nothing is answered, stored or closed for a request that has not come whole; what came before is kept."""
    for conversation in FILES[name]:
        for turn in conversation.turns:
            if conversation.closed is not None and turn is conversation.turns[-1]:
                continue          # a fault may show before its request is whole
            for end in range(1, len(turn.request)):
                peer = Peer(hub())
                peer.session.handle_data(turn.request[:end])
                assert settle(peer) == b""
                assert not peer.link.closed
                peer.session.handle_closed()


def test_there_is_something_to_play() -> None:
    assert {"kcat", "confluent_kafka", "aiokafka", "kafka_python", "clauses"} <= FILES.keys()
    assert all(conversation.turns for conversations in FILES.values() for conversation in conversations)
