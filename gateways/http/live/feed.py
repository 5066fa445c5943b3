"""The live end of one stream: every flush is read once and written to every reader that keeps up.

A topic's feed watches its partitions. A filter's feed is a live subscriber: the kernel has matched addresses to
subscribers already when a message is stored, so a thousand filters over a busy topic cost what matches them; what it is
told of are places, and it reads those from the cache of recent messages, as a topic's feed does, since only the stored
record has id and time.

Between two flushes of one feed is at least `PACE_S` per reader: while a thousand are written to, messages gather, and
the next write holds them all. Otherwise a flush per message would cost a thousand system calls each. They are written
to in slices of some milliseconds; until the last has been given a block, the feed reads no other.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.gateways.http.live.blocks import Block
from gatehouse.gateways.http.live.positions import Positions
from gatehouse.gateways.http.page import PageSource, build_page, note_unreadable
from gatehouse.kernel.errors import StorageFailed

if TYPE_CHECKING:
    import asyncio

    from gatehouse.gateways.door_side import Delivery
    from gatehouse.gateways.http.live.feeds import Feeds
    from gatehouse.gateways.http.live.scope import Scope
    from gatehouse.kernel.message import Fetched

PACE_S: Final = 0.00002  # decision 68
"""Seconds of the hub's time that one reader may cost per flush: about twice what a write to a socket costs."""

BLOCK_BYTES: Final = 131_072
BLOCK_MESSAGES: Final = 512
"""The most messages in one block; `BLOCK_BYTES` bounds its bytes. So what a reader is given beyond its bound is bounded
too; a larger message is still given."""

MAX_MATCHED: Final = 4_096
"""Partitions in which a filter's feed has messages to read; with more its readers read the log."""


class FeedReader(Protocol):
    """Who reads a stream live. Neither call may block or raise."""

    def on_block(self, block: Block) -> bool:
        """The next messages. False: not taken; the reader is behind at `block.before` and reads the log from there."""

    def on_heartbeat(self, positions: Positions) -> None:
        """Nothing came for a while; everything before `positions` has been given."""

    def on_dropped(self, positions: Positions) -> None:
        """The feed cannot go on: read the log from there."""


# decision 65: each flush is read once, however many are live
class Feed:
    """The live end of one stream. `positions`: everything before them has been given to the readers in `live`. `users`
    counts who opened the feed."""

    def __init__(self, feeds: Feeds, scope: Scope) -> None:
        self.scope = scope
        self.live: dict[FeedReader, None] = {}
        self.users = 0
        self.positions = Positions(feeds.hub)
        self.ready: asyncio.Future[None] | None = None       # done once nothing older can come; None: at once
        self._feeds = feeds
        self._port = feeds.port
        self._loop = feeds.loop
        self._scheduled = False
        self._fetching = False                               # or handing out what was fetched
        self._owed: set[FeedReader] = set()                      # those in `live` that have not got the block under way
        self._slices = feeds.slices()
        self._next_at = 0.0
        self._turn = 0
        self._under_way: Block

    # --- what a feed of either kind does its own way ----------------------------------------------------------------

    def open(self) -> None:
        """Begin to hear of new messages."""

    def close(self) -> None:
        """End the feed: nobody reads it any more."""

    def _listen(self) -> None:
        """Everything has been read: wake the feed when there is more."""

    def _wanted(self) -> list[tuple[int, int]]:
        """(partition id, offset) of each partition that has something to read, from that offset on."""
        raise NotImplementedError

    def _read_up_to(self, partition_id: int, offset: int) -> None:
        """A partition has been read up to this offset."""

    def _knows_all(self) -> bool:
        """Whether the feed has been told of everything that is durable."""
        return True

    # --- reading ----------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """With nothing left to give, go to the end of all partitions: a reader that has come as far may join."""
        changed = self._refresh()
        if not self._fetching and self._knows_all() and (not self.live or not self._wanted()):
            for partition_id in self.scope.partitions:
                self.positions.move(partition_id, self._port.bounds(partition_id)[1])
                self._read_up_to(partition_id, self.positions.at(partition_id))
        if changed:
            self._listen()

    def join(self, reader: FeedReader) -> None:
        """The reader has come to `positions`: it is given what comes from now on."""
        self.live[reader] = None
        self._listen()

    def leave(self, reader: FeedReader) -> None:
        """The reader has gone, or is behind."""
        self.live.pop(reader, None)
        self._owed.discard(reader)

    def beat(self) -> None:
        """Tell all readers where they are; not while some are further than others."""
        if not self._owed:
            for reader in list(self.live):
                reader.on_heartbeat(self.positions)

    def wake(self) -> None:
        """Look for new messages soon: there may be some."""
        if not self._scheduled and not self._fetching and self.live:
            self._scheduled = True
            self._loop.call_later(max(0.0, self._next_at - self._loop.time()), self._pump)

    def on_topics_changed(self) -> None:
        """Some topic was made, changed or deleted."""
        if self._refresh():
            self._listen()

    def _refresh(self) -> bool:
        """Look at the topics again. Whether the stream has other partitions now."""
        if not self.scope.refresh():
            return False
        for partition_id in self.positions.offsets.keys() - self.scope.partitions.keys():
            self.positions.forget(partition_id)
        return True

    def _pump(self) -> None:
        self._scheduled = False
        if self._fetching:
            return
        self._refresh()
        wanted = self._wanted() if self.live else []
        if not wanted:
            self.advance()
            self._listen()
            return
        self._next_at = self._loop.time() + PACE_S * len(self.live)
        self._fetching = True
        self._turn = (self._turn + 1) % len(wanted)          # what is read last may find the block full
        wanted = wanted[self._turn:] + wanted[:self._turn]
        self._port.fetch([(partition_id, offset, BLOCK_BYTES) for partition_id, offset in wanted], BLOCK_BYTES,
                         self._on_fetched, False)

    def _on_fetched(self, fetched: list[Fetched]) -> None:
        self._fetching = False
        partitions, positions = self.scope.partitions, self.positions
        if any(isinstance(answer.error, StorageFailed) for answer in fetched):
            self._drop_readers()
            return
        sources = [PageSource(answer.partition_id, max(positions.at(answer.partition_id), self._first_of(answer)),
                              answer, partitions[answer.partition_id][0].settings.compact)
                   for answer in fetched if answer.partition_id in partitions]
        page = build_page(sources, BLOCK_MESSAGES, BLOCK_BYTES, open_piece=self._feeds.open_piece)
        note_unreadable(self._port, page, int)
        after = positions.copy()
        for partition_id, offset in page.positions.items():
            after.move(partition_id, offset)
            self._read_up_to(partition_id, offset)
        block = Block(self._feeds.entries_of(self.scope, page), positions, after)
        self.positions = after
        self.give(block)

    def _first_of(self, fetched: Fetched) -> int:
        """The first offset that the feed wants of the partition that was read."""
        return 0

    def give(self, block: Block) -> None:
        """Give a block to all readers, in this turn and the next ones."""
        self._fetching, self._under_way = True, block
        self._owed = set(self.live) if block.entries else set()
        self._slices.run(self._hand_out(block), self._on_given)

    def _hand_out(self, block: Block) -> Iterator[None]:
        """Give a block to one reader after the other. May be interrupted after each reader; who joins meanwhile has
        read the log as far as this block goes."""
        for reader in list(self.live):
            if reader in self._owed:
                if not reader.on_block(block):
                    self.live.pop(reader, None)
                self._owed.discard(reader)
                yield

    def _on_given(self) -> None:
        owed, self._owed = self._owed, set()
        for reader in owed:                  # one of them failed, our own fault: they go on from the log
            self.live.pop(reader, None)
            reader.on_dropped(self._under_way.before)
        self._fetching = False
        self._go_on()

    def _go_on(self) -> None:
        if self.live and self._wanted():
            self.wake()
        else:
            self._listen()

    def _drop_readers(self) -> None:
        """Leave all readers to the log, because what is stored cannot be read: each reader finds that out for itself,
        and says so."""
        readers, self.live = self.live, {}
        owed, self._owed = self._owed, set()
        for reader in readers:
            reader.on_dropped(self._under_way.before if reader in owed else self.positions)


