"""The journey of a message over all doors, by stock clients: in over MQTT, refused over AMQP, redriven and acknowledged
over HTTP."""
from __future__ import annotations

import json
import queue
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import Producer
from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.interop.test_http_groups import ask
from tests.interop.test_rights import http
from tests.running_hub import RunningHub, config_of, gatehouse, running_hub, sound_hub
from tests.waiting import until

GROUP, TOPIC = "billing", "orders"
SHARED = f"$share/{GROUP}/{TOPIC}/#"
WAIT_S = 60


def command(hub: RunningHub, *arguments: str) -> str:
    """What a command says of this hub."""
    done = gatehouse(*arguments, "--url", f"http://127.0.0.1:{hub.port('http')}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "mqtt", "http", "amqp") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0 and "Traceback" not in said, said


def hearer(hub: RunningHub, address: str, heard: queue.Queue[tuple[str, str]]) -> mqtt.Client:
    """The publisher, who hears of his receipts on his own door."""
    subscribed = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="meter7", protocol=mqtt.MQTTv5)

    def on_message(client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        said = json.loads(message.payload)
        heard.put((said["receipt"], said["id"]))

    client.on_message = on_message
    client.on_subscribe = lambda *given: subscribed.set()
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    client.subscribe(address, qos=1)
    assert subscribed.wait(WAIT_S)
    return client


def one_that_fails(hub: RunningHub, publisher: mqtt.Client) -> str:
    """Published over MQTT, given back twice and rejected by an AMQP consumer; its id."""
    ask(hub, "PUT", f"/v1/topics/{TOPIC}", {"partitions": 1})
    ask(hub, "PUT", f"/v1/groups/{GROUP}", {"kind": "leased", "retry": {"delays_ms": [0]}})
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
    channel = connection.channel()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("receipt", "told/me")]
    publisher.publish(f"{TOPIC}/7", "a bill", qos=1, properties=properties).wait_for_publish(WAIT_S)
    times = 0
    for method, _, body in channel.consume(SHARED, inactivity_timeout=30):
        assert method is not None and body == b"a bill"
        times += 1
        channel.basic_nack(method.delivery_tag, requeue=times < 3)
        if times == 3:
            break
    channel.cancel()
    connection.close()
    letters = until(lambda: ask(hub, "GET", f"/v1/dead-letters?group={GROUP}")[1]["messages"])
    return str(letters[0]["id"])


def test_a_message_that_was_not_followed_is_told_from_its_first_error_on(hub: RunningHub) -> None:
    heard: queue.Queue[tuple[str, str]] = queue.Queue()
    publisher = hearer(hub, "told/me", heard)
    message_id = one_that_fails(hub, publisher)
    assert heard.get(timeout=WAIT_S) == ("dead", message_id)
    assert ask(hub, "POST", "/v1/dead-letters/redrive", {"group": GROUP, "ids": [message_id]})[0] == 200
    popped: list[Any] = ask(hub, "POST", f"/v1/groups/{GROUP}/pop?topic={TOPIC}&wait=30")[1]["messages"]
    assert [message["id"] for message in popped] == [message_id]
    ask(hub, "POST", f"/v1/groups/{GROUP}/ack", {"receipt_handles": [popped[0]["receipt_handle"]]})

    def whole() -> dict[str, Any] | None:
        status, journey = ask(hub, "GET", f"/v1/trace/{message_id}")
        assert status == 200, journey
        return journey if journey["steps"][-1]["what"] == "acked" else None

    assert heard.get(timeout=WAIT_S) == ("acked", message_id)
    publisher.disconnect()
    publisher.loop_stop()
    journey = until(whole)
    assert [step["what"] for step in journey["steps"]] == [
        "stored", "released", "handed out", "released", "handed out", "given up", "redriven", "handed out", "acked"]
    assert [step["recorded"] for step in journey["steps"]][:2] == [False, True]
    assert (journey["address"], journey["steps"][0]["door"], journey["followed"]) == (
        f"{TOPIC}/7", "mqtt", "from its first error on")
    assert journey["steps"][0]["client_id"] == "meter7" and journey["steps"][0]["peer"].startswith("127.0.0.1:")
    assert journey["steps"][2]["door"] == "amqp" and journey["steps"][5]["reason"] == "rejected"
    assert [step["door"] for step in journey["steps"][6:8]] == ["http", "http"], "not who spoke last"
    assert "client_id" not in journey["steps"][6]
    assert {each["group"]: each["state"] for each in journey["stands"]} == {
        GROUP: "settled", f"$queue/$dead-letters/{GROUP}": "settled"}

    said = command(hub, "trace", message_id)
    for words in ("stored (from the log)", "meter7", "released", "given up", "redriven", "acked", "billing"):
        assert words in said, said
    assert json.loads(command(hub, "trace", message_id, "--json"))["id"] == message_id
    for consumer in (GROUP, SHARED):
        assert command(hub, "why", message_id, consumer).startswith("arrived: it arrived: it was acked")
    ask(hub, "PUT", "/v1/groups/latecomers", {"kind": "leased", "start": "latest"})
    assert command(hub, "why", message_id, "latecomers").startswith("not_routed: ")
    assert json.loads(command(hub, "why", message_id, "nobody", "--json"))["reason"] == "no_consumer"
    status, half = ask(hub, "POST", "/v1/transactions", {"group": "sellers", "messages": [
        {"address": "orders/8", "value": "maybe"}]})
    assert status in (200, 201), half
    assert ask(hub, "GET", f"/v1/trace/{half['id']}/why?consumer={GROUP}")[1]["reason"] == "not_committed"
    assert ask(hub, "POST", f"/v1/transactions/{half['id']}/rollback")[0] == 200
    until(lambda: "rolled back" in command(hub, "trace", str(half["id"])))
    assert ask(hub, "GET", f"/v1/trace/{half['id']}/why?consumer={GROUP}")[1]["reason"] == "not_committed"
    status, later = ask(hub, "POST", "/v1/publish", {"messages": [{"address": "orders/9", "value": 1, "delay": 3_600}]})
    assert status == 201, later
    waiting = later["messages"][0]["id"]
    assert ask(hub, "GET", f"/v1/trace/{waiting}/why?consumer={GROUP}")[1]["reason"] == "waits_for_time"
    assert ask(hub, "DELETE", f"/v1/scheduled/{waiting}")[0] in (200, 204)
    said = until(lambda: text if "recalled" in (text := command(hub, "trace", waiting)) else "")
    assert "accepted" in said and "until" in said and "http" in said, said
    assert ask(hub, "GET", f"/v1/trace/{waiting}/why?consumer={GROUP}")[1]["reason"] == "recalled"

    by_place = command(hub, "trace", "--topic", TOPIC, "--offset", "0")
    assert message_id in by_place


