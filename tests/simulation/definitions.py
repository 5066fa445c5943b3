"""Topics and committed offsets: what they may be after a crash.

The log is one line of changes, and a crash cuts it somewhere behind the last acknowledged one. So what is found must be
what was there after some change, not before the last that was acknowledged.
"""
from __future__ import annotations

from typing import Generic, TypeVar

from tests.simulation.checker import Broken

T = TypeVar("T")


class History(Generic[T]):
    """The states that something went through since it was last known for sure."""

    def __init__(self, what: str, first: T) -> None:
        self._what = what
        self._states = [first]
        self._settled = 0            # number of the first state in the list
        self._durable = 0            # number of the last state that was acknowledged

    @property
    def newest(self) -> T:
        return self._states[-1]

    @property
    def mark(self) -> int:
        """Number of the newest state: give it to `acknowledged` once something that came after it is."""
        return self._settled + len(self._states) - 1

    def note(self, state: T) -> None:
        if state != self._states[-1]:
            self._states.append(state)

    def acknowledged(self, mark: int) -> None:
        self._durable = max(self._durable, mark)

    def found(self, state: T) -> None:
        """After a crash or a refusal: it must be one of the states, and is known for sure now."""
        possible = self._states[max(0, self._durable - self._settled):]
        if state not in possible:
            raise Broken(f"{self._what}: found {state!r}, possible were {possible!r}")
        self._settled = self.mark + 1
        self._durable = self._settled
        self._states = [state]
