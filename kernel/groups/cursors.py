"""The cursors that are in memory: who reads a partition, what of them goes into each frame, and what brings them back.

A cursor is in memory while something of it is leased, waiting or settled out of order, or while its group is used; at a
start those that have pages are loaded, the others when they are first asked for.

They are a `kernel.retention.holders.Holder`, too. Of a queue all that is not settled is needed beyond retention; of a
topic's partition what is leased, waits for its next time or is ready again. What nobody has had of a topic yet goes
with its segment: a group that lags beyond retention has lost it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gatehouse.kernel.groups.core import Core
from gatehouse.kernel.groups.cursor import Cursor, Key, decode_epoch, decode_page_key, encode_epoch, page_key
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.retention.holders import NONE_NEEDED, Stretch
from gatehouse.kernel.state.state import Kind, StateTable, Views, decode_offset, offset_key, offset_record
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.watermarks import Watermarks

LEAVING: Final = 10_000  # partitions whose next start is remembered, before those that have reached it are not
PAUSE_MS: Final = 1_000                # before anything is tried again that a full disk has refused

Pages = dict[tuple[int, str], list[tuple[int, bytes]]]
"""By partition id and group: number and value of every stored page."""


class Cursors:
    """`new_epoch` gives a number that no cursor had before, in this start of the hub or another; `on_committed` is told
    of a partition when the committed offset of a cursor in it is written."""

    def __init__(self, core: Core, reader: Reader, watermarks: Watermarks, topics: Topics, views: Views,
                 state: StateTable, new_epoch: Callable[[], int], on_committed: Callable[[int], None]) -> None:
        self._core = core
        self._reader = reader
        self._watermarks = watermarks
        self._topics = topics
        self._views = views
        self._state = state
        self._new_epoch = new_epoch
        self._on_committed = on_committed
        self.readers: dict[int, list[tuple[LeasedGroup, Prefetcher]]] = {}
        """Who reads a partition, by its id, as far as they are in memory."""

        self._leaving: dict[int, int] = {}                             # by partition id, see `_note_leaving`
        self._loading: Pages = {}                                      # of cursors that are being loaded

    # ---- coming and going

    def add(self, group: LeasedGroup, partition_id: int, committed: int | None = None) -> Prefetcher:
        """The group reads this partition too, from `committed` on, or from where it goes on."""
        if committed is None:
            committed = self.committed(group, partition_id)
        assert partition_id not in group.prefetchers, "a group has one cursor in a partition"
        queue = group.queue
        epoch = 0 if queue is not None else self._stored_epoch(group.name, partition_id)
        cursor = Cursor(partition_id, group.name, committed, group.topic_id, epoch or 0)
        prefetcher = Prefetcher(cursor, self._reader.fetch_kept, self._reader.recent,
                                partial(self._watermarks.next_offset, partition_id),
                                partial(self._start_of, partition_id), self._reader.unreadable,
                                queue is not None and queue.settings.ttl_ms != 0)
        self._check_epoch(cursor)
        group.add(prefetcher)
        self.readers.setdefault(partition_id, []).append((group, prefetcher))
        pages = self._loading.get((partition_id, group.name), ())
        if pages:
            group.on_loaded(prefetcher, cursor.load(pages, prefetcher.end()))
        if cursor.ready(prefetcher.end()):
            group.cursor_ready(prefetcher)
        return prefetcher

    def end(self, group: LeasedGroup) -> None:
        """The group is not there any more."""
        for partition_id, prefetcher in group.prefetchers.items():
            self._core.forget(prefetcher.cursor)
            assert any(reader[0] is group for reader in self.readers[partition_id]), "it was added, and ends once"
            self.readers[partition_id] = [reader for reader in self.readers[partition_id] if reader[0] is not group]
            if not self.readers[partition_id]:
                del self.readers[partition_id]
        group.end()

    def rewind(self, group: LeasedGroup, partition_id: int, offset: int) -> None:
        """The group goes on from this offset, with attempts counted anew. Raises Stopping."""
        prefetcher = group.prefetchers.get(partition_id) or self.add(group, partition_id, offset)
        self._core.untouch(prefetcher.cursor)
        group.rewind(prefetcher, offset, self._new_epoch())

    def write_committed(self, cursor: Cursor) -> None:
        """The pending frame says where the cursor is, wherever it is. Raises Stopping."""
        cursor.write_committed()
        self._core.touch(cursor)

    def group_of(self, key: Key) -> LeasedGroup | None:
        """Whose cursor has this key; None where there is none any more, or it is not in memory: nothing of it is out
        then."""
        for group, prefetcher in self.readers.get(key[0], ()):
            if prefetcher.cursor.key == key:
                return group
        return None

    # ---- where a cursor goes on

    def committed(self, group: LeasedGroup, partition_id: int) -> int:
        """Where a group goes on in a partition as far as is stored; else where it begins."""
        if group.queue is not None:
            return self.committed_in_queue(partition_id)
        commits = self._views.offsets.get(group.name, {})
        if partition_id in commits:
            return commits[partition_id][0]
        if group.settings.start == "latest" and not self._reads(group, commits):  # decision 345
            return self._watermarks.next_offset(partition_id)
        return self._reader.start_of(partition_id)

    def _reads(self, group: LeasedGroup, commits: Mapping[int, object]) -> bool:
        """Whether a group over a topic has begun: what no commit is stored for was empty then, and is all new to it."""
        topic = self._topics.by_id(group.topic_id)
        return topic is not None and any(partition_id in commits for partition_id in topic.partition_ids())

    def committed_in_queue(self, partition_id: int) -> int:
        """Everything below is settled in a queue's partition, as far as is stored."""
        stored = self._state.get(Kind.OFFSET, offset_key("", partition_id))
        return 0 if stored is None else decode_offset(stored)[0]

    def _stored_epoch(self, group: str, partition_id: int) -> int:
        """The epoch that is stored for a cursor, or a new one."""
        stored = self._views.offsets.get(group, {}).get(partition_id)
        return decode_epoch(stored[1]) if stored is not None else self._new_epoch()

    def _check_epoch(self, cursor: Cursor) -> None:
        """An epoch that is not stored is written with the cursor's first change."""
        stored = self._views.offsets.get(cursor.group, {}).get(cursor.partition_id)
        if cursor.group and (stored is None or cursor.epoch != decode_epoch(stored[1])):
            cursor.write_committed()

    def _start_of(self, partition_id: int) -> int:
        start = self._reader.start_of(partition_id)
        return start if not self._leaving else max(start, self._leaving.get(partition_id, 0))

    # ---- frames

    def seal(self) -> list[StateRecord]:
        """The changed pages of every touched cursor as they are now."""
        return [record for cursor in self._core.seal() for record in self._records(cursor)]

    def _records(self, cursor: Cursor) -> list[StateRecord]:
        records: list[StateRecord] = []
        has_moved, pages = cursor.seal()
        if has_moved:
            self._on_committed(cursor.partition_id)
            records.append(offset_record(cursor.group, cursor.partition_id,
                                         (cursor.committed, encode_epoch(cursor.epoch))))
        group = cursor.group.encode()
        records += [StateRecord(Kind.LEASES, page_key(cursor.partition_id, page, group), value)
                    for page, value in pages]
        return records

    def delete_pages(self, group: LeasedGroup) -> None:
        """The pages of a group's cursors go with the pending frame, and are not written any more. Raises Stopping."""
        name = group.name.encode()
        for partition_id, prefetcher in group.prefetchers.items():
            self._core.untouch(prefetcher.cursor)
            self._core.store([StateRecord(Kind.LEASES, page_key(partition_id, page, name), None)
                              for page in prefetcher.cursor.stored_pages])

    # ---- as the state says

    def load(self, add: Callable[[list[tuple[int, str]]], None]) -> None:
        """Load every cursor that has pages and is not in memory: `add` is given their partitions and groups ("" for a
        queue), and adds them."""
        self._loading = self._stored_pages()
        add([(partition_id, name) for partition_id, name in self._loading
             if not any(group.name == name for group, _ in self.readers.get(partition_id, ()))])
        self._loading = {}

    def _stored_pages(self) -> Pages:
        pages: Pages = {}
        for key, value in self._state.scan(Kind.LEASES):
            partition_id, page, group = decode_page_key(key)
            pages.setdefault((partition_id, group), []).append((page, value))
        return pages

    def restore(self, refused: list[Cursor]) -> None:  # decision 32
        """None of what changed in these cursors was stored: each is put back to what is.

        Members keep what they hold. What was handed out to nobody in particular is ready again, a second later, so that
        a full disk is not asked without a pause.
        """
        pages = self._stored_pages()
        again_ms = self._core.now_ms() + PAUSE_MS
        for cursor in refused:
            for group, prefetcher in self.readers.get(cursor.partition_id, ()):
                if prefetcher.cursor is cursor:
                    group.restore(prefetcher, self.committed(group, cursor.partition_id),
                                  pages.get((cursor.partition_id, cursor.group), []), again_ms)
                    self._check_epoch(cursor)

    # ---- what is needed beyond retention

    def needed(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
        readers = self.readers.get(partition_id, ())
        is_topic = self._topics.of_partition(partition_id) is not None
        if is_topic:
            self._note_leaving(partition_id, stop)
        if readers:
            stretches: list[Stretch] = []
            for group, prefetcher in readers:
                end = stop if group.queue is not None else min(stop, prefetcher.cursor.next)
                if end < stop and not self._topics.is_compacted(partition_id):
                    self._core.touch_lazily(prefetcher.cursor)
                    prefetcher.overtake(stop)                  # what is going is handed to nobody in the meantime
                stretches += prefetcher.cursor.unsettled_stretches(start, end)
            return stretches
        if is_topic:                     # a cursor that is not in memory has nothing out
            return []
        log_start = self._watermarks.log_start(partition_id)  # nor is a deleted partition's below its end
        return [(max(start, log_start if start >= log_start else self.committed_in_queue(partition_id)), stop)]

    def first_needed(self, partition_id: int) -> int:
        readers = self.readers.get(partition_id, ())
        if not readers:
            of_topic = self._topics.of_partition(partition_id) is not None
            return NONE_NEEDED if of_topic else self.committed_in_queue(partition_id)
        return min([prefetcher.cursor.committed if group.queue is not None
                    or prefetcher.cursor.committed < prefetcher.cursor.next
                    else NONE_NEEDED for group, prefetcher in readers])

    def _note_leaving(self, partition_id: int, stop: int) -> None:  # decision 29
        """Retention is about to drop what a topic's partition has below `stop`: new readers begin there."""
        if self._topics.is_compacted(partition_id):
            return
        if len(self._leaving) >= LEAVING:
            log_start = self._watermarks.log_start
            self._leaving = {of: until for of, until in self._leaving.items() if log_start(of) < until}
        self._leaving[partition_id] = stop
