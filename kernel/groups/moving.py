"""Moves messages that were taken from a queue to another queue or an address: settled here and stored there in one
frame.

The copy has the message's id, key, value and headers; its attempts begin anew. In a queue it keeps its priority, as far
as that queue has one, and what its door keeps for itself; in a topic it is a message like any other.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.errors import InvalidQueue, KernelError
from gatehouse.kernel.groups.core import Core
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.message import RETAIN, Handle, Leased, Message, Placement
from gatehouse.kernel.records.record import encode_headers, public_headers
from gatehouse.kernel.write.pending_frame import check

if TYPE_CHECKING:
    from gatehouse.kernel.groups.queues import Queues


class Moving:
    """For the calls of `Groups`."""

    def __init__(self, core: Core, queues: Queues, places: Places) -> None:
        self._core = core
        self._queues = queues
        self._places = places

    # decision 192: a copy in the frame that settles
    def move(self, queue: Queue, leases: list[Leased], to: str, may_create: bool, maker: str
             ) -> list[KernelError | None]:
        """Send these messages, leased from the queue, to the address `to`. Answers for each why it stays leased. Raises
        what the address is refused for, and Stopping."""
        placement = self._places.place(to, queue.tenant, may_create, maker)
        target = placement.queue if isinstance(placement.queue, Queue) else None
        if target is not None and target.first_partition_id == queue.first_partition_id:
            raise InvalidQueue("a queue's messages cannot be moved to that queue")
        group = self._queues.group_of(queue)
        pending_frame = self._core.open_frame()
        results, _ = group.good_handles([leased[:3] for leased in leases])
        gone: list[Handle] = []
        for number, leased in enumerate(leases):
            if results[number] is not None:
                continue
            message = self._message(queue, leased, placement, target)
            try:
                if check([message], self._places.refresh):
                    [message] = self._places.choose([message])
                    self._queues.max_lengths.refuse_full([message])
            except KernelError as error:
                results[number] = error
                continue
            pending_frame.builder.add_copies([message], [leased[3]], None)
            gone.append(leased[:3])
        group.ack(gone)
        return results

    def _message(self, queue: Queue, leased: Leased, placement: Placement, target: Queue | None) -> Message:
        headers, attributes = leased[7], leased[8] & ~RETAIN
        if target is not None:                       # the address that it was published to stays with it
            priority = leased[0][0] - queue.first_partition_id
            return self._places.place_queue(target, priority, leased[5]), leased[6], headers, attributes, leased[4]
        public = [header for header in public_headers(headers)
                  if not placement.address_header or header[0] != ADDRESS_HEADER]       # it is added anew
        return placement, leased[6], encode_headers(tuple(public)), attributes, leased[4]
