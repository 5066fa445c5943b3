"""Who may do what, as stock clients see it on every door: one table; quotas over two doors; changes while connected.

Ada may do everything at `open/#` and at queues but `sealed`, and consume with the group `crew`; `lab` is not hers.
"""
from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Any, Final

import paho.mqtt.client as paho
import pika
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.exceptions import ChannelClosedByBroker

from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub

WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("rights")) as running:
        for topic in ("open", "lab"):
            http(running, "PUT", f"/v1/topics/{topic}", user="root")
        for queue in ("work", "sealed"):
            with Amqp(running, "root") as root:
                root.channel.queue_declare(queue, durable=True)
        http(running, "POST", "/v1/publish/lab/secret", b"secret", user="root")
        http(running, "POST", "/v1/publish/open/first", b"first", user="root")
        yield running
        code, said = running.hub.stop()
        assert code == 0 and "Traceback" not in said, said


# ---- the clients

def http(guarded: GuardedHub, method: str, path: str, body: bytes | None = None, user: str = "ada",
         headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Status and code, or body."""
    url = f"http://127.0.0.1:{guarded.ports('http')[0]}{path}"
    request = urllib.request.Request(url, body, method=method, headers={
        "Authorization": "Basic " + b64encode(f"{user}:{PASSWORD}".encode()).decode(),
        "Content-Type": "application/json" if body and body.startswith(b"{") else "text/plain",
        **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["code"]


class Mqtt:
    """A paho client that has connected, or was refused: `answer` is what CONNACK says."""

    def __init__(self, guarded: GuardedHub, user: str, client_id: str = "", inflight: int = 20) -> None:
        self.granted: Queue[list[int]] = Queue()
        self.messages: Queue[bytes] = Queue()
        self.gone = threading.Event()
        answers: Queue[str] = Queue()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv311,
                                reconnect_on_failure=False)
        self.paho.username_pw_set(user, PASSWORD)
        self.paho.max_inflight_messages_set(inflight)
        self.paho.on_connect = lambda _client, _data, _flags, answer, _properties: answers.put(str(answer))
        self.paho.on_subscribe = lambda _client, _data, _mid, codes, _properties: self.granted.put(
            [code.value for code in codes])
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message.payload)
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self.paho.connect("127.0.0.1", guarded.ports("mqtt")[0])
        self.paho.loop_start()
        self.answer = answers.get(timeout=WAIT_S)

    def __enter__(self) -> Mqtt:
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    @staticmethod
    def let_in(guarded: GuardedHub, user: str, client_id: str) -> Mqtt:
        """Connected, once who had the id before has been seen off."""
        end_s = time.monotonic() + WAIT_S
        while (client := Mqtt(guarded, user, client_id)).answer != "Success":
            assert time.monotonic() < end_s, client.answer
            client.paho.loop_stop()
        return client

    def publish(self, topic: str, payload: bytes = b"x") -> str:
        sent = self.paho.publish(topic, payload, qos=1)
        sent.wait_for_publish(WAIT_S)
        return "acknowledged" if sent.is_published() else "nothing"

    def subscribe(self, topic_filter: str) -> str:
        self.paho.subscribe(topic_filter, 1)
        return str(self.granted.get(timeout=WAIT_S)[0])


class Amqp:
    """A pika connection with a channel that confirms."""

    def __init__(self, guarded: GuardedHub, user: str, vhost: str = "/") -> None:
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", guarded.ports("amqp")[0], vhost, pika.PlainCredentials(user, PASSWORD),
            socket_timeout=WAIT_S, stack_timeout=WAIT_S))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def __enter__(self) -> Amqp:
        return self

    def __exit__(self, *_: object) -> None:
        if self.connection.is_open:
            self.connection.close()

    def ask(self, what: Callable[[Any], object]) -> str:
        """`ok`, or the reply code of the channel's end."""
        try:
            what(self.channel)
        except ChannelClosedByBroker as error:
            return f"{error.reply_code} {error.reply_text.partition(' - ')[0]}"
        return "ok"


def kafka_login(guarded: GuardedHub, user: str = "ada") -> dict[str, Any]:
    """For kafka-python and aiokafka."""
    return {"bootstrap_servers": f"127.0.0.1:{guarded.ports('kafka')[0]}", "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": user, "sasl_plain_password": PASSWORD}


def librdkafka_login(guarded: GuardedHub, user: str = "ada") -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{guarded.ports('kafka')[0]}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": PASSWORD}


def librdkafka_produce(guarded: GuardedHub, topic: str) -> str:
    told: Queue[Any] = Queue()
    producer = Producer(librdkafka_login(guarded))
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.put(error))
    assert producer.flush(WAIT_S) == 0
    error = told.get_nowait()
    return "ok" if error is None else error.name()


