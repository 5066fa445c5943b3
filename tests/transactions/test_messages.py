"""What becomes of half messages when they are committed: everything that becomes of other messages."""
from __future__ import annotations

import pytest

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.errors import (
    ExpiredReceipt,
    GroupIsLeased,
    InvalidDelay,
    InvalidGroup,
    MessageTooLarge,
    OffsetOutOfRange,
)
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.message import RETAIN, Retained, When
from gatehouse.kernel.settings import KernelSettings
from gatehouse.transactions.coordinator import State
from tests.kernel.groups.test_groups import handles, pop, values
from tests.kernel.rig import Witness
from tests.transactions.rig import Half, TransactionRig


@pytest.fixture
def rig() -> TransactionRig:
    return TransactionRig()


def test_it_is_delivered_to_live_subscribers_when_it_is_committed(rig: TransactionRig):
    listener = Witness()
    rig.kernel.subscribe("orders/#", listener)
    one = rig.begin(("orders/1", b"half"))
    assert listener.delivered == []
    rig.commit(one)
    assert [delivered[:2] for delivered in listener.delivered] == [("orders/1", b"half")]


def test_half_messages_hold_back_no_reader(rig: TransactionRig):
    partition_id = rig.kernel.place("orders/1").partition_id
    rig.begin(("orders/1", b"half"))
    rig.publish("orders/1", b"after")
    assert rig.kernel.bounds(partition_id) == (0, 1) and rig.values("orders") == [b"after"]


def test_keys_keep_the_order_of_commits(rig: TransactionRig):
    first, second = rig.begin(("orders/1", b"first")), rig.begin(("orders/1", b"second"))
    rig.commit(second)
    rig.publish("orders/1", b"between")
    rig.commit(first)
    assert rig.values("orders") == [b"second", b"between", b"first"]


def test_an_ordered_group_is_handed_them_one_by_one(rig: TransactionRig):
    rig.kernel.groups.define("billing", GroupSettings(ordered=True))
    group = rig.kernel.groups.group("billing", rig.kernel.place("orders/1").topic)
    rig.commit(rig.begin(("orders/1", b"a"), ("orders/1", b"b"), ("orders/2", b"c")))
    popped = pop(rig, group)
    assert sorted(value or b"" for value in values(popped)) == [b"a", b"c"]
    group.ack(handles(popped))
    rig.run()
    assert values(pop(rig, group)) == [b"b"]


def test_a_delay_counts_from_the_commit(rig: TransactionRig):
    one = rig.begin(rig.half("orders/1", b"late", delay_ms=10_000), ("orders/1", b"now"))
    rig.advance(30_000, 1_000)
    rig.commit(one)
    assert rig.values("orders") == [b"now"]
    rig.restart()
    rig.advance(8_000, 1_000)
    assert rig.values("orders") == [b"now"]
    rig.advance(3_000, 1_000)
    assert [(record[3], record[6]) for record in rig.read("orders")] == [(b"now", one + 1), (b"late", one)]


@pytest.mark.parametrize(("wait_ms", "at_once"), [(1_000, []), (20_000, [b"timed"])])
def test_a_time_stays_as_it_was(rig: TransactionRig, wait_ms: int, at_once: list[bytes]):
    one = rig.begin(rig.half("orders/1", b"timed", when=When(rig.now_ms + 10_000)))
    rig.advance(wait_ms, 1_000)
    rig.commit(one)
    assert rig.values("orders") == at_once
    rig.advance(12_000, 1_000)
    assert rig.values("orders") == [b"timed"]


def test_a_repetition_begins_with_the_commit(rig: TransactionRig):
    one = rig.begin(rig.half("orders/1", b"tick", when=When(0, "every 10s")))
    rig.advance(25_000, 1_000)
    rig.commit(one)
    assert rig.values("orders") == [b"tick"]
    rig.advance(21_000, 1_000)
    assert rig.values("orders") == [b"tick"] * 3


def test_a_time_that_cannot_be_is_refused(rig: TransactionRig):
    with pytest.raises(InvalidDelay):
        rig.begin(rig.half("orders/1", b"x", delay_ms=1 << 60))


