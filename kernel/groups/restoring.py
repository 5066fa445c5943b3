"""Lines as the state says: at a start, and after a frame that the disk did not take.

Memory is ahead of the log by what gathers and by one frame that is on its way. Where that is refused, every cursor it
would have changed is read back, definitions are as they were, and what was deleted is there again. Members keep what
they hold; what was handed out to nobody in particular is ready again, a second later, so that a full disk is not asked
without a pause.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.pages import decode_page_key
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.groups.settings import decode_binding
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Leasing

Pages = dict[tuple[int, str], list[tuple[int, bytes]]]
"""By partition id and group: number and value of every stored page."""

PAUSE_MS: Final = 1_000                # before anything is tried again that a full disk has refused


class Restoring:
    def __init__(self, parts: Parts, leasing: Leasing) -> None:
        self._parts = parts
        self._leasing = leasing

    def open(self) -> None:
        """Load every cursor of which something is outstanding."""
        self._load(self._pages())

    def _pages(self) -> Pages:
        pages: Pages = {}
        for key, value in self._parts.state.scan(Kind.LEASES):
            partition_id, page, group = decode_page_key(key)
            pages.setdefault((partition_id, group), []).append((page, value))
        return pages

    def _load(self, pages: Pages) -> None:
        """Load the cursors of these pages that are not in memory."""
        leasing = self._leasing
        missing = [(partition_id, name) for partition_id, name in pages
                   if not any(group.name == name for group, _ in leasing.reading(partition_id))]
        of_queues = {partition_id for partition_id, name in missing if not name}
        leasing.loaded_pages = pages
        if of_queues:
            for key, value in self._parts.state.scan(Kind.QUEUE):
                queue = leasing.queues.definitions.read(key, value)
                if not of_queues.isdisjoint(queue.partition_ids()):
                    leasing.queues.group_of(queue)
        for partition_id, name in missing:
            topic_partition = self._parts.topics.of_partition(partition_id)
            if name and topic_partition is not None:
                try:
                    leasing.of_topic(name, topic_partition[0])
                except KernelError as error:         # its settings make no sense to this version
                    self._parts.on_error(error)
        leasing.loaded_pages = {}

    # ---- after a refused frame

    def failed(self, pending_frames: list[PendingFrame]) -> None:  # decision 32
        """None of these was stored; topics are as they were already, and groups of those that were to be made gone."""
        leasing = self._leasing
        leasing.queues.definitions.undo()
        leasing.groups.undo()
        self._restore_bindings(pending_frames)
        cursors = {cursor: None for pending_frame in pending_frames for cursor in pending_frame.cursors}
        if not cursors and not any(pending_frame.state for pending_frame in pending_frames):
            return
        leasing.deadlines.pause(PAUSE_MS)
        self._forget_undefined()
        pages = self._pages()
        for cursor in cursors:
            for group, prefetcher in leasing.reading(cursor.partition_id):
                if prefetcher.cursor is cursor:
                    self._restore(group, prefetcher, pages)
        self._load(pages)

    def _restore_bindings(self, pending_frames: list[PendingFrame]) -> None:
        subscriptions, tenants = self._parts.subscriptions, self._leasing.queues.tenants()
        for record in (record for pending_frame in pending_frames for record in pending_frame.state):
            if record.kind == Kind.BINDING:
                partition_id, chosen, filter_text = decode_binding(record.key)
                if self._parts.state.get(Kind.BINDING, record.key) is None:
                    subscriptions.unbind(filter_text, partition_id, chosen)
                elif partition_id in tenants:
                    subscriptions.bind(filter_text, partition_id, chosen, tenants[partition_id])

    def _forget_undefined(self) -> None:
        """Queues that were to be made are not there. A group that was is defined with its next frame: its members are
        at work already."""
        leasing = self._leasing
        for group in leasing.in_memory():
            if group.queue is not None:
                queue = leasing.queues.definitions.get(group.tenant, group.queue.name)
                if queue is None or queue.first_partition_id != group.queue.first_partition_id:
                    leasing.queues.forget(group.queue)
            elif leasing.groups.get(group.tenant, group.name) is None:
                leasing.undefined[group] = None

    def _restore(self, group: LeasedGroup, prefetcher: Prefetcher, pages: Pages) -> None:
        cursor = prefetcher.cursor
        running, held = cursor.restore(self._leasing.stored_committed(group, cursor.partition_id),
                                       pages.get((cursor.partition_id, cursor.group), ()),
                                       self._parts.watermarks.next_offset(cursor.partition_id))
        prefetcher.reset()
        self._leasing.check_epoch(cursor)
        self._leasing.run_on(group, prefetcher, running)
        for lease in held:
            lease.holder.note(prefetcher, lease, self._leasing)
        group.on_refused(prefetcher)
        self._leasing.wait_until(group, prefetcher, -1, self._leasing.now_ms() + PAUSE_MS)
