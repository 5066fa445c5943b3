"""Wills: published when a connection breaks, over the end of the hub, and only then."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.sessions.session_values import Will
from gatehouse.kernel.sessions.wills import STALE_MAX
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import Client


class Door:
    """Publishes wills; `refuses`: the hub takes nothing just now."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.refuses = False
        rig.kernel.sessions.publish_wills(self.publish)

    def publish(self, will: Will) -> bool:
        if self.refuses:
            return False
        self.rig.kernel.append([(self.rig.kernel.place(will.address), will.value, will.headers, will.attributes, 0)],
                               None)
        return True

    def published(self) -> list[bytes | None]:
        return [record[3] for record in sorted(self.rig.read("wills"), key=lambda record: record[6])]


def keep(rig: Rig, client_id: str = "c1", delay_ms: int = 0, value: bytes = b"gone") -> None:
    client = Client(rig, client_id)
    rig.kernel.sessions.keep_will(Will("/", client_id, "ann", "wills/" + client_id, value, b"\0", 2, delay_ms), client,
                                  "kept")
    rig.run()
    assert client.answers == ["kept"]


def test_a_will_is_published_when_the_connection_breaks() -> None:
    rig = Rig()
    door = Door(rig)
    keep(rig)
    rig.kernel.sessions.break_off("/", "c1")
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    assert door.published() == [b"gone"]
    rig.restart()
    door = Door(rig)
    rig.run()
    assert door.published() == [b"gone"]


def test_a_will_that_is_forgotten_is_published_by_nobody() -> None:
    rig = Rig()
    door = Door(rig)
    keep(rig)
    rig.kernel.sessions.forget_will("/", "c1")
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    keep(rig, delay_ms=5_000)
    rig.kernel.sessions.break_off("/", "c1")
    rig.kernel.sessions.forget_will("/", "c1")
    rig.world.advance(10_000)
    rig.publish("wills/x", b"last")
    assert door.published() == [b"last"]


