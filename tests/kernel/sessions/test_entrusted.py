"""Messages that are entrusted to a session, over kills of the hub and disks that refuse."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.groups.cursor import MAX_ATTEMPT
from gatehouse.kernel.message import Leased
from gatehouse.kernel.sessions.entrusted import decode_entrusted, encode_entrusted
from gatehouse.kernel.sessions.session_values import NEVER, Entrusted, Outgoing, Released
from gatehouse.kernel.state.state import Kind
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import Client, publish

SHARE = "$share/crew/jobs/+"


class Taker:
    """A member of a leased group that keeps what it is given."""

    def __init__(self, rig: Rig) -> None:
        self.leased: list[Leased] = []
        self.place = rig.kernel.groups.share(SHARE, self, 10)

    def on_leased(self, messages: list[Leased]) -> None:
        self.leased += messages

    def on_gone(self) -> None:
        """The queue stays."""


def of_lease(leased: Leased) -> Entrusted:
    return Entrusted(2, "jobs/a", 7, leased[7], leased[6] or b"", leased[8], leased[4], leased[:3])


def begin(rig: Rig) -> tuple[Client, int]:
    """A client to whose session one delivery of the group was entrusted; its packet id."""
    taker, client = Taker(rig), Client(rig)
    client.connect()
    publish(rig, "jobs/a", b"1", qos=2)
    rig.run()
    [leased] = taker.leased
    [packet_id] = client.held.entrust([of_lease(leased)], client, "sent")
    assert client.answers == ["open"], "not before it is durable"
    rig.run()
    assert client.answers[-1] == "sent" and packet_id
    taker.place.leave()
    rig.run()
    return client, packet_id


def counts(rig: Rig) -> tuple[int, int, int]:
    """Ready, leased; dead letters."""
    group = rig.kernel.groups.shared_group(SHARE)
    now = group.counts()
    letters = rig.kernel.groups.queue("$dead-letters/crew")
    return now.ready, now.leased, 0 if letters is None else rig.kernel.groups.queue_group(letters).counts().ready


def records(rig: Rig) -> int:
    return len(rig.kernel.link_states(Kind.ENTRUSTED))


def test_the_record_says_all() -> None:
    for handle in (None, ((3, 9, "crew"), 77, 2), ((1 << 40, 0, ""), 0, 1)):
        entrusted = Entrusted(2, "plant/ü", 268_435_455, b"\2\2a\2b", b"value", 5, 1_700_000_000_000, handle)
        assert decode_entrusted(encode_entrusted(entrusted), 2) == entrusted
    often = Entrusted(2, "plant", 0, b"\0", b"", 5, 0, ((3, 9, "crew"), 77, MAX_ATTEMPT + 1))
    assert decode_entrusted(encode_entrusted(often), 2).handle == ((3, 9, "crew"), 77, MAX_ATTEMPT)


def test_it_stays_with_its_session_over_kills_until_it_is_received(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    _, packet_id = begin(rig)
    for lose_index in (False, True):
        rig.restart(lose_index=lose_index)
        rig.world.loop.advance(3_600_000)
        rig.run()
        assert counts(rig) == (0, 1, 0)
        client = Client(rig)
        assert client.connect()
        [again] = client.take()
        assert isinstance(again, Outgoing)
        assert (again.packet_id, again.value, again.qos, again.dup, again.retain, again.identifiers, again.headers) \
            == (packet_id, b"1", 2, True, False, (7,), ())
    client.held.receive([packet_id], client, "received")
    rig.run()
    assert client.answers[-1] == "received" and counts(rig) == (0, 0, 0) and not records(rig)
    rig.restart()
    client = Client(rig)
    client.connect()
    assert client.take() == [Released(packet_id)]


def test_what_its_session_has_not_received_is_a_dead_letter_though_the_hub_is_killed_in_between(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    begin(rig)
    rig.kernel.sessions.entrusting.stop()            # as far as a hub comes that is killed before the letter is stored
    rig.kernel.sessions.delete("/", "c1")
    rig.run()
    assert (counts(rig), records(rig)) == ((0, 1, 0), 1)
    rig.restart()
    rig.run()
    assert (counts(rig), records(rig)) == ((0, 0, 1), 0)
    rig.restart()
    rig.run()
    assert counts(rig) == (0, 0, 1)


def test_a_rewound_group_takes_nothing_from_the_session() -> None:
    rig = Rig()
    client, packet_id = begin(rig)
    rig.kernel.groups.delete_queue(rig.kernel.groups.queue(SHARE))
    rig.run()
    client.sleep()
    client.connect()
    [again] = client.take()
    assert isinstance(again, Outgoing) and again.packet_id == packet_id
    client.held.acknowledge([packet_id])
    rig.run()
    assert not records(rig) and client.held.in_flight == 0


def test_what_the_disk_refuses_is_not_the_sessions(tmp_path: Path) -> None:
    log = FullLog(tmp_path)
    rig = Rig(log=log)
    taker, client = Taker(rig), Client(rig)
    client.connect(expiry_ms=NEVER)
    publish(rig, "jobs/a", b"1", qos=2)
    rig.run()
    log.full = True
    assert client.held.entrust([of_lease(taker.leased[0])], client, "sent") == [1]
    rig.world.run()
    assert isinstance(client.answers[-1], StorageFull) and client.ended
    log.full = False
    rig.world.loop.advance(5_000)
    rig.world.run()
    assert not records(rig)
    assert counts(rig)[1:] == (1, 0), "the member has it again, or still"
    client = Client(rig)
    assert client.connect() and client.take() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_retained_value_is_forgotten_when_its_client_has_it(qos: int) -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    value = Entrusted(qos, "plant/1", 0, b"\0", b"kept", 2, 5)
    first, second = client.held.entrust([value, value], client, "sent")
    rig.run()
    client.sleep()
    rig.restart()
    client = Client(rig)
    client.connect()
    assert [(each.packet_id, each.retain, each.value) for each in client.take() if isinstance(each, Outgoing)] == [
        (first, True, b"kept"), (second, True, b"kept")]
    if qos == 2:
        client.held.receive([first], client, None)
    else:
        client.held.acknowledge([first])
    rig.run()
    assert records(rig) == 1
    client.forbidden.add("plant/1")
    client.sleep()
    client.connect()
    assert client.take() == ([Released(first)] if qos == 2 else []) and records(rig) == 0
