"""Reads and plays the byte conversations of `tests/vectors/mqtt`; the README there says how they are written."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.kernel.addresses.routes import RouteEntry
from gatehouse.kernel.log.log import LogFull

FOLDER = Path(__file__).parents[2] / "vectors" / "mqtt"
CONNECTED = ["> 10 0d 0004 'MQTT' 04 02 0000 0001 'c'", "< 20020000"]
CONNECTED5 = ["> 10 0e 0004 'MQTT' 05 02 0000 00 0001 'c'", "< 20 0e 00 00 0b 21 2000 27 01020008 22 0040"]
MACROS = {"CONNECTED": CONNECTED, "CONNECTED5": CONNECTED5}
DISK_ERRORS = {"storage_full": LogFull("no space left on device")}
ONE_TOPIC = (RouteEntry("#", "all"),)         # and of one partition: what is stored has one order
TOKEN = re.compile(r"'([^']*)'(?:\*(\d+))?|([0-9a-f]+)|\s+")


@dataclass(frozen=True)
class Conversation:
    title: str
    steps: tuple[tuple[str, str], ...]

    def joined(self) -> Conversation:
        """The same with everything that the client sends between two other steps in one piece."""
        steps: list[tuple[str, str]] = []
        for what, rest in self.steps:
            if what == ">" and steps and steps[-1][0] == ">":
                steps[-1] = (">", f"{steps[-1][1]} {rest}")
            else:
                steps.append((what, rest))
        return Conversation(self.title, tuple(steps))


def read_all() -> list[Conversation]:
    found = []
    for file in sorted(FOLDER.glob("*.txt")):
        for block in file.read_text().split("\n\n"):
            title, *lines = block.strip().splitlines()
            assert title.startswith("# ["), f"{file.name}: {title!r} names no clause"
            expanded = [step for line in lines for step in MACROS.get(line, [line])]
            steps = [(line.partition(" ")[0], line.partition(" ")[2]) for line in expanded]
            found.append(Conversation(title[2:], tuple(steps)))
    return found


def bytes_of(text: str) -> bytes:
    """`0003 'a/b' 'x'*200` as bytes."""
    out, at = b"", 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token is not None, f"cannot read {text[at:]!r}"
        quoted, count, digits = token.groups()
        if quoted is not None:
            out += quoted.encode() * int(count or 1)
        elif digits:
            out += bytes.fromhex(digits)
        at = token.end()
    return out


class Player:
    """One client's side of a conversation with a door of its own."""

    def __init__(self, chunk_bytes: int = 0) -> None:
        self.hub = FakeHub(routes=ONE_TOPIC)
        session, self.link = self.hub.open(GATEWAY, MqttConfig())
        self.session: Session = session
        self.chunk_bytes = chunk_bytes           # 0: each step in one piece
        self.stored = 0                          # messages that steps have accounted for

    def play(self, conversation: Conversation) -> None:
        for what, rest in conversation.steps:
            getattr(self, "do_" + {">": "send", "<": "expect"}.get(what, what))(rest)
        assert self.link.take() == b"", "more was sent than the conversation says"
        assert len(self._log()) == self.stored, "more was stored than the conversation says"

    def feed(self, data: bytes) -> None:
        size = self.chunk_bytes or len(data) or 1
        for at in range(0, len(data), size):
            if self.link.closed:
                break                            # as the shared connection does
            self.session.handle_data(data[at:at + size])

    def do_send(self, rest: str) -> None:
        self.feed(bytes_of(rest))

    def do_expect(self, rest: str) -> None:
        assert self.link.take().hex(" ") == bytes_of(rest).hex(" ")

    def do_flush(self, rest: str) -> None:
        self.hub.kernel.flush()

    def do_advance(self, rest: str) -> None:
        self.hub.advance(int(rest))

    def do_lost(self, rest: str) -> None:
        self.hub.cut(self.session)

    def do_stop(self, rest: str) -> None:
        self.session.handle_stopping()

    def do_disk(self, rest: str) -> None:
        self.hub.log.fault = DISK_ERRORS[rest]

    def do_open(self, rest: str) -> None:
        assert not self.link.closed, self.link.reason

    def do_closed(self, rest: str) -> None:
        assert self.link.closed, "the connection is still open"
        assert (self.link.reason.partition(":")[0] or "clean") == rest, self.link.reason

    def do_stored(self, rest: str) -> None:
        address, value, attributes = rest.split(" ")
        message = self._log()[self.stored]
        self.stored += 1
        assert message == (address.encode().decode("unicode_escape"), bytes_of(value), int(attributes, 16))

    def _log(self) -> list[tuple[str, bytes | None, int]]:
        """Everything stored, in order: address, value, attributes."""
        kernel = self.hub.kernel
        records = [(message_id, kernel.address_of(topic.name, key, headers), value, attributes)
                   for topic in kernel.topics()
                   for _, _, key, value, headers, attributes, message_id in kernel.records(topic.name)]
        return [record[1:] for record in sorted(records)]


def connect(hub: FakeHub, client_id: str = "c", config: MqttConfig | None = None) -> tuple[Session, FakeLink]:
    """A client that has been accepted."""
    session, link = hub.open(GATEWAY, config or MqttConfig())
    name = client_id.encode()
    body = b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2, "big") + name
    session.handle_data(b"\x10" + bytes([len(body)]) + body)
    assert link.take() == b"\x20\2\0\0"
    return session, link
