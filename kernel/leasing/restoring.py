"""Lines as the state says: at a start, and after a frame that the disk did not take.

Memory is ahead of the log by what gathers and by one frame that is on its way. Where that is refused, every line it
would have changed is read back, definitions are as they were, and what was deleted is there again. Members keep what
they hold; what was handed out to nobody in particular is ready again, a second later, so that a full disk is not asked
without a pause.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernel.appending.gathering import Gathering
from kernel.errors import KernelError
from kernel.leasing.group import LeasedGroup
from kernel.leasing.pages import decode_page_key
from kernel.leasing.settings import decode_binding
from kernel.leasing.supply import Supply
from kernel.parts import Parts
from kernel.state.state import Kind

if TYPE_CHECKING:
    from kernel.leasing.leasing import Leasing

Pages = dict[tuple[int, str], list[tuple[int, bytes]]]
"""By partition id and group: number and value of every stored page."""

PAUSE_MS: Final = 1_000                # before anything is tried again that a full disk has refused


class Restoring:
    def __init__(self, parts: Parts, leasing: Leasing) -> None:
        self._parts = parts
        self._leasing = leasing

    def open(self) -> None:
        """Load every line of which something is outstanding."""
        self._load(self._pages())

    def _pages(self) -> Pages:
        pages: Pages = {}
        for key, value in self._parts.state.scan(Kind.LEASES):
            partition_id, page, group = decode_page_key(key)
            pages.setdefault((partition_id, group), []).append((page, value))
        return pages

    def _load(self, pages: Pages) -> None:
        """Those of these lines that are not in memory."""
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
            found = self._parts.topics.of_partition(partition_id)
            if name and found is not None:
                try:
                    leasing.of_topic(name, found[0])
                except KernelError as error:         # its settings make no sense to this version
                    self._parts.on_error(error)
        leasing.loaded_pages = {}

    # ---- after a refused frame

    def failed(self, gatherings: list[Gathering]) -> None:
        """None of these was stored; topics are as they were already, and groups of those that were to be made gone."""
        leasing = self._leasing
        leasing.queues.definitions.undo()
        leasing.groups.undo()
        self._restore_bindings(gatherings)
        lines = {line: None for gathering in gatherings for line in gathering.lines}
        if not lines and not any(gathering.state for gathering in gatherings):
            return
        leasing.deadlines.pause(PAUSE_MS)
        self._forget_undefined()
        pages = self._pages()
        for line in lines:
            for group, supply in leasing.reading(line.partition_id):
                if supply.line is line:
                    self._restore(group, supply, pages)
        self._load(pages)

    def _restore_bindings(self, gatherings: list[Gathering]) -> None:
        subscriptions, tenants = self._parts.subscriptions, self._leasing.queues.tenants()
        for record in (record for gathering in gatherings for record in gathering.state):
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
                known = leasing.queues.definitions.get(group.tenant, group.queue.name)
                if known is None or known.first_partition_id != group.queue.first_partition_id:
                    leasing.queues.forget(group.queue)
            elif leasing.groups.get(group.tenant, group.name) is None:
                leasing.undefined[group] = None

    def _restore(self, group: LeasedGroup, supply: Supply, pages: Pages) -> None:
        line = supply.line
        held = {offset: lease for offset, lease in line.out.items() if lease.holder is not None}
        spans = list(line.spans)
        floor = self._leasing.stored_floor(group, line.partition_id)
        line.reset(floor)
        supply.reset()
        line.dirty, line.stored, line.stored_floor = set(), set(), floor
        if group.queue is None:
            self._leasing.number(line)
        self._leasing.load(group, supply, pages.get((line.partition_id, line.group), ()))
        line.hold({offset: lease for offset, lease in held.items() if not line.is_settled(offset)}, spans)
        for lease in dict.fromkeys(held.values()):
            if lease.left:
                lease.holder.note(supply, lease, self._leasing)
        if group.settings.ordered:
            supply.want_keys([*line.out, *line.waiting])
        group.on_refused(supply)
        self._leasing.wait_until(group, supply, -1, self._leasing.now_ms() + PAUSE_MS)
