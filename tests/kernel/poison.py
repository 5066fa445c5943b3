"""Batches that lie, with a right checksum, and a way into the log for them, as a hub had that looked into no batch."""
from __future__ import annotations

from collections.abc import Sequence

import zstandard

from gatehouse.kernel.records.batch import varint
from gatehouse.kernel.records.compression import ZSTD
from gatehouse.kernel.state.topics import Topic, TopicSettings
from tests.kernel.batches import encode_record, wrap
from tests.kernel.rig import Rig

CLAIMED = 2_000_000_000
SENSELESS = varint(10) + b"\0\0\0" + varint(200) + b"a key"      # a length that holds, around one that does not
ENDLESS = b"\xfe\xff\xff\xff\x0f"                               # a length beyond everything


def packed(records: bytes, count: int, **header: int) -> bytes:
    """A compressed batch that claims so many records."""
    return wrap(zstandard.ZstdCompressor().compress(records), count, codec=ZSTD, **header)


def numbered(count: int, first: int = 0) -> bytes:
    """Sound records with the values 0, 1, ..."""
    return b"".join(encode_record(first + i, b"k", b"%d" % (first + i)) for i in range(count))


def lying(count: int = 10, claimed: int = CLAIMED) -> bytes:
    """Ten records that are said to be two milliards."""
    return packed(numbered(count), claimed)


def broken_in_the_middle(bad: bytes, around: int = 3) -> bytes:
    """Sound records, one that is not, and sound ones again."""
    return packed(numbered(around) + bad + numbered(around, around + 1), 2 * around + 1)


def huge_in_the_middle(size: int) -> bytes:
    """As above; the one in the middle is larger than any topic takes."""
    return broken_in_the_middle(encode_record(3, b"k", bytes(size)))


def lying_deltas() -> bytes:
    """Three records that all say they were the first."""
    return packed(b"".join(encode_record(0, b"k", b"%d" % i) for i in range(3)), 3)


def garbage() -> bytes:
    """What does not decompress."""
    return wrap(b"this is not zstd at all", 5, codec=ZSTD)


def topic_of(rig: Rig, name: str = "plant", **settings: int) -> Topic:
    """One with a single partition."""
    topic = rig.kernel.create_topic(name, partitions=1, settings=TopicSettings(**settings))    # type: ignore[arg-type]
    rig.run()
    return topic


def store(rig: Rig, topic: Topic, batch: bytes, count: int, max_ms: int = 1000) -> None:
    """Put a batch into the log as it is, below every check, and tell who listens."""
    committer = rig.kernel.committer
    pending_frame = committer.open_frame()
    run = pending_frame.builder.add_batch(topic.partition_id(0), batch, count, max_ms)
    if rig.kernel.deliveries.listens(topic):
        pending_frame.builder.heard.append((None, [], run, 0))
    committer.note_size()
    rig.run()


def store_all(rig: Rig, topic: Topic, batches: Sequence[tuple[bytes, int]]) -> None:
    for batch, count in batches:
        store(rig, topic, batch, count)
