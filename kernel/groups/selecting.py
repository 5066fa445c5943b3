"""Groups that want a part of their messages: what their selectors say. The rest counts as settled."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.groups.policy import Policy
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.record import read_headers
from gatehouse.kernel.selectors.selector import parse_selector
from gatehouse.kernel.state.topics import Topics

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.prefetcher import Prefetcher, Verdict


class Selectors:
    """`names` are those without quotes that mean a header of another name, as doors call it."""

    def __init__(self, names: Mapping[str, str], topics: Topics, routes: Routes) -> None:
        self._names = names
        self._topics = topics
        self._routes = routes

    def check(self, text: str) -> None:
        """Raises InvalidSelector."""
        if text:
            parse_selector(text, self._names)

    def wants(self, text: str) -> Callable[[Leased], bool] | None:
        """Whether a message is wanted; None where all are. Raises InvalidSelector."""
        if not text:
            return None
        selector = parse_selector(text, self._names)
        reads_address = selector.reads_address

        def wanted(message: Leased) -> bool:
            (partition_id, _, _), _, _, _, timestamp_ms, key, value, headers, _ = message
            topic_partition = self._topics.of_partition(partition_id)
            topic = topic_partition[0].name if topic_partition is not None else ""
            try:
                address = self._routes.address_of(topic, key, read_headers(headers, 0)[0]) if reads_address else ""
                return selector.matches_encoded(headers, key, address, topic, timestamp_ms, value)
            except CorruptBatch:          # a producer wrote headers that make no sense
                return False

        return wanted


class Selecting(Policy):
    """One group's. Raises InvalidSelector."""

    def __init__(self, selectors: Selectors, group: LeasedGroup) -> None:
        self._selectors = selectors
        self._group = group
        self.on_configured()

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        if self._wants is None:
            return messages
        wanted: list[Leased] = []
        for message in messages:
            if self._wants(message):
                wanted.append(message)
            else:
                verdict.settle(message)
        return wanted

    def on_configured(self) -> None:
        self._wants = self._selectors.wants(self._group.settings.selector)
        self.judges_plain = self._wants is not None
