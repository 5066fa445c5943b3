"""Places: none of the doors takes the log's descriptors, and no address takes everybody's places."""
from __future__ import annotations

from collections import Counter

from gatehouse.gateways.connections.capacity import Capacity, Room

HERE, ELSEWHERE, PROXY = "203.0.113.7:{}", "198.51.100.1:{}", "127.0.0.1:{}"


def taken(room: Room, peer: str, count: int) -> int:
    """How many of so many connections of this peer there is a place for."""
    return sum(not room.take(peer.format(1000 + n)) for n in range(count))


def test_one_address_gets_half_of_the_places_of_all_doors() -> None:
    capacity, counts = Capacity(100), Counter[str]()
    mqtt, kafka = Room(capacity, counts), Room(capacity, Counter())
    assert taken(mqtt, HERE, 30) == 30
    assert taken(kafka, HERE, 70) == 20
    assert taken(mqtt, HERE, 1) == 0 and counts == {"refused": 1, "refused_by_address": 1}
    assert mqtt.take(HERE.format(1)).startswith("too_many_of_address: ")
    assert taken(mqtt, ELSEWHERE, 60) == 50, "the other half"
    kafka.give(HERE.format(1000))
    assert taken(mqtt, HERE, 2) == 1


def test_a_network_of_ipv6_is_one_address() -> None:
    room = Room(Capacity(100), Counter(), 4)
    assert sum(not room.take(f"[2001:db8:1:2::{n:x}]:1") for n in range(10)) == 4
    assert not room.take("[2001:db8:1:3::1]:1")


def test_a_number_holds_for_every_address_and_for_its_door_alone() -> None:
    capacity = Capacity(100)
    bounded, other = Room(capacity, Counter(), 3), Room(capacity, Counter())
    assert taken(bounded, PROXY, 10) == 3 and taken(bounded, HERE, 10) == 3
    assert taken(other, HERE, 60) == 47, "with those of the other door, half of all"


def test_what_runs_beside_the_hub_may_have_all_places_unless_a_number_is_set() -> None:
    room, counts = Room(capacity := Capacity(100), Counter()), Counter[str]()
    assert taken(room, PROXY, 120) == 100 == capacity.open
    spare = Room(capacity, counts, most=2, spare=10)
    assert taken(spare, ELSEWHERE, 5) == 2 and counts == {"refused": 3}


def test_what_is_given_back_is_forgotten() -> None:
    capacity = Capacity(10)
    room = Room(capacity, Counter())
    for n in range(1000):
        assert not room.take(f"198.51.{n % 250}.{n // 250}:1")
        room.give(f"198.51.{n % 250}.{n // 250}:1")
    assert (capacity.open, dict(capacity.by_network)) == (0, {})
