"""A reader's own way through the log, until it has caught up with its feed.

It reads blocks from the log at the reader's own pace, never beyond what the feed has given to the live readers, so that
joining is a comparison: no message between the log and the live end is given twice or left out.
"""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.live.blocks import Block
from gatehouse.gateways.http.page import Page, PageSource, build_page, note_unreadable
from gatehouse.kernel.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from gatehouse.gateways.http.live.feed import Feed
    from gatehouse.gateways.http.live.feeds import Feeds
    from gatehouse.gateways.http.live.positions import Positions
    from gatehouse.kernel.message import Fetched

REPLAY_BYTES: Final = 65_536
REPLAY_MESSAGES: Final = 256
"""The most messages of one step of a replay; `REPLAY_BYTES` bounds its bytes. A reader that stops reading holds one
step in memory. A larger message is still given."""

MAX_AT_ONCE: Final = 64
"""Partitions that are read in one step; the others come in the next."""

AHEAD_S: Final = 0.01
"""Seconds until a replay looks again at a feed that has not caught up itself with what is durable."""


# decision 65: who is behind reads the log at its own pace
class Replay:
    """One reader's way through the log. `positions` is where the reader is; the object is shared with nobody."""

    def __init__(self, feeds: Feeds, feed: Feed, positions: Positions) -> None:
        self.positions = positions
        self._feeds = feeds
        self._feed = feed
        self._turn = 0

    def go_on_from(self, positions: Positions) -> None:
        """The reader is there now."""
        self.positions = positions.copy()

    async def next_block(self) -> Block | None:
        """The next messages (or none, but a step further); None where the reader has come to the feed's own place,
        which it may join before it waits for anything. Raises StorageFailed."""
        if self._feed.ready is not None and not self._feed.ready.done():
            await asyncio.shield(self._feed.ready)
        self._feed.advance()
        wants = self._wants()
        if not wants and self._ahead():
            await asyncio.sleep(AHEAD_S)
            return Block([], self.positions, self.positions)
        if not wants:
            self._forget_gone()
            return None
        async with self._feeds.replaying:
            page = await self._read(wants)
        before, after = self.positions, self.positions.copy()
        for partition_id, offset in page.positions.items():
            after.move(partition_id, offset)
        self.positions = after
        await asyncio.sleep(0)               # a long way is walked step by step, between which others are served
        return Block(self._feeds.entries_of(self._feed.scope, page), before, after)

    def _wants(self) -> list[int]:
        """Partitions in which there is something to read; a different one first each time, so that none has to wait for
        ever."""
        at, ends = self.positions.at, self._feed.positions.at
        partition_ids = [partition_id for partition_id in self._feed.scope.partitions
                         if at(partition_id) < ends(partition_id)]
        if len(partition_ids) > MAX_AT_ONCE:
            self._turn = (self._turn + MAX_AT_ONCE) % len(partition_ids)
            partition_ids = (partition_ids[self._turn:] + partition_ids[:self._turn])[:MAX_AT_ONCE]
        return partition_ids

    def _ahead(self) -> bool:
        """The feed has not been told yet of something that is durable (a large batch is being opened). Ids of events
        that it gives would name a place before this reader's."""
        at, ends = self.positions.at, self._feed.positions.at
        return any(at(partition_id) > ends(partition_id) for partition_id in self._feed.scope.partitions)

    def _forget_gone(self) -> None:
        for partition_id in self.positions.offsets.keys() - self._feed.scope.partitions.keys():
            self.positions.forget(partition_id)

    async def _read(self, partition_ids: list[int]) -> Page:
        at, partitions = self.positions.at, self._feed.scope.partitions
        share = max(1, REPLAY_BYTES // len(partition_ids))
        first_of = self._feeds.port.bounds
        ends = {partition_id: self._feed.positions.at(partition_id) for partition_id in partition_ids}
        fetched = await self._fetch([(partition_id, max(at(partition_id), first_of(partition_id)[0]), share)
                                     for partition_id in partition_ids])
        for answer in fetched:
            if answer.error is not None and not isinstance(answer.error, OffsetOutOfRange):
                raise answer.error
        sources = [PageSource(answer.partition_id, at(answer.partition_id), answer,
                          partitions[answer.partition_id][0].settings.compact)
                   for answer in fetched if answer.partition_id in partitions]
        page = build_page(sources, REPLAY_MESSAGES, REPLAY_BYTES, open_piece=self._feeds.open_piece)
        note_unreadable(self._feeds.port, page, int)
        return _up_to(page, ends)

    async def _fetch(self, wants: list[tuple[int, int, int]]) -> list[Fetched]:
        reply: Reply[list[Fetched]] = Reply()
        self._feeds.port.fetch(wants, REPLAY_BYTES, reply.set_result, False)
        return await reply


def _up_to(page: Page, ends: dict[int, int]) -> Page:
    """The page without what lies beyond the feed's place."""
    return page._replace(records=[(partition_id, record) for partition_id, record in page.records
                                  if record[0] < ends[partition_id]],
                         positions={partition_id: min(offset, ends[partition_id])
                                    for partition_id, offset in page.positions.items()})
