"""A flipped bit in a file at rest, of each kind that a data folder has. Between two hubs, never under one.

    flip(folder, chance)    what was done, and the messages that may be lost by it
"""
from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

from gatehouse.kernel.log.segments import ENVELOPE_BYTES, FRAME_MAGIC, SEGMENT_HEADER_BYTES

_NAME: Final = re.compile(rb"([a-z][a-z-]*):(\d+):")
_LENGTHS: Final = struct.Struct("<4sII")


class Flip(NamedTuple):
    """One flipped bit."""

    kind: str
    file: Path
    at: int
    lost: frozenset[tuple[str, int]]             # writer and number: these may be gone


def flip(data: Path, chance: random.Random) -> Flip | None:
    """Flip one bit of one file below a data folder; None where there is no file of the kind that was chosen."""
    kind = chance.choice(("segment header", "kept header", "index", "message", "reserve"))
    if kind == "segment header":
        return _flip_header(kind, sorted((data / "log").glob("*.log")), chance)
    if kind == "kept header":
        return _flip_header(kind, sorted((data / "kept").glob("*.log")), chance)
    if kind == "message":
        return _flip_message(sorted((data / "log").glob("*.log"))[:-1], chance)
    files = [file for file in sorted(data.glob("index/*" if kind == "index" else "reserve*"))
             if file.is_file() and file.stat().st_size]
    if not files:
        return None
    file = chance.choice(files)
    return _flipped(kind, file, chance.randrange(file.stat().st_size), chance)


def _flip_header(kind: str, files: list[Path], chance: random.Random) -> Flip | None:
    """The newest more often than others: there recovery has to tell it from one that was just begun."""
    if not files:
        return None
    file = files[-1] if chance.random() < 0.5 else chance.choice(files)
    return _flipped(kind, file, chance.randrange(min(SEGMENT_HEADER_BYTES, file.stat().st_size)), chance)


def _flip_message(files: list[Path], chance: random.Random) -> Flip | None:
    """Within the body of a frame of a finished segment: the frame's messages may be lost, nothing else."""
    if not files:
        return None
    file = chance.choice(files)
    data = file.read_bytes()
    bodies = list(_bodies(data))
    if not bodies:
        return None
    start, end = chance.choice(bodies)
    lost = frozenset((name.decode(), int(number)) for name, number in _NAME.findall(data[start:end]))
    return _flipped("message", file, chance.randrange(start, end), chance)._replace(lost=lost)


def _bodies(data: bytes) -> list[tuple[int, int]]:
    """Where the bodies of a segment's frames begin and end."""
    found, at = [], SEGMENT_HEADER_BYTES
    while at + ENVELOPE_BYTES <= len(data):
        magic, head, body = _LENGTHS.unpack_from(data, at)
        if magic != FRAME_MAGIC:
            break
        end = at + ENVELOPE_BYTES + head + body
        if body:
            found.append((end - body, end))
        at = end
    return found


def _flipped(kind: str, file: Path, at: int, chance: random.Random) -> Flip:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes((byte ^ 1 << chance.randrange(8),)))
    return Flip(kind, file, at, frozenset())
