"""A hub is known by another key: nothing breaks, nothing is lost, and nobody else can say so."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.relay.errors import KeyNotPinned
from gatehouse.relay.letters import NextKey
from gatehouse.relay.sealing import Identity
from gatehouse.relay.settings import MetHub
from tests.kernel.full_log import FullLog
from tests.relay.network import Network, TestHub
from tests.relay.test_spool import come, leave, spooled_pair
from tests.relay.test_two_hubs import pair


def allow(network: Network, hub: TestHub, *keys: str) -> None:
    """The meeting point's file names these keys of a hub."""
    network.met = tuple(MetHub(met.name, keys) if met.name == hub.name else met for met in network.met)
    network.meeting.configure(network.met, network.allowed)


def rotate(network: Network, hub: TestHub) -> str:
    """All three steps; returns the key that is used now."""
    made = hub.links.rotate()
    network.settle(2)
    assert hub.links.rotate() == {**made, "waits_for": []}
    allow(network, hub, made["key"], made["next_key"])
    hub.links.use_next_key()
    network.settle(12)
    allow(network, hub, made["next_key"])
    network.settle(2)
    return made["next_key"]


@pytest.mark.parametrize("side", [0, 1], ids=["sender", "reader"])
def test_another_key_follows_and_nothing_is_lost(side: int) -> None:
    network, left, right = pair()
    hub, other = (left, right)[side], (right, left)[side]
    left.rig.publish("plant/a", b"0")
    before = hub.links.identity.public.hex()
    key = rotate(network, hub)
    left.rig.publish("plant/a", b"1")
    network.settle(4)
    assert (left.state("link"), right.state("link")) == ("open", "open")
    assert hub.links.identity.public.hex() == key != before
    assert other.links.describe_link("link")["key"] == key
    assert right.values("plant") == [b"0", b"1"]
    for one in (left, right):
        one.crash()
    left.rig.publish("plant/a", b"2")
    network.settle(20)
    assert hub.links.identity.public.hex() == key, "a restart knows it"
    assert right.values("plant") == [b"0", b"1", b"2"]
    assert rotate(network, hub) not in (key, before)
    left.rig.publish("plant/a", b"3")
    network.settle(4)
    assert right.values("plant") == [b"0", b"1", b"2", b"3"]


def test_a_key_that_is_not_pinned_is_not_used() -> None:
    network, left, right = pair()
    with pytest.raises(KeyNotPinned, match="no next key"):
        left.links.use_next_key()
    leave(network, right)
    made = left.links.rotate()
    network.settle(2)
    assert made["waits_for"] == ["link"]
    with pytest.raises(KeyNotPinned, match="link"):
        left.links.use_next_key()
    left.crash()
    network.settle(4)
    come(network, right)
    network.settle(20)
    assert left.links.rotate() == {**made, "waits_for": []}, "it is told as soon as it is there"


@pytest.mark.parametrize("side", [0, 1], ids=["its own", "the other's"])
def test_a_key_that_is_not_on_disk_is_neither_said_nor_pinned(side: int) -> None:
    network, left, right = pair(logs=(FullLog(), FullLog()))
    full = (left, right)[side].rig.log
    full.full = True
    left.links.rotate()
    network.settle(2)
    told = left.links.links["link"].pin.next_pinned
    full.full = False
    assert told == ""
    assert right.links.links["link"].pin.next_key == ""
    if side == 0:
        assert left.links.describe()["next_key"] == "" and ("", "key not made") in [event[:2] for event in left.events]
        with pytest.raises(KeyNotPinned):
            left.links.use_next_key()
    for hub in (left, right):
        hub.crash()
    network.settle(20)
    made = left.links.rotate()
    network.settle(2)
    assert left.links.rotate() == {**made, "waits_for": []}


def test_who_has_not_the_next_key_cannot_say_it() -> None:
    network, left, right = pair()
    stranger = Identity(b"somebody else" * 3)
    link = left.links.links["link"]
    link._say("", NextKey(stranger.public, bytes(64)))
    network.settle(2)
    assert right.links.links["link"].pin.next_key == ""
    assert right.links.links["link"].counts.tampered == 1


def test_what_was_kept_under_the_old_key_is_read(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    left.links.rotate()
    network.settle(2)
    leave(network, right)
    left.rig.publish("plant/a", b"0")
    network.settle(6)
    old, new = left.links.rotate()["key"], left.links.rotate()["next_key"]
    allow(network, left, old, new)
    left.links.use_next_key()
    network.settle(12)
    left.rig.publish("plant/a", b"1")
    network.settle(6)
    leave(network, left)
    come(network, right)
    assert right.values("plant") == [b"0", b"1"]
    assert right.links.links["link"].counts.tampered == 0


@pytest.mark.parametrize("minor", [0, 1, 2])
def test_an_older_peer_works(tmp_path: Path, minor: int) -> None:
    """It says an older minor version, and that it takes less: it is sent nothing that it does not know."""
    network, left, right = spooled_pair(tmp_path)
    network.replace_relay()
    heard = []

    def older(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if hub is right and up and frame[0] == 1:
            return [frame[:6] + bytes((minor,)) + frame[7:]]
        if hub is right and not up:
            heard.append(frame[0])
        return [frame]

    network.change = older
    left.rig.publish("plant/a", b"0")
    network.settle(12)
    assert right.values("plant") == [b"0"]
    assert heard and max(heard) <= (8 if minor < 2 else 13)
