"""Dead letters of half messages that nobody decided about: what those to one place have in common is made once.

They go to the dead-letter queue of the group that was to be asked, and say where each was to go. Hot.
"""
from __future__ import annotations

import json
from typing import Any, Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.groups.dead_lettering import HEADER, DeadLetters, deaths_of, with_history
from gatehouse.kernel.halves.half_records import Row, pending_in
from gatehouse.kernel.message import RETAIN, Message, Placement
from gatehouse.kernel.records.record import add_header, encode_header, read_headers
from gatehouse.kernel.scheduling.schedule_records import Pending

PUBLISHED: Final = ~RETAIN

Way = tuple[Placement, bytes, int]
"""From a place to the dead letters: the partition, the headers that are new, encoded, and how many these are."""


class Letters:
    """Makes dead letters of one transaction's half messages: `death` says how it ended. Raises Stopping."""

    def __init__(self, dead_letters: DeadLetters, group: str, tenant: str, death: dict[str, Any]) -> None:
        self._dead_letters = dead_letters
        self._group = group
        self._queue = dead_letters.own_queue(group, tenant)
        self._death = death
        self._ways: dict[bytes, Way] = {}

    def of(self, rows: list[Row]) -> list[Message]:
        """What these become."""
        messages: list[Message] = []
        for place, value, headers, attributes, timestamp_ms in rows:
            way = self._ways.get(place)
            if way is None:
                way = self._ways[place] = self._way(pending_in(place))
            to, extra, extra_count = way
            if headers.find(HEADER) >= 0 or headers.find(ADDRESS_HEADER) >= 0:
                encoded = self._once_more(pending_in(place), headers)
            else:
                encoded = add_header(headers, extra, extra_count)
            messages.append((to, value, encoded, attributes & PUBLISHED, timestamp_ms))
        return messages

    def _way(self, what: Pending) -> Way:
        extra = encode_header(HEADER, json.dumps([{**self._where(what), **self._death}]).encode())
        to = self._dead_letters.place(self._queue, what.key)
        if what.to_queue:
            return to, extra, 1
        return to, encode_header(ADDRESS_HEADER, what.address.encode()) + extra, 2

    def _where(self, what: Pending) -> dict[str, Any]:
        """It was to go."""
        topic = "" if what.to_queue else what.topic
        return {"group": self._group, "topic": topic, "partition": what.partition, "offset": -1,
                "address": what.address}

    def _once_more(self, what: Pending, headers_encoded: bytes) -> bytes:
        """With what it has died of before, and one address."""
        headers = list(read_headers(headers_encoded, 0)[0])
        if not what.to_queue:
            headers = [header for header in headers if header[0] != ADDRESS_HEADER]
            headers.append((ADDRESS_HEADER, what.address.encode()))
        return with_history(headers, [*deaths_of(headers_encoded), {**self._where(what), **self._death}])
