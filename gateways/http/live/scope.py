"""Which partitions a stream reads, and which of their messages it shows: one topic's, or those whose address matches.

A topic that does not exist is no partition yet; once it is there, it is read from its beginning. Readers with equal
scopes share one feed.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter

if TYPE_CHECKING:
    from gatehouse.kernel.api import KernelPort
    from gatehouse.kernel.message import Record
    from gatehouse.kernel.selectors.selector import Selector
    from gatehouse.kernel.state.topics import Topic


class Wanted(NamedTuple):
    """What a reader asks for. Equal ones are one stream."""

    tenant: str
    topic: str | None                    # either the name of a topic
    filter: str | None                   # or a filter of addresses
    selector: str                        # text of the condition, "" for none
    cloud_events: bool                   # messages are shown as CloudEvents
    json_values: bool = False            # values that are JSON are shown as such


class Scope:
    """`partitions` maps partition ids to their topic and number in it, as they are since `refresh`. Raises
    InvalidFilter."""

    def __init__(self, port: KernelPort, wanted: Wanted, selector: Selector | None) -> None:
        self.wanted = wanted
        self.partitions: dict[int, tuple[Topic, int]] = {}
        self.topic = ""
        """The one topic that they are of; "" where there are several."""

        self._port = port
        self._selector = selector
        self._pattern = None if wanted.filter is None else parse_filter(wanted.filter)
        self._version = -1
        self.refresh()

    def refresh(self) -> bool:
        """Look at the topics again. True where some partition is gone or new."""
        port = self._port
        if port.topics_version == self._version:
            return False
        self._version = port.topics_version
        before, topics = self.partitions, self._topics()
        self.topic = topics[0].name if len(topics) == 1 else ""
        self.partitions = {partition_id: (topic, number) for topic in topics
                       for number, partition_id in enumerate(topic.partition_ids())}
        return before.keys() != self.partitions.keys()

    def _topics(self) -> list[Topic]:
        wanted = self.wanted
        if wanted.filter is not None:
            return self._port.topics_for(wanted.filter, wanted.tenant)
        topic = self._port.topic(wanted.topic or "", wanted.tenant)
        return [] if topic is None else [topic]

    def shows(self, topic: Topic, record: Record) -> bool:
        """Whether a record of these partitions is one of the stream."""
        pattern, selector = self._pattern, self._selector
        if pattern is None and selector is None:
            return True
        _, timestamp_ms, key, value, headers, _, _ = record
        address = self._port.address_of(topic.name, key, headers)
        if pattern is not None and not matches(pattern, levels_of(address)):
            return False
        return selector is None or selector.matches(headers, key, address, topic.name, timestamp_ms, value)
