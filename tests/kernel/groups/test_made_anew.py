"""What a door says of a queue or a topic that was deleted, or made anew, since it was shown to it."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from gatehouse.kernel.errors import ExpiredReceipt, KernelError, UnknownQueue, UnknownTopic
from gatehouse.kernel.group_calls import PortGroups
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.state.state import Kind
from tests.kernel.groups.test_groups import send
from tests.kernel.rig import Rig

Call = Callable[[PortGroups, Queue], object]

CALLS: dict[str, Call] = {
    "bind": lambda groups, queue: groups.bind("orders/#", queue, 1),
    "unbind": lambda groups, queue: groups.unbind("orders/#", queue, 1),
    "purge": lambda groups, queue: groups.purge(queue, 1),
    "move": lambda groups, queue: groups.move(queue, [], "orders/a", True, "", 1),
    "delete": lambda groups, queue: groups.delete_queue(queue, 1),
}


def groups_of(rig: Rig) -> PortGroups:
    kernel = rig.kernel
    return PortGroups(rig.witness, kernel.groups, kernel.assigned, kernel._topics)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_queue_that_is_gone_is_not_touched_nor_its_successor(name: str, again: bool) -> None:
    rig = Rig()
    gone = rig.kernel.groups.declare_queue("work")
    rig.run()
    rig.kernel.groups.delete_queue(gone)
    now = rig.kernel.groups.declare_queue("work") if again else None
    if now is not None:
        send(rig, now, b"1")
    rig.run()
    with pytest.raises(UnknownQueue):
        CALLS[name](groups_of(rig), gone)
    rig.run()
    assert rig.kernel.groups.queue("work") == now
    assert now is None or rig.kernel.groups.ready(now) == 1
    assert (rig.kernel.link_states(Kind.OFFSET), rig.kernel.link_states(Kind.BINDING)) == ([], [])


def test_dead_letters_that_went_with_their_queue_do_not_go_back() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("$dead-letters/billing")
    send(rig, queue, b"1")
    letters = rig.read_partition(queue.first_partition_id)
    rig.kernel.groups.delete_queue(queue)
    rig.run()
    results: list[KernelError | None] = groups_of(rig).redrive(queue, letters, [], 7)
    assert [type(error) for error in results] == [ExpiredReceipt]
    assert rig.witness.stored[-1].token == 7
    rig.run()
    assert rig.kernel.link_states(Kind.OFFSET) == [] and rig.kernel.groups.in_memory() == []


@pytest.mark.parametrize("again", [False, True])
def test_a_group_is_not_rewound_in_a_topic_that_is_gone(again: bool) -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    topic = rig.kernel.topic("orders")
    assert topic is not None
    rig.kernel.delete_topic("orders")
    if again:
        rig.kernel.create_topic("orders")
    rig.run()
    with pytest.raises(UnknownTopic):
        groups_of(rig).rewind("billing", topic, {topic.partition_id(0): 0}, 1)
    rig.run()
    assert rig.kernel.link_states(Kind.OFFSET) == [] and rig.kernel.groups.settings("billing") is None
