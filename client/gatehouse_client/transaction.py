"""A transaction: messages that exist only if the sender's own work does.

    async with client.transaction("shop") as transaction:
        await transaction.publish(topic="orders", key="17", value=order)     # stored by the hub, seen by nobody
        async with database.begin() as connection:                           # the caller's own transaction
            await connection.execute(...)
                                                                             # committed here, or rolled back

The half messages are durable before the own work begins, so whatever happens afterwards, somebody who knows what became
of that work can tell: this program at the end of the block, or a `CheckBack` of the group when it died meanwhile.
"""
from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import orjson

from gatehouse_client.door import path_of
from gatehouse_client.errors import HubError
from gatehouse_client.message import Headers, Message, Properties, Value, encode

if TYPE_CHECKING:
    from gatehouse_client.client import Client

log = logging.getLogger("gatehouse_client")

TRANSACTIONS: Final = "/v1/transactions"


class Decision(Enum):
    """What became of the sender's own work."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """The outcome is not known yet: the hub asks again."""


Outcome = Callable[[], "Decision | Awaitable[Decision]"]
"""Looks up what became of the own work."""


class TransactionUndecided(HubError):
    """The hub could not be told of the decision. It asks the group's members, who find out by themselves."""


class Transaction:
    """Made by `Client.transaction`; begins with its first half message. Use it as `async with`.

    The end of the block commits, an exception rolls back, unless the block asked for a commit and heard nothing of it:
    that is left to the check-back. Where an exception can leave open whether the own work was done (a database that was
    lost in the middle of its commit), give `outcome`: it is asked then, and UNKNOWN leaves it to the check-back.
    """

    def __init__(self, client: Client, group: str, *, check: dict[str, Any] | None = None,
                 outcome: Outcome | None = None) -> None:
        self.client = client
        self.group = group
        self.id = ""
        """The hub's name of it, once it has begun; it is that of its first message."""
        self.decision: Decision | None = None
        self._asked_for: Decision | None = None
        self._check = check
        self._outcome = outcome
        self._acks: dict[str, list[str]] = {}
        self._offsets: dict[tuple[str, str, int], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self.decision is not None:
            return
        if error is None:
            if self._asked_for is Decision.ROLLBACK:
                await self.rollback()
            elif self.id or self._settles:
                await self.commit()
        elif self.id and self._asked_for is not Decision.COMMIT:     # which may have been heard
            try:
                await self._end_after()
            except Exception as failed:                  # the caller's own is what the caller hears
                log.warning("transaction %s of %r is left to its check-back: %r", self.id, self.group, failed)

    async def publish(self, address: str | None = None, value: Value = None, *, topic: str | None = None,
                      key: Value = None, headers: Headers = (), **properties: Unpack[Properties]) -> str:
        """Hold one half message; returns its id once it is durable. A delay counts from the commit. Raises HubError."""
        (message_id,) = await self.publish_many([self.message(address, value, topic=topic, key=key, headers=headers,
                                                              **properties)])
        return message_id

    @staticmethod
    def message(address: str | None = None, value: Value = None, *, topic: str | None = None, key: Value = None,
                headers: Headers = (), **properties: Unpack[Properties]) -> bytes:
        """One half message for `publish_many`."""
        return encode(value, address=address, topic=topic, key=key, headers=headers, properties=properties,
                      now_ms=int(time.time() * 1000), half=True)

    async def publish_many(self, messages: Sequence[bytes]) -> list[str]:
        """Hold half messages that `message` has made, all of them or none; returns their ids. Raises HubError."""
        body = b'"messages":[%b]}' % b",".join(messages)
        if self.id:
            answer = await self.client.hold(path_of("v1", "transactions", self.id, "messages"), b"{" + body, once=False)
        else:
            about: dict[str, Any] = {"group": self.group} | ({} if self._check is None else {"check": self._check})
            answer = await self.client.hold(TRANSACTIONS, orjson.dumps(about)[:-1] + b"," + body, once=True)
            self.id = answer["id"]
        return [message["id"] for message in answer["messages"]]

    def ack(self, message: Message, group: str) -> None:
        """With the commit: this message, popped by that group, is done."""
        self._acks.setdefault(group, []).append(message.receipt_handle)

    def advance(self, group: str, message: Message) -> None:
        """With the commit: that group, which counts by offsets, is behind this message."""
        place = (group, message.topic, message.partition)
        self._offsets[place] = max(self._offsets.get(place, 0), message.offset + 1)

    async def commit(self) -> None:
        """Every message enters its partition, and what was consumed is settled, in one piece; again is no mistake.

        Raises LeaseLost where a message that is settled with it is no longer held (nothing is decided then),
        Conflict where it was decided otherwise, TransactionUndecided.
        """
        settled: dict[str, Any] = {}
        if self._acks:
            settled["acks"] = [{"group": group, "receipt_handles": handles} for group, handles in self._acks.items()]
        if self._offsets:
            settled["offsets"] = [{"group": group, "topic": topic, "partition": partition, "offset": offset}
                                  for (group, topic, partition), offset in self._offsets.items()]
        await self._decide(Decision.COMMIT, settled)

    async def rollback(self) -> None:
        """The messages were never there; what was consumed is not settled. Raises Conflict, TransactionUndecided."""
        await self._decide(Decision.ROLLBACK, {})

    @property
    def _settles(self) -> bool:
        return bool(self._acks or self._offsets)

    async def _end_after(self) -> None:
        """An exception has left the block."""
        outcome = self._outcome() if self._outcome is not None else Decision.ROLLBACK
        decision = await outcome if inspect.isawaitable(outcome) else outcome
        if not isinstance(decision, Decision):
            raise TypeError(f"an outcome is a Decision, not {decision!r}")
        if decision is not Decision.UNKNOWN:
            await (self.commit() if decision is Decision.COMMIT else self.rollback())

    async def _decide(self, decision: Decision, settled: dict[str, Any]) -> None:
        if not self.id:
            raise ValueError("a transaction begins with a half message")
        self._asked_for = decision
        await decide(self.client, self.id, decision, settled)
        self.decision = decision


async def decide(client: Client, transaction_id: str, decision: Decision, settled: dict[str, Any] | None = None
                 ) -> None:
    """Tell the hub; repeated until it answers, as long as the client's `retry` says. Raises as `Transaction.commit`."""
    path = path_of("v1", "transactions", transaction_id, decision.value)
    try:
        await client.request("POST", path, settled or None, repeatable=True)
    except HubError as error:
        if error.status and error.status < 500 and error.status != 429:
            raise
        raise TransactionUndecided(f"transaction {transaction_id} was not decided: {error}", error.code, error.status,
                                   error.problem) from error