def librdkafka_create(guarded: GuardedHub, topic: str) -> str:
    admin = AdminClient(librdkafka_login(guarded))       # a name of its own: without it the client is gone too soon
    try:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return "ok"


def kafka_python_produce(guarded: GuardedHub, topic: str) -> str:
    producer = KafkaProducer(**kafka_login(guarded), max_block_ms=int(WAIT_S * 1000))
    try:
        producer.send(topic, b"x").get(WAIT_S)
    except TopicAuthorizationFailedError as error:
        return type(error).__name__
    finally:
        producer.close()
    return "ok"


def aiokafka_read(guarded: GuardedHub, topic: str) -> str:
    async def read() -> str:
        consumer = AIOKafkaConsumer(topic, **kafka_login(guarded), auto_offset_reset="earliest")
        try:
            await consumer.start()
            await asyncio.wait_for(consumer.getone(), WAIT_S)
        except Exception as error:
            return type(error).__name__
        finally:
            await consumer.stop()
        return "ok"
    return asyncio.run(read())


def kafka_topics(guarded: GuardedHub) -> str:
    return " ".join(sorted(AdminClient(librdkafka_login(guarded)).list_topics(timeout=WAIT_S).topics))


# ---- the table: door, operation, what ada's client sees

def mqtt(what: Callable[[Mqtt], str]) -> Callable[[GuardedHub], str]:
    def act(guarded: GuardedHub) -> str:
        with Mqtt(guarded, "ada") as client:
            return what(client)
    return act


def amqp(what: Callable[[Any], object]) -> Callable[[GuardedHub], str]:
    def act(guarded: GuardedHub) -> str:
        with Amqp(guarded, "ada") as client:
            return client.ask(what)
    return act


def asked(method: str, path: str, body: bytes | None = None) -> Callable[[GuardedHub], str]:
    return lambda guarded: str(http(guarded, method, path, body)[0])


