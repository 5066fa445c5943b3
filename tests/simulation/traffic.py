"""The writing half of a plan's steps: publishes, idempotency keys, producers' batches."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import IdempotencyConflict, MessageTooLarge
from gatehouse.kernel.message import TRANSIENT, Message, Stored
from gatehouse.kernel.records.batch import encode_headers, read_header
from gatehouse.kernel.records.compression import GZIP
from gatehouse.kernel.state.topics import Topic
from tests.kernel.batches import batch_of
from tests.kernel.packers import stored
from tests.simulation.checker import Attempt, Broken, Sent, value_of
from tests.simulation.clients import Cursor, Producer

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

TOPICS: Final = ("t0", "t1", "t2", "t3")
ADDRESSES: Final = ("t0/k0", "t0/k1", "t0/k2", "t1/k0", "t1/k1", "t1", "t2/k1", "t2/deep/er", "t3/k0", "not a topic/k1")
SIZES: Final = (0, 10, 100, 1_000, 5_000)
HEADERS: Final = ((), ((b"content-type", b"text/plain"),), ((b"a", None), (b"a", b"2")))
UNACKNOWLEDGED: Final = 5                   # batches of one producer and partition, as Kafka clients allow
STALLS_MS: Final = 10_000                   # a message bears the time of the first one of its frame
KEYS: Final = 12                            # idempotency keys in use


class Traffic:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._ledger = simulation.ledger
        self._once: dict[str, Attempt] = {}                  # by idempotency key, the newest
        self._used: list[str] = []                           # keys in the order of their last first use

    @property
    def _now_ms(self) -> int:
        return self._simulation.hub.world.loop.now_ms()

    # ---- publishes

    def publish(self, client: int, address: int, count: int, size: int) -> None:
        attempt = self._ledger.attempt("plain", f"client-{client % 3}", self._now_ms)
        count = 1 + (count % 40 if count % 3 == 0 else count % 3)
        self._append(client, attempt, [ADDRESSES[address % len(ADDRESSES)]] * count, size)

    def scatter(self, client: int, count: int, size: int, first: int) -> None:
        attempt = self._ledger.attempt("plain", f"client-{client % 3}", self._now_ms)
        addresses = [ADDRESSES[(first + i * i) % len(ADDRESSES)] for i in range(1 + count % 15)]
        self._append(client, attempt, addresses, size)

    def publish_once(self, client: int, address: int, size: int, name: int) -> None:
        """A new message under an idempotency key: one never used, or one that has left the window by age."""
        key = f"key-{name % KEYS}"
        old = self._once.get(key)
        if old is not None and old.last_ms >= self._now_ms - self._simulation.plan.settings.idempotency_ms - 1:
            if old.acknowledged and self._in_window(key):
                self._conflict(client, old)
            return
        if old is not None and old.waiting:
            return
        attempt = self._ledger.attempt("once", f"client-{client % 3}", self._now_ms)
        attempt.key = key
        self._once[key] = attempt
        self._used = [other for other in self._used if other != key] + [key]
        self._append(client, attempt, [ADDRESSES[address % len(ADDRESSES)]] * (1 + size % 2), size)

    def repeat_once(self, which: int, client: int, *_: int) -> None:
        if not self._used:
            return
        key = self._used[which % len(self._used)]
        if self._in_window(key):
            attempt = self._once[key]
            self._call(client, attempt, [self._message(sent) for sent in attempt.messages])

    def _in_window(self, key: str) -> bool:
        """The hub must know the key still: it is young enough, and not too many came after it."""
        settings = self._simulation.plan.settings
        young = self._once[key].first_ms > self._now_ms - settings.idempotency_ms + STALLS_MS
        return young and key in self._used[-(settings.max_idempotency_keys // 2):]

    def _conflict(self, client: int, old: Attempt) -> None:
        other = old.messages[0]._replace(value=b"another")
        try:
            self._simulation.hub.kernel.append([self._message(other)], None, idempotency_key=old.key)
        except IdempotencyConflict:
            return
        raise Broken(f"{old.key} was taken for another message")

    def _append(self, client: int, attempt: Attempt, addresses: list[str], size: int) -> None:
        size = SIZES[size % len(SIZES)] if size % 200 else 160_000
        headers, attributes = HEADERS[size % len(HEADERS)], TRANSIENT if size % 7 == 0 else 1
        kernel = self._simulation.hub.kernel
        for index, address in enumerate(addresses):
            placement = kernel.place(address)
            stored = (*headers, (b"address", address.encode())) if placement.address_header else headers
            value = value_of(attempt.number, index, size)
            attempt.messages.append(Sent(address, placement.partition_id, placement.key, value, stored, attributes))
        self._simulation.note()
        self._call(client, attempt, [self._message(sent) for sent in attempt.messages])

    def _message(self, sent: Sent) -> Message:
        headers = tuple(header for header in sent.headers if header[0] != b"address")
        return self._simulation.hub.kernel.place(sent.address), sent.value, encode_headers(headers), sent.attributes, 0

    def _call(self, client: int, attempt: Attempt, messages: list[Message]) -> None:
        owner = self._simulation.clients[client % 3]
        first = attempt.calls == 0
        attempt.last_ms = self._now_ms
        mark = self._simulation.definitions.topics.mark

        def told(stored: Stored) -> None:
            if stored.error is None and first:
                self._simulation.definitions.topics.acknowledged(mark)

        asking = owner.ask(attempt, told)
        try:
            self._simulation.hub.kernel.append(messages, owner, asking, positions=True,
                                               idempotency_key=attempt.key or None)
        except MessageTooLarge:
            owner.take_back(asking)
            return
        except IdempotencyConflict:
            raise Broken(f"{attempt.key} came with the same message and was refused") from None
        if first:
            self._simulation.reading.sent(attempt)

    # ---- producers

    def new_producer(self, client: int, *_: int) -> None:
        owner = self._simulation.clients[client % 3]

        def told(stored: Stored) -> None:
            if stored.error is None:
                producer_id = stored.positions[0][0]
                if producer_id in self._simulation.producer_ids:
                    raise Broken(f"producer id {producer_id} was given twice")
                self._simulation.producer_ids.add(producer_id)
                self._simulation.producers.append(Producer(producer_id))

        self._simulation.hub.kernel.new_producer_id(owner, owner.ask(None, told))

    def produce(self, producer: int, topic: int, partition: int, count: int) -> None:
        found = self._line(producer, topic, partition)
        if found is None:
            return
        sender, line, partition_id, of = found
        unanswered = line.unanswered
        if any(not batch.waiting for batch in unanswered):
            for batch in unanswered:                         # in order, all of them, as a client does after an error
                self._send(partition_id, batch)
        elif len(unanswered) < UNACKNOWLEDGED:
            self._send(partition_id, self._next_batch(sender, line, partition_id, of, 1 + count % 5))

    def repeat_batch(self, producer: int, topic: int, partition: int, which: int) -> None:
        """A client that did not get an answer it was sent."""
        found = self._line(producer, topic, partition)
        if found is not None:
            _, line, partition_id, _ = found
            if line.batches and not line.unanswered:
                self._send(partition_id, line.batches[-1 - which % min(UNACKNOWLEDGED, len(line.batches))])

    def _line(self, producer: int, topic: int, partition: int) -> tuple[Producer, Cursor, int, Topic] | None:
        producers = self._simulation.producers
        found = self._simulation.hub.kernel.topic(TOPICS[topic % len(TOPICS)])
        if not producers or found is None:
            return None
        sender = producers[producer % len(producers)]
        partition_id = found.partition_id(partition % found.partitions)
        return sender, sender.lines.setdefault(partition_id, Cursor()), partition_id, found

    def _next_batch(self, sender: Producer, line: Cursor, partition_id: int, topic: Topic, count: int) -> Attempt:
        attempt = self._ledger.attempt("batch", f"producer-{sender.producer_id}", self._now_ms)
        attempt.sequence = line.next_sequence
        records, elsewhere = [], attempt.number % 2 == 1       # a batch that is opened on another thread
        for index in range(count):
            key, headers = b"k%d" % (index % 2), HEADERS[index % len(HEADERS)]
            large = attempt.number % 50 == index or elsewhere and index == 0
            value = value_of(attempt.number, index, 70_000 if large else 20)
            address = f"{topic.name}/{key.decode()}"
            attempt.messages.append(Sent(address, partition_id, key, value, headers, 0))
            records.append((key, value, headers))
        attempt.batch = batch_of(records, sender.producer_id, attempt.sequence, *((GZIP, stored) if elsewhere else ()))
        line.next_sequence += count
        line.batches.append(attempt)
        return attempt

    def _send(self, partition_id: int, attempt: Attempt) -> None:
        owner = self._simulation.clients[attempt.number % 3]
        first = attempt.calls == 0
        producer_id = read_header(attempt.batch).producer_id
        if producer_id % 2:                                  # every second producer comes by the Kafka door
            topic, partition = self._simulation.reading.topic_of(partition_id)
            self._simulation.doors.kafka_peer(producer_id).produce(topic.name, partition, partition_id, attempt)
            if first:
                self._simulation.reading.sent(attempt)
            return
        try:
            self._simulation.hub.kernel.append_batch(partition_id, attempt.batch, owner,
                                                     owner.ask(attempt, lane=partition_id))
        except MessageTooLarge:
            raise Broken("a batch within the limits was refused") from None
        if first:
            self._simulation.reading.sent(attempt)
