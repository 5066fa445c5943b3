"""The one look-up per message: raw address as the door received it -> placement. Bounded, oldest out first."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gatehouse.kernel.message import Placement

PLACES_MAX: Final = 65536      # addresses remembered per principal and door; about 40 MiB when all are long


class PlacementCache:  # decision 95
    """What one principal has been allowed to publish to through one door.

    `places` is read directly by the codecs: a hit is a verdict and a placement in one dictionary access. It is only
    ever changed in place, so a codec may hold on to it. Only allowed addresses are in it.
    """

    __slots__ = ("__weakref__", "_places_max", "places")

    def __init__(self, places_max: int = PLACES_MAX) -> None:
        self.places: dict[bytes, Placement] = {}
        self._places_max = places_max

    def remember(self, raw: bytes, placement: Placement) -> None:
        """Keep `placement` for `raw`, forgetting the address that has been known longest if there are too many."""
        places = self.places
        if len(places) >= self._places_max and raw not in places:
            del places[next(iter(places))]
        places[raw] = placement

    def clear(self) -> None:
        self.places.clear()
