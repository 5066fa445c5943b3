"""All feeds that have readers: one per stream, however many read it. Their heartbeat, and what they share.

A feed is nobody's own, so it reads by the door's port (decision 216): each reader's right to all of its stream is asked
before he is given it, and again when rights have changed.

Several feeds can want the same message in the same turn: it is decoded once and written as JSON once for all of them.
"""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.http.cloud_events import to_structured
from gatehouse.gateways.http.live.blocks import LOST, MESSAGE, Entry
from gatehouse.gateways.http.live.feed import Feed, FilterFeed, TopicFeed
from gatehouse.gateways.http.live.scope import Scope, Wanted
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.records.batch import sound_records

if TYPE_CHECKING:
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.page import Page
    from gatehouse.kernel.message import Piece, Record, Stored
    from gatehouse.kernel.selectors.selector import Selector
    from gatehouse.kernel.state.topics import Topic

LOOK_S: Final = 0.1
"""How often topics are looked for that a stream waits for."""

REPLAYS_AT_ONCE: Final = 16
"""Readers that read the log at one time; the others wait for their turn, so what they hold is bounded."""


class Feeds:
    """Opened and closed by readers, each once."""

    def __init__(self, door: Door) -> None:
        self.port = door.port
        self.switchboard = door.switchboard
        self.slices = door.services.kernel.slices
        self.loop = door.loop
        self.hub: bytes = door.port.hub
        self.replaying = asyncio.Semaphore(REPLAYS_AT_ONCE)
        self._door = door
        self._feeds: dict[Wanted, Feed] = {}
        self._opened: dict[tuple[int, int, int], list[Record]] = {}
        self._written: dict[tuple[int, int, bool, bool], bytes] = {}
        self._clearing = False
        self._timer: asyncio.TimerHandle | None = None
        self._version = -1
        self._beat_at = 0.0

    def __len__(self) -> int:
        return len(self._feeds)

    def open(self, wanted: Wanted, selector: Selector | None) -> Feed:
        """The feed of a stream, for one reader. Raises InvalidFilter."""
        feed = self._feeds.get(wanted)
        if feed is None:
            scope = Scope(self.port, wanted, selector)
            feed = FilterFeed(self, scope) if wanted.filter is not None else TopicFeed(self, scope)
            feed.open()
            if not self._feeds:
                self._beat_at = self.loop.time() + self._door.config.heartbeat_s
            self._feeds[wanted] = feed
            self._tick_later()
        feed.users += 1
        return feed

    def close(self, feed: Feed) -> None:
        """One reader has gone."""
        feed.users -= 1
        if not feed.users:
            del self._feeds[feed.scope.wanted]
            feed.close()

    def when_durable(self) -> asyncio.Future[None]:
        """Done when everything that was appended until now is durable, or refused."""
        waiter = _Waiter(self.loop)
        self._door.flush(waiter, None)
        return waiter.future

    # --- from records to entries ------------------------------------------------------------------------------------

    def open_piece(self, piece: Piece) -> list[Record]:
        """A piece's sound records."""
        if len(self._feeds) < 2:
            return sound_records(piece)
        key = (piece.first_id, piece.first_offset, len(piece.data))
        records = self._opened.get(key)
        if records is None:
            records = self._opened[key] = sound_records(piece)
            self._clear_soon()
        return records

    def entries_of(self, scope: Scope, page: Page) -> list[Entry]:
        """What a page shows of a stream: first what it cannot give, then its messages."""
        entries = [self._lost(scope, gap) for gap in (*page.lost, *page.unreadable)
                   if gap["partition"] in scope.partitions]
        for partition_id, record in page.records:
            place = scope.partitions.get(partition_id)
            if place is not None and scope.shows(place[0], record):
                body = self._message(place[0], place[1], partition_id, record, scope.wanted)
                entries.append(Entry(partition_id, record[0] + 1, MESSAGE, body))
        return entries

    @staticmethod
    def _lost(scope: Scope, gap: dict[str, Any]) -> Entry:
        topic, number = scope.partitions[gap["partition"]]
        body = orjson.dumps({"topic": topic.name, **gap, "partition": number})
        return Entry(gap["partition"], gap["offset"] + gap["count"], LOST, body)

    def _message(self, topic: Topic, number: int, partition_id: int, record: Record, wanted: Wanted) -> bytes:
        key = (partition_id, record[0], wanted.cloud_events, wanted.json_values)
        body = self._written.get(key)
        if body is None:
            address = self.port.address_of(topic.name, record[2], record[4])
            body = orjson.dumps(to_structured(record, topic.name, address) if wanted.cloud_events
                                else self._shown(topic, number, record, address, wanted.json_values))
            if len(self._feeds) > 1:
                self._written[key] = body
                self._clear_soon()
        return body

    def _shown(self, topic: Topic, number: int, record: Record, address: str, parsed: bool) -> dict[str, Any]:
        came_by = door_of(record[5])
        return record_to_json(record, topic.name, number, address, self._door.door_names.get(came_by, str(came_by)),
                              parsed=parsed)

    def _clear_soon(self) -> None:
        if not self._clearing:
            self._clearing = True
            self.loop.call_soon(self._clear)

    def _clear(self) -> None:
        self._clearing = False
        self._opened.clear()
        self._written.clear()

    # --- time -------------------------------------------------------------------------------------------------------

    def _tick_later(self) -> None:
        if self._timer is None and self._feeds:
            self._timer = self.loop.call_later(LOOK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.port.topics_version != self._version:
            self._version = self.port.topics_version
            for feed in list(self._feeds.values()):
                feed.on_topics_changed()
        now = self.loop.time()
        if now >= self._beat_at:
            self._beat_at = now + self._door.config.heartbeat_s
            for feed in list(self._feeds.values()):
                feed.advance()
                feed.beat()
        self._tick_later()


class _Waiter:
    """A `door_side.Submitter` that waits for one answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def on_stored(self, stored: list[Stored]) -> None:
        """The answer has come: what was appended is durable, or refused."""
        if not self.future.done():
            self.future.set_result(None)
