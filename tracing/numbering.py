"""Trace ids that the hub gives, one after the other: who knows the first of a run knows them all. Pure.

    trace id = 8 bytes that are the hub's since its start, 8 bytes that are a number, scattered
    span id  = the second half

Numbers are scattered by a multiplication that can be taken back: whoever chooses traces by the bytes of their ids
chooses evenly, and a trace id that is looked for says which number it is.
"""
from __future__ import annotations

from binascii import hexlify
from typing import Final

import numpy as np

HALF: Final = 8
FACTOR: Final = 0x9E3779B97F4A7C15        # odd: 2**64 over the golden ratio
MASK: Final = (1 << 64) - 1
BACK: Final = pow(FACTOR, -1, 1 << 64)
TEXT_BYTES: Final = 2 * HALF
MANY: Final = 16                          # from so many on columns cost less than numbers one by one


# decision 265
def scattered(number: int) -> int:
    """The second half of the trace id with this number."""
    return number * FACTOR & MASK


def scattered_texts(number: int, count: int) -> bytes:
    """The second halves of so many trace ids from this number on, in hex, TEXT_BYTES each."""
    half = scattered(number)
    if count < MANY:
        return b"".join([b"%016x" % (half + at * FACTOR & MASK) for at in range(count)])
    halves = np.arange(count, dtype=np.uint64) * np.uint64(FACTOR) + np.uint64(half)          # modulo 2**64
    return hexlify(halves.astype(">u8").tobytes())


def trace_of(own: bytes, number: int) -> bytes:
    """The trace id with this number, of a hub whose first half this is."""
    return own + scattered(number).to_bytes(HALF, "big")


def number_of(trace_id: bytes) -> int:
    """Which number a trace id has, if the hub gave it."""
    return int.from_bytes(trace_id[HALF:], "big") * BACK & MASK


def trace_at(first: bytes, at: int) -> bytes:
    """The trace id so many behind this one."""
    return trace_of(first[:HALF], number_of(first) + at)


def span_of(trace_id: bytes) -> bytes:
    """The span id that a message has with it, in the context that the hub gave."""
    return trace_id[HALF:]
