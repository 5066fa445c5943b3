"""The answer of a bulk fetch, taken apart: what each range got, and the heads of the pieces in columns.

The layout is drawn in `kernel.records.pieces` and in the hub's call `POST /v1/batches/fetch`. Pure.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.spark.errors import GatehouseError

Longs = npt.NDArray[np.int64]


@dataclass(slots=True)
class Heads:
    """The heads of pieces in columns; `at` is where each body begins in `body`."""

    body: bytes
    first_offset: Longs
    append_ms: Longs
    first_id: Longs
    count: Longs
    at: Longs
    length: Longs
    whole: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first_offset)

    def part(self, first: int, end: int) -> Heads:
        """The pieces from one to another, over the same body."""
        here = slice(first, end)
        return Heads(self.body, self.first_offset[here], self.append_ms[here], self.first_id[here], self.count[here],
                     self.at[here], self.length[here], self.whole[here])

    @property
    def end_offset(self) -> int:
        """The offset behind the last record, -1 where there is none."""
        return int(self.first_offset[-1] + self.count[-1]) if len(self) else -1


def join_heads(parts: Sequence[Heads]) -> Heads:
    """The pieces of several answers, in order, over one body. No part is empty; one's pieces lie one behind the other.
    """
    if len(parts) == 1:
        return parts[0]
    firsts = [int(part.at[0]) for part in parts]
    bodies = [part.body[first:int(part.at[-1] + part.length[-1])] for part, first in zip(parts, firsts, strict=True)]
    shifts = np.cumsum([0, *(len(body) for body in bodies[:-1])]) - firsts
    at = np.concatenate([part.at + shift for part, shift in zip(parts, shifts, strict=True)])
    columns = {name: np.concatenate([getattr(part, name) for part in parts])
               for name in ("first_offset", "append_ms", "first_id", "count", "length", "whole")}
    return Heads(body=b"".join(bodies), at=at, **columns)


@dataclass(frozen=True, slots=True)
class Served:
    """What one range got. `code` is empty where nothing was wrong.

    A compacted partition has gaps; nothing is left of it before `next_offset`, where that is 0 or more.
    """

    pieces: Heads
    log_start_offset: int
    high_watermark: int
    code: str
    detail: str
    compacted: bool
    next_offset: int


def read_answer(answer: bytes) -> list[Served]:
    """One entry per range that was asked for. Raises GatehouseError for bytes that are no such answer."""
    try:
        size = int.from_bytes(answer[:4], "little")
        ranges: list[dict[str, Any]] = json.loads(answer[4:4 + size])["ranges"]
        heads = _read_heads(answer, 4 + size, sum(entry["pieces"] for entry in ranges))
    except (ValueError, KeyError, TypeError) as error:
        raise GatehouseError(f"the hub's answer to a bulk fetch cannot be read: {error!r}") from None
    served, first = [], 0
    for entry in ranges:
        end = first + entry["pieces"]
        served.append(Served(heads.part(first, end), entry.get("log_start_offset", 0), entry.get("high_watermark", 0),
                             entry.get("code", ""), entry.get("detail", ""), entry.get("compacted", False),
                             entry.get("next_offset", -1)))
        first = end
    return served


def _read_heads(answer: bytes, at: int, count: int) -> Heads:
    longs = np.frombuffer(answer, "<i8", 3 * count, at).reshape(3, count)
    words = np.frombuffer(answer, "<u4", 2 * count, at + 24 * count).reshape(2, count).astype(np.int64)
    whole = np.frombuffer(answer, "u1", count, at + 32 * count) != 0
    starts = at + 33 * count + np.concatenate(([0], np.cumsum(words[1])))
    if starts[-1] > len(answer):
        raise ValueError("a body ends beyond the bytes")
    return Heads(answer, longs[0], longs[1], longs[2], words[0], starts[:-1], words[1], whole)
