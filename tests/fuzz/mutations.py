"""Makes a conversation wrong. Everything is decided by the `random.Random` that is handed in. Pure.

    case(random, door, corpus)    one conversation to send: a list of pieces, each sent at once

Half of the mutations are blind. The others change what lies within a frame, and then write lengths and checksums that
are true, so that they get behind the first check.
"""
from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

from tests.fuzz.framing import FRAMINGS, with_records

Conversation = list[bytes]

INTERESTING: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 62,
                      (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WIDTHS: Final = ((1, ">B"), (2, ">H"), (4, ">I"), (8, ">Q"))
MANY_CHANGES: Final = 4
INSERTED_MAX: Final = 64
LARGE_INSERT: Final = 70_000                 # more than one read, less than any limit
LARGE_INSERT_SHARE: Final = 0.01
PIECES_MAX: Final = 64
BYTEWISE_MAX: Final = 300                    # bytes of a conversation that is sent byte by byte


def case(chance: random.Random, door: str, corpus: list[Conversation]) -> Conversation:
    """A real conversation after up to three mutations."""
    turns = list(chance.choice(corpus))
    for _ in range(chance.randint(1, 3)):
        turns = chance.choice(MUTATIONS)(chance, door, turns, corpus)
    if chance.random() < 0.1 and sum(map(len, turns)) <= BYTEWISE_MAX:
        return [bytes((byte,)) for turn in turns for byte in turn]
    if chance.random() < 0.3:
        return [b"".join(turns)]
    return turns[:PIECES_MAX]


def change_bytes(chance: random.Random, data: bytes) -> bytes:
    """One to four blind changes."""
    for _ in range(chance.randint(1, MANY_CHANGES)):
        data = chance.choice(CHANGES)(chance, data)
    return data


# ---- of bytes

def _flip(chance: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1:]


def _overwrite(chance: random.Random, data: bytes) -> bytes:
    width, code = chance.choice(WIDTHS)
    at = chance.randrange(len(data) + 1)
    value = chance.choice(INTERESTING) + chance.randint(-1, 1)
    return data[:at] + struct.pack(code, value % (1 << 8 * width)) + data[at + width:]


def _nudge(chance: random.Random, data: bytes) -> bytes:
    """A number that is one too large, or one too small, is what bounds are for."""
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes(((data[at] + chance.choice((-1, 1))) % 256,)) + data[at + 1:]


def _delete(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    return data[:start] + data[end:]


def _double(chance: random.Random, data: bytes) -> bytes:
    start, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    return data[:end] + data[start:end] + data[end:]


def _insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    size = LARGE_INSERT if chance.random() < LARGE_INSERT_SHARE else chance.randint(1, INSERTED_MAX)
    return data[:at] + chance.randbytes(size) + data[at:]


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[:chance.randrange(len(data) + 1)]


CHANGES: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _flip, _flip, _overwrite, _overwrite, _nudge, _nudge, _delete, _double, _insert, _cut)


# ---- of conversations

def _blind(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    return _at_one(chance, turns, lambda turn: change_bytes(chance, turn))


def _within_frame(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    framing = FRAMINGS[door]

    def change(turn: bytes) -> bytes:
        frames = framing.split(turn)
        if not frames:
            return turn
        at = chance.randrange(len(frames))
        frames[at] = framing.with_body(frames[at], change_bytes(chance, framing.body_of(frames[at])))
        return b"".join(frames)

    return _at_one(chance, turns, change)


def _within_records(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    """Of a Kafka request: its records, opened. Elsewhere within a frame."""
    if door != "kafka":
        return _within_frame(chance, door, turns, corpus)

    def change(turn: bytes) -> bytes:
        body = with_records(turn[4:], lambda records: change_bytes(chance, records))
        return struct.pack(">I", len(body)) + body

    return _at_one(chance, turns, change)


def _reorder(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    return chance.sample(turns, len(turns))


def _repeat(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    at = chance.randrange(len(turns) + 1)
    return turns[:at] + turns[max(0, at - 1):at] * chance.randint(1, 8) + turns[at:]


def _leave_out(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    at = chance.randrange(len(turns) + 1)
    return turns[:at] + turns[at + 1:]


def _splice(chance: random.Random, door: str, turns: Conversation, corpus: list[Conversation]) -> Conversation:
    other = chance.choice(corpus)
    return turns[:chance.randrange(len(turns) + 1)] + other[chance.randrange(len(other)):]


def _at_one(chance: random.Random, turns: Conversation, change: Callable[[bytes], bytes]) -> Conversation:
    if not turns:
        return turns
    at = chance.randrange(len(turns))
    return [*turns[:at], change(turns[at]), *turns[at + 1:]]


MUTATIONS: Final = (_blind, _blind, _within_frame, _within_frame, _within_frame, _within_records, _within_records,
                    _reorder, _repeat, _leave_out, _splice)
