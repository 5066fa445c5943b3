"""Messages for later, by stock clients (urllib, paho) and the command line against a real hub, killed meanwhile."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from gatehouse import exits
from tests.interop.asking import ask
from tests.running_hub import CLOCKS_APART_MS, COMMAND_LINE, DEADLINE_S, RunningHub, gatehouse, running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "mqtt") as hub:
        yield hub


def messages(hub: RunningHub, topic: str, count: int) -> list[Any]:
    """The messages of a topic, once there are so many of them."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        status, page = ask(hub, "GET", f"/v1/topics/{topic}/messages?wait=1")
        if status == 200 and len(page["messages"]) >= count:
            found: list[Any] = page["messages"]
            return found
    raise AssertionError(f"{topic} does not get {count} messages")


def call(hub: RunningHub, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    done = gatehouse(*arguments, "--url", f"http://127.0.0.1:{hub.port('http')}")
    return done.returncode, done.stdout, done.stderr


def test_a_delayed_message_waits_is_shown_and_comes_in_time(hub: RunningHub) -> None:
    status, told = ask(hub, "POST", "/v1/publish/wait/k", b"v", X_Delay="3600", X_Priority="3")
    assert (status, told["offset"], told["topic"], told["timestamp"]) == (201, None, "wait", None)
    status, one = ask(hub, "GET", f"/v1/scheduled/{told['id']}")
    assert status == 200 and {name: one[name] for name in ("id", "state", "value", "key", "priority", "repeat", "times")
                              } == {"id": told["id"], "state": "waiting", "value": "v", "key": "k", "priority": 3,
                                    "repeat": None, "times": 0}
    late_ms = one["due"] - one["accepted"] - 3_600_000             # a call waits for its frame, and all for the machine
    assert abs(late_ms) <= DEADLINE_S * 1000
    begin_ms = time.time_ns() // 1_000_000
    status, told = ask(hub, "POST", "/v1/publish/wait/k", b"soon", X_Delay="0.5", X_Priority="3")
    assert status == 201
    [message] = messages(hub, "wait", 1)
    assert (message["id"], message["value"], message["priority"]) == (told["id"], "soon", 3)
    status, gone = ask(hub, "GET", f"/v1/scheduled/{told['id']}")
    assert (status, gone["state"], gone["times"]) == (200, "delivered", 1)
    assert message["timestamp"] >= gone["due"] >= begin_ms + 500 - CLOCKS_APART_MS and "deliver_at" not in message
    assert ask(hub, "DELETE", f"/v1/scheduled/{told['id']}")[1]["code"] == "already_delivered"
    for beyond in (1 << 64, 75883521356059045891):
        assert ask(hub, "DELETE", f"/v1/scheduled/{beyond}")[1]["code"] == "unknown_scheduled"


def test_recall_is_true_and_may_be_repeated(hub: RunningHub) -> None:
    later = str(round(time.time() * 1000) + 3_600_000)
    _, told = ask(hub, "POST", "/v1/publish/never/k", b"v", X_Deliver_At=later)
    for _ in range(2):
        assert ask(hub, "DELETE", f"/v1/scheduled/{told['id']}") == (200, {"id": told["id"], "state": "recalled"})
    assert ask(hub, "GET", f"/v1/scheduled/{told['id']}")[1]["state"] == "recalled"
    for unknown in ("1", "x", "-1", "9" * 30):
        assert ask(hub, "DELETE", f"/v1/scheduled/{unknown}")[1]["code"] == "unknown_scheduled"


def test_a_json_body_mixes_now_later_and_wrong(hub: RunningHub) -> None:
    status, told = ask(hub, "POST", "/v1/topics/mixed/messages", {"messages": [
        {"key": "k", "value": "later", "delay": 1}, {"key": "k", "value": "now"},
        {"key": "k", "value": "x", "repeat": "every blue moon"}, {"key": "k", "value": "y", "deliver_at": 10**14}]})
    assert status == 207 and [one["status"] for one in told["messages"]] == [201, 201, 400, 400]
    assert [one.get("code") for one in told["messages"]] == [None, None, "invalid_schedule", "invalid_delay"]
    assert [one["value"] for one in messages(hub, "mixed", 2)] == ["now", "later"]


def test_an_idempotency_key_is_remembered_for_what_waits(hub: RunningHub) -> None:
    answers = [ask(hub, "POST", "/v1/publish/once/k", b"v", X_Delay="3600", Idempotency_Key="delayed")
               for _ in range(2)]
    assert answers[0] == answers[1] and answers[0][0] == 201


@pytest.mark.parametrize("headers", [
    {}, {"X_Delay": "7200"}, {"X_Deliver_At": "2000000000000"}, {"X_Repeat": "every 1h", "X_Delay": "3600"},
    {"X_Retain": "true", "X_Delay": "3600"}], ids=lambda headers: ",".join(headers) or "now")
def test_a_key_that_came_with_another_time_is_refused(hub: RunningHub, headers: dict[str, str]) -> None:
    ask(hub, "POST", "/v1/publish/once/k", b"v", X_Delay="3600", Idempotency_Key="of-an-hour")
    status, problem = ask(hub, "POST", "/v1/publish/once/k", b"v", Idempotency_Key="of-an-hour", **headers)
    assert (status, problem["code"]) == (422, "idempotency_conflict")


def test_a_key_that_came_with_another_time_in_a_json_body_is_refused(hub: RunningHub) -> None:
    answers = [ask(hub, "POST", "/v1/topics/once/messages", {"messages": [{"key": "k", "value": "v", "delay": delay}]},
                   Idempotency_Key="in-json") for delay in (3600, 3600, 7200)]
    assert answers[0] == answers[1] and answers[0][0] == 201
    assert (answers[2][0], answers[2][1]["code"]) == (422, "idempotency_conflict")


@pytest.mark.parametrize(("headers", "code"), [
    ({"X_Delay": "1e9"}, "invalid_header"), ({"X_Delay": "400000000"}, "invalid_delay"),
    ({"X_Repeat": "* * *"}, "invalid_schedule"),
    ({"X_Repeat": "every 5s; until=2001-01-01T00:00:00Z"}, "invalid_delay"),
])
def test_what_cannot_be_is_a_problem_and_nothing_is_stored(hub: RunningHub, headers: dict[str, str],
                                                           code: str) -> None:
    status, problem = ask(hub, "POST", "/v1/publish/refused/k", b"v", **headers)
    assert (status, problem["code"]) == (400, code)


def test_mqtt_clients_delay_by_their_topic_name(hub: RunningHub) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", hub.port("mqtt"))
    client.loop_start()
    begin_ms = time.time_ns() // 1_000_000
    sent = [client.publish(topic, payload, qos=1) for topic, payload in (
        ("$delayed/1/mqtt/k", "later"), ("mqtt/k", "now"), ("$delayed/soon/mqtt/k", "dropped"))]
    client.publish("$delayed/1.1/mqtt/k", "qos 0", qos=0)
    for one in sent:
        one.wait_for_publish(DEADLINE_S)
    found = messages(hub, "mqtt", 3)
    client.disconnect()
    client.loop_stop()
    assert {(one["value"], one["door"]) for one in found} == {("now", "mqtt"), ("later", "mqtt"), ("qos 0", "mqtt")}
    stamps_ms = {one["value"]: one["timestamp"] for one in found}
    begin_ms -= CLOCKS_APART_MS
    assert stamps_ms["later"] >= begin_ms + 1_000 and stamps_ms["qos 0"] >= begin_ms + 1_100


def test_the_command_line_lists_shows_and_recalls(hub: RunningHub) -> None:
    ids = [json.loads(call(hub, "publish", "cli/k", value, "--delay", delay, "--json")[1])["id"]
           for value, delay in (("last", "7200"), ("first", "7000"))]
    code, out, _ = call(hub, "scheduled", "list", "--json")
    assert (code, [one["id"] for one in map(json.loads, out.splitlines()) if one["id"] in ids]) == (0, ids[::-1])
    code, out, _ = call(hub, "scheduled", "list", "--max", "1")
    assert code == 0 and len(out.splitlines()) == 2 and out.split()[:3] == ["id", "due", "address"]
    code, out, _ = call(hub, "scheduled", "show", ids[0])
    assert code == 0 and "waiting" in out and "last" in out
    assert call(hub, "scheduled", "recall", ids[0]) == (0, f"recalled {ids[0]}\n", "")
    code, _, error = call(hub, "scheduled", "recall", "12")
    assert code == exits.FAILED and "12" in error and len(error.splitlines()) == 1


def test_pages_go_on_behind_their_cursor(hub: RunningHub) -> None:
    ask(hub, "POST", "/v1/publish", {"messages": [{"address": f"paged/{n}", "value": str(n), "delay": 9000 + n}
                                                  for n in range(7)]})
    found: list[str] = []
    cursor = ""
    while True:
        _, page = ask(hub, "GET", f"/v1/scheduled?max=3{cursor}")
        found += [one["value"] for one in page["scheduled"] if one["topic"] == "paged"]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert found == [str(n) for n in range(7)]
    assert ask(hub, "GET", "/v1/scheduled?cursor=xyz")[1]["code"] == "invalid_cursor"


AN_HOUR_LATER = """
import time
now_ns = time.time_ns
time.time_ns = lambda: now_ns() + 3_600_000_000_000
""" + COMMAND_LINE


def test_a_killed_hub_delivers_at_its_start_what_fell_due_and_repeats_once(tmp_path: Path) -> None:
    """It is started again an hour later, by its clock."""
    with running_hub(tmp_path, "http") as hub:
        due_ms = round(time.time() * 1000) + 600_000
        ids = [ask(hub, "POST", "/v1/publish/crash/k", value, X_Deliver_At=str(due_ms + more_ms))[1]["id"]
               for value, more_ms in ((b"2", 200), (b"1", 0), (b"3", 400))]
        _, ticks = ask(hub, "POST", "/v1/publish/ticks/k", b"tick", X_Repeat="every 1s")
        messages(hub, "ticks", 1)
        assert ask(hub, "GET", "/v1/topics/crash/messages")[1].get("messages", []) == []
    with running_hub(tmp_path, "http", program=AN_HOUR_LATER) as hub:
        found = messages(hub, "crash", 3)
        assert [one["value"] for one in found] == ["1", "2", "3"]
        assert [one["id"] for one in found] == [ids[1], ids[0], ids[2]]
        assert all(one["timestamp"] >= due_ms for one in found)
        count = len(messages(hub, "ticks", 2))
        _, one = ask(hub, "GET", f"/v1/scheduled/{ticks['id']}")
        assert 2 <= one["times"] < 600 and count <= one["times"] + 1, "those of an hour are one"
        assert ask(hub, "DELETE", f"/v1/scheduled/{ticks['id']}")[0] == 200
