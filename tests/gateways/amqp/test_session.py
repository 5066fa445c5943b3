"""Connections and channels as machines: bytes in, bytes out, a clock that stands still."""
from __future__ import annotations

import pytest

from gatehouse.gateways.amqp import codec, properties
from gatehouse.gateways.amqp.config import AmqpConfig, connection_settings
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.tables import encode_table, text, typed
from gatehouse.gateways.door_side import FLOOR_BYTES
from gatehouse.kernel.log.log import LogFull
from tests.gateways.amqp.fakes import Client, Hub, publish


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def client(hub: Hub) -> Client:
    return hub.client().login()


def refused(client: Client, scope: str, code: int) -> str:
    """The text of the refusal that came last."""
    channel, name, arguments = client.got()[-1]
    assert (name, arguments["code"], channel) == (f"{scope}.close", code, 1 if scope == "channel" else 0)
    return str(arguments["text"])


# ---- opening --------------------------------------------------------------------------------------------------------

def test_start_names_what_clients_look_for(hub: Hub) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    (_, name, arguments), = client.got()
    assert (name, arguments["major"], arguments["minor"], arguments["mechanisms"]) == (
        "connection.start", 0, 9, b"PLAIN AMQPLAIN ANONYMOUS")
    capabilities = arguments["server_properties"]["capabilities"].value
    assert {"basic.nack", "consumer_cancel_notify", "connection.blocked", "publisher_confirms",
            "exchange_exchange_bindings"} <= capabilities.keys()


@pytest.mark.parametrize("data", [b"HTTP/1.1", b"AMQP\0\0\x09\x02", b"AMQP\1\1\0\x0a", b"\0"])
def test_another_protocol_is_told_ours(hub: Hub, data: bytes) -> None:
    client = hub.client()
    client.send(data)
    assert client.link.take() == b"AMQP\0\0\x09\x01"
    assert client.link.closed


def test_amqplain(hub: Hub) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    login = encode_table({"LOGIN": text("guest"), "PASSWORD": text("guest")})[4:]
    assert client.ask("connection.start-ok", 0, mechanism="AMQPLAIN", response=login)[-1][1] == "connection.tune"


@pytest.mark.parametrize("trace", [b"", b"sirhc@example.org"])
def test_who_asks_to_be_anonymous_is(hub: Hub, trace: bytes) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    assert client.ask("connection.start-ok", 0, mechanism="ANONYMOUS", response=trace)[-1][1] == "connection.tune"
    assert client.session.describe()["user"] == "anonymous"


def test_who_asks_to_be_anonymous_where_nobody_is() -> None:
    hub = Hub(allow_anonymous=False)
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    assert client.got()[0][2]["mechanisms"] == b"PLAIN AMQPLAIN"
    properties = {"capabilities": typed({"authentication_failure_close": True})}
    got = client.ask("connection.start-ok", 0, client_properties=properties, mechanism="ANONYMOUS", response=b"")
    assert (got[0][1], got[0][2]["code"]) == ("connection.close", 403)


@pytest.mark.parametrize("capable", [True, False])
def test_a_wrong_password(hub: Hub, capable: bool) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    client.got()
    properties = {"capabilities": flag_table(authentication_failure_close=capable)}
    got = client.ask("connection.start-ok", 0, client_properties=properties, mechanism="PLAIN",
                     response=b"\0guest\0wrong")
    if capable:
        assert (got[-1][2]["code"], got[-1][2]["text"][:32]) == (403, "ACCESS_REFUSED - Login was refus")
        assert not client.link.closed
        client.ask("connection.close-ok", 0)
    assert client.link.closed


@pytest.mark.parametrize("answers", [True, False])
def test_a_refused_login_leaves_a_line_in_the_log(hub: Hub, caplog: pytest.LogCaptureFixture, answers: bool) -> None:
    """The text that the client is given sends people there. Who answers is logged by whoever closes its connection."""
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    properties = {"capabilities": flag_table(authentication_failure_close=True)}
    client.ask("connection.start-ok", 0, client_properties=properties, mechanism="PLAIN", response=b"\0ann\0secret")
    with caplog.at_level("INFO", "gatehouse.gateways"):
        if answers:
            client.ask("connection.close-ok", 0)
        else:
            client.session.handle_closed()
    said = client.link.reason if answers else caplog.text
    assert "connect_refused: 'ann' by PLAIN" in said and "secret" not in said


