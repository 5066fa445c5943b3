"""What of a segment somebody may still need, and how it is cut out. Everything here runs on the checkpoint's thread.

    scan      which records of partitions are in the segment, which of its state records are the newest of their key
    cut       those state records, and the records of partitions that are needed, one after the other, as state

Of compacted topics the newest LATEST records say what is needed; of everything else, the kernel's thread is asked
between the two.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.kept import (
    Latest,
    decode_latest,
    kept_key,
    latest_key,
    partition_of,
    split_kept_key,
)
from gatehouse.kernel.log.log import Damage, Log, Segment, is_kept
from gatehouse.kernel.message import WHOLE, Entries, Piece, Record, StateRecord, decode_head
from gatehouse.kernel.records import inline
from gatehouse.kernel.records.batch import records_of, sound_records
from gatehouse.kernel.records.opened import parts_of
from gatehouse.kernel.retention.compaction import outlived
from gatehouse.kernel.retention.holders import Stretch, joined, within
from gatehouse.kernel.state.state import Ages, Kind, Watermarks
from gatehouse.kernel.state.topics import Topics

Needed = dict[int, list[Stretch]]
"""By partition id, joined."""

Name = tuple[int, bytes]
"""Kind and key of a state record."""


class SegmentScan(NamedTuple):
    """What a segment holds."""

    segment: Segment
    spans: dict[int, Stretch]              # by partition, what lies between its first and its last record in it
    newest: dict[Name, int]                # state records that are the newest of their key, with their order
    kept: list[Name]                       # those of them that are KEPT: somebody has to say that he needs them still
    outlived: list[Name]                   # those of them that nobody needs, whatever anybody says
    latest: Needed                         # what compacted topics want
    names: list[Name]                      # keys of every state record in it


class SegmentScanner:
    """`max_record_bytes` says how large a record of a partition may be."""

    def __init__(self, *, log: Log, index: Index, watermarks: Watermarks, topics: Topics,
                 max_record_bytes: Callable[[int], int], on_damage: Callable[[Damage], None]) -> None:
        self._log = log
        self._index = index
        self._watermarks = watermarks
        self._topics = topics
        self._max_record_bytes = max_record_bytes
        self._on_damage = on_damage

    # ---- scan

    def scan(self, segment: Segment, ages: Ages) -> SegmentScan:
        scan = SegmentScan(segment, {}, {}, [], [], {}, [])
        for frame in self._log.heads(segment):
            head = decode_head(frame.head)
            _note_spans(scan.spans, head.entries)
            for record in head.state:
                name = (record.kind, record.key)
                scan.names.append(name)
                held = self._index.held(*name)
                if held is not None and held.home == frame.position:
                    scan.newest[name] = held.order
                    if held.value is not None:
                        self._note_owed(scan, name, held.value, ages)
        for partition_id, stretches in scan.latest.items():
            scan.latest[partition_id] = joined(stretches)
        return scan

    def _note_owed(self, scan: SegmentScan, name: Name, value: bytes, ages: Ages) -> None:
        """Look at a newest record that says that a record of a partition is needed, or is one."""
        kind, key = name
        if kind == Kind.LATEST:
            latest = decode_latest(value)
            partition_id = partition_of(key)
            if outlived(self._topics, key, latest, self._watermarks.next_offset(partition_id), ages):
                scan.outlived.append(name)
            elif not scan.segment.is_kept:
                scan.latest.setdefault(partition_id, []).append((latest.offset, latest.offset + 1))
        elif kind == Kind.KEPT and self.latest_of_kept(key, value) is None:
            scan.kept.append(name)

    def latest_of_kept(self, key: bytes, value: bytes) -> Latest | None:
        """The LATEST record that needs this kept record, if there is one."""
        partition_id, offset = split_kept_key(key)
        if not self._topics.is_compacted(partition_id):
            return None
        record = records_of(inline.piece_of(value, offset))[0]
        held = self._index.held(Kind.LATEST, latest_key(partition_id, record[2]))
        latest = None if held is None or held.value is None else decode_latest(held.value)
        return latest if latest is not None and latest.offset == offset else None

    # ---- cut

    def cut(self, scan: SegmentScan, needed: Needed, unneeded: set[Name]) -> Iterator[StateRecord]:  # decision 14
        """Records for the kept chain. What a checkpoint has replaced or deleted since the scan stays behind."""
        for name, order in scan.newest.items():
            if name not in unneeded:
                held = self._index.held(*name)
                if held is not None and held.order == order:
                    assert not is_kept(order), "what is moved was first in the main chain"
                    yield StateRecord(name[0], name[1], held.value, order)
        if not scan.segment.is_kept and needed:
            for frame in self._log.heads(scan.segment):
                head = decode_head(frame.head)
                yield from self._cut_entries(frame.position, head.append_ms, head.entries, needed)

    def _cut_entries(self, position: int, append_ms: int, entries: Entries, needed: Needed) -> Iterator[StateRecord]:
        for i, partition_id in enumerate(entries.partition_id):
            stretches = needed.get(partition_id)
            first, count = entries.first_offset[i], entries.count[i]
            here = within(stretches, first, first + count) if stretches is not None else []
            for record in self._open(position, append_ms, entries, i) if here else ():
                assert first <= record[0] < first + count, "a record has an offset of its entry"
                key = kept_key(partition_id, record[0])
                if within(here, record[0], record[0] + 1) and self._index.held(Kind.KEPT, key) is None:
                    yield StateRecord(Kind.KEPT, key, inline.of_record(record, append_ms), position)

    def _open(self, position: int, append_ms: int, entries: Entries, i: int) -> Iterator[Record]:
        """The records of one entry. Those that cannot be read are lost, and reported; those that make no sense are
        owed to nobody."""
        at, size = entries.byte_offset[i], entries.byte_length[i]
        data, = self._log.read([(position, at, size)])
        if crc32c(data) == entries.crc[i]:
            whole = Piece(entries.first_offset[i], entries.count[i], bool(entries.flags[i] & WHOLE), data, append_ms,
                          entries.max_ms[i], entries.message_id[i])
            for part in parts_of(whole, self._max_record_bytes(entries.partition_id[i])):
                yield from sound_records(part)
        else:
            self._on_damage(Damage.of_body(position, at, size, f"what is owed of partition {entries.partition_id[i]} "
                                           "cannot be kept: does not match its checksum"))


def _note_spans(spans: dict[int, Stretch], entries: Entries) -> None:
    for partition_id, first, count in zip(entries.partition_id, entries.first_offset, entries.count, strict=True):
        span = spans.get(partition_id)
        spans[partition_id] = (first, first + count) if span is None else (
            min(span[0], first), max(span[1], first + count))
