"""The door by itself, with the kit: no socket, no disk, a clock that is moved by hand."""
from __future__ import annotations

import pytest

from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.kernel.records.batch import MARK
from gatehouse_stomp import GATEWAY
from gatehouse_stomp.codec import encode

CONNECT = b"CONNECT\naccept-version:1.2\nhost:hub\n\n\0"
CONNECTED = encode("CONNECTED", [("version", "1.2"), ("heart-beat", "0,0"), ("server", "gatehouse")])


def opened(hub: FakeHub) -> tuple[Session, FakeLink]:
    session, link = hub.open(GATEWAY, GATEWAY.config())
    session.handle_data(CONNECT)
    assert link.take() == CONNECTED
    return session, link


def test_a_receipt_comes_when_the_message_is_on_disk() -> None:
    hub = FakeHub()
    session, link = opened(hub)
    session.handle_data(b"SEND\ndestination:/plant/temp\nreceipt:7\n\n21.5\0")
    assert link.take() == b""
    hub.kernel.flush()
    assert link.take() == encode("RECEIPT", [("receipt-id", "7")])


def test_whatever_a_peers_bytes_are_cut_into_the_answers_are_the_same() -> None:
    conversation = (CONNECT + b"\nSUBSCRIBE\r\nid:1\r\ndestination:plant/#\r\nreceipt:s\r\n\r\n\0\n\n"
                    b"SEND\ndestination:plant/a\\cb\ncontent-length:3\n\na\0b\0UNSUBSCRIBE\nid:1\n\n\0"
                    b"DISCONNECT\nreceipt:bye\n\n\0")
    answers = set()
    for size in (1, 2, 3, 7, len(conversation)):
        hub = FakeHub()
        session, link = hub.open(GATEWAY, GATEWAY.config())
        for at in range(0, len(conversation), size):
            session.handle_data(conversation[at:at + size])
        hub.kernel.flush()
        assert link.closed
        answers.add(link.take())
    answer, = answers
    assert answer == CONNECTED + encode("RECEIPT", [("receipt-id", "s")]) + encode("RECEIPT", [("receipt-id", "bye")])


def test_properties_cross_and_what_is_the_hubs_own_does_not() -> None:
    hub = FakeHub()
    session, link = opened(hub)
    session.handle_data(b"SUBSCRIBE\nid:1\ndestination:/plant/+\n\n\0")
    session.handle_data(b"SEND\ndestination:plant/t\ncontent-type:text/css\nunit:C\\cF\n" + MARK + b"amqp:x\n\nbody\0")
    hub.kernel.flush()
    frame = link.take()
    assert frame.startswith(b"MESSAGE\nsubscription:1\nmessage-id:plant-0-") and frame.endswith(b"\n\nbody\0")
    assert b"\ndestination:/plant/t\n" in frame and b"\ncontent-type:text/css\n" in frame and b"\nunit:C\\cF\n" in frame
    assert b"amqp" not in frame


@pytest.mark.parametrize(("frame", "text"), [
    (b"SEND\ndestination:/a\ntransaction:t\n\n\0", "transaction is not honoured"),
    (b"SEND\ndestination:/a\ndeliver-at:1\n\n\0", "deliver-at is not honoured"),
    (b"SEND\n\n\0", "SEND without the header destination"), (b"SEND\ndestination:/a/#\n\n\0", "an address holds no"),
    (b"ACK\nid:1\n\n\0", "ACK is not done here"), (b"BEGIN\ntransaction:1\n\n\0", "BEGIN is not done here"),
    (b"HELO\n\n\0", "is no command"), (b"SUBSCRIBE\nid:1\ndestination:a\nack:client\n\n\0", "auto alone is known"),
    (b"UNSUBSCRIBE\nid:9\n\n\0", "no subscription of this id"), (b"SEND\nnonsense\n\n\0", "without a colon"),
    (b"SEND\na:\\t\n\n\0", "no escape"), (b"SEND\ncontent-length:-1\n\n\0", "is a number"),
    (b"SEND\ncontent-length:99999999999\n\n", "a body has at most"), (b"SEND\ncontent-length:1\n\nab", "end with NUL"),
    (b"x" * 20_000, "a head has at most"), (b"SEND\n" + b"a:b\n" * 101 + b"\n\0", "at most 100 headers"),
    (b"SEND\n\xff:a\n\n\0", "not UTF-8"),
])
def test_what_is_refused_says_why_and_closes(frame: bytes, text: str) -> None:
    hub = FakeHub()
    session, link = opened(hub)
    session.handle_data(frame)
    answer = link.take().decode()
    assert answer.startswith("ERROR\nmessage:") and text in answer
    assert link.closed


def test_who_does_not_log_in_in_time_or_speaks_another_version_is_sent_away() -> None:
    hub = FakeHub()
    session, link = hub.open(GATEWAY, GATEWAY.config())
    hub.advance(10_000)
    assert b"no CONNECT came in time" in link.take() and link.closed
    session, link = hub.open(GATEWAY, GATEWAY.config())
    session.handle_data(b"CONNECT\naccept-version:1.0,1.1\n\n\0")
    assert b"STOMP 1.2" in link.take() and link.closed


def test_a_wrong_login_is_an_error_in_the_protocols_words() -> None:
    hub = FakeHub(allow_anonymous=False)
    session, link = hub.open(GATEWAY, GATEWAY.config())
    session.handle_data(CONNECT)
    assert link.take().startswith(b"ERROR\nmessage:") and link.closed


def test_a_subscriber_that_reads_too_slowly_is_sent_away() -> None:
    hub = FakeHub()
    session, link = opened(hub)
    session.handle_data(b"SUBSCRIBE\nid:1\ndestination:#\n\n\0")
    link.stalled = True
    sender, _ = opened(hub)
    for _ in range(3):
        sender.handle_data(b"SEND\ndestination:a\n\n" + b"x" * 1_000_000 + b"\0")
        hub.kernel.flush()
    assert link.closed and link.reason.startswith("slow_reader")
    assert hub.kernel.subscriptions == 0


def test_a_hub_that_stops_answers_first() -> None:
    hub = FakeHub()
    session, link = opened(hub)
    session.handle_data(b"SEND\ndestination:a\nreceipt:1\n\n\0")
    session.handle_stopping()
    assert not link.closed
    hub.kernel.flush()
    assert link.take() == (encode("RECEIPT", [("receipt-id", "1")])
                           + encode("ERROR", [("message", "the hub is stopping")]))
    assert link.closed


def test_retained_values_come_first_where_they_are_asked_for_and_never_faster_than_they_are_read() -> None:
    hub = FakeHub()
    sender, _ = opened(hub)
    for name in ("a", "b", "c"):
        sender.handle_data(f"SEND\ndestination:plant/{name}\nretain:true\n\n{name}\0".encode())
    hub.kernel.flush()
    session, link = opened(hub)
    session.handle_data(b"SUBSCRIBE\nid:plain\ndestination:plant/+\n\n\0")
    assert link.take() == b"", "retained values are asked for"
    link.stalled = True
    link.write(bytes(GATEWAY.config().max_unsent_bytes))
    link.take()
    session.handle_data(b"SUBSCRIBE\nid:1\ndestination:plant/#\nretained:true\n\n\0")
    assert link.take() == b""
    link.drain(session)
    frames = link.take().split(b"\0")[:-1]
    assert [frame.rpartition(b"\n")[2] for frame in frames] == [b"a", b"b", b"c"]
    assert all(b"\nsubscription:1\n" in frame and b"\nretain:true" in frame for frame in frames)
