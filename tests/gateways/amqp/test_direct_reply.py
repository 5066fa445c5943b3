"""Direct reply-to: answers that pass no queue."""
from __future__ import annotations

import pytest

from gatehouse.gateways.amqp import properties
from gatehouse.gateways.amqp.direct_reply import LOST, NAMED, REPLY_TO
from tests.gateways.amqp.fakes import Client, Hub
from tests.gateways.amqp.test_with_kernel import closed, delivered

ASKING = properties.write({"reply_to": REPLY_TO, "correlation_id": "7"})


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def server(hub: Hub) -> Client:
    server = hub.client().login()
    server.ask("queue.declare", queue="work")
    return server


@pytest.fixture
def requester(hub: Hub) -> Client:
    requester = hub.client().login()
    told = requester.ask("basic.consume", queue=REPLY_TO, no_ack=True, consumer_tag="t")
    assert told == [(1, "basic.consume-ok", {"consumer_tag": "t"})]
    return requester


def asked(hub: Hub, server: Client) -> str:
    """Where the next request wants its answer."""
    hub.kernel.flush()
    (_, _, _), (_, _, header), _ = server.ask("basic.get", queue="work", no_ack=True)
    read = properties.read(header["raw"])
    assert read["correlation_id"] == "7"
    reply_to: str = read["reply_to"]
    return reply_to


def test_an_answer_comes_to_who_asked(hub: Hub, server: Client, requester: Client) -> None:
    requester.publish("", "work", b"2 + 2", ASKING)
    reply_to = asked(hub, server)
    assert reply_to.startswith(NAMED) and len(reply_to) > len(NAMED) + 20
    server.ask("confirm.select")
    server.publish("", reply_to, b"4", properties.write({"correlation_id": "7"}), mandatory=True)
    assert server.got() == [(1, "basic.ack", {"delivery_tag": 1, "multiple": False})]
    (_, name, method), (_, _, header), (_, _, body) = requester.got()
    assert (name, method["consumer_tag"], method["exchange"], method["routing_key"]) == ("basic.deliver", "t", "",
                                                                                        reply_to)
    assert (properties.read(header["raw"])["correlation_id"], body["body"]) == ("7", b"4")


def test_requests_are_told_where_however_many_come_at_once(hub: Hub, server: Client, requester: Client) -> None:
    plain = properties.write({"reply_to": "elsewhere"})
    for raw in (plain, ASKING, plain, ASKING):
        requester.publish("", "work", b"x", raw)
    hub.kernel.flush()
    told = [properties.read(arguments["raw"])["reply_to"] for _, name, arguments in server.ask(
        "basic.consume", queue="work") if name == "header"]
    assert told[0] == told[2] == "elsewhere"
    assert told[1] == told[3] != REPLY_TO


def test_two_channels_are_two_requesters(hub: Hub, server: Client) -> None:
    client = hub.client().login(channels=2)
    for channel in (1, 2):
        client.ask("basic.consume", channel, queue=REPLY_TO, no_ack=True)
        client.publish("", "work", b"x", ASKING, channel)
        server.publish("", asked(hub, server), b"%d" % channel)
        told = client.got()
        assert {number for number, _, _ in told} == {channel} and delivered(told) == [b"%d" % channel]


@pytest.mark.parametrize("end", ["basic.cancel", "channel.close", "cut"])
def test_who_has_gone_is_not_answered(hub: Hub, server: Client, requester: Client, end: str) -> None:
    requester.publish("", "work", b"x", ASKING)
    reply_to = asked(hub, server)
    assert server.ask("queue.declare", queue=reply_to, passive=True)[0][2]["consumer_count"] == 1
    if end == "cut":
        requester.session.handle_closed()
    else:
        requester.ask(end, consumer_tag="t") if end == "basic.cancel" else requester.ask(end)
    server.publish("", reply_to, b"4", mandatory=True)
    assert server.names()[0] == "basic.return"
    server.publish("", reply_to, b"4")
    assert server.got() == []
    assert closed(server.ask("queue.declare", queue=reply_to, passive=True)) \
        == f"NOT_FOUND - no queue '{reply_to}' in vhost '/'"


def test_who_does_not_take_loses_answers(hub: Hub, server: Client, requester: Client) -> None:
    requester.publish("", "work", b"x", ASKING)
    reply_to = asked(hub, server)
    requester.link.stalled = True
    server.publish("", reply_to, bytes(1 << 20))
    server.publish("", reply_to, b"lost")
    requester.link.drain(requester.session)
    server.publish("", reply_to, b"2")
    assert [body[:9] for body in delivered(requester.got())][-1] == b"2"
    assert hub.services.admission.trace.counts["amqp", LOST] == 1


@pytest.mark.parametrize(("method", "arguments", "text"), [
    ("basic.consume", {"queue": REPLY_TO}, "PRECONDITION_FAILED - reply consumer cannot acknowledge"),
    ("basic.consume", {"queue": REPLY_TO, "no_ack": True}, "PRECONDITION_FAILED - reply consumer already set"),
    ("queue.bind", {"queue": NAMED + "x", "exchange": "amq.topic"},
     "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue")])
def test_what_is_refused(requester: Client, method: str, arguments: dict[str, object], text: str) -> None:
    assert closed(requester.ask(method, **arguments)) == text


def test_a_request_of_nobody_who_waits_is_refused(server: Client) -> None:
    server.publish("", "work", b"x", ASKING)
    assert closed(server.got()) == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_the_name_itself_is_always_there(server: Client) -> None:
    told = server.ask("queue.declare", queue=REPLY_TO, passive=True)[0]
    assert told[1:] == ("queue.declare-ok", {"queue": REPLY_TO, "message_count": 0, "consumer_count": 1})


def test_a_transaction_answers_at_its_commit(hub: Hub, server: Client, requester: Client) -> None:
    requester.publish("", "work", b"x", ASKING)
    reply_to = asked(hub, server)
    server.ask("tx.select")
    server.publish("", reply_to, b"4")
    assert requester.got() == []
    server.ask("tx.commit")
    assert delivered(requester.got()) == [b"4"]
