"""Half messages over HTTP, by a stock client (urllib) against a real hub, killed meanwhile."""
from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.interop.asking import ask
from tests.running_hub import CLOCKS_APART_MS, DEADLINE_S, RunningHub, running_hub

TRANSACTIONS = "/v1/transactions"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", kernel="max_message_bytes = 4194304") as hub:
        yield hub


def begin(hub: RunningHub, topic: str, *values: str, group: str = "shop", **members: Any) -> str:
    """A transaction of half messages; its id."""
    messages = [{"topic": topic, "key": value, "value": value} for value in values]
    status, held = ask(hub, "POST", TRANSACTIONS, {"group": group, "messages": messages, **members})
    assert (status, held["state"]) == (201, "open"), held
    return str(held["id"])


def decide(hub: RunningHub, decision: str, transaction: str, body: Any = None) -> tuple[int, Any]:
    return ask(hub, "POST", f"{TRANSACTIONS}/{transaction}/{decision}", body)


def values(hub: RunningHub, topic: str) -> list[str]:
    """What consumers see in a topic."""
    status, page = ask(hub, "GET", f"/v1/topics/{topic}/messages?from=earliest")
    return sorted(message["value"] for message in page["messages"]) if status == 200 else []


def test_committed_messages_appear_together_and_keep_their_ids(hub: RunningHub) -> None:
    status, held = ask(hub, "POST", TRANSACTIONS, {"group": "shop", "messages": [
        {"topic": "both", "key": "1", "value": "a", "headers": [["unit", "C"]]}, {"address": "other/2", "value": "b"}]})
    assert status == 201
    assert held["id"] == held["messages"][0]["id"]
    assert [message["offset"] for message in held["messages"]] == [None, None]
    assert values(hub, "both") == []
    assert decide(hub, "commit", held["id"])[1]["state"] == "committed"
    _, page = ask(hub, "GET", "/v1/topics/both/messages?from=earliest")
    (message,) = page["messages"]
    assert (message["id"], message["key"], message["headers"]) == (held["id"], "1", [["unit", "C"]])
    assert values(hub, "other") == ["b"]


def test_a_decision_is_repeated_and_not_contradicted(hub: RunningHub) -> None:
    transaction = begin(hub, "once", "x")
    first, again = decide(hub, "commit", transaction), decide(hub, "commit", transaction)
    assert first == again
    assert first[0] == 200
    status, problem = decide(hub, "rollback", transaction)
    assert (status, problem["code"], problem["state"]) == (409, "already_decided", "committed")
    assert problem["decided"] == first[1]["decided"]
    assert values(hub, "once") == ["x"]


