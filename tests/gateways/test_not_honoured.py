"""What doors take without effect: the tables of their READMEs are true, each is counted, and logged once a client."""
from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

import gatehouse.gateways.amqp.asked
import gatehouse.gateways.kafka.api.produce
from gatehouse.gateways.amqp.tables import encode_table, typed
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY as MQTT
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.not_honoured import CLIENTS_MAX, LOGGED_PER_SECOND, NotHonoured
from tests.gateways.amqp.fakes import Client, Hub
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import framed, produce

DOORS = {"amqp": gatehouse.gateways.amqp.asked.NOT_HONOURED,
         "kafka": gatehouse.gateways.kafka.api.produce.NOT_HONOURED}
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def table_of(door: str) -> list[str]:
    """The names in the README's table."""
    readme = (Path(__file__).parents[2] / "gateways" / door / "README.md").read_text()
    section = readme.partition("### Taken without effect\n")[2].partition("\n## ")[0]
    return ROW.findall(section)


@pytest.mark.parametrize("door", DOORS)
def test_the_readmes_table_is_the_doors(door: str) -> None:
    assert table_of(door) == list(DOORS[door])


# ---- AMQP

def ask_by_amqp(client: Client, name: str) -> None:
    if name == "no_local":
        client.ask("basic.consume", queue="q", no_local=True)
    elif name == "x-delay":
        client.publish("", "q", b"x", b"\x20\0" + encode_table({"x-delay": typed(5_000)}))
    else:
        client.ask("queue.declare", queue="odd", arguments={"x-colour": "green"})


@pytest.mark.parametrize("name", table_of("amqp"))
def test_amqp_counts_what_it_takes_without_effect(name: str, caplog: pytest.LogCaptureFixture) -> None:
    hub = Hub()
    client = hub.client().login()
    client.ask("queue.declare", queue="q")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ask_by_amqp(client, name)
    assert "channel.close" not in client.names()
    assert set(hub.services.not_honoured.counts) == {("amqp", name)}
    assert hub.services.not_honoured.counts["amqp", name] in (1, 3)            # a queue is declared once
    (line,) = caplog.messages
    assert line.startswith("amqp: 'anonymous@") and DOORS["amqp"][name] in line


@pytest.mark.parametrize("arguments", [
    {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}, {"x-queue-mode": "lazy"}, {"x-queue-mode": "default"},
    {"x-queue-master-locator": "min-masters"},
    {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-least-once"},
    {"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"},
    {"x-queue-type": "quorum", "x-max-in-memory-length": 5}, {"x-message-ttl": 60_000}])
def test_what_stock_clients_set_and_what_costs_nobody_anything_is_taken_without_a_word(arguments: dict[str, object]
                                                                                       ) -> None:
    hub = Hub()
    client = hub.client().login()
    assert client.ask("queue.declare", queue="q", durable=True, arguments=arguments)[0][1] == "queue.declare-ok"
    assert not hub.services.not_honoured.counts


def test_a_priority_of_nought_is_the_one_that_everybody_has() -> None:
    hub = Hub()
    client = hub.client().login()
    client.ask("queue.declare", queue="q")
    client.ask("basic.consume", queue="q", arguments={"x-priority": 0})
    assert not hub.services.not_honoured.counts


def test_a_priority_that_is_no_number_is_refused_in_rabbitmqs_words() -> None:
    client = Hub().client().login()
    client.ask("queue.declare", queue="q")
    told = client.ask("basic.consume", queue="q", arguments={"x-priority": "high"})[0][2]
    assert told["code"] == 406
    assert told["text"] == ("PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected "
                            "integer, got longstr\"")


@pytest.mark.parametrize(("method", "arguments"), [
    ("exchange.declare", {"exchange": "odd", "type": "fanout"}), ("basic.consume", {"queue": "q"})])
def test_arguments_that_nobody_knows_are_counted_wherever_they_come(method: str, arguments: dict[str, str]) -> None:
    hub = Hub()
    client = hub.client().login()
    client.ask("queue.declare", queue="q")
    told = client.ask(method, arguments={"x-colour": "green", "note": "for people"}, **arguments)
    assert told[0][1] == f"{method}-ok"
    assert hub.services.not_honoured.counts == {("amqp", "unknown-argument"): 1}


# ---- MQTT

def connect(hub: FakeHub, client_id: bytes, flags: int) -> bytes:
    session, link = hub.open(MQTT, MqttConfig())
    session.handle_data(b"\x10" + bytes([12 + len(client_id)]) + b"\0\4MQTT\4" + bytes([flags, 0, 0])
                        + len(client_id).to_bytes(2, "big") + client_id)
    hub.kernel.flush()
    return link.take()


@pytest.mark.parametrize("flags", [0, 2])
def test_mqtt_a_session_that_is_to_last_is_honoured_as_a_clean_one_is(flags: int) -> None:
    hub = FakeHub()
    assert connect(hub, b"meter", flags) == b"\x20\2\0\0"
    assert not hub.services.not_honoured.counts


# ---- Kafka

def timed_batch(value: bytes, *headers: tuple[str, bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    assert builder.append(0, 1_000, None, value, list(headers)) is not None
    return bytes(builder.build())


def test_a_record_that_is_to_come_later_comes_at_once_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.flush()
    with caplog.at_level(logging.WARNING):
        for data in (timed_batch(b"1", ("deliver-at", b"9")), timed_batch(b"to deliver-at 9"),
                     timed_batch(b"2", ("a", b"9")), timed_batch(b"3", ("a", b"b"), ("deliver-at", b"9"))):
            peer.send(framed(produce(7, {("plant", 0): data}), 5))
            peer.kernel.flush()
    assert peer.services.not_honoured.counts == {("kafka", "deliver-at"): 2}
    assert len(caplog.messages) == 1 and DOORS["kafka"]["deliver-at"] in caplog.messages[0]
    assert len(peer.kernel.partitions[peer.kernel.by_name["plant"].partition_id(0)]) == 4


# ---- the log

def lines(caplog: pytest.LogCaptureFixture, noted: NotHonoured, *clients: str) -> int:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for client in clients:
            noted.note("mqtt", "clean_session_0", "it ends", client)
    return len(caplog.messages)


def test_a_client_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    noted = NotHonoured(lambda: 0)
    assert lines(caplog, noted, "a", "b", "a", "a") == 2
    assert noted.counts["mqtt", "clean_session_0"] == 4
    assert list(noted.samples()) == [("gatehouse_not_honoured", ("mqtt", "clean_session_0"), 4)]


def test_a_thousand_at_once_do_not_fill_the_log_and_are_logged_when_they_come_again(caplog: pytest.LogCaptureFixture
                                                                                    ) -> None:
    clock = [0]
    noted = NotHonoured(lambda: clock[0])
    assert lines(caplog, noted, *map(str, range(1_000))) == LOGGED_PER_SECOND
    clock[0] += 1_000
    assert lines(caplog, noted, "0", "999") == 1, "the first was logged, the last was not"


def test_a_name_may_be_anything(caplog: pytest.LogCaptureFixture) -> None:
    noted = NotHonoured(lambda: 0)
    assert lines(caplog, noted, "a\nb" * 50_000) == 1
    assert len(caplog.messages[0]) < 300 and "\n" not in caplog.messages[0]


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0]
    noted = NotHonoured(lambda: clock[0])
    for number in range(CLIENTS_MAX + 5):
        clock[0] += 1_000
        noted.note("mqtt", "clean_session_0", "it ends", str(number))
    assert len(noted._logged) == CLIENTS_MAX
