"""What a group's selector says of a message that could be leased."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.record import read_headers
from gatehouse.kernel.selectors.selector import parse_selector
from gatehouse.kernel.state.topics import Topics


class Selecting:
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
            cursor, _, _, _, timestamp_ms, key, value, headers, _ = message
            topic_partition = self._topics.of_partition(cursor.partition_id)
            topic = topic_partition[0].name if topic_partition is not None else ""
            try:
                address = self._routes.address_of(topic, key, read_headers(headers, 0)[0]) if reads_address else ""
                return selector.matches_encoded(headers, key, address, topic, timestamp_ms, value)
            except CorruptBatch:          # a producer wrote headers that make no sense
                return False

        return wanted