def test_the_end_of_the_hub_breaks_connections(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    keep(rig)
    keep(rig, "c2", 5_000, b"later")
    rig.restart()
    door = Door(rig)
    rig.run()
    assert door.published() == [b"gone"]
    rig.world.advance(3_000)
    rig.restart()                                    # the delay goes on: a second has passed
    door = Door(rig)
    rig.world.advance(500)
    assert door.published() == [b"gone"]
    rig.world.advance(1_000)
    assert door.published() == [b"gone", b"later"]
    rig.restart()
    Door(rig)
    rig.world.advance(60_000)
    assert door.published() == [b"gone", b"later"]


def test_a_will_is_due_with_the_end_of_its_session() -> None:
    rig = Rig()
    door = Door(rig)
    client = Client(rig)
    client.connect(expiry_ms=60_000)
    keep(rig, delay_ms=50_000)
    client.sleep(60_000)
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    client.connect(clean=True)
    assert door.published() == [b"gone"]


def test_a_will_waits_while_the_hub_takes_nothing() -> None:
    rig = Rig()
    door = Door(rig)
    door.refuses = True
    keep(rig)
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    door.refuses = False
    rig.world.advance(2_000)
    assert door.published() == [b"gone"]


def test_a_full_disk_makes_no_will_of_a_goodbye() -> None:
    log = FullLog()
    rig = Rig(log=log)
    door = Door(rig)
    rig.publish("wills/x", b"first")
    keep(rig)
    keep(rig, "c2", 60_000)
    log.full = True
    rig.kernel.sessions.forget_will("/", "c1")
    rig.kernel.sessions.forget_will("/", "c2")
    rig.world.advance(5_000)
    log.full = False
    rig.world.advance(100_000)
    assert door.published() == [b"first"] and rig.kernel.sessions.statistics()["wills"] == 0
    rig.restart()
    door = Door(rig)
    rig.world.advance(100_000)
    assert door.published() == [b"first"], "it is forgotten once the disk has room"


def test_a_will_whose_client_went_while_the_disk_was_full_waits_for_its_delay() -> None:
    log = FullLog()
    rig = Rig(log=log)
    door = Door(rig)
    rig.publish("wills/x", b"first")
    keep(rig, delay_ms=30_000)
    log.full = True
    rig.kernel.sessions.break_off("/", "c1")
    rig.world.advance(5_000)
    log.full = False
    rig.world.advance(20_000)
    assert door.published() == [b"first"]
    rig.world.advance(10_000)
    assert door.published() == [b"first", b"gone"]


def test_ten_thousand_wills_leave_others_their_turn() -> None:
    rig = Rig()
    door = Door(rig)
    for at in range(2_000):
        rig.kernel.sessions.keep_will(Will("/", f"c{at}", "ann", "wills/all", b"%d" % at, b"\0", 2, 1_000), Client(rig),
                                       0)
    rig.run()
    rig.kernel.sessions.wills._slices.slice_ms = 0
    for at in range(2_000):
        rig.kernel.sessions.break_off("/", f"c{at}")
    rig.world.loop.advance(1_000)
    turns = 0
    while rig.world.loop.step():
        turns += 1
    assert turns > 100
    rig.run()
    assert len(door.published()) == 2_000


def test_a_will_whose_client_comes_and_goes_is_waited_for_a_bounded_number_of_times() -> None:
    rig = Rig()
    door = Door(rig)
    for _ in range(STALE_MAX + 10):
        will = Will("/", "c1", "ann", "wills/c1", b"gone", b"\0", 2, 60_000)
        rig.kernel.sessions.keep_will(will, Client(rig), "kept")
        rig.kernel.sessions.break_off("/", "c1")
    assert len(rig.kernel.sessions.wills._waiting) <= STALE_MAX + 3
    rig.world.advance(60_000)
    assert door.published() == [b"gone"]


@pytest.mark.parametrize("has_another", [False, True])
def test_a_will_that_could_not_be_published_at_its_time_is_that_of_then(has_another: bool) -> None:
    rig = Rig()
    door = Door(rig)
    keep(rig)
    door.refuses = True
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    if has_another:                                  # the client is back
        keep(rig, value=b"another")
    else:
        rig.kernel.sessions.forget_will("/", "c1")
    door.refuses = False
    rig.world.advance(10_000)
    assert door.published() == [b"gone"]
    rig.kernel.sessions.break_off("/", "c1")
    rig.run()
    assert door.published() == [b"gone", b"another"][:1 + has_another]


def timers_at(rig: Rig, due_ms: int) -> int:
    """How many are set for this time."""
    return len([when_ms for when_ms, _, timer in rig.world.loop._timers
                if timer.callback is not None and when_ms == due_ms])


def test_a_will_that_waits_for_long_has_one_timer_whatever_waits_for_less() -> None:
    rig = Rig()
    door = Door(rig)
    keep(rig, "long", 5_000_000)
    rig.kernel.sessions.break_off("/", "long")
    due_ms = rig.world.loop.now_ms() + 5_000_000
    for _ in range(20):
        keep(rig, "short", 100)
        rig.kernel.sessions.break_off("/", "short")
        rig.world.advance(200)
    assert timers_at(rig, due_ms) == 1
    rig.world.advance(5_000_000)
    assert len(door.published()) == 21


def test_a_session_that_sleeps_for_long_has_one_timer_whatever_sleeps_for_less() -> None:
    rig = Rig()
    client, other = Client(rig, "long"), Client(rig, "short")
    client.connect(expiry_ms=5_000_000)
    client.sleep(5_000_000)
    due_ms = rig.world.loop.now_ms() + 5_000_000
    for _ in range(20):
        other.connect(expiry_ms=100)
        other.sleep(100)
        rig.world.advance(200)
    assert timers_at(rig, due_ms) == 1
    rig.world.advance(5_000_000)
    assert not client.connect()
