"""Where a message stands with each group and queue that reads its partition, at this second."""
from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.groups.cursor import ENDLESS_MS, Cursor
from gatehouse.kernel.groups.group_settings import ASSIGNED, LEASED
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.message import Headers
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.state.views import Views

SETTLED: Final = "settled"
IS_LEASED: Final = "leased"
WAITING: Final = "waiting"
READY: Final = "ready"
QUEUE: Final = "queue"
LINK: Final = "link"


class Standing(NamedTuple):
    """Of one message with one group."""

    group: str
    kind: str                # `leased`, `assigned`, `queue`, or `link`
    state: str               # see above
    attempts: int = 0
    until_ms: int = 0        # of a lease, or of what waits, by hub time
    user: str = ""           # who has it leased, where that is known
    peer: str = ""


class Links(Protocol):
    """Links to other hubs."""

    def passed_on(self, topic: Topic, partition: int, offset: int, address: str, headers: Headers
                  ) -> list[tuple[str, bool]]:
        """The links by which this message goes out, and whether the hub at the other end has it."""


def link_standings(links: Links, topic: Topic, partition: int, offset: int, address: str, headers: Headers
                   ) -> list[Standing]:
    """With every link by which it goes out."""
    return [Standing(name, LINK, SETTLED if is_there else READY)
            for name, is_there in links.passed_on(topic, partition, offset, address, headers)]


def standings(leasing: Leasing, views: Views, partition_id: int, offset: int) -> list[Standing]:
    """With every group that is known to read the partition."""
    standing_of = [_leased(group.shown_name, LEASED if group.queue is None else QUEUE, prefetcher.cursor, offset)
             for group, prefetcher in leasing.cursors.readers.get(partition_id, ())]
    names = {standing.group for standing in standing_of}
    for group_name, offsets in views.offsets.items():
        committed = offsets.get(partition_id)
        if committed is not None and group_name not in names:
            standing_of.append(Standing(group_name, ASSIGNED, SETTLED if offset < committed[0] else READY))
    return standing_of


def _leased(name: str, kind: str, cursor: Cursor, offset: int) -> Standing:
    lease = cursor.lease_at(offset)
    if cursor.is_settled(offset):
        return Standing(name, kind, SETTLED)
    if lease is not None:
        taker = getattr(lease.holder, "taker", None)
        until_ms = 0 if lease.until_ms == ENDLESS_MS else lease.until_ms
        return Standing(name, kind, IS_LEASED, lease.attempt, until_ms, getattr(taker, "user", ""),
                        getattr(taker, "peer", ""))
    until_ms = cursor.waits_until(offset)
    return Standing(name, kind, WAITING if until_ms else READY, cursor.attempt_of(offset), until_ms)
