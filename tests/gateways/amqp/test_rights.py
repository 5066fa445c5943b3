"""What a client without a right is told, method by method, in RabbitMQ's words; and logins that take their time."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.amqp.codec import METHOD, frame
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.rights import heard_by
from tests.gateways.accounts import KnownUsers
from tests.gateways.amqp.fakes import Client, Got, Hub, publish
from tests.gateways.limiting import set_limit

P, C, M, A = Operation.PUBLISH, Operation.CONSUME, Operation.CREATE, Operation.ALTER
EVERYTHING = object()


class Rules:
    """Allows exactly what it lists; may change while clients are connected."""

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self.allowed: Any = set(allowed)

    def __call__(self, principal: Principal, operation: Operation, address: str) -> bool:
        return self.allowed is EVERYTHING or (operation, address) in self.allowed


def furnished(*allowed: tuple[Operation, str]) -> tuple[Hub, Client, Rules]:
    """A hub with the exchanges `plant` (topic), `fan` (fanout), `direct` and `inside` (internal) and the queue `work`,
    and a client with these rights."""
    rules = Rules()
    rules.allowed = EVERYTHING
    hub = Hub(decision=rules)
    owner = hub.client().login()
    owner.ask("exchange.declare", exchange="plant", type="topic")
    owner.ask("exchange.declare", exchange="fan", type="fanout")
    owner.ask("exchange.declare", exchange="direct", type="direct")
    owner.ask("exchange.declare", exchange="inside", type="topic", internal=True)
    owner.ask("queue.declare", queue="work")
    hub.kernel.create_topic("plant")
    hub.kernel.flush()
    rules.allowed = set(allowed)
    client = hub.client().login()
    return hub, client, rules


def refusal(got: list[Got]) -> str:
    """The text of a channel.close with 403; "" where the channel lives."""
    for _, name, arguments in got:
        if name == "channel.close":
            assert arguments["code"] == 403, arguments
            return str(arguments["text"])
    return ""


TABLE: list[tuple[str, dict[str, Any], tuple[tuple[Operation, str], ...], str]] = [
    ("exchange.declare", {"exchange": "new", "type": "topic"}, ((M, "new"),), "configure access to exchange 'new'"),
    ("exchange.declare", {"exchange": "new", "type": "topic", "arguments": {"alternate-exchange": "fan"}},
     ((M, "new"), (A, "fan")), "configure access to exchange 'new'"),
    ("exchange.declare", {"exchange": "plant", "type": "topic"}, ((P, "plant/#"),),
     "configure access to exchange 'plant'"),
    ("exchange.declare", {"exchange": "plant", "passive": True}, ((C, "plant/#"),),
     "read access to exchange 'plant'"),
    ("exchange.declare", {"exchange": "amq.topic", "passive": True}, (), ""),
    ("exchange.delete", {"exchange": "plant"}, ((A, "plant"),), "configure access to exchange 'plant'"),
    ("exchange.bind", {"source": "plant", "destination": "fan", "routing_key": "a.#"}, ((A, "fan"), (C, "plant/a/#")),
     "write access to exchange 'fan'"),
    ("exchange.unbind", {"source": "plant", "destination": "fan", "routing_key": "a.#"},
     ((A, "fan"), (C, "plant/a/#")), "write access to exchange 'fan'"),
    ("queue.declare", {"queue": "new"}, ((M, "$queue/new"),), "configure access to queue 'new'"),
    ("queue.declare", {"queue": "mine", "exclusive": True}, ((M, "$queue/mine"),), "configure access to queue 'mine'"),
    ("queue.declare", {"exclusive": True}, (), ""),
    ("queue.declare", {}, None, "configure access to queue 'amq.gen-"),  # type: ignore[list-item]
    ("queue.declare", {"queue": "work"}, ((C, "$queue/work"),), "configure access to queue 'work'"),
    ("queue.declare", {"queue": "work", "passive": True}, ((P, "$queue/work"),), "read access to queue 'work'"),
    ("queue.declare", {"exclusive": True, "arguments": {"x-dead-letter-exchange": "plant"}}, ((A, "plant"),),
     "write access to exchange 'plant'"),
    ("queue.declare", {"exclusive": True, "arguments": {"x-dead-letter-exchange": "",
                                                        "x-dead-letter-routing-key": "work"}},
     ((P, "$queue/work"),), "write access to queue 'work'"),
    ("queue.delete", {"queue": "work"}, ((A, "$queue/work"),), "configure access to queue 'work'"),
    ("queue.purge", {"queue": "work"}, ((C, "$queue/work"),), "read access to queue 'work'"),
    ("queue.bind", {"queue": "work", "exchange": "plant", "routing_key": "*.temp"},
     ((P, "$queue/work"), (C, "plant/+/temp")), "write access to queue 'work'"),
    ("queue.bind", {"queue": "work", "exchange": "amq.topic", "routing_key": "#"}, ((P, "$queue/work"), (C, "#")),
     "write access to queue 'work'"),
    ("queue.bind", {"queue": "work", "exchange": "fan"}, ((P, "$queue/work"), (C, "fan/#")),
     "write access to queue 'work'"),
    ("queue.unbind", {"queue": "work", "exchange": "plant", "routing_key": "x"}, ((P, "$queue/work"),),
     "write access to queue 'work'"),
    ("basic.consume", {"queue": "work"}, ((C, "$queue/work"),), "read access to queue 'work'"),
    ("basic.get", {"queue": "work"}, ((C, "$queue/work"),), "read access to queue 'work'"),
]


@pytest.mark.parametrize(("method", "arguments", "needed", "text"), TABLE)
def test_a_method_and_the_rights_that_it_takes(method: str, arguments: dict[str, Any],
                                               needed: tuple[tuple[Operation, str], ...] | None, text: str) -> None:
    _, client, _ = furnished()
    told = refusal(client.ask(method, **arguments))
    assert told.startswith(f"ACCESS_REFUSED - {text}") if text else not told
    if not text or needed is None:
        return
    assert told.endswith("in vhost '/' refused for user 'anonymous'")
    _, allowed, _ = furnished(*needed)
    assert refusal(allowed.ask(method, **arguments)) == ""
    for one in needed if len(needed) > 1 else ():
        _, short, _ = furnished(*(other for other in needed if other != one))
        assert refusal(short.ask(method, **arguments)), f"it was allowed without {one}"


@pytest.mark.parametrize(("exchange", "key", "address", "text"), [
    ("plant", "a.temp", "plant/a/temp", "write access to topic 'a.temp' in exchange 'plant'"),
    ("amq.topic", "plant.a", "plant/a", "write access to topic 'plant.a' in exchange 'amq.topic'"),
    ("", "work", "$queue/work", "write access to queue 'work'")])
@pytest.mark.parametrize("mandatory", [False, True])
def test_a_publish(exchange: str, key: str, address: str, text: str, mandatory: bool) -> None:
    """403 comes before NO_ROUTE, and what came before it on the channel stands."""
    hub, client, _ = furnished()
    client.publish(exchange, key, b"no", mandatory=mandatory)
    hub.kernel.flush()
    (_, name, told), = client.got()
    assert (name, told["code"], told["method_id"]) == ("channel.close", 403, 40)
    assert told["text"] == f"ACCESS_REFUSED - {text} in vhost '/' refused for user 'anonymous'"
    _, allowed, _ = furnished((P, address))
    allowed.publish(exchange, key, b"yes", mandatory=mandatory)
    assert "channel.close" not in allowed.names()


@pytest.mark.parametrize(("method", "arguments"), [
    ("queue.declare", {"passive": True}), ("queue.declare", {}), ("queue.declare", {"durable": True}),
    ("queue.declare", {"arguments": {"x-max-length": 7}}), ("queue.delete", {}), ("queue.purge", {}),
    ("queue.bind", {"exchange": "plant", "routing_key": "a"}), ("basic.get", {}), ("basic.consume", {})])
def test_who_has_no_right_to_a_queue_does_not_learn_whether_it_is_there(method: str, arguments: dict[str, Any]) -> None:
    said = set()
    for name in ("work", "none"):
        _, client, _ = furnished()
        said.add(refusal(client.ask(method, queue=name, **arguments)).replace(name, "NAME"))
    assert len(said) == 1 and "" not in said


@pytest.mark.parametrize(("method", "arguments"), [
    ("exchange.declare", {"exchange": "NAME", "passive": True}), ("exchange.declare", {"exchange": "NAME"}),
    ("exchange.declare", {"exchange": "NAME", "type": "topic"}),
    ("exchange.declare", {"exchange": "NAME", "type": "topic", "durable": True}),
    ("exchange.delete", {"exchange": "NAME"}),
    ("exchange.bind", {"source": "NAME", "destination": "amq.topic"}),
    ("exchange.bind", {"source": "amq.topic", "destination": "NAME"}),
    ("exchange.unbind", {"source": "NAME", "destination": "amq.topic"}),
    ("exchange.unbind", {"source": "amq.topic", "destination": "NAME"}),
    ("queue.bind", {"queue": "own", "exchange": "NAME"}),
    ("queue.bind", {"queue": "own", "exchange": "NAME", "routing_key": ".".join("x" * 128)}),
    ("basic.publish", {"key": "a"}), ("basic.publish", {"key": ".".join("x" * 128)}), ("basic.publish", {"key": "#"})])
@pytest.mark.parametrize("there", ["plant", "fan", "direct", "inside"])
def test_who_has_no_right_to_an_exchange_does_not_learn_whether_it_is_there(method: str, arguments: dict[str, Any],
                                                                            there: str) -> None:
    said = set()
    for name in (there, "none"):
        named = {key: name if value == "NAME" else value for key, value in arguments.items()}
        _, client, _ = furnished((M, "$queue/own"), (A, "amq.topic"), (C, "amq.topic"), (C, "#"))
        client.ask("queue.declare", queue="own", exclusive=True)
        if method == "basic.publish":
            client.publish(name, arguments["key"], b"x")
            told = client.got()
        else:
            told = client.ask(method, **named)
        said.add(refusal(told).replace(name, "NAME"))
    assert len(said) == 1 and "" not in said


def test_who_has_a_right_to_an_exchange_is_told_that_it_is_not_there() -> None:
    for method, arguments in (("exchange.declare", {"exchange": "none", "passive": True}),
                              ("queue.bind", {"queue": "own", "exchange": "none", "routing_key": "a"})):
        _, client, _ = furnished((M, "$queue/own"), (C, "none/#"))
        client.ask("queue.declare", queue="own", exclusive=True)
        (_, _, told), = client.ask(method, **arguments)
        assert told["text"] == "NOT_FOUND - no exchange 'none' in vhost '/'"


@pytest.mark.parametrize(("method", "arguments"), [
    ("queue.declare", {"passive": True}), ("queue.declare", {}), ("queue.declare", {"exclusive": True}),
    ("queue.delete", {}), ("queue.purge", {}), ("queue.bind", {"exchange": "amq.topic", "routing_key": "a"}),
    ("queue.unbind", {"exchange": "amq.topic", "routing_key": "a"}), ("basic.get", {}), ("basic.consume", {})])
@pytest.mark.parametrize("there", ["work", "locked"])
def test_nor_of_a_queue_that_is_another_connections(method: str, arguments: dict[str, Any], there: str) -> None:
    said = set()
    for name in (there, "none"):
        hub, client, rules = furnished()
        rules.allowed = EVERYTHING
        owner = hub.client().login()
        owner.ask("queue.declare", queue="locked", exclusive=True)
        rules.allowed = set()
        said.add(refusal(client.ask(method, queue=name, **arguments)).replace(name, "NAME"))
    assert len(said) == 1 and "" not in said


def test_a_queue_of_a_generated_name_that_is_gone_is_not_found() -> None:
    """Nobody guesses such a name, and clients expect to be told so of their own."""
    _, client, _ = furnished()
    told = client.ask("basic.get", queue="amq.gen-abc")
    assert [arguments["code"] for _, name, arguments in told if name == "channel.close"] == [404]


def test_copies_need_their_own_right() -> None:
    """RabbitMQ looks at the first routing key alone; a copy would be a way round a right."""
    from gatehouse.gateways.amqp.tables import encode_table
    from tests.gateways.amqp.fakes import typed

    table = encode_table({"CC": typed(["secret"])})                      # type: ignore[dict-item]
    raw = b"\x20\0" + table
    _, client, rules = furnished((P, "plant/a"))
    client.publish("plant", "a", b"x", raw)
    assert "topic 'secret' in exchange 'plant'" in refusal(client.got())
    _, allowed, _ = furnished((P, "plant/a"), (P, "plant/secret"))
    allowed.publish("plant", "a", b"x", raw)
    assert refusal(allowed.got()) == ""


def test_what_is_routed_by_memory_is_judged_anew_when_rights_change() -> None:
    hub, client, rules = furnished((P, "plant/a"))
    client.publish("plant", "a", b"1")
    client.publish("plant", "a", b"2")
    assert client.got() == []
    rules.allowed = set()
    client.session.on_rights_changed()                                   # type: ignore[attr-defined]
    client.publish("plant", "a", b"3")
    assert refusal(client.got())


def test_consumers_end_with_their_right_and_are_told() -> None:
    hub, client, rules = furnished((C, "$queue/work"), (P, "$queue/work"))
    client.ask("basic.consume", queue="work", consumer_tag="t")
    rules.allowed = {(P, "$queue/work")}
    client.session.on_rights_changed()                                   # type: ignore[attr-defined]
    assert [(name, arguments["consumer_tag"]) for _, name, arguments in client.got()] == [("basic.cancel", "t")]
    client.publish("", "work", b"x")
    hub.kernel.flush()
    assert client.names() == []


def test_a_get_that_waits_for_a_limit_ends_with_its_right_too() -> None:
    hub, client, rules = furnished((C, "$queue/work"), (P, "$queue/work"))
    for _ in range(3):
        client.publish("", "work", b"x")
    set_limit(hub, "consumers:work", direction="out", messages_per_s=1)
    answers = [client.ask("basic.get", queue="work", no_ack=True) for _ in range(3)]
    assert [answer[0][1] for answer in answers if answer] == ["basic.get-ok"] * 2
    rules.allowed = {(P, "$queue/work")}
    client.session.on_rights_changed()                                   # type: ignore[attr-defined]
    assert client.names() == ["basic.get-empty"]


def test_an_own_queue_keeps_only_what_may_still_be_heard() -> None:
    hub, client, rules = furnished((C, "plant/a"), (C, "plant/b"))
    name = client.ask("queue.declare", exclusive=True)[0][2]["queue"]
    for key in ("a", "b"):
        assert refusal(client.ask("queue.bind", queue=name, exchange="plant", routing_key=key)) == ""
    rules.allowed = {(C, "plant/b")}
    client.session.on_rights_changed()                                   # type: ignore[attr-defined]
    vhost = hub.broker.vhost("/")
    assert [one.routing_key for one in vhost.bindings_to(vhost.queues[name])] == ["b"]
    assert client.ask("queue.delete", queue=name)[0][1] == "queue.delete-ok", "it is the connection's own"


@pytest.mark.parametrize(("exchange", "kind", "key", "heard"), [
    ("plant", "topic", "a.*.#", "plant/a/+/#"), ("amq.topic", "topic", "#", "#"),
    ("amq.topic", "topic", "", "amq.topic"),
    ("d", "direct", "a.#", "d/a/%23"), ("f", "fanout", "whatever", "f/#"), ("h", "headers", "", "h/#"),
    ("a/b", "topic", "x", "a%2Fb/x")])
def test_what_a_binding_can_bring(exchange: str, kind: str, key: str, heard: str) -> None:
    assert heard_by(exchange, kind, key) == heard


# ---- logins

def hub_with_users(**options: Any) -> tuple[Hub, KnownUsers]:
    hub = Hub()
    admission = KnownUsers(hub.kernel, hub.now_ms, decision=lambda *_: True, **options)
    hub.admission = hub.services.admission = admission
    return hub, admission


def start(hub: Hub, mechanism: str, response: bytes, certificate: str | None = None) -> tuple[Client, list[Got]]:
    client = hub.client()
    client.link.certificate = certificate
    client.send(b"AMQP\0\0\x09\x01")
    offered = client.got()[0][2]["mechanisms"]
    anonymous = b" ANONYMOUS" * hub.admission.allow_anonymous
    assert offered == (b"PLAIN AMQPLAIN EXTERNAL" if certificate else b"PLAIN AMQPLAIN") + anonymous
    properties = {"capabilities": _capabilities()}
    return client, client.ask("connection.start-ok", 0, client_properties=properties, mechanism=mechanism,
                              response=response)


def _capabilities() -> Any:
    from tests.gateways.amqp.fakes import typed
    return typed({"authentication_failure_close": True})


AMQPLAIN = b"\x05LOGINS\0\0\0\x03ada\x08PASSWORDS\0\0\0\x08lovelace"


@pytest.mark.parametrize(("mechanism", "response", "certificate"), [
    ("PLAIN", b"\0ada\0lovelace", None), ("AMQPLAIN", AMQPLAIN, None), ("EXTERNAL", b"", "ada")])
def test_who_logs_in(mechanism: str, response: bytes, certificate: str | None) -> None:
    hub, admission = hub_with_users()
    client, got = start(hub, mechanism, response, certificate)
    assert got[0][1] == "connection.tune"
    assert client.session.describe()["user"] == "ada"


def test_a_login_by_certificate_ends_with_it() -> None:
    hub, admission = hub_with_users()
    client = hub.client()
    client.link.certificate, client.link.certificate_ends_ms = "ada", 123_000
    client.send(b"AMQP\0\0\x09\x01")
    client.got()
    got = client.ask("connection.start-ok", 0, client_properties={}, mechanism="EXTERNAL", response=b"")
    assert got[0][1] == "connection.tune"
    assert admission.asked[0].certificate_ends_ms == 123_000


@pytest.mark.parametrize(("mechanism", "response", "certificate", "code"), [
    ("PLAIN", b"\0ada\0babbage", None, 403), ("EXTERNAL", b"", "eve", 403), ("EXTERNAL", b"", None, 530),
    ("PLAIN", b"\0guest\0guest", None, 403)])
def test_who_does_not(mechanism: str, response: bytes, certificate: str | None, code: int) -> None:
    hub, _ = hub_with_users()
    client, got = start(hub, mechanism, response, certificate)
    assert (got[0][1], got[0][2]["code"]) == ("connection.close", code)
    if code == 403:
        assert got[0][2]["text"] == (f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. "
                                     "For details see the broker logfile.")
    assert "babbage" not in client.link.reason


def test_where_too_many_wait_a_client_is_told_to_come_again() -> None:
    hub, admission = hub_with_users()
    admission.full = True
    client, got = start(hub, "PLAIN", b"\0ada\0lovelace")
    assert (got[0][1], got[0][2]["code"]) == ("connection.close", 506)
    assert got[0][2]["text"].startswith("RESOURCE_ERROR - too many logins wait")


def test_who_has_hung_up_is_gone_for_admission() -> None:
    hub, admission = hub_with_users()
    admission.late = True
    client, _ = start(hub, "PLAIN", b"\0ada\0lovelace")
    gone, = admission.gone
    assert not gone()
    client.link.gone = True
    assert gone()


def test_a_client_that_is_being_checked_is_not_read_and_what_it_sent_is_not_lost() -> None:
    from gatehouse.gateways.amqp import codec
    from gatehouse.gateways.amqp.methods import encode_method

    hub, admission = hub_with_users()
    admission.late = True
    client, got = start(hub, "PLAIN", b"\0ada\0lovelace")
    assert got == [] and client.link.paused
    client.send(codec.frame(codec.METHOD, 0, encode_method("connection.tune-ok", frame_max=4096, channel_max=5)))
    client.send(codec.frame(codec.METHOD, 0, encode_method("connection.open", virtual_host="/")))
    assert client.got() == []
    admission.tell()
    assert [name for _, name, _ in client.got()] == ["connection.tune", "connection.open-ok"]
    assert not client.link.paused


def test_a_client_that_goes_while_it_is_checked() -> None:
    hub, admission = hub_with_users()
    admission.late = True
    client, _ = start(hub, "PLAIN", b"\0ada\0lovelace")
    hub.cut(client.session)
    admission.tell()
    assert admission.registered == []


@pytest.mark.parametrize("opened", [True, False])
def test_a_user_that_is_ended_is_told_320(opened: bool) -> None:
    """Also one that has logged in and takes its time to open the connection."""
    hub, admission = hub_with_users()
    client, _ = start(hub, "PLAIN", b"\0ada\0lovelace")
    client.ask("connection.tune-ok", 0, frame_max=4096, channel_max=5)
    if opened:
        client.ask("connection.open", 0, virtual_host="/")
    _, session = admission.registered[-1]
    session.on_principal_ended("the user is disabled")
    (_, name, told), = client.got()
    assert (name, told["code"]) == ("connection.close", 320)
    assert told["text"] == "CONNECTION_FORCED - the user is disabled"
    client.ask("connection.close-ok", 0)
    assert client.link.closed


# ---- a new secret

def logged_in(**options: Any) -> tuple[Hub, KnownUsers, Client]:
    hub, admission = hub_with_users(**options)
    client, _ = start(hub, "PLAIN", b"\0ada\0lovelace")
    client.ask("connection.tune-ok", 0, frame_max=4096, channel_max=5)
    client.ask("connection.open", 0, virtual_host="/")
    client.ask("channel.open")
    return hub, admission, client


def test_a_new_secret_is_a_login_of_the_same_user_and_ends_when_that_does() -> None:
    hub, admission, client = logged_in()
    admission.passwords["ada"] = "babbage"
    admission.expires_ms = 77_000
    assert client.ask("connection.update-secret", 0, secret=b"babbage", reason="renewed") \
        == [(0, "connection.update-secret-ok", {})]
    (before, _), (after, session) = admission.registered[-2:]
    assert (before.expires_ms, after.expires_ms) == (0, 77_000) and session is client.session
    assert admission.statistics()["registrations"] == 1, "it has left the registration that it had"
    assert (admission.asked[-1].user, admission.asked[-1].password) == ("ada", "babbage")
    assert client.ask("queue.declare", queue="q")[0][1] == "queue.declare-ok"


def test_what_the_new_secret_does_not_allow_ends() -> None:
    hub, admission, client = logged_in()
    client.ask("queue.declare", queue="work")
    client.ask("basic.consume", queue="work", consumer_tag="t")
    admission.expires_ms = 1
    admission._decide = lambda principal, *_: principal.expires_ms == 0       # type: ignore[attr-defined]
    told = client.ask("connection.update-secret", 0, secret=b"lovelace", reason="renewed")
    assert [name for _, name, _ in told] == ["connection.update-secret-ok"]
    assert hub.broker.vhost("/").queues["work"].consumers == []
    client.publish("", "work", b"x")
    assert refusal(client.got()).startswith("ACCESS_REFUSED - write access to queue 'work'")


@pytest.mark.parametrize("secret", [b"babbage", b"builder", b"", b"\xff"])
def test_a_secret_that_is_none_of_this_user_ends_the_connection(secret: bytes) -> None:
    _, _, client = logged_in()
    (_, name, told), = client.ask("connection.update-secret", 0, secret=secret, reason="renewed")
    assert (name, told["code"], told["class_id"], told["method_id"]) == ("connection.close", 530, 10, 70)
    assert told["text"] == "NOT_ALLOWED - New secret was refused by one of the backends"


def test_a_token_of_another_user_is_none_of_this_ones() -> None:
    hub, admission, client = logged_in()
    admission._answer = lambda shown: Principal("bob")                        # type: ignore[method-assign]
    (_, name, told), = client.ask("connection.update-secret", 0, secret=b"bobs token", reason="renewed")
    assert (name, told["code"]) == ("connection.close", 530)


def test_what_comes_behind_a_new_secret_waits_until_it_is_known() -> None:
    hub, admission, client = logged_in()
    admission.late = True
    assert client.ask("connection.update-secret", 0, secret=b"lovelace", reason="renewed") == []
    assert client.link.paused
    assert client.ask("queue.declare", queue="q") == []
    admission.tell()
    hub.advance(1)
    hub.kernel.flush()
    assert [name for _, name, _ in client.got()] == ["connection.update-secret-ok", "queue.declare-ok"]
    assert not client.link.paused


def test_what_came_before_a_new_secret_is_published_however_soon_that_is_known() -> None:
    hub, _, client = logged_in()
    client.ask("queue.declare", queue="q")
    client.publish("", "q", b"0")
    renewed = encode_method("connection.update-secret", secret=b"lovelace", reason="renewed")
    client.send(publish("", "q", b"1") + frame(METHOD, 0, renewed) + publish("", "q", b"2"))
    hub.kernel.flush()
    assert [name for _, name, _ in client.got()] == ["connection.update-secret-ok"]
    assert hub.ready("q") == [b"0", b"1", b"2"]


def test_a_client_that_goes_while_its_new_secret_is_checked() -> None:
    hub, admission, client = logged_in()
    admission.late = True
    client.ask("connection.update-secret", 0, secret=b"lovelace", reason="renewed")
    hub.cut(client.session)
    admission.tell()
    assert len(admission.registered) == 2, "as it logged in, and as it entered its virtual host"
    assert admission.statistics()["registrations"] == 0
