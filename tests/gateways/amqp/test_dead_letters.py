"""Dead letters on the real kernel: what they say, and where they are stored."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.amqp.codec import DEAD_HEADER
from gatehouse.gateways.amqp.properties import read
from gatehouse.gateways.amqp.tables import Field, Table, encode_table, plain, typed
from gatehouse.kernel.message import RETAIN
from gatehouse.kernel.records.batch import encode_headers
from tests.gateways.amqp.fakes import Client
from tests.gateways.amqp.test_with_kernel import KernelHub, fill, get, properties_of

DEAD = {"x-dead-letter-exchange": "graveyard", "x-dead-letter-routing-key": "line1.temp"}


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


@pytest.fixture
def client(hub: KernelHub) -> Client:
    client = hub.client()
    client.ask("exchange.declare", exchange="graveyard", type="topic", durable=True)
    client.ask("queue.declare", queue="dead", durable=True)
    client.ask("queue.bind", queue="dead", exchange="graveyard", routing_key="#")
    return client


def reject(client: Client, queue: str) -> None:
    found = get(client, queue)
    assert found is not None
    client.ask("basic.reject", delivery_tag=found[0], requeue=False)
    client.hub.kernel.flush()


def headers_in(client: Client, queue: str) -> dict[str, Any]:
    (_, name, _), (_, _, header), _ = client.ask("basic.get", queue=queue, no_ack=True)
    assert name == "basic.get-ok"
    table: Table = read(header["raw"]).get("headers", {})
    return {key: plain(field) for key, field in table.items()}


def test_it_says_how_it_died_first_and_last(client: Client) -> None:
    fill(client, "second", **{"x-dead-letter-exchange": "graveyard"})
    fill(client, "first", b"x", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    reject(client, "first")
    reject(client, "second")
    headers = headers_in(client, "dead")
    assert [(death["queue"], death["reason"], death["count"]) for death in headers["x-death"]] \
        == [("second", "rejected", 1), ("first", "rejected", 1)]
    assert {name: value for name, value in headers.items() if name != "x-death"} == {
        "x-first-death-queue": "first", "x-first-death-reason": "rejected", "x-first-death-exchange": "",
        "x-last-death-queue": "second", "x-last-death-reason": "rejected", "x-last-death-exchange": ""}


@pytest.fixture
def later(client: Client) -> Client:
    """A client beside a delayed-message exchange that leads to the queue `dead`, and a queue whose dead letters go
    there."""
    client.ask("exchange.declare", exchange="later", type="x-delayed-message", durable=True,
               arguments={"x-delayed-type": "topic"})
    client.ask("queue.bind", queue="dead", exchange="later", routing_key="#")
    fill(client, "work", **{"x-dead-letter-exchange": "later", "x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    return client


def delay_of(delay_ms: int) -> bytes:
    return properties_of(headers={"x-delay": typed(delay_ms)})


def test_an_exchange_that_delays_lets_a_dead_letter_wait(hub: KernelHub, later: Client) -> None:
    """As RabbitMQ's plug-in does, which has no other way to say when somebody tries again."""
    later.publish("", "work", b"x", delay_of(3_000))
    hub.kernel.flush()
    reject(later, "work")
    hub.advance(2_900)
    assert get(later, "dead") is None and get(later, "work") is None
    hub.restart()
    later = hub.client()
    hub.advance(200)
    headers = headers_in(later, "dead")
    assert headers["x-delay"] == -3_000 and headers["x-death"][0]["queue"] == "work"


@pytest.mark.parametrize("delay_ms", [-3_000, 0])
def test_what_has_waited_does_not_wait_again(later: Client, delay_ms: int) -> None:
    later.publish("", "work", b"x", delay_of(delay_ms))
    later.hub.kernel.flush()
    reject(later, "work")
    assert headers_in(later, "dead")["x-delay"] == delay_ms