def flag_table(**flags: bool) -> object:
    return typed(flags)


@pytest.mark.parametrize(("wish", "code"), [
    ({"frame_max": 4095}, 530), ({"frame_max": 131_073}, 530), ({"channel_max": 2048}, 530),
    ({"frame_max": 0, "channel_max": 0}, 0), ({"frame_max": 4096, "channel_max": 1}, 0),
])
def test_what_a_client_may_tune(hub: Hub, wish: dict[str, int], code: int) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    client.ask("connection.start-ok", 0, mechanism="PLAIN", response=b"\0guest\0guest")
    got = client.ask("connection.tune-ok", 0, **{"frame_max": 4096, "channel_max": 5, **wish})
    assert (got[0][2]["code"] if got else 0) == code


def test_a_virtual_host_that_is_not_there(hub: Hub) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    client.ask("connection.start-ok", 0, mechanism="PLAIN", response=b"\0guest\0guest")
    client.ask("connection.tune-ok", 0)
    got = client.ask("connection.open", 0, virtual_host="other")
    assert got[-1][2]["text"] == "NOT_ALLOWED - access to vhost 'other' refused for user 'anonymous'"


def test_a_connection_that_never_opens_is_closed(hub: Hub) -> None:
    client = hub.client()
    client.send(b"AMQP\0\0\x09\x01")
    hub.advance(10_000)
    assert (client.link.closed, client.link.reason) == (True, "handshake_timeout")


# ---- heartbeats -----------------------------------------------------------------------------------------------------

def test_heartbeats_both_ways(hub: Hub) -> None:
    client = hub.client().login(heartbeat=10)
    hub.advance(5_000)
    assert client.link.take() == codec.HEARTBEAT_FRAME
    for _ in range(5):
        client.send(codec.HEARTBEAT_FRAME)
        hub.advance(9_000)
    assert not client.link.closed
    hub.advance(20_000)
    assert client.link.closed
    assert client.link.reason.startswith("heartbeat_timeout")


@pytest.mark.parametrize(("unsent_bytes", "ends"), [(1, True), (FLOOR_BYTES + 1, False)])
def test_only_who_is_not_read_is_excused(hub: Hub, unsent_bytes: int, ends: bool) -> None:
    """Who hangs and leaves a little untaken would live for ever, with all that it has not acknowledged."""
    client = hub.client().login(heartbeat=10)
    client.link.stalled = True
    client.link.write(bytes(unsent_bytes))
    hub.advance(30_000)
    assert client.link.closed is ends
    client.link.drain(client.session)
    hub.advance(30_000)
    assert client.link.closed and client.link.reason.startswith("heartbeat_timeout")


def test_without_heartbeats_silence_is_no_end(hub: Hub, client: Client) -> None:
    hub.advance(3_600_000)
    assert not client.link.closed
    assert client.link.take() == b""


# ---- frames ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("data", "code"), [
    (codec.frame(codec.METHOD, 1, encode_method("basic.qos"))[:-1] + b"\0", 501),
    (b"\x01\0\1\0\2\0\1" + b"x" * 131_073 + b"\xce", 501),
    (codec.frame(9, 1, b""), 501),
    (codec.frame(codec.HEARTBEAT, 1, b""), 505),
    (codec.frame(codec.METHOD, 1, b"\0\x3c\0\x63"), 502),
    (codec.frame(codec.METHOD, 1, b"\0\x3c"), 502),
    (codec.frame(codec.HEADER, 1, bytes(14)), 505),
    (codec.frame(codec.BODY, 1, b"x"), 505),
    (codec.frame(codec.BODY, 0, b"x"), 505),
    (publish("", "q", b"")[:-22] + codec.frame(codec.METHOD, 1, encode_method("basic.qos")), 505),
    (publish("", "q", b"xy")[:-1] + b"z", 501),
    (codec.frame(codec.METHOD, 1, encode_method("channel.open")), 504),
    (codec.frame(codec.METHOD, 7, encode_method("basic.qos")), 504),
    (codec.frame(codec.METHOD, 1, encode_method("channel.flow")), 540),
    (publish("", "q", b"x", immediate=True), 540),
    (codec.frame(codec.METHOD, 0, encode_method("connection.open")), 504),
])
def test_faults_that_end_the_connection(client: Client, data: bytes, code: int) -> None:
    client.send(data)
    refused(client, "connection", code)
    assert not client.link.closed, "it is still sending, perhaps: a closed socket would be reset"
    client.send(b"\xce")
    client.ask("connection.close-ok", 0)
    assert client.link.closed


