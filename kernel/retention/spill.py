"""What is kept beyond retention, on the kernel's thread: who needs it, and that it goes when nobody does any more."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.kept import kept_key, split_kept_key
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.retention.holders import NONE_NEEDED, Holder, Stretch, joined, within
from gatehouse.kernel.retention.segment_scan import Name, Needed, SegmentScanner
from gatehouse.kernel.state.state import Kind, Newest, StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import Ranges

DELETIONS_PER_FRAME: Final = 10_000
SETTLED_AT_ONCE: Final = 1_000  # offsets of a partition that are settled before what is kept of them is deleted


class Spill:
    """`worker` reads the index. A `kernel.write.pending_frame.Forgetter`."""

    def __init__(self, *, index: Index, state: StateTable, topics: Topics, scanner: SegmentScanner,
                 committer: Committer, worker: Worker, fatal: Callable[[str], None]) -> None:
        self._index = index
        self._state = state
        self._topics = topics
        self._scanner = scanner
        self._committer = committer
        self._worker = worker
        self._fatal = fatal
        self._holders: list[Holder] = []
        self.below: dict[int, int] = {}
        """The partitions of which something is kept, and the offset behind the last of it."""

        self._done: dict[int, int] = {}            # up to where what was settled of them has been looked for

    def open(self) -> None:
        """Find out which partitions have something kept. Blocks."""
        self.note([(Kind.KEPT, key) for key in self._state.changed(Kind.KEPT).keys()])
        self.note([(Kind.KEPT, key) for key in self._index.last_kept_keys()])

    def ask(self, holder: Holder) -> None:
        """Before records go with their segment, ask this one too which of them must be kept."""
        self._holders.append(holder)

    def note(self, names: Iterable[Name]) -> None:
        """These are kept."""
        for _, key in names:
            partition_id, offset = split_kept_key(key)
            self.below[partition_id] = max(self.below.get(partition_id, 0), offset + 1)

    def needed(self, spans: dict[int, Stretch]) -> Needed:
        """Which offsets of these spans somebody needs."""
        stretches: Needed = {}
        for partition_id, (start, stop) in spans.items():
            needed = joined([stretch for holder in self._holders
                             for stretch in holder.needed(partition_id, start, stop)])
            if needed:
                stretches[partition_id] = needed
        return stretches

    def unneeded(self, names: Iterable[Name]) -> list[Name]:
        """Which of these KEPT records nobody needs any more."""
        by_partition: dict[int, list[int]] = {}
        for _, key in names:
            partition_id, offset = split_kept_key(key)
            by_partition.setdefault(partition_id, []).append(offset)
        needed = self.needed({partition_id: (min(offsets), max(offsets) + 1) for partition_id,
                              offsets in by_partition.items()})
        return [(Kind.KEPT, kept_key(partition_id, offset)) for partition_id, offsets in by_partition.items()
                for offset in offsets if not within(needed.get(partition_id, []), offset, offset + 1)]

    # ---- letting go

    def on_settled(self, partition_id: int) -> None:
        """See `Kernel.forget_kept`. Some of it goes at a time, and all when nothing is left."""
        below = self.below.get(partition_id)
        if below is None:
            return
        done = self._done.get(partition_id, 0)
        offset = min([holder.first_needed(partition_id) for holder in self._holders], default=NONE_NEEDED)
        if offset < below and offset - done < SETTLED_AT_ONCE:
            return
        assert offset >= done, "what is needed first never falls"
        self._done[partition_id] = offset
        self._forget_span((kept_key(partition_id, done), kept_key(partition_id, min(offset, below))))
        if offset >= below:
            del self.below[partition_id], self._done[partition_id]

    def _forget_span(self, span: tuple[bytes, bytes]) -> None:
        changed = self._state.changed(Kind.KEPT)
        recent = [(int(Kind.KEPT), key) for key in changed.keys() if span[0] <= key < span[1] and changed.has(key)]
        self.forget_unneeded(recent)
        self._worker.submit(partial(self._all_of, [span]), self._found_settled)

    def _found_settled(self, names: list[Name] | None, error: BaseException | None) -> None:
        if names is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        self.forget_unneeded(names)

    def forget_unneeded(self, names: list[Name]) -> None:
        """Delete those of these KEPT records that nobody needs, their compacted topic included."""
        gone = self.unneeded(names) if names else []
        compacted = self._topics.compacted
        doubtful = [name for name in gone if compacted and self._topics.is_compacted(split_kept_key(name[1])[0])]
        self._delete_all(sorted(set(gone).difference(doubtful)))
        if doubtful:
            recent = {name: self._state.recent(*name) for name in doubtful}
            self._worker.submit(partial(self._superseded, recent), self._found)

    def _superseded(self, names: dict[Name, Newest | None]) -> list[Name]:
        """On the checkpoint's thread: those that are not the newest of their key."""
        old_names = []
        for name, newest in names.items():
            held = self._index.held(*name) if newest is None else None
            value = newest[2] if newest is not None else held.value if held is not None else None
            if value is not None and self._scanner.latest_of_kept(name[1], value) is None:
                old_names.append(name)
        return old_names

    def forget_partitions(self, ranges: Ranges) -> None:
        """Nothing is kept of partitions that are gone."""
        changed = self._state.changed(Kind.KEPT)
        spans = [(kept_key(first, 0), kept_key(first + count, 0)) for first, count in ranges]
        recent = [(int(Kind.KEPT), key) for key in changed.keys()
                  if changed.has(key) and any(low <= key < below for low, below in spans)]
        self._delete_all(recent)
        self._worker.submit(partial(self._all_of, spans), self._found)

    def _all_of(self, spans: list[tuple[bytes, bytes]]) -> list[Name]:
        """On the checkpoint's thread."""
        return [(Kind.KEPT, key) for lowest, below in spans
                for key, value in self._index.state_range(Kind.KEPT, lowest, below) if value is not None]

    def _found(self, names: list[Name] | None, error: BaseException | None) -> None:
        if names is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        self._delete_all(names)

    def _delete_all(self, names: list[Name]) -> None:
        for at in range(0, len(names), DELETIONS_PER_FRAME):
            self._committer.delete_state([StateRecord(kind, key, None)
                                          for kind, key in names[at:at + DELETIONS_PER_FRAME]])

    def forget_superseded(self) -> None:
        """The index was built anew: no checkpoint has seen what replaced what."""
        compacted = [(kept_key(first, 0), kept_key(first + count, 0)) for topic in self._topics.all()
                     for first, count in topic.ranges if topic.settings.compact]
        if compacted:
            self._worker.submit(partial(self._superseded_in, compacted), self._found_settled)

    def _superseded_in(self, spans: list[tuple[bytes, bytes]]) -> list[Name]:
        """On the checkpoint's thread."""
        return [(Kind.KEPT, key) for lowest, below in spans
                for key, value in self._index.state_range(Kind.KEPT, lowest, below)
                if value is not None and self._scanner.latest_of_kept(key, value) is None]

    def on_superseded(self, keys: list[bytes]) -> None:
        """A checkpoint has replaced the LATEST records that needed these."""
        self.forget_unneeded([(Kind.KEPT, key) for key in keys])