def test_messages_that_were_followed_are_found_by_what_is_known_of_them(tmp_path: Path) -> None:
    with sound_hub(tmp_path, config_of(("http",)) + "[tracing.topics.plant]\n") as hub:
        trace = "0af7651916cd43dd8448eb211c80319c"
        status, stored = ask(hub, "POST", "/v1/publish", {"messages": [
            {"address": "plant/line1/temp", "value": "1", "correlation_id": "c-1",
             "traceparent": f"00-{trace}-b7ad6b7169203331-01"}, {"address": "other/x", "value": "2"}]})
        assert status == 201, stored
        for way in ("key=line1%2Ftemp", "address=plant%2Fline1%2Ftemp", f"trace_id={trace}", "correlation_id=c-1"):
            found = ask(hub, "GET", f"/v1/trace?{way}")[1]["messages"]
            assert [message["id"] for message in found] == [stored["messages"][0]["id"]], way
        assert ask(hub, "GET", "/v1/trace?address=other%2Fx")[1] == {"messages": []}
        assert ask(hub, "GET", "/v1/trace?address=plant%2Fline1%2Ftemp&to=1000")[1] == {"messages": []}
        not_followed = ask(hub, "GET", f"/v1/trace/{stored['messages'][1]['id']}")[1]
        assert [step["what"] for step in not_followed["steps"]] == ["stored"]
        assert (not_followed["followed"], not_followed["address"]) == ("not recorded", "other/x")
        assert ask(hub, "GET", "/v1/trace/123456")[0] == 404


def test_what_was_refused_who_connected_and_who_subscribed_is_found(tmp_path: Path) -> None:
    with guarded_hub(tmp_path) as hub:
        told = threading.Event()
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="desk", protocol=mqtt.MQTTv5)
        client.username_pw_set("ada", PASSWORD)
        client.on_publish = lambda *given: told.set()
        client.on_subscribe = lambda *given: client.publish("shut/1", b"x", qos=1)
        client.connect("127.0.0.1", hub.ports("mqtt")[0])
        client.loop_start()
        client.subscribe("open/#")
        assert told.wait(WAIT_S)
        client.disconnect()
        client.loop_stop()

        def events(query: str, user: str) -> list[tuple[str, str]]:
            status, said = http(hub, "GET", f"/v1/trace/events?{query}", user=user)[:2]
            assert status == 200, said
            return [(event["what"], event.get("address", "")) for event in json.loads(said)["events"]]

        whole = [("ended", ""), ("refused", "shut/1"), ("subscribed", "open/#"), ("connected", "")]
        until(lambda: events("client_id=desk", "root") == whole)
        assert events("client_id=desk", "ada") == whole          # what is his own
        assert events("client_id=desk", "eve") == events("client_id=desk", "tess") == []
        assert events("address=shut%2F1&from=2020-01-01T00:00:00Z", "root") == [("refused", "shut/1")]
        assert events("address=shut%2F1&to=1000", "root") == []
        assert ("refused", "shut/1") in events("user=ada", "root")


