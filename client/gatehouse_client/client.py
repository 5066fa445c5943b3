"""`Client`: the calls of a hub's HTTP door, for programs with an event loop.

Publishing comes in three kinds:

    publish, publish_many    return when the messages are durable
    submit                   returns a future; messages are gathered into batches on the way, in order
    publish_oneway           returns when the hub has taken them: at most once, nothing is repeated

A publish makes one `Idempotency-Key` per call and repeats the request with it, so a message is stored once however
often an answer is lost.
"""
from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Self, Unpack
from urllib.parse import quote
from uuid import uuid4

import orjson

from gatehouse_client.batching import Batcher, Batching, Result, in_requests
from gatehouse_client.check_back import CheckBack, Listener
from gatehouse_client.consumer import Consumer, Handler
from gatehouse_client.door import LONG_POLL_S, HttpDoor, path_of
from gatehouse_client.errors import HubError, NotFound, OutcomeUnknown, Unavailable, error_of
from gatehouse_client.groups import Group, LeasedQueue
from gatehouse_client.message import Headers, Message, Properties, Stored, Value, decode, decode_stored, encode
from gatehouse_client.retry import NO_RETRY, Retry
from gatehouse_client.transaction import Outcome, Transaction

MAX_REQUEST_MESSAGES: Final = 10_000      # what a hub takes in one request unless told otherwise
JSON: Final = {"Content-Type": "application/json"}

_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

OnStored = Callable[[asyncio.Future[Stored]], object]


