"""What the links of a hub owe, messages that the hub at their other end does not have yet: kept beyond retention, up to
a bound, and counted.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gatehouse.kernel.message import SHOWN_ORIGIN
from gatehouse.kernel.retention.holders import NONE_NEEDED, Stretch
from gatehouse.kernel.state.state import Kind
from gatehouse.relay.picking import is_own
from gatehouse.relay.positions import HubPartition, decode_sent

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort
    from gatehouse.kernel.message import Headers
    from gatehouse.kernel.state.topics import Topic
    from gatehouse.relay.link import Link


class Owed:
    """A `kernel.retention.holders.Holder`, and what `kernel.journeys` asks of links. `most`: messages of one partition
    that are kept."""

    def __init__(self, kernel: LinkPort, links: dict[str, Link], most: int, now_ms: Callable[[], int]) -> None:
        self._kernel = kernel
        self._links = links
        self._most = most
        self._now_ms = now_ms
        self._held_from: dict[int, int] = {}

    # ---- retention

    def needed(self, partition_id: int, start: int, stop: int) -> Iterable[Stretch]:
        """See `Holder`."""
        first = self._first_owed(partition_id)
        if first < stop:
            self._held_from.setdefault(partition_id, max(first, start))
            yield max(first, start), stop

    def first_needed(self, partition_id: int) -> int:
        """See `Holder`; it never falls, whatever is rewound."""
        first = max(self._first_owed(partition_id), self._held_from.get(partition_id, 0))
        if first >= self._kernel.bounds(partition_id)[1]:
            self._held_from.pop(partition_id, None)
            return NONE_NEEDED
        self._held_from[partition_id] = first
        return first

    def forget_sent(self) -> None:
        """What is kept and owed no more goes. Called now and then."""
        for partition_id in list(self._held_from):
            self._kernel.forget_kept(partition_id)

    def _first_owed(self, partition_id: int) -> int:
        """The first offset of a partition that some link has not sent, within the bound."""
        of = self._kernel.topic_of(partition_id)
        if of is None:
            return NONE_NEEDED
        topic, partition = of
        first = NONE_NEEDED
        for link in self._links.values():
            if link.settings.tenant == topic.tenant and self._may_send(link, topic):
                first = min(first, self._noted(link, topic, partition))
        high = self._kernel.bounds(partition_id)[1]
        return first if first == NONE_NEEDED else max(first, high - self._most)

    def _may_send(self, link: Link, topic: Topic) -> bool:
        """Whether messages of a topic may go over a link, as far as this hub knows by itself."""
        return not is_own(topic.name) and link.sends.may_lie_in(topic.name, self._kernel.route_entries)

    # ---- how much

    def lag(self, link: Link) -> tuple[int, int]:
        """Messages that the other hub does not have yet, what is kept for it beyond retention among them; and for how
        long, in ms, the oldest letter is on its way, or the link is down while there are such."""
        said_ms = link.down_since_ms if link.outgoing is None else link.outgoing.oldest_said_ms
        messages, outgoing = 0, link.outgoing
        for topic in self._kernel.topics(link.settings.tenant):
            if outgoing.sends(topic) if outgoing is not None and outgoing.ready else self._may_send(link, topic):
                for partition in range(topic.partitions):
                    start, high = self._kernel.bounds(topic.partition_id(partition))
                    start = min(start, high - self._most)
                    messages += max(high - max(self._sent(link, topic, partition), start), 0)
        return messages, self._now_ms() - said_ms if said_ms and messages else 0

    def passed_on(self, topic: Topic, partition: int, offset: int, address: str, headers: Headers
                  ) -> list[tuple[str, bool]]:
        """See `kernel.journeys.looking.Links`."""
        came = next((value or b"" for name, value in headers if name == SHOWN_ORIGIN), b"")
        return [(name, offset < self._sent(link, topic, partition)) for name, link in sorted(self._links.items())
                if link.settings.tenant == topic.tenant and link.sends.match(address)
                and not came.startswith(link.peer.hub.hex().encode())]

    def _sent(self, link: Link, topic: Topic, partition: int) -> int:
        """Up to where the other hub has a partition."""
        stream = None if link.outgoing is None else link.outgoing.streams.get(topic.uuid)
        reading = None if stream is None else stream.readings.get(partition)
        return self._noted(link, topic, partition) if reading is None else reading.stored

    def _noted(self, link: Link, topic: Topic, partition: int) -> int:
        """Up to where the other hub has a partition, as far as that is in our log."""
        value = self._kernel.link_state(Kind.SENT, HubPartition(link.peer.hub, topic.uuid, partition).encoded())
        return 0 if value is None else decode_sent(value).next