def test_a_commit_that_settles_is_repeated_too(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        ask(hub, "POST", "/v1/publish/stock/1", b"nails")
        _, popped = ask(hub, "POST", "/v1/groups/billing/pop?topic=stock&wait=20")
        settled = {"acks": [{"group": "billing", "receipt_handles": [popped["messages"][0]["receipt_handle"]]}],
                   "offsets": [{"group": "report", "topic": "stock", "partition": popped["messages"][0]["partition"],
                                "offset": 1}]}
        transaction = begin(hub, "bills", "x")
        path = f"{TRANSACTIONS}/{transaction}/commit"
        first = ask(hub, "POST", path, settled)
        assert first[0] == 200 and ask(hub, "POST", path, settled) == first
    with running_hub(tmp_path, "http") as hub:
        assert ask(hub, "POST", path, settled) == first
        assert values(hub, "bills") == ["x"]


@pytest.mark.parametrize(("change", "code"), [
    ({"offset": 1 << 63}, "offset_out_of_range"), ({"group": ""}, "invalid_group"),
    ({"group": "a\0b"}, "invalid_group"), ({"group": "g" * 300}, "invalid_group"),
    ({"partition": 99}, "unknown_partition"),
    ({"topic": "none"}, "unknown_topic"), ({"offset": -1}, "invalid_body"), ({"partition": True}, "invalid_body")])
def test_offsets_that_are_none(hub: RunningHub, change: dict[str, Any], code: str) -> None:
    _, told = ask(hub, "POST", "/v1/topics/counted/messages?key=1", b"x")
    transaction = begin(hub, f"of-{code}", "x")
    offsets = [{"group": "reader", "topic": "counted", "partition": told["partition"], "offset": 0} | change]
    _, problem = ask(hub, "POST", f"{TRANSACTIONS}/{transaction}/commit", {"offsets": offsets})
    assert problem["code"] == code
    assert ask(hub, "GET", f"{TRANSACTIONS}/{transaction}")[1]["state"] == "open" and values(hub, f"of-{code}") == []


def test_what_is_rolled_back_was_never_there(hub: RunningHub) -> None:
    transaction = begin(hub, "gone", "x")
    assert decide(hub, "rollback", transaction)[0] == 200
    assert decide(hub, "commit", transaction)[0] == 409
    assert values(hub, "gone") == []


def test_one_message_as_the_body_and_more_of_them(hub: RunningHub) -> None:
    status, held = ask(hub, "POST", f"{TRANSACTIONS}?group=shop&address=raw/7", b"21.5", X_Header_Unit="C")
    assert status == 201
    status, more = ask(hub, "POST", f"{TRANSACTIONS}/{held['id']}/messages",
                       {"messages": [{"topic": "raw", "value": "22"}]})
    assert (status, more["id"]) == (201, held["id"])
    decide(hub, "commit", held["id"])
    assert values(hub, "raw") == ["21.5", "22"]


def test_an_idempotency_key_holds_once(hub: RunningHub) -> None:
    body = {"group": "shop", "messages": [{"topic": "key", "value": "x"}]}
    first = ask(hub, "POST", TRANSACTIONS, body, Idempotency_Key="k1")
    assert ask(hub, "POST", TRANSACTIONS, body, Idempotency_Key="k1") == first
    decide(hub, "commit", first[1]["id"])
    assert values(hub, "key") == ["x"]
    other = {"group": "shop", "messages": [{"topic": "key", "value": "y"}]}
    assert ask(hub, "POST", TRANSACTIONS, other, Idempotency_Key="k1")[1]["code"] == "idempotency_conflict"


def test_a_key_means_a_half_message_or_a_message(hub: RunningHub) -> None:
    """Else the answer to the one would be given to the other, which is then in no topic."""
    status, held = ask(hub, "POST", f"{TRANSACTIONS}?group=shop&topic=both-ways", b"x", Idempotency_Key="k2")
    assert status == 201
    status, told = ask(hub, "POST", "/v1/publish/both-ways", b"x", Idempotency_Key="k2")
    assert status == 201 and told["id"] != held["id"]
    assert values(hub, "both-ways") == ["x"]
    status, elsewhere = ask(hub, "POST", f"{TRANSACTIONS}?group=other&topic=both-ways", b"x", Idempotency_Key="k2")
    assert status == 201 and elsewhere["id"] not in (held["id"], told["id"])


def test_a_member_is_asked_and_decides(hub: RunningHub) -> None:
    transaction = begin(hub, "asked", "order 17", group="askers", check={"after": 0.05, "every": 30})
    status, answer = ask(hub, "GET", f"{TRANSACTIONS}/checks?group=askers&wait=20")
    (check,) = answer["checks"]
    assert (status, check["id"], check["attempt"]) == (200, transaction, 1)
    assert (check["message"]["value"], check["message"]["key"]) == ("order 17", "order 17")
    assert decide(hub, "commit", check["id"])[0] == 200
    _, shown = ask(hub, "GET", f"{TRANSACTIONS}/{transaction}")
    assert (shown["state"], len([one for one in shown["checks"] if one["to"]])) == ("committed", 1)


def test_a_member_that_waits_is_asked_the_moment_it_is_wanted(hub: RunningHub) -> None:
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(
        ask(hub, "GET", f"{TRANSACTIONS}/checks?group=waiters&wait=20")))
    waiting.start()
    transaction = begin(hub, "waited", "x", group="waiters")
    assert ask(hub, "POST", f"{TRANSACTIONS}/{transaction}/check")[0] == 202
    waiting.join(DEADLINE_S)
    assert [check["id"] for check in found[0][1]["checks"]] == [transaction]


