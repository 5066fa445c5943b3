"""Addresses of queues: `$queue/NAME` in the spelling that rights are looked up by, to every queue and back."""
from __future__ import annotations

import pytest

from gatehouse.gateways.addresses import queue_address
from gatehouse.kernel.errors import UnknownQueue
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.records.batch import NO_HEADERS, encode_headers
from tests.kernel.rig import Rig

NAMES = ("a+b", "a%2Bb", "a%252Bb", "a/b", "a%2Fb", "a#", "a%23", "100%", "work")


@pytest.mark.parametrize("name", NAMES)
def test_an_address_leads_to_the_queue_whose_right_was_asked_for(name: str) -> None:
    rig = Rig()
    for one in NAMES:
        rig.kernel.groups.declare_queue(one, QueueSettings())
    placed = rig.kernel.place(queue_address(name)).queue
    assert placed is not None and placed.name == name
    assert len({queue_address(one) for one in NAMES}) == len(NAMES)


def test_a_right_for_one_name_opens_no_other() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("a%2Bb", QueueSettings())
    with pytest.raises(UnknownQueue, match=r"'a\+b'"):
        rig.kernel.place("$queue/a%2Bb")           # what the right to the queue `a+b` opens


def test_a_place_of_a_queue_leads_to_the_one_that_was_made_anew() -> None:
    rig = Rig()
    place = rig.kernel.place_queue(rig.kernel.groups.declare_queue("work", QueueSettings(priorities=3)), 2)
    for priorities in (5, 1):
        former = rig.kernel.groups.queue("work")
        assert former is not None
        rig.kernel.groups.delete_queue(former)
        rig.run()
        with pytest.raises(UnknownQueue):
            rig.kernel.append([(place, b"0", NO_HEADERS, 0, 0)], rig.witness)
        queue = rig.kernel.groups.declare_queue("work", QueueSettings(priorities=priorities))
        rig.kernel.append([(place, b"%d" % priorities, NO_HEADERS, 0, 0)], rig.witness)
        rig.run()
        (record,) = rig.read_partition(queue.partition_id(2))
        assert record[3] == b"%d" % priorities


@pytest.mark.parametrize("name", NAMES)
def test_dead_letters_go_to_the_queue_that_is_named(name: str) -> None:
    rig = Rig()
    for one in NAMES:
        rig.kernel.groups.declare_queue(one, QueueSettings())
    source = rig.kernel.groups.declare_queue("source", QueueSettings(ttl_ms=1_000, dead_letter=f"queue:{name}"))
    rig.kernel.append([(rig.kernel.place_queue(source, 0), b"1", encode_headers([]), 0, 0)], rig.witness, "put")
    rig.run()
    for _ in range(3):
        rig.world.advance(1_000)
    target = rig.kernel.groups.queue(name)
    assert target is not None and rig.kernel.bounds(target.partition_id(0)) == (0, 1)
