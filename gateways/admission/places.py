"""The one look-up per message: the address as the door received it -> its place. Bounded, oldest out first."""
from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final
from weakref import finalize

if TYPE_CHECKING:
    from gatehouse.kernel.api import KernelPort
    from gatehouse.kernel.message import Judge

PLACES_MAX: Final = 65536      # addresses remembered per principal and door; about 40 MiB when all are long


LEAVING: Final = 10_000
"""Numbers that are forgotten together, behind so many newer ones: a body of HTTP may name as many addresses before the
first of them is appended (`max_request_messages`, unless it is set higher). See GivenPlaces."""


class GivenPlaces:  # decision 95
    """The places that one principal was given on one door, as numbers of the door's port.

    `by_raw` is read directly by the codecs: a hit is a verdict and a place in one dictionary access. It is only ever
    changed in place, so a codec may hold on to it. Only what is allowed is in it.

    A number that falls out is good for some thousand more: messages that were decoded with it may not be appended yet.
    """

    def __init__(self, port: KernelPort, judge: Judge, places_max: int = PLACES_MAX) -> None:
        self.by_raw: dict[bytes, int] = {}
        self.by_name: dict[Hashable, int] = {}
        """By address, or by topic, key and partition."""

        self.guard: Final = port.open_guard(judge)
        self._port = port
        self._places_max = places_max
        self._leaving: list[int] = []
        self._noted: list[int] = []
        finalize(self, port.close_guard, self.guard)

    def remember_raw(self, raw: bytes, place: int) -> None:
        """Keep a place in `by_raw`, forgetting what has been known longest if there are too many."""
        if len(self.by_raw) >= self._places_max and raw not in self.by_raw:
            self._leave(self.by_raw.pop(next(iter(self.by_raw))))
        self.by_raw[raw] = place

    def remember(self, name: Hashable, place: int) -> None:
        """Keep a place in `by_name`, forgetting what has been known longest if there are too many."""
        if len(self.by_name) >= self._places_max and name not in self.by_name:
            self._leave(self.by_name.pop(next(iter(self.by_name))))
        self.by_name[name] = place

    def _leave(self, place: int) -> None:
        self._leaving.append(place)
        if len(self._leaving) >= 2 * LEAVING:
            self._port.forget_places(self.guard, self._leaving[:LEAVING])
            del self._leaving[:LEAVING]

    def note(self, place: int) -> int:
        """A place that its door remembers itself, until `let_go`."""
        self._noted.append(place)
        return place

    def let_go(self) -> None:
        """Whatever is remembered is looked up again; numbers are good for some more, see above."""
        going = [*self.by_raw.values(), *self.by_name.values(), *self._noted]
        self.by_raw.clear()
        self.by_name.clear()
        self._noted.clear()
        if going:
            self._port.forget_places(self.guard, self._leaving)
            self._leaving = going

    def clear(self) -> None:
        """Every number is unknown from now on."""
        self._noted.clear()
        self.by_raw.clear()
        self.by_name.clear()
        self._leaving.clear()
        self._port.forget_places(self.guard, None)
