"""Who is asked, when, how often, and what is written down about it."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import AlreadyDecided, InvalidCheckBack, InvalidGroup, UnknownTransaction
from gatehouse.kernel.groups.dead_lettering import read_deaths
from gatehouse.transactions.coordinator import CheckSettings, State, TransactionSettings
from tests.kernel.groups.test_groups import handles, pop, values
from tests.transactions.rig import COMMIT, TransactionRig

FAST = CheckSettings(1_000, 5_000, 3)


@pytest.fixture
def rig() -> TransactionRig:
    return TransactionRig()


def checks(rig: TransactionRig, one: int) -> list[str]:
    """Who was asked, in order."""
    found = rig.show(one)
    assert found is not None
    return [check.to for check in found.checks]


def dead_letters(rig: TransactionRig, group: str = "shop") -> list[bytes | None]:
    queue = rig.kernel.groups.queue("$dead-letters/" + group)
    return [] if queue is None else [record[3] for record in rig.read_partition(queue.first_partition_id)]


def test_the_times_are_those_of_rocketmq(rig: TransactionRig):
    asked, _ = rig.join()
    rig.begin(("orders/1", b"half"))
    rig.advance(5_900)
    assert asked.ids == []
    rig.advance(300)
    assert len(asked.ids) == 1
    rig.advance(29_500)
    assert len(asked.ids) == 1
    rig.advance(14 * 30_000, 1_000)
    assert [check.attempt for check in asked.checks] == list(range(1, 16)) and dead_letters(rig) == []
    rig.advance(31_000, 1_000)
    assert len(asked.ids) == 15 and dead_letters(rig) == [b"half"]


def test_a_check_says_what_it_is_about(rig: TransactionRig):
    asked, _ = rig.join()
    one = rig.begin(("orders/1", b"first"), ("stock/1", b"second"), checks=FAST)
    rig.advance(1_100)
    check, = asked.checks
    assert (check.id, check.group, check.attempt, check.max_checks, check.messages) == (one, "shop", 1, 3, 2)
    assert (check.address, check.topic, check.key, check.value) == ("orders/1", "orders", b"1", b"first")
    assert (check.by, check.tenant, 1_000 <= check.age_ms <= 1_200) == ("the sender", "/", True)


def test_members_are_asked_in_turn(rig: TransactionRig):
    members = [rig.join(name=f"m{number}")[0] for number in range(3)]
    other, _ = rig.join("another group")
    for _ in range(6):
        rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(1_200)
    assert [len(asked.ids) for asked in members] == [2, 2, 2] and other.ids == []


def test_who_has_left_is_not_asked(rig: TransactionRig):
    first, membership = rig.join(name="first")
    second, _ = rig.join(name="second")
    membership.leave()
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(7_000)
    assert first.ids == [] and second.ids == [one, one]


def test_a_member_that_left_before_the_check_was_durable_is_stood_in_for(rig: TransactionRig):
    first, membership = rig.join(name="first")
    second, _ = rig.join(name="second")
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(900)                             # it has records of its own by now
    rig.world.loop.advance(200)
    while rig.world.loop.step() or rig.world.reader_worker.step():
        pass                                     # as far as the frame of the check, which is not written
    assert rig.transactions.statistics()["transaction_checks_total"] == 1
    membership.leave()
    rig.run()
    assert first.ids == [] and second.ids == [one]


def test_a_check_of_nobody_counts_and_who_joins_is_asked_at_once(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(6_500)
    assert checks(rig, one) == ["", ""]
    asked, membership = rig.join(name="late")
    assert asked.ids == [one] and asked.checks[0].attempt == 2
    assert checks(rig, one) == ["", "", "late"]
    membership.leave()
    other, _ = rig.join(name="later")
    assert other.ids == []                       # somebody has been asked
    rig.advance(5_200)
    assert [check.attempt for check in other.checks] == [3]
    rig.advance(5_200)
    assert rig.state(one) is State.EXPIRED


def test_what_was_asked_of_nobody_is_known_after_a_restart(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(1_200)
    rig.restart(lose_index=True)
    asked, _ = rig.join(name="late")
    assert asked.ids == [one]


def test_credit_bounds_what_a_member_is_asked(rig: TransactionRig):
    asked, membership = rig.join(credit=2)
    ids = [rig.begin(("orders/1", b"half"), checks=FAST) for _ in range(5)]
    rig.advance(1_200)
    assert asked.ids == ids[:2]
    membership.add_credit(2)
    rig.run()
    assert asked.ids == ids[:4]
    membership.add_credit(5)
    rig.run()
    assert asked.ids == ids


def test_many_that_reached_nobody_are_asked_as_far_as_there_is_room(rig: TransactionRig):
    for _ in range(2_500):
        rig.transactions.begin([rig.half("orders/1", b"half")], group="shop", settings=FAST)
    rig.run()
    rig.advance(1_200)
    asked, membership = rig.join(credit=1_200)
    assert len(set(asked.ids)) == len(asked.ids) == 1_200
    membership.add_credit(5_000)
    rig.run()
    assert len(set(asked.ids)) == len(asked.ids) == 2_500


def test_a_round_is_bounded_and_the_next_follows_at_once(rig: TransactionRig):
    asked, _ = rig.join()
    rig.transactions.begin([rig.half("orders/1", b"one")], group="shop", settings=FAST)
    for _ in range(2_499):
        rig.transactions.begin([rig.half("orders/1", b"more")], group="shop", settings=FAST)
    rig.run()
    rig.advance(1_200)
    assert len(set(asked.ids)) == len(asked.ids) == 2_500


def test_a_commit_that_comes_with_the_check_wins(rig: TransactionRig):
    asked, _ = rig.join()
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.forget_memory()                          # the check has to be read: the commit comes while it is
    two = rig.begin(("orders/1", b"other"), checks=FAST)
    rig.world.loop.advance(1_100)
    rig.commit(two)
    assert rig.state(two) is State.COMMITTED and rig.state(one) is State.OPEN
    rig.advance(60_000, 1_000)
    assert rig.state(two) is State.COMMITTED and rig.state(one) is State.EXPIRED


def test_an_answer_from_within_the_check(rig: TransactionRig):
    class Sender:
        def on_checks(self, checks: list) -> None:
            for check in checks:
                rig.transactions.decide(check.id, COMMIT, owner=rig.witness, token=check.id)
    rig.transactions.join("shop", "/", Sender())
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(1_200)
    assert rig.state(one) is State.COMMITTED and rig.values("orders") == [b"half"]


def test_a_member_with_a_fault_costs_the_others_nothing():
    rig = TransactionRig()

    class Faulty:
        def on_checks(self, checks: list) -> None:
            raise RuntimeError("a member's own fault")
    rig.transactions.join("shop", "/", Faulty())
    asked, _ = rig.join()
    ids = [rig.begin(("orders/1", b"half"), checks=FAST) for _ in range(2)]
    rig.world.advance(1_200)
    assert len(rig.errors) == 1 and len(asked.ids) == 1 and asked.ids[0] in ids


# ---- the end of it


def test_dead_letters_have_their_history_and_can_be_sent_back(rig: TransactionRig):
    one = rig.begin(("orders/7", b"half"), checks=FAST)
    rig.advance(30_000, 1_000)
    queue = rig.kernel.groups.queue("$dead-letters/shop")
    assert queue is not None
    letter, = rig.read_partition(queue.first_partition_id)
    death, = read_deaths(letter[4])
    assert (death["reason"], death["group"], death["topic"], death["address"], death["attempts"]) == (
        "unanswered", "shop", "orders", "orders/7", 3)
    assert letter[2] == b"7" and letter[6] == one
    assert rig.kernel.groups.redrive(queue, [letter]) == [None]
    rig.run()
    record, = rig.read("orders")
    assert (record[2], record[3], record[6]) == (b"7", b"half", one)
    assert rig.kernel.bounds(rig.kernel.place("orders/7").partition_id) == (0, 1)
    assert pop(rig, rig.kernel.groups.queue_group(queue)) == []


def test_a_late_decision_is_told_what_happened(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(30_000, 1_000)
    with pytest.raises(AlreadyDecided) as caught:
        rig.commit(one)
    assert caught.value.state == "expired"
    rig.rollback(one)                            # it has been
    with pytest.raises(AlreadyDecided):
        rig.add(one, ("orders/1", b"more"))


def test_without_a_group_it_has_a_time_and_leaves_nothing(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"), group="")
    rig.advance(59_000, 1_000)
    assert rig.state(one) is State.OPEN
    rig.advance(2_000)
    found = rig.show(one)
    assert found is not None and found.state is State.EXPIRED and found.checks == ()
    assert rig.values("orders") == [] and not rig.kernel.groups.queues()


def test_large_transactions_expire_one_after_the_other(rig: TransactionRig):
    for _ in range(12):
        rig.begin(*[("orders/1", bytes(1 << 20)) for _ in range(3)], checks=CheckSettings(1_000, 1_000, 0))
    rig.forget_memory()
    assert len(dead_letters(rig)) == 36


def test_a_dead_letter_can_be_popped_like_any_other(rig: TransactionRig):
    rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(30_000, 1_000)
    queue = rig.kernel.groups.queue("$dead-letters/shop")
    assert queue is not None
    group = rig.kernel.groups.queue_group(queue)
    popped = pop(rig, group)
    assert values(popped) == [b"half"] and rig.kernel.groups.address_of_leased(popped[0]) == "orders/1"
    assert group.ack(handles(popped)) == [None]


# ---- settings


def test_a_topic_has_its_own_times():
    rig = TransactionRig(TransactionSettings(topics={"slow": CheckSettings(20_000, 30_000, 1)}))
    asked, _ = rig.join()
    rig.begin(("slow/1", b"half"))
    rig.begin(("orders/1", b"half"))
    rig.advance(6_200)
    assert [check.address for check in asked.checks] == ["orders/1"]
    rig.advance(14_200)
    assert [check.address for check in asked.checks] == ["orders/1", "slow/1"]


@pytest.mark.parametrize("settings", [CheckSettings(0), CheckSettings(1, 0), CheckSettings(1, 1, -1),
                                      CheckSettings(1 << 40), CheckSettings(1, 1, 1_001)])
def test_times_that_cannot_be_are_refused(rig: TransactionRig, settings: CheckSettings):
    with pytest.raises(InvalidCheckBack):
        rig.begin(("orders/1", b"half"), checks=settings)


@pytest.mark.parametrize("group", ["a\0b", "x" * 300])
def test_a_group_that_cannot_be_is_refused(rig: TransactionRig, group: str):
    with pytest.raises(InvalidGroup):
        rig.begin(("orders/1", b"half"), group=group)


def test_adding_is_a_sign_of_life(rig: TransactionRig):
    asked, _ = rig.join()
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(800)
    rig.add(one, ("orders/1", b"more"))
    rig.advance(800)
    assert asked.ids == []
    rig.advance(400)
    assert asked.ids == [one] and asked.checks[0].messages == 2


# ---- by hand


def test_a_check_by_hand(rig: TransactionRig):
    asked, _ = rig.join(name="m")
    one = rig.begin(("orders/1", b"half"))
    rig.transactions.check_now(one, owner=rig.witness)
    rig.answer()
    assert asked.ids == [one] and checks(rig, one) == ["m"]
    rig.commit(one)
    rig.transactions.check_now(one, owner=rig.witness)
    with pytest.raises(AlreadyDecided):
        rig.answer()
    rig.transactions.check_now(999, owner=rig.witness)
    with pytest.raises(UnknownTransaction):
        rig.answer()


def test_who_checks_by_hand_without_end_is_listed_for_the_last_times(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"))
    for _ in range(120):
        rig.transactions.check_now(one)
        rig.run()
    found = rig.show(one)
    assert found is not None and (found.attempts, len(found.checks)) == (120, 100)


def test_a_check_by_hand_of_nobody_is_written_down(rig: TransactionRig):
    one = rig.begin(("orders/1", b"half"))
    rig.forget_memory()
    rig.transactions.check_now(one, owner=rig.witness)
    rig.answer()
    assert checks(rig, one) == [""]


def test_who_may_not_decide_is_told_so(rig: TransactionRig):
    def guard(transaction: object) -> None:
        raise PermissionError("not yours")
    one = rig.begin(("orders/1", b"half"))
    with pytest.raises(PermissionError):
        rig.commit(one, guard=guard)
    with pytest.raises(UnknownTransaction):
        rig.commit(5, guard=guard)
    assert rig.state(one) is State.OPEN


# ---- starts


def test_a_start_gives_members_time_to_come_back():
    rig = TransactionRig()
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.world.loop._now_ms += 60_000             # the hub was down for a minute
    rig.restart()
    rig.advance(3_000)
    assert checks(rig, one) == []
    asked, _ = rig.join(name="back")
    rig.advance(3_300)
    assert asked.ids == [one] and checks(rig, one) == ["back"]


@pytest.mark.parametrize("lose_index", [False, True])
def test_attempts_go_on_where_they_were(lose_index: bool):
    rig = TransactionRig()
    one = rig.begin(("orders/1", b"half"), checks=FAST)
    rig.advance(6_500)
    rig.restart(lose_index=lose_index)
    rig.advance(30_000, 1_000)
    assert rig.state(one) is State.EXPIRED and checks(rig, one) == ["", "", ""]
