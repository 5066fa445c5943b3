"""What one WebSocket client is sent as far as its credit goes: one stream, as a `feed.FeedReader`; the checks of a
group whose member it is.

    {"type": "messages", "subscription": "s1", "messages": [...], "cursor": "..."}

Each message costs one credit; without credit nothing is sent, and nothing is kept either: the subscription is behind
and reads the log once there is credit again.
"""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import describe_check
from gatehouse.gateways.http.exchange import problem_document
from gatehouse.gateways.http.live.blocks import MESSAGE, Block
from gatehouse.gateways.http.live.replay import Replay
from gatehouse.gateways.http.websocket.frames import MAX_CREDIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.live.feed import Feed
    from gatehouse.gateways.http.live.positions import Positions
    from gatehouse.gateways.http.websocket.connection import WebSocketConnection
    from gatehouse.transactions.coordinator import Check


class Subscription:
    """`name` is the client's. Ends by `end`; the feed is closed then."""

    def __init__(self, door: Door, connection: WebSocketConnection, name: str, feed: Feed, positions: Positions,
                 credit: int, allowed: Callable[[], bool]) -> None:
        self.name = name
        self.credit = credit
        self.allowed = allowed
        self._door = door
        self._connection = connection
        self._feed = feed
        self._replay = Replay(door.feeds, feed, positions)
        self._head = b'"subscription":%b,' % orjson.dumps(name)
        self._waiting: asyncio.Future[None] | None = None
        self._task = door.loop.create_task(self._run())
        self._task.add_done_callback(self._on_ended)         # and no `finally`: it may end before it has begun

    def add_credit(self, credit: int) -> None:
        """The client takes so many messages more."""
        self.credit = min(MAX_CREDIT, self.credit + credit)
        self._wake()

    def end(self) -> None:
        """End the subscription: nothing is sent any more."""
        self._feed.leave(self)               # at once: the task hears of it in a later turn
        self._task.cancel()

    def describe(self) -> dict[str, object]:
        """The subscription's state, for people."""
        wanted = self._feed.scope.wanted
        return {"subscription": self.name, "topic": wanted.topic, "filter": wanted.filter, "credit": self.credit}

    async def _run(self) -> None:
        guard = self._connection.guard
        try:
            while True:
                while self.credit <= 0:
                    await self._wait()
                await self._connection.drained()
                if guard.limits_out:
                    await self._door.until_handing_out(guard, self._feed.scope.topic)
                block = await self._replay.next_block()
                if block is None:
                    self._feed.join(self)
                    await self._wait()
                else:
                    self._take(block)
        except ConnectionError:
            return                           # the client has gone
        except Exception as error:           # storage that cannot be read, or a fault of ours: the client is told
            self._connection.answer({"type": "error", "subscription": self.name, "problem": problem_document(error)})

    def _on_ended(self, _: asyncio.Task[None]) -> None:
        self._feed.leave(self)
        self._door.feeds.close(self._feed)
        self._connection.forget(self)

    async def _wait(self) -> None:
        """Wait until there is credit, or the feed has left the reader behind."""
        self._waiting = self._door.loop.create_future()
        await self._waiting

    def _wake(self) -> None:
        """Look again: a live subscription is not waiting for credit, and is left alone while it keeps up."""
        if self._waiting is not None and not self._waiting.done() and self not in self._feed.live:
            self._waiting.set_result(None)

    # --- what the feed calls ----------------------------------------------------------------------------------------

    # decision 69: nothing is kept for who has no credit
    def on_block(self, block: Block) -> bool:
        """Send as much as there is credit for."""
        guard = self._connection.guard
        if self._connection.unsent_bytes > self._door.most_unsent or self.credit <= 0 or (
                guard.limits_out and guard.out_wait_ms(self._feed.scope.topic)):
            self.on_dropped(block.before)
            return False
        return self._take(block)

    def on_heartbeat(self, positions: Positions) -> None:
        """Does nothing: a WebSocket connection has signs of life of its own."""

    def on_dropped(self, positions: Positions) -> None:
        """Go on from these positions by reading the log."""
        self._replay.go_on_from(positions)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _take(self, block: Block) -> bool:
        """Send the block; False where the credit did not last, and the place is behind what was sent."""
        if len(block.entries) <= self.credit and block.plain:
            if block.entries:
                self.credit -= len(block.entries)
                self._hand_out(len(block.entries), len(block.bodies))
                self._connection.send(b'{"type":"messages",%b"messages":[%b],"cursor":"%b"}'
                                      % (self._head, block.bodies, block.word))
            return True
        positions, taken = block.before.copy(), 0
        for frame, count in self._frames(block, positions):
            self._connection.send(frame)
            self._hand_out(count, len(frame))
            taken += count
        if taken == len(block.entries):
            return True
        self.on_dropped(positions)
        return False

    def _hand_out(self, messages: int, size_bytes: int) -> None:
        self._door.flow.messages_out += messages
        if self._connection.guard.limits_out:
            self._connection.guard.hand_out(messages, size_bytes, self._feed.scope.topic)

    def _frames(self, block: Block, positions: Positions) -> Iterator[tuple[bytes, int]]:
        """Frames for the first entries of a block, each with how many it holds, until the credit is used up."""
        for name, run in groupby(block.entries, key=lambda entry: entry.name):
            entries = list(run)
            if name == MESSAGE:
                entries = entries[:self.credit]
                self.credit -= len(entries)
                if not entries:
                    return
            for entry in entries:
                positions.move(entry.partition_id, entry.next_offset)
            bodies, word = b",".join([entry.body for entry in entries]), positions.word()
            yield b'{"type":"%b",%b"%b":[%b],"cursor":"%b"}' % (
                b"messages" if name == MESSAGE else name, self._head, b"messages" if name == MESSAGE else b"ranges",
                bodies, word), len(entries)
            if name == MESSAGE and not self.credit:
                return


class Listening:
    """One client's membership in a group, a `transactions.members.Member`. Checks are sent as far as its
    credit goes; every frame `checks` may give more credit."""

    def __init__(self, connection: WebSocketConnection, group: str, credit: int) -> None:
        self.group = group
        self._connection = connection
        self._membership = connection.guard.transactions.join_checks(
            group, self, f"{connection.principal.name} websocket", credit)

    def add_credit(self, count: int) -> None:
        """Let the client be sent so many checks more."""
        self._membership.add_credit(count)

    def allowed(self) -> bool:
        """Whether the client may still be asked."""
        return self._connection.guard.may_group(Operation.TRANSACT, self.group)

    def on_checks(self, checks: list[Check]) -> None:
        """Send checks to the client. Called by the coordinator."""
        names = self._connection.door.door_names
        self._connection.send(orjson.dumps({"type": "checks", "group": self.group,
                                            "checks": [describe_check(check, names) for check in checks]}))

    def end(self) -> None:
        """End the membership: the client is asked nothing more."""
        self._membership.leave()
