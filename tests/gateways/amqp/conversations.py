"""Reads and plays the byte conversations of `tests/vectors/amqp`; the README there says how they are written."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gatehouse.gateways.amqp.config import AmqpConfig
from tests.gateways.amqp.fakes import Client, Hub

FOLDER = Path(__file__).parents[2] / "vectors" / "amqp"
FRAME_MAX = 4096
TOKEN = re.compile(r"""(?P<short>s)?(?P<quote>['"])(?P<text>.*?)(?P=quote)(?:\*(?P<count>\d+))?|"""
                   r"(?P<hex>[0-9a-f]+)|\s+|(?P<open>\[)|(?P<close>\])")


@dataclass(frozen=True)
class Conversation:
    title: str
    steps: tuple[tuple[str, str], ...]


def read_all() -> list[Conversation]:
    found = []
    for file in sorted(FOLDER.glob("*.txt")):
        for block in file.read_text().strip().split("\n\n"):
            title, *lines = block.strip().splitlines()
            assert title.startswith("# ["), f"{file.name}: {title!r} names no section"
            found.append(Conversation(title[2:], tuple((line.partition(" ")[0], line.partition(" ")[2])
                                                       for line in lines)))
    return found


def bytes_of(text: str) -> bytes:
    """`[01 0001 'a'] ff` as bytes: brackets are a frame."""
    out, frame, at = b"", -1, 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token is not None, f"cannot read {text[at:]!r}"
        if token["open"]:
            frame = len(out)
        elif token["close"]:
            payload = out[frame + 3:]
            out = out[:frame + 3] + len(payload).to_bytes(4, "big") + payload + b"\xce"
        elif token["quote"]:
            content = token["text"].encode() * int(token["count"] or 1)
            out += bytes((len(content),)) + content if token["short"] else content
        elif token["hex"]:
            out += bytes.fromhex(token["hex"])
        at = token.end()
    return out


def texts_of(text: str) -> list[bytes]:
    """`'a' 'b'` as a list."""
    return [token["text"].encode() for token in TOKEN.finditer(text) if token["quote"]]


class Player:
    """One client's side of a conversation with a door of its own."""

    def __init__(self, chunk_bytes: int = 0) -> None:
        self.hub = Hub()
        self.client: Client = self.hub.client(AmqpConfig())
        self.chunk_bytes = chunk_bytes           # 0: each step in one piece

    def play(self, conversation: Conversation) -> None:
        for what, rest in conversation.steps:
            self.step(what, rest)
        assert self.client.link.take() == b"", "more was sent than the conversation says"

    def step(self, what: str, rest: str) -> None:
        link = self.client.link
        if what == "OPEN":
            self.client.login(frame_max=FRAME_MAX)
            self.client.ask("queue.declare", queue="q")
        elif what == ">":
            self.feed(bytes_of(rest))
        elif what == "<":
            assert link.take().hex(" ") == bytes_of(rest).hex(" ")
        elif what == "flush":
            self.hub.kernel.flush()
        elif what == "advance":
            self.hub.advance(int(rest))
        elif what == "ready":
            name, _, texts = rest.partition(" ")
            assert self.hub.ready(name) == texts_of(texts)
        else:
            assert what in ("open", "closed"), what
            assert link.closed is (what == "closed"), link.reason

    def feed(self, data: bytes) -> None:
        size = self.chunk_bytes or len(data) or 1
        for at in range(0, len(data), size):
            if self.client.link.closed:
                break                            # as the shared connection does
            self.client.send(data[at:at + size])
