"""Where a message goes that was taken earlier and enters a partition now: topics may have come and gone in between.

What has nowhere to go, as its topic is gone and may not be made by use or by its sender, goes to `unrouted`: it was
acknowledged and must not be lost.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import KernelError, Stopping, UnknownPartition
from gatehouse.kernel.message import Placement
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.scheduling.records import Pending
from gatehouse.kernel.write.appending import Appending

PLACES: Final = 10_000                    # placements remembered

Name = tuple[str, str, bytes | None, int, bool, bool]


def _name(one: Pending) -> Name:
    """What names a message's place: messages of one name go to one place while no topic changes."""
    to = one.topic if one.fixed_topic else one.address
    return one.tenant, to, one.key, one.partition, one.fixed_topic, one.may_create


class Destinations:  # decision 38
    def __init__(self, parts: Parts, appending: Appending) -> None:
        self._parts = parts
        self._appending = appending
        self._placements: dict[Name, Placement] = {}
        self._placed_by = -1                             # version of the topics

    def of(self, one: Pending) -> Placement:
        """Where it goes as things are now, or to `unrouted`. Raises Stopping."""
        try:
            placement = self._remembered(one)
            if placement.version != placement.first_level.version:
                self._appending.refresh(placement)
        except Stopping:
            raise
        except KernelError:
            placement = self._parts.places.place_unrouted(one.address, one.tenant)
            self._appending.refresh(placement)
        return placement

    def _remembered(self, one: Pending) -> Placement:
        if one.to_queue or one.routed is not None:  # other messages to its address may go elsewhere
            return self._place(one)
        version = self._parts.topics.version
        if version != self._placed_by or len(self._placements) >= PLACES:
            self._placements.clear()
            self._placed_by = version
        placement = self._placements.get(_name(one))
        if placement is None:
            placement = self._placements[_name(one)] = self._place(one)
        return placement

    def _place(self, one: Pending) -> Placement:
        places = self._parts.places
        if one.to_queue:
            return places.place_again(one.tenant, one.topic, one.partition, one.key)
        if one.routed is not None:
            return places.place_routed(one.address, one.routed, one.tenant, one.may_create)
        if not one.fixed_topic:
            return places.place(one.address, one.tenant, one.may_create)
        partition = one.partition if one.partition >= 0 else None
        try:
            return places.place_in(one.topic, one.key, partition, one.tenant, one.may_create)
        except UnknownPartition:                     # the topic was made anew, with fewer partitions
            return places.place_in(one.topic, one.key, None, one.tenant, one.may_create)
