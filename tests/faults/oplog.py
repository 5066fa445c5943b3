"""What happened, from outside: every message that was sent, what became of it as its sender knows, and what readers
saw.

A message's value is `WRITER:NUMBER:` and padding. A writer's numbers only grow, in the order in which it sent: a
message that is sent again because nobody knows what became of it is another number, unless the protocol promises to
store it once (an Idempotency-Key, an idempotent producer); then it is the same number, however often it was sent.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

SENT: Final = "sent"               # no answer: may be stored, once
ACKNOWLEDGED: Final = "acked"      # is stored, once
REFUSED: Final = "refused"         # is not stored
LOST: Final = "lost"               # its bytes were damaged on the disk: may be gone


@dataclass(slots=True)
class Operation:
    """One message."""

    writer: str
    number: int
    key: str
    value: bytes
    sent_s: float
    state: str = SENT
    answered_s: float = 0.0
    place: tuple[int, int] | None = None        # partition and offset, where the answer tells them

    def acknowledge(self, place: tuple[int, int] | None = None) -> None:
        self.state, self.answered_s, self.place = ACKNOWLEDGED, time.monotonic(), place

    def refuse(self) -> None:
        self.state, self.answered_s = REFUSED, time.monotonic()


@dataclass(slots=True)
class OperationLog:
    """Everything of one campaign. Each list has one thread that appends to it."""

    operations: dict[tuple[str, int], Operation] = field(default_factory=dict)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By partition and offset: what readers were given."""

    heard: set[bytes] = field(default_factory=set)
    """Values that subscribers were given, who are not told where they lie."""

    events: list[str] = field(default_factory=list)

    def send(self, writer: str, number: int, key: str, size: int) -> Operation:
        """A message that is about to be sent."""
        value = f"{writer}:{number}:".encode().ljust(size, b".")
        operation = self.operations[writer, number] = Operation(writer, number, key, value, time.monotonic())
        return operation

    def note(self, event: str) -> None:
        """Something that whoever reads the log of a failure wants to know."""
        self.events.append(f"{time.monotonic():.3f} {event}")

    def see(self, partition: int, offset: int, value: bytes) -> None:
        """A reader was given this; AssertionError where it, or another one, was given something else there before."""
        before = self.seen.setdefault((partition, offset), value)
        assert before == value, f"partition {partition} offset {offset} was {before!r} and is now {value!r}"

    def write(self, file: Path) -> None:
        """All of it as JSON lines, for looking at a failure."""
        with file.open("w") as out:
            out.writelines(event + "\n" for event in self.events)
            for operation in list(self.operations.values()):
                out.write(json.dumps({**asdict(operation), "value": operation.value[:40].decode()}) + "\n")


def identify(value: bytes) -> tuple[str, int]:
    """Writer and number of a value."""
    writer, number, _ = value.split(b":", 2)
    return writer.decode(), int(number)
