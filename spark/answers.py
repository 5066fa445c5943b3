"""The answer of a bulk fetch, taken apart: what each range got, and the heads of the pieces in columns.

The layout is drawn in `kernel.records.pieces` and in the hub's call `POST /v1/batches/fetch`. Pure.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.spark.errors import GatehouseError

Longs = npt.NDArray[np.int64]


@dataclass(slots=True)
class Principals:
    """Who published, in columns: from `first_offset` on, up to the next, whose it is; None: that is not known.

    Of one partition, in order; nobody is known before the first.
    """

    first_offset: Longs
    names: npt.NDArray[np.object_]

    def part(self, first: int, end: int) -> Principals:
        """The stretches from one to another."""
        return Principals(self.first_offset[first:end], self.names[first:end])

    def stretches_of(self, offsets: Longs) -> Longs:
        """The number of the stretch that each of these offsets lies in; -1: in none."""
        return np.searchsorted(self.first_offset, offsets, "right").astype(np.int64) - 1


NO_PRINCIPALS = Principals(np.zeros(0, np.int64), np.zeros(0, np.object_))


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
    principals: Principals

    def __len__(self) -> int:
        return len(self.first_offset)

    def part(self, first: int, end: int) -> Heads:
        """The pieces from one to another, over the same body."""
        here = slice(first, end)
        return Heads(self.body, self.first_offset[here], self.append_ms[here], self.first_id[here], self.count[here],
                     self.at[here], self.length[here], self.whole[here], self.principals)

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
    principals = Principals(np.concatenate([part.principals.first_offset for part in parts]),
                            np.concatenate([part.principals.names for part in parts]))
    return Heads(body=b"".join(bodies), at=at, principals=principals, **columns)


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
        head: dict[str, Any] = json.loads(answer[4:4 + size])
        ranges: list[dict[str, Any]] = head["ranges"]
        heads, end_of_bodies = _read_heads(answer, 4 + size, sum(entry["pieces"] for entry in ranges))
        principals = _read_principals(answer, end_of_bodies, head.get("principals", []),
                                      sum(entry.get("stretches", 0) for entry in ranges))
    except (ValueError, KeyError, TypeError) as error:
        raise GatehouseError(f"the hub's answer to a bulk fetch cannot be read: {error!r}") from None
    served, first, stretch = [], 0, 0
    for entry in ranges:
        end, stretch_end = first + entry["pieces"], stretch + entry.get("stretches", 0)
        pieces = replace(heads.part(first, end), principals=principals.part(stretch, stretch_end))
        served.append(Served(pieces, entry.get("log_start_offset", 0), entry.get("high_watermark", 0),
                             entry.get("code", ""), entry.get("detail", ""), entry.get("compacted", False),
                             entry.get("next_offset", -1)))
        first, stretch = end, stretch_end
    return served


def _read_heads(answer: bytes, at: int, count: int) -> tuple[Heads, int]:
    """The heads of all pieces, and where the bodies end."""
    longs = np.frombuffer(answer, "<i8", 3 * count, at).reshape(3, count)
    words = np.frombuffer(answer, "<u4", 2 * count, at + 24 * count).reshape(2, count).astype(np.int64)
    whole = np.frombuffer(answer, "u1", count, at + 32 * count) != 0
    starts = at + 33 * count + np.concatenate(([0], np.cumsum(words[1])))
    if starts[-1] > len(answer):
        raise ValueError("a body ends beyond the bytes")
    return Heads(answer, longs[0], longs[1], longs[2], words[0], starts[:-1], words[1], whole, NO_PRINCIPALS), \
        int(starts[-1])


def _read_principals(answer: bytes, at: int, names: list[str], count: int) -> Principals:
    first_offset = np.frombuffer(answer, "<i8", count, at)
    numbers = np.minimum(np.frombuffer(answer, "<u4", count, at + 8 * count), len(names))      # the last: not known
    return Principals(first_offset, np.array([*names, None], np.object_)[numbers])
