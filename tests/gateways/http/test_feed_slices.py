"""A block goes to a thousand readers of a stream in many turns: who comes, goes or is dropped meanwhile misses nothing
and gets nothing twice."""
from __future__ import annotations

import asyncio
from typing import Any, cast

from gatehouse.gateways.http.live.blocks import MESSAGE, Block, Entry
from gatehouse.gateways.http.live.feed import Feed, TopicFeed
from gatehouse.gateways.http.live.positions import Positions
from gatehouse.kernel.world import FakeLoop
from gatehouse.kernel.write.committer import Slices

HUB = bytes(16)
PARTITION = 1


class Port:
    """Never has more to read."""

    def bounds(self, partition_id: int) -> tuple[int, int]:
        return 0, 0

    def watch(self, partition_ids: Any, wake: Any) -> int:
        return 1

    def unwatch(self, number: int) -> None: ...


class Scope:
    partitions: dict[int, Any] = {}

    def refresh(self) -> bool:
        return False


class Feeds:
    hub = HUB

    def __init__(self, loop: FakeLoop) -> None:
        self.port = Port()
        self.loop = asyncio.new_event_loop()
        self._hub_loop = loop

    def slices(self) -> Slices:
        """They end after each step."""
        return Slices(self._hub_loop, [].append, slice_ms=0)


class Reader:
    def __init__(self, takes: bool = True) -> None:
        self.blocks: list[Block] = []
        self.heartbeats = 0
        self.dropped: list[Positions] = []
        self._takes = takes

    def on_block(self, block: Block) -> bool:
        self.blocks.append(block)
        return self._takes

    def on_heartbeat(self, positions: Positions) -> None:
        self.heartbeats += 1

    def on_dropped(self, positions: Positions) -> None:
        self.dropped.append(positions)


def begun(readers: list[Reader]) -> tuple[Feed, FakeLoop, Block]:
    """A block is under way, and the first reader has got it."""
    loop = FakeLoop()
    feeds = Feeds(loop)
    feed = TopicFeed(cast(Any, feeds), cast(Any, Scope()))
    feeds.loop.close()
    for reader in readers:
        feed.join(reader)
    before, after = feed.positions, feed.positions.copy()
    after.move(PARTITION, 1)
    block = Block([Entry(PARTITION, 1, MESSAGE, b"{}")], before, after)
    feed.positions = after
    feed.give(block)
    assert [len(reader.blocks) for reader in readers[:2]] == [1, 0]
    return feed, loop, block


def test_readers_get_a_block_turn_by_turn_and_those_behind_leave() -> None:
    readers = [Reader(), Reader(takes=False), Reader()]
    feed, loop, block = begun(readers)
    while loop.step():
        pass
    assert all(reader.blocks == [block] for reader in readers)
    assert set(feed.live) == {readers[0], readers[2]}


def test_who_leaves_meanwhile_is_not_given_it_and_who_joins_has_read_it() -> None:
    readers = [Reader() for _ in range(4)]
    feed, loop, block = begun(readers)
    feed.leave(readers[2])
    feed.leave(readers[3])
    late = Reader()
    feed.join(late)
    feed.join(readers[3])                    # it has read the log as far as the feed's positions
    while loop.step():
        pass
    assert [reader.blocks for reader in readers] == [[block], [block], [], []] and late.blocks == []


def test_who_is_dropped_meanwhile_goes_on_before_the_block_if_it_has_not_got_it() -> None:
    readers = [Reader(), Reader()]
    feed, loop, block = begun(readers)
    feed._drop_readers()
    while loop.step():
        pass
    assert readers[0].dropped == [block.after] and readers[1].dropped == [block.before] and readers[1].blocks == []


def test_a_reader_that_fails_costs_nobody_a_block() -> None:
    readers = [Reader(), Reader(), Reader()]
    feed, loop, block = begun(readers)
    readers[1].blocks = cast(Any, None)      # whose `append` fails
    while loop.step():
        pass
    assert readers[0].blocks == [block] and readers[0].dropped == []
    assert readers[1].dropped == readers[2].dropped == [block.before] and set(feed.live) == {readers[0]}


def test_no_heartbeat_says_that_a_block_was_given_that_was_not() -> None:
    readers = [Reader(), Reader()]
    feed, loop, _ = begun(readers)
    feed.beat()
    assert not any(reader.heartbeats for reader in readers)
    while loop.step():
        pass
    feed.beat()
    assert all(reader.heartbeats == 1 for reader in readers)