class Client:
    """A hub at `url` (its HTTP door). Use it as `async with Client(url) as client`, on one loop.

    `timeout_s` is for one attempt of one request, `retry` says how many there are; at most `connections` are open,
    beside those of long polls. `tls` is what connections to an `https` URL are made with: other authorities than the
    system's, a client certificate.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, user: str | None = None, password: str | None = None,
                 retry: Retry | None = None, batching: Batching | None = None, timeout_s: float = 15.0,
                 connections: int = 100, tls: ssl.SSLContext | None = None) -> None:
        self.door = HttpDoor(url, user=user, password=password, retry=retry or Retry(), timeout_s=timeout_s,
                             connections=connections, tls=tls)
        self._batcher = Batcher(self._publish_batch, batching or Batching())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for what was submitted, then close the connections."""
        await self._batcher.drain()
        await self.door.close()

    # --- publishing ----------------------------------------------------------------------------------------------

    async def publish(self, address: str | None = None, value: Value = None, *, topic: str | None = None,
                      key: Value = None, headers: Headers = (), idempotency_key: str | None = None,
                      **properties: Unpack[Properties]) -> Stored:
        """Store one message at an address, or in a topic under a key; returns where it is once it is durable.

        Raises HubError; after OutcomeUnknown repeat the call with the error's `idempotency_key`.
        """
        message = encode(value, address=address, topic=topic, key=key, headers=headers, properties=properties,
                         now_ms=_now_ms())
        key = idempotency_key or new_key()
        (result,) = await self._publish([message], key, key)
        return _stored(result)

    async def publish_many(self, messages: Sequence[bytes], *, idempotency_key: str | None = None) -> list[Result]:
        """Store messages that `message` has made, in order; what became of each: where it is, or why it is not.

        Those of one request are stored together, and more than a request takes go in several. Raises HubError where a
        whole request failed, OutcomeUnknown where messages of one before it are stored; repeating the call with the
        same `idempotency_key` stores nothing twice.
        """
        base = idempotency_key or new_key()
        results: list[Result] = []
        for number, request in enumerate(in_requests(list(messages), MAX_REQUEST_MESSAGES)):
            try:
                results += await self._publish(request, f"{base}-{number}", base)
            except HubError as error:
                if not any(isinstance(result, Stored) for result in results):
                    raise
                raise _stored_in_part(error, base, len(results)) from error
        return results

    async def submit(self, address: str | None = None, value: Value = None, *, topic: str | None = None,
                     key: Value = None, headers: Headers = (), on_done: OnStored | None = None,
                     **properties: Unpack[Properties]) -> asyncio.Future[Stored]:
        """Publish without waiting: the future ends in where the message is, or in HubError; `on_done` is given it.

        Waits only while more is under way than `Batching` allows. `flush` waits for all.
        """
        future = await self._batcher.submit(encode(value, address=address, topic=topic, key=key, headers=headers,
                                                   properties=properties, now_ms=_now_ms()))
        if on_done is not None:
            future.add_done_callback(on_done)
        return future

    async def flush(self) -> None:
        """Returns when everything submitted before has been answered."""
        await self._batcher.drain()

    async def publish_oneway(self, *messages: bytes) -> None:
        """Hand over messages that `message` has made; returns when the hub has taken them, not when they are durable.

        Nothing is repeated. Raises HubError where the hub did not take one.
        """
        for request in in_requests(list(messages), MAX_REQUEST_MESSAGES):
            answer = await self.door.ask("POST", "/v1/publish", body=_body(request), retry=NO_RETRY,
                                         headers={**JSON, "Prefer": "respond-async"})
            for result in _results(answer.document(), len(request)):
                _stored(result)

    # --- transactions --------------------------------------------------------------------------------------------

    def transaction(self, group: str, *, check: Mapping[str, Any] | None = None, outcome: Outcome | None = None
                    ) -> Transaction:
        """Half messages that exist only if the caller's own work does; use it as `async with`, around that work.

        `check` is when the group is asked (`after`, `every` in seconds, `times`), as configured unless given; `outcome`
        see `Transaction`.
        """
        return Transaction(self, group, check=None if check is None else dict(check), outcome=outcome)

    def check_back(self, group: str, listener: Listener, **options: Any) -> CheckBack:
        """Answers the hub's questions what became of transactions of a group; `options` are those of `CheckBack`."""
        return CheckBack(self, group, listener, **options)

    async def transactions(self, *, state: str = "open", group: str = "", older_than_s: float = 0.0,
                           limit: int | None = None) -> list[dict[str, Any]]:
        """Transactions in this state (open, committed, rolled_back, expired) with their checks; all, or so many."""
        query = {"state": state, **({"group": group} if group else {}),
                 **({"older_than": f"{older_than_s:g}"} if older_than_s else {})}
        transactions: list[dict[str, Any]] = []
        while limit is None or len(transactions) < limit:
            page = await self.request("GET", "/v1/transactions", query=query)
            transactions += page["transactions"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return transactions[:limit]

    async def show_transaction(self, transaction_id: str) -> dict[str, Any]:
        """One with every check and its decision. Raises HubError: unknown_transaction."""
        return await self.request("GET", path_of("v1", "transactions", transaction_id))

    async def decide_transaction(self, transaction_id: str, decision: str) -> dict[str, Any]:
        """`commit` or `rollback` somebody's transaction. Raises HubError: unknown_transaction, already_decided."""
        return await self.request("POST", path_of("v1", "transactions", transaction_id, decision), repeatable=True)

    async def check_transaction(self, transaction_id: str) -> None:
        """Have a member of its group asked now. Raises HubError: unknown_transaction, already_decided."""
        await self.request("POST", path_of("v1", "transactions", transaction_id, "check"))

    @staticmethod
    def message(address: str | None = None, value: Value = None, *, topic: str | None = None, key: Value = None,
                headers: Headers = (), **properties: Unpack[Properties]) -> bytes:
        """One message for `publish_many` and `publish_oneway`, as the request will say it."""
        return encode(value, address=address, topic=topic, key=key, headers=headers, properties=properties,
                      now_ms=_now_ms())

    async def _publish_batch(self, messages: list[bytes]) -> list[Result]:
        return await self._publish(messages, new_key(), None)      # a key of many tells nothing of one of them

    # decision 78
    async def _publish(self, messages: list[bytes], key: str, told_key: str | None) -> list[Result]:
        try:
            answer = await self.door.ask("POST", "/v1/publish", body=_body(messages), repeatable=True,
                                         headers={**JSON, "Idempotency-Key": key})
        except OutcomeUnknown as error:
            error.idempotency_key = told_key
            raise
        except HubError as error:
            return _refused(error, len(messages))
        return _results(answer.document(), len(messages))

    # --- reading -------------------------------------------------------------------------------------------------

    async def read(self, topic: str, start: str = "earliest", *, partition: int | None = None,
                   filter: str | None = None,
                   follow: bool = False) -> AsyncGenerator[Message, None]:
        """Messages of a topic from `start`: `earliest`, `latest`, an RFC 3339 time, or with `partition` an offset.

        Ends where the topic ends now, or with `follow` never. Nothing is kept in the hub about this reader.
        """
        query = {"from": start, "partition": "" if partition is None else str(partition), "filter": filter or ""}
        async for page in self.pages(topic, query, follow):
            for document in page:
                yield decode(document)

    async def pages(self, topic: str, start: Mapping[str, str], follow: bool
                    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The hub's JSON messages page by page, from `start` (the query's `from`, `partition`, `cursor`, ...).

        Ends at the first page that is empty and skipped nothing, or never where `follow`: then an empty page has
        waited for `LONG_POLL_S`.
        """
        query = {name: value for name, value in start.items() if value}
        wait_s = LONG_POLL_S if follow else 0.0
        if follow:
            query["wait"] = f"{LONG_POLL_S:g}"
        while True:
            page = await self.request("GET", path_of("v1", "topics", topic, "messages"), query=query, wait_s=wait_s)
            messages = page.get("messages")
            if messages:
                yield messages
            elif not follow and not page.get("skipped"):
                return
            if not page.get("cursor"):
                raise HubError("the hub sent a page without a cursor; is it of this version?")
            query["cursor"] = page["cursor"]
            query.pop("from", None)
            query.pop("partition", None)

    # --- groups --------------------------------------------------------------------------------------------------

    async def groups(self) -> list[dict[str, Any]]:
        """Every group by name, with its settings."""
        return await self._listed("groups")

    def group(self, name: str, topic: str = "") -> Group:
        """The leased group `name`, reading `topic`."""
        return Group(self, name, topic)

    def leased_queue(self, name: str) -> LeasedQueue:
        """The queue `name`: AMQP's, `$dead-letters/GROUP`, or another. It must exist."""
        return LeasedQueue(self, "queues", name)

    def consumer(self, group: str, topic: str, handler: Handler, **options: Any) -> Consumer:
        """Runs `handler` for every message of a group; `options` are those of `Consumer`."""
        return Consumer(self.group(group, topic), handler, **options)

    # --- what waits for its time ---------------------------------------------------------------------------------

    async def scheduled(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What waits for its time, as the hub shows it, what falls due next first; all of it, or the first so many."""
        messages: list[dict[str, Any]] = []
        query: dict[str, str] = {}
        while limit is None or len(messages) < limit:
            page = await self.request("GET", "/v1/scheduled", query=query)
            messages += page["scheduled"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return messages[:limit]

    async def show_scheduled(self, message_id: str) -> dict[str, Any]:
        """What waits under this id, or what became of it within the last day. Raises HubError: unknown_scheduled."""
        return await self.request("GET", path_of("v1", "scheduled", message_id))

    async def recall(self, message_id: str) -> None:
        """Take back what waits. Raises HubError: already_delivered, unknown_scheduled."""
        await self.request("DELETE", path_of("v1", "scheduled", message_id))

    # --- what happened to messages -------------------------------------------------------------------------------

    async def trace(self, message_id: str) -> dict[str, Any]:
        """The journey of a message, as the hub shows it. Raises HubError: unknown_message."""
        return await self.request("GET", path_of("v1", "trace", message_id))

    async def why(self, message_id: str, consumer: str, user: str | None = None) -> dict[str, Any]:
        """Why a message did not arrive at a group, or a queue (`$queue/NAME`). Raises HubError: unknown_message."""
        query = {"consumer": consumer} | ({} if user is None else {"user": user})
        return await self.request("GET", path_of("v1", "trace", message_id, "why"), query=query)

    async def find_messages(self, **wanted: str) -> list[dict[str, Any]]:
        """The newest messages with a `key`, `address`, `trace_id` or `correlation_id`, or at a `topic`, `partition` and
        `offset`, or with an `origin` (HUB/ID of the hub from which it came), between the times `from` and `to`."""
        messages: list[dict[str, Any]] = (await self.request("GET", "/v1/trace", query=wanted))["messages"]
        return messages

    async def client_events(self, **wanted: str) -> list[dict[str, Any]]:
        """What was told of clients, the newest first: publishes that were refused, connections, subscriptions, by
        `user`, `client_id` or `address`, between the times `from` and `to`."""
        events: list[dict[str, Any]] = (await self.request("GET", "/v1/trace/events", query=wanted))["events"]
        return events

    # --- who is connected ----------------------------------------------------------------------------------------

    async def connections(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Open connections of every door, in the order in which they came; all, or the first so many."""
        connections: list[dict[str, Any]] = []
        query: dict[str, str] = {"max": "1000"}
        while limit is None or len(connections) < limit:
            page = await self.request("GET", "/v1/connections", query=query)
            connections += page["connections"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return connections[:limit]

    async def show_connection(self, connection_id: str) -> dict[str, Any]:
        """One with `details` that its door tells. Raises HubError: unknown_connection."""
        return await self.request("GET", path_of("v1", "connections", connection_id))

    async def close_connection(self, connection_id: str) -> None:
        """End it in its protocol's words. Raises HubError: unknown_connection."""
        await self.request("DELETE", path_of("v1", "connections", connection_id))

    # --- sessions ------------------------------------------------------------------------------------------------

    async def sessions(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Sessions that outlive their connections, sorted by client id; all, or the first so many."""
        sessions: list[dict[str, Any]] = []
        query: dict[str, str] = {"max": "1000"}
        while limit is None or len(sessions) < limit:
            page = await self.request("GET", "/v1/sessions", query=query)
            sessions += page["sessions"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return sessions[:limit]

    async def show_session(self, client_id: str) -> dict[str, Any]:
        """One with its `filters`. Raises HubError: unknown_session."""
        return await self.request("GET", path_of("v1", "sessions", client_id))

    async def delete_session(self, client_id: str) -> None:
        """End it with everything that waits for it. Raises HubError: unknown_session."""
        await self.request("DELETE", path_of("v1", "sessions", client_id))

    # --- last values ---------------------------------------------------------------------------------------------

    async def retained(self, filter: str) -> list[Message]:
        """The last values that the matching addresses were told to keep (`retain=True`), by address."""
        query: dict[str, str] = {}
        messages: list[Message] = []
        while True:
            try:
                answer = await self.request("GET", "/v1/retained/" + _path_of_address(filter), query=query)
            except NotFound:
                return []
            if "messages" not in answer:
                return [decode(answer)]
            messages += [decode(document) for document in answer["messages"]]
            if not answer["cursor"]:
                return messages
            query["cursor"] = answer["cursor"]

    # --- topics, and the hub itself ------------------------------------------------------------------------------

    async def topics(self) -> list[dict[str, Any]]:
        """Every topic that may be read, by name, with its settings."""
        return await self._listed("topics")

    async def topic(self, name: str) -> dict[str, Any]:
        """One topic with its settings and the bounds of its partitions."""
        return await self.request("GET", path_of("v1", "topics", name))

    async def define_topic(self, name: str, **settings: Any) -> dict[str, Any]:
        """Make a topic, or make one that exists read so: `partitions`, and the settings of docs/configuration.md."""
        return await self.request("PUT", path_of("v1", "topics", name), settings)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        await self.request("DELETE", path_of("v1", "topics", name))

    async def queues(self) -> list[dict[str, Any]]:
        """Every queue that may be read, by name, with its settings."""
        return await self._listed("queues")

    async def queue(self, name: str) -> dict[str, Any]:
        """One queue with its settings, and what is ready, leased, waiting."""
        return await self.request("GET", path_of("v1", "queues", name))

    async def declare_queue(self, name: str, **settings: Any) -> dict[str, Any]:
        """Make a queue. One that is there is left as it is, and must have these settings. Raises HubError:
        queue_exists."""
        return await self.request("PUT", path_of("v1", "queues", name), settings)

    async def delete_queue(self, name: str, *, if_empty: bool = False) -> None:
        """Delete a queue with everything in it. Raises HubError: unknown_queue, queue_not_empty."""
        await self.request("DELETE", path_of("v1", "queues", name), query={"if_empty": "true"} if if_empty else {})

    async def queue_bindings(self, name: str) -> list[dict[str, Any]]:
        """What leads to a queue: filters of addresses."""
        answer = await self.request("GET", path_of("v1", "queues", name, "bindings"))
        bindings: list[dict[str, Any]] = answer["bindings"]
        return bindings

    async def bind_queue(self, name: str, filter: str) -> None:
        """What is published to matching addresses enters the queue too, from now on."""
        await self.request("PUT", path_of("v1", "queues", name, "bindings"), {"filter": filter})

    async def unbind_queue(self, name: str, filter: str) -> None:
        """Undo `bind_queue`. Raises HubError: unknown_binding."""
        await self.request("DELETE", path_of("v1", "queues", name, "bindings"), {"filter": filter})

    async def purge_queue(self, name: str) -> int:
        """Take everything out of a queue that is ready; how many messages that was."""
        answer = await self.request("POST", path_of("v1", "queues", name, "purge"))
        return int(answer["purged"])

    async def peek_queue(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """What is in a queue, as the hub shows it; all of it, or the first so many. Nothing is taken."""
        messages: list[dict[str, Any]] = []
        query: dict[str, str] = {}
        while limit is None or len(messages) < limit:
            page = await self.request("GET", path_of("v1", "queues", name, "messages"), query=query)
            messages += page["messages"]
            if not page["cursor"]:
                break
            query["cursor"] = page["cursor"]
        return messages[:limit]

    async def move_messages(self, name: str, *, queue: str | None = None, address: str | None = None,
                            limit: int | None = None) -> tuple[int, list[dict[str, Any]]]:
        """Move messages of a queue to another `queue`, or publish them to an `address`; as many as are ready, or the
        first so many. How many went, and a problem for each that did not."""
        if limit is None:
            limit = max(1, (await self.queue(name))["ready"])      # not what comes meanwhile, perhaps by this
        moved = 0
        wish: dict[str, Any] = {"address": address} if queue is None else {"queue": queue}
        while moved < limit:
            wish["max"] = min(limit - moved, MAX_REQUEST_MESSAGES)
            answer = await self.request("POST", path_of("v1", "queues", name, "move"), wish)
            moved += answer["moved"]
            if answer["left"] or not answer["more"] or not answer["moved"]:
                return moved, answer["left"]
        return moved, []

    async def _listed(self, what: str) -> list[dict[str, Any]]:
        documents: list[dict[str, Any]] = []
        query: dict[str, str] = {}
        while True:
            page = await self.request("GET", path_of("v1", what), query=query)
            documents += page.get(what, [])
            if not page.get("cursor"):
                return documents
            query["cursor"] = page["cursor"]

    async def ready(self) -> bool:
        """Whether the hub takes messages. Raises HubError where there is none."""
        try:
            await self.door.ask("GET", "/readyz", retry=NO_RETRY)
        except Unavailable as error:
            if error.status:
                return False
            raise
        return True

    async def status(self) -> dict[str, Any]:
        """What the hub says of itself, as far as the user may know it."""
        return await self.request("GET", "/v1/status")

    async def metrics(self) -> str:
        """The hub's page for Prometheus."""
        return (await self.door.ask("GET", "/metrics", repeatable=True)).body.decode()

    # --- everything else -----------------------------------------------------------------------------------------

    async def hold(self, path: str, body: bytes, *, once: bool) -> dict[str, Any]:
        """Half messages as JSON; with `once` the request may be repeated and holds them once."""
        headers = {**JSON, "Idempotency-Key": new_key()} if once else JSON
        answer = await self.door.ask("POST", path, body=body, headers=headers, repeatable=once)
        return answer.document()

    async def request(self, method: str, path: str, document: Any = None, *, query: Mapping[str, str] | None = None,
                      headers: Mapping[str, str] | None = None, repeatable: bool | None = None,
                      wait_s: float = 0.0) -> dict[str, Any]:
        """Any call of the HTTP interface with JSON in and out; `path` is percent-encoded. Raises HubError.

        Repeated where it reads or replaces (GET, PUT, DELETE), or where `repeatable` says so. An answer without a body
        is an empty document.
        """
        if repeatable is None:
            repeatable = method in ("GET", "HEAD", "PUT", "DELETE")
        body = None if document is None else orjson.dumps(document)
        answer = await self.door.ask(method, path, query=query, body=body, repeatable=repeatable, wait_s=wait_s,
                                     headers={**({} if body is None else JSON), **(headers or {})})
        return answer.document() if answer.body else {}


def new_key() -> str:  # decision 78
    """An `Idempotency-Key` that nobody else makes."""
    return uuid4().hex


def _path_of_address(address: str) -> str:
    """An address as a path: what is escaped in it already (`%2F` inside a level) stays so."""
    return quote(_LONE_PERCENT.sub("%25", address), safe="/%")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _body(messages: list[bytes]) -> bytes:
    return b'{"messages":[' + b",".join(messages) + b"]}"


def _stored_in_part(error: HubError, key: str, count: int) -> OutcomeUnknown:
    """One of several requests failed, behind others that are stored: their `count` messages are answered for."""
    unknown = OutcomeUnknown(f"{count} messages were answered for before this: {error}", error.code, error.status,
                             error.problem)
    unknown.idempotency_key, unknown.retry_after_s = key, error.retry_after_s
    return unknown


def _refused(error: HubError, count: int) -> list[Result]:
    """What became of each message of a request of which nothing was stored. Raises the error where it does not say."""
    messages = error.problem.get("messages")
    if not isinstance(messages, list):
        raise error
    return _results({"messages": messages}, count)


def _results(document: Mapping[str, Any], count: int) -> list[Result]:
    """What became of each message of a request: 201, 202 or 207."""
    answers = document.get("messages")
    if not isinstance(answers, list) or len(answers) != count:
        raise HubError("the hub did not answer for every message; is it of this version?")
    return [decode_stored(answer) if answer["status"] < 400 else error_of(answer["status"], answer)
            for answer in answers]


def _stored(result: Result) -> Stored:
    if isinstance(result, HubError):
        raise result
    return result
