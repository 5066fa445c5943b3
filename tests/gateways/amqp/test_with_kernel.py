"""The AMQP door on the real kernel, in a world of one thread: what becomes of deliveries that are not acknowledged, and
of queues with limits."""
from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, cast

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.own_topics import ROUTES as OWN_ROUTES
from gatehouse.gateways.amqp import open_door
from gatehouse.gateways.amqp.arguments import MAX_EXPIRY_MS, QUORUM_LIMIT
from gatehouse.gateways.amqp.codec import AMQP_HEADER, DOOR, METHOD, frame
from gatehouse.gateways.amqp.config import AmqpConfig
from gatehouse.gateways.amqp.dead_letters import DEATHS
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.properties import read
from gatehouse.gateways.amqp.properties import write as written
from gatehouse.gateways.amqp.tables import Field, encode_table, text, typed
from gatehouse.gateways.contract import Services
from gatehouse.gateways.kit import ROUTES, FakeLink
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.groups.leasing import HOLD_STEP_MS
from gatehouse.kernel.journeys.trail import TOPIC, event_of
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.tracing.events import Kind as EventKind
from tests.gateways.amqp.fakes import Client, Got, Hub
from tests.kernel.rig import Rig

MINUTE_MS = 60_000
HALF_HOUR_MS = 30 * MINUTE_MS
OVERDUE = ("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: %d ms. This "
           "timeout value can be configured, see consumers doc guide to learn more")


class _Flushing:
    def __init__(self, rig: Rig) -> None:
        self.flush = rig.run