def test_it_is_retained_when_it_is_committed(rig: TransactionRig):
    def retained() -> list[bytes | None]:
        found: list[Retained] = []
        rig.kernel.retained("orders/1", "/", lambda page, _, error: found.extend(page))
        rig.run()
        return [value.record[3] for value in found]
    one = rig.begin(Half(rig.message("orders/1", b"kept", attributes=2 | RETAIN)))
    assert retained() == []
    rig.commit(one)
    assert retained() == [b"kept"]


def test_a_queue_gets_it_with_the_commit(rig: TransactionRig):
    queue = rig.kernel.groups.declare_queue("work")
    bound = rig.kernel.groups.declare_queue("bound")
    rig.kernel.groups.bind("orders/#", bound)
    one = rig.begin(Half((rig.kernel.place_queue(queue), b"direct", b"\0", 3, 0)), ("orders/1", b"by address"))
    assert pop(rig, rig.kernel.groups.queue_group(queue)) == [] == pop(rig, rig.kernel.groups.queue_group(bound))
    rig.restart()
    rig.commit(one)
    queue, bound = rig.kernel.groups.queue("work"), rig.kernel.groups.queue("bound")
    assert queue is not None and bound is not None
    assert values(pop(rig, rig.kernel.groups.queue_group(queue))) == [b"direct"]
    assert values(pop(rig, rig.kernel.groups.queue_group(bound))) == [b"by address"]
    assert rig.values("orders") == [b"by address"]


def test_queues_that_a_door_chose_are_those_of_this_message_alone(rig: TransactionRig):
    chosen, bound = rig.kernel.groups.declare_queue("chosen"), rig.kernel.groups.declare_queue("bound")
    rig.kernel.groups.bind("orders/1", bound, chosen=True)
    def routed(value: bytes, *partition_ids: int) -> Half:
        return Half((rig.place_routed("orders/1", partition_ids), value, b"\0", 3, 0))
    one = rig.begin(routed(b"to one", chosen.first_partition_id), routed(b"to none"), ("orders/1", b"to all"))
    rig.restart()
    rig.commit(one)
    chosen, bound = rig.kernel.groups.queue("chosen"), rig.kernel.groups.queue("bound")
    assert chosen is not None and bound is not None
    assert values(pop(rig, rig.kernel.groups.queue_group(chosen))) == [b"to one"]
    assert values(pop(rig, rig.kernel.groups.queue_group(bound))) == [b"to all"]


