"""What is mutated: conversations that clients really have, by door, as lists of pieces that the client sends.

MQTT, AMQP and Kafka: the byte conversations of `tests/vectors`, some of them recorded from stock clients. Kafka
besides: batches of each compression. HTTP: `http_corpus.py`.
"""
from __future__ import annotations

import re
import struct
from functools import cache
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from gatehouse.gateways.amqp.config import AmqpConfig
from tests.fuzz.http_corpus import HTTP_CONVERSATIONS
from tests.fuzz.mqtt_corpus import MQTT_5_CONVERSATIONS
from tests.fuzz.mutations import Conversation
from tests.gateways.amqp import conversations as amqp_conversations
from tests.gateways.amqp.fakes import Hub
from tests.gateways.kafka.test_vectors import FILES as KAFKA_FILES
from tests.gateways.mqtt import conversations as mqtt_conversations

TIMESTAMP_MS: Final = 1_790_000_000_000
CODECS: Final = (0, 1, 2, 3, 4)              # none, gzip, snappy, lz4, zstd
PRODUCE: Final = 0
PRODUCE_VERSION: Final = 7
TOPICS: Final = (b"plant", b"squeezed", b"bound")

_REQUEST = struct.Struct(">hhih")            # api key, version, correlation id, length of the client's id


@cache
def corpus(door: str) -> list[Conversation]:
    """All conversations of a door. None is empty."""
    return [turns for turns in _MAKERS[door]() if turns]


def _mqtt() -> list[Conversation]:
    read = [[mqtt_conversations.bytes_of(rest) for what, rest in conversation.steps if what in (">", "send")]
            for conversation in mqtt_conversations.read_all()]
    return read + MQTT_5_CONVERSATIONS


def _amqp() -> list[Conversation]:
    opening = _amqp_opening()
    found = []
    for conversation in amqp_conversations.read_all():
        turns: Conversation = []
        for what, rest in conversation.steps:
            if what == "OPEN":
                turns += opening
            elif what == ">":
                turns.append(amqp_conversations.bytes_of(rest))
        found.append(turns)
    return found


def _amqp_opening() -> Conversation:
    """What a client sends until its channel is open and its queue there."""
    sent: Conversation = []
    client = Hub().client(AmqpConfig())
    send = client.send

    def record(data: bytes) -> None:
        sent.append(data)
        send(data)

    client.send = record  # type: ignore[method-assign]
    client.login(frame_max=amqp_conversations.FRAME_MAX)
    client.ask("queue.declare", queue="q")
    return sent


def _kafka() -> list[Conversation]:
    recorded = [[turn.request for turn in conversation.turns] for conversations in KAFKA_FILES.values()
                for conversation in conversations]
    produced = [[produce(topic, batch(codec, 10))] for codec in CODECS for topic in TOPICS]
    return recorded + produced * 2


def batch(codec: int, count: int) -> bytes:
    """A record batch as a producer makes it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for number in range(count):
        headers = [("trace", b"abc"), ("empty", None)] if number % 3 else []
        builder.append(number, TIMESTAMP_MS + number, b"line%d/temp" % number, b"value" * number or None, headers)
    return bytes(builder.build())


def produce(topic: bytes, records: bytes, acks: int = -1) -> bytes:
    """A Produce request of one batch for partition 0."""
    body = (struct.pack(">hhi", -1, acks, 1000) + struct.pack(">ih", 1, len(topic)) + topic
            + struct.pack(">iii", 1, 0, len(records)) + records)
    request = _REQUEST.pack(PRODUCE, PRODUCE_VERSION, 1, 4) + b"fuzz" + body
    return struct.pack(">i", len(request)) + request


def _http() -> list[Conversation]:
    return [[_request(text) for text in conversation] for conversation in HTTP_CONVERSATIONS]


def _request(text: str | bytes) -> bytes:
    """A request as it is sent: line ends, `Host`, and the length of its body where it has one and names none."""
    if isinstance(text, bytes):
        return text
    head, _, body = text.strip("\n").partition("\n\n")
    lines = head.split("\n")
    lines.insert(1, "Host: 127.0.0.1")
    if body and not re.search(r"(?im)^(content-length|transfer-encoding):", head):
        lines.append(f"Content-Length: {len(body.encode())}")
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


_MAKERS: Final = {"mqtt": _mqtt, "amqp": _amqp, "kafka": _kafka, "http": _http}