@pytest.mark.parametrize("together", [False, True])
def test_what_came_before_a_fault_counts_whatever_it_came_with(hub: Hub, client: Client, together: bool) -> None:
    client.ask("queue.declare", queue="q")
    client.publish("", "q", b"0")
    hub.kernel.flush()
    got = client.ask("basic.get", queue="q")[0][2]
    acknowledged = codec.frame(codec.METHOD, 1, encode_method("basic.ack", delivery_tag=got["delivery_tag"]))
    parts = [publish("", "q", b"1") + acknowledged, publish("", "q", b"2", immediate=True)]
    for data in [b"".join(parts)] if together else parts:
        client.send(data)
    hub.kernel.flush()
    assert client.got()[0][2]["code"] == 540
    client.ask("connection.close-ok", 0)
    assert hub.ready("q") == [b"1"]


def test_after_a_fault_nothing_counts_but_the_answer(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.send(codec.frame(codec.METHOD, 1, encode_method("channel.flow")))
    client.got()
    client.publish("", "q", b"x")
    assert not client.link.closed
    client.ask("connection.close-ok", 0)
    assert client.link.closed
    assert hub.ready("q") == []


def test_a_client_that_does_not_answer_the_end_is_left(hub: Hub, client: Client) -> None:
    client.send(codec.frame(codec.METHOD, 1, encode_method("channel.flow")))
    assert not client.link.closed
    hub.advance(3_000)
    assert client.link.closed


def test_a_client_that_goes_on_sending_is_read_until_it_answers_the_end(hub: Hub, client: Client) -> None:
    client.send(codec.frame(codec.METHOD, 1, encode_method("channel.flow")))
    for _ in range(9):
        hub.advance(2_900)
        client.publish("", "q", b"x" * 5_000)
        assert not client.link.closed and not client.link.paused
    client.ask("connection.close-ok", 0)
    assert client.link.closed


def test_but_not_for_ever(hub: Hub, client: Client) -> None:
    client.send(codec.frame(codec.METHOD, 1, encode_method("channel.flow")))
    for _ in range(30):
        hub.advance(1_000)
        client.publish("", "q", b"x")
    assert client.link.closed
    assert client.link.reason.startswith("close_timeout")


def test_a_client_that_asked_to_close_is_left_to_hang_up(hub: Hub, client: Client) -> None:
    """Closed at once, the socket would be reset by what comes behind, and the answer be lost with it."""
    client.ask("queue.declare", queue="q")
    assert [name for _, name, _ in client.ask("connection.close", 0)] == ["connection.close-ok"]
    client.ask("connection.close", 0)
    client.publish("", "q", b"x")
    assert (client.got(), client.link.closed) == ([], False)
    client.session.handle_closed()
    assert hub.ready("q") == []


def test_and_no_longer_than_that_takes(hub: Hub, client: Client) -> None:
    client.ask("connection.close", 0)
    hub.advance(499)
    assert not client.link.closed
    hub.advance(1)
    assert (client.link.closed, client.link.reason) == (True, "")


def test_a_client_that_waits_for_its_quota_is_read_when_it_is_to_go(hub: Hub, client: Client) -> None:
    client.session._pacer.pause_until(hub.now_ms() + 60_000)  # type: ignore[attr-defined]
    client.session.on_principal_ended("the user is disabled")  # type: ignore[attr-defined]
    assert not client.link.paused
    client.ask("connection.close-ok", 0)
    assert client.link.closed


def test_a_refused_channel_can_be_opened_again(client: Client) -> None:
    client.send(codec.frame(codec.METHOD, 1, encode_method("queue.declare", queue="nix", passive=True)))
    assert refused(client, "channel", 404) == "NOT_FOUND - no queue 'nix' in vhost '/'"
    assert client.ask("queue.declare", queue="q") == []                   # not listened to
    assert client.ask("channel.close-ok") == []
    assert client.ask("channel.open")[0][1] == "channel.open-ok"
    assert client.ask("queue.declare", queue="q")[0][1] == "queue.declare-ok"


def test_channels_are_counted(hub: Hub) -> None:
    """Whatever their numbers are; as RabbitMQ does."""
    client = hub.client(AmqpConfig(channel_max=2047)).login(channels=2047)
    client.ask("channel.close", 2)
    assert client.ask("channel.open", 65_535)[0][1] == "channel.open-ok"
    closed = client.ask("channel.open", 2)[-1][2]
    assert (closed["code"], closed["text"]) == (
        530, "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)")


# ---- publishing -----------------------------------------------------------------------------------------------------

def test_confirms_come_when_it_is_durable_and_stand_for_all_before(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("confirm.select")
    for body in (b"1", b"2", b"3"):
        client.publish("", "q", body)
    assert client.got() == []
    hub.kernel.flush()
    assert client.got() == [(1, "basic.ack", {"delivery_tag": 3, "multiple": True})]
    client.publish("", "nobody", b"4")
    client.publish("", "q", b"5")
    assert client.got() == [(1, "basic.ack", {"delivery_tag": 4, "multiple": False})]
    hub.kernel.flush()
    assert client.got() == [(1, "basic.ack", {"delivery_tag": 5, "multiple": True})]


def test_without_confirms_nothing_is_answered(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.publish("", "q", b"1")
    hub.kernel.flush()
    assert client.got() == []


def test_what_the_disk_does_not_take_is_refused(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("confirm.select")
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    hub.log.fault = LogFull("no space")
    hub.kernel.flush()
    assert client.got() == [(1, "basic.nack", {"delivery_tag": 2, "multiple": True, "requeue": False})]


def test_bodies_in_several_frames_and_channels_in_between(hub: Hub) -> None:
    client = hub.client().login(frame_max=4096, channels=2)
    client.ask("queue.declare", queue="q")
    large, other = publish("", "q", b"a" * 10_000, body_max=4088), publish("", "q", b"b", channel=2)
    cut = large.index(b"\x03\0\1")
    client.send(large[:cut] + codec.HEARTBEAT_FRAME + other + large[cut:])
    hub.kernel.flush()
    assert sorted(len(value or b"") for value in hub.ready("q")) == [1, 10_000]


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_bytes_may_be_cut_anywhere(hub: Hub, client: Client, chunk: int) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("confirm.select")
    data = b"".join([publish("", "q", b"x" * 20), publish("", "nobody", b"y", mandatory=True), publish("", "q", b""),
                     publish("", "q", b"z", b"\x08\0\5")])
    for at in range(0, len(data), chunk):
        client.send(data[at:at + chunk])
    hub.kernel.flush()
    assert hub.ready("q") == [b"x" * 20, b"", b"z"]
    assert [name for _, name, _ in client.got() if name == "basic.return"] == ["basic.return"]


def test_a_message_larger_than_the_hub_takes(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    limit = hub.kernel.settings.max_message_bytes
    header = codec.content_head(b"\0\1", b"\0\0", limit + 1)
    client.send(codec.frame(codec.METHOD, 1, encode_method("basic.publish", routing_key="q")) + header)
    assert refused(client, "channel", 406) == (f"PRECONDITION_FAILED - message size {limit + 1} is larger than "
                                               f"configured max size {limit}")


def test_contents_that_have_begun_are_bounded(hub: Hub) -> None:
    client = hub.client().login(channels=30)
    begun = codec.content_head(b"\0\0", b"\0\0", hub.kernel.settings.max_message_bytes)
    for number in range(1, 31):
        method = codec.frame(codec.METHOD, number, encode_method("basic.publish", routing_key="q"))
        client.send(method + begun[:1] + number.to_bytes(2, "big") + begun[3:])
    refused(client, "connection", 506)


def test_parts_of_contents_are_bounded_for_all_connections_together(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub.broker, "begun_bytes_max", 10_000)
    body = codec.frame(codec.BODY, 1, bytes(4_000))
    begun = codec.frame(codec.METHOD, 1, encode_method("basic.publish", routing_key="q")) + codec.content_head(
        b"\0\1", b"\0\0", 9_000) + body
    clients = [hub.client().login() for _ in range(3)]
    for client in clients:
        client.send(begun)
    refused(clients[2], "connection", 506)
    for client in clients[1:]:
        client.session.handle_closed()
    clients[0].send(body + codec.frame(codec.BODY, 1, bytes(1_000)))               # that one is whole
    assert hub.broker.begun_bytes == 0
    assert clients[0].ask("basic.qos")[-1][1] == "basic.qos-ok"


@pytest.mark.parametrize(("options", "raw", "code", "words"), [
    ({"exchange": "nix"}, b"\0\0", 404, "NOT_FOUND - no exchange 'nix' in vhost '/'"),
    ({"exchange": "inside"}, b"\0\0", 403, "ACCESS_REFUSED - cannot publish to internal exchange 'inside' in vhost "),
    ({}, b"\0\x10\3foo", 406, "PRECONDITION_FAILED - user_id property set to 'foo' but authenticated user was "),
    ({}, b"\1\0\0031.5", 406, "PRECONDITION_FAILED - invalid expiration '1.5': {leftover_string,\".5\"}"),
    ({}, b"\1\0\2-1", 406, "PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}"),
    ({}, b"\1\0\1x", 406, "PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
])
def test_publishes_that_are_refused(client: Client, options: dict[str, str], raw: bytes, code: int, words: str) -> None:
    client.ask("exchange.declare", exchange="inside", type="fanout", internal=True)
    client.publish(options.get("exchange", ""), "q", b"x", raw)
    assert refused(client, "channel", code).startswith(words)


def test_what_was_routed_is_routed_anew_after_a_change(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("confirm.select")
    for _ in range(2):
        client.publish("", "q", b"x")
    hub.kernel.flush()
    client.ask("queue.delete", queue="q")
    client.publish("", "q", b"x", mandatory=False)
    assert client.got() == [(1, "basic.ack", {"delivery_tag": 3, "multiple": False})]


def test_copies_by_the_headers_cc_and_bcc(hub: Hub, client: Client) -> None:
    for name in ("a", "b", "c"):
        client.ask("queue.declare", queue=name)
    raw = properties.write({"headers": {"CC": typed(["b"]), "BCC": typed(["c"])}})
    client.publish("amq.direct", "nobody", b"x", raw)
    for name in ("a", "b", "c"):
        client.ask("queue.bind", queue=name, exchange="amq.direct", routing_key=name)
    client.publish("amq.direct", "a", b"x", raw)
    hub.kernel.flush()
    for name in ("a", "b", "c"):
        got = client.ask("basic.get", queue=name, no_ack=True)
        assert properties.read(got[1][2]["raw"])["headers"].keys() == {"CC"}


# ---- back-pressure and the end --------------------------------------------------------------------------------------

def test_a_publisher_that_is_not_read_for_long_is_told(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    hub.kernel.congest()
    client.publish("", "q", b"x")
    hub.advance(999)
    assert client.got() == []
    hub.advance(1)
    assert client.names() == ["connection.blocked"]
    hub.kernel.relieve()
    assert client.names() == ["connection.unblocked"]


def test_a_stop_answers_what_is_on_its_way_first(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="q")
    client.ask("confirm.select")
    client.publish("", "q", b"x")
    client.session.handle_stopping()
    assert not client.link.closed
    hub.kernel.flush()
    names = client.got()
    assert [name for _, name, _ in names] == ["basic.ack", "connection.close"]
    assert names[1][2]["code"] == 320
    client.ask("connection.close-ok", 0)
    assert client.link.closed


def test_a_client_that_says_nothing_to_a_stop_does_not_hold_it_up(hub: Hub, client: Client) -> None:
    client.session.handle_stopping()
    hub.advance(499)
    assert not client.link.closed
    hub.advance(1)
    assert client.link.closed


def test_exclusive_queues_go_with_their_connection(hub: Hub, client: Client) -> None:
    client.ask("queue.declare", queue="mine", exclusive=True)
    client.ask("queue.declare", queue="ours")
    hub.cut(client.session)
    assert hub.broker.vhost("/").queues.keys() == {"ours"}


def test_names_that_are_made_up_differ(client: Client) -> None:
    names = {client.ask("queue.declare")[0][2]["queue"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)


@pytest.mark.parametrize(("heartbeat_s", "busy_s"), [(0, 120), (60, 120), (300, 600)])
def test_a_client_may_be_busy_with_a_message_for_as_long_as_it_may_be_silent(heartbeat_s: int, busy_s: int) -> None:
    assert connection_settings(AmqpConfig(heartbeat_s=heartbeat_s)).write_timeout_ms == busy_s * 1000