def test_a_topic_that_has_gone_is_made_anew(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"))
    rig.kernel.delete_topic("orders")
    rig.run()
    rig.commit(one)
    assert rig.values("orders") == [b"half"]


def test_what_has_nowhere_to_go_any_more_is_not_lost(rig: TransactionRig):
    queue = rig.kernel.groups.declare_queue("work")
    one = rig.begin(Half((rig.kernel.place_queue(queue), b"direct", b"\0", 3, 0)))
    rig.kernel.groups.delete_queue(queue)
    rig.run()
    rig.commit(one)
    assert rig.values("unrouted") == [b"direct"]


def test_acks_and_offsets_are_part_of_the_commit(rig: TransactionRig):
    rig.publish("stock/1", b"s1", b"s2")
    group = rig.kernel.groups.group("consumer", "stock")
    popped = pop(rig, group)
    partition_id = rig.kernel.place("prices/1").partition_id
    rig.publish("prices/1", b"p")
    one = rig.begin(("orders/1", b"out"))
    flushes = rig.kernel.statistics()["flushes_total"]
    rig.commit(one, acks=[(group, handles(popped))], offsets={"reader": {partition_id: (1, b"note")}})
    assert rig.kernel.statistics()["flushes_total"] == flushes + 1
    rig.restart()
    assert rig.values("orders") == [b"out"]
    assert rig.kernel.groups.group("consumer", "stock").counts()[:3] == (0, 0, 0)
    assert rig.kernel.groups.committed("reader") == {partition_id: (1, b"note")}


@pytest.mark.parametrize(("name", "offset"), [
    ("", 1), ("a\0b", 1), ("n" * 300, 1), ("reader", -1), ("reader", 1 << 63)])
def test_offsets_that_cannot_be_stored_leave_everything_as_it_was(rig: TransactionRig, name: str, offset: int):
    """Found out behind the messages, these would be in their partitions and the transaction open: twice with its
    commit."""
    partition_id = rig.kernel.place("prices/1").partition_id
    one = rig.begin(("orders/1", b"out"))
    with pytest.raises((InvalidGroup, OffsetOutOfRange)):
        rig.commit(one, offsets={"good": {partition_id: (1, b"")}, name: {partition_id: (offset, b"")}})
    assert rig.values("orders") == [] and rig.state(one) is State.OPEN and rig.kernel.groups.committed("good") == {}
    rig.commit(one)
    assert rig.values("orders") == [b"out"]


def test_a_lease_that_is_named_twice(rig: TransactionRig):
    rig.publish("stock/1", b"s1", b"s2")
    group = rig.kernel.groups.group("consumer", "stock")
    popped = handles(pop(rig, group))
    one = rig.begin(("orders/1", b"out"))
    rig.commit(one, acks=[(group, [*popped, *popped]), (group, popped)])
    assert rig.values("orders") == [b"out"] and group.counts()[:3] == (0, 0, 0)


def test_a_lease_that_has_ended_leaves_everything_as_it_was(rig: TransactionRig):
    rig.publish("stock/1", b"s1", b"s2")
    group = rig.kernel.groups.group("consumer", "stock")
    popped = pop(rig, group)
    group.ack(handles(popped[:1]))
    rig.run()
    one = rig.begin(("orders/1", b"out"))
    with pytest.raises(ExpiredReceipt):
        rig.commit(one, acks=[(group, handles(popped))])
    assert rig.state(one) is State.OPEN and rig.values("orders") == [] and group.counts().leased == 1
    with pytest.raises(GroupIsLeased):
        rig.commit(one, offsets={"consumer": {rig.kernel.place("stock/1").partition_id: (1, b"")}})
    rig.rollback(one, acks=[(group, handles(popped))])
    assert group.counts().leased == 1


def test_many_of_them_are_appended_in_order(rig: TransactionRig):
    wanted = [b"%d" % number + bytes(2_000) for number in range(500)]       # several pages
    one = rig.begin(*[("orders/1", value) for value in wanted])
    rig.forget_memory()
    rig.commit(one)
    assert rig.values("orders") == wanted
    assert [record[6] for record in rig.read("orders")] == list(range(one, one + 500))


def test_headers_and_keys_come_through(rig: TransactionRig):
    one = rig.begin(Half(rig.message("orders/1", b"x", [(b"a", b"1"), (b"a", None)])))
    rig.forget_memory()
    rig.commit(one)
    record, = rig.read("orders")
    assert record[2] == b"1" and record[4] == ((b"a", b"1"), (b"a", None)) and ADDRESS_HEADER not in dict(record[4])


@pytest.mark.parametrize("wait_ms", [0, 20_000])
@pytest.mark.parametrize("delay_ms", [0, 500])
@pytest.mark.parametrize("name", [None, "once"])
def test_what_it_says_of_its_address_is_not_believed(rig: TransactionRig, wait_ms: int, delay_ms: int, name: str | None
                                                     ):
    listener = Witness()
    rig.kernel.subscribe("orders/#", listener)
    message = rig.message("orders/1", b"half", [(ADDRESS_HEADER, b"orders/2")])
    one = rig.begin(Half(message, None, delay_ms), name=name)
    rig.advance(wait_ms)
    rig.commit(one)
    rig.advance(1_000)
    assert [delivered[:2] for delivered in listener.delivered] == [("orders/1", b"half")]
    record, = rig.read("orders")
    assert record[4] == ((ADDRESS_HEADER, b"orders/2"), (ADDRESS_HEADER, b"orders/1"))


def test_a_message_that_is_too_large_is_refused_at_once(rig: TransactionRig):
    with pytest.raises(MessageTooLarge):
        rig.begin(("orders/1", bytes(KernelSettings().max_message_bytes + 1)))
    assert rig.transactions.statistics()["transactions_open"] == 0