# decision 66: watches its partitions
class TopicFeed(Feed):
    """The live end of one topic."""

    _watch = 0

    def close(self) -> None:
        """Stop watching the topic's partitions: nobody reads the feed any more."""
        if self._watch:
            self._port.unwatch(self._watch)
            self._watch = 0

    def _listen(self) -> None:
        self.close()
        if self.live and self.scope.partitions:
            self._watch = self._port.watch(list(self.scope.partitions), self.wake)
            if self._wanted():
                self.wake()

    def _wanted(self) -> list[tuple[int, int]]:
        bounds, at = self._port.bounds, self.positions.at
        wanted = []
        for partition_id in self.scope.partitions:
            first, end = bounds(partition_id)
            if at(partition_id) < end:
                wanted.append((partition_id, max(first, at(partition_id))))
        return wanted


# decision 66: matched by the kernel when it is stored
class FilterFeed(Feed):
    """The live end of a filter; the switchboard's `LiveListener`."""

    def open(self) -> None:
        """Subscribe, and wait for what was under way before: it was matched without this subscriber."""
        self._matched: dict[int, tuple[int, int]] = {}  # by partition id: first matching offset, and behind the last
        wanted = self.scope.wanted
        self._feeds.switchboard.subscribe(wanted.filter or "", self, 0, wanted.tenant)
        self.ready = self._feeds.when_durable()

    def close(self) -> None:
        """Unsubscribe from the filter: nobody reads the feed any more."""
        wanted = self.scope.wanted
        self._feeds.switchboard.unsubscribe(wanted.filter or "", self, wanted.tenant)

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Note where one flush put messages that match the filter."""
        if not self.live:
            return
        self._refresh()
        matched, partitions = self._matched, self.scope.partitions
        for address, messages, offset, _ in deliveries:
            partition_id = address.partition_id
            if partition_id in partitions:
                first, _ = matched.get(partition_id, (offset, 0))
                matched[partition_id] = (first, offset + len(messages))
        if len(matched) > MAX_MATCHED:
            matched.clear()
            self._drop_readers()
        else:
            self.wake()

    def _knows_all(self) -> bool:
        return self._port.delivered

    def _wanted(self) -> list[tuple[int, int]]:
        partitions = self.scope.partitions
        return [(partition_id, max(first, self._port.bounds(partition_id)[0]))
                for partition_id, (first, _) in self._matched.items() if partition_id in partitions]

    def _first_of(self, fetched: Fetched) -> int:
        first, _ = self._matched.get(fetched.partition_id, (0, 0))
        return first

    def _read_up_to(self, partition_id: int, offset: int) -> None:
        stretch = self._matched.get(partition_id)
        if stretch is not None and offset >= stretch[1]:
            del self._matched[partition_id]
        elif stretch is not None and offset > stretch[0]:
            self._matched[partition_id] = (offset, stretch[1])
