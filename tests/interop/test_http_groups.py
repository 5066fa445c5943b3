"""Groups over HTTP against a real hub: leases by receipt handle, refusals that change nothing, rewind, dead letters."""
from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kernel.groups.calls import Handles
from gatehouse_client import SyncClient
from tests.running_hub import RunningHub, running_hub

WAIT_S = 60
POLL_S = 30          # of a pop: as long as a hub allows


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http") as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


def ask(hub: RunningHub, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data,
                                     {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def publish(hub: RunningHub, topic: str, *values: str, partitions: int = 1) -> None:
    ask(hub, "PUT", f"/v1/topics/{topic}", {"partitions": partitions})
    messages = [{"topic": topic, "key": "k", "value": value} for value in values]
    assert ask(hub, "POST", "/v1/publish", {"messages": messages})[0] == 201


def pop(hub: RunningHub, group: str, topic: str, **query: Any) -> list[Any]:
    more = "".join(f"&{name}={value}" for name, value in query.items())
    status, answer = ask(hub, "POST", f"/v1/groups/{group}/pop?topic={topic}{more}")
    assert status == 200, answer
    messages: list[Any] = answer["messages"]
    return messages


def settle(hub: RunningHub, group: str, call: str, messages: list[Any], **more: Any) -> tuple[int, list[Any]]:
    handles = [one if isinstance(one, str) else one["receipt_handle"] for one in messages]
    status, answer = ask(hub, "POST", f"/v1/groups/{group}/{call}", {"receipt_handles": handles, **more})
    return status, [result.get("code") for result in answer["results"]]


def values(messages: list[Any]) -> list[str]:
    return [message["value"] for message in messages]


def wait_for_group(hub: RunningHub, name: str) -> None:
    """Returns when somebody has popped from it."""
    started = time.monotonic()
    while ask(hub, "GET", f"/v1/groups/{name}")[0] == 404:
        assert time.monotonic() - started < WAIT_S


def test_messages_are_leased_acked_and_gone(hub: RunningHub) -> None:
    publish(hub, "leases", *map(str, range(5)))
    first = pop(hub, "workers", "leases", max=2)
    assert values(first) == ["0", "1"]
    assert (first[0]["attempt"], first[0]["topic"], first[0]["address"], first[0]["door"]) == (
        1, "leases", "leases/k", "http")
    assert values(pop(hub, "workers", "leases")) == ["2", "3", "4"]
    assert pop(hub, "workers", "leases") == []
    assert values(pop(hub, "others", "leases", max=1)) == ["0"]
    assert settle(hub, "workers", "ack", first) == (200, [None, None])
    assert settle(hub, "workers", "ack", first) == (207, ["receipt_expired"] * 2)
    described = ask(hub, "GET", "/v1/groups/workers")[1]
    assert abs(described["topics"][0]["oldest"] - time.time() * 1000) < 60_000
    counted = {name: described["topics"][0][name] for name in ("topic", "ready", "leased", "waiting", "settled")}
    assert counted == {"topic": "leases", "ready": 0, "leased": 3, "waiting": 0, "settled": 2}


def test_a_release_brings_it_back_and_a_lease_that_runs_out_too(hub: RunningHub) -> None:
    publish(hub, "back", "a", "b", "c")
    held = pop(hub, "g", "back", invisible=60)
    assert settle(hub, "g", "release", held[1:2], delay=0) == (200, [None])
    started = time.time()                                 # the hub's clock
    again = pop(hub, "g", "back", invisible=0.2)
    assert (values(again), again[0]["attempt"]) == (["b"], 2)
    third = pop(hub, "g", "back", wait=POLL_S)            # after the 0.2 s and the group's own back-off
    assert (values(third), third[0]["attempt"]) == (["b"], 3)
    assert time.time() - started > 0.19
    assert settle(hub, "g", "ack", again) == (207, ["receipt_expired"])
    started = time.time()
    assert settle(hub, "g", "release", held[:1], delay=0.3)[0] == 200
    assert values(pop(hub, "g", "back", wait=POLL_S)) == ["a"]
    assert time.time() - started > 0.29


def test_an_extended_lease_holds(hub: RunningHub) -> None:
    publish(hub, "longer", "a")
    held = pop(hub, "g", "longer", invisible=8)
    assert settle(hub, "g", "extend", held, invisible=60) == (200, [None])
    assert pop(hub, "g", "longer", wait=8.2) == []
    assert settle(hub, "g", "ack", held) == (200, [None])


def test_bad_handles_are_refused_one_by_one_and_nothing_changes(hub: RunningHub) -> None:
    publish(hub, "bad", "a", "b", "c")
    held = pop(hub, "g", "bad")
    handle = held[0]["receipt_handle"]
    other = pop(hub, "other", "bad")[0]["receipt_handle"]
    without_secret = Handles(bytes(32), "/", "g").encode(((1, 0, "g"), 0, 1))
    forged = handle[:-4] + ("AAAA" if handle[-4:] != "AAAA" else "BBBB")
    bad = ["", "garbage", without_secret, forged, other, "x" * 5000, held[1]["receipt_handle"].swapcase()]
    for call, more in (("ack", {}), ("extend", {"invisible": 5}), ("release", {"delay": 0}),
                       ("release", {"dead_letter": True})):
        status, codes = settle(hub, "g", call, bad, **more)
        assert (status, codes) == (207, ["unknown_receipt"] * len(bad)), call
    assert settle(hub, "other", "ack", held) == (207, ["unknown_receipt"] * 3)
    assert pop(hub, "g", "bad") == []
    assert settle(hub, "g", "ack", [bad[1], *held[:2], forged]) == (207, ["unknown_receipt", None, None,
                                                                         "unknown_receipt"])
    assert settle(hub, "g", "ack", [held[2], held[2]]) == (200, [None, None])


@pytest.mark.parametrize(("method", "path", "body", "code"), [
    ("POST", "/v1/groups/g/pop", None, "invalid_parameter"),
    ("POST", "/v1/groups/g/pop?topic=nothing", None, "unknown_topic"),
    ("POST", "/v1/groups/g/pop?topic=jobs&max=0", None, "invalid_parameter"),
    ("POST", "/v1/groups/g/pop?topic=jobs&max=1001", None, "invalid_parameter"),
    ("POST", "/v1/groups/g/pop?topic=jobs&invisible=x", None, "invalid_parameter"),
    ("POST", "/v1/groups/g/pop?topic=jobs&wait=31", None, "invalid_parameter"),
    ("POST", "/v1/groups/g/pop?topic=jobs&nonsense=1", None, "unknown_parameter"),
    ("POST", f"/v1/groups/{'g' * 256}/pop?topic=jobs", None, "invalid_group"),
    ("POST", "/v1/groups/g/ack", [], "invalid_body"),
    ("POST", "/v1/groups/g/ack", {}, "invalid_body"),
    ("POST", "/v1/groups/g/ack", {"receipt_handles": []}, "invalid_body"),
    ("POST", "/v1/groups/g/ack", {"receipt_handles": [5]}, "invalid_body"),
    ("POST", "/v1/groups/g/ack", {"receipt_handles": ["a"], "delay": 5}, "invalid_body"),
    ("POST", "/v1/groups/g/extend", {"receipt_handles": ["a"], "invisible": 0}, "invalid_body"),
    ("POST", "/v1/groups/g/extend", {"receipt_handles": ["a"], "invisible": "5"}, "invalid_body"),
    ("POST", "/v1/groups/g/release", {"receipt_handles": ["a"], "delay": -1}, "invalid_body"),
    ("POST", "/v1/groups/g/release", {"receipt_handles": ["a"], "delay": 1, "dead_letter": True}, "invalid_body"),
    ("GET", "/v1/groups/nobody", None, "unknown_group"),
    ("DELETE", "/v1/groups/nobody", None, "unknown_group"),
    ("GET", "/v1/groups/nobody/offsets", None, "unknown_group"),
    ("PUT", "/v1/groups/g", {"odrered": True}, "invalid_body"),
    ("PUT", "/v1/groups/g", {"ordered": "yes"}, "invalid_body"),
    ("PUT", "/v1/groups/g", {"max_attempts": True}, "invalid_body"),
    ("PUT", "/v1/groups/g", {"max_attempts": 70000}, "invalid_group"),
    ("PUT", "/v1/groups/g", {"kind": "assigned"}, "leased_group"),
    ("PUT", "/v1/groups/g", {"retry": 5}, "invalid_body"),
    ("PUT", "/v1/groups/g", {"retry": [-1]}, "invalid_group"),
    ("PUT", "/v1/groups/g", {"retry": {"fctor": 2}}, "invalid_body"),
    ("PUT", "/v1/groups/g", {"selector": "unit = "}, "invalid_selector"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "jobs"}, "invalid_body"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "jobs", "to": "yesterday"}, "invalid_parameter"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "jobs", "to": "5"}, "invalid_parameter"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "jobs", "to": "99", "partition": 0}, "offset_out_of_range"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "jobs", "to": "earliest", "partition": 9}, "unknown_partition"),
    ("PUT", "/v1/groups/g/offsets", {"topic": "nothing", "to": "earliest"}, "unknown_topic"),
    ("GET", "/v1/dead-letters", None, "invalid_parameter"),
    ("GET", "/v1/dead-letters?group=nobody", None, "unknown_group"),
    ("POST", "/v1/dead-letters/redrive", {"group": "jobs"}, "invalid_body"),
    ("POST", "/v1/dead-letters/redrive", {"group": "jobs", "ids": ["1"], "all": True}, "invalid_body"),
    ("POST", "/v1/dead-letters/redrive", {"group": "jobs", "ids": [1]}, "invalid_body"),
    ("POST", "/v1/dead-letters/redrive", {"group": "nobody", "all": True}, "unknown_group"),
    ("GET", "/v1/queues/nothing", None, "unknown_queue"),
])
def test_what_cannot_be_is_refused_with_its_code(hub: RunningHub, method: str, path: str, body: Any,
                                                 code: str) -> None:
    if ask(hub, "GET", "/v1/topics/jobs")[0] == 404:
        publish(hub, "jobs", "a")
    pop(hub, "g", "jobs")
    status, answer = ask(hub, method, path, body)
    assert (status >= 400, answer["code"], answer["status"]) == (True, code, status)


