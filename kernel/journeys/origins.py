"""Finds a message that came over a link by its identity at the hub that stored it first, `HUB/ID`.

Nothing is kept in that order, and such a look-up is rare: the newest messages of every topic are read, `MAX_BYTES` of
them, or as many behind a time. A client may write the header that says the identity, too; so whoever wrote the message
to the log must have been a link.
"""
# decision 291
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.journeys.publishers import Publishers
from gatehouse.kernel.message import RELAY, SHOWN_ORIGIN, Fetched, Origin
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.state.state import Watermarks
from gatehouse.kernel.state.topics import Topics

MAX_BYTES: Final = 64 << 20          # that one look-up reads
PART_BYTES: Final = 1 << 20          # of them at a time
NEWEST: Final = 100_000              # messages that are looked at without a time, evenly over the partitions
LEAST: Final = 100                   # of one partition
MAX_PARTITIONS: Final = 20_000
MAX_CLAIMS: Final = 100              # of clients that are looked into


class Came(NamedTuple):
    """Where a message that came over a link lies."""

    message_id: int
    partition_id: int
    offset: int


OnCame = Callable[["Came | None"], None]


class Origins:
    """`journeys_id` is that of the topic that is not looked at."""

    def __init__(self, *, loop: Loop, reader: Reader, topics: Topics, watermarks: Watermarks, publishers: Publishers,
                 journeys_id: Callable[[], int]) -> None:
        self._loop = loop
        self._reader = reader
        self._topics = topics
        self._watermarks = watermarks
        self._publishers = publishers
        self._journeys_id = journeys_id

    def find(self, origin: bytes, tenant: str, first_ms: int, on_done: OnCame) -> None:
        """The message of this identity, looked for from a time on (0: among the newest); None where it is not there."""
        partition_ids = [partition_id for topic in self._topics.of(tenant) if topic.id != self._journeys_id()
                         for partition_id in topic.partition_ids() if self._watermarks.next_offset(partition_id)]
        _Search(self, origin, partition_ids[:MAX_PARTITIONS], first_ms, on_done).go_on()

    def start_of(self, partition_id: int, partitions: int, first_ms: int, on_start: Callable[[int], None]) -> None:
        """From which offset on a partition is looked at."""
        if first_ms:
            self._reader.offset_for_time(partition_id, first_ms, lambda offset, _: on_start(
                self._watermarks.next_offset(partition_id) if offset is None else offset))
            return
        newest = max(LEAST, NEWEST // partitions)
        on_start(max(self._reader.start_of(partition_id), self._watermarks.next_offset(partition_id) - newest))

    def end_of(self, partition_id: int) -> int:
        """The next offset of a partition."""
        return self._watermarks.next_offset(partition_id)

    def read(self, partition_id: int, offset: int, on_read: Callable[[Fetched], None]) -> None:
        """A part of a partition; in a later turn of the loop, so that others are served in between."""
        self._loop.call_soon(partial(self._reader.fetch, [(partition_id, offset, PART_BYTES)], PART_BYTES,
                                     lambda answers: on_read(answers[0])))

    def author_of(self, came: Came, on_author: Callable[[Origin | None], None]) -> None:
        """Who wrote it to the log."""
        self._publishers.find(came.partition_id, came.offset, came.message_id, on_author)


class _Search:
    """One look-up, partition after partition."""

    def __init__(self, origins: Origins, origin: bytes, partition_ids: list[int], first_ms: int, on_done: OnCame
                 ) -> None:
        self._origins = origins
        self._origin = origin
        self._partition_ids = partition_ids
        self._partitions = max(1, len(partition_ids))
        self._first_ms = first_ms
        self._on_done = on_done
        self._left = MAX_BYTES
        self._claims = MAX_CLAIMS

    def go_on(self) -> None:
        """The next partition."""
        if not self._partition_ids or self._left <= 0:
            self._on_done(None)
            return
        partition_id = self._partition_ids.pop()
        self._origins.start_of(partition_id, self._partitions, self._first_ms, partial(self._read, partition_id))

    def _read(self, partition_id: int, offset: int) -> None:
        self._origins.read(partition_id, offset, partial(self._on_read, partition_id, offset))

    def _on_read(self, partition_id: int, offset: int, answer: Fetched) -> None:
        reached = max(answer.next_offset, offset)
        for piece in answer.pieces:
            self._left -= len(piece.data)
            reached = max(reached, piece.first_offset + piece.count)
            if self._origin in piece.data:
                for record in sound_records(piece):
                    if record[0] >= offset and (SHOWN_ORIGIN, self._origin) in record[4]:
                        came = Came(record[6], partition_id, record[0])
                        self._origins.author_of(came, partial(self._on_author, came))
                        return
        if reached > offset and reached < answer.high_watermark and self._left > 0:
            self._read(partition_id, reached)
        else:
            self.go_on()

    def _on_author(self, came: Came, author: Origin | None) -> None:
        if author is not None and author.door == RELAY:
            self._on_done(came)
            return
        self._claims -= 1                    # a client says so
        if self._claims > 0 and came.offset + 1 < self._origins.end_of(came.partition_id):
            self._read(came.partition_id, came.offset + 1)
        else:
            self.go_on()
