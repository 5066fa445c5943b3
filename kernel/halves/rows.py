"""Half messages as they come in become rows of pages. Hot.

A place is encoded once, however many messages go there.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.halves.half_records import Half, Row, encode_place
from gatehouse.kernel.message import NOW, Placement, When
from gatehouse.kernel.scheduling.accepting import Due, pending_of

PLACES: Final = 10_000              # encoded places that are remembered


class Rows:
    def __init__(self) -> None:
        self._known: dict[Placement, tuple[int, bytes]] = {}         # with the version that it was encoded of

    def of(self, halves: list[Half]) -> list[Row]:
        """Their placements are fresh."""
        rows: list[Row] = []
        for half in halves:
            to, value, headers, attributes, timestamp_ms = half.message
            when, delay_ms = half.when, half.delay_ms
            place = self._place(to) if when is None and not delay_ms else _encode(to, when or NOW, delay_ms)
            rows.append((place, value, headers, attributes, timestamp_ms))
        return rows

    def _place(self, to: Placement) -> bytes:
        cached = self._known.get(to)
        if cached is None or cached[0] != to.version:
            if len(self._known) >= PLACES:
                self._known.clear()
            cached = to.version, _encode(to, NOW, 0)
            self._known[to] = cached
        return cached[1]


def _encode(to: Placement, when: When, delay_ms: int) -> bytes:
    return encode_place(delay_ms, pending_of((to, None, b"", 0, 0), Due(when.due_ms, True, 0), 0, when))
