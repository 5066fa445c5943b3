"""tx.select, tx.commit and tx.rollback, on the real kernel: all of it in one frame, or nothing of it."""
from __future__ import annotations

import time

import pytest

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.tables import text
from gatehouse.gateways.amqp.tx import PUBLISH_BYTES, TX_BYTES_MAX
from gatehouse.kernel.log.log import LogFull
from tests.gateways.amqp.fakes import NO_PROPERTIES, Client, Hub
from tests.gateways.amqp.test_with_kernel import KernelHub, closed, delivered, fill, get, properties_of


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


@pytest.fixture
def client(hub: KernelHub) -> Client:
    client = hub.client()
    fill(client, "from", b"1", b"2", b"3", b"4")
    client.ask("queue.declare", queue="to", durable=True)
    assert client.ask("tx.select")[0][1] == "tx.select-ok"
    return client


def counts(hub: KernelHub) -> tuple[int, int]:
    """What is ready in the two queues, as another client sees it."""
    other = hub.client()
    told = [other.ask("queue.declare", queue=queue, passive=True)[0][2] for queue in ("from", "to")]
    return told[0]["message_count"], told[1]["message_count"]


def test_nothing_is_seen_before_the_commit_and_all_of_it_after(hub: KernelHub, client: Client) -> None:
    assert delivered(client.ask("basic.consume", queue="from")) == [b"1", b"2", b"3", b"4"]
    client.publish("", "to", b"a")
    client.publish("amq.direct", "nowhere", b"b")
    client.ask("basic.ack", delivery_tag=2, multiple=True)
    client.ask("basic.nack", delivery_tag=3, requeue=True)
    hub.advance(60_000)
    assert counts(hub) == (0, 0)
    answers = [name for _, name, _ in client.ask("tx.commit")]
    assert [name for name in answers if not name.startswith(("basic", "header", "body"))] == ["tx.commit-ok"]
    assert answers.count("basic.deliver") == 1                           # what is given back comes again
    assert counts(hub) == (0, 1)
    client.ask("channel.close")
    assert counts(hub) == (2, 1)


def test_what_may_expire_lives_from_the_commit_on(hub: KernelHub, client: Client) -> None:
    client.publish("", "to", b"a", properties_of(expiration="1000"))
    hub.advance(60_000)
    client.ask("tx.commit")
    hub.advance(900)
    assert counts(hub) == (4, 1)
    hub.advance(200)
    assert get(client, "to") is None


def test_all_of_it_is_in_one_frame(hub: KernelHub, client: Client) -> None:
    fill(hub.client(), "other", b"x")
    for queue in ("from", "other"):
        found = get(client, queue)
        assert found is not None
        client.publish("", "to", found[1])
        client.publish("amq.topic", "plant.line1", found[1])
        client.ask("basic.ack", delivery_tag=found[0])
    hub.advance(1_000)
    flushes = hub.rig.kernel.statistics()["flushes_total"]
    assert client.ask("tx.commit")[0][1] == "tx.commit-ok"
    assert hub.rig.kernel.statistics()["flushes_total"] == flushes + 1


def test_a_rollback_forgets_the_publishes_and_hands_nothing_out_again(hub: KernelHub, client: Client) -> None:
    client.ask("basic.qos", prefetch_count=2)
    assert delivered(client.ask("basic.consume", queue="from")) == [b"1", b"2"]
    client.publish("", "to", b"a")
    client.ask("basic.ack", delivery_tag=1)
    client.ask("basic.reject", delivery_tag=2, requeue=False)
    assert client.ask("tx.rollback") == [(1, "tx.rollback-ok", {})]
    assert client.ask("tx.commit") == [(1, "tx.commit-ok", {})]
    assert counts(hub) == (2, 0)
    client.ask("basic.ack", delivery_tag=1)
    assert delivered(client.ask("tx.commit")) == [b"3"]


def test_a_rollback_of_many_costs_what_they_cost_together(hub: KernelHub, client: Client) -> None:
    many = 5_000
    fill(client, "many", *[b"x"] * many)
    client.ask("tx.commit")
    assert len(delivered(client.ask("basic.consume", queue="many"))) > 0
    while (channel := next(iter(client.session.channels))).unacked.count < many:
        hub.advance(100)
    for tag in range(1, many + 1):
        channel.ack_many([tag])
    began_s = time.process_time()
    assert client.ask("tx.rollback")[-1][1] == "tx.rollback-ok"
    assert time.process_time() - began_s < 2
    assert channel.unacked.count == many


def test_what_is_acknowledged_counts_against_the_prefetch_until_the_commit(client: Client) -> None:
    client.ask("basic.qos", prefetch_count=2, **{"global": True})
    assert delivered(client.ask("basic.consume", queue="from")) == [b"1", b"2"]
    assert client.ask("basic.ack", delivery_tag=2, multiple=True) == []
    assert delivered(client.ask("tx.commit")) == [b"3", b"4"]