def test_what_a_full_queue_refuses_waits_too(hub: KernelHub, later: Client) -> None:
    later.publish("", "work", b"fills it")
    hub.kernel.flush()
    later.publish("", "work", b"x", delay_of(3_000))
    hub.kernel.flush()
    hub.advance(2_900)
    assert get(later, "dead") is None
    hub.advance(200)
    assert headers_in(later, "dead")["x-death"][0]["reason"] == "maxlen"


def test_a_dead_letter_for_which_there_is_no_room_to_wait_does_not_wait(later: Client) -> None:
    later.publish("", "work", b"x", delay_of(400_000_000_000))           # ten years are the most
    later.hub.kernel.flush()
    reject(later, "work")
    assert headers_in(later, "dead")["x-death"][0]["queue"] == "work"


def test_the_same_death_again_is_counted(client: Client) -> None:
    fill(client, "work", b"x", **DEAD)
    client.ask("queue.bind", queue="work", exchange="graveyard", routing_key="#")
    for _ in range(3):
        reject(client, "work")
    counts = [headers_in(client, "dead")["x-death"][0]["count"] for _ in range(3)]
    assert counts == [1, 2, 3]


def test_what_a_client_says_of_deaths_is_not_believed(client: Client) -> None:
    fill(client, "work", **DEAD)
    death = {"queue": "work", "reason": "rejected", "count": 40, "exchange": "", "routing-keys": ["work"]}
    raw = properties_of(headers={"x-death": typed([death]), "x-first-death-queue": typed("elsewhere"),
                                 "kept": typed(1)})
    client.publish("", "work", b"x", raw)
    reject(client, "work")
    headers = headers_in(client, "dead")
    assert (headers["x-death"][0]["count"], headers["x-first-death-queue"], headers["kept"]) == (1, "work", 1)


def test_who_writes_the_hubs_own_mark_into_a_header_is_not_believed_either(client: Client) -> None:
    fill(client, "work", **DEAD)
    made_up = [{"queue": "work", "reason": "rejected", "count": 1_000}]
    client.publish("", "work", b"x", properties_of(headers={"x-death": typed(made_up),
                                                            "mark": typed(DEAD_HEADER.decode())}))
    client.hub.kernel.flush()
    reject(client, "work")
    assert [death["count"] for death in headers_in(client, "dead")["x-death"]] == [1]