def test_a_journey_shows_what_its_asker_may_read(tmp_path: Path) -> None:
    with guarded_hub(tmp_path) as hub:
        stored = json.loads(http(hub, "POST", "/v1/publish", json.dumps({"messages": [
            {"address": "open/1", "value": "a"}, {"address": "shut/1", "value": "b"}]}).encode(), user="root",
            headers={"Content-Type": "application/json"})[1])["messages"]
        mine, other = stored[0]["id"], stored[1]["id"]
        assert [http(hub, "GET", f"/v1/trace/{mine}", user=user)[0] for user in ("root", "ada", "eve", "tess")] == [
            200, 200, 404, 404]
        assert [http(hub, "GET", f"/v1/trace/{other}", user=user)[0] for user in ("root", "ada")] == [200, 404]
        first = {user: json.loads(http(hub, "GET", f"/v1/trace/{mine}", user=user)[1])["steps"][0]
                 for user in ("root", "ada")}
        assert first["root"]["user"] == "root" and "user" not in first["ada"] and "publisher" not in first["ada"]
        hidden = [http(hub, "GET", f"/v1/trace/{id}/why?consumer=crew", user="ada")[1] for id in (other, "7")]
        assert json.loads(hidden[0])["text"] == json.loads(hidden[1])["text"]        # it does not tell that it is there
        asked = json.loads(http(hub, "GET", f"/v1/trace/{mine}/why?consumer=crew&user=eve", user="root")[1])
        assert (asked["reason"], "denied" in asked["evidence"]["why"]) == ("no_right", True)
        assert http(hub, "GET", f"/v1/trace/{mine}/why?consumer=crew&user=eve", user="ada")[0] == 403
        assert http(hub, "GET", "/v1/topics/journeys/messages", user="ada")[0] == 403


class FollowingAll(GuardedHub):
    """Every message of its topics is followed."""

    def _config(self) -> str:
        return super()._config() + """
[[acl]]
who = "user:ada"
pattern = "open/+/sealed"
effect = "deny"

[tracing.topics.open]
rate = 1.0

[tracing.topics.shut]
rate = 1.0
"""


class FollowingNone(GuardedHub):
    """Nothing is recorded of any message."""

    def _config(self) -> str:
        return super()._config() + "[tracing]\nenabled = false\n"


def test_a_right_is_judged_by_the_whole_address_however_long_it_is(tmp_path: Path) -> None:
    guarded = FollowingAll(tmp_path)
    try:
        guarded.hub.wait_ready()
        long = "x" * 600
        body = {"messages": [{"address": f"open/{long}/{last}", "value": "x"} for last in ("free", "sealed")]}
        stored = json.loads(http(guarded, "POST", "/v1/publish", json.dumps(body).encode(), user="root")[1])["messages"]
        assert [[http(guarded, "GET", f"/v1/trace/{message['id']}", user=user)[0] for message in stored]
                for user in ("root", "ada")] == [[200, 200], [200, 404]]
        shown = json.loads(http(guarded, "GET", f"/v1/trace/{stored[0]['id']}", user="ada")[1])
        assert shown["address"] == f"open/{long}/free"
    finally:
        guarded.hub.kill()


def test_why_tells_nobody_of_what_waits_where_he_may_not_read(tmp_path: Path) -> None:
    guarded = FollowingNone(tmp_path)
    try:
        guarded.hub.wait_ready()
        body = {"messages": [{"address": f"{topic}/1", "value": "x", "delay": 600} for topic in ("open", "shut")]}
        stored = json.loads(http(guarded, "POST", "/v1/publish", json.dumps(body).encode(), user="root")[1])["messages"]
        said = [[http(guarded, "GET", f"/v1/trace/{each['id']}/why?consumer=crew", user=user)[1] for each in stored]
                for user in ("root", "ada")]
        assert [[json.loads(answer)["reason"] for answer in answers] for answers in said] == [
            ["waits_for_time", "waits_for_time"], ["waits_for_time", "gone"]]
    finally:
        guarded.hub.kill()


