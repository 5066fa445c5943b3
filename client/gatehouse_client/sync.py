"""`SyncClient`: the client for programs without an event loop. Its calls run on one loop in a thread of its own.

Safe to use from several threads. Every call is that of `Client` with the same name; what that awaits, this waits for.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from gatehouse_client.batching import Result
from gatehouse_client.check_back import CheckBack, Listener
from gatehouse_client.client import Client
from gatehouse_client.consumer import STOP_TIMEOUT_S, Consumer, Handler
from gatehouse_client.errors import HubError
from gatehouse_client.groups import POP_MAX, Group, LeasedQueue, Leases, Redrive
from gatehouse_client.message import Headers, Message, Properties, Stored, Value
from gatehouse_client.transaction import Decision, Transaction

T = TypeVar("T")


class SyncClient:
    """A hub at `url`; `options` are those of `Client`. Use it as `with SyncClient(url) as client`."""

    message = staticmethod(Client.message)

    def __init__(self, url: str = "http://127.0.0.1:8080", **options: Any) -> None:
        self.client = Client(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gatehouse-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what was submitted, close the connections, end the thread. Stop consumers before; nothing may be
        called afterwards."""
        if self._loop.is_closed():
            return
        try:
            self.wait(self.client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call of `self.client` on the loop and wait for its result. An interrupted wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def publish(self, address: str | None = None, value: Value = None, *, topic: str | None = None, key: Value = None,
                headers: Headers = (), idempotency_key: str | None = None, **properties: Unpack[Properties]) -> Stored:
        """See `Client.publish`."""
        return self.wait(self.client.publish(address, value, topic=topic, key=key, headers=headers,
                                             idempotency_key=idempotency_key, **properties))

    def publish_many(self, messages: Sequence[bytes], *, idempotency_key: str | None = None) -> list[Result]:
        """See `Client.publish_many`."""
        return self.wait(self.client.publish_many(messages, idempotency_key=idempotency_key))

    def submit(self, address: str | None = None, value: Value = None, *, topic: str | None = None, key: Value = None,
               headers: Headers = (), on_done: Callable[[concurrent.futures.Future[Stored]], object] | None = None,
               **properties: Unpack[Properties]) -> concurrent.futures.Future[Stored]:
        """See `Client.submit`; `on_done` is called on the client's thread and must not wait for this client."""
        outcome: concurrent.futures.Future[Stored] = concurrent.futures.Future()
        if on_done is not None:
            outcome.add_done_callback(on_done)
        outcome.set_running_or_notify_cancel()

        def pass_on(future: asyncio.Future[Stored]) -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(future.result())

        self.wait(self.client.submit(address, value, topic=topic, key=key, headers=headers, on_done=pass_on,
                                     **properties))
        return outcome

    def flush(self) -> None:
        """See `Client.flush`."""
        self.wait(self.client.flush())

    def transaction(self, group: str, **options: Any) -> SyncTransaction:
        """See `Client.transaction`. Use it as `with`."""
        return SyncTransaction(self, self.client.transaction(group, **options))

    def check_back(self, group: str, listener: Listener, **options: Any) -> SyncCheckBack:
        """See `Client.check_back`; the listener is asked in threads. Use it as `with`."""
        return SyncCheckBack(self, self.client.check_back(group, listener, **options))

    def transactions(self, **query: Any) -> list[dict[str, Any]]:
        """See `Client.transactions`."""
        return self.wait(self.client.transactions(**query))

    def show_transaction(self, transaction_id: str) -> dict[str, Any]:
        """See `Client.show_transaction`."""
        return self.wait(self.client.show_transaction(transaction_id))

    def decide_transaction(self, transaction_id: str, decision: str) -> dict[str, Any]:
        """See `Client.decide_transaction`."""
        return self.wait(self.client.decide_transaction(transaction_id, decision))

    def check_transaction(self, transaction_id: str) -> None:
        """See `Client.check_transaction`."""
        self.wait(self.client.check_transaction(transaction_id))

    def publish_oneway(self, *messages: bytes) -> None:
        """See `Client.publish_oneway`."""
        self.wait(self.client.publish_oneway(*messages))

    def read(self, topic: str, start: str = "earliest", *, partition: int | None = None, filter: str | None = None,
             follow: bool = False) -> Iterator[Message]:
        """See `Client.read`."""
        return self._iterate(self.client.read(topic, start, partition=partition, filter=filter, follow=follow))

    def pages(self, topic: str, start: Mapping[str, str], follow: bool) -> Iterator[list[dict[str, Any]]]:
        """See `Client.pages`."""
        return self._iterate(self.client.pages(topic, start, follow))

    def groups(self) -> list[dict[str, Any]]:
        """See `Client.groups`."""
        return self.wait(self.client.groups())

    def group(self, name: str, topic: str = "") -> SyncGroup:
        """See `Client.group`."""
        return SyncGroup(self, self.client.group(name, topic))

    def leased_queue(self, name: str) -> SyncLeasedQueue:
        """See `Client.leased_queue`."""
        return SyncLeasedQueue(self, self.client.leased_queue(name))

    def consumer(self, group: str, topic: str, handler: Handler, **options: Any) -> SyncConsumer:
        """See `Client.consumer`; the handler is a plain function, run in threads. Use it as `with`."""
        return SyncConsumer(self, self.client.consumer(group, topic, handler, **options))

    def scheduled(self, limit: int | None = None) -> list[dict[str, Any]]:
        """See `Client.scheduled`."""
        return self.wait(self.client.scheduled(limit))

    def show_scheduled(self, message_id: str) -> dict[str, Any]:
        """See `Client.show_scheduled`."""
        return self.wait(self.client.show_scheduled(message_id))

    def trace(self, message_id: str) -> dict[str, Any]:
        """See `Client.trace`."""
        return self.wait(self.client.trace(message_id))

    def why(self, message_id: str, consumer: str, user: str | None = None) -> dict[str, Any]:
        """See `Client.why`."""
        return self.wait(self.client.why(message_id, consumer, user))

    def find_messages(self, **wanted: str) -> list[dict[str, Any]]:
        """See `Client.find_messages`."""
        return self.wait(self.client.find_messages(**wanted))

    def client_events(self, **wanted: str) -> list[dict[str, Any]]:
        """See `Client.client_events`."""
        return self.wait(self.client.client_events(**wanted))

    def recall(self, message_id: str) -> None:
        """See `Client.recall`."""
        self.wait(self.client.recall(message_id))

    def connections(self, limit: int | None = None) -> list[dict[str, Any]]:
        """See `Client.connections`."""
        return self.wait(self.client.connections(limit))

    def show_connection(self, connection_id: str) -> dict[str, Any]:
        """See `Client.show_connection`."""
        return self.wait(self.client.show_connection(connection_id))

    def close_connection(self, connection_id: str) -> None:
        """See `Client.close_connection`."""
        self.wait(self.client.close_connection(connection_id))

    def sessions(self, limit: int | None = None) -> list[dict[str, Any]]:
        """See `Client.sessions`."""
        return self.wait(self.client.sessions(limit))

    def show_session(self, client_id: str) -> dict[str, Any]:
        """See `Client.show_session`."""
        return self.wait(self.client.show_session(client_id))

    def delete_session(self, client_id: str) -> None:
        """See `Client.delete_session`."""
        self.wait(self.client.delete_session(client_id))

    def retained(self, filter: str) -> list[Message]:
        """See `Client.retained`."""
        return self.wait(self.client.retained(filter))

    def topics(self) -> list[dict[str, Any]]:
        """See `Client.topics`."""
        return self.wait(self.client.topics())

    def topic(self, name: str) -> dict[str, Any]:
        """See `Client.topic`."""
        return self.wait(self.client.topic(name))

    def define_topic(self, name: str, **settings: Any) -> dict[str, Any]:
        """See `Client.define_topic`."""
        return self.wait(self.client.define_topic(name, **settings))

    def delete_topic(self, name: str) -> None:
        """See `Client.delete_topic`."""
        self.wait(self.client.delete_topic(name))

    def queues(self) -> list[dict[str, Any]]:
        """See `Client.queues`."""
        return self.wait(self.client.queues())

    def queue(self, name: str) -> dict[str, Any]:
        """See `Client.queue`."""
        return self.wait(self.client.queue(name))

    def declare_queue(self, name: str, **settings: Any) -> dict[str, Any]:
        """See `Client.declare_queue`."""
        return self.wait(self.client.declare_queue(name, **settings))

    def delete_queue(self, name: str, *, if_empty: bool = False) -> None:
        """See `Client.delete_queue`."""
        self.wait(self.client.delete_queue(name, if_empty=if_empty))

    def queue_bindings(self, name: str) -> list[dict[str, Any]]:
        """See `Client.queue_bindings`."""
        return self.wait(self.client.queue_bindings(name))

    def bind_queue(self, name: str, filter: str) -> None:
        """See `Client.bind_queue`."""
        self.wait(self.client.bind_queue(name, filter))

    def unbind_queue(self, name: str, filter: str) -> None:
        """See `Client.unbind_queue`."""
        self.wait(self.client.unbind_queue(name, filter))

    def purge_queue(self, name: str) -> int:
        """See `Client.purge_queue`."""
        return self.wait(self.client.purge_queue(name))

    def peek_queue(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """See `Client.peek_queue`."""
        return self.wait(self.client.peek_queue(name, limit))

    def move_messages(self, name: str, *, queue: str | None = None, address: str | None = None,
                      limit: int | None = None) -> tuple[int, list[dict[str, Any]]]:
        """See `Client.move_messages`."""
        return self.wait(self.client.move_messages(name, queue=queue, address=address, limit=limit))

    def ready(self) -> bool:
        """See `Client.ready`."""
        return self.wait(self.client.ready())

    def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        return self.wait(self.client.status())

    def metrics(self) -> str:
        """See `Client.metrics`."""
        return self.wait(self.client.metrics())

    def request(self, method: str, path: str, document: Any = None, **options: Any) -> dict[str, Any]:
        """See `Client.request`."""
        return self.wait(self.client.request(method, path, document, **options))

    def _iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while entries := self.wait(_next(source)):
                yield entries[0]
        finally:
            # garbage may be collected on the loop's thread, where nothing can be waited for: the loop closes it then
            if not self._loop.is_closed() and threading.current_thread() is not self._thread:
                self.wait(source.aclose())


async def _next(source: AsyncGenerator[T, None]) -> list[T]:
    """The next of `source` alone, or nothing where it has ended."""
    async for entry in source:
        return [entry]
    return []


class SyncLeasedQueue:
    """See `LeasedQueue`: the same calls."""

    def __init__(self, client: SyncClient, queue: LeasedQueue) -> None:
        self._wait = client.wait
        self.queue = queue

    def pop(self, max: int = POP_MAX, *, invisible_s: float | None = None, wait_s: float = 0.0) -> list[Message]:
        """See `LeasedQueue.pop`."""
        return self._wait(self.queue.pop(max, invisible_s=invisible_s, wait_s=wait_s))

    def pop_documents(self, max: int = POP_MAX, *, invisible_s: float | None = None, wait_s: float = 0.0
                      ) -> list[dict[str, Any]]:
        """See `LeasedQueue.pop_documents`."""
        return self._wait(self.queue.pop_documents(max, invisible_s=invisible_s, wait_s=wait_s))

    def ack(self, leases: Leases) -> list[HubError | None]:
        """See `LeasedQueue.ack`."""
        return self._wait(self.queue.ack(leases))

    def extend(self, leases: Leases, invisible_s: float) -> list[HubError | None]:
        """See `LeasedQueue.extend`."""
        return self._wait(self.queue.extend(leases, invisible_s))

    def release(self, leases: Leases, delay_s: float | None = None) -> list[HubError | None]:
        """See `LeasedQueue.release`."""
        return self._wait(self.queue.release(leases, delay_s))

    def reject(self, leases: Leases) -> list[HubError | None]:
        """See `LeasedQueue.reject`."""
        return self._wait(self.queue.reject(leases))


class SyncGroup(SyncLeasedQueue):
    """See `Group`: the same calls."""

    def __init__(self, client: SyncClient, group: Group) -> None:
        super().__init__(client, group)
        self.group = group

    def define(self, **settings: Any) -> dict[str, Any]:
        """See `Group.define`."""
        return self._wait(self.group.define(**settings))

    def describe(self) -> dict[str, Any]:
        """See `Group.describe`."""
        return self._wait(self.group.describe())

    def delete(self) -> None:
        """See `Group.delete`."""
        self._wait(self.group.delete())

    def offsets(self) -> list[dict[str, Any]]:
        """See `Group.offsets`."""
        return self._wait(self.group.offsets())

    def rewind(self, to: str, *, partition: int | None = None) -> list[dict[str, Any]]:
        """See `Group.rewind`."""
        return self._wait(self.group.rewind(to, partition=partition))

    def dead_letters(self, max: int = 100) -> list[dict[str, Any]]:
        """See `Group.dead_letters`."""
        return self._wait(self.group.dead_letters(max))

    def redrive(self, ids: Sequence[str] | None = None) -> Redrive:
        """See `Group.redrive`."""
        return self._wait(self.group.redrive(ids))


class SyncConsumer:
    """See `Consumer`. Runs from `start` to `stop`, beside the caller."""

    def __init__(self, client: SyncClient, consumer: Consumer) -> None:
        self._wait = client.wait
        self.consumer = consumer

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def counts(self) -> dict[str, int]:
        """See `Consumer.counts`."""
        return self.consumer.counts

    def start(self) -> None:
        """See `Consumer.start`."""
        self._wait(self.consumer.start())

    def wait(self) -> None:
        """See `Consumer.wait`."""
        self._wait(self.consumer.wait())

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """See `Consumer.stop`."""
        self._wait(self.consumer.stop(timeout_s))


class SyncTransaction:
    """See `Transaction`: the same calls. A plain `outcome` is run on the client's thread."""

    message = staticmethod(Transaction.message)

    def __init__(self, client: SyncClient, transaction: Transaction) -> None:
        self._wait = client.wait
        self.transaction = transaction

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self._wait(self.transaction.__aexit__(kind, error, trace))

    @property
    def id(self) -> str:
        """See `Transaction.id`."""
        return self.transaction.id

    @property
    def decision(self) -> Decision | None:
        """See `Transaction.decision`."""
        return self.transaction.decision

    def publish(self, address: str | None = None, value: Value = None, *, topic: str | None = None, key: Value = None,
                headers: Headers = (), **properties: Unpack[Properties]) -> str:
        """See `Transaction.publish`."""
        return self._wait(self.transaction.publish(address, value, topic=topic, key=key, headers=headers, **properties))

    def publish_many(self, messages: Sequence[bytes]) -> list[str]:
        """See `Transaction.publish_many`."""
        return self._wait(self.transaction.publish_many(messages))

    def ack(self, message: Message, group: str) -> None:
        """See `Transaction.ack`."""
        self.transaction.ack(message, group)

    def advance(self, group: str, message: Message) -> None:
        """See `Transaction.advance`."""
        self.transaction.advance(group, message)

    def commit(self) -> None:
        """See `Transaction.commit`."""
        self._wait(self.transaction.commit())

    def rollback(self) -> None:
        """See `Transaction.rollback`."""
        self._wait(self.transaction.rollback())


class SyncCheckBack:
    """See `CheckBack`. Runs from `start` to `stop`, beside the caller."""

    def __init__(self, client: SyncClient, check_back: CheckBack) -> None:
        self._wait = client.wait
        self.check_back = check_back

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def counts(self) -> dict[str, int]:
        """See `CheckBack.counts`."""
        return self.check_back.counts

    def start(self) -> None:
        """See `CheckBack.start`."""
        self._wait(self._start())

    async def _start(self) -> None:
        self.check_back.start()

    def wait(self) -> None:
        """See `CheckBack.wait`."""
        self._wait(self.check_back.wait())

    def stop(self) -> None:
        """See `CheckBack.stop`."""
        self._wait(self.check_back.stop())
