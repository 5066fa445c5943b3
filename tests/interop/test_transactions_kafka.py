"""Half messages with stock Kafka clients (librdkafka): held, decided, asked about, and seen by nobody before."""
from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from gatehouse_client import HubError, SyncClient
from tests.interop.test_transactions_mqtt import Peer as MqttPeer
from tests.kernel.batches import batch_of
from tests.running_hub import DEADLINE_S, RunningHub, running_hub


class Peer:
    """A librdkafka producer, and a consumer of the topics that tell about transactions."""

    def __init__(self, hub: RunningHub, *, idempotent: bool = False) -> None:
        self.where = {"bootstrap.servers": f"127.0.0.1:{hub.port('kafka')}"}
        self.producer = Producer(self.where | {"enable.idempotence": idempotent})
        self.outcomes: list[Any] = []

    def produce(self, topic: str, value: bytes, *, key: str | None = None, group: str | None = None,
                partition: int = 0, name: bytes | None = None, check: bytes | None = None) -> int:
        """The offset, once it is answered. Raises KafkaException."""
        outcome: list[Any] = []
        headers = {} if group is None else {"half": group.encode(), "unit": b"C"}
        if name is not None:
            headers["half-id"] = name
        if check is not None:
            headers["half-check"] = check
        self.producer.produce(topic, value, key, partition, headers=headers,
                              on_delivery=lambda error, message: outcome.append((error, message.offset())))
        assert self.producer.flush(DEADLINE_S) == 0
        ((error, offset),) = outcome
        if error is not None:
            raise KafkaException(error)
        return -1 if offset is None else int(offset)

    def decide(self, transaction: str, decision: str) -> None:
        """Raises KafkaException."""
        self.produce("txn-decide", json.dumps({"id": transaction, "decision": decision}).encode())

    def reader(self, topic: str) -> Consumer:
        consumer = Consumer(self.where | {"group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer


def take(consumer: Consumer) -> Any:
    """The next record, as JSON."""
    record = consumer.poll(DEADLINE_S)
    assert record is not None and record.error() is None, record
    return json.loads(record.value())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "kafka", "mqtt") as hub:
        with client_of(hub) as http:
            prepare(http)
        yield hub


def client_of(hub: RunningHub) -> SyncClient:
    return SyncClient(f"http://127.0.0.1:{hub.port('http')}")


def prepare(http: SyncClient) -> None:
    http.define_topic("orders", partitions=1, interpret_headers=True)
    for topic in ("txn-decide", "txn-half.shop-False", "txn-half.shop-True", "txn-half.named", "txn-check.asked",
                  "txn-half.hidden", "txn-check.hidden"):
        http.define_topic(topic, partitions=1)


@pytest.fixture
def http(hub: RunningHub) -> Iterator[SyncClient]:
    with client_of(hub) as client:
        client.delete_topic("orders")
        client.define_topic("orders", partitions=1, interpret_headers=True)
        yield client


def values(http: SyncClient, topic: str = "orders") -> list[str]:
    try:
        return [message.text for message in http.read(topic)]
    except HubError as error:
        assert error.code == "unknown_topic", error
        return []


@pytest.mark.parametrize("idempotent", [False, True])
def test_commit_and_rollback(hub: RunningHub, http: SyncClient, idempotent: bool) -> None:
    peer, group = Peer(hub, idempotent=idempotent), f"shop-{idempotent}"
    told = peer.reader(f"txn-half.{group}")
    peer.produce("orders", b"one", key="1", group=group)
    peer.produce("orders", b"two", key="2", group=group)
    assert values(http) == []
    held = {}
    while not {"1", "2"} <= held.keys():
        notice = take(told)
        held[notice["keys"][0]] = notice["id"]
    peer.decide(held["2"], "rollback")
    peer.decide(held["1"], "commit")
    (message,) = http.read("orders")
    assert (message.id, message.text, message.key, message.door) == (held["1"], "one", b"1", "kafka")
    assert message.header("half") is None and message.header("unit") == b"C"
    told.close()


def test_a_decision_is_answered(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    with http.transaction("shop") as transaction:
        transaction.publish(topic="orders", value="x")
    peer.decide(transaction.id, "commit")
    for one, decision in ((transaction.id, "rollback"), ("12345", "commit"), ("abc", "commit"),
                          (transaction.id, "perhaps")):
        with pytest.raises(KafkaException) as refused:
            peer.decide(one, decision)
        assert refused.value.args[0].code() == 87                # INVALID_RECORD


def test_a_decision_of_somebody_who_has_gone_is_carried_out(hub: RunningHub, http: SyncClient) -> None:
    for _ in range(5):
        transaction = http.client.transaction("shop")
        http.wait(transaction.publish(topic="orders", value="x"))
        document = json.dumps({"id": transaction.id, "decision": "commit"}).encode()
        with socket.create_connection(("127.0.0.1", hub.port("kafka"))) as link:
            link.sendall(produce_request("txn-decide", document, acks=0))
        deadline = time.monotonic() + DEADLINE_S
        while http.show_transaction(transaction.id)["state"] == "open":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_each_decision_of_a_batch_is_carried_out_and_the_first_refusal_told(hub: RunningHub, http: SyncClient) -> None:
    transaction = http.client.transaction("shop")
    http.wait(transaction.publish(topic="orders", value="x"))
    documents = [json.dumps({"id": one, "decision": "commit"}).encode() for one in ("12345", transaction.id)]
    with socket.create_connection(("127.0.0.1", hub.port("kafka")), timeout=DEADLINE_S) as link:
        link.sendall(produce_request("txn-decide", *documents, acks=1))
        answer = link.makefile("rb").read(4 + 4 + 4 + 2 + len("txn-decide") + 4 + 4 + 2)
    assert struct.unpack(">h", answer[-2:]) == (87,)                 # INVALID_RECORD, of the partition
    assert http.show_transaction(transaction.id)["state"] == "committed"


def produce_request(topic: str, *values: bytes, acks: int) -> bytes:
    """Produce 3 (kafka.apache.org/protocol#The_Messages_Produce) with one batch."""
    batch = batch_of([(None, value, ()) for value in values])
    body = struct.pack(">hhi", 0, 3, 1) + b"\xff\xff" + b"\xff\xff" + struct.pack(">hii", acks, 1000, 1)
    body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("group", [b"", None, b"g" * 300, b"a\0b", b"\xff"])
def test_a_group_that_can_be_none(hub: RunningHub, http: SyncClient, group: bytes | None) -> None:
    """Taken for an ordinary record it would be seen at once; with a group that nobody is asked in, it would be lost."""
    peer = Peer(hub)
    before = http.status()["transactions"]["open"]
    errors: list[Any] = []
    peer.producer.produce("orders", b"x", headers={"half": group}, on_delivery=lambda error, _: errors.append(error))
    assert peer.producer.flush(DEADLINE_S) == 0
    assert errors[0].code() == 87 and values(http) == []
    assert http.status()["transactions"]["open"] == before


def test_ordinary_records_of_the_same_topic(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    assert peer.produce("orders", b"plain") == 0
    peer.produce("orders", b"held", group="shop")
    assert peer.produce("orders", b"plain") == 1
    assert values(http) == ["plain", "plain"]


def test_halves_whose_batch_is_opened_on_another_thread(hub: RunningHub, http: SyncClient) -> None:
    peer, large = Peer(hub), Random(7).randbytes(200_000).hex()
    peer.producer = Producer(peer.where | {"compression.type": "gzip"})
    assert peer.produce("orders", large.encode()) == 0
    peer.produce("orders", large.encode(), group="shop")
    assert peer.produce("orders", large.encode()) == 1
    assert values(http) == [large, large]


def test_a_batch_of_both_is_refused(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    peer.producer = Producer(peer.where | {"linger.ms": 60_000})
    peer.producer.list_topics("orders", DEADLINE_S)     # its leader is known: both are in one batch until `flush`
    outcomes: list[Any] = []
    for headers in ({}, {"half": b"shop"}):
        peer.producer.produce("orders", b"x", partition=0, headers=headers,
                              on_delivery=lambda error, message: outcomes.append(error and error.code()))
    assert peer.producer.flush(DEADLINE_S) == 0
    assert outcomes == [87, 87]
    assert values(http) == []


@pytest.mark.parametrize("idempotent", [False, True])
def test_one_that_has_a_name_is_sent_again(hub: RunningHub, http: SyncClient, idempotent: bool) -> None:
    name = f"order-{idempotent}".encode()
    for _ in range(2):
        peer = Peer(hub, idempotent=idempotent)                  # as a producer does that was killed and started again
        peer.produce("orders", b"x", key="17", group="named", name=name)
    told = peer.reader("txn-half.named")
    notices = []
    while len(notices) < 2:
        notice = take(told)
        notices += [notice] if notice["name"] == name.decode() else []
    told.close()
    assert notices[0] == notices[1]
    peer.decide(notices[0]["id"], "commit")
    (message,) = http.read("orders")
    assert (message.text, message.header("half-id"), message.header("unit")) == ("x", None, b"C")
    with pytest.raises(KafkaException) as refused:
        peer.produce("orders", b"another", key="17", group="named", name=name)
    assert refused.value.args[0].code() == 87                    # INVALID_RECORD


@pytest.mark.parametrize("name", [b"", b"n" * 256, b"\xff", b"a\0b"])
def test_a_name_that_can_be_none(hub: RunningHub, http: SyncClient, name: bytes) -> None:
    with pytest.raises(KafkaException) as refused:
        Peer(hub).produce("orders", b"x", group="shop", name=name)
    assert refused.value.args[0].code() == 87


def test_one_says_when_it_is_asked_about(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    peer.produce("orders", b"x", group="when", check=b'{"after": 1.5, "times": 3}')
    (one,) = http.transactions(group="when")
    assert one["check"] == {"after": 1.5, "every": 30, "times": 3}
    peer.decide(one["id"], "commit")
    (message,) = http.read("orders")
    assert message.header("half-check") is None


@pytest.mark.parametrize("check", [b"", b"[]", b"{", b'{"after": 0}', b'{"times": 99999}', b'{"other": 1}', b"\xff"])
def test_times_that_are_none(hub: RunningHub, http: SyncClient, check: bytes) -> None:
    with pytest.raises(KafkaException) as refused:
        Peer(hub).produce("orders", b"x", group="never", check=check)
    assert refused.value.args[0].code() == 87 and http.transactions(group="never") == []


def test_each_name_of_a_batch_is_a_transaction(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    peer.producer = Producer(peer.where | {"linger.ms": 60_000})
    peer.producer.list_topics("orders", DEADLINE_S)
    errors: list[Any] = []
    for name, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4"), (b"b", b"5")):
        headers = {"half": b"batch"} | ({"half-id": name} if name is not None else {})
        peer.producer.produce("orders", value, partition=0, headers=headers,
                              on_delivery=lambda error, message: errors.append(error))
    assert peer.producer.flush(DEADLINE_S) == 0 and errors == [None] * 5
    held = http.transactions(group="batch")
    assert [one["messages"] for one in held] == [2, 2, 1]
    peer.decide(held[1]["id"], "commit")
    assert values(http) == ["2", "5"]


def test_of_a_batch_one_name_is_another_messages_already(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    peer.produce("orders", b"x", group="conflict", name=b"taken")
    peer.producer = Producer(peer.where | {"linger.ms": 60_000})
    peer.producer.list_topics("orders", DEADLINE_S)
    codes: list[Any] = []
    for name in (b"free", b"taken"):
        peer.producer.produce("orders", b"y", partition=0, headers={"half": b"conflict", "half-id": name},
                              on_delivery=lambda error, message: codes.append(error and error.code()))
    assert peer.producer.flush(DEADLINE_S) == 0 and codes == [87, 87]
    peer.produce("orders", b"y", group="conflict", name=b"free")
    assert len(http.transactions(group="conflict")) == 2
    assert peer.produce("orders", b"plain") == 0


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_compressed_batches(hub: RunningHub, http: SyncClient, codec: str) -> None:
    peer = Peer(hub)
    peer.producer = Producer(peer.where | {"compression.type": codec})
    peer.produce("orders", b"x" * 2000, group=f"packed-{codec}")
    (one,) = http.transactions(group=f"packed-{codec}")
    assert values(http) == []
    peer.decide(one["id"], "commit")
    assert values(http) == ["x" * 2000]


def test_a_reader_of_the_checks_topic_is_asked(hub: RunningHub, http: SyncClient) -> None:
    peer = Peer(hub)
    checks = peer.reader("txn-check.asked")
    assert checks.poll(0.5) is None
    transaction = http.client.transaction("asked", check={"after": 0.05})
    http.wait(transaction.publish(topic="orders", key="17", value="x"))
    check = take(checks)
    assert (check["id"], check["message"]["key"]) == (transaction.id, "17")
    peer.decide(check["id"], "commit")
    assert values(http) == ["x"]
    checks.close()


def test_no_wildcard_shows_what_a_group_is_told(hub: RunningHub, http: SyncClient) -> None:
    everything, peer = MqttPeer(hub, "everything"), Peer(hub)
    everything.subscribe("#", "+/#")
    checks, told = peer.reader("txn-check.hidden"), peer.reader("txn-half.hidden")
    assert checks.poll(0.5) is None
    peer.produce("orders", b"hush", key="17", group="hidden", check=b'{"after": 0.05}')
    assert take(told)["id"] == take(checks)["id"]
    http.publish("sentinel", "1")
    assert everything.inbox.get(timeout=DEADLINE_S).topic == "sentinel"
    for consumer in (checks, told):
        consumer.close()
    everything.close()


def test_a_killed_hub_forgets_nothing(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http", "kafka") as hub:
        with client_of(hub) as http:
            prepare(http)
        peer = Peer(hub)
        for number in range(10):
            peer.produce("orders", str(number).encode(), group="kept")
    with running_hub(tmp_path, "http", "kafka") as hub, client_of(hub) as http:
        peer = Peer(hub)
        for one in http.transactions(group="kept"):
            peer.decide(one["id"], "commit")
        assert values(http) == [str(number) for number in range(10)]


def test_a_name_outlives_a_killed_hub(tmp_path: Path) -> None:
    for _ in range(2):
        with running_hub(tmp_path, "http", "kafka") as hub, client_of(hub) as http:
            http.define_topic("orders", partitions=1, interpret_headers=True) if not values(http) else None
            Peer(hub).produce("orders", b"x", group="kept", name=b"17")
            assert len(http.transactions(group="kept")) == 1
