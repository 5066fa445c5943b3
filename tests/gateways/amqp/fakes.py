"""The kernel's queues without a kernel, and a client that speaks AMQP in bytes: for tests without a socket."""
from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import Any

from gatehouse.gateways.admission.guard import Guard
from gatehouse.gateways.amqp import GATEWAY, codec
from gatehouse.gateways.amqp.broker import Broker
from gatehouse.gateways.amqp.config import AmqpConfig
from gatehouse.gateways.amqp.consuming import Consumer, ConsumerSource
from gatehouse.gateways.amqp.dead_letters import encode_target
from gatehouse.gateways.amqp.exchanges import Binding
from gatehouse.gateways.amqp.methods import decode_method, encode_method
from gatehouse.gateways.amqp.tables import typed
from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost
from gatehouse.gateways.kit import FakeHub, FakeKernel
from gatehouse.kernel.message import Handle, Leased, Message, Owner, Placement


class FakeKernelQueue:
    """One queue: ready messages in order, and those that somebody holds."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ready: deque[Leased] = deque()
        self.out: dict[Handle, Leased] = {}
        self.consumers: list[Consumer] = []
        self.next_offset = 0


class Flushed:
    def __init__(self, then: Any) -> None:
        self.on_stored = lambda stored: then()


class FakeQueues:
    """`gateways.amqp.ports.Queues` in memory, fed by `QueueKernel.flush`."""

    def __init__(self, kernel: QueueKernel) -> None:
        self.kernel = kernel
        self.acked: list[Handle] = []
        self.dead_letter: Any = None
        self.records: dict[str, bytes] = {}
        self.heard: list[Binding] = []

    # ---- queues

    def open(self, queue: AmqpQueue) -> None:
        queue.kernel_queue = self.kernel.make_queue(queue.name)

    def reopen(self, vhost: VirtualHost) -> list[AmqpQueue]:
        return []

    def adopt(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        return None

    def on_gone(self, tell: Any) -> None:
        self.tell_gone = tell

    def drop(self, queue: AmqpQueue) -> None:
        queue.kernel_queue = self.kernel.make_queue(queue.name)

    def purge(self, queue: AmqpQueue) -> int:
        count = len(queue.kernel_queue.ready)
        queue.kernel_queue.ready.clear()
        return count

    def share(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        return None

    def ready(self, queue: AmqpQueue) -> int:
        return len(queue.kernel_queue.ready)

    def hear(self, binding: Binding, exchange_type: str, queue: AmqpQueue) -> None:
        self.heard.append(binding)

    def unhear(self, vhost: VirtualHost, binding: Binding) -> None:
        if binding in self.heard:
            self.heard.remove(binding)

    # ---- consuming

    def attach(self, consumer: Consumer) -> None:
        consumer.queue.kernel_queue.consumers.append(consumer)
        self.top_up(consumer)

    def detach(self, consumer: Consumer) -> None:
        consumer.queue.kernel_queue.consumers.remove(consumer)

    def top_up(self, consumer: Consumer) -> None:
        self.kernel.kernel_queues.setdefault(consumer.queue.kernel_queue, None)

    def take_one(self, source: ConsumerSource, on_done: Any) -> None:
        kernel_queue = source.queue.kernel_queue
        one = kernel_queue.ready.popleft() if kernel_queue.ready else None
        if one is not None:
            kernel_queue.out[one[:3]] = one
        on_done(one)

    def when_flushed(self, then: Any) -> None:
        self.kernel.append([], Flushed(then), None)

    def ack(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        for handle in handles:
            queue.kernel_queue.out.pop(handle, None)
        self.acked += handles

    def release(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        kernel_queue = queue.kernel_queue
        again = [kernel_queue.out.pop(handle) for handle in handles if handle in kernel_queue.out]
        again = [(one[0], one[1], one[2] + 1, *one[3:]) for one in again]
        kernel_queue.ready = deque(sorted([*kernel_queue.ready, *again], key=itemgetter(1)))
        self.kernel.kernel_queues.setdefault(kernel_queue, None)

    def reject(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        target = encode_target(queue.settings.dead_letter_exchange, queue.settings.dead_letter_key)
        for handle in handles:
            one = queue.kernel_queue.out.pop(handle)
            if target:
                self.kernel.append(self.dead_letter(queue.vhost.name, queue.name, target, one, "rejected"), None)

    def dead_letter_by(self, dead_letter: Any) -> None:
        self.dead_letter = dead_letter

    # ---- publishing and definitions

    def place(self, guard: Guard, address: str, queues: list[AmqpQueue], priority: int) -> int:
        if not address:
            return guard.place_queue(queues[0].name, priority)
        return guard.place_routed(address, tuple([queue.kernel_queue.number for queue in queues]))

    def place_letter(self, queue: AmqpQueue, priority: int) -> Placement:
        return self.kernel.place_queue(queue.kernel_queue, priority)

    def address_of(self, queue: AmqpQueue, leased: Leased) -> str:
        return "plant/line1"

    def store(self, vhost: VirtualHost, records: dict[str, bytes | None], owner: Owner | None, token: object) -> None:
        for name, value in records.items():
            if value is None:
                del self.records[name]
            else:
                self.records[name] = value
        self.kernel.append([], owner, token)

    def stored(self) -> list[tuple[str, str, bytes]]:
        return [("/", name, value) for name, value in self.records.items()]


class QueueKernel(FakeKernel):
    """The fake kernel with queues: what is stored enters them, and a flush hands it to consumers."""

    def __init__(self, now_ms: Any) -> None:
        super().__init__(now_ms)
        self.hub = bytes(16)
        self.entered: dict[Placement, list[FakeKernelQueue]] = {}
        self.kernel_queues: dict[FakeKernelQueue, None] = {}
        self._placed_before: dict[tuple[str, int, tuple[int, ...]], Placement] = {}
        self.named: dict[str, FakeKernelQueue] = {}
        self.numbered: list[FakeKernelQueue] = []

    def make_queue(self, name: str) -> FakeKernelQueue:
        queue = self.named[name] = FakeKernelQueue(len(self.numbered))
        self.numbered.append(queue)
        return queue

    @property
    def groups(self) -> QueueKernel:
        return self

    def queue(self, name: str, tenant: str) -> FakeKernelQueue | None:
        return self.named.get(name)

    def place_queue(self, queue: FakeKernelQueue, priority: int = 0) -> Placement:
        placement = self._placed("", (queue.number,), priority)
        placement.queue = queue
        return placement

    def place_routed(self, address: str, queues: tuple[int, ...], tenant: str = "/", may_create: bool = True,
                     maker: str = "") -> Placement:
        return self._placed(address, queues, 0)

    def _placed(self, address: str, queues: tuple[int, ...], priority: int) -> Placement:
        placement = self._placed_before.get((address, priority, queues))
        if placement is None:
            base = self.place(address or "queue")
            placement = self._placed_before[address, priority, queues] = Placement(
                base.tenant, address, base.topic, base.topic_id, 0, base.partition_id, base.key, base.key_part, b"",
                base.max_message_bytes, base.first_level)
            self.entered[placement] = [self.numbered[number] for number in queues]
        return placement

    def _store(self, message: Message, stretches: Any) -> tuple[int, int, int]:
        place = super()._store(message, stretches)
        for kernel_queue in self.entered.get(message[0], ()):
            kernel_queue.ready.append((kernel_queue, kernel_queue.next_offset, 1, place[2], 0, message[0].key,
                                       message[1], message[2],
                                message[3]))
            kernel_queue.next_offset += 1
            self.kernel_queues.setdefault(kernel_queue, None)
        return place

    def flush(self) -> None:
        super().flush()
        kernel_queues, self.kernel_queues = self.kernel_queues, {}
        for kernel_queue in kernel_queues:
            for consumer in list(kernel_queue.consumers):
                room = consumer.room() if consumer.no_ack else min(consumer.room(), consumer.channel.budget.left)
                leased = [kernel_queue.ready.popleft() for _ in range(min(room, len(kernel_queue.ready)))]
                kernel_queue.out.update({one[:3]: one for one in leased})
                if not consumer.no_ack:
                    consumer.channel.budget.left -= len(leased)
                if leased:
                    consumer.on_leased(leased)


class Hub(FakeHub):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kernel: QueueKernel = QueueKernel(self.now_ms)
        self.services.kernel = self.kernel  # type: ignore[assignment]
        self.queues = FakeQueues(self.kernel)
        self.services.shared["amqp"] = self.broker = Broker(self.services, self.queues)

    def client(self, config: AmqpConfig | None = None) -> Client:
        return Client(self, config or AmqpConfig())


NO_PROPERTIES = b"\0\0"

Got = tuple[int, str, dict[str, Any]]
"""(channel, method, arguments); a content is `header` and `body`"""


class Client:
    """Speaks bytes; `got` reads what the hub wrote since the last call."""

    def __init__(self, hub: Hub, config: AmqpConfig) -> None:
        self.hub = hub
        self.session, self.link = hub.open(GATEWAY, config)

    def send(self, data: bytes) -> None:
        self.session.handle_data(data)

    def ask(self, name: str, channel: int = 1, **arguments: Any) -> list[Got]:
        """A method, a flush, and what came back."""
        table = arguments.get("arguments")
        if table:
            arguments["arguments"] = {key: typed(value) for key, value in table.items()}
        self.send(codec.frame(codec.METHOD, channel, encode_method(name, **arguments)))
        self.hub.kernel.flush()
        return self.got()

    def login(self, capabilities: tuple[str, ...] = ("consumer_cancel_notify", "connection.blocked"), *,
              frame_max: int = 131_072, heartbeat: int = 0, channels: int = 1) -> Client:
        self.send(b"AMQP\0\0\x09\x01")
        properties = {"capabilities": typed(dict.fromkeys(capabilities, True))}
        self.ask("connection.start-ok", 0, client_properties=properties, mechanism="PLAIN",
                 response=b"\0guest\0guest", locale="en_US")
        self.ask("connection.tune-ok", 0, frame_max=frame_max, channel_max=2047, heartbeat=heartbeat)
        assert self.ask("connection.open", 0, virtual_host="/")[-1][1] == "connection.open-ok"
        for number in range(1, channels + 1):
            assert self.ask("channel.open", number)[0][1] == "channel.open-ok"
        return self

    def publish(self, exchange: str, key: str, body: bytes, raw: bytes = NO_PROPERTIES, channel: int = 1,
                **arguments: Any) -> None:
        self.send(publish(exchange, key, body, raw, channel, **arguments))

    def got(self) -> list[Got]:
        data, found, at = self.link.take(), [], 0
        while at < len(data):
            size = int.from_bytes(data[at + 3:at + 7], "big")
            kind, channel, payload = data[at], int.from_bytes(data[at + 1:at + 3], "big"), data[at + 7:at + 7 + size]
            assert data[at + 7 + size] == codec.FRAME_END
            at += size + 8
            if kind == codec.METHOD:
                found.append((channel, *decode_method(payload)))
            elif kind == codec.HEADER:
                found.append((channel, "header", {"size": int.from_bytes(payload[4:12], "big"), "raw": payload[12:]}))
            else:
                found.append((channel, "body" if kind == codec.BODY else "heartbeat", {"body": payload}))
        return found

    def names(self) -> list[str]:
        return [name for _, name, _ in self.got()]


def publish(exchange: str, key: str, body: bytes, raw: bytes = NO_PROPERTIES, channel: int = 1, body_max: int = 131_064,
            **arguments: Any) -> bytes:
    method = encode_method("basic.publish", exchange=exchange, routing_key=key, **arguments)
    return codec.frame(codec.METHOD, channel, method) + codec.encode_content(
        channel.to_bytes(2, "big"), raw, body, body_max)
