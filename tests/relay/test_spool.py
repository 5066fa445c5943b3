"""What a meeting point keeps for a hub that is away arrives though its sender is gone; losing it loses nothing."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from gatehouse.kernel.records.headers import EXPIRES_HEADER
from gatehouse.relay.frames import Held, Spool, Spooled, decode, encode
from gatehouse.relay.settings import LinkSettings, MetHub, MetLink
from gatehouse.relay.spool_keys import ROTATE_MS
from gatehouse.relay.spooling import AGAIN_MS
from tests.relay.network import Network, TestHub

HOUR_MS = 3_600_000


def spooled_pair(folder: Path, a: dict | None = None, b: dict | None = None, **section) -> tuple[
        Network, TestHub, TestHub]:
    """Both want their letters kept, and have greeted once."""
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", spool=True, **{"send": ("plant/#",), **(a or {})})], rng)
    right = TestHub("right", [LinkSettings("link", spool=True, **{"receive": ("plant/#",), **(b or {})})], rng)
    network = Network(left, right, rng=rng, spool=str(folder), **section)
    network.join(left, right, "link")
    network.settle()
    assert left.state("link") == right.state("link") == "open"
    return network, left, right


def leave(network: Network, hub: TestHub) -> None:
    network.away.append(hub)
    network.cut(hub)
    network.settle(3)


def come(network: Network, hub: TestHub) -> None:
    network.away.remove(hub)
    network.settle()


def kept(network: Network) -> int:
    return len(network.meeting.spools)


def test_what_was_kept_arrives_though_its_sender_is_gone(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    left.rig.publish("plant/a", b"0")
    network.settle()
    leave(network, right)
    for number in range(1, 6):
        left.rig.publish(f"plant/{number % 2}", b"%d" % number)
        network.settle(2)
    assert kept(network) and left.links.describe_link("link")["spool"]["kept_messages"] == 5
    assert left.links.describe_link("link")["lag"]["messages"] == 5, "what is only kept is owed all the same"
    leave(network, left)
    come(network, right)
    assert right.values("plant") == [b"%d" % number for number in range(6)]
    assert not kept(network), "what its reader has on its disk is forgotten"
    come(network, left)
    left.rig.publish("plant/a", b"6")
    network.settle()
    assert right.values("plant") == [b"%d" % number for number in range(7)]
    assert left.links.describe_link("link")["lag"]["messages"] == 0
    assert right.links.describe_link("link")["received"]["lost"] == 0


def test_what_was_on_its_way_as_its_reader_went_is_kept_too(tmp_path: Path) -> None:
    """It comes back behind the word that the other hub is away, and that hub stays away."""
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    left.links.links["link"].on_bounced("not_here", "it went a moment ago")
    assert left.state("link") == "absent"
    left.rig.publish("plant/a", b"1")
    network.settle(6)
    assert kept(network) and left.links.describe_link("link")["spool"]["kept_messages"] == 1
    come(network, right)
    assert right.values("plant") == [b"1"]


def test_everybody_is_killed_in_turn(tmp_path: Path) -> None:
    """The sender goes on where the spool is, the meeting point has what it holds, the reader doubles nothing."""
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    for number in range(5):
        left.rig.publish("plant/a", b"%d" % number)
        network.settle(6)
        if number % 2:
            left.crash()
        else:
            network.replace_relay()
        network.settle(6)
    letters = kept(network)
    assert letters == 5, "nothing was kept twice"
    leave(network, left)
    network.replace_relay()
    right.crash()
    network.away.remove(right)
    for _ in range(3):
        network.turn()
    right.crash()
    network.settle()
    assert right.values("plant") == [b"%d" % number for number in range(5)]


def test_what_did_not_match_makes_no_gap_before_what_is_kept(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path, {"send": ("plant/a/#",)})
    leave(network, right)
    left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.publish("plant/b", b"not for them")
    network.settle(8)
    left.crash()
    network.settle(8)
    left.rig.publish("plant/a/1", b"1")
    network.settle(8)
    leave(network, left)
    come(network, right)
    assert right.links.describe_link("link")["spool"]["passed_over"] == {}
    assert right.values("plant") == [b"1"]


def test_a_spool_that_is_lost_loses_nothing(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    for folder in tmp_path.iterdir():
        for file in folder.iterdir():
            file.unlink()
    network.replace_relay()
    network.settle(6)
    left.rig.publish("plant/a", b"1")
    network.settle(6)
    leave(network, left)
    come(network, right)
    assert right.values("plant") == [b"0", b"1"], "another spool has it from the beginning"


def test_a_letter_that_is_missing_is_a_gap_that_stops_nothing(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    dropped = []

    def drop(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if up and isinstance(decode(frame), Spool) and not dropped:
            dropped.append(frame)
            spool = decode(frame)
            hub.cable.down.append(encode(Held(spool.peer, spool.number)))
            return []
        return [frame]

    network.change = drop
    for number in range(3):
        left.rig.publish("plant/a", b"%d" % number)
        network.settle(4)
    leave(network, left)
    come(network, right)
    assert dropped and right.rig.kernel.topic("plant") is None
    assert right.links.describe_link("link")["spool"]["passed_over"] == {"gap": 2}
    come(network, left)
    assert right.values("plant") == [b"0", b"1", b"2"]
    assert (left.state("link"), right.state("link")) == ("open", "open")


@pytest.mark.parametrize("change", [
    lambda spooled: spooled._replace(payload=spooled.payload[:-1] + bytes((spooled.payload[-1] ^ 1,))),
    lambda spooled: spooled._replace(payload=spooled.payload[:60]),
    lambda spooled: spooled._replace(topic="plan2"),
    lambda spooled: spooled._replace(payload=spooled.payload[:9] + bytes(32) + spooled.payload[41:]),
    lambda spooled: spooled._replace(payload=b""),
], ids=["changed", "cut", "moved", "another key", "empty"])
def test_a_meeting_point_that_changes_what_it_keeps_is_seen(tmp_path: Path, change) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    leave(network, left)

    def lie(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        spooled = decode(frame)
        return [encode(change(spooled))] if isinstance(spooled, Spooled) else [frame]

    network.change = lie
    come(network, right)
    assert right.rig.kernel.topic("plant") is None
    assert right.links.links["link"].counts.tampered == 1
    assert [event for event in right.events if event[1] == "faulted"]
    network.change = lambda hub, frame, up: [frame]
    come(network, left)
    assert right.values("plant") == [b"0"]


def test_what_is_given_twice_is_a_repetition(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    for number in range(3):
        left.rig.publish("plant/a", b"%d" % number)
        network.settle(4)
    leave(network, left)
    network.change = lambda hub, frame, up: [frame, frame] if isinstance(decode(frame), Spooled) else [frame]
    come(network, right)
    assert right.values("plant") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("who", ["left", "right", "meeting point"])
def test_nothing_is_kept_where_one_of_the_three_does_not_want_it(tmp_path: Path, who: str) -> None:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", send=("plant/#",), spool=who != "left")], rng)
    right = TestHub("right", [LinkSettings("link", receive=("plant/#",), spool=who != "right")], rng)
    network = Network(left, right, rng=rng, **({} if who == "meeting point" else {"spool": str(tmp_path)}))
    network.join(left, right, "link")
    network.settle()
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    assert not kept(network) and left.links.describe_link("link")["spool"]["kept_messages"] == 0
    come(network, right)
    assert right.values("plant") == [b"0"]


def test_a_spool_has_a_bound_and_the_rest_waits_at_its_sender(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    for number in range(40):
        left.rig.publish("plant/a", b"%02d" % number + bytes(100_000))
    network.settle(6)
    assert 0 < network.meeting.spools.used_bytes <= network.spool_bytes
    assert "spool_full" in left.links.describe_link("link")["spool"]["fault"]
    network.tick(AGAIN_MS)
    network.settle(6)
    assert network.meeting.spools.used_bytes <= network.spool_bytes
    leave(network, left)
    come(network, right)
    some = len(right.values("plant"))
    assert 0 < some < 40
    come(network, left)
    assert [value[:2] for value in right.values("plant")] == [b"%02d" % number for number in range(40)]


def test_what_is_too_old_is_dropped_and_comes_from_its_sender(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    assert kept(network)
    network.tick(25 * HOUR_MS)
    network.settle(6)
    assert not kept(network), "and nothing is kept until its reader was here"
    left.rig.publish("plant/a", b"1")
    network.settle(6)
    assert not kept(network)
    come(network, right)
    assert right.values("plant") == [b"0", b"1"]
    leave(network, right)
    left.rig.publish("plant/a", b"2")
    network.tick(AGAIN_MS)
    network.settle(6)
    assert kept(network)


def test_keys_are_rotated_and_what_is_still_kept_stays_readable(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    link = right.links.links["link"]
    first = link.spooling._keys(0)
    leave(network, right)
    left.rig.publish("plant/a", b"old key")
    network.settle(6)
    files = {file: file.read_bytes() for folder in tmp_path.iterdir() for file in folder.iterdir()}
    come(network, right)
    network.tick(ROTATE_MS)
    network.settle(20)
    network.cut(left)
    network.settle(6)
    keys = link.spooling._keys(0)
    assert keys[:1] == first and len(keys) == 2
    assert [kept.number for kept in left.links.links["link"].spooling._keys(1)] == [keys[1].number]
    leave(network, left)
    leave(network, right)
    right.links.rewind("link", "plant")
    right.rig.run()
    for file, data in files.items():
        file.write_bytes(data)
    network.wall_ms -= ROTATE_MS         # or else the meeting point drops it, as it is a day old
    network.replace_relay()
    come(network, right)
    assert right.values("plant") == [b"old key", b"old key"], "once more, as was asked for, from the older letter"


def test_other_filters_of_the_reader_make_what_is_kept_worth_nothing(tmp_path: Path) -> None:
    """It was made for the filters of before: what these left out would be missing."""
    network, left, right = spooled_pair(tmp_path, a={"send": ("plant/#",)}, b={"receive": ("plant/a",)})
    leave(network, right)
    left.rig.publish("plant/b", b"b")
    left.rig.publish("plant/a", b"a")
    network.settle(6)
    assert kept(network)
    right.settings = [LinkSettings("link", receive=("plant/#",), spool=True)]
    right.crash()
    come(network, right)
    assert right.values("plant") == [b"a", b"b"]


def test_who_is_withdrawn_has_nothing_kept(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    assert kept(network) and len(list(tmp_path.iterdir())) == 2
    network.meeting.configure(network.met[:1], ())
    assert not kept(network) and not list(tmp_path.iterdir())


def test_expiry_counts_the_time_that_a_message_was_kept(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    leave(network, right)
    end_ms = left.rig.world.loop.wall_ms() + 10 * HOUR_MS
    left.rig.publish("plant/a", b"0", headers=[(EXPIRES_HEADER, b"%d" % end_ms)])
    network.settle(6)
    leave(network, left)
    network.tick(HOUR_MS)
    come(network, right)
    assert int(dict(right.rig.read("plant")[0][4])[EXPIRES_HEADER]) == end_ms


def test_a_reload_that_cannot_be_is_refused_in_whole(tmp_path: Path) -> None:
    """The folder for a link that is new cannot be made: who is no longer in the file stays as well."""
    network, left, right = spooled_pair(tmp_path / "spool")
    (tmp_path / "spool").rename(tmp_path / "away")
    (tmp_path / "spool").write_text("no folder")
    other = MetHub("other", ("ab" * 32,))
    with pytest.raises(OSError):
        network.meeting.configure((network.met[0], other), (MetLink(("left", "other"), ("*",), 1 << 20),))
    left.rig.publish("plant/a", b"1")
    network.settle()
    assert right.values("plant") == [b"1"] and network.meeting.names() == ["left", "right"]