def test_a_client_that_sends_a_dead_letter_again_begins_anew(client: Client) -> None:
    fill(client, "work", b"x", **DEAD)
    for _ in range(2):
        reject(client, "work")
        (_, _, _), (_, _, header), (_, _, body) = client.ask("basic.get", queue="dead", no_ack=True)
        assert plain(read(header["raw"])["headers"]["x-death"].value[0])["count"] == 1
        client.publish("", "work", body["body"], header["raw"])


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_it_goes_by_the_keys_of_its_copies_however_often_it_dies(client: Client, header: str) -> None:
    client.ask("exchange.declare", exchange="again", type="direct")
    fill(client, "copies", **{"x-dead-letter-exchange": "again"})
    client.ask("queue.bind", queue="copies", exchange="again", routing_key="copy")
    fill(client, "work", **{"x-dead-letter-exchange": "again"})
    client.publish("", "work", b"x", properties_of(headers={header: typed(["copy"])}))
    for queue in ("work", "copies"):
        client.hub.kernel.flush()
        reject(client, queue)
    headers = headers_in(client, "copies")
    assert [death["routing-keys"] for death in headers["x-death"]] == [["work", *headers.get("CC", [])]] * 2


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_routing_key_of_its_own_is_the_only_one_from_there_on(client: Client, header: str) -> None:
    fill(client, "copies")
    fill(client, "second", **{"x-dead-letter-exchange": "amq.direct"})
    for key in ("second", "copy"):
        client.ask("queue.bind", queue="dead" if key == "second" else "copies", exchange="amq.direct", routing_key=key)
    fill(client, "first", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    client.publish("", "first", b"x", properties_of(headers={header: typed(["copy"])}))
    client.hub.kernel.flush()
    reject(client, "first")
    reject(client, "second")
    assert get(client, "dead") is not None
    assert get(client, "copies") is None


def test_it_is_in_the_topic_of_its_exchange_where_there_is_one(hub: KernelHub, client: Client) -> None:
    hub.rig.kernel.create_topic("graveyard", partitions=1)
    hub.rig.run()
    fill(client, "work", b"x", b"y", **DEAD)
    reject(client, "work")
    reject(client, "work")
    records = hub.rig.read("graveyard")
    assert [record[3] for record in records] == [b"x", b"y"]
    assert (b"x-first-death-queue", b"work") in records[0][4]
    assert hub.rig.kernel.address_of("graveyard", records[0][2], records[0][4]) == "graveyard/line1/temp"
    assert headers_in(client, "dead")["x-death"][0]["queue"] == "work"
    assert client.ask("queue.declare", queue="dead", passive=True)[0][2]["message_count"] == 1


def test_it_is_in_the_topic_alone_where_no_queue_is_bound(hub: KernelHub, client: Client) -> None:
    client.ask("queue.delete", queue="dead")
    hub.rig.kernel.create_topic("graveyard", partitions=1)
    fill(client, "work", b"x", **DEAD)
    reject(client, "work")
    assert hub.rig.values("graveyard") == [b"x"]


@pytest.mark.parametrize("exchange", ["graveyard", "my: exchange"])
def test_it_makes_no_topic(hub: KernelHub, client: Client, exchange: str) -> None:
    client.ask("exchange.declare", exchange=exchange, type="topic", durable=True)
    client.ask("queue.bind", queue="dead", exchange=exchange, routing_key="#")
    fill(client, "work", b"x", **{"x-dead-letter-exchange": exchange})
    before = {topic.name for topic in hub.rig.kernel.topics("/")}
    reject(client, "work")
    assert headers_in(client, "dead")["x-death"][0]["queue"] == "work"
    assert {topic.name for topic in hub.rig.kernel.topics("/")} == before


def test_nothing_retains_it(hub: KernelHub, client: Client) -> None:
    kernel = hub.rig.kernel
    kernel.create_topic("graveyard")
    hub.rig.run()
    fill(client, "work", **{"x-dead-letter-exchange": "graveyard"})
    client.ask("queue.bind", queue="work", exchange="amq.topic", routing_key="plant.#")
    kernel.append([(kernel.place("plant/line1"), b"x", encode_headers([]), 1 | RETAIN, 0)], hub.rig.witness, None)
    hub.rig.run()
    reject(client, "work")
    retained: list[str] = []
    kernel.retained("#", "/", lambda values, after, error: retained.extend([value.address for value in values]))
    hub.rig.run()
    assert retained == ["plant/line1"]
    assert hub.rig.values("graveyard") == [b"x"]


def test_an_exchange_that_is_not_there_takes_nothing(hub: KernelHub, client: Client) -> None:
    hub.rig.kernel.create_topic("graveyard", partitions=1)
    fill(client, "work", b"x", **DEAD)
    client.ask("exchange.delete", exchange="graveyard")
    reject(client, "work")
    assert hub.rig.values("graveyard") == []


def test_what_expires_does_so_once(hub: KernelHub, client: Client) -> None:
    fill(client, "work", **DEAD)
    client.publish("", "work", b"x", properties_of(expiration="1000"))
    hub.rig.run()
    hub.advance(2_000)
    hub.rig.run()
    death, = headers_in(client, "dead")["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("expired", "1000")


def test_a_table_of_deaths_that_makes_no_sense_harms_nobody(client: Client) -> None:
    fill(client, "work", **DEAD)
    for value in (Field("S", b"no array"), Field("A", [Field("I", 1)]), Field("A", [Field("F", {})])):
        client.publish("", "work", b"x", b"\x20\0" + encode_table({"x-death": value}))
        reject(client, "work")
        assert headers_in(client, "dead")["x-death"][0]["queue"] == "work"
