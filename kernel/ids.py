"""Ids that are given once and never again, and the shard that gave them. And what a hub is known by.

    bit 63    62 ... 53    52 ... 0
    zero      shard        number

Message, topic, partition and producer ids, the epochs of cursors and the numbers of connections are such ids. The hub
keeps the number of its shard in its log from its first start on (0, as long as a hub stands alone), and each sequence
of ids begins at `first_id` of it. So two shards of a later cluster never give the same id, and whoever holds an id
knows whom to ask. Shard 0 has the numbers as they are, and JSON has ids as text.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

# decision 155
SHARD_BITS: Final = 10
NUMBER_BITS: Final = 53
"""What a double holds exactly. With the shard an id is positive in every 64-bit column: SQL, Kafka, Parquet."""


class ForeignShard(Exception):
    """A log holds ids of another shard than its hub's: it was put together from the logs of two."""


def first_id(shard: int) -> int:
    """The lowest id that a shard may give; it gives none below, and none from the next shard's on."""
    assert 0 <= shard < 1 << SHARD_BITS, f"there is no shard {shard}"
    return shard << NUMBER_BITS


def shard_of(given_id: int) -> int:
    """The shard that gave an id."""
    return given_id >> NUMBER_BITS


def shards_of(given_ids: Collection[int]) -> set[int]:
    """The shards of the lowest and of the highest of these ids: one and the same shard where it gave all of them."""
    return {shard_of(min(given_ids)), shard_of(max(given_ids))} if given_ids else set()


def check_shards(shards: Iterable[int], shard: int) -> None:
    """Raises ForeignShard where one of `shards`, who gave the ids in a log, is another than the hub's."""
    foreign = set(shards) - {shard}
    if foreign:
        raise ForeignShard(f"its log is that of shard {shard}, and has ids that shard {min(foreign)} gave")


# --- what a hub is known by ---------------------------------------------------------------------------------------

class Identity:
    """A hub's own numbers, given once and kept in its log, and the number of this start.

    Until `begin` they are what a new log would be given; from there on what the log says.
    """

    def __init__(self, hub: bytes, secret: bytes, shard: int) -> None:
        self.hub = hub
        """Whose log this is, 16 bytes."""

        self.secret = secret
        """What signs receipt handles, 32 bytes."""

        self.shard = shard
        """Who gives the ids of this hub, see `kernel.ids`."""

        self.epoch = 0
        """Which start of the hub this is."""

        self.first_id = 0
        """All message ids of earlier starts are below."""

    def begin(self, *, hub: bytes, secret: bytes, shard: int, epoch: int, first_id: int) -> None:
        """A start is over: this is what holds until the next one."""
        self.hub, self.secret, self.shard, self.epoch, self.first_id = hub, secret, shard, epoch, first_id
