"""What stock clients send in every compression is taken; what is not what it claims is refused in Kafka's words, and
costs nobody else anything."""
from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.protocol.producer import ProduceResponse

from gatehouse.gateways.kafka.error_codes import INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, NONE
from gatehouse.kernel.errors import InvalidRecord, InvalidTimestamp, KernelError, MessageTooLarge
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.judge import decoded, framed, produce
from tests.kernel.hostile import ATTACKS, WAYS, Way
from tests.running_hub import RunningHub, config_of, sound_hub

WAIT_S = 60
CODES: dict[type[KernelError], int] = {
    InvalidRecord: INVALID_RECORD, InvalidTimestamp: INVALID_TIMESTAMP, MessageTooLarge: MESSAGE_TOO_LARGE}
RANDOM = random.Random(7)
VALUES = [b"%d " % i + (RANDOM.randbytes(300) if i % 3 else b"x" * 2_000) for i in range(2_000)]
"""Some two megabytes: batches of every size, up to what is opened on another thread."""

STAMP_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with sound_hub(tmp_path_factory.mktemp("batches"), config_of(("http", "kafka"), 'fsync = "never"')) as running:
        yield running


def address(hub: RunningHub) -> str:
    return f"127.0.0.1:{hub.port('kafka')}"


def read(hub: RunningHub, topic: str, count: int) -> list[tuple[bytes, int]]:
    """(value, timestamp) of so many messages of partition 0."""
    consumer = Consumer({"bootstrap.servers": address(hub), "group.id": "tests", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    got: list[tuple[bytes, int]] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), WAIT_S)
        assert messages, f"{len(got)} of {count} came"
        got += [(message.value(), message.timestamp()[1]) for message in messages]
    consumer.close()
    return got


# ---- stock clients

@pytest.mark.parametrize("batch_bytes", [16_384, 1_000_000])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka(hub: RunningHub, codec: str, batch_bytes: int) -> None:
    topic, errors = f"rdkafka-{codec}-{batch_bytes}", list[Any]()
    producer = Producer({"bootstrap.servers": address(hub), "enable.idempotence": True, "compression.type": codec,
                         "linger.ms": 20, "batch.size": batch_bytes})
    for i, value in enumerate(VALUES):                # times that go back and ahead, as messages from devices have them
        producer.produce(topic, value, partition=0, timestamp=STAMP_MS + (i * 7919) % 1000,
                         on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert errors == []
    assert read(hub, topic, len(VALUES)) == [(value, STAMP_MS + (i * 7919) % 1000) for i, value in enumerate(VALUES)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka(hub: RunningHub, codec: str | None) -> None:
    topic = f"aiokafka-{codec}"

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address(hub), enable_idempotence=True, compression_type=codec,
                                    linger_ms=20, max_batch_size=500_000)
        await producer.start()
        sent = [await producer.send(topic, value, partition=0, timestamp_ms=STAMP_MS - i)
                for i, value in enumerate(VALUES)]
        await asyncio.gather(*sent)
        await producer.stop()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert read(hub, topic, len(VALUES)) == [(value, STAMP_MS - i) for i, value in enumerate(VALUES)]


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
def test_kafka_python(hub: RunningHub, codec: str | None) -> None:
    """Not with snappy, for which it wants a library that the others do without."""
    topic = f"kafka-python-{codec}"
    producer = KafkaProducer(bootstrap_servers=address(hub), compression_type=codec, linger_ms=20, batch_size=500_000)
    sent = [producer.send(topic, value, partition=0, timestamp_ms=STAMP_MS + i) for i, value in enumerate(VALUES)]
    producer.flush(WAIT_S)
    assert [one.get(WAIT_S).offset for one in sent] == list(range(len(VALUES)))
    producer.close()
    assert read(hub, topic, len(VALUES)) == [(value, STAMP_MS + i) for i, value in enumerate(VALUES)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat(hub: RunningHub, codec: str) -> None:
    lines = "\n".join(f"line {number} {'text ' * (number % 50)}" for number in range(5_000))
    subprocess.run(["kcat", "-b", address(hub), "-P", "-t", f"kcat-{codec}", "-p", "0", "-z", codec], input=lines,
                   text=True, timeout=WAIT_S, check=True)
    assert b"\n".join(value for value, _ in read(hub, f"kcat-{codec}", 5_000)) == lines.encode()


# ---- what is not what it claims

def ask(hub: RunningHub, request: Any) -> dict[tuple[str, int], Any]:
    """The answer per partition."""
    with socket.create_connection(("127.0.0.1", hub.port("kafka")), WAIT_S) as peer, peer.makefile("rb") as stream:
        peer.sendall(framed(request, 1))
        size, = struct.unpack(">i", stream.read(4))
        answer = decoded(ProduceResponse, 9, stream.read(size))
    return {(topic.name, part.index): part for topic in answer.responses for part in topic.partition_responses}


def call(hub: RunningHub, path: str, body: bytes | None = None, content_type: str = "application/json"
         ) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", body,
                                     {"Content-Type": content_type} if body is not None else {})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def resident_bytes(hub: RunningHub) -> int:
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def test_every_attack_is_refused_and_the_hub_stays_well(hub: RunningHub) -> None:
    """Among them the 85 bytes that claim two thousand million records."""
    producer = KafkaProducer(bootstrap_servers=address(hub))
    assert producer.send("attacked", b"sound", partition=0).get(WAIT_S).offset == 0
    producer.close()
    before_bytes = resident_bytes(hub)
    for name in ("none", "snappy", "zstd"):
        way = Way(*WAYS[name])
        for attack, error in ATTACKS.values():
            data = attack(way)
            if len(data) > 4 << 20:
                continue
            part = ask(hub, produce(9, {("attacked", 0): data}))["attacked", 0]
            assert part.error_code == CODES[error], part
            assert call(hub, "/readyz")[0] == 200
    assert ask(hub, produce(9, {("attacked", 0): batch(b"after")}))["attacked", 0].error_code == NONE
    assert [value for value, _ in read(hub, "attacked", 2)] == [b"sound", b"after"]
    assert resident_bytes(hub) - before_bytes < 256 << 20


def test_bulk_writers_are_told_so_in_problem_documents(hub: RunningHub) -> None:
    assert call(hub, "/v1/topics/bulk/messages", json.dumps({"messages": [{"value": "1"}]}).encode())[0] == 201
    way = Way(*WAYS["zstd"])
    for attack, error in ATTACKS.values():
        data = attack(way)
        if len(data) > 4 << 20:
            continue
        body = struct.pack("<II", 0, len(data)) + data
        status, problem = call(hub, "/v1/topics/bulk/batches", body, "application/octet-stream")
        assert (json.loads(problem)["code"], status) == (error.code, 413 if error is MessageTooLarge else 400)
