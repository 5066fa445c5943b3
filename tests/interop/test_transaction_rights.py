"""Transactions of a group that one has no right for are not there, whichever door is asked: stock clients are told the
same of somebody else's transaction as of one that never was."""
from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from pika.exceptions import NackError

from tests.interop.guarded_hub import GuardedHub, guarded_hub
from tests.interop.test_rights import WAIT_S, Amqp, Mqtt, http, librdkafka_login

UNKNOWN: Final = "281474976710655"
"""An id that no transaction has."""

DECIDE_BY_KAFKA: Final = (b'{"who": "user:ada", "kind": "topic", "pattern": "txn-decide", '
                          b'"operations": ["publish", "consume"]}')


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("rights")) as running:
        assert http(running, "PUT", "/v1/topics/txn-decide", b'{"partitions": 1}', user="root")[0] == 201
        assert http(running, "POST", "/v1/acl", DECIDE_BY_KAFKA, user="root")[0] == 201
        yield running
        code, said = running.hub.stop()
        assert code == 0 and "Traceback" not in said, said


def begin(guarded: GuardedHub, group: str = "sealed") -> str:
    """A half message of root's; the transaction's id."""
    status, body = http(guarded, "POST", f"/v1/transactions?group={group}&address=lab/x", b"hush", user="root")
    assert status == 201, body
    return str(json.loads(body)["id"])


def state_of(guarded: GuardedHub, transaction: str) -> str:
    return str(json.loads(http(guarded, "GET", f"/v1/transactions/{transaction}", user="root")[1])["state"])


def decision(transaction: str, what: str) -> bytes:
    return json.dumps({"id": transaction, "decision": what}).encode()


def by_http(guarded: GuardedHub, transaction: str, what: str, user: str = "ada") -> str:
    return " ".join(map(str, http(guarded, "POST", f"/v1/transactions/{transaction}/{what}", user=user)))


def by_http_the_long_way(guarded: GuardedHub, transaction: str, what: str) -> str:
    """With a body, which the short form leaves alone."""
    return " ".join(map(str, http(guarded, "POST", f"/v1/transactions/{transaction}/{what}", b"{}")))


def by_mqtt(guarded: GuardedHub, transaction: str, what: str) -> str:
    with Mqtt(guarded, "ada") as client:
        assert client.subscribe("$txn/decided") == "1"
        client.publish("$txn/decide", decision(transaction, what))
        told = json.loads(client.messages.get(timeout=WAIT_S))
        return f"{told['code']} {told['detail']}"


def by_amqp(guarded: GuardedHub, transaction: str, what: str) -> str:
    told: list[Any] = []
    with Amqp(guarded, "ada") as client:
        client.channel.basic_consume("$txn.decided", lambda *parts: told.append(json.loads(parts[3])), auto_ack=True)
        client.ask(lambda channel: nacked(channel, decision(transaction, what)))
        deadline = time.monotonic() + WAIT_S
        while not told and time.monotonic() < deadline:
            client.connection.process_data_events(time_limit=1)
        return f"{told[0]['code']} {told[0]['detail']}"


def nacked(channel: Any, body: bytes) -> None:
    with pytest.raises(NackError):
        channel.basic_publish("", "$txn.decide", body)


def by_kafka(guarded: GuardedHub, transaction: str, what: str) -> str:
    told: Queue[Any] = Queue()
    producer = Producer(librdkafka_login(guarded))
    producer.produce("txn-decide", decision(transaction, what), on_delivery=lambda error, _: told.put(error))
    assert producer.flush(WAIT_S) == 0
    error = told.get_nowait()
    return f"{error.name()} {error.str()}"


DOORS: Final[list[Callable[[GuardedHub, str, str], str]]] = [by_http, by_http_the_long_way, by_mqtt, by_amqp, by_kafka]


@pytest.mark.parametrize("what", ["commit", "rollback"])
@pytest.mark.parametrize("ask", DOORS, ids=[door.__name__ for door in DOORS])
def test_whoever_may_not_see_a_transaction_is_told_that_there_is_none(
        guarded: GuardedHub, ask: Callable[[GuardedHub, str, str], str], what: str) -> None:
    there = begin(guarded)
    seen = ask(guarded, there, what)
    assert seen.replace(there, UNKNOWN) == ask(guarded, UNKNOWN, what)
    assert "sealed" not in seen and "not_authorized" not in seen
    assert state_of(guarded, there) == "open"
    assert by_http(guarded, there, "rollback", "root").startswith("200 ")
    assert ask(guarded, there, what) == seen, "nor that it has been decided"


@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "", None), ("POST", "/check", None),
    ("POST", "/messages", b'{"messages": [{"address": "open/a", "value": ""}]}')])
def test_nor_by_the_other_calls(guarded: GuardedHub, method: str, path: str, body: bytes | None) -> None:
    there = begin(guarded)
    for transaction in (there, UNKNOWN):
        assert http(guarded, method, f"/v1/transactions/{transaction}{path}", body) == (404, "unknown_transaction")
    assert state_of(guarded, there) == "open"


def test_a_group_of_ones_own_is_decided_about_by_every_door(guarded: GuardedHub) -> None:
    """Ada may transact in `crew`: the same calls are carried out."""
    for ask in (by_http, by_http_the_long_way):
        assert ask(guarded, begin(guarded, "crew"), "commit").startswith("200 ")
    transaction = begin(guarded, "crew")
    assert http(guarded, "POST", f"/v1/transactions/{transaction}/check")[0] == 202
    assert by_mqtt_decided(guarded, transaction) == {"id": transaction, "state": "committed"}


def by_mqtt_decided(guarded: GuardedHub, transaction: str) -> dict[str, Any]:
    with Mqtt(guarded, "ada") as client:
        client.subscribe("$txn/decided")
        client.publish("$txn/decide", decision(transaction, "commit"))
        told: dict[str, Any] = json.loads(client.messages.get(timeout=WAIT_S))
        told.pop("decided", None)
        return told
