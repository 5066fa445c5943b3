"""What crosses a link later than it was sent: a day's backlog, in its hours, delayed and half messages."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from gatehouse.kernel.settings import KernelSettings
from gatehouse.relay.settings import LinkSettings, is_open
from tests.interop.test_requests import post
from tests.relay.network import Network, TestHub
from tests.relay.processes import ask, link_of, read_all
from tests.relay.test_messages import RECEIVE, SEND, pair
from tests.relay.test_processes import join, two_hubs
from tests.simulation.disk import SimDisk
from tests.simulation.store import SimStore
from tests.waiting import until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize("hours, open_at, closed_at", [
    ("08:00-09:30", ("08:00", "09:29"), ("07:59", "09:30")),
    ("22:00-06:00", ("22:00", "00:00", "05:59"), ("06:00", "21:59")), ("", ("00:00", "12:00"), ())])
def test_hours_are_of_the_day_in_utc(hours: str, open_at: tuple[str, ...], closed_at: tuple[str, ...]) -> None:
    def at(text: str) -> int:
        return 3 * DAY_MS + int(text[:2]) * HOUR_MS + int(text[3:]) * 60_000

    assert [is_open(hours, at(text)) for text in open_at] == [True] * len(open_at)
    assert [is_open(hours, at(text)) for text in closed_at] == [False] * len(closed_at)


@pytest.mark.parametrize("hours", ["8:00-9:00", "24:00-01:00", "08:00", "08:60-09:00"])
def test_hours_that_are_none_are_refused(hours: str) -> None:
    with pytest.raises(ValueError, match="hours"):
        LinkSettings("link", hours=hours)


def test_a_link_sends_in_its_hours_alone() -> None:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", hours="02:00-03:00", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    wall_ms = left.rig.world.loop.wall_ms()
    left.clock_apart_ms = -(wall_ms % DAY_MS) + HOUR_MS             # it is 01:00
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    left.rig.publish("plant/a", b"at night")
    network.settle(20)
    assert left.state("link") == "open" and right.rig.kernel.topic("plant") is None
    assert left.links.describe_link("link")["lag"]["messages"] == 1
    network.tick(HOUR_MS)
    network.settle(20)
    assert right.values("plant") == [b"at night"]
    network.tick(HOUR_MS)
    left.rig.publish("plant/a", b"too late")
    network.settle(20)
    assert right.values("plant") == [b"at night"]


def test_a_day_of_messages_that_retention_would_have_deleted_arrives_once_in_order() -> None:
    """The other hub is away for a day, this one is killed in the middle of it."""
    rng = random.Random(7)
    disk = SimDisk(random.Random(1))
    left = TestHub("left", [LinkSettings("link", **SEND)], rng, disk=disk,
                   store=SimStore(random.Random(2), disk.operate),
                   settings=KernelSettings(segment_bytes=1 << 20, retention_ms=2 * HOUR_MS, recent_bytes=0))
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    left.rig.publish("plant/0", b"before")
    network.settle()
    network.away.append(right)
    network.cut(right)
    sent = []
    for number in range(96):
        value = b"%02d" % number + bytes(40_000)
        left.rig.publish(f"plant/{number % 3}", value)
        sent.append(value)
        network.tick(DAY_MS // 96)
        network.turn()
        if number == 50:
            left.crash("kill")
    assert link_is_behind(left) == 96
    network.away.clear()
    network.settle(60)
    records = right.rig.read("plant")
    assert sorted(record[3] for record in records) == sorted([b"before", *sent])
    for key in (b"0", b"1", b"2"):
        mine = [record[3] for record in records if record[2] == key and record[3] != b"before"]
        assert mine == sorted(mine)
    assert left.links.describe_link("link")["sent"]["lost"] == link_is_behind(left) == 0


def link_is_behind(hub: TestHub) -> int:
    return int(hub.links.describe_link("link")["lag"]["messages"])


def test_a_reader_that_is_widened_keeps_the_order_of_each_key() -> None:
    network, left, right = pair(SEND, RECEIVE)
    right.rig.kernel.create_topic("plant", partitions=2)
    right.rig.run()
    for number in range(30):
        for key in range(8):
            left.rig.publish(f"plant/{key}", b"%d %02d" % (key, number))
        if number % 10 == 5:
            for _ in range(number // 10 + 1):
                network.turn()                                      # some of it is on its way, or there
            right.rig.kernel.change_topic("plant", partitions=2 + number)
            right.rig.run()
    network.settle(20)
    records = sorted(right.rig.read("plant"), key=lambda record: record[6])        # as they were stored
    assert right.rig.kernel.topic("plant").partitions == 27
    for key in range(8):
        mine = [record[3] for record in records if record[2] == b"%d" % key]
        assert mine == [b"%d %02d" % (key, number) for number in range(30)]


def test_delayed_and_half_messages_cross_when_they_are_messages(tmp_path: Path) -> None:
    with two_hubs(tmp_path) as (a, b, _):
        join(a, b)

        def there() -> list[str]:
            return [message["value"] for message in read_all(b, "plant")]

        half = ask(a, "POST", "/v1/transactions?group=shop&address=plant/1", body=b"half")["id"]
        never = ask(a, "POST", "/v1/transactions?group=shop&address=plant/1", body=b"rolled back")["id"]
        for delay_s, value in ((3600, b"in an hour"), (1, b"delayed")):
            assert post(a, "/v1/publish/plant/1", value, X_Delay=str(delay_s))[0] == 201
        ask(a, "POST", "/v1/publish/plant/1", body=b"now")
        until(lambda: link_of(a)["lag"]["messages"] == 0 and len(read_all(b, "plant")) == 2, there)
        assert there() == ["now", "delayed"]
        ask(a, "POST", f"/v1/transactions/{never}/rollback", {})
        ask(a, "POST", f"/v1/transactions/{half}/commit", {})
        until(lambda: len(there()) == 3, there)
        assert there() == ["now", "delayed", "half"]
