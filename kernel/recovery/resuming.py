"""A log that was put back from a backup goes on behind everything that its hub may have given out since.

The hub that the backup is of went on: it gave out message ids, numbered its starts, made topics and producer ids,
signed handles. None of that is in the copy, and none may be given out a second time. How far it got is not known; how
long it had is. So the first thing appended to the copy is a frame that leaves out more than any hub can use up in that
time:

    message ids     ROOM_IDS, and IDS_PER_MS for each millisecond since the backup (4 million a second; every start of
                    a hub uses up a million of them, and a hub does not start four times a second)
    starts          ROOM_EPOCHS, and one for each second
    topics, partitions, producers
                    ROOM_COUNTERS, and COUNTERS_PER_MS
    the secret      a new one: a handle from before might name a lease of another message by now. It is refused as one
                    that this hub never gave, and its message comes again when its lease has run out

Putting the same backup back a second time leaves out the more. The clocks of the two machines may differ by as much as
ROOM_IDS allow: 19 hours of ids at 4 million a second.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from gatehouse.kernel.ids import first_id
from gatehouse.kernel.log.log import Damage, Log
from gatehouse.kernel.message import Entries, StateRecord, decode_head, encode_head
from gatehouse.kernel.state.state import Kind

ROOM_IDS: Final = 1 << 38
IDS_PER_MS: Final = 1 << 12
ROOM_EPOCHS: Final = 1 << 10
ROOM_COUNTERS: Final = 1 << 24
COUNTERS_PER_MS: Final = 1 << 7
PAGE_PARTITIONS: Final = 256           # partition ids that share a page of watermarks: none is to hold old and new ones

_COUNTERS = struct.Struct(">QQQ")
_WATCHED: Final = (Kind.COUNTERS, Kind.EPOCH, Kind.HUB, Kind.SECRET, Kind.SHARD, Kind.TOPIC)


class LogSummary(NamedTuple):
    """What a log holds, as far as its heads say."""

    hub: bytes
    epoch: int
    next_id: int
    secret: bytes
    counters: tuple[int, int, int]
    topics: int
    frames: int
    last_ms: int               # when the newest frame was appended


def look_through(log: Log, on_damage: Callable[[Damage], None]) -> LogSummary:
    """Open a log and read all its heads. Raises what `Log.recover` raises."""
    newest: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    next_id, frames, last_ms = 1, 0, 0
    for frame in log.recover(0, 0, on_damage):
        head = decode_head(frame.head)
        frames += 1
        if not frame.is_kept:
            next_id = max(next_id, head.first_id + head.id_count)
            last_ms = max(last_ms, head.append_ms)
        for record in head.state:
            if record.kind in _WATCHED:
                name, order = (record.kind, record.key), record.order or frame.position
                if name not in newest or newest[name][0] <= order:
                    newest[name] = (order, record.value)

    def value(kind: Kind) -> bytes:
        return newest.get((kind, b""), (0, None))[1] or b""

    lowest = first_id(int.from_bytes(value(Kind.SHARD), "big")) + 1
    counters = value(Kind.COUNTERS) or _COUNTERS.pack(lowest, lowest, lowest)
    return LogSummary(
        hub=value(Kind.HUB), epoch=int.from_bytes(value(Kind.EPOCH), "big"), next_id=next_id,
        secret=value(Kind.SECRET), counters=_COUNTERS.unpack(counters),
        topics=sum(kind == Kind.TOPIC and held is not None for (kind, _), (_, held) in newest.items()),
        frames=frames, last_ms=last_ms)


def resume(log: Log, contents: LogSummary, taken_ms: int, now_ms: int, secret: bytes) -> LogSummary:  # decision 109
    """Append the frame that leaves out what may have been given out since `taken_ms`; returns what holds from here on.

    `contents` is what `look_through` gave of this log. Raises LogFull, LogFailed.
    """
    passed_ms = max(0, now_ms - taken_ms)
    counters = counters_behind(contents.counters, ROOM_COUNTERS + passed_ms * COUNTERS_PER_MS)
    after = contents._replace(
        epoch=contents.epoch + ROOM_EPOCHS + passed_ms // 1000, secret=secret, frames=contents.frames + 1,
        last_ms=max(contents.last_ms, now_ms),
        next_id=contents.next_id + ROOM_IDS + passed_ms * IDS_PER_MS,
        counters=counters)
    assert after.next_id > contents.next_id and after.epoch > contents.epoch, "what was given is left behind"
    records = [StateRecord(Kind.EPOCH, b"", after.epoch.to_bytes(4, "big")), StateRecord(Kind.SECRET, b"", secret),
               counters_record(after.counters)]
    log.append(encode_head(after.epoch, after.last_ms, after.next_id, 0, Entries(), records), b"")
    log.sync()
    return after


def counters_behind(counters: tuple[int, int, int], room: int) -> tuple[int, int, int]:
    """Counters (the next ids of topics, partitions and producers) that leave out so many of each."""
    assert room > 0, "nothing would be left out"
    topic_id, partition_id, producer_id = counters
    return topic_id + room, -(-(partition_id + room) // PAGE_PARTITIONS) * PAGE_PARTITIONS, producer_id + room


def counters_record(counters: tuple[int, int, int]) -> StateRecord:
    return StateRecord(Kind.COUNTERS, b"", _COUNTERS.pack(*counters))


def lineage_of(secret: bytes) -> str:
    """Names one course of a hub's history: another one after each time that it was put back. Tells nothing of the
    secret."""
    return blake2b(secret, digest_size=8, person=b"lineage").hexdigest()
