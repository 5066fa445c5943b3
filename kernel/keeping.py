"""What is kept beyond retention, on the kernel's thread: who needs it, and that it goes when nobody does any more."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kernel.frame import StateRecord
from kernel.owed import kept_key, split_kept_key
from kernel.parts import Parts
from kernel.state import Kind, Newest
from kernel.survey import Name, Surveyor, Wanted

DELETIONS_PER_FRAME: Final = 10_000


class Keeping:
    """`delete` appends deletions, see `Appending.delete_state`."""

    def __init__(self, parts: Parts, surveyor: Surveyor, delete: Callable[[list[StateRecord]], None]) -> None:
        self._parts = parts
        self._surveyor = surveyor
        self._delete = delete

    def wanted(self, spans: dict[int, tuple[int, int]]) -> Wanted:
        """Which offsets of these spans, (first, behind the last) by queue id, somebody needs."""
        found: Wanted = {}
        for queue_id, (first, end) in spans.items():
            needed: set[int] = set()
            for owed in self._parts.owed:
                needed.update(owed.wanted(queue_id, first, end - first))
            if needed:
                found[queue_id] = sorted(needed)
        return found

    def unwanted(self, names: Iterable[Name]) -> list[Name]:
        """Those of these KEPT records that nobody needs."""
        by_queue: Wanted = {}
        for _, key in names:
            queue_id, offset = split_kept_key(key)
            by_queue.setdefault(queue_id, []).append(offset)
        needed = self.wanted({queue_id: (min(offsets), max(offsets) + 1) for queue_id, offsets in by_queue.items()})
        return [(Kind.KEPT, kept_key(queue_id, offset)) for queue_id, offsets in by_queue.items()
                for offset in sorted(set(offsets).difference(needed.get(queue_id, ())))]

    # ---- letting go

    def forget(self, queue_id: int, offsets: Iterable[int]) -> None:
        """See `Kernel.forget_kept`."""
        start = self._parts.heads.log_start(queue_id)
        names = [(int(Kind.KEPT), kept_key(queue_id, offset)) for offset in offsets if offset < start]
        self.forget_unwanted(names)

    def forget_unwanted(self, names: list[Name]) -> None:
        """Delete those of these KEPT records that nobody needs, their compacted topic included."""
        gone = self.unwanted(names) if names else []
        compacted = self._parts.topics.compacted
        doubtful = [name for name in gone if compacted and self._parts.topics.is_compacted(split_kept_key(name[1])[0])]
        self._delete_all(sorted(set(gone).difference(doubtful)))
        if doubtful:
            recent = {name: self._parts.state.recent(*name) for name in doubtful}
            self._parts.checkpoint_worker.submit(partial(self._superseded, recent), self._found)

    def _superseded(self, names: dict[Name, Newest | None]) -> list[Name]:
        """On the checkpoint's thread: those that are not the newest of their key."""
        found = []
        for name, newest in names.items():
            held = self._parts.index.held(*name) if newest is None else None
            value = newest[2] if newest is not None else held.value if held is not None else None
            if value is not None and self._surveyor.latest_of_kept(name[1], value) is None:
                found.append(name)
        return found

    def forget_queues(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """These queues, as (first queue id, count), are gone: nothing of theirs is kept."""
        changed = self._parts.state.changed(Kind.KEPT)
        spans = [(kept_key(first, 0), kept_key(first + count, 0)) for first, count in ranges]
        recent = [(int(Kind.KEPT), key) for key in changed.keys() if any(low <= key < below for low, below in spans)]
        self._delete_all(recent)
        self._parts.checkpoint_worker.submit(partial(self._all_of, spans), self._found)

    def _all_of(self, spans: list[tuple[bytes, bytes]]) -> list[Name]:
        """On the checkpoint's thread."""
        return [(Kind.KEPT, key) for lowest, below in spans
                for key, value in self._parts.index.state_range(Kind.KEPT, lowest, below) if value is not None]

    def _found(self, names: list[Name] | None, error: BaseException | None) -> None:
        if names is None:
            self._parts.fatal(f"the index cannot be read: {error}")
            return
        self._delete_all(names)

    def _delete_all(self, names: list[Name]) -> None:
        for at in range(0, len(names), DELETIONS_PER_FRAME):
            self._delete([StateRecord(kind, key, None) for kind, key in names[at:at + DELETIONS_PER_FRAME]])

    def on_superseded(self, keys: list[bytes]) -> None:
        """A checkpoint has replaced the LATEST records that needed these."""
        self.forget_unwanted([(Kind.KEPT, key) for key in keys])
