"""Half messages from begin to decision, over the real kernel."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import AlreadyDecided, UnknownTransaction
from gatehouse.transactions.coordinator import CheckSettings, State
from tests.transactions.rig import TransactionRig


@pytest.fixture(params=["memory", "store"])
def rig(request):
    """`store`: a checkpoint has taken everything out of memory before each decision."""
    rig = TransactionRig()
    if request.param == "store":
        begin = rig.begin

        def begin_and_forget(*messages, **more):
            found = begin(*messages, **more)
            rig.forget_memory()
            return found
        rig.begin = begin_and_forget
    return rig


def test_nobody_sees_a_half_message_before_it_is_committed(rig):
    rig.publish("orders/1", b"before")
    one = rig.begin(("orders/1", b"half"), ("stock/1", b"too"))
    assert rig.values("orders") == [b"before"] and rig.kernel.topic("stock") is not None and rig.values("stock") == []
    rig.commit(one)
    assert rig.values("orders") == [b"before", b"half"]
    assert [(record[3], record[6]) for record in rig.read("stock")] == [(b"too", one + 1)]
    assert rig.state(one) is State.COMMITTED


def test_a_rolled_back_message_is_gone(rig):
    one = rig.begin(("orders/1", b"half"))
    rig.rollback(one)
    rig.restart(lose_index=True)
    assert rig.values("orders") == [] and rig.state(one) is State.ROLLED_BACK


def test_a_repeated_decision_is_answered_alike_and_a_contrary_one_refused(rig):
    one = rig.begin(("orders/1", b"half"))
    first = rig.commit(one)
    rig.advance(5_000)
    assert rig.commit(one).append_ms == first.append_ms
    with pytest.raises(AlreadyDecided) as caught:
        rig.rollback(one)
    assert (caught.value.state, caught.value.when_ms) == ("committed", first.append_ms)
    assert rig.values("orders") == [b"half"]


def test_more_half_messages_can_be_added(rig):
    one = rig.begin(("orders/1", b"a"))
    added = rig.add(one, ("orders/1", b"b"), ("orders/1", b"c"))
    rig.commit(one)
    assert [(record[3], record[6]) for record in rig.read("orders")] == [
        (b"a", one), (b"b", added[0]), (b"c", added[1])]


def test_an_unknown_transaction_is_refused(rig):
    with pytest.raises(UnknownTransaction):
        rig.commit(12345)
    with pytest.raises(UnknownTransaction):
        rig.commit(rig.begin(("orders/1", b"a")), tenant="other")


def test_silence_is_asked_about_and_then_ends_it():
    rig = TransactionRig()
    one = rig.begin(("orders/1", b"half"), checks=CheckSettings(1_000, 2_000, 3))
    asked, _ = rig.join(name="first")
    rig.advance(1_200)
    assert asked.ids == [one] and asked.checks[0].value == b"half" and asked.checks[0].attempt == 1
    rig.advance(4_300)
    assert [check.attempt for check in asked.checks] == [1, 2, 3]
    rig.advance(2_200)
    found = rig.show(one)
    assert found is not None and found.state is State.EXPIRED and [check.to for check in found.checks] == ["first"] * 3
    queue = rig.kernel.groups.queue("$dead-letters/shop")
    assert queue is not None
    record, = rig.read_partition(queue.first_partition_id)
    assert record[3] == b"half" and record[6] == one
    with pytest.raises(AlreadyDecided):
        rig.commit(one)