def test_nobody_decides_and_they_are_dead_letters(hub: RunningHub) -> None:
    begin(hub, "silent", "x", group="silent", check={"after": 0.05, "every": 0.05, "times": 2})
    deadline = time.monotonic() + DEADLINE_S
    letters: list[Any] = []
    while not letters and time.monotonic() < deadline:
        status, page = ask(hub, "GET", "/v1/dead-letters?group=silent")
        letters = page["messages"] if status == 200 else []
        time.sleep(0.02)
    assert [letter["value"] for letter in letters] == ["x"]
    assert values(hub, "silent") == []
    assert (letters[0]["partition"], letters[0]["offset"]) == (None, None)
    _, document = ask(hub, "GET", "/openapi.json")
    schemas = document["components"]["schemas"]
    Draft202012Validator({"$ref": "#/components/schemas/DeadLetter", "components": {"schemas": schemas}}).validate(
        letters[0])
    _, page = ask(hub, "GET", f"{TRANSACTIONS}?state=expired&group=silent")
    (one,) = page["transactions"]
    assert (one["decided_by"], len(one["checks"])) == ("", 2)
    died = letters[0]["dead_letter"]
    assert (died["reason"], died["attempts"], died["at"]) == ("unanswered", 2, one["decided"])
    assert died["transaction"] == {name: one[name] for name in ("id", "by", "begun", "checks")}


def test_what_a_consumer_took_is_settled_with_the_commit(hub: RunningHub) -> None:
    ask(hub, "POST", "/v1/publish/orders/1", b"order")
    _, popped = ask(hub, "POST", "/v1/groups/billing/pop?topic=orders&wait=20")
    handle = popped["messages"][0]["receipt_handle"]
    transaction = begin(hub, "bills", "bill")
    status, _ = decide(hub, "commit", transaction, {
        "acks": [{"group": "billing", "receipt_handles": [handle]}],
        "offsets": [{"group": "audit", "topic": "orders", "partition": popped["messages"][0]["partition"],
                     "offset": 1}]})
    assert status == 200
    _, group = ask(hub, "GET", "/v1/groups/billing")
    assert [(topic["leased"], topic["settled"]) for topic in group["topics"]] == [(0, 1)]
    assert values(hub, "bills") == ["bill"]
    late = begin(hub, "bills", "second")
    status, problem = decide(hub, "commit", late, {"acks": [{"group": "billing", "receipt_handles": [handle]}]})
    assert problem["code"] == "receipt_expired", problem
    assert ask(hub, "GET", f"{TRANSACTIONS}/{late}")[1]["state"] == "open"
    assert values(hub, "bills") == ["bill"]


@pytest.mark.parametrize("offset", [9, 1 << 63, 1 << 64, 10 ** 30])
def test_an_offset_that_no_queue_has_is_refused_and_nothing_is_decided(hub: RunningHub, offset: int) -> None:
    transaction = begin(hub, "ahead", "bill")
    status, problem = decide(hub, "commit", transaction, {
        "offsets": [{"group": "audit", "topic": "ahead", "partition": 0, "offset": offset}]})
    assert (status, problem["code"], problem["high_watermark"]) == (416, "offset_out_of_range", 0)
    assert ask(hub, "GET", f"{TRANSACTIONS}/{transaction}")[1]["state"] == "open"


def test_a_delay_counts_from_the_commit(hub: RunningHub) -> None:
    status, held = ask(hub, "POST", TRANSACTIONS, {"group": "shop", "messages": [
        {"topic": "later", "value": "x", "delay": 3600}]})
    assert status == 201
    before_ms = int(time.time() * 1000)
    decide(hub, "commit", held["id"])
    _, waiting = ask(hub, "GET", f"/v1/scheduled/{held['id']}")
    assert 3600_000 - CLOCKS_APART_MS <= waiting["due"] - before_ms <= 3660_000


