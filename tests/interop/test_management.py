"""RabbitMQ's management interface with its own tool, with definitions of a real RabbitMQ, and with users of few rights.

The answers that are compared to the letter are what RabbitMQ 3.10.8 with its management plug-in gave to the same calls.
"""
from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.interop.guarded_hub import PASSWORD, guarded_hub
from tests.running_hub import RunningHub, running_hub

ROOT = Path(__file__).parents[2]
EXPORTED = Path(__file__).with_name("definitions_rabbitmq_3_10.json")
EXPORTED_BY_4 = Path(__file__).with_name("definitions_rabbitmq_4.json")

Api = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "amqp") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


def ask(hub: RunningHub, method: str, path: str, document: Any = None, user: tuple[str, str] = ("guest", "guest"),
        headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and JSON."""
    login = base64.b64encode(":".join(user).encode()).decode()
    data = None if document is None else document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}/api/{path}", data, {
        "Authorization": f"Basic {login}", "Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


@pytest.fixture
def api(hub: RunningHub) -> Api:
    return lambda method, path, document=None: ask(hub, method, path, document)


@pytest.fixture
def channel(hub: RunningHub) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture(scope="module")
def admin(hub: RunningHub) -> Callable[..., str]:
    """Runs Debian's rabbitmqadmin."""
    found = subprocess.run(["sh", "scripts/rabbitmqadmin.sh", "build/rabbitmqadmin"], cwd=ROOT, capture_output=True,
                           text=True, timeout=300)
    assert not found.returncode, found.stderr
    tool = ROOT / found.stdout.strip()

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, str(tool), "-H", "127.0.0.1", "-P", str(hub.port("http")), *arguments],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run