REFUSED = "403 ACCESS_REFUSED"
TABLE: list[tuple[str, Callable[[GuardedHub], str], str]] = [
    ("mqtt publish", mqtt(lambda one: one.publish("open/a")), "acknowledged"),
    ("mqtt publish, denied", mqtt(lambda one: one.publish("lab/a", b"denied")), "acknowledged"),
    ("mqtt subscribe", mqtt(lambda one: one.subscribe("open/#")), "1"),
    ("mqtt subscribe, denied", mqtt(lambda one: one.subscribe("lab/#")), "128"),
    ("mqtt subscribe to everything, a part", mqtt(lambda one: one.subscribe("#")), "1"),
    ("mqtt own inbox", mqtt(lambda one: one.subscribe("inbox/ada/#")), "1"),
    ("mqtt another's inbox", mqtt(lambda one: one.subscribe("inbox/bob/#")), "128"),
    ("mqtt share", mqtt(lambda one: one.subscribe("$share/crew/open/#")), "1"),
    ("mqtt share, another group", mqtt(lambda one: one.subscribe("$share/others/open/#")), "128"),
    ("amqp publish", amqp(lambda one: one.basic_publish("amq.topic", "open.a", b"x")), "ok"),
    ("amqp publish, denied", amqp(lambda one: one.basic_publish("amq.topic", "lab.a", b"denied")), REFUSED),
    ("amqp publish to a queue", amqp(lambda one: one.basic_publish("", "work", b"x")), "ok"),
    ("amqp publish to a queue, denied", amqp(lambda one: one.basic_publish("", "sealed", b"denied")), REFUSED),
    ("amqp get", amqp(lambda one: one.basic_get("work")), "ok"),
    ("amqp get, denied", amqp(lambda one: one.basic_get("sealed")), REFUSED),
    ("amqp consume, denied", amqp(lambda one: one.basic_consume("sealed", lambda *_: None)), REFUSED),
    ("amqp declare, denied", amqp(lambda one: one.exchange_declare("lab2", "topic")), REFUSED),
    ("amqp declare and delete", amqp(lambda one: (one.queue_declare("own", durable=True), one.queue_delete("own"))),
     "ok"),
    ("amqp delete, denied", amqp(lambda one: one.queue_delete("sealed")), REFUSED),
    ("amqp purge, denied", amqp(lambda one: one.queue_purge("sealed")), REFUSED),
    ("amqp passive, denied", amqp(lambda one: one.queue_declare("sealed", passive=True)), REFUSED),
    ("amqp bind", amqp(lambda one: one.queue_bind("work", "amq.topic", "open.#")), "ok"),
    ("amqp bind, denied", amqp(lambda one: one.queue_bind("work", "amq.topic", "lab.#")), REFUSED),
    ("librdkafka produce", lambda hub: librdkafka_produce(hub, "open"), "ok"),
    ("librdkafka produce, denied", lambda hub: librdkafka_produce(hub, "lab"), "TOPIC_AUTHORIZATION_FAILED"),
    ("librdkafka produce, not there", lambda hub: librdkafka_produce(hub, "nothing"), "TOPIC_AUTHORIZATION_FAILED"),
    ("librdkafka create, denied", lambda hub: librdkafka_create(hub, "made"), "TOPIC_AUTHORIZATION_FAILED"),
    ("librdkafka list", kafka_topics, "open"),
    ("kafka-python produce, denied", lambda hub: kafka_python_produce(hub, "lab"), "TopicAuthorizationFailedError"),
    ("aiokafka read", lambda hub: aiokafka_read(hub, "open"), "ok"),
    ("aiokafka read, denied", lambda hub: aiokafka_read(hub, "lab"), "TopicAuthorizationFailedError"),
    ("http publish", asked("POST", "/v1/publish/open/a", b"x"), "201"),
    ("http publish, denied", asked("POST", "/v1/publish/lab/a", b"denied"), "403"),
    ("http many, one denied", asked("POST", "/v1/publish", b'{"messages":[{"address":"open/a","value":"x"},'
                                                          b'{"address":"lab/a","value":"denied"}]}'), "207"),
    ("http page", asked("GET", "/v1/topics/open/messages"), "200"),
    ("http page, denied", asked("GET", "/v1/topics/lab/messages"), "403"),
    ("http page, not there", asked("GET", "/v1/topics/nothing/messages"), "403"),
    ("http pop", asked("POST", "/v1/groups/crew/pop?topic=open"), "200"),
    ("http pop, another group", asked("POST", "/v1/groups/others/pop?topic=open"), "403"),
    ("http retained, denied", asked("GET", "/v1/retained/lab/secret"), "403"),
    ("http delete, denied", asked("DELETE", "/v1/topics/lab"), "403"),
    ("http users, denied", asked("GET", "/v1/users"), "403"),
]


