"""What a copy of the definitions outside the log is told at every checkpoint. The SQL catalogue is one; none is needed.

A projection is derived: nothing reads it to decide anything, and it may be thrown away at any time. It says how far it
is complete; what it missed, it is given whole.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.state.state import Kind, StateChanges

PROJECTED: Final = frozenset((Kind.TOPIC, Kind.OFFSET))


class Definition(NamedTuple):
    """A state record's key and its newest value; None: deleted."""

    kind: int
    key: bytes
    value: bytes | None


class Step(NamedTuple):
    """One checkpoint: what brings a projection that is complete up to `start` to `end`, log positions."""

    hub: bytes                                       # 16 bytes: which hub's log this is
    epoch: int
    start: int
    end: int
    changed: list[Definition]
    whole: Callable[[], Iterator[Definition]]        # everything there is at `end`, for one that is not at `start`


class Projection(Protocol):  # decision 19
    def take(self, step: Step) -> None:
        """Called on the checkpoints' thread once the index holds the step. Deals with its own failures."""


def changed_definitions(changes: StateChanges) -> list[Definition]:
    """What of a checkpoint's changes is projected."""
    return [Definition(kind, key, value) for (kind, key), (_, _, value) in changes.newest.items() if kind in PROJECTED]


def whole_definitions(scan: Callable[[int], Iterable[tuple[bytes, bytes]]]) -> Iterator[Definition]:
    """All definitions, from a scan of every key of a kind."""
    for kind in sorted(PROJECTED):
        for key, value in scan(kind):
            yield Definition(kind, key, value)