REFUSED = [
    ("POST", TRANSACTIONS, {"messages": [{"topic": "t", "value": "x"}]}, 400, "invalid_body"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": []}, 400, "invalid_body"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": [{"topic": "t"}, {"value": "nowhere"}]}, 400, "invalid_body"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": [{"topic": "t"}], "chek": {}}, 400, "invalid_body"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": [{"topic": "t"}], "check": {"after": -1}}, 400, "invalid_body"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": [{"topic": "t"}], "check": {"times": 10**6}}, 400,
     "invalid_check_back"),
    ("POST", TRANSACTIONS, {"group": "g", "messages": [{"topic": "t", "value": "x" * (5 << 20)}]}, 413,
     "message_too_large"),
    ("POST", f"{TRANSACTIONS}?group=g", b"no destination", 400, "invalid_parameter"),
    ("POST", f"{TRANSACTIONS}/12345/commit", None, 404, "unknown_transaction"),
    ("POST", f"{TRANSACTIONS}/99999999999999999999999/commit", None, 404, "unknown_transaction"),
    ("POST", f"{TRANSACTIONS}/abc/rollback", None, 404, "unknown_transaction"),
    ("POST", f"{TRANSACTIONS}/12345/messages", {"messages": [{"topic": "t"}]}, 404, "unknown_transaction"),
    ("GET", f"{TRANSACTIONS}/12345", None, 404, "unknown_transaction"),
    ("GET", f"{TRANSACTIONS}?state=undecided", None, 400, "invalid_parameter"),
    ("GET", f"{TRANSACTIONS}?cursor=nonsense", None, 400, "invalid_cursor"),
    ("GET", f"{TRANSACTIONS}/checks", None, 400, "invalid_parameter"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), REFUSED)
def test_what_is_refused(hub: RunningHub, method: str, path: str, body: Any, status: int, code: str) -> None:
    found, problem = ask(hub, method, path, body)
    assert (found, problem.get("code")) == (status, code), problem


def test_a_refused_message_holds_none_of_its_request(hub: RunningHub) -> None:
    status, problem = ask(hub, "POST", TRANSACTIONS, {"group": "none", "messages": [
        {"topic": "t", "value": "x"}, {"topic": "no/topic", "value": "x"}]})
    assert (status, problem["message"]) == (400, 1), problem
    assert ask(hub, "GET", f"{TRANSACTIONS}?group=none")[1]["transactions"] == []


def test_a_killed_hub_forgets_nothing(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        undecided = [begin(hub, "orders", f"order {number}") for number in range(20)]
        for transaction in undecided[:5]:
            assert decide(hub, "commit", transaction)[0] == 200
        for transaction in undecided[5:8]:
            assert decide(hub, "rollback", transaction)[0] == 200
    with running_hub(tmp_path, "http") as hub:
        _, page = ask(hub, "GET", f"{TRANSACTIONS}?group=shop&max=7")
        _, rest = ask(hub, "GET", f"{TRANSACTIONS}?group=shop&cursor={page['cursor']}")
        assert [one["id"] for one in page["transactions"] + rest["transactions"]] == undecided[8:]
        assert rest["cursor"] is None
        assert decide(hub, "commit", undecided[0])[0] == 200
        assert decide(hub, "commit", undecided[5])[0] == 409
        for transaction in undecided[8:]:
            assert decide(hub, "commit", transaction)[0] == 200
        assert values(hub, "orders") == sorted(f"order {number}" for number in range(20) if not 5 <= number < 8)


@pytest.mark.parametrize("by", ["login", "ticket"])
def test_a_stream_is_a_member(hub: RunningHub, by: str) -> None:
    url = f"http://127.0.0.1:{hub.port('http')}{TRANSACTIONS}/checks/events?group=stream-{by}"
    if by == "ticket":                                   # as a page's EventSource, which can send no header
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}&ticket=invented", timeout=DEADLINE_S)
        url += f"&ticket={ask(hub, 'POST', '/v1/tickets')[1]['ticket']}"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as stream:
        transaction = begin(hub, "streamed", "x", group=f"stream-{by}", check={"after": 0.05})
        lines = iter(stream.readline, b"")
        assert next(line for line in lines if line.startswith(b"event:")) == b"event: check\n"
        check = json.loads(next(lines).removeprefix(b"data: "))
    assert (check["id"], check["group"]) == (transaction, f"stream-{by}")