class KernelHub:
    """A door for `Client` whose kernel is a real one."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.kernel = _Flushing(self.rig)
        self._open()

    def _open(self) -> None:
        kernel = self.rig.kernel
        now_ms = self.rig.world.loop.now_ms
        self.services = Services("hub", kernel, Admission(kernel, now_ms), now_ms)
        open_door(self.services)

    def restart(self) -> None:
        """Killed, and started again: connections are gone."""
        self.rig.restart()
        self._open()

    def open(self, spec: Any, config: AmqpConfig) -> tuple[Any, FakeLink]:
        link = FakeLink()
        return spec.session(link, self.services, config), link

    def client(self, **config: int) -> Client:
        return Client(cast(Any, self), AmqpConfig(**config)).login()

    def advance(self, by_ms: int) -> None:
        self.rig.world.advance(by_ms)
        self.rig.run()


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


def fill(client: Client, queue: str, *bodies: bytes, **arguments: Any) -> None:
    client.ask("queue.declare", queue=queue, durable=True, arguments=arguments)
    for body in bodies:
        client.publish("", queue, body)
    client.hub.kernel.flush()


def properties_of(**properties: Any) -> bytes:
    return written(properties)


def get(client: Client, queue: str) -> tuple[int, bytes, bool] | None:
    """(delivery tag, body, redelivered)."""
    got = client.ask("basic.get", queue=queue)
    if got[0][1] != "basic.get-ok":
        return None
    return got[0][2]["delivery_tag"], got[2][2]["body"], got[0][2]["redelivered"]


def taken(client: Client, queue: str = "q") -> list[bytes]:
    """Everything that is ready in a queue."""
    bodies = []
    while (got := client.ask("basic.get", queue=queue, no_ack=True))[0][1] == "basic.get-ok":
        bodies.append(got[2][2]["body"])
    return bodies


def delivered(got: list[Got]) -> list[bytes]:
    return [arguments["body"] for _, name, arguments in got if name == "body"]


def closed(got: list[Got]) -> str:
    return next((arguments["text"] for _, name, arguments in got if name == "channel.close"), "")


# ---- what an answer says of acknowledgements before it

@pytest.mark.parametrize(("method", "arguments"), [
    ("queue.declare", {"queue": "q", "passive": True}), ("queue.declare", {"queue": "q", "durable": True}),
    ("basic.qos", {"prefetch_count": 1}), ("basic.get", {"queue": "q"}), ("basic.consume", {"queue": "q"}),
    ("confirm.select", {}), ("channel.close", {}), ("connection.close", {})])
def test_an_answer_says_that_what_was_acknowledged_before_is_stored(
        hub: KernelHub, method: str, arguments: dict[str, Any]) -> None:
    client = hub.client()
    fill(client, "q", b"acknowledged", b"left")
    got = get(client, "q")
    assert got is not None
    client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=got[0])))
    client.send(frame(METHOD, 0 if method == "connection.close" else 1, encode_method(method, **arguments)))
    assert client.got() == [], "nothing is on the disk yet"
    hub.kernel.flush()
    assert client.names()[0] == f"{method}-ok", "deliveries come behind it"
    hub.restart()
    assert taken(hub.client()) == [b"left"]


def test_the_answer_to_a_method_that_is_refused_waits_too(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"acknowledged")
    got = get(client, "q")
    assert got is not None
    client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=got[0])))
    client.send(frame(METHOD, 1, encode_method("queue.declare", queue="missing", passive=True)))
    assert client.got() == []
    hub.kernel.flush()
    assert client.names() == ["channel.close"]


@pytest.mark.parametrize(("method", "arguments"), [
    ("queue.declare", {"queue": "new", "durable": True}), ("queue.declare", {"queue": "new", "passive": True}),
    ("queue.bind", {"queue": "new", "exchange": "amq.direct", "routing_key": "k"}),
    ("queue.delete", {"queue": "gone"}), ("exchange.declare", {"exchange": "x", "type": "fanout", "durable": True})])
def test_who_finds_what_another_has_just_declared_waits_for_the_disk_too(hub: KernelHub, method: str,
                                                                         arguments: dict[str, Any]) -> None:
    first, second = hub.client(), hub.client()
    fill(first, "gone")
    for name, said in (("queue.declare", {"queue": "new", "durable": True}), ("queue.delete", {"queue": "gone"}),
                       ("queue.bind", {"queue": "new", "exchange": "amq.direct", "routing_key": "k"}),
                       ("exchange.declare", {"exchange": "x", "type": "fanout", "durable": True})):
        first.send(frame(METHOD, 1, encode_method(name, **said)))
    second.send(frame(METHOD, 1, encode_method(method, **arguments)))
    assert second.got() == []
    hub.kernel.flush()
    assert second.names() == [f"{method}-ok"]
    second.send(frame(METHOD, 1, encode_method(method, **arguments)))
    assert second.names() == [f"{method}-ok"], "all is on the disk"


# ---- delivery limits

@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_comes_back_more_often_than_the_limit_is_a_dead_letter(hub: KernelHub, limit: int, kind: str) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead")
    fill(client, "work", b"x", **{"x-delivery-limit": limit, "x-queue-type": kind, "x-dead-letter-exchange": "",
                                  "x-dead-letter-routing-key": "dead"})
    for time in range(limit + 1):
        found = get(client, "work")
        assert found is not None and found[1:] == (b"x", time > 0)
        assert get(client, "dead") is None
        client.ask("basic.nack", delivery_tag=found[0], requeue=True)
    assert get(client, "work") is None
    (_, _, ok), (_, _, header), (_, _, body) = client.ask("basic.get", queue="dead")
    assert body["body"] == b"x" and not ok["redelivered"]
    assert b"\x06reasonS\0\0\0\x0edelivery_limit" in header["raw"]


def test_where_there_is_no_dead_letter_exchange_it_is_gone(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"x", **{"x-delivery-limit": 0})
    found = get(client, "work")
    assert found is not None
    client.ask("basic.reject", delivery_tag=found[0], requeue=True)
    assert get(client, "work") is None


@pytest.mark.parametrize("end", ["channel.close", "basic.recover", "cut"])
def test_every_way_back_counts(hub: KernelHub, end: str) -> None:
    fill(hub.client(), "work", b"x", **{"x-delivery-limit": 1})
    for _ in range(2):
        client = hub.client()
        assert get(client, "work") is not None
        if end == "channel.close":
            client.ask(end)
        elif end == "basic.recover":
            client.ask(end, requeue=True)
        client.session.handle_closed()
    assert get(hub.client(), "work") is None


@pytest.mark.parametrize("arguments", [{}, {"x-delivery-limit": -1}])
def test_without_a_limit_it_comes_for_ever(hub: KernelHub, arguments: dict[str, int]) -> None:
    client = hub.client()
    fill(client, "work", b"x", **arguments)
    for _ in range(100):
        found = get(client, "work")
        assert found is not None
        client.ask("basic.nack", delivery_tag=found[0], requeue=True)


@pytest.mark.parametrize(("name", "value", "why"), [
    ("x-delivery-limit", "a", '"expected integer, got longstr"'), ("x-delivery-limit", -2, "{value_negative,-2}"),
    ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ("x-consumer-timeout", MAX_EXPIRY_MS + 1, f"{{value_too_large,{MAX_EXPIRY_MS + 1}}}"),
    ("x-message-ttl", MAX_EXPIRY_MS + 1, f"{{value_too_large,{MAX_EXPIRY_MS + 1}}}"),
    ("x-dead-letter-strategy", "sometimes", "invalid_dlx_strategy"),
    ("x-queue-version", 3, '"unsupported queue version \'3\'"'),
    ("x-queue-leader-locator", "elsewhere", "invalid_queue_locator_arg"),
    ("x-quorum-initial-group-size", 0, "{value_zero,0}")])
def test_arguments_that_cannot_be(hub: KernelHub, name: str, value: object, why: str) -> None:
    kind = "classic" if name == "x-queue-version" else "quorum"
    told = closed(hub.client().ask("queue.declare", queue="q", durable=True,
                                   arguments={"x-queue-type": kind, name: value}))
    assert told == f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {why}"


def test_other_limits_are_another_queue(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", **{"x-delivery-limit": 1})
    told = closed(client.ask("queue.declare", queue="work", durable=True, arguments={"x-delivery-limit": 2}))
    assert told == ("PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'work' in vhost '/': received "
                    "'2' but current is '1'")


def test_a_queue_whose_limit_was_not_looked_at_when_it_was_declared_is_there_still(hub: KernelHub) -> None:
    arguments = encode_table({"x-delivery-limit": typed("often"), "x-max-priority": typed(3)})
    door = json.dumps({"amqp": 1, "durable": True, "auto_delete": False, "arguments": b64encode(arguments).decode()})
    hub.rig.kernel.groups.declare_queue("old", QueueSettings(priorities=4, door=door))
    hub.rig.run()
    open_door(hub.services)
    fill(hub.client(), "old", b"x", **{"x-max-priority": 3})
    assert get(hub.client(), "old") == (1, b"x", False)


def test_a_limit_outlives_the_hub(hub: KernelHub) -> None:
    fill(hub.client(), "work", b"x", **{"x-delivery-limit": 1, "x-consumer-timeout": 5_000})
    open_door(hub.services)                                # as after a start: the door reads what is stored
    client = hub.client()
    consume(client, "work")
    hub.advance(5_000 + HOLD_STEP_MS)
    assert closed(client.got()) == OVERDUE % 5_000
    found = get(hub.client(), "work")
    assert found is not None and found[2]


def test_a_quorum_queue_that_says_nothing_has_a_limit(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead")
    fill(client, "work", b"x", **{"x-queue-type": "quorum", "x-dead-letter-exchange": "",
                                  "x-dead-letter-routing-key": "dead"})
    for _ in range(QUORUM_LIMIT + 1):
        found = get(client, "work")
        assert found is not None
        client.ask("basic.nack", delivery_tag=found[0], requeue=True)
    assert get(client, "work") is None
    assert get(client, "dead") is not None


def test_deliveries_say_how_often_they_have_come_back(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"1", b"2", **{"x-delivery-limit": 5})
    client.ask("basic.qos", prefetch_count=10)
    told = client.ask("basic.consume", queue="work")
    for times in range(3):
        headers = [read(arguments["raw"]).get("headers", {}) for _, name, arguments in told if name == "header"]
        assert headers == [{"x-delivery-count": Field("l", times)} if times else {}] * 2
        told = client.ask("basic.recover", requeue=True)
    assert told[0][1] == "basic.recover-ok"


@pytest.mark.parametrize(("name", "property"), [
    ("auto_delete", "auto-delete"), ("exclusive", "exclusive-owner"), ("durable", "non-durable")])
def test_a_quorum_queue_outlives_who_declares_it(hub: KernelHub, name: str, property: str) -> None:
    flags = {"durable": True, name: name != "durable"}
    told = closed(hub.client().ask("queue.declare", queue="q", arguments={"x-queue-type": "quorum"}, **flags))
    assert told == f"PRECONDITION_FAILED - invalid property '{property}' for queue 'q' in vhost '/'"


@pytest.mark.parametrize(("kind", "name"), [
    ("quorum", "x-max-priority"), ("quorum", "x-queue-mode"), ("classic", "x-initial-cluster-size")])
def test_what_only_other_types_have_is_refused(hub: KernelHub, kind: str, name: str) -> None:
    told = closed(hub.client().ask("queue.declare", queue="q", durable=True, arguments={
        "x-queue-type": kind, name: "lazy" if name == "x-queue-mode" else 3}))
    assert told == f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/' of queue type " \
                   f"rabbit_{kind}_queue"


def test_a_quorum_queue_with_one_active_consumer_is_not_asked_for_single_messages(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"x", **{"x-queue-type": "quorum", "x-single-active-consumer": True})
    assert closed(client.ask("basic.get", queue="q")) == (
        "RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are not "
        "supported by quorum queues with single active consumer")


# ---- times of years

YEARS_MS = 134_217_728_000             # the longest delay queue of Celery and NServiceBus: 2 ** 27 seconds


def test_messages_of_a_queue_may_live_for_years(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="due")
    fill(client, "celery_delayed_27", b"x", **{"x-message-ttl": YEARS_MS, "x-dead-letter-exchange": "",
                                               "x-dead-letter-routing-key": "due", "x-queue-type": "quorum"})
    client.publish("", "celery_delayed_27", b"y", properties_of(expiration=str(YEARS_MS - 1)))
    hub.advance(YEARS_MS - 2)
    assert client.ask("queue.declare", queue="due", passive=True)[0][2]["message_count"] == 0
    hub.advance(60_000)
    hub.rig.run()
    assert client.ask("queue.declare", queue="due", passive=True)[0][2]["message_count"] == 2


# ---- queues that refuse what is too much, and keep it as a dead letter

def test_what_a_full_queue_refuses_may_be_a_dead_letter(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead")
    fill(client, "work", b"1", **{"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "",
                                  "x-dead-letter-routing-key": "dead"})
    client.ask("confirm.select")
    for body in (b"2", b"3"):
        client.publish("", "work", body)
    hub.rig.run()
    assert client.names() == ["basic.nack", "basic.nack"]
    assert [get(client, "dead")[1] for _ in range(2)] == [b"2", b"3"]       # type: ignore[index]
    (_, _, _), (_, _, header), _ = client.ask("basic.get", queue="work")
    assert DEATHS not in read(header["raw"]).get("headers", {})


def test_where_a_dead_letter_has_no_room_either_it_is_gone(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "dead", b"0", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    fill(client, "work", b"1", **{"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "",
                                  "x-dead-letter-routing-key": "dead"})
    client.ask("confirm.select")
    client.publish("", "work", b"2")
    hub.rig.run()
    assert client.names() == ["basic.nack"]
    assert client.ask("queue.declare", queue="dead", passive=True)[0][2]["message_count"] == 1


# ---- queues that hold nothing

@pytest.mark.parametrize(("arguments", "left"), [
    ({"x-max-length": 0}, []), ({"x-max-length-bytes": 0}, [b""]), ({}, [b"x", b""])])
def test_a_limit_of_nothing_holds_nothing(hub: KernelHub, arguments: dict[str, int], left: list[bytes]) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="work", arguments=arguments)
    client.ask("confirm.select")
    for body in (b"x", b""):
        client.publish("", "work", body)
    hub.rig.run()
    assert {name for _, name, _ in client.got()} == {"basic.ack"}
    found = []
    while (message := client.ask("basic.get", queue="work", no_ack=True))[0][1] == "basic.get-ok":
        found.append(b"".join(delivered(message)))
    assert found == left


def test_a_limit_of_nothing_that_refuses_takes_nothing(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="work", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.ask("confirm.select")
    client.publish("", "work", b"x")
    hub.rig.run()
    assert client.names() == ["basic.nack"]


# ---- limits of a channel, and what is given back

def got_by(client: Client, name: str, **arguments: Any) -> list[bytes]:
    """What is delivered once this is asked."""
    got = client.ask(name, **arguments)
    client.hub.kernel.flush()
    return delivered(got + client.got())


def test_what_recover_gives_back_comes_again(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"1", b"2", b"3")
    client.ask("basic.qos", prefetch_count=2)
    assert got_by(client, "basic.consume", queue="q") == [b"1", b"2"]
    assert got_by(client, "basic.recover", requeue=True) == [b"1", b"2"]


def test_what_basic_get_took_counts_against_no_limit(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"1", b"2", b"3")
    client.ask("basic.qos", prefetch_count=1, **{"global": True})
    assert get(client, "q") == (1, b"1", False)
    assert got_by(client, "basic.consume", queue="q") == [b"2"]
    assert got_by(client, "basic.ack", delivery_tag=1) == []
    assert got_by(client, "basic.ack", delivery_tag=2) == [b"3"]


@pytest.mark.parametrize("multiple", [False, True])
def test_who_waits_for_the_limit_of_the_channel_has_room_whatever_else_is_acknowledged(hub: KernelHub, multiple: bool
                                                                                        ) -> None:
    client = hub.client()
    for queue in ("got", "a", "b"):
        fill(client, queue, queue.encode())
    client.ask("basic.qos", prefetch_count=1, **{"global": True})
    assert get(client, "got") == (1, b"got", False)
    assert got_by(client, "basic.consume", queue="a") == [b"a"] and got_by(client, "basic.consume", queue="b") == []
    tags = [2] if multiple else [2, 1]
    client.send(b"".join([frame(METHOD, 1, encode_method("basic.ack", delivery_tag=tag, multiple=multiple))
                          for tag in tags]))
    hub.kernel.flush()
    assert delivered(client.got()) == [b"b"]


def test_queues_that_share_a_limit_take_turns(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("basic.qos", prefetch_count=1, **{"global": True})
    bodies = []
    for queue in ("a", "b", "c"):
        fill(client, queue, *[queue.encode()] * 10)
        bodies += got_by(client, "basic.consume", queue=queue)
    for tag in range(1, 9):
        bodies += got_by(client, "basic.ack", delivery_tag=tag)
    assert len(bodies) == 9
    assert min(bodies.count(queue) for queue in (b"a", b"b", b"c")) >= 2


def test_who_acknowledges_nothing_waits_too_where_the_limit_of_the_channel_is_used_up(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "a", b"a1")
    fill(client, "b")
    client.ask("basic.consume", queue="b", no_ack=True)
    client.ask("basic.qos", prefetch_count=1, **{"global": True})
    assert got_by(client, "basic.consume", queue="a") == [b"a1"]
    fill(client, "b", b"b1", b"b2")
    assert delivered(client.got()) == []
    assert got_by(client, "basic.ack", delivery_tag=1) == [b"b1", b"b2"], "they count against no limit"


def taking_by_priority(hub: KernelHub, steps: int, of_channel: bool) -> Client:
    """A consumer with a prefetch of 30 of a queue whose messages lie on the disk, after so many steps of the hub."""
    client = hub.client()
    client.ask("queue.declare", queue="q", durable=True, arguments={"x-max-priority": 2})
    for priority in (0, 1, 2):
        for _ in range(20):
            client.publish("", "q", b"x", properties_of(priority=priority))
    hub.kernel.flush()
    hub.restart()
    client = hub.client()
    client.ask("basic.qos", prefetch_count=30, **{"global": of_channel})
    client.send(frame(METHOD, 1, encode_method("basic.consume", queue="q")))
    for _ in range(steps):
        if not hub.rig.world.loop.step():
            hub.rig.world.reader_worker.step()
    return client


@pytest.mark.parametrize("of_channel", [False, True])
@pytest.mark.parametrize("steps", range(10))
def test_what_waits_for_others_of_less_priority_counts_against_the_prefetch(hub: KernelHub, steps: int,
                                                                             of_channel: bool) -> None:
    client = taking_by_priority(hub, steps, of_channel)
    client.session.handle_drained()
    hub.rig.run()
    assert len(delivered(client.got())) == 30


@pytest.mark.parametrize("steps", range(10))
def test_nothing_is_delivered_on_a_channel_that_was_closed(hub: KernelHub, steps: int) -> None:
    client = taking_by_priority(hub, steps, False)
    client.got()
    client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=99)))
    hub.rig.run()
    assert client.got()[-1][1] == "channel.close"
    client.ask("channel.close-ok")
    client.ask("channel.open")
    assert len(taken(client)) == 60


@pytest.mark.parametrize("passive", [False, True])
def test_a_declaration_is_use(hub: KernelHub, passive: bool) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="q", arguments={"x-expires": 1_000})
    for _ in range(4):
        hub.advance(750)
        said = client.ask("queue.declare", queue="q", passive=passive, arguments={"x-expires": 1_000})
        assert [name for _, name, _ in said] == ["queue.declare-ok"]
    hub.advance(1_200)
    assert closed(client.ask("queue.declare", queue="q", passive=True)).startswith("NOT_FOUND")


# ---- no time to live: for who waits, or for nobody

@pytest.mark.parametrize(("arguments", "raw"), [
    ({"x-message-ttl": 0}, properties_of()), ({}, properties_of(expiration="0"))], ids=["queue", "message"])
def test_a_message_without_time_goes_to_who_waits_or_nowhere(hub: KernelHub, arguments: dict[str, int],
                                                             raw: bytes) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="dead")
    client.ask("queue.declare", queue="q", arguments={
        **arguments, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish("", "q", b"nobody waits", raw)
    hub.rig.run()
    assert (get(client, "q"), taken(client, "dead")) == (None, [b"nobody waits"])
    client.ask("basic.qos", prefetch_count=1)
    client.ask("basic.consume", queue="q")
    client.publish("", "q", b"1", raw)
    client.publish("", "q", b"no room", raw)
    hub.rig.run()
    got = client.got()
    assert (delivered(got), taken(client, "dead")) == ([b"1"], [b"no room"])
    client.ask("basic.reject", delivery_tag=got[0][2]["delivery_tag"], requeue=True)
    hub.rig.run()
    assert (client.got(), taken(client, "dead")) == ([], [b"1"]), "given back, it waits, too"


def test_a_message_without_time_is_gone_for_who_asks_once(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="q")             # nothing watches it: what expires is noticed by who asks
    for _ in range(2):
        client.publish("", "q", b"nobody waits", properties_of(expiration="0"))
        hub.rig.run()
        assert get(client, "q") is None


# ---- the time to acknowledge

def consume(client: Client, queue: str) -> list[bytes]:
    return delivered(client.ask("basic.consume", queue=queue))


def test_a_consumer_that_never_acknowledges_loses_its_channel(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"1", b"2")
    assert consume(client, "work") == [b"1", b"2"]
    client.ask("basic.ack", delivery_tag=1)
    hub.advance(HALF_HOUR_MS - 1)
    assert client.got() == []
    hub.advance(HOLD_STEP_MS)
    assert closed(client.got()) == OVERDUE % HALF_HOUR_MS
    assert not client.link.closed
    other = hub.client()
    assert consume(other, "work") == [b"2"]


def test_who_acknowledges_in_time_keeps_it(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work")
    consume(client, "work")
    for number in range(1, 10):
        client.publish("", "work", b"x")
        hub.rig.run()
        assert delivered(client.got()) == [b"x"]
        hub.advance(HALF_HOUR_MS - 1)
        client.ask("basic.ack", delivery_tag=number)
    hub.advance(10 * HALF_HOUR_MS)
    assert client.got() == []


def test_messages_that_were_got_one_by_one_count_and_so_do_those_of_a_consumer_that_was_cancelled(hub: KernelHub
                                                                                                  ) -> None:
    for how in ("get", "cancel"):
        client = hub.client()
        fill(client, how, b"x")
        if how == "get":
            assert get(client, how) is not None
        else:
            client.ask("basic.consume", queue=how, consumer_tag="t")
            client.ask("basic.cancel", consumer_tag="t")
        hub.advance(HALF_HOUR_MS + HOLD_STEP_MS)
        assert closed(client.got()) == OVERDUE % HALF_HOUR_MS


@pytest.mark.parametrize(("of_hub", "of_partition", "used"), [
    (5_000, None, 5_000), (5_000, 9_000, 9_000), (0, 9_000, 9_000), (5_000, 0, 0), (0, None, 0)])
def test_a_queue_says_more_than_the_hub(hub: KernelHub, of_hub: int, of_partition: int | None, used: int) -> None:
    client = hub.client(consumer_timeout_ms=of_hub)
    fill(client, "work", b"x", **({} if of_partition is None else {"x-consumer-timeout": of_partition}))
    consume(client, "work")
    hub.advance(used + HOLD_STEP_MS if used else 10 * HALF_HOUR_MS)
    assert closed(client.got()) == (OVERDUE % used if used else "")


def test_without_acknowledgements_there_is_nothing_to_wait_for(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"x")
    assert delivered(client.ask("basic.consume", queue="work", no_ack=True)) == [b"x"]
    hub.advance(2 * HALF_HOUR_MS)
    assert client.got() == []


# ---- members of groups of all doors

def test_what_a_member_of_a_group_gives_back_comes_again_as_its_retry_says(hub: KernelHub) -> None:
    kernel = hub.rig.kernel
    kernel.groups.define("crew", GroupSettings(retry=Retry((5_000,)), max_attempts=2, start="latest"))
    hub.rig.publish("jobs/a", b"0")
    for filter_text in ("jobs/#", "jobs/+"):
        client = hub.client()
        client.ask("basic.consume", queue=f"$share/crew/{filter_text}")
        hub.rig.publish("jobs/a", b"1")
        assert delivered(client.got()) == [b"1"]
        client.ask("basic.nack", delivery_tag=1, requeue=True)
        hub.advance(4_900)
        assert client.got() == []
        hub.advance(200)
        assert delivered(client.got()) == [b"1"]
        client.ask("basic.nack", delivery_tag=2, requeue=True)
        hub.advance(MINUTE_MS)
        assert client.got() == []
        letters = kernel.groups.queue("$dead-letters/crew")
        assert letters is not None and kernel.groups.queue_group(letters).counts().ready == 1
        kernel.groups.queue_group(letters).purge()
        client.session.handle_closed()
        hub.rig.run()


def test_in_a_queue_it_is_ready_at_once(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "work", b"x")
    assert consume(client, "work") == [b"x"]
    assert delivered(client.ask("basic.nack", delivery_tag=1, requeue=True)) == [b"x"]


# ---- what is on its way into a queue, and what was purged before it was there

@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_copy_is_found_by_who_asks_right_after_it_was_published(hub: KernelHub, header: str) -> None:
    client = hub.client()
    for name in ("a", "b", "c"):
        client.ask("queue.declare", queue=name, auto_delete=True)
    client.publish("", "a", b"x", properties_of(headers={header: typed(["b", "c"])}))       # type: ignore[dict-item]
    assert [taken(client, name) for name in ("a", "b", "c")] == [[b"x"]] * 3


def test_what_was_purged_on_its_way_is_not_counted(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q")
    for body in (b"1", b"2"):
        client.publish("", "q", body)
    client.send(frame(METHOD, 1, encode_method("queue.purge", queue="q")))
    client.send(frame(METHOD, 1, encode_method("queue.declare", queue="q", passive=True)))
    client.publish("", "q", b"3")
    client.send(frame(METHOD, 1, encode_method("queue.declare", queue="q", passive=True)))
    counts = [arguments["message_count"] for _, _, arguments in client.got() if "message_count" in arguments]
    assert counts == [2, 0, 1]
    assert taken(client) == [b"3"]


@pytest.mark.parametrize("most", [1, 3])
def test_what_comes_back_is_pushed_out_by_what_was_published_meanwhile(hub: KernelHub, most: int) -> None:
    client = hub.client()
    fill(client, "q", *[b"old"] * most, **{"x-max-length": most})
    assert [tag for tag, _, _ in (get(client, "q") for _ in range(most))] == [*range(1, most + 1)]      # type: ignore[misc]
    for _ in range(most):
        client.publish("", "q", b"new")
    client.send(frame(METHOD, 1, encode_method("basic.nack", delivery_tag=most, multiple=True, requeue=True)))
    (_, _, head), _, (_, _, body) = client.ask("basic.get", queue="q", no_ack=True)
    assert (body["body"], head["message_count"]) == (b"new", most - 1)
    assert taken(client) == [b"new"] * (most - 1)


# ---- streams

@pytest.mark.parametrize(("prefetch", "again"), [(10, False), (10, True), (5, True)])
def test_who_reads_a_stream_hears_that_its_topic_is_deleted(hub: KernelHub, prefetch: int, again: bool) -> None:
    client = hub.client()
    fill(client, "s", *[b"x"] * 5, **{"x-queue-type": "stream"})
    client.ask("basic.qos", prefetch_count=prefetch)
    got = client.ask("basic.consume", queue="s", arguments={"x-stream-offset": "first"})
    assert len(delivered(got)) == 5
    hub.rig.kernel.delete_topic("s")
    if again:
        hub.rig.kernel.create_topic("s")
    hub.rig.run()
    if prefetch == 5:                                      # it has no room before
        client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=5, multiple=True)))
    assert client.names() == ["basic.cancel"]


# ---- exchanges that delete themselves

def test_a_long_row_of_exchanges_that_delete_themselves_goes_with_its_queue(hub: KernelHub) -> None:
    client = hub.client()
    client.ask("queue.declare", queue="q", durable=True)
    for number in range(500):
        client.ask("exchange.declare", exchange=f"e{number}", type="fanout", auto_delete=True)
        if number:
            client.ask("exchange.bind", source=f"e{number}", destination=f"e{number - 1}")
    client.ask("queue.bind", queue="q", exchange="e0")
    assert client.ask("queue.delete", queue="q")[0][1] == "queue.delete-ok"
    assert "NOT_FOUND" in closed(client.ask("exchange.declare", exchange="e499", type="fanout", passive=True))


# ---- queues of other doors

def test_a_binding_to_another_doors_queue_outlives_the_hub(hub: KernelHub) -> None:
    hub.rig.kernel.groups.declare_queue("http", QueueSettings())
    hub.kernel.flush()
    client = hub.client()
    client.ask("exchange.declare", exchange="x", type="direct", durable=True)
    client.ask("queue.bind", queue="http", exchange="x", routing_key="k")
    hub.restart()
    client = hub.client()
    client.publish("x", "k", b"after the start")
    hub.kernel.flush()
    assert taken(client, "http") == [b"after the start"]


@pytest.mark.parametrize("deletes", ["this door", "another door"])
def test_what_is_held_of_a_deleted_queue_settles_nothing_of_one_of_its_name(hub: KernelHub, deletes: str) -> None:
    holder, other = hub.client(), hub.client()
    fill(holder, "q", b"one", b"two", b"three")
    assert get(holder, "q") == (1, b"one", False)
    assert delivered(holder.ask("basic.consume", queue="q", consumer_tag="c")) == [b"two", b"three"]
    if deletes == "this door":
        other.ask("queue.delete", queue="q")
    else:
        queue = hub.rig.kernel.groups.queue("q")
        assert queue is not None
        hub.rig.kernel.groups.delete_queue(queue)
    hub.kernel.flush()
    fill(other, "q", b"new one", b"new two", b"new three", b"new four")
    assert get(other, "q") == (1, b"new one", False)
    for tag, method in ((1, "basic.ack"), (2, "basic.ack"), (3, "basic.nack")):
        holder.send(frame(METHOD, 1, encode_method(method, delivery_tag=tag, requeue=True)))
    hub.kernel.flush()
    assert taken(other) == [b"new two", b"new three", b"new four"]
    hub.advance(1_000)
    hub.restart()
    assert taken(hub.client()) == [b"new one"]


@pytest.mark.parametrize("consumes", [False, True])
def test_what_is_held_for_minutes_is_settled_in_its_queue(hub: KernelHub, consumes: bool) -> None:
    client = hub.client()
    fill(client, "q", b"held", b"left")
    if consumes:
        client.ask("basic.qos", prefetch_count=1)
        assert delivered(client.ask("basic.consume", queue="q", consumer_tag="c")) == [b"held"]
        client.ask("basic.cancel", consumer_tag="c")
    else:
        assert get(client, "q") == (1, b"held", False)
    for _ in range(10):
        hub.advance(20_000)
    client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=1)))
    for _ in range(10):
        hub.advance(20_000)
    hub.restart()
    assert taken(hub.client()) == [b"left"]


def test_a_queue_that_another_door_deletes_before_its_consumer_is_answered(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"x")
    client.send(frame(METHOD, 1, encode_method("queue.declare", queue="slow", durable=True)))
    client.send(frame(METHOD, 1, encode_method("basic.consume", queue="q", consumer_tag="c")))
    queue = hub.rig.kernel.groups.queue("q")
    assert queue is not None
    hub.rig.kernel.groups.delete_queue(queue)
    hub.kernel.flush()
    assert client.names() == ["queue.declare-ok", "basic.consume-ok", "basic.cancel"]
    assert client.ask("basic.cancel", consumer_tag="c")[0][1] == "basic.cancel-ok"


# ---- what bears this door's number and is not its own

def forge(hub: KernelHub, client: Client, headers: list[tuple[bytes, bytes]]) -> None:
    """The messages 1 and 2 in queue `q`, which say that they came by this door."""
    fill(client, "q")
    kernel = hub.rig.kernel
    queue = kernel.groups.queue("q", "/")
    assert queue is not None
    for value in (b"1", b"2"):
        kernel.append([(kernel.place_queue(queue, 0), value, encode_headers(headers), DOOR, 0)], None)
    hub.rig.run()


@pytest.mark.parametrize("headers", [[], [(b"shown", b"yes")]])
def test_what_has_no_side_of_this_door_is_another_doors_message(hub: KernelHub, headers: list[tuple[bytes, bytes]]
                                                                ) -> None:
    client = hub.client()
    forge(hub, client, headers)
    (_, name, method), (_, _, header), (_, _, body) = client.ask("basic.get", queue="q", no_ack=True)
    assert (name, method["routing_key"], body["body"]) == ("basic.get-ok", "q", b"1")
    assert read(header["raw"]).get("headers", {}).keys() == {name.decode() for name, _ in headers}
    assert consume(client, "q") == [b"2"]


@pytest.mark.parametrize("side", [
    b"", b"\xff", b"\0\xff", b"\0\1q", b"\0\1q\0", b"\0\1q\0\0more", b"\0\1q\0\1", b"\0\1q\x80\0",
    b"\0\1q\x80\0\2a", b"\0\1q\x20\0\0\0\0\1", b"\0\1q\x18\0\2", b"\0\1q\0\x40\0"])
def test_a_side_that_is_none_is_no_side(hub: KernelHub, side: bytes) -> None:
    """A producer of Kafka's may write whatever it likes into a record."""
    client = hub.client()
    forge(hub, client, [(AMQP_HEADER, side)])
    (_, _, method), (_, _, header), (_, _, body) = client.ask("basic.get", queue="q", no_ack=True)
    assert (method["routing_key"], body["body"]) == ("q", b"1") and read(header["raw"])
    assert consume(client, "q") == [b"2"]


