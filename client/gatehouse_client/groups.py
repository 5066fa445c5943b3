"""Groups and queues of a hub: take messages, then ack, extend or release each by its receipt handle.

A message that was taken is invisible to the other members for a time; unless it is acked until then it comes again.
`Consumer` does all of this by itself; these are the single calls.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse_client.door import path_of
from gatehouse_client.errors import HubError, error_of
from gatehouse_client.message import Message, decode

if TYPE_CHECKING:
    from gatehouse_client.client import Client

POP_MAX: Final = 32                 # messages of one pop unless asked, as in the HTTP interface
MAX_HANDLES: Final = 1_000          # of one request
PAGE_MAX: Final = 100               # of one page, which may have fewer: a hub bounds its bytes, too

Leases = Iterable[Message | str]
"""Messages that were popped, or their receipt handles."""


class Redrive(NamedTuple):
    """How many dead letters went back, and up to 1,000 of those that did not, each with `id`, `code` and `detail`."""

    redriven: int
    left: list[dict[str, Any]]


class LeasedQueue:
    """Whatever messages are leased from: a group that reads a topic, or a queue."""

    def __init__(self, client: Client, kind: str, name: str, topic: str = "") -> None:
        self.client = client
        self.name = name
        self.topic = topic
        self._kind = kind

    def _path(self, *more: str) -> str:
        return path_of("v1", self._kind, self.name, *more)

    async def pop(self, max: int = POP_MAX, *, invisible_s: float | None = None, wait_s: float = 0.0) -> list[Message]:
        """Take up to `max` messages for `invisible_s` (the group's unless given); waits so long for the first one.

        Never repeated by itself where the answer was lost: what was taken comes again when its time is up.
        """
        return [decode(document) for document in await self.pop_documents(max, invisible_s=invisible_s, wait_s=wait_s)]

    async def pop_documents(self, max: int = POP_MAX, *, invisible_s: float | None = None, wait_s: float = 0.0
                            ) -> list[dict[str, Any]]:
        """`pop`, with the messages as the hub's JSON."""
        query = {"max": str(max), **({"topic": self.topic} if self.topic else {})}
        if invisible_s is not None:
            query["invisible"] = f"{invisible_s:g}"
        if wait_s:
            query["wait"] = f"{wait_s:g}"
        page = await self.client.request("POST", self._path("pop"), query=query, wait_s=wait_s)
        documents: list[dict[str, Any]] = page.get("messages", [])
        return documents

    async def ack(self, leases: Leases) -> list[HubError | None]:
        """Acknowledge leases: their messages never come again. Returns, for each, None or why not (LeaseLost: it was
        too late)."""
        return await self._settle("ack", leases, {})

    async def extend(self, leases: Leases, invisible_s: float) -> list[HubError | None]:
        """Keep leases for `invisible_s` from now on."""
        return await self._settle("extend", leases, {"invisible": invisible_s})

    async def release(self, leases: Leases, delay_s: float | None = None) -> list[HubError | None]:
        """Give leases back: their messages come again after `delay_s`, or as the group's retry says."""
        return await self._settle("release", leases, {} if delay_s is None else {"delay": delay_s})

    async def reject(self, leases: Leases) -> list[HubError | None]:
        """Do not try the messages of these leases again: they become dead letters."""
        return await self._settle("release", leases, {"dead_letter": True})

    async def _settle(self, call: str, leases: Leases, more: dict[str, Any]) -> list[HubError | None]:
        handles = [lease if isinstance(lease, str) else lease.receipt_handle for lease in leases]
        results: list[HubError | None] = []
        for start in range(0, len(handles), MAX_HANDLES):
            answer = await self.client.request("POST", self._path(call), repeatable=True, document={
                "receipt_handles": handles[start:start + MAX_HANDLES], **more})
            results += [error_of(outcome["status"], outcome) if outcome["status"] >= 400 else None
                        for outcome in answer["results"]]
        return results


class Group(LeasedQueue):
    """The group `name`, reading `topic`. Made by `Client.group`; it exists in the hub from its first use on."""

    def __init__(self, client: Client, name: str, topic: str = "") -> None:
        super().__init__(client, "groups", name, topic)

    async def define(self, **settings: Any) -> dict[str, Any]:
        """Make the group, or make it read so: `ordered`, `invisible_ms`, `max_attempts`, ... (docs/client.md)."""
        return await self.client.request("PUT", self._path(), settings)

    async def describe(self) -> dict[str, Any]:
        """The group's settings and, for each topic that it reads, what is ready, leased, waiting."""
        return await self.client.request("GET", self._path())

    async def delete(self) -> None:
        """Forget the group: its settings, its progress and its leases."""
        await self.client.request("DELETE", self._path())

    async def offsets(self) -> list[dict[str, Any]]:
        """The group's progress in each partition of the topic."""
        answer = await self.client.request("GET", self._path("offsets"), query={"topic": self.topic})
        offsets: list[dict[str, Any]] = answer["offsets"]
        return offsets

    async def rewind(self, to: str, *, partition: int | None = None) -> list[dict[str, Any]]:
        """Go on from `earliest`, `latest`, an RFC 3339 time, or with `partition` an offset; leases that run are
        void."""
        document = {"topic": self.topic, "to": to} | ({} if partition is None else {"partition": partition})
        answer = await self.client.request("PUT", self._path("offsets"), document)
        offsets: list[dict[str, Any]] = answer["offsets"]
        return offsets

    # --- dead letters --------------------------------------------------------------------------------------------

    async def dead_letters(self, max: int = 100) -> list[dict[str, Any]]:
        """Messages that could not be delivered, with reason and origin, oldest first; so many at most."""
        messages: list[dict[str, Any]] = []
        query = {"group": self.name}
        while len(messages) < max:
            query["max"] = str(min(max - len(messages), PAGE_MAX))
            page = await self.client.request("GET", "/v1/dead-letters", query=query)
            messages += page["messages"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return messages

    async def redrive(self, ids: Sequence[str] | None = None) -> Redrive:
        """Send dead letters back to where they came from: these, or all."""
        document = {"group": self.name, **({"all": True} if ids is None else {"ids": list(ids)})}
        count = 0
        while True:
            answer = await self.client.request("POST", "/v1/dead-letters/redrive", document)
            count += answer["redriven"]
            if not answer["more"]:
                return Redrive(count, answer["left"])