def test_a_tag_is_settled_once(client: Client) -> None:
    found = get(client, "from")
    assert found is not None
    client.ask("basic.ack", delivery_tag=found[0])
    assert closed(client.ask("basic.ack", delivery_tag=found[0])) == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert get(client.hub.client(), "from") is not None     # type: ignore[call-arg, func-returns-value]


@pytest.mark.parametrize("end", ["channel.close", "cut"])
def test_an_end_without_a_commit_is_a_rollback(hub: KernelHub, client: Client, end: str) -> None:
    assert len(delivered(client.ask("basic.consume", queue="from"))) == 4
    client.ask("basic.ack", delivery_tag=4, multiple=True)
    client.publish("", "to", b"a")
    if end == "cut":
        client.session.handle_closed()
    else:
        client.ask(end)
    assert counts(hub) == (4, 0)


def test_a_commit_that_a_full_queue_refuses_does_nothing(hub: KernelHub, client: Client) -> None:
    fill(hub.client(), "full", b"0", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    found = get(client, "from")
    assert found is not None
    client.ask("basic.ack", delivery_tag=found[0])
    client.publish("", "to", b"a")
    client.publish("", "full", b"b")
    told = client.ask("tx.commit")
    assert [name for _, name, _ in told] == ["channel.close"]
    assert closed(told) == "PRECONDITION_FAILED - nothing of the transaction is done: queue 'full' is full"
    assert counts(hub) == (4, 0)


def test_what_is_routed_otherwise_at_the_commit_goes_there(hub: KernelHub, client: Client) -> None:
    client.publish("amq.fanout", "", b"a")
    hub.client().ask("queue.bind", queue="to", exchange="amq.fanout")
    hub.client().ask("queue.declare", queue="more")
    hub.client().ask("queue.delete", queue="more")
    assert client.ask("tx.commit")[0][1] == "tx.commit-ok"
    assert counts(hub) == (4, 1)


def test_an_exchange_that_is_gone_at_the_commit(hub: KernelHub, client: Client) -> None:
    other = hub.client()
    other.ask("exchange.declare", exchange="e", type="fanout")
    client.publish("", "to", b"a")
    client.publish("e", "", b"a")
    other.ask("exchange.delete", exchange="e")
    assert closed(client.ask("tx.commit")) == "NOT_FOUND - no exchange 'e' in vhost '/'"
    assert counts(hub) == (4, 0)


def test_what_goes_nowhere_is_returned_at_the_commit(client: Client) -> None:
    client.publish("", "nowhere", b"a", mandatory=True)
    assert client.got() == []
    assert [name for _, name, _ in client.ask("tx.commit")] == ["basic.return", "header", "body", "tx.commit-ok"]


def test_refusals_come_when_something_is_published(client: Client) -> None:
    client.publish("missing", "", b"a")
    assert closed(client.got()) == "NOT_FOUND - no exchange 'missing' in vhost '/'"


@pytest.mark.parametrize(("first", "then", "text"), [
    (None, "tx.commit", "channel is not transactional"), (None, "tx.rollback", "channel is not transactional"),
    ("confirm.select", "tx.select", "cannot switch from confirm to tx mode"),
    ("tx.select", "confirm.select", "cannot switch from tx to confirm mode")])
def test_modes_that_exclude_each_other(hub: KernelHub, first: str | None, then: str, text: str) -> None:
    client = hub.client()
    if first is not None:
        client.ask(first)
    assert closed(client.ask(then)) == f"PRECONDITION_FAILED - {text}"


def test_selecting_twice_changes_nothing(hub: KernelHub, client: Client) -> None:
    client.publish("", "to", b"a")
    assert client.ask("tx.select")[0][1] == "tx.select-ok"
    client.ask("tx.commit")
    assert counts(hub) == (4, 1)


def test_half_messages_are_transactions_of_their_own(client: Client) -> None:
    client.publish("", "to", b"a", properties_of(headers={"x-half": text("orders")}))
    assert closed(client.got()).startswith("PRECONDITION_FAILED - a half message is a transaction of its own")


def test_a_transaction_has_a_size(hub: KernelHub, client: Client) -> None:
    most = hub.services.kernel.settings.max_message_bytes
    for _ in range(2):                         # the second time shows that what was held is free again
        for _ in range(TX_BYTES_MAX // most):
            client.publish("", "to", bytes(most - PUBLISH_BYTES - len(NO_PROPERTIES)))
        assert client.got() == []
        client.publish("", "to", bytes(most))
        assert closed(client.got()) \
            == f"PRECONDITION_FAILED - transactions of a connection of more than {TX_BYTES_MAX} bytes"
        client.ask("channel.close-ok")
        client.ask("channel.open")
        client.ask("tx.select")
    assert counts(hub) == (4, 0)


def test_the_hub_stops_once_a_commit_is_answered(hub: KernelHub, client: Client) -> None:
    client.publish("", "to", b"a")
    client.send(codec.frame(codec.METHOD, 1, encode_method("tx.commit")))
    client.session.handle_stopping()
    assert client.got() == []
    hub.rig.run()
    assert client.names()[0] == "tx.commit-ok"


@pytest.mark.parametrize("ends", [False, True])
def test_a_disk_that_is_full_takes_nothing_of_it(ends: bool) -> None:
    hub = Hub()
    client = hub.client().login()
    client.ask("queue.declare", queue="from")
    client.ask("queue.declare", queue="to")
    client.publish("", "from", b"1")
    hub.kernel.flush()
    client.ask("tx.select")
    tag = client.ask("basic.get", queue="from")[0][2]["delivery_tag"]
    client.ask("basic.ack", delivery_tag=tag)
    client.publish("", "to", b"a")
    hub.log.fault = LogFull("no space")
    client.send(codec.frame(codec.METHOD, 1, encode_method("tx.commit")))
    if ends:
        client.send(codec.frame(codec.METHOD, 1, encode_method("channel.close")))
    hub.kernel.flush()
    told = client.got()
    assert [name for _, name, _ in told] == (["channel.close-ok"] if ends else ["channel.close"])
    why = "the disk is full: no space"
    assert ends or closed(told) == f"PRECONDITION_FAILED - nothing of the transaction is done: {why}"
    hub.log.fault = None
    hub.kernel.flush()
    hub.advance(10_000)
    assert (hub.ready("from"), hub.ready("to")) == ([b"1"], [])


# ---- rejected

def counts_of(hub: KernelHub, queue: str) -> int:
    count: int = hub.client().ask("queue.declare", queue=queue, passive=True)[0][2]["message_count"]
    return count


def test_dead_letters_are_in_the_frame_of_the_commit(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead", durable=True)
    fill(client, "work", b"1", b"2", b"3", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.ask("queue.declare", queue="to", durable=True)
    client.ask("tx.select")
    for _ in range(3):
        assert get(client, "work") is not None
    client.ask("basic.ack", delivery_tag=1)
    client.ask("basic.reject", delivery_tag=2, requeue=False)
    client.ask("basic.nack", delivery_tag=3, requeue=False)
    client.publish("", "to", b"a")
    hub.advance(1_000)
    assert get(hub.client(), "dead") is None
    flushes = hub.rig.kernel.statistics()["flushes_total"]
    assert client.ask("tx.commit")[0][1] == "tx.commit-ok"
    assert hub.rig.kernel.statistics()["flushes_total"] == flushes + 1
    hub.restart()
    client = hub.client()
    assert get(client, "work") is None
    assert [get(client, name)[1] for name in ("dead", "dead", "to")] == [b"2", b"3", b"a"]      # type: ignore[index]


def test_what_is_rejected_in_a_commit_that_is_refused_stays(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead", durable=True)
    fill(client, "work", b"1", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    fill(client, "full", b"0", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    client.ask("tx.select")
    assert get(client, "work") is not None
    client.ask("basic.reject", delivery_tag=1, requeue=False)
    client.publish("", "full", b"a")
    assert "nothing of the transaction is done" in closed(client.ask("tx.commit"))
    client = hub.client()
    assert get(client, "dead") is None
    found = get(client, "work")
    assert found is not None and found[1:] == (b"1", True)


def test_too_much_to_be_rejected_at_once(hub: KernelHub, monkeypatch: pytest.MonkeyPatch) -> None:
    client = hub.client()
    fill(client, "work", *[bytes(100)] * 70)
    client.ask("tx.select")
    for _ in range(70):
        get(client, "work")
    client.ask("basic.nack", delivery_tag=70, multiple=True, requeue=False)
    monkeypatch.setattr("gatehouse.gateways.amqp.tx.TX_BYTES_MAX", 6_000)
    assert "transactions of a connection of more than 6000 bytes" in closed(client.ask("tx.commit"))
    assert counts_of(hub, "work") == 70


def test_what_comes_behind_a_commit_waits_for_it(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"1")
    client.ask("queue.declare", queue="to", durable=True)
    client.ask("tx.select")
    assert get(client, "work") is not None
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.reject", delivery_tag=1, requeue=False))
                + codec.frame(codec.METHOD, 1, encode_method("tx.commit")))
    client.publish("", "to", b"a")
    client.send(codec.frame(codec.METHOD, 1, encode_method("tx.commit")))
    client.hub.kernel.flush()
    got = client.got() + client.ask("basic.qos")
    assert [name for _, name, _ in got] == ["tx.commit-ok", "tx.commit-ok", "basic.qos-ok"]
    found = get(client, "to")
    assert found is not None and found[1] == b"a" and get(client, "work") is None
