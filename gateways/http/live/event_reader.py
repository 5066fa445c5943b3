"""One reader of Server-Sent Events.

While it keeps up, the feed's finished bytes go straight to its socket: no task, no copy per reader. When more than
`stream_unsent_bytes` wait there, or than the hub's budget has for it, it is given nothing more; its place is
remembered, and once the socket has room it reads the log from there, block by block, until it has caught up. A reader
that takes nothing at all is cut off by the server after `stall_timeout_s`, as any other client, and resumes by
`Last-Event-ID`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.exchange import Answered, Call
from gatehouse.gateways.http.live.blocks import Block
from gatehouse.gateways.http.live.replay import Replay
from gatehouse.gateways.http.stream import drained

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.live.feed import Feed
    from gatehouse.gateways.http.live.feeds import Feeds
    from gatehouse.gateways.http.live.positions import Positions

EVENT_STREAM: Final = "text/event-stream"
HEADERS: Final = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
"""Headers of a stream of events. `X-Accel-Buffering` keeps nginx from holding events back."""

RETRY: Final = b"retry: %d\n"
"""The line that tells a reader when to connect again, in ms. No empty line stands behind it, nor behind a comment
alone: some readers take every empty line for the end of an event."""


class EventReader:
    """A `feed.FeedReader` that owns one answer, and its principal's `RegisteredSession`: it ends when `allowed` is no
    longer so."""

    def __init__(self, door: Door, feeds: Feeds, feed: Feed, positions: Positions, call: Call,
                 allowed: Callable[[], bool], guard: Guard) -> None:
        self._door = door
        self._allowed = allowed
        self._ended = False
        self._feed = feed
        self._replay = Replay(feeds, feed, positions)
        self._path = call.path
        self._guard = guard
        self._session = call.session
        self._answer = door.stream(call, HEADERS)
        self._behind: Reply[None] = Reply()
        self._told = b""

    async def run(self) -> Answered:
        """Send until the reader goes or the hub stops. Raises StorageFailed."""
        self._session.note_stream(self)
        self._answer.start()
        await self._send(RETRY % self._door.config.stream_retry_ms)
        try:
            while not (self._ended or self._door.stopping):
                if self._guard.limits_out:
                    await self._door.until_handing_out(self._guard, self._feed.scope.topic)
                block = await self._replay.next_block()
                if self._ended:
                    break                    # while the log was read
                if block is None:
                    await self._live()
                elif block.entries:
                    self._count(block)
                    await self._send(block.events)
        finally:
            self._session.note_stream(None)
            self._feed.leave(self)
        return self._answer

    def describe(self) -> dict[str, Any]:
        """The reader's state, for people."""
        return {"protocol": "events", "subscriptions": 1, "path": self._path}

    async def _live(self) -> None:
        """Be written to by the feed, until this is no longer enough."""
        self._tell(self._replay.positions)
        self._behind = Reply()
        self._feed.join(self)
        await self._door.unless_stopping(self._behind)
        await drained(self._session)

    async def _send(self, data: bytes) -> None:
        self._answer.write(data)
        await drained(self._session)

    def _count(self, block: Block) -> None:
        self._door.flow.messages_out += len(block.entries)
        self._door.flow.bytes_out += len(block.events)
        if self._guard.limits_out:
            self._guard.hand_out(len(block.entries), len(block.events), self._feed.scope.topic)

    # --- what admission calls ---------------------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        """End the answer: whoever comes again has to log in again. Nothing is written from this moment on."""
        self._ended = True
        self._feed.leave(self)
        self.on_dropped(self._replay.positions)

    def on_rights_changed(self) -> None:
        """End the answer where its reader may no longer read the stream."""
        if not self._allowed():
            self.on_principal_ended("the right to read this was taken away")

    # --- what the feed calls ----------------------------------------------------------------------------------------

    def on_block(self, block: Block) -> bool:
        """Write a block to the reader, unless too much waits already."""
        session = self._session
        if session.unsent_bytes > self._door.most_unsent or (  # decision 65
                self._guard.limits_out and self._guard.out_wait_ms(self._feed.scope.topic)):
            self.on_dropped(block.before)
            return False
        session.write(block.chunk if self._answer.chunked else block.events)
        self._count(block)
        return True

    # decision 67: carries the id on
    def on_heartbeat(self, positions: Positions) -> None:
        """Write a comment as a sign of life, with the place where that is a new one: an `id` without `data` is
        remembered and no event."""
        if self._session.unsent_bytes <= self._door.most_unsent:
            self._tell(positions)

    def _tell(self, positions: Positions) -> None:
        word = positions.word()
        text = b":\n" if word == self._told or not word else b":\nid: %b\n\n" % word
        self._told = word
        self._answer.write(text)

    def on_dropped(self, positions: Positions) -> None:
        """Go on from these positions by reading the log."""
        self._replay.go_on_from(positions)
        self._behind.set_result(None)
