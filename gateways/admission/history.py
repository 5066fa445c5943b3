"""What is stored of the addresses that a filter matches, for whoever may consume the filter. Made by `Guard.history`.

A door reads it partition by partition, each from an offset on. The right to the filter is asked for with each read, so
one that is taken away ends the reading.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter
from gatehouse.kernel.errors import OffsetOutOfRange, UnknownPartition
from gatehouse.kernel.records.batch import sound_records

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.api import KernelPort
    from gatehouse.kernel.message import Fetched, Record
    from gatehouse.kernel.state.topics import Topic


class Stretch(NamedTuple):
    """What a read has found in one partition."""

    partition_id: int
    topic: str
    records: list[tuple[str, Record]]
    """Those that match, in order, with their addresses."""

    next_offset: int
    """Where the next read of the partition begins."""

    error: Exception | None
    """Why it could not be read; what retention has taken is none."""


class FilterHistory:
    """One filter's. `partly`: whoever may consume some of it is told of that. Raises InvalidFilter, Denied; so does
    every call."""

    def __init__(self, guard: Guard, port: KernelPort, filter_text: str, partly: bool) -> None:
        self._guard: Final = guard
        self._partly: Final = partly
        self._port: Final = port
        self._filter: Final = filter_text
        self._pattern: Final = parse_filter(filter_text)
        self._topics: dict[int, Topic] = {}

    def partitions(self) -> dict[int, Topic]:
        """The partitions that can hold what matches, as they are now."""
        self._require()
        self._topics = {partition_id: topic for topic in self._port.topics_for(self._filter, self._guard.tenant)
                        for partition_id in topic.partition_ids()}
        return self._topics

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """(log start offset, high watermark) of one of them."""
        return self._port.bounds(partition_id)

    def next_offset(self, partition_id: int) -> int:
        """The offset of what is appended next, behind all that is on its way to the disk."""
        return self._port.next_offset(partition_id)

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_for_time`."""
        self._require()
        self._port.offset_for_time(partition_id, timestamp_ms, on_done)

    def read(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Stretch]], None]) -> None:
        """What matches in these partitions, (partition id, offset, max_bytes) each, and has not expired."""
        self._require()
        begins = {partition_id: offset for partition_id, offset, _ in wants}
        self._port.fetch(wants, max_bytes,
                         lambda answers: on_done([self._stretch(answer, begins[answer.partition_id])
                                                  for answer in answers]), False)

    def _require(self) -> None:
        self._guard.require_some(self._filter, self._partly)

    def _stretch(self, answer: Fetched, begin: int) -> Stretch:
        partition_id, topic = answer.partition_id, self._topics.get(answer.partition_id)
        if topic is None or isinstance(answer.error, UnknownPartition):       # deleted meanwhile: nothing is left of it
            return Stretch(partition_id, "", [], begin, UnknownPartition(f"there is no partition {partition_id}"))
        if isinstance(answer.error, OffsetOutOfRange):
            return Stretch(partition_id, topic.name, [], max(begin, answer.log_start_offset), None)
        if answer.error is not None:
            return Stretch(partition_id, topic.name, [], begin, answer.error)
        reached = max([piece.first_offset + piece.count for piece in answer.pieces],
                      default=max(begin, answer.next_offset))
        may_all = self._guard.may_consume(self._filter)
        matching: list[tuple[str, Record]] = []
        for record in [record for piece in answer.pieces for record in sound_records(piece)]:
            if record[0] < begin:
                continue
            address = self._port.address_of(topic.name, record[2], record[4])
            if (matches(self._pattern, levels_of(address)) and (may_all or self._guard.may_consume(address))
                    and not self._guard.has_expired(record, topic.name)):
                matching.append((address, record))
        return Stretch(partition_id, topic.name, matching, reached, None)
