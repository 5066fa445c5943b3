"""A consumer group: each step of a member from what it has to what it is to have, and a crowd in any order."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gatehouse.kernel.assigned.assigned_values import Beat, Beaten, ConsumerRules, GroupState
from gatehouse.kernel.assigned.consumer_group import BATCH_MS, BATCHED_FROM, SOON_MS, ConsumerGroup, Pace, Ranges
from gatehouse.kernel.errors import (
    FencedEpoch,
    FencedMember,
    GroupFull,
    InstanceTaken,
    KernelError,
    StaleEpoch,
    UnknownAssignor,
    UnknownMember,
)

NOW = 1_000
REBALANCE_MS = 60_000
RULES = ConsumerRules(max_members=5)


class Consumer:
    """A member as it sees itself: it gives up at once what it is told to, unless it is slow."""

    def __init__(self, hall: Hall, name: str, **fields: Any) -> None:
        self.hall = hall
        self.id = name
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.fields: dict[str, Any] = {"topics": frozenset({"t"}), "rebalance_ms": REBALANCE_MS, **fields}

    def beat(self, lose: bool = False, is_slow: bool = False, **fields: Any) -> Any:
        """Say that it is there, and do as it is told."""
        says = {**self.fields, **fields} if not self.epoch else fields
        beat = Beat(self.id, fields.pop("epoch", self.epoch), owned=self.owned, instance_id=self.fields.get(
            "instance_id"), **{name: value for name, value in says.items() if name not in ("epoch", "instance_id")})
        answer = self.hall.beat(beat)
        if isinstance(answer, (FencedEpoch, UnknownMember)):
            self.epoch, self.owned = 0, frozenset()
        elif isinstance(answer, Beaten) and not lose:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.owned = answer.assigned | (self.owned if is_slow else frozenset())
        return answer


class Hall:
    """A group, its clock, its topics, and its members."""

    def __init__(self, partitions: int = 4, rules: ConsumerRules = RULES) -> None:
        self.group = ConsumerGroup()
        self.rules = rules
        self.now_ms = NOW
        self.version = 1
        self.topics: dict[str, Ranges] = {"t": ((0, partitions),), "u": ((100, 2),)}
        self.answers: dict[Any, Any] = {}
        self.stored: set[str] = set()
        self.numbers = 0

    def ranges_of(self, name: str) -> Ranges:
        return self.topics.get(name, ())

    def ask(self, call: Callable[[Any], Any]) -> Any:
        self.numbers += 1
        number = self.numbers
        try:
            call(number)
        except KernelError as refusal:
            return refusal
        finally:
            changes = self.group.take()
            self.stored.update(changes.members)
            self.answers.update([*changes.answers, *changes.held])
        return self.answers.pop(number)

    def beat(self, beat: Beat, found: frozenset[str] | None = None) -> Any:
        return self.ask(lambda waiting: self.group.beat(self.now_ms, beat, found, self.rules, self.version,
                                                        self.ranges_of, waiting))

    def leave(self, name: str, instance_id: str | None = None, for_a_while: bool = False) -> Any:
        return self.ask(lambda waiting: self.group.leave(self.now_ms, name, instance_id, for_a_while, self.ranges_of,
                                                         waiting))

    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.group.on_time(self.now_ms, self.ranges_of)
        self.group.take()

    def joined(self, *names: str, **fields: Any) -> list[Consumer]:
        """Consumers that have come to rest."""
        consumers = [Consumer(self, name, **fields) for name in names]
        self.rest(consumers)
        return consumers

    def rest(self, consumers: list[Consumer], rounds: int = 6) -> None:
        for _ in range(rounds):
            for consumer in consumers:
                consumer.beat()
        assert self.group.state is (GroupState.STABLE if consumers else GroupState.EMPTY)

    def set_partitions(self, **partitions: Ranges) -> None:
        self.topics = {**self.topics, **partitions}
        self.version += 1


# ---- joining, and being assigned

def test_who_comes_first_gets_everything_at_once() -> None:
    hall = Hall()
    consumer = Consumer(hall, "a")
    assert consumer.beat() == Beaten("a", 1, RULES.heartbeat_ms, frozenset(range(4)))
    assert (hall.group.state, hall.group.epoch, hall.group.target_epoch) == (GroupState.STABLE, 1, 1)
    assert consumer.beat() == Beaten("a", 1, RULES.heartbeat_ms, None)


def test_the_second_waits_until_the_first_has_given_up() -> None:
    hall = Hall()
    first, = hall.joined("a")
    second = Consumer(hall, "b")
    assert second.beat() == Beaten("b", 2, SOON_MS, frozenset())
    assert hall.group.members["b"].pace is Pace.UNRELEASED and hall.group.state is GroupState.RECONCILING
    answer = first.beat(is_slow=True)
    assert answer.epoch == 1 and len(answer.assigned) == 2 and hall.group.members["a"].pace is Pace.UNREVOKED
    assert second.beat().assigned is None                                # it holds them still
    assert first.beat(is_slow=True).epoch == 1
    first.owned = answer.assigned
    assert first.beat() == Beaten("a", 2, RULES.heartbeat_ms, None)
    answer = second.beat()
    assert answer.epoch == 2 and answer.assigned == frozenset(range(4)) - first.owned
    assert hall.group.state is GroupState.STABLE


def test_a_member_that_says_nothing_of_what_it_has_gives_up_later() -> None:
    hall = Hall()
    first, = hall.joined("a")
    Consumer(hall, "b").beat()
    answer = hall.beat(Beat("a", 1))
    assert answer.epoch == 1 and len(answer.assigned) == 2
    assert hall.beat(Beat("a", 1)).assigned is None and hall.group.members["a"].pace is Pace.UNREVOKED


def test_a_member_that_has_given_up_too_late_follows_the_newest_target() -> None:
    hall = Hall(6)
    first, = hall.joined("a")
    second, third = Consumer(hall, "b"), Consumer(hall, "c")
    second.beat()
    given = first.beat(is_slow=True).assigned
    third.beat()
    first.owned = given
    answer = first.beat()
    assert len(answer.assigned) == 2 and answer.epoch == 1               # once more
    assert first.beat().epoch == 3
    hall.rest([first, second, third])
    assert sorted(map(len, (first.owned, second.owned, third.owned))) == [2, 2, 2]


def test_a_member_that_does_not_give_up_in_time_is_taken_out() -> None:
    hall = Hall()
    first, = hall.joined("a")
    second = Consumer(hall, "b")
    second.beat()
    first.beat(is_slow=True)
    for _ in range(REBALANCE_MS // 10_000 - 1):
        hall.pass_time(10_000)
        first.beat(is_slow=True)
        second.beat()
        assert "a" in hall.group.members
    hall.pass_time(10_000)
    assert isinstance(first.beat(), UnknownMember) and len(second.beat().assigned) == 4


def test_who_leaves_or_is_silent_leaves_its_partitions_to_others() -> None:
    hall = Hall()
    first, second, third = hall.joined("a", "b", "c")
    assert hall.leave("c") == Beaten("c", -1, 0, None)
    hall.rest([first, second])
    for _ in range(5):
        hall.pass_time(RULES.session_ms // 5)
        second.beat()
    assert list(hall.group.members) == ["b"]
    hall.rest([second])
    assert len(second.owned) == 4
    assert isinstance(hall.leave("a"), UnknownMember)
    assert hall.leave("b").epoch == -1 and hall.group.state is GroupState.EMPTY and hall.group.next_ms() is None
    assert hall.group.size_bytes == 0 and not hall.group._wanted and not hall.group._holders


# ---- epochs

def test_a_member_that_missed_its_epoch_may_say_so_with_what_it_had() -> None:
    hall = Hall()
    first, = hall.joined("a")
    hall.set_partitions(t=((0, 5),))
    assert first.beat(lose=True).epoch == 2
    answer = hall.beat(Beat("a", 1, owned=first.owned, rebalance_ms=1, topics=frozenset({"t"})))
    assert answer.epoch == 2 and answer.assigned == frozenset(range(5))
    assert isinstance(hall.beat(Beat("a", 1)), FencedEpoch)
    assert isinstance(hall.beat(Beat("a", 1, owned=frozenset({99}))), FencedEpoch)
    assert isinstance(hall.beat(Beat("a", 3)), FencedEpoch)


def test_a_member_that_begins_anew_has_nothing_and_gets_it_again() -> None:
    hall = Hall()
    first, second = hall.joined("a", "b")
    mine, first.epoch, first.owned = first.owned, 0, frozenset()
    answer = first.beat()
    assert (answer.epoch, answer.assigned) == (hall.group.target_epoch, mine)
    assert second.beat().assigned is None


@pytest.mark.parametrize(("member", "epoch", "expected"), [
    ("a", 1, None), ("a", 0, StaleEpoch), ("a", 2, StaleEpoch), ("b", 1, UnknownMember), ("", -1, UnknownMember)])
def test_who_may_commit(member: str, epoch: int, expected: Any) -> None:
    hall = Hall()
    hall.joined("a")
    if expected is None:
        hall.group.require_commit(member, None, epoch)
    else:
        with pytest.raises(expected):
            hall.group.require_commit(member, None, epoch)


def test_nobody_commits_for_everybody_where_there_are_no_members() -> None:
    Hall().group.require_commit("", None, -1)


# ---- static members

def test_a_static_member_comes_back_to_what_it_had() -> None:
    hall = Hall()
    first, second = Consumer(hall, "a"), Consumer(hall, "b", instance_id="two")
    hall.rest([first, second])
    epoch, had = hall.group.epoch, second.owned
    taken = Consumer(hall, "b2", instance_id="two")
    assert isinstance(taken.beat(), InstanceTaken)
    assert hall.leave("b", "two", for_a_while=True) == Beaten("b", -2, 0, None)
    assert isinstance(second.beat(), FencedEpoch)
    assert first.beat().assigned is None                              # they are kept for it
    answer = taken.beat()
    assert (answer.assigned, answer.epoch, hall.group.epoch) == (had, epoch, epoch)
    assert isinstance(hall.beat(Beat("b", epoch, instance_id="two")), FencedMember)
    assert isinstance(hall.beat(Beat("x", epoch, instance_id="three")), UnknownMember)
    assert isinstance(hall.leave("b", "two"), FencedMember)
    assert {"b", "b2"} <= hall.stored


def test_a_static_member_that_stays_away_is_taken_out() -> None:
    hall = Hall()
    hall.joined("a", instance_id="one")
    hall.leave("a", "one", for_a_while=True)
    hall.pass_time(RULES.session_ms)
    assert hall.group.state is GroupState.EMPTY


def test_a_member_keeps_its_instance_id() -> None:
    hall = Hall()
    hall.joined("a", instance_id="one")
    assert isinstance(Consumer(hall, "a", instance_id="two").beat(), FencedMember)
    assert isinstance(Consumer(hall, "a").beat(), FencedMember)


# ---- what members want

def test_what_changes_what_is_wanted_begins_a_new_epoch() -> None:
    hall = Hall()
    first, = hall.joined("a")
    answer = first.beat(topics=frozenset({"t", "u"}))
    assert (answer.epoch, answer.assigned) == (2, frozenset([0, 1, 2, 3, 100, 101]))
    assert first.beat(rebalance_ms=5).epoch == 2                         # nothing of that kind
    assert first.beat(assignor="range").epoch == 3 and hall.group.assignor == "range"
    hall.set_partitions(other=((200, 1),))
    assert first.beat().epoch == 3                                       # nobody wants that one
    hall.set_partitions(u=())
    answer = first.beat(is_slow=True)
    assert (answer.epoch, answer.assigned) == (3, frozenset(range(4)))   # it has yet to say that it has them no more
    first.owned = answer.assigned
    assert first.beat().epoch == 4
    assert isinstance(first.beat(assignor="magic"), UnknownAssignor)


def test_what_a_pattern_finds_is_wanted_too() -> None:
    hall = Hall()
    beat = Beat("a", 0, topics=frozenset({"t"}), pattern="u.*", rebalance_ms=1, owned=frozenset())
    assert hall.beat(beat, frozenset({"u"})).assigned == frozenset([0, 1, 2, 3, 100, 101])
    assert hall.group.describe().members[0].matched == frozenset({"u"})
    full = Beat("a", 1, pattern="", rebalance_ms=1, owned=frozenset([0]))
    assert hall.beat(full).assigned == frozenset(range(4))
    assert (hall.group.members["a"].pattern, hall.group.members["a"].matched) == ("", frozenset())


def test_what_most_ask_for_assigns() -> None:
    hall = Hall(3)
    hall.joined("a", "b", assignor="range")
    Consumer(hall, "c", assignor="uniform").beat()
    assert hall.group.assignor == "range"


# ---- bounds

def test_a_group_has_so_many_members_and_no_more() -> None:
    hall = Hall()
    members = [Consumer(hall, name) for name in "abcde"]
    for member in members:
        member.beat()
    assert isinstance(Consumer(hall, "f").beat(), GroupFull)
    assert isinstance(members[0].beat(), Beaten)


def test_many_members_are_not_assigned_anew_for_each_of_them() -> None:
    hall = Hall(1000, ConsumerRules(max_members=1000))
    members = [Consumer(hall, f"m{number}") for number in range(BATCHED_FROM + 20)]
    for member in members:
        member.beat()
    assert hall.group.state is GroupState.ASSIGNING and hall.group.epoch - hall.group.target_epoch >= 15
    late = members[-1]
    assert late.epoch == hall.group.target_epoch and not late.owned
    next_ms = hall.group.next_ms()
    assert next_ms is not None and 0 < next_ms - NOW <= BATCH_MS * len(members)
    hall.pass_time(next_ms - NOW)
    hall.rest(members, 4)
    assert {len(member.owned) for member in members} == {14, 15}


# ---- everything in any order

class Crowd(RuleBasedStateMachine):
    """Consumers that come, go, fall silent, are slow and lose answers; partitions that come and go."""

    NAMES = st.sampled_from("abcd")

    def __init__(self) -> None:
        super().__init__()
        self.hall = Hall(3)
        self.consumers: dict[str, Consumer] = {}

    @rule(name=NAMES, topics=st.sets(st.sampled_from("tu"), min_size=1), is_static=st.booleans())
    def join(self, name: str, topics: set[str], is_static: bool) -> None:
        if name not in self.consumers:
            fields = {"instance_id": f"static-{name}"} if is_static else {}
            consumer = self.consumers[name] = Consumer(self.hall, name, topics=frozenset(topics), **fields)
            if isinstance(consumer.beat(), (FencedMember, InstanceTaken, GroupFull)):
                del self.consumers[name]

    @rule(name=NAMES, lose=st.booleans(), is_slow=st.booleans())
    def beat(self, name: str, lose: bool, is_slow: bool) -> None:
        if name in self.consumers:
            self.consumers[name].beat(lose, is_slow)

    @rule(name=NAMES)
    def give_up(self, name: str) -> None:
        member = self.hall.group.members.get(name)
        if name in self.consumers and member is not None:
            self.consumers[name].owned &= member.assigned

    @rule(name=NAMES, for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        consumer = self.consumers.pop(name, None)
        if consumer is not None:
            instance_id = consumer.fields.get("instance_id")
            self.hall.leave(name, instance_id, for_a_while and instance_id is not None)

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        self.consumers.pop(name, None)

    @rule(by_ms=st.sampled_from([10, 20_000]))
    def pass_time(self, by_ms: int) -> None:
        for consumer in self.consumers.values():
            consumer.beat(is_slow=True)
        self.hall.pass_time(by_ms)

    @rule(partitions=st.integers(0, 5))
    def resize(self, partitions: int) -> None:
        self.hall.set_partitions(t=((0, partitions),) if partitions else ())

    @rule()
    def crash(self) -> None:
        """What is stored comes back."""
        old, new = self.hall.group, ConsumerGroup()
        new.restore(self.hall.now_ms, old.epoch, old.target_epoch, old.assignor, old.topics_digest,
                    list(old.members.values()), RULES)
        new.take()
        self.hall.group = new

    @precondition(lambda self: self.consumers)
    @rule()
    def rest(self) -> None:
        """Everybody does as told, the dead are found out: all is assigned, and nothing is twice."""
        for _ in range(20):
            for consumer in self.consumers.values():
                consumer.beat()
            self.hall.pass_time(RULES.session_ms // 8)
        assert self.hall.group.state is GroupState.STABLE
        owned = sorted([each for consumer in self.consumers.values() for each in consumer.owned])
        wanted = {each for consumer in self.consumers.values() for name in consumer.fields["topics"]
                  for first, count in self.hall.ranges_of(name) for each in range(first, first + count)}
        assert owned == sorted(wanted)

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        group = self.hall.group
        alive = [consumer.owned for name, consumer in self.consumers.items()
                 if name in group.members and consumer.epoch]
        assert len(frozenset().union(*alive)) == sum(map(len, alive))

    @invariant()
    def books_are_kept(self) -> None:
        group = self.hall.group
        held = [each for member in group.members.values() for each in member.assigned | member.revoking]
        assert len(held) == len(set(held)) and set(held) == set(group._holders)
        assert group.size_bytes == sum([member.said_bytes for member in group.members.values()])
        assert group.target_epoch <= group.epoch


Crowd.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestCrowd = Crowd.TestCase