@pytest.mark.parametrize(("act", "seen"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_a_client_sees(guarded: GuardedHub, act: Callable[[GuardedHub], str], seen: str) -> None:
    assert act(guarded) == seen


def test_nothing_that_was_denied_is_stored_anywhere(guarded: GuardedHub) -> None:
    """After the table, or what has been of it: the lab holds what root puts there, and the sealed queue nothing."""
    test_what_a_client_sees(guarded, mqtt(lambda one: one.publish("lab/a", b"denied")), "acknowledged")
    test_what_a_client_sees(guarded, asked("POST", "/v1/publish/lab/a", b"denied"), "403")
    _, page = http(guarded, "GET", "/v1/topics/lab/messages", user="root")
    assert {one["value"] for one in json.loads(page)["messages"]} - {"after"} == {"secret"}
    with Amqp(guarded, "root") as root:
        assert root.channel.queue_declare("sealed", passive=True).method.message_count == 0
    _, topics = http(guarded, "GET", "/v1/topics", user="root")
    assert {"made", "nothing", "lab2"}.isdisjoint(topic["name"] for topic in json.loads(topics)["topics"])


def test_a_denied_message_reaches_no_subscriber_of_another_door(guarded: GuardedHub) -> None:
    with Mqtt(guarded, "root") as listener, Mqtt(guarded, "ada") as ada:
        listener.subscribe("lab/#")
        ada.publish("lab/x", b"denied")
        http(guarded, "POST", "/v1/publish/lab/x", b"after", user="root")
        assert listener.messages.get(timeout=WAIT_S) == b"after"


def test_a_header_called_address_gets_nobody_where_he_may_not_publish(guarded: GuardedHub) -> None:
    """Bob may publish at `yard/bob`: whoever reads what he sent, by page or by group, is told that it was there."""
    rule = b'{"who":"user:bob","pattern":"yard/bob","operations":["publish","create"]}'
    assert http(guarded, "POST", "/v1/acl", rule, user="root")[0] == 201
    http(guarded, "PUT", "/v1/topics/yard", user="root")
    many = {"address": "yard/bob", "value": "json", "headers": [["address", "yard/root"]]}
    assert http(guarded, "POST", "/v1/publish", json.dumps({"messages": [many]}).encode(), user="bob")[0] == 201
    assert http(guarded, "POST", "/v1/publish/yard/bob", b"http", user="bob",
                headers={"X-Header-address": "yard/root"})[0] == 201
    with Amqp(guarded, "bob") as client:
        client.channel.basic_publish("amq.topic", "yard.bob", b"amqp",
                                     pika.BasicProperties(headers={"address": "yard/root"}))
    _, page = http(guarded, "GET", "/v1/topics/yard/messages", user="root")
    seen = [(one["value"], one["address"], one["headers"]) for one in json.loads(page)["messages"]]
    assert seen == [(value, "yard/bob", [["address", "yard/root"]]) for value in ("json", "http", "amqp")]
    _, popped = http(guarded, "POST", "/v1/groups/readers/pop?topic=yard&max=9&wait=20", b"", user="root")
    assert {one["address"] for one in json.loads(popped)["messages"]} == {"yard/bob"}


def test_nobody_makes_up_a_dead_letter(guarded: GuardedHub) -> None:
    """It would be redriven to where it says that it came from. Ada may publish to every queue but `sealed`."""
    http(guarded, "POST", "/v1/publish/yard2/root", b"buried", user="root")
    _, popped = http(guarded, "POST", "/v1/groups/mourners/pop?topic=yard2&wait=20", b"", user="root")
    handles = [one["receipt_handle"] for one in json.loads(popped)["messages"]]
    http(guarded, "POST", "/v1/groups/mourners/release",
         json.dumps({"receipt_handles": handles, "dead_letter": True}).encode(), user="root")
    end_s = time.monotonic() + WAIT_S
    while "buried" not in http(guarded, "GET", "/v1/dead-letters?group=mourners", user="root")[1]:
        assert time.monotonic() < end_s, "it does not become a dead letter"
    queue = "$dead-letters/mourners"
    assert http(guarded, "POST", f"/v1/publish/$queue/{queue}", b"made up") == (403, "not_authorized")
    assert http(guarded, "POST", "/v1/publish/open/a", b"made up",
                headers={"X-Header-dead-letter": "[]"}) == (400, "invalid_header")
    with Amqp(guarded, "ada") as client:
        assert client.ask(lambda one: one.basic_publish("", queue, b"made up")) == REFUSED
    with Amqp(guarded, "ada") as client:
        assert client.ask(lambda one: one.queue_bind(queue, "amq.topic", "open.#")) == REFUSED
    _, letters = http(guarded, "GET", "/v1/dead-letters?group=mourners", user="root")
    assert [one["value"] for one in json.loads(letters)["messages"]] == ["buried"]


# ---- tenants

def test_a_tenant_is_a_hub_of_its_own_on_every_door(guarded: GuardedHub) -> None:
    """The same names in `/` and in `red`: nothing crosses."""
    with Mqtt(guarded, "root") as here, Mqtt(guarded, "tess") as there, Amqp(guarded, "tess", "red") as queues:
        queues.channel.queue_declare("work")
        queues.channel.queue_bind("work", "amq.topic", "open.#")
        assert here.subscribe("open/#") == "1" and there.subscribe("open/#") == "1"
        assert there.publish("open/red", b"red") == "acknowledged"
        assert http(guarded, "POST", "/v1/publish/open/here", b"here", user="root")[0] == 201
        assert there.messages.get(timeout=WAIT_S) == b"red"
        assert here.messages.get(timeout=WAIT_S) == b"here"
        assert queues.channel.basic_get("work", auto_ack=True)[2] == b"red"
        assert queues.channel.basic_get("work", auto_ack=True)[0] is None
    topics = AdminClient(librdkafka_login(guarded, "tess")).list_topics(timeout=WAIT_S).topics
    assert sorted(topics) == ["open"]
    _, page = http(guarded, "GET", "/v1/topics/open/messages", user="tess")
    assert [one["value"] for one in json.loads(page)["messages"]] == ["red"]
    assert http(guarded, "GET", "/v1/topics/lab/messages", user="tess")[0] == 404, "there is none in `red`"


@pytest.mark.parametrize(("user", "vhost"), [("tess", "/"), ("ada", "red"), ("ada", "nowhere")])
def test_a_virtual_host_that_is_another_tenants(guarded: GuardedHub, user: str, vhost: str) -> None:
    with pytest.raises((pika.exceptions.ConnectionClosedByBroker, pika.exceptions.ProbableAccessDeniedError)) as told:
        Amqp(guarded, user, vhost)
    assert f"access to vhost '{vhost}' refused for user '{user}'" in str(told.value)


# ---- quotas

def test_a_quota_counts_what_two_doors_take_together(guarded: GuardedHub) -> None:
    """100 messages a second for `fast`: what MQTT uses up, HTTP answers for with 429."""
    with Mqtt(guarded, "fast", inflight=10_000) as client:
        status, end_s = 201, time.monotonic() + WAIT_S
        while status == 201 and time.monotonic() < end_s:
            for _ in range(200):                 # two seconds' worth: however slowly HTTP asks, MQTT has overdrawn
                sent = client.paho.publish("load/a", b"x", qos=1)
            status, _ = http(guarded, "POST", "/v1/publish/load/b", b"x", user="fast")
        assert status == 429
        sent.wait_for_publish(WAIT_S)
        assert sent.is_published(), "slowed, not refused"


# ---- while connected

def test_a_user_that_is_disabled_is_out_on_every_door(guarded: GuardedHub) -> None:
    with Mqtt(guarded, "bob") as client, Amqp(guarded, "bob") as channel:
        waiting: Queue[tuple[int, str]] = Queue()
        rule = b'{"who":"user:bob","kind":"topic","pattern":"open","operations":["consume"]}'
        assert http(guarded, "POST", "/v1/acl", rule, user="root")[0] == 201
        poll = threading.Thread(target=lambda: waiting.put(
            http(guarded, "GET", "/v1/topics/open/messages?from=latest&wait=20", user="bob")))
        poll.start()
        time.sleep(0.3)                      # the poll must be waiting; if it is not yet, it is refused all the same
        assert http(guarded, "PUT", "/v1/users/bob", b'{"disabled":true}', user="root")[0] in (200, 204)
        assert client.gone.wait(WAIT_S)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            while True:
                channel.connection.process_data_events(0.1)
        assert closed.value.reply_code == 320
        assert waiting.get(timeout=WAIT_S) == (401, "not_authenticated")
        poll.join()
    assert http(guarded, "GET", "/v1/topics", user="bob")[0] == 401
    assert http(guarded, "PUT", "/v1/users/bob", b'{"disabled":false}', user="root")[0] in (200, 204)
    assert http(guarded, "GET", "/v1/topics", user="bob")[0] == 200


def test_a_right_that_is_taken_away_ends_what_hangs_on_it(guarded: GuardedHub) -> None:
    status, body = http(guarded, "POST", "/v1/acl", b'{"who":"user:eve","pattern":"open/#"}', user="root")
    assert status == 201, body
    rule = json.loads(body)["id"]
    with Mqtt(guarded, "eve") as client:
        assert client.subscribe("open/#") == "1"
        assert http(guarded, "POST", "/v1/publish/open/a", b"1", user="root")[0] == 201
        assert client.messages.get(timeout=WAIT_S) == b"1"
        assert http(guarded, "DELETE", f"/v1/acl/{rule}", user="root")[0] == 204
        assert http(guarded, "POST", "/v1/publish/open/a", b"2", user="root")[0] == 201
        with pytest.raises(Empty):
            client.messages.get(timeout=0.5)
        assert client.subscribe("open/#") == "128"


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_what_waits_for_a_slow_client_is_not_sent_once_it_may_not_be_read(guarded: GuardedHub, expiry_s: int) -> None:
    """Paho takes one message at a time, and is denied a part of what waits in the hub's memory or its session."""
    allowed = json.loads(http(guarded, "POST", "/v1/acl", b'{"who":"user:eve","pattern":"open/#"}', user="root")[1])
    client = paho.Client(CallbackAPIVersion.VERSION2, "slow", protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True,
                         reconnect_on_failure=False)
    messages: Queue[paho.MQTTMessage] = Queue()
    granted: Queue[list[int]] = Queue()
    client.on_message = lambda _client, _data, message: messages.put(message)
    client.on_subscribe = lambda _client, _data, _mid, codes, _properties: granted.put([code.value for code in codes])
    client.username_pw_set("eve", PASSWORD)
    said = Properties(PacketTypes.CONNECT)
    said.ReceiveMaximum, said.SessionExpiryInterval = 1, expiry_s
    client.connect("127.0.0.1", guarded.ports("mqtt")[0], clean_start=True, properties=said)
    client.loop_start()
    try:
        client.subscribe("open/#", qos=1)
        assert granted.get(timeout=WAIT_S) == [1]
        for number in range(5):
            for topic in ("free", "secret"):
                assert http(guarded, "POST", f"/v1/publish/open/{topic}", b"%d" % number, user="root")[0] == 201
        first = messages.get(timeout=WAIT_S)
        denied = json.loads(http(guarded, "POST", "/v1/acl", b'{"who":"user:eve","pattern":"open/secret",'
                                 b'"effect":"deny"}', user="root")[1])
        assert http(guarded, "POST", "/v1/publish/open/free", b"last", user="root")[0] == 201
        came = [first]
        while came[-1].payload != b"last":
            client.ack(came[-1].mid, came[-1].qos)
            came.append(messages.get(timeout=WAIT_S))
        assert [(each.topic, each.payload) for each in came] == [
            ("open/free", payload) for payload in (b"0", b"1", b"2", b"3", b"4", b"last")]
        for rule in (denied, allowed):
            assert http(guarded, "DELETE", f"/v1/acl/{rule['id']}", user="root")[0] == 204
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_client_id_is_its_users(guarded: GuardedHub) -> None:
    """Nobody else takes it over; and rules say which ids somebody may have, at the next CONNECT and at once."""
    taken = "Client identifier not valid"
    with Mqtt(guarded, "ada", "sensor") as ada:
        with Mqtt(guarded, "eve", "sensor") as eve:
            assert eve.answer == taken and not ada.gone.is_set()
        with Mqtt(guarded, "ada", "sensor") as again:
            assert again.answer == "Success" and ada.gone.wait(WAIT_S)
    with Mqtt.let_in(guarded, "eve", "sensor") as eve:
        rule = b'{"who":"user:eve","kind":"client","pattern":"{user}-*"}'
        status, body = http(guarded, "POST", "/v1/acl", rule, user="root")
        assert status == 201 and eve.gone.wait(WAIT_S)
    with Mqtt(guarded, "eve", "eve-1") as own, Mqtt(guarded, "eve", "ada-1") as other, Mqtt(guarded, "eve") as given:
        assert (own.answer, other.answer, given.answer) == ("Success", taken, "Success")
    question = b'{"user":"eve","operation":"connect","kind":"client","on":"ada-1"}'
    status, told = http(guarded, "POST", "/v1/acl/test", question, user="root")
    assert status == 200 and not json.loads(told)["allowed"]
    assert http(guarded, "DELETE", f"/v1/acl/{json.loads(body)['id']}", user="root")[0] == 204


def test_what_clients_declare_is_audited(guarded: GuardedHub) -> None:
    """Who, from where, what: what outlives its connection, and is not refused; nothing that changes nothing."""
    with Amqp(guarded, "root") as amqp:
        channel = amqp.channel
        for _ in range(2):
            channel.exchange_declare("shop", "topic", durable=True)
            channel.queue_declare("bills", durable=True)
            channel.queue_bind("bills", "shop", "bill.#")
        passing = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(passing, "shop", "#")
        channel.queue_declare("brief", auto_delete=True)
        channel.queue_purge("bills")
        channel.queue_unbind("bills", "shop", "bill.#")
        channel.queue_delete("bills")
        channel.exchange_delete("shop")
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{guarded.ports('kafka')[0]}",
                         "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "root",
                         "sasl.password": PASSWORD})
    created = admin.create_topics([NewTopic("ledger", 3), NewTopic("no/topic", 1)], request_timeout=WAIT_S)
    created["ledger"].result(WAIT_S)
    end_s, told = time.monotonic() + WAIT_S, []
    while not any(entry["details"].get("topic") == "ledger" for entry in told):     # written behind what it tells of
        assert time.monotonic() < end_s, told
        status, page = http(guarded, "GET", "/v1/topics/audit/messages?from=earliest&max=1000", user="root")
        told = [json.loads(message["value"]) for message in json.loads(page)["messages"]]
    amqps = [entry for entry in told if not {"shop", "bills"}.isdisjoint(map(str, entry["details"].values()))]
    assert not {"brief", passing} & {entry["details"].get("queue") for entry in told}
    assert [entry["action"] for entry in amqps] == [
        "exchange.declared", "queue.declared", "queue.bound", "queue.purged", "queue.unbound", "queue.deleted",
        "exchange.deleted"]
    assert amqps[2]["details"] == {"queue": "bills", "exchange": "shop", "routing_key": "bill.#", "vhost": "/"}
    kafkas = [entry for entry in told if entry["action"] == "topic.created"]
    assert [(entry["action"], entry["details"]) for entry in kafkas] == [
        ("topic.created", {"topic": "ledger", "partitions": 3, "tenant": "/"})]
    assert [entry["door"] for entry in (*amqps, *kafkas)] == ["amqp"] * 7 + ["kafka"]
    for entry in (*amqps, *kafkas):
        assert entry["by"] == "root" and entry["peer"].startswith("127.0.0.1:") and entry["at"] > 0