def rows(admin: Callable[..., str], *arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(admin("-f", "raw_json", *arguments))
    return listed


# ---- the tool

def test_rabbitmqadmin_declares_publishes_gets_and_deletes(admin, channel):
    assert admin("declare", "exchange", "name=adm", "type=topic") == "exchange declared\n"
    assert admin("declare", "queue", "name=adm.q", "durable=true",
                 'arguments={"x-max-length": 50}') == "queue declared\n"
    assert admin("declare", "binding", "source=adm", "destination=adm.q", "routing_key=a.#") == "binding declared\n"
    assert admin("publish", "exchange=adm", "routing_key=a.b", "payload=hello") == "Message published\n"
    assert "NOT routed" in admin("publish", "exchange=adm", "routing_key=b", "payload=nowhere")
    (message,) = rows(admin, "get", "queue=adm.q", "ackmode=ack_requeue_true")
    assert (message["payload"], message["exchange"], message["routing_key"]) == ("hello", "adm", "a.b")
    (queue,) = [one for one in rows(admin, "list", "queues") if one["name"] == "adm.q"]
    assert (queue["messages"], queue["messages_ready"], queue["consumers"], queue["arguments"]) == (
        1, 1, 0, {"x-max-length": 50})
    assert [(one["source"], one["routing_key"]) for one in rows(admin, "list", "bindings")
            if one["destination"] == "adm.q"] == [("", "adm.q"), ("adm", "a.#")]
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume("adm.q", lambda *_: None, consumer_tag="tag")
    assert [(one["consumer_tag"], one["prefetch_count"]) for one in rows(admin, "list", "consumers")] == [("tag", 3)]
    (connection,) = rows(admin, "list", "connections")
    (shown,) = rows(admin, "list", "channels")
    assert (shown["connection_details"]["name"], shown["prefetch_count"]) == (connection["name"], 3)
    assert connection["client_properties"]["product"] == "Pika Python Client Library"
    channel.cancel()
    assert "adm.q" in admin("list", "queues", "name")
    admin("delete", "binding", "source=adm", "destination_type=queue", "destination=adm.q", "properties_key=a.%23")
    assert admin("purge", "queue", "name=adm.q") == "queue purged\n"
    assert admin("delete", "queue", "name=adm.q") == "queue deleted\n"
    assert admin("delete", "exchange", "name=adm") == "exchange deleted\n"
    assert admin("show", "overview")
    for what in ("nodes", "vhosts", "users", "permissions", "parameters", "policies", "exchanges"):
        admin("list", what)


@pytest.mark.parametrize(("reason", "told"), [("", "Closed via management plugin"), ("for repairs", "for repairs")])
def test_a_connection_is_closed_in_rabbitmqs_words_or_in_those_of_whoever_closes_it(hub, admin, reason, told):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp")))
    (row,) = rows(admin, "list", "connections")
    if reason:                                 # rabbitmqadmin of the second generation says one, the first cannot
        assert ask(hub, "DELETE", f"connections/{quote(row['name'])}", headers={"X-Reason": reason}) == (204, None)
    else:
        admin("close", "connection", f"name={row['name']}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        while True:
            connection.process_data_events(1)
    assert (closed.value.reply_code, closed.value.reply_text) == (320, f"CONNECTION_FORCED - {told}")


# ---- policies

def test_a_policy_counts_for_what_is_there_and_what_comes(api, admin, channel):
    for name in ("pol.a", "pol.b", "other"):
        channel.queue_declare(name, durable=True, arguments={"x-max-length": 1} if name == "pol.b" else {})
        for number in range(4):
            channel.basic_publish("", name, b"%d" % number)
    admin("declare", "policy", "name=short", "pattern=^pol\\.", 'definition={"max-length": 2}', "priority=1",
          "apply-to=queues")
    shown = {one["name"]: one for one in api("GET", "queues/%2F")[1]}
    assert [(shown[name]["messages"], shown[name]["policy"]) for name in ("pol.a", "pol.b", "other")] == [
        (2, "short"), (1, "short"), (4, None)]
    assert shown["pol.a"]["effective_policy_definition"] == {"max-length": 2}
    channel.queue_declare("pol.c", durable=True)
    for number in range(4):
        channel.basic_publish("", "pol.c", b"%d" % number)
    assert channel.queue_declare("pol.c", passive=True).method.message_count == 2
    channel.queue_declare("pol.a", durable=True)                               # its own arguments are what they were
    assert api("PUT", "policies/%2F/short", {"pattern": "^nothing", "definition": {"max-length": 2}})[0] == 204
    for number in range(4):
        channel.basic_publish("", "pol.c", b"%d" % number)
    assert channel.queue_declare("pol.c", passive=True).method.message_count == 6
    assert api("GET", "policies/%2F/short")[1] == {
        "vhost": "/", "name": "short", "pattern": "^nothing", "apply-to": "all", "definition": {"max-length": 2},
        "priority": 0}
    assert api("DELETE", "policies/%2F/short")[0] == 204
    assert api("GET", "policies") == (200, [])
    for name in ("pol.a", "pol.b", "pol.c", "other"):
        channel.queue_delete(name)


def test_operators_set_limits_beside_policies(api, admin, channel):
    assert "declared" in admin("declare", "policy", "name=long", "pattern=^ops\\.", 'definition={"max-length":5}')
    assert "declared" in admin("declare", "operator_policy", "name=short", "pattern=^ops\\.",
                               'definition={"max-length":2}', "apply-to=queues")
    channel.queue_declare("ops.a", durable=True)
    for number in range(7):
        channel.basic_publish("", "ops.a", b"%d" % number)
    shown = api("GET", "queues/%2F/ops.a")[1]
    assert (shown["messages"], shown["policy"], shown["operator_policy"]) == (2, "long", "short")
    assert shown["effective_policy_definition"] == {"max-length": 2}
    assert [row["name"] for row in rows(admin, "list", "operator_policies")] == ["short"]
    wrong = {"pattern": "", "definition": {"overflow": "drop-head"}}
    status, problem = api("PUT", "operator-policies/%2F/wrong", wrong)
    assert status == 400 and "not recognised policy settings" in problem["reason"]
    admin("delete", "operator_policy", "name=short")
    assert api("GET", "queues/%2F/ops.a")[1]["effective_policy_definition"] == {"max-length": 5}
    assert api("GET", "operator-policies/%2F/short")[0] == 404
    admin("delete", "policy", "name=long")


def test_a_policy_keeps_a_stream_for_a_time(api, channel):
    channel.queue_declare("aged", durable=True, arguments={"x-queue-type": "stream"})
    assert api("PUT", "policies/%2F/aged", {"pattern": "^aged$", "apply-to": "streams",
                                            "definition": {"max-age": "1D", "max-length-bytes": 500_000}})[0] == 201
    assert api("GET", "queues/%2F/aged")[1]["policy"] == "aged"
    channel.queue_declare("aged.later", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "1h"})
    assert api("DELETE", "policies/%2F/aged")[0] == 204


def test_dead_letters_and_alternates_by_policy(api, channel):
    channel.queue_declare("dl.work", durable=True)
    channel.queue_declare("dl.dead", durable=True)
    channel.exchange_declare("dl.x", "fanout", durable=True)
    channel.exchange_declare("alt.first", "direct", durable=True)
    channel.queue_bind("dl.dead", "dl.x")
    api("PUT", "policies/%2F/dead", {"pattern": "^dl\\.work$", "definition": {"dead-letter-exchange": "dl.x",
                                                                              "message-ttl": 86_400_000}})
    api("PUT", "policies/%2F/aside", {"pattern": "^alt\\.", "definition": {"alternate-exchange": "dl.x"}})
    channel.basic_publish("", "dl.work", b"rejected")
    method, _, _ = channel.basic_get("dl.work")
    channel.basic_nack(method.delivery_tag, requeue=False)
    channel.basic_publish("alt.first", "nowhere", b"unroutable", mandatory=True)
    found = []
    while len(found) < 2:
        _, _, body = channel.basic_get("dl.dead", auto_ack=True)
        found += [body] if body is not None else []
    assert sorted(found) == [b"rejected", b"unroutable"]
    for name in ("dead", "aside"):
        api("DELETE", f"policies/%2F/{name}")


def test_policies_outlive_the_hub(tmp_path):
    with running_hub(tmp_path, "http", "amqp") as hub:
        ask(hub, "PUT", "queues/%2F/kept.q", {"durable": True})
        assert ask(hub, "PUT", "policies/%2F/kept", {"pattern": "^kept", "definition": {"max-length": 1}})[0] == 201
        hub.kill()
    with running_hub(tmp_path, "http", "amqp") as hub:
        for _ in range(3):
            ask(hub, "POST", "exchanges/%2F/amq.default/publish", message("kept.q", "x"))
        row = ask(hub, "GET", "queues/%2F/kept.q?columns=messages,policy")[1]
        assert row == {"messages": 1, "policy": "kept"}
        hub.stop()


def by_name(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def message(key: str, payload: str, **properties: Any) -> dict[str, Any]:
    return {"routing_key": key, "payload": payload, "payload_encoding": "string", "properties": properties}


# ---- definitions

def test_definitions_of_a_real_rabbitmq_load_with_a_report(tmp_path):
    with running_hub(tmp_path, "http", "amqp") as hub:
        status, report = ask(hub, "POST", "definitions", EXPORTED.read_bytes())
        assert status == 200
        assert report["made"] == {"exchanges": 3, "queues": 4, "bindings": 4, "policies": 2,
                                  "operator_policies": 0}
        assert {one["name"]: one["reason"] for one in report["refused"]} == {
            "far": "there is no such virtual host, or nothing of this name"}
        assert sorted(report["not_taken"]) == ["global_parameters", "permissions", "users", "vhosts"]
        assert ask(hub, "POST", "definitions", EXPORTED.read_bytes())[1]["made"] == dict.fromkeys(report["made"], 0)
        exported = ask(hub, "GET", "definitions")[1]
        original = json.loads(EXPORTED.read_text())
        for what in ("exchanges", "queues", "bindings", "policies"):
            ours = exported[what]
            theirs = [one for one in original[what] if one["vhost"] == "/"]
            assert sorted(map(by_name, ours)) == sorted(map(by_name, theirs)), what
        lazy = ask(hub, "GET", "queues/%2F/lazy")[1]
        assert (lazy["policy"], lazy["effective_policy_definition"]["max-length"]) == ("short", 10)
        hub.stop()
    (tmp_path / "again").mkdir()
    with running_hub(tmp_path / "again", "http", "amqp") as hub:
        assert ask(hub, "POST", "definitions", exported)[1]["refused"] == []
        hub.stop()


def test_definitions_of_rabbitmq_4_load_with_a_report(tmp_path):
    """The shape is that of its export: types of queues and operator policies stand apart."""
    with running_hub(tmp_path, "http", "amqp") as hub:
        status, report = ask(hub, "POST", "definitions", EXPORTED_BY_4.read_bytes())
        assert status == 200
        assert report["made"] == {"exchanges": 1, "queues": 4, "bindings": 2, "policies": 2, "operator_policies": 1}
        assert {one["name"]: one["reason"] for one in report["changed"]} == {
            "/": "limits: limits are made with `gatehouse limits`", "orders": "without effect: x-delayed-retry-type"}
        assert {one["name"]: one["reason"] for one in report["refused"]} == {
            "local": "unknown exchange type 'x-local-random'",
            "devices": "invalid arg 'x-queue-type' for queue 'devices' in vhost '/': "
                       "\"unsupported queue type 'rabbit_mqtt_qos0_queue'\""}
        assert {name: row["count"] for name, row in report["not_taken"].items()} == {
            "users": 1, "permissions": 1, "parameters": 1, "global_parameters": 2}
        shown = {one["name"]: one for one in ask(hub, "GET", "queues/%2F")[1]}
        assert {name: row["type"] for name, row in shown.items()} == {
            "orders": "quorum", "told": "quorum", "audit": "stream", "old": "classic"}
        assert (shown["orders"]["policy"], shown["orders"]["operator_policy"]) == ("limits", "bounded")
        exported = ask(hub, "GET", "definitions")[1]
        assert [row["name"] for row in exported["parameters"]] == ["bounded"]
        again = ask(hub, "POST", "definitions", exported)[1]
        assert (again["refused"], again["existed"]["operator_policies"]) == ([], 1)
        hub.stop()


# ---- to the letter

REFUSED = [
    ("PUT", "queues/%2F/letter", {"durable": False}, 400, "bad_request",
     "inequivalent arg 'durable' for queue 'letter' in vhost '/': received 'false' but current is 'true'"),
    ("PUT", "queues/%2F/amq.q", {}, 401, "not_authorised", "Access refused."),
    ("PUT", "exchanges/%2F/e2", {"type": "nope"}, 400, "bad_request", "unknown exchange type 'nope'"),
    ("PUT", "queues/%2F/q9", b"{bad", 400, "bad_request", "not_json"),
    ("PUT", "queues/%2F/q9", {"arguments": {"x-max-length": "a"}}, 400, "bad_request",
     "invalid arg 'x-max-length' for queue 'q9' in vhost '/': \"expected integer, got longstr\""),
    ("GET", "queues/%2F/nope", None, 404, "Object Not Found", "Not Found"),
    ("DELETE", "queues/%2F/nope", None, 404, "Object Not Found", "Not Found"),
    ("DELETE", "exchanges/%2F/nope", None, 404, "Object Not Found", "Not Found"),
    ("DELETE", "exchanges/%2F/amq.topic", None, 401, "not_authorised", "Access refused."),
    ("GET", "vhosts/nope", None, 404, "Object Not Found", "Not Found"),
    ("GET", "queues/nope", None, 404, "Object Not Found", "Not Found"),
    ("DELETE", "connections/x", None, 404, "Object Not Found", "Not Found"),
    ("POST", "queues/%2F/letter/get", {"count": 5}, 400, "bad_request",
     "[{key_missing,ackmode},{key_missing,encoding}]"),
    ("PUT", "exchanges/%2F/h2", {"type": "x-consistent-hash", "arguments": {"hash-property": "foo"}}, 400,
     "bad_request", "Unsupported property: foo"),
    ("PUT", "policies/%2F/p2", {"pattern": "a", "definition": {}}, 400, "bad_request",
     "Validation failed\n\nno policy provided\n"),
]


@pytest.mark.parametrize(("method", "path", "document", "status", "error", "reason"), REFUSED)
def test_refusals_read_as_rabbitmqs(api, method, path, document, status, error, reason):
    assert api("PUT", "queues/%2F/letter", {"durable": True})[0] in (201, 204)
    assert api(method, path, document) == (status, {"error": error, "reason": reason})


def test_answers_read_as_rabbitmqs(api):
    assert api("PUT", "queues/%2F/said", {"durable": True}) == (201, None)
    assert api("PUT", "queues/%2F/said", {"durable": "true"}) == (204, None)
    assert api("PUT", "exchanges/%2F/saying", {"type": "direct"})[0] == 201
    assert api("POST", "bindings/%2F/e/saying/q/said", {"routing_key": "k", "arguments": {"a": 1}})[0] == 201
    assert api("POST", "bindings/%2F/e/saying/q/said", {"routing_key": "k2"})[0] == 201
    assert api("GET", "bindings/%2F/e/saying/q/said/k2") == (200, {
        "source": "saying", "vhost": "/", "destination": "said", "destination_type": "queue", "routing_key": "k2",
        "arguments": {}, "properties_key": "k2"})
    with_arguments = api("GET", "bindings/%2F/e/saying/q/said")[1][0]
    assert with_arguments["arguments"] == {"a": 1}
    assert api("DELETE", f"bindings/%2F/e/saying/q/said/{quote(with_arguments['properties_key'], safe='')}")[0] == 204
    api("POST", "bindings/%2F/e/saying/q/said", {"routing_key": "k"})
    sent = message("k", "hi", delivery_mode=2, headers={"a": 1})
    assert api("POST", "exchanges/%2F/saying/publish", sent) == (200, {"routed": True})
    assert api("POST", "exchanges/%2F/saying/publish", message("zz", "hi")) == (200, {"routed": False})
    assert api("POST", "exchanges/%2F/amq.default/publish", {**message("said", "aGk="), "payload_encoding": "base64"}) \
        == (200, {"routed": True})
    wish = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first = {"payload_bytes": 2, "redelivered": False, "exchange": "saying", "routing_key": "k", "message_count": 1,
             "properties": {"delivery_mode": 2, "headers": {"a": 1}}, "payload": "hi", "payload_encoding": "string"}
    second = {"payload_bytes": 2, "redelivered": False, "exchange": "", "routing_key": "said", "message_count": 0,
              "properties": [], "payload": "hi", "payload_encoding": "string"}
    assert api("POST", "queues/%2F/said/get", wish) == (200, [first, second])
    wish |= {"ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 1}
    again = {"redelivered": True, "payload": "aA==", "payload_encoding": "base64"}
    assert api("POST", "queues/%2F/said/get", wish) == (200, [{**first, **again}, {**second, **again}])
    assert api("POST", "queues/%2F/said/get", wish) == (200, [])
    assert api("DELETE", "queues/%2F/said/contents") == (204, None)
    page = api("GET", "queues?page=1&page_size=1&columns=name,messages&name=said")[1]
    assert page == {"filtered_count": 1, "item_count": 1, "items": [{"name": "said", "messages": 0}], "page": 1,
                    "page_count": 1, "page_size": 1, "total_count": page["total_count"]}
    assert api("GET", "queues?name=^s.id$&use_regex=true&columns=name")[1] == [{"name": "said"}]
    assert api("GET", "queues?name=(a%2B)%2B&use_regex=true")[0] == 400
    assert api("DELETE", "queues/%2F/said?if-empty=true")[0] == 204
    for path in ("health/checks/alarms", "health/checks/virtual-hosts", "aliveness-test/%2F"):
        assert api("GET", path) == (200, {"status": "ok"}), path
    assert api("GET", "whoami")[1]["tags"] == ["administrator"]
    overview = api("GET", "overview")[1]
    assert overview["object_totals"]["exchanges"] >= 6
    assert api("POST", "overview")[0] == 405


QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
SECOND_GENERATION: list[tuple[str, str, Any, int]] = [
    ("GET", "overview", None, 200), ("GET", "version", None, 200), ("GET", "all-configuration", None, 200),
    ("PUT", "queues/%2F/ng.q", QUORUM, 201), ("PUT", "queues/%2F/ng.s", {
        "durable": True, "arguments": {"x-queue-type": "stream", "x-max-age": "1D"}}, 201),
    ("PUT", "exchanges/%2F/ng.x", {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}}, 201),
    ("POST", "bindings/%2F/e/ng.x/q/ng.q", {"routing_key": "a.#", "arguments": {}}, 201),
    ("POST", "exchanges/%2F//publish", {"routing_key": "ng.q", "payload": "x", "payload_encoding": "string",
                                        "properties": {}}, 200),
    ("POST", "queues/%2F/ng.q/get", {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}, 200),
    ("DELETE", "bindings/%2F/e/ng.x/q/ng.q/a.%23", None, 204), ("DELETE", "queues/%2F/ng.q/contents", None, 204),
    ("DELETE", "queues/%2F/ng.q", None, 204), ("DELETE", "queues/%2F/ng.s", None, 204),
    ("DELETE", "exchanges/%2F/ng.x", None, 204),
    ("PUT", "policies/%2F/ng", {"pattern": "^ng", "apply-to": "quorum_queues", "priority": 1,
                                "definition": {"max-length": 10}}, 201),
    ("DELETE", "policies/%2F/ng", None, 204),
    *[("GET", path, None, 200) for path in (
        "nodes", "vhosts", "users", "permissions", "queues/detailed", "queues?page=1&page_size=100", "exchanges",
        "bindings", "connections", "connections/username/guest", "channels", "consumers", "policies/%2F",
        "operator-policies", "parameters", "parameters/federation-upstream", "global-parameters", "vhost-limits/%2F",
        "user-limits/guest", "feature-flags", "deprecated-features", "deprecated-features/used", "auth/attempts/a",
        "users/without-permissions", "definitions/%2F", "health/checks/alarms", "health/checks/local-alarms",
        "health/checks/is-in-service", "health/checks/ready-to-serve-clients",
        "health/checks/below-node-connection-limit", "health/checks/node-is-quorum-critical",
        "health/checks/quorum-queues-without-elected-leaders/all-vhosts/", "healthchecks/node",
        "health/checks/protocol-listener/amqp091")],
    ("PUT", "feature-flags/quorum_queue/enable", {}, 204), ("PUT", "feature-flags/moon/enable", {}, 400),
    ("POST", "rebalance/queues", {}, 204), ("GET", "health/checks/port-listener/x", None, 400),
    ("GET", "global-parameters/n", None, 404), ("GET", "parameters/shovel/%2F/n", None, 404),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": 1}, 400), ("PUT", "global-parameters/n", {"value": 1}, 400),
]


def test_what_is_declared_with_nothing_said_is_not_durable(api):
    for path in ("queues/%2F/unsaid", "exchanges/%2F/unsaid"):
        assert api("PUT", path, {}) == (201, None)
        assert api("GET", f"{path}?columns=durable,auto_delete") == (200, {"durable": False, "auto_delete": False})
        status, said = api("PUT", path, {"durable": True})
        assert (status, said["reason"].partition(" for ")[0]) == (400, "inequivalent arg 'durable'")


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_totals_of_queues_may_be_asked_for_without_statistics(api, channel, kind):
    name = f"summed.{kind}"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")
    totals = {"messages": 1, "messages_ready": 1, "messages_unacknowledged": 0}
    asked = f"queues/%2F?name={name}&disable_stats=true"
    row = api("GET", asked)[1][0]
    assert not totals.keys() & row.keys()
    assert api("GET", f"{asked}&enable_queue_totals=true") == (200, [{**row, **totals}])


def test_of_consumers_of_which_one_is_active_it_is_shown_which(api, channel):
    channel.queue_declare("sole", durable=True, arguments={"x-single-active-consumer": True})
    taken: list[str] = []
    for tag, priority in (("low", 0), ("high", 10), ("higher later", 10), ("between", 5)):
        channel.basic_consume("sole", lambda _c, method, _p, _b: taken.append(method.consumer_tag), consumer_tag=tag,
                              arguments={"x-priority": priority} if priority else None)
    channel.basic_publish("", "sole", b"x")
    while not taken:
        channel.connection.process_data_events(0.1)
    assert taken == ["high"]
    rows = {row["consumer_tag"]: row for row in api("GET", "consumers/%2F")[1] if row["queue"]["name"] == "sole"}
    queue = api("GET", "queues/%2F/sole")[1]
    assert queue["single_active_consumer_tag"] == "high"
    assert {tag: (row["active"], row["activity_status"], row["arguments"]) for tag, row in rows.items()} == {
        "low": (False, "waiting", {}), "high": (True, "single_active", {"x-priority": 10}),
        "higher later": (False, "waiting", {"x-priority": 10}), "between": (False, "waiting", {"x-priority": 5})}
    assert [row["consumer_tag"] for row in queue["consumer_details"] if row["active"]] == ["high"]


def test_what_rabbitmqadmin_of_the_second_generation_asks(api):
    """Its calls, written down: it comes as a program of Rust, which takes minutes to build."""
    for method, path, document, status in SECOND_GENERATION:
        assert api(method, path, document)[0] == status, (method, path)
    name = api("GET", "overview")[1]["node"]
    absolute, relative = (api("GET", f"nodes/{name}/memory{end}")[1]["memory"] for end in ("", "/relative"))
    assert absolute["total"]["rss"] == absolute["other_system"] > 1 << 20
    assert relative["total"] == 100
    status, failed = api("GET", "health/checks/port-listener/1")
    assert (status, failed["missing"]) == (503, 1)
    assert 1 not in failed["ports"]
    assert api("GET", "health/checks/protocol-listener/amqp,moon")[1]["missing"] == ["moon"]


def test_what_nservicebus_asks_before_it_starts(api):
    """It wants RabbitMQ 3.10 and streams, and lifts the limit of a quorum queue's deliveries, which it takes to be one
    since 4.0, by a policy."""
    version = api("GET", "overview")[1]["rabbitmq_version"]
    assert tuple(int(part) for part in version.split(".")) >= (4, 0, 0)
    assert [flag["state"] for flag in api("GET", "feature-flags")[1] if flag["name"] == "stream_queue"] == ["enabled"]
    api("PUT", "queues/%2F/sales", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    queue = api("GET", "queues/%2F/sales")[1]
    assert (queue["type"], queue["delivery_limit"], queue["effective_policy_definition"], queue["policy"]) == (
        "quorum", 20, {}, None)
    assert api("PUT", "policies/%2F/nsb.sales.delivery-limit", {
        "pattern": "sales", "definition": {"delivery-limit": -1}, "priority": 0, "apply-to": "quorum_queues"})[0] == 201
    assert api("GET", "queues/%2F/sales")[1]["delivery_limit"] == "unlimited"


ASKED_BY_OVERVIEW = {f"rabbitmq_{name}" for name in (
    "build_info", "channels", "channels_closed_total", "channels_opened_total", "connections",
    "connections_closed_total", "connections_opened_total", "disk_space_available_bytes",
    "disk_space_available_limit_bytes", "erlang_uptime_seconds", "global_consumers",
    "global_messages_acknowledged_total", "global_messages_confirmed_total",
    "global_messages_delivered_consume_auto_ack_total", "global_messages_delivered_consume_manual_ack_total",
    "global_messages_delivered_get_auto_ack_total", "global_messages_delivered_get_manual_ack_total",
    "global_messages_delivered_total", "global_messages_get_empty_total", "global_messages_received_confirm_total",
    "global_messages_received_total", "global_messages_redelivered_total", "global_messages_routed_total",
    "global_messages_unroutable_dropped_total", "global_messages_unroutable_returned_total", "global_publishers",
    "identity_info", "message_size_bytes_count", "message_size_bytes_sum", "process_max_fds", "process_open_fds",
    "process_resident_memory_bytes", "queue_messages_ready", "queue_messages_unacked", "queues",
    "queues_created_total", "queues_declared_total", "queues_deleted_total", "resident_memory_limit_bytes")}
"""What the dashboard RabbitMQ-Overview asks for, but `rabbitmq_message_size_bytes_bucket`."""


def measured(hub) -> dict[str, dict[str, str]]:
    """Each metric's value, and its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/rabbitmq/metrics", timeout=60) as answer:
        page = answer.read().decode()
    values = {}
    for name, labels, value in re.findall(r"^(\w+)(?:{(.*)})? (\S+)$", page, re.MULTILINE):
        values[name] = {"": value, **dict(re.findall(r'(\w+)="([^"]*)"', labels))}
    return values


def test_the_counts_of_the_dashboard_are_of_what_was_done(hub, channel):
    before = measured(hub)
    queue = channel.queue_declare("", exclusive=True).method.queue
    for _ in range(5):
        channel.basic_publish("", queue, b"x")
    channel.basic_publish("", "nobody-has-this", b"x")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nobody-has-this", b"x", mandatory=True)
    method, _, _ = channel.basic_get(queue)
    channel.basic_nack(method.delivery_tag)
    assert channel.basic_get(queue, auto_ack=True)[0]
    consumed = channel.consume(queue, inactivity_timeout=60)
    for _ in range(4):
        method, _, _ = next(consumed)
        channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(queue)[0] is None
    channel.cancel()
    channel.queue_delete(queue)
    after = measured(hub)
    grown = {name: float(value[""]) - float(before[name][""]) for name, value in after.items()
             if name.endswith("_total")}
    for name, count in {"received": 7, "received_confirm": 7, "confirmed": 7, "routed": 5, "unroutable_dropped": 1,
                        "unroutable_returned": 1, "delivered_consume_manual_ack": 4, "delivered_get_auto_ack": 1,
                        "delivered_get_manual_ack": 1, "get_empty": 1, "redelivered": 1, "acknowledged": 4}.items():
        assert grown[f"rabbitmq_global_messages_{name}_total"] == count, name
    assert (grown["rabbitmq_queues_declared_total"], grown["rabbitmq_queues_created_total"],
            grown["rabbitmq_queues_deleted_total"]) == (1, 1, 1)
    assert after["rabbitmq_global_messages_received_total"]["protocol"] == "amqp091"
    assert after["rabbitmq_identity_info"]["rabbitmq_endpoint"] == "aggregated"
    assert float(after["rabbitmq_global_publishers"][""]) >= 1
    assert float(after["rabbitmq_process_resident_memory_bytes"][""]) > 1 << 20


def test_metrics_as_rabbitmqs_dashboards_read_them(hub, api):
    api("PUT", "queues/%2F/me%22asured", {})
    api("POST", "exchanges/%2F/amq.default/publish", message("me\"asured", "x"))

    def lines(path: str) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/rabbitmq/{path}", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return answer.read().decode().splitlines()

    each = lines("metrics/per-object")
    assert 'rabbitmq_queue_messages_ready{vhost="/",queue="me\\"asured"} 1' in each
    ready = sum(int(line.rpartition(" ")[2]) for line in each if line.startswith("rabbitmq_queue_messages_ready{"))
    assert f"rabbitmq_queue_messages_ready {ready}" in lines("metrics")
    assert any(line.startswith('rabbitmq_identity_info{rabbitmq_node="gatehouse@') for line in each)
    assert ASKED_BY_OVERVIEW <= {line.split("{")[0].split(" ")[0] for line in lines("metrics")}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        lines("nothing")
    api("DELETE", "queues/%2F/me%22asured")


def test_a_message_of_another_door_is_seen(hub, api):
    api("PUT", "queues/%2F/others", {})
    api("POST", "bindings/%2F/e/amq.topic/q/others", {"routing_key": "plant.#"})
    url = f"http://127.0.0.1:{hub.port('http')}/v1/publish/plant/line1"
    urllib.request.urlopen(urllib.request.Request(url, b"21.5", method="POST"), timeout=60)
    (got,) = api("POST", "queues/%2F/others/get", {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"})[1]
    assert (got["exchange"], got["routing_key"], got["payload"]) == ("amq.topic", "plant.line1", "21.5")


def test_a_path_names_the_binding_with_just_that_key(api, channel):
    channel.queue_declare("told-apart", durable=True)
    channel.queue_bind("told-apart", "amq.headers", "k", arguments={"n": 1})
    channel.queue_bind("told-apart", "amq.headers", "k")
    between = "bindings/%2F/e/amq.headers/q/told-apart"
    assert api("DELETE", f"{between}/k")[0] == 204
    assert [binding["arguments"] for binding in api("GET", between)[1]] == [{"n": 1}]
    api("DELETE", "queues/%2F/told-apart")


# ---- rights

@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with guarded_hub(tmp_path_factory.mktemp("guarded")) as hub:
        yield hub.hub


def test_who_has_few_rights_sees_and_does_little(guarded):
    root, bob = ("root", PASSWORD), ("bob", PASSWORD)
    for name in ("part", "other"):
        assert ask(guarded, "PUT", f"queues/%2F/{name}", {}, root)[0] == 201
    assert ask(guarded, "GET", "queues", None, bob) == (200, [])
    for method, path, document, status in (
            ("GET", "queues/%2F/part", None, 404), ("PUT", "queues/%2F/new", {}, 401),
            ("DELETE", "queues/%2F/part", None, 404), ("POST", "queues/%2F/part/get", {}, 404),
            ("POST", "exchanges/%2F/amq.default/publish", message("part", "x"), 401),
            ("PUT", "policies/%2F/p", {"pattern": "", "definition": {"max-length": 1}}, 401),
            ("GET", "users", None, 401), ("GET", "vhosts/red", None, 404), ("PUT", "users/eve", {}, 401)):
        assert ask(guarded, method, path, document, bob)[0] == status, path
    ada = ("ada", PASSWORD)
    assert sorted(one["name"] for one in ask(guarded, "GET", "queues", None, ada)[1]) == ["other", "part"]
    assert ask(guarded, "PUT", "queues/%2F/sealed", {}, ada)[0] == 401
    assert ask(guarded, "GET", "whoami", None, ada) == (200, {
        "name": "ada", "tags": ["management"], "is_internal_user": True})
    assert [one["name"] for one in ask(guarded, "GET", "vhosts", None, ("tess", PASSWORD))[1]] == ["red"]
    assert ask(guarded, "GET", "whoami", None, ("ada", "wrong")) == (
        401, {"error": "not_authorized", "reason": "Login failed"})
    assert ask(guarded, "GET", "whoami")[0] == 401
    assert {"ada", "bob", "root"} <= {one["name"] for one in ask(guarded, "GET", "users", None, root)[1]}