def test_a_waiting_pop_is_woken_and_one_that_hangs_up_takes_nothing(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/waits", {"partitions": 2})
    taken: list[Any] = []
    waiter = threading.Thread(target=lambda: taken.extend(pop(hub, "woken", "waits", wait=POLL_S)))
    waiter.start()
    gone = socket.create_connection(("127.0.0.1", hub.port("http")))
    gone.sendall(b"POST /v1/groups/left/pop?topic=waits&wait=20 HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Length: 0\r\n\r\n")
    wait_for_group(hub, "left")
    gone.close()
    wait_for_group(hub, "woken")
    ask(hub, "POST", "/v1/publish/waits/a", "x")
    waiter.join(WAIT_S)
    assert len(taken) == 1
    assert len(pop(hub, "left", "waits")) == 1


def test_a_pop_waits_for_queues_that_its_topic_gets_meanwhile(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/grows", {"partitions": 1})
    taken: list[Any] = []
    waiter = threading.Thread(target=lambda: taken.extend(pop(hub, "growing", "grows", wait=POLL_S)))
    waiter.start()
    wait_for_group(hub, "growing")
    assert ask(hub, "PATCH", "/v1/topics/grows", {"partitions": 50})[0] == 200
    placed = [ask(hub, "POST", "/v1/publish/grows/key5", "x")[1]]
    waiter.join(WAIT_S)
    assert [message["partition"] for message in taken] == [placed[0]["partition"]]
    assert placed[0]["partition"] > 0


def test_a_pop_of_a_topic_that_is_deleted_is_answered(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/topics/goes", {"partitions": 1})
    answers: list[Any] = []
    waiter = threading.Thread(target=lambda: answers.append(
        ask(hub, "POST", f"/v1/groups/leaving/pop?topic=goes&wait={POLL_S}")))
    waiter.start()
    wait_for_group(hub, "leaving")
    started = time.monotonic()
    ask(hub, "DELETE", "/v1/topics/goes")
    waiter.join(WAIT_S)
    assert [(status, answer["code"]) for status, answer in answers] == [(404, "unknown_topic")]
    assert time.monotonic() - started < POLL_S - 5, "it was answered because its time was up"


def test_ordered_groups_give_one_message_of_a_key_at_a_time(hub: RunningHub) -> None:
    assert ask(hub, "PUT", "/v1/groups/line", {"ordered": True})[0] == 201
    assert ask(hub, "PUT", "/v1/groups/line", {"ordered": True, "invisible_ms": 60_000})[0] == 200
    ask(hub, "PUT", "/v1/topics/keys", {"partitions": 2})
    messages = [{"topic": "keys", "key": key, "value": f"{key}{number}"} for number in range(3) for key in "abc"]
    ask(hub, "POST", "/v1/publish", {"messages": messages})
    seen: list[str] = []
    for _ in range(3):
        held: list[Any] = []
        while len(held) < 3:
            held += pop(hub, "line", "keys", wait=POLL_S)
        assert pop(hub, "line", "keys") == []
        assert sorted(message["key"] for message in held) == ["a", "b", "c"]
        seen += values(held)
        settle(hub, "line", "ack", held)
    for key in "abc":
        assert [value for value in seen if value[0] == key] == [f"{key}{number}" for number in range(3)]


def test_a_selector_keeps_a_group_to_what_it_wants(hub: RunningHub) -> None:
    assert ask(hub, "PUT", "/v1/groups/picky", {"selector": "temp > 20 AND content_type = 'text/plain'"})[0] == 201
    messages = [{"address": f"sensors/{number}", "value": str(number), "headers": [["temp", str(number)]],
                 "content_type": kind} for number in (10, 30) for kind in ("text/plain", "text/html")]
    ask(hub, "POST", "/v1/publish", {"messages": messages})
    held = pop(hub, "picky", "sensors", wait=POLL_S)
    assert [(message["value"], message["content_type"]) for message in held] == [("30", "text/plain")]
    ask(hub, "PUT", "/v1/groups/picky", {"selector": "sensors/10"})
    ask(hub, "PUT", "/v1/groups/picky/offsets", {"topic": "sensors", "to": "earliest"})
    assert values(pop(hub, "picky", "sensors", wait=POLL_S)) == ["10", "10"]


def test_a_group_is_rewound(hub: RunningHub) -> None:
    publish(hub, "again", *map(str, range(6)))
    settle(hub, "g", "ack", pop(hub, "g", "again"))
    assert [row["offset"] for row in ask(hub, "GET", "/v1/groups/g/offsets?topic=again")[1]["offsets"]] == [6]
    topics = {row["topic"]: row for row in ask(hub, "GET", "/v1/groups/g")[1]["topics"]}
    assert topics["again"]["oldest"] is None
    for to, partition, left in (("4", 0, ["4", "5"]), ("earliest", None, list("012345")), ("latest", None, []),
                            ("2000-01-01T00:00:00Z", None, list("012345")), ("2100-01-01T00:00:00Z", None, [])):
        document = {"topic": "again", "to": to} | ({} if partition is None else {"partition": partition})
        status, answer = ask(hub, "PUT", "/v1/groups/g/offsets", document)
        assert (status, answer["offsets"][0]["offset"], answer["offsets"][0]["lag"]) == (200, 6 - len(left), len(left))
        held = pop(hub, "g", "again")
        assert values(held) == left


def test_dead_letters_are_browsed_and_redriven(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/groups/dying", {"max_attempts": 2, "retry": [0]})
    publish(hub, "orders", *map(str, range(5)))
    assert ask(hub, "GET", "/v1/dead-letters?group=dying")[1] == {"messages": [], "cursor": None}
    held = pop(hub, "dying", "orders")
    settle(hub, "dying", "ack", held[3:])
    assert settle(hub, "dying", "release", held[:3]) == (200, [None] * 3)
    held = []
    while len(held) < 3:
        held += pop(hub, "dying", "orders", wait=POLL_S)
    assert settle(hub, "dying", "release", held) == (200, [None] * 3)
    assert pop(hub, "dying", "orders", wait=0.1) == []
    letters: list[Any] = []
    cursor = ""
    while cursor is not None:
        page = ask(hub, "GET", f"/v1/dead-letters?group=dying&max=2{cursor}")[1]
        letters += page["messages"]
        cursor = f"&cursor={page['cursor']}" if page["cursor"] else None
    assert values(letters) == ["0", "1", "2"]
    told = letters[0]["dead_letter"]
    assert (told["reason"], told["attempts"], told["history"]) == ("attempts", 2, [])
    assert (letters[0]["topic"], letters[0]["offset"], letters[0]["headers"]) == ("orders", 0, [])
    assert ask(hub, "GET", "/v1/queues/$dead-letters%2Fdying")[1]["ready"] == 3
    ids = [letter["id"] for letter in letters]
    status, answer = ask(hub, "POST", "/v1/dead-letters/redrive", {"group": "dying", "ids": [ids[1], "77", "x"]})
    assert (status, answer["redriven"]) == (207, 1)
    assert [(left["id"], left["code"]) for left in answer["left"]] == [("77", "receipt_expired"),
                                                                      ("x", "receipt_expired")]
    again = pop(hub, "dying", "orders", wait=POLL_S)
    assert (values(again[-1:]), again[-1]["id"], again[-1]["attempt"]) == (["1"], ids[1], 1)
    assert settle(hub, "dying", "release", again[-1:], dead_letter=True) == (200, [None])
    page = ask(hub, "GET", "/v1/dead-letters?group=dying")[1]
    assert values(page["messages"]) == ["0", "2", "1"]
    assert page["messages"][-1]["dead_letter"]["reason"] == "rejected"
    assert ask(hub, "POST", "/v1/dead-letters/redrive", {"group": "dying", "all": True}) == (
        200, {"redriven": 3, "left": [], "more": False})
    assert ask(hub, "GET", "/v1/dead-letters?group=dying")[1]["messages"] == []


def test_a_queue_is_taken_from_like_a_group(hub: RunningHub) -> None:
    ask(hub, "PUT", "/v1/groups/lost", {"max_attempts": 1})
    publish(hub, "letters", "a", "b", "c")
    settle(hub, "lost", "release", pop(hub, "lost", "letters"), dead_letter=True)
    path = "/v1/queues/$dead-letters%2Flost"
    status, answer = ask(hub, "POST", f"{path}/pop?max=2&invisible=60")
    held = answer["messages"]
    assert (status, values(held)) == (200, ["a", "b"])
    assert (held[0]["topic"], held[0]["partition"], held[0]["attempt"]) == ("$queue/$dead-letters/lost", 0, 1)
    handles = [message["receipt_handle"] for message in held]
    assert settle(hub, "lost", "ack", held) == (207, ["unknown_receipt"] * 2)
    assert ask(hub, "POST", f"{path}/release", {"receipt_handles": handles[:1], "delay": 0})[0] == 200
    assert ask(hub, "POST", f"{path}/ack", {"receipt_handles": handles})[1]["results"][1]["status"] == 200
    assert values(ask(hub, "POST", f"{path}/pop")[1]["messages"]) == ["a", "c"]
    assert ask(hub, "POST", "/v1/queues/nothing/pop")[1]["code"] == "unknown_queue"
    assert ask(hub, "POST", f"{path}/pop?topic=letters")[1]["code"] == "unknown_parameter"


def test_handles_rewinds_and_settings_are_there_after_a_kill(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        publish(hub, "safe", *map(str, range(10)))
        ask(hub, "PUT", "/v1/groups/g", {"max_attempts": 7})
        held = pop(hub, "g", "safe", max=6, invisible=600)
        assert settle(hub, "g", "ack", [held[0], held[4]])[0] == 200
        settle(hub, "g", "release", held[1:2], delay=0)
        hub.kill()
    with running_hub(tmp_path, "http") as hub:
        assert ask(hub, "GET", "/v1/groups/g")[1]["max_attempts"] == 7
        assert settle(hub, "g", "ack", held) == (
            207, ["receipt_expired", "receipt_expired", None, None, "receipt_expired", None])
        rest = pop(hub, "g", "safe")
        assert sorted(values(rest)) == ["1", "6", "7", "8", "9"]
        assert {message["value"]: message["attempt"] for message in rest}["1"] == 2


def test_the_python_client_says_all_of_it(hub: RunningHub) -> None:
    with SyncClient(f"http://127.0.0.1:{hub.port('http')}") as client:
        group = client.group("py", "pytopic")
        assert group.define(max_attempts=1)["max_attempts"] == 1
        client.define_topic("pytopic", partitions=1)
        client.publish_many([client.message("pytopic/a", str(number)) for number in range(4)])
        held = group.pop(3, invisible_s=60)
        assert [message.text for message in held] == ["0", "1", "2"]
        assert group.ack(held[:1]) == [None]
        assert group.extend(held[1:], 30) == [None, None]
        assert group.reject(held[1:2]) == [None]
        assert group.release(held[2:], 0) == [None]
        assert sorted(letter["value"] for letter in group.dead_letters()) == ["1", "2"]
        assert group.redrive([]) == (0, [])
        assert group.redrive() == (2, [])
        assert group.offsets()[0]["high_watermark"] == 6
        assert group.rewind("latest")[0]["lag"] == 0
        assert group.describe()["topics"][0]["topic"] == "pytopic"
        group.delete()


def test_a_stopping_hub_sends_waiting_pops_home(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        ask(hub, "PUT", "/v1/topics/t")
        with socket.create_connection(("127.0.0.1", hub.port("http")), timeout=WAIT_S) as waiting:
            waiting.sendall(b"POST /v1/groups/g/pop?topic=t&wait=30 HTTP/1.1\r\nHost: localhost\r\n"
                            b"Content-Length: 0\r\n\r\n")
            wait_for_group(hub, "g")
            started = time.monotonic()
            hub.process.terminate()
            answer = b"".join(iter(partial(waiting.recv, 4096), b""))
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert b'{"messages":[]}' in answer
        assert time.monotonic() - started < POLL_S - 5, "it was answered because its time was up"
        assert hub.ended()[0] == 0
