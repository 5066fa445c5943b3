"""Refusals leave a line: once a minute for each peer and reason."""
from __future__ import annotations

import logging

import pytest

from gatehouse.gateways.admission.admission import Admission, Denied
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.trace import MAX_KEPT, MAX_LINES, Refusals, address_of
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gatehouse.admission")


def test_once_a_minute_for_each_peer_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(3):
        refusals.note("amqp", "192.0.2.7", "not_authenticated", "wrong password")
    refusals.note("amqp", "192.0.2.8", "not_authenticated", "wrong password")
    refusals.note("mqtt", "192.0.2.7", "not_authenticated", "wrong password")
    assert len(caplog.messages) == 3
    clock.now_ms += 60_000
    refusals.note("amqp", "192.0.2.7", "not_authenticated", "wrong password")
    assert caplog.messages[-1] == ("amqp refused 192.0.2.7: not_authenticated: wrong password (2 times more since the "
                                   "last line)")


def test_a_flood_of_peers_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(Clock())
    for number in range(MAX_KEPT + 100):
        refusals.note("http", f"peer {number}", "not_authenticated", "no")
    assert len(caplog.messages) == MAX_LINES and len(refusals._last) == MAX_KEPT


def test_a_peer_that_comes_back_by_another_port_is_the_same() -> None:
    assert address_of("192.0.2.7:5000") == "192.0.2.7" and address_of("[2001:db8::1]:80") == "[2001:db8::1]"
    assert address_of("unix") == "unix"


def test_a_wrong_login_and_a_missing_right_leave_a_line_on_every_door(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    admission = Admission(Rig().kernel, clock, allow_anonymous=False)
    answers: list[object] = []
    for door in ("mqtt", "http", "amqp", "kafka"):
        admission.authenticate(door, "192.0.2.7:5000", Credentials(), answers.append)
    assert len(answers) == 4
    assert [line.split(":")[0] for line in caplog.messages] == [
        f"{door} refused 192.0.2.7" for door in ("mqtt", "http", "amqp", "kafka")]
    denying = Admission(Rig().kernel, clock, decision=lambda principal, operation, on: False)
    for _ in range(3):
        with pytest.raises(Denied):
            denying.require(denying.anonymous, Operation.PUBLISH, "shut/1")
    assert caplog.messages[4:] == ["the hub refused anonymous: not_authorized_publish: anonymous may not publish at "
                                   "'shut/1'"]


def test_a_refused_message_is_told_of_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    denying = Admission(Rig().kernel, Clock(), decision=lambda principal, operation, on: False)
    batch = batch_of([(b"k", b"v", ((b"traceparent", f"00-{trace}-b7ad6b7169203331-00".encode()),))])
    with pytest.raises(Denied):
        denying.require_topic(denying.anonymous, Operation.PUBLISH, "shut", batch)
    line, = caplog.messages
    assert line.startswith("the hub refused anonymous: not_authorized_publish: ") and line.endswith(f"(trace {trace})")
    assert caplog.records[0].fields["trace_id"] == trace        # type: ignore[attr-defined]