def test_headers_that_cannot_be_read_stop_no_dead_letter(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "dead")
    fill(client, "q", **{"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    kernel = hub.rig.kernel
    queue = kernel.groups.queue("q", "/")
    assert queue is not None
    side = b"\0\1q\x20\0\0\0\0\1\xff"
    kernel.append([(kernel.place_queue(queue, 0), b"1", encode_headers([(AMQP_HEADER, side)]), DOOR, 0)], None)
    client.publish("", "q", b"2")
    hub.rig.run()
    hub.advance(1_000)
    assert taken(client, "dead") == [b"1", b"2"]


# ---- journeys

def test_a_followed_message_has_its_trace_context_for_who_takes_it_from_a_queue() -> None:
    hub = Hub(journeys=JourneySettings(rate=1.0), routes=(*OWN_ROUTES, *ROUTES))
    client = hub.client().login()
    client.ask("queue.declare", queue="work", durable=True)
    client.ask("basic.consume", queue="work", consumer_tag="ct", no_ack=True)
    own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    for properties in ({}, {"headers": {"traceparent": text(own)}}, {"correlation_id": "c-1"},
                       {"correlation_id": "c-2", "expiration": "60000", "headers": {"a": text("b")}}):
        client.publish("", "work", b"x", written(properties))
        hub.kernel.flush()
    told = [read(said["raw"]) for _, name, said in client.got() if name == "header"]
    seen = [each["headers"]["traceparent"].value.decode() for each in told]
    hub.advance(1_000)
    stored = [event.nth(at) for record in hub.kernel.records(TOPIC)
              if (event := event_of(record)) is not None and event.kind == EventKind.STORED
              for at in range(max(1, event.rows))]
    assert seen[1] == own and len(set(seen)) == 4
    assert [event.trace_id.hex() for event in stored] == [each[3:35] for each in seen]
    assert [event.correlation_id for event in stored] == [b"", b"", b"c-1", b"c-2"]
    assert [each.get("correlation_id") for each in told] == [None, None, "c-1", "c-2"]


# ---- counts and sizes

def test_a_queue_that_drops_its_head_never_counts_more_than_its_limit(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", *[b"old"] * 3, **{"x-max-length": 2})
    for _ in range(5):
        client.publish("", "q", b"new")                        # on their way in when the queue is asked for
    assert client.ask("queue.declare", queue="q", passive=True)[-1][2]["message_count"] == 2
    hub.kernel.flush()
    assert taken(client) == [b"new", b"new"]


def test_a_queue_that_refuses_counts_what_is_in_it(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q", b"1", b"2", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    assert client.ask("queue.declare", queue="q", passive=True)[-1][2]["message_count"] == 2


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_message_is_that_of_bodies(hub: KernelHub, more: int) -> None:
    client = hub.client()
    fill(client, "q")
    most = hub.services.kernel.settings.max_message_bytes
    client.publish("", "q", bytes(most + more), properties_of(message_id="one", app_id="a" * 200))
    hub.kernel.flush()
    assert closed(client.got()) == ("" if not more else f"PRECONDITION_FAILED - message size {most + 1} is larger than "
                                    f"configured max size {most}")
    if not more:
        assert client.ask("queue.declare", queue="q", passive=True)[-1][2]["message_count"] == 1


def test_properties_that_are_too_large_are_refused_by_the_name_of_the_queue(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q")
    most = hub.services.kernel.settings.max_message_bytes
    table = {f"header-{number}": text("x" * 1000) for number in range(80)}
    client.publish("", "q", bytes(most), properties_of(headers=table))
    hub.kernel.flush()
    assert "is more than $queue/q takes" in closed(client.got())


@pytest.mark.parametrize("refused", [b"x" * 1_000, b"x"])
def test_what_a_closed_channel_has_published_is_told_to_none_that_gets_its_number(hub: KernelHub, refused: bytes
                                                                                  ) -> None:
    client = hub.client()
    client.ask("confirm.select")
    hub.rig.kernel.create_topic("small", settings=TopicSettings(max_message_bytes=100))
    hub.rig.run()
    client.ask("exchange.declare", exchange="small", type="topic")
    client.ask("queue.declare", queue="full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.ask("queue.bind", queue="full", exchange="small", routing_key="#")
    client.publish("small", "k", b"first")
    hub.rig.run()
    client.got()
    client.publish("small", "k", refused)
    client.send(frame(METHOD, 1, encode_method("basic.ack", delivery_tag=99)))
    assert client.got()[-1][1] == "channel.close"
    client.send(frame(METHOD, 1, encode_method("channel.close-ok")) + frame(METHOD, 1, encode_method("channel.open")))
    hub.rig.run()
    assert [name for _, name, _ in client.got()] == ["channel.open-ok"]
    assert client.ask("queue.declare", queue="full", passive=True)[0][1] == "queue.declare-ok"
