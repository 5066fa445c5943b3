"""Where a message goes that was taken earlier and enters a partition now: topics may have come and gone in between.

What has nowhere to go, as its topic is gone and may not be made by use or by its sender, goes to `unrouted`: it was
acknowledged and must not be lost.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.errors import KernelError, Stopping, UnknownPartition
from gatehouse.kernel.message import Message, Placement
from gatehouse.kernel.scheduling.schedule_records import Pending
from gatehouse.kernel.state.topics import Topics

PLACES: Final = 10_000                    # placements remembered

Name = tuple[str, str, bytes | None, int, bool, bool]


def _name(pending: Pending) -> Name:
    """What names a message's place: messages of one name go to one place while no topic changes."""
    to = pending.topic if pending.fixed_topic else pending.address
    return pending.tenant, to, pending.key, pending.partition, pending.fixed_topic, pending.may_create


class Destinations:  # decision 38
    def __init__(self, places: Places, topics: Topics) -> None:
        self._places = places
        self._topics = topics
        self._placements: dict[Name, Placement] = {}
        self._placed_by = -1                             # version of the topics

    def of(self, pending: Pending) -> Placement:
        """Where it goes as things are now, or to `unrouted`. Raises Stopping."""
        try:
            placement = self._remembered(pending)
            if placement.version != placement.first_level.version:
                self._places.refresh(placement)
        except Stopping:
            raise
        except KernelError:
            placement = self._places.place_unrouted(pending.address, pending.tenant)
            self._places.refresh(placement)
        return placement

    def choose(self, message: Message) -> Message:
        """The message with the placement of just the queues that it enters, where that depends on it."""
        return self._places.choose([message])[0] if message[0].choosing else message

    def _remembered(self, pending: Pending) -> Placement:
        if pending.to_queue or pending.routed is not None:  # other messages to its address may go elsewhere
            return self._place(pending)
        version = self._topics.version
        if version != self._placed_by or len(self._placements) >= PLACES:
            self._placements.clear()
            self._placed_by = version
        placement = self._placements.get(_name(pending))
        if placement is None:
            placement = self._placements[_name(pending)] = self._place(pending)
        return placement

    def _place(self, pending: Pending) -> Placement:
        places = self._places
        if pending.to_queue:
            return places.place_again(pending.tenant, pending.topic, pending.partition, pending.key)
        if pending.routed is not None:
            return places.place_routed(pending.address, pending.routed, pending.tenant, pending.may_create)
        if not pending.fixed_topic:
            return places.place(pending.address, pending.tenant, pending.may_create)
        partition = pending.partition if pending.partition >= 0 else None
        try:
            return places.place_in(pending.topic, pending.key, partition, pending.tenant, pending.may_create)
        except UnknownPartition:                     # the topic was made anew, with fewer partitions
            return places.place_in(pending.topic, pending.key, None, pending.tenant, pending.may_create)