def slowly(guarded: GuardedHub, method: str, path: str, body: bytes, meanwhile: Callable[[], int]) -> bytes:
    """The answer to a call of boss's whose body waits until something else has been done, which is answered 200."""
    login = b64encode(f"boss:{PASSWORD}".encode()).decode()
    with socket.create_connection(("127.0.0.1", guarded.ports("http")[0]), WAIT_S) as slow:
        slow.sendall(f"{method} {path} HTTP/1.1\r\nHost: hub\r\nAuthorization: Basic {login}\r\n"
                     f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                     "Expect: 100-continue\r\n\r\n".encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 100 ")          # the right was looked at
        assert meanwhile() == 200
        slow.sendall(body)
        return slow.recv(4096)


@pytest.mark.parametrize(("method", "path", "document"), [
    ("PUT", "/v1/users/boss", {"groups": ["admins"]}), ("POST", "/v1/users/boss/keys", {"name": "k"}),
    ("POST", "/v1/acl", {"who": "user:boss", "pattern": "#"}), ("PUT", "/v1/acl/7", {"who": "user:boss"}),
    ("POST", "/v1/acl/test", {"user": "root", "operation": "publish", "on": "a"}),
    ("POST", "/v1/limits", {"of": "hub", "messages_per_s": 1}), ("PUT", "/v1/webhooks/w", {"url": "https://a.test/"}),
    ("PUT", "/v1/circuits/group:g", {"circuit": "open"}), ("POST", "/v1/drills", {"drill": "held_disk"}),
    ("POST", "/v1/relay/join", {"invitation": "x"})])
def test_a_body_that_comes_slowly_keeps_no_right_to_administer(guarded: GuardedHub, method: str, path: str,
                                                               document: dict[str, Any]) -> None:
    boss = json.dumps({"password": PASSWORD, "groups": ["admins"]}).encode()
    assert http(guarded, "PUT", "/v1/users/boss", boss, user="root")[0] in (200, 201)
    body = json.dumps(document).encode()
    assert slowly(guarded, method, path, body, lambda: http(
        guarded, "PUT", "/v1/users/boss", b'{"groups": []}', user="root")[0]).startswith(b"HTTP/1.1 403 ")
    assert json.loads(http(guarded, "GET", "/v1/users/boss", user="root")[1])["groups"] == []


@pytest.mark.parametrize("change", [{"disabled": True}, {"password": "another password"}])
@pytest.mark.parametrize("path", ["/v1/publish/slow/a", "/v1/topics/slow/messages", "/v1/publish"])
def test_who_is_let_in_no_more_publishes_nothing_that_comes_slowly(guarded: GuardedHub, path: str,
                                                                  change: dict[str, Any]) -> None:
    """His rules are still there."""
    boss = json.dumps({"password": PASSWORD, "groups": ["admins"], "disabled": False}).encode()
    assert http(guarded, "PUT", "/v1/users/boss", boss, user="root")[0] in (200, 201)
    message = {"value": "x"} if "slow" in path else {"address": "slow/a", "value": "x"}
    assert slowly(guarded, "POST", path, json.dumps({"messages": [message]}).encode(), lambda: http(
        guarded, "PUT", "/v1/users/boss", json.dumps(change).encode(), user="root")[0]).startswith(b"HTTP/1.1 401 ")