def test_what_he_may_read_is_found_among_more_that_he_may_not(tmp_path: Path) -> None:
    guarded = FollowingAll(tmp_path)
    try:
        guarded.hub.wait_ready()
        for address, count in (("open/1", 1), ("shut/1", 600), ("shut/1", 600)):
            body = json.dumps({"messages": [{"address": address, "value": "x"}] * count}).encode()
            assert http(guarded, "POST", "/v1/publish", body, user="root")[0] == 201
        said = {user: json.loads(http(guarded, "GET", "/v1/trace?key=1", user=user)[1])["messages"]
                for user in ("root", "ada")}
        assert {message["address"] for message in said["root"]} == {"shut/1"}
        assert [message["address"] for message in said["ada"]] == ["open/1"]
    finally:
        guarded.hub.kill()


def test_live_subscribers_are_told_of_where_a_message_is_followed(tmp_path: Path) -> None:
    with sound_hub(tmp_path, config_of(("http", "mqtt")) + "[tracing.topics.plant]\n") as hub:
        subscribed = threading.Barrier(3)
        clients = [mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311) for _ in range(2)]
        for client in clients:
            client.on_subscribe = lambda *given: subscribed.wait(WAIT_S)
            client.connect("127.0.0.1", hub.port("mqtt"))
            client.loop_start()
            client.subscribe("plant/#")
        subscribed.wait(WAIT_S)
        message_id = ask(hub, "POST", "/v1/publish", {"messages": [{"address": "plant/1", "value": "x"}]})[1][
            "messages"][0]["id"]
        steps = until(lambda: [step for step in ask(hub, "GET", f"/v1/trace/{message_id}")[1]["steps"]
                                  if step["what"] == "delivered"])
        assert [(step["door"], step["number"]) for step in steps] == [("mqtt", 2)]
        for client in clients:
            client.disconnect()
            client.loop_stop()


def test_who_has_the_right_has_a_message_followed_on_every_door(tmp_path: Path) -> None:
    """By stock clients: curl's header, a user property, headers of AMQP and Kafka; Kafka's compressed batches too."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    with guarded_hub(tmp_path) as hub:
        for user in ("root", "ada"):
            headers = {"X-Trace": "always", "Content-Type": "application/json"}
            assert http(hub, "POST", "/v1/publish", json.dumps({"messages": [
                {"address": f"open/http/{user}", "value": 1}]}).encode(), user=user, headers=headers)[0] == 201
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
            client.username_pw_set(user, PASSWORD)
            client.connect("127.0.0.1", hub.ports("mqtt")[0])
            client.loop_start()
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("x-trace", "always")]
            client.publish(f"open/mqtt/{user}", b"x", qos=1, properties=properties).wait_for_publish(WAIT_S)
            client.disconnect()
            client.loop_stop()
            connection = pika.BlockingConnection(pika.ConnectionParameters(
                "127.0.0.1", hub.ports("amqp")[0], credentials=pika.PlainCredentials(user, PASSWORD)))
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("amq.topic", f"open.amqp.{user}", b"x", pika.BasicProperties(
                headers={"x-trace": "always"}))
            connection.close()
            producer = Producer({
                "bootstrap.servers": f"127.0.0.1:{hub.ports('kafka')[0]}", "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": PASSWORD,
                "compression.type": "gzip", "linger.ms": 50})
            context = f"00-{trace}-b7ad6b716920333{user == 'root':d}-01".encode()
            for number in range(20):
                producer.produce("open", b"%d" % number, f"kafka/{user}".encode(),
                                 headers=[("traceparent", context)] if number == 7 else [])
            assert producer.flush(WAIT_S) == 0

        def found(address: str) -> int:
            said = json.loads(http(hub, "GET", f"/v1/trace?address={address.replace('/', '%2F')}", user="root")[1])
            return len(said["messages"])

        for door in ("http", "mqtt", "amqp", "kafka"):
            until(lambda door=door: found(f"open/{door}/root") == 1)
            assert found(f"open/{door}/ada") == 0, door


def test_the_metrics_name_followed_messages_to_who_asks_for_openmetrics(tmp_path: Path) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with sound_hub(tmp_path, config_of(("http",)) + "[tracing.topics.plant]\n") as hub:
        assert ask(hub, "POST", "/v1/publish", {"messages": [{
            "address": "plant/1", "value": 1, "traceparent": f"00-{trace}-b7ad6b7169203331-01"}]})[0] == 201
        request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}/metrics", headers={
            "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        shown = [sample.exemplar for sample in families["gatehouse_durable_seconds"].samples if sample.exemplar]
        assert [exemplar.labels for exemplar in shown] == [{"trace_id": trace}]
