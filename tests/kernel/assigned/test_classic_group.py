"""A group that shares partitions out by itself: every state with every request, and members in any order."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gatehouse.kernel.assigned.assigned_values import Assigned, GroupRules, GroupState, Joined, Joining
from gatehouse.kernel.assigned.classic_group import MAX_GENERATION, NEW_MEMBER_MS, ClassicGroup
from gatehouse.kernel.errors import (
    FencedMember,
    GroupFull,
    InconsistentProtocol,
    KernelError,
    MemberIdRequired,
    Rebalancing,
    StaleGeneration,
    StorageFull,
    UnknownMember,
)

EMPTY, PREPARING, COMPLETING, STABLE = (GroupState.EMPTY, GroupState.PREPARING, GroupState.COMPLETING,
                                        GroupState.STABLE)
RANGE = (("range", b"all"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
NOW = 1_000
RULES = GroupRules()


def joining(member_id: str = "", instance: str | None = None, protocols: tuple[tuple[str, bytes], ...] = RANGE,
            **fields: Any) -> Joining:
    return Joining("consumer", protocols, member_id, instance, **{
        "comes_again": False, "session_ms": SESSION_MS, "rebalance_ms": REBALANCE_MS, **fields})


class Hall:
    """A group, its clock, and who was answered what."""

    def __init__(self, rules: GroupRules = RULES) -> None:
        self.group = ClassicGroup()
        self.rules = rules
        self.now_ms = NOW
        self.answers: dict[Any, Any] = {}
        self.writes: list[tuple[int, list[tuple[Any, Any]]]] = []

    def settle(self) -> None:
        effects = self.group.take()
        for waiting, answer in effects.answers:
            assert waiting not in self.answers, "answered twice"
            self.answers[waiting] = answer
        if effects.store:
            self.writes.append((self.group.generation, effects.held))
        else:
            assert not effects.held

    def ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KernelError as refusal:
            return refusal
        finally:
            self.settle()

    def join(self, waiting: Any, joining: Joining, new_id: str = "") -> Any:
        return self.ask(lambda: self.group.join(self.now_ms, joining, self.rules, new_id or str(waiting), waiting))

    def sync(self, waiting: Any, member: str, assignments: dict[str, bytes] | None = None, generation: int = 0,
             instance: str | None = None, protocol: tuple[str | None, str | None] = (None, None)) -> Any:
        return self.ask(lambda: self.group.sync(self.now_ms, member, instance, generation or self.group.generation,
                                                protocol, assignments or {}, waiting))

    def heartbeat(self, member: str, generation: int = 0, instance: str | None = None) -> Any:
        return self.ask(lambda: self.group.heartbeat(self.now_ms, member, instance,
                                                     generation or self.group.generation))

    def commit(self, member: str, generation: int = 0, instance: str | None = None) -> Any:
        return self.ask(lambda: self.group.require_commit(self.now_ms, member, instance,
                                                          generation or self.group.generation))

    def leave(self, *members: tuple[str, str | None]) -> Any:
        return self.ask(lambda: self.group.leave(self.now_ms, members))

    def store(self, error: KernelError | None = None) -> None:
        writes, self.writes = self.writes, []
        for generation, held in writes:
            self.group.stored(self.now_ms, generation, error)
            for waiting, answer in held:
                assert waiting not in self.answers, "answered twice"
                self.answers[waiting] = error or answer
        self.settle()

    def pass_time(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while (next_ms := self.group.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.group.on_time(self.now_ms)
            self.settle()
        self.now_ms = until_ms

    def stable(self, *members: str) -> Hall:
        """Members a, b, ...: the first leads, each has its own name assigned."""
        for member in members:
            self.join(f"join {member}", joining(), member)
        for member in members[:-1]:                      # the last one began anew what the first had
            self.join(f"again {member}", joining(member))
        for member in members[1:]:
            self.sync(f"sync {member}", member)
        self.sync(f"sync {members[0]}", members[0], {member: member.encode() for member in members})
        self.store()
        assert self.group.state is STABLE and set(self.group.members) == set(members)
        return self

    def in_state(self, state: GroupState) -> Hall:
        """Of members a and b, a leads; in PREPARING a has joined again, in EMPTY both have left."""
        self.stable("a", "b")
        if state is EMPTY:
            self.leave(("a", None), ("b", None))
        if state in (PREPARING, COMPLETING):
            self.join("a rejoins", joining("a"))
        if state is COMPLETING:
            self.join("b rejoins", joining("b"))
        assert self.group.state is state
        return self


def kind(answer: Any) -> Any:
    return type(answer) if isinstance(answer, KernelError) else answer


# ---- every state with every request of a member

@pytest.mark.parametrize(("state", "join_same", "join_other", "sync", "heartbeat", "commit"), [
    (EMPTY, UnknownMember, UnknownMember, UnknownMember, UnknownMember, UnknownMember),
    (PREPARING, COMPLETING, COMPLETING, Rebalancing, Rebalancing, None),
    (COMPLETING, COMPLETING, PREPARING, None, None, Rebalancing),
    (STABLE, STABLE, PREPARING, None, None, None),
])
def test_each_state_answers_each_request(state: GroupState, join_same: Any, join_other: Any, sync: Any, heartbeat: Any,
                                         commit: Any) -> None:
    """What member b is answered, and after a join the state that follows."""
    other = (("range", b"others"),)
    for protocols, expected in ((RANGE, join_same), (other, join_other)):
        hall = Hall().in_state(state)
        refusal = hall.join("b joins", joining("b", protocols=protocols))
        assert (kind(refusal) or hall.group.state) is expected
        assert isinstance(hall.answers.get("b joins"), Joined) == (expected in (COMPLETING, STABLE))
    assert kind(Hall().in_state(state).sync("b syncs", "b")) is sync
    assert kind(Hall().in_state(state).heartbeat("b")) is heartbeat
    assert kind(Hall().in_state(state).commit("b")) is commit


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_each_state_refuses_who_is_nobody_or_late(state: GroupState) -> None:
    late = Hall().in_state(state).group.generation - 1
    for ask in (Hall.heartbeat, Hall.commit, lambda hall, name, late=0: hall.sync("syncs", name, generation=late)):
        assert kind(ask(Hall().in_state(state), "nobody")) is UnknownMember
        assert kind(ask(Hall().in_state(state), "b", late)) is StaleGeneration
    assert kind(Hall().in_state(state).join("nobody joins", joining("nobody"))) is UnknownMember
    assert [kind(refusal) for refusal in Hall().in_state(state).leave(("nobody", None), ("b", None))] \
        == [UnknownMember, None]
    for protocols in ((("sticky", b""),), ()):
        assert kind(Hall().in_state(state).join("other", joining(protocols=protocols))) is InconsistentProtocol
    connect = joining()._replace(protocol_type="connect")
    assert kind(Hall().in_state(state).join("other", connect)) is InconsistentProtocol


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_a_member_that_leaves_or_is_silent_begins_a_new_generation(state: GroupState) -> None:
    for goes in (lambda hall: hall.leave(("b", None)), lambda hall: hall.pass_time(REBALANCE_MS + SESSION_MS)):
        hall = Hall().in_state(state)
        before = hall.group.generation
        if state is COMPLETING:
            hall.sync("a syncs", "a")                    # and waits
        goes(hall)
        if state is PREPARING:
            assert hall.answers["a rejoins"].generation == before + 1
        assert "b" not in hall.group.members
        assert hall.group.state is PREPARING or hall.group.generation > before


def test_an_empty_group_is_joined_with_a_protocol_and_committed_to_by_nobody_in_particular() -> None:
    hall = Hall().in_state(EMPTY)
    assert kind(hall.join("x", joining(protocols=()))) is InconsistentProtocol
    assert kind(hall.join("x", joining()._replace(protocol_type=""))) is InconsistentProtocol
    assert hall.commit("", -1) is None
    assert kind(hall.commit("", 3)) is UnknownMember
    assert hall.commit("x", -1) is None
    assert kind(Hall().in_state(STABLE).commit("", -1)) is UnknownMember
    hall.join("c", joining()._replace(protocol_type="connect"))
    assert hall.group.protocol_type == "connect" and hall.answers["c"].leader == "c"


# ---- joining

def test_the_leader_hears_what_everybody_says_and_everybody_its_part() -> None:
    hall = Hall().stable("a", "b", "c")
    generation = hall.group.generation
    assert hall.answers["again a"] == Joined("a", generation, "consumer", "range", "a", tuple(
        (member, None, b"all") for member in "abc"))
    assert hall.answers["join c"] == Joined("c", generation, "consumer", "range", "a")
    assert [hall.answers[f"sync {member}"] for member in "abc"] == [
        Assigned("consumer", "range", member) for member in (b"a", b"b", b"c")]
    hall.sync("late", "b")
    assert hall.answers["late"].assignment == b"b"


def test_the_protocol_is_one_that_all_know_and_most_like() -> None:
    hall = Hall()
    hall.join("a", joining(protocols=(("x", b""), ("y", b"1"), ("z", b""))))
    hall.join("b", joining(protocols=(("z", b""), ("y", b"2"))))
    hall.join("c", joining(protocols=(("y", b"3"), ("z", b""))))
    hall.join("b again", joining("b", protocols=(("z", b""), ("y", b"2"))))
    hall.join("a again", joining("a", protocols=(("x", b""), ("y", b"1"), ("z", b""))))
    assert {hall.answers[name].protocol for name in ("a again", "b again", "c")} == {"y"}
    assert hall.answers["a again"].members == (("a", None, b"1"), ("b", None, b"2"), ("c", None, b"3"))
    assert kind(hall.sync("wrong", "b", protocol=("consumer", "z"))) is InconsistentProtocol
    assert kind(hall.sync("wrong", "b", protocol=("connect", "y"))) is InconsistentProtocol
    assert hall.sync("right", "b", protocol=("consumer", "y")) is None


def test_a_new_client_is_given_an_id_and_comes_again_with_it() -> None:
    hall = Hall()
    refusal = hall.join("first", joining(comes_again=True), "promised")
    assert isinstance(refusal, MemberIdRequired) and refusal.member_id == "promised"
    assert hall.group.state is EMPTY
    assert hall.join("second", joining("promised", comes_again=True)) is None
    assert hall.answers["second"].member_id == "promised"
    assert kind(hall.join("again", joining(comes_again=True), "never")) is MemberIdRequired
    hall.pass_time(SESSION_MS)
    assert kind(hall.join("too late", joining("never", comes_again=True))) is UnknownMember


def test_who_has_been_given_an_id_is_waited_for() -> None:
    hall = Hall().in_state(PREPARING)
    hall.join("first", joining(comes_again=True), "c")
    hall.join("b rejoins", joining("b"))
    assert hall.group.state is PREPARING
    hall.join("c", joining("c", comes_again=True))
    assert hall.answers["c"].generation == hall.group.generation and hall.group.state is COMPLETING
    gives_up = Hall().in_state(PREPARING)
    gives_up.join("first", joining(comes_again=True), "c")
    gives_up.join("b rejoins", joining("b"))
    gives_up.leave(("c", None))
    assert gives_up.group.state is COMPLETING


def test_ids_that_are_promised_are_bounded() -> None:
    hall = Hall(GroupRules(max_members=3))
    for number in range(10):
        assert kind(hall.join(number, joining(comes_again=True), str(number))) is MemberIdRequired
    assert kind(hall.join("x", joining("6", comes_again=True))) is UnknownMember
    assert hall.join("y", joining("7", comes_again=True)) is None


def test_a_group_has_no_more_members_than_it_may() -> None:
    hall = Hall(GroupRules(max_members=2)).stable("a", "b")
    assert kind(hall.join("c", joining(), "c")) is GroupFull
    assert hall.group.state is STABLE
    hall.rules = GroupRules(max_members=1)
    hall.join("a", joining("a"))
    assert kind(hall.join("b", joining("b"))) is GroupFull          # it sheds who has not joined yet
    assert hall.answers["a"].members == (("a", None, b"all"),)


def test_members_that_do_not_join_in_time_are_none_any_more() -> None:
    hall = Hall().stable("a", "b")
    hall.join("b rejoins", joining("b", protocols=(("range", b"others"),)))
    while hall.group.state is PREPARING:
        assert kind(hall.heartbeat("a")) is Rebalancing             # which keeps its session, and is not to join
        hall.pass_time(SESSION_MS // 2)
    assert hall.answers["b rejoins"] == Joined("b", hall.group.generation, "consumer", "range", "b",
                                               (("b", None, b"others"),))
    assert kind(hall.heartbeat("a")) is UnknownMember


def test_the_first_member_waits_for_others_while_more_come() -> None:
    hall = Hall(GroupRules(initial_delay_ms=3_000))
    hall.join("a", joining())
    hall.pass_time(2_000)
    hall.join("b", joining())
    hall.pass_time(1_500)
    assert not hall.answers
    hall.pass_time(2_500)
    assert hall.answers["a"].generation == hall.answers["b"].generation == 1
    assert len(hall.answers["a"].members) == 2


def test_the_wait_for_more_members_ends_with_the_rebalance_time() -> None:
    hall = Hall(GroupRules(initial_delay_ms=3_000))
    for number in range(30):
        hall.join(number, joining(rebalance_ms=10_000))
        hall.pass_time(1_000)
        if hall.answers:
            break
    assert hall.now_ms - NOW == 10_000 and len(hall.answers) == 10


def test_a_first_join_whose_client_is_gone_is_forgotten() -> None:
    hall = Hall().in_state(STABLE)
    hall.join("c", joining(rebalance_ms=NEW_MEMBER_MS * 2))
    while "c" not in hall.answers:
        for member in ("a", "b"):
            assert kind(hall.heartbeat(member)) is Rebalancing
        hall.pass_time(SESSION_MS // 2)
    assert kind(hall.answers["c"]) is UnknownMember and hall.now_ms - NOW >= NEW_MEMBER_MS


def test_who_asks_twice_is_answered_once_each() -> None:
    hall = Hall().in_state(PREPARING)
    hall.join("a once more", joining("a"))
    assert kind(hall.answers["a rejoins"]) is Rebalancing
    hall.join("b rejoins", joining("b"))
    assert isinstance(hall.answers["a once more"], Joined)
    hall.sync("b syncs", "b")
    hall.sync("b syncs again", "b")
    assert kind(hall.answers["b syncs"]) is Rebalancing and "b syncs again" not in hall.answers


# ---- the assignment

def test_an_assignment_is_told_when_it_is_stored_and_not_before() -> None:
    hall = Hall().in_state(COMPLETING)
    hall.sync("b syncs", "b")
    hall.sync("a syncs", "a", {"a": b"1", "b": b"2", "stranger": b"3"})
    assert hall.group.state is COMPLETING and len(hall.writes) == 1 and "b syncs" not in hall.answers
    hall.store()
    assert hall.group.state is STABLE
    assert (hall.answers["a syncs"].assignment, hall.answers["b syncs"].assignment) == (b"1", b"2")


def test_an_assignment_that_the_disk_refused_is_told_nobody() -> None:
    hall = Hall().in_state(COMPLETING)
    hall.sync("b syncs", "b")
    hall.sync("a syncs", "a", {"b": b"2"})
    hall.store(StorageFull("full"))
    assert kind(hall.answers["a syncs"]) is kind(hall.answers["b syncs"]) is StorageFull
    hall.join("a", joining("a"))
    assert hall.answers["a"].members and hall.group.state is COMPLETING      # it leads still, and assigns again
    hall.sync("b syncs again", "b")
    hall.sync("a syncs again", "a", {"b": b"3"})
    hall.store()
    assert hall.answers["b syncs again"].assignment == b"3"


def test_what_was_assigned_before_a_new_generation_counts_no_more() -> None:
    hall = Hall().in_state(COMPLETING)
    hall.sync("a syncs", "a", {"a": b"1", "b": b"2"})
    hall.leave(("b", None))
    assert kind(hall.answers["a syncs"]) is Rebalancing
    hall.join("a", joining("a"))
    hall.store()
    assert hall.group.state is COMPLETING
    hall.sync("a syncs again", "a", {"a": b"4"})
    assert "a syncs again" not in hall.answers
    hall.store()
    assert hall.answers["a syncs again"].assignment == b"4"


def test_members_that_never_ask_for_their_part_are_none_any_more() -> None:
    hall = Hall().in_state(COMPLETING)
    hall.sync("b syncs", "b")
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        hall.heartbeat("a")
        hall.pass_time(SESSION_MS // 2)
    assert kind(hall.answers["b syncs"]) is Rebalancing and "a" not in hall.group.members


# ---- static members

def static(*names: str, rules: GroupRules = RULES) -> Hall:
    """Static members of these instance ids, a leads; their member ids are a1, b1, ..."""
    hall = Hall(rules)
    for name in names:
        hall.join(f"join {name}", joining(instance=name), f"{name}1")
    for name in names[:-1]:
        hall.join(f"again {name}", joining(f"{name}1", name))
    for name in reversed(names):
        hall.sync(f"sync {name}", f"{name}1", {f"{each}1": each.encode() for each in names})
    hall.store()
    assert hall.group.state is STABLE
    return hall


def test_a_static_member_comes_back_without_a_new_generation() -> None:
    hall = static("a", "b")
    generation = hall.group.generation
    assert hall.join("back", joining(instance="b"), "b2") is None
    assert "back" not in hall.answers
    hall.store()                                                    # it is told once the old id is fenced for good
    assert hall.answers["back"] == Joined("b2", generation, "consumer", "range", "a1")
    assert hall.group.state is STABLE
    hall.sync("sync", "b2", instance="b")
    assert hall.answers["sync"].assignment == b"b"
    assert kind(hall.heartbeat("b1", instance="b")) is FencedMember
    assert kind(hall.commit("b1", instance="b")) is FencedMember
    assert kind(hall.join("old", joining("b1", "b"))) is FencedMember
    assert kind(hall.sync("old", "b1", instance="b")) is FencedMember
    assert kind(hall.heartbeat("b1")) is UnknownMember
    assert hall.heartbeat("b2", instance="b") is None
    assert [kind(refusal) for refusal in hall.leave(("b1", "b"), ("", "c"))] == [FencedMember, UnknownMember]


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_that_comes_back_is_not_to_assign(may_skip: bool) -> None:
    hall = static("a", "b")
    hall.join("back", joining(instance="a", may_skip=may_skip), "a2")
    hall.store()
    answer = hall.answers["back"]
    assert answer.skip_assignment is may_skip
    assert (answer.leader, len(answer.members)) == (("a2", 2) if may_skip else ("a1", 0))
    assert hall.group.leader == "a2"


def test_a_static_member_with_another_protocol_begins_a_new_generation() -> None:
    hall = Hall()
    both = (("range", b""), ("sticky", b""))
    hall.join("a", joining(instance="a", protocols=both), "a1")
    hall.sync("sync", "a1")
    hall.store()
    hall.join("back", joining(instance="a", protocols=both[::-1]), "a2")
    assert hall.answers["back"].protocol == "sticky" and hall.answers["back"].generation == 2


@pytest.mark.parametrize("state", [PREPARING, COMPLETING])
def test_a_static_member_that_comes_back_takes_the_place_of_one_that_waits(state: GroupState) -> None:
    hall = static("a", "b")
    hall.join("a waits", joining("a1", "a"))
    if state is COMPLETING:
        hall.join("b joins", joining("b1", "b"))
        hall.sync("a syncs", "a1", instance="a")
    hall.join("back", joining(instance="a"), "a2")
    assert kind(hall.answers["a waits" if state is PREPARING else "a syncs"]) is FencedMember
    assert hall.group.state is PREPARING
    hall.join("b rejoins", joining("b1", "b"))
    assert hall.answers["back"].leader == "a2" and len(hall.answers["back"].members) == 2


def test_a_static_member_that_is_away_keeps_its_place_for_its_session() -> None:
    hall = static("a", "b")
    hall.join("a", joining("a1", "a", protocols=(("range", b"others"),), rebalance_ms=1_000))
    hall.group.members["b1"].joining = hall.group.members["b1"].joining._replace(rebalance_ms=1_000)
    hall.join("a again", joining("a1", "a", protocols=(("range", b"others"),), rebalance_ms=1_000))
    hall.group.members["b1"].expires_ms = hall.now_ms + 5 * REBALANCE_MS
    hall.pass_time(REBALANCE_MS)
    assert [member for member, _, _ in hall.answers["a again"].members] == ["a1", "b1"]


def test_nobody_leads_a_group_whose_static_members_are_all_away() -> None:
    hall = static("a", "b")
    hall.join("c", joining(rebalance_ms=1_000), "c")
    hall.leave(("c", None))
    assert hall.group.state is PREPARING
    for member in hall.group.members.values():
        member.expires_ms = hall.now_ms + 3 * REBALANCE_MS
    hall.pass_time(2 * REBALANCE_MS)
    assert hall.group.state is PREPARING and len(hall.group.members) == 2
    hall.join("b", joining("b1", "b"))
    hall.pass_time(REBALANCE_MS)
    assert hall.answers["b"].leader == "b1"


# ---- over a restart

def test_a_group_that_was_stored_goes_on_with_its_generation() -> None:
    before = Hall().stable("a", "b")
    group = before.group
    after = Hall()
    after.group.restore(after.now_ms, group.generation, group.protocol_type, group.protocol, group.leader,
                        list(group.members.values()))
    assert after.group.describe() == group.describe()
    assert after.heartbeat("a") is None and after.commit("b") is None
    after.sync("sync", "b")
    assert after.answers["sync"].assignment == b"b"
    after.pass_time(SESSION_MS // 2)
    after.heartbeat("a")
    after.pass_time(SESSION_MS // 2)
    assert after.group.state is PREPARING and list(after.group.members) == ["a"]


def test_a_generation_that_nobody_was_told_an_assignment_of_may_come_again_and_no_other() -> None:
    hall = Hall()
    hall.group.restore(NOW, MAX_GENERATION, "consumer", "range", "", [])
    hall.join("a", joining())
    assert hall.answers["a"].generation == 1


# ---- anything, in any order

class Members(RuleBasedStateMachine):
    """Some clients that do whatever they like. Each remembers what it was told, and believes it, or what it was told
    before."""

    @initialize(delay_ms=st.sampled_from((0, 3_000)), most=st.sampled_from((2, 100)))
    def begin(self, delay_ms: int, most: int) -> None:
        self.hall = Hall(GroupRules(delay_ms, most))
        self.count = 0
        self.asked: set[int] = set()
        self.ids: list[str] = [""]
        self.generation = 0
        self.assignments: dict[tuple[int, str], bytes] = {}

    def waiting(self) -> int:
        self.count += 1
        return self.count

    def refused(self, waiting: int, answer: Any) -> None:
        """Either refused at once, or an answer comes."""
        if isinstance(answer, KernelError):
            assert waiting not in self.hall.answers
            if isinstance(answer, MemberIdRequired):
                self.ids.append(answer.member_id)
        else:
            self.asked.add(waiting)

    @rule(which=st.integers(0, 99), instance=st.sampled_from((None, "i", "j")), comes_again=st.booleans(),
          protocols=st.sampled_from((RANGE, (("sticky", b"s"), ("range", b"r")), (("range", b"x"), ("sticky", b"")))),
          may_skip=st.booleans())
    def join(self, which: int, instance: str | None, comes_again: bool, protocols: Any, may_skip: bool) -> None:
        waiting = self.waiting()
        member_id = self.ids[which % len(self.ids)]
        self.refused(waiting, self.hall.join(waiting, joining(
            member_id, instance, protocols, comes_again=comes_again, may_skip=may_skip), f"m{waiting}"))

    @rule(which=st.integers(0, 99), instance=st.sampled_from((None, "i")), late=st.booleans())
    def sync(self, which: int, instance: str | None, late: bool) -> None:
        waiting, group = self.waiting(), self.hall.group
        member_id = self.ids[which % len(self.ids)]
        parts = dict.fromkeys(group.members, b"%d %d" % (group.generation, waiting))
        self.refused(waiting, self.hall.sync(waiting, member_id, parts, group.generation - late or -1, instance))

    @rule(which=st.integers(0, 99))
    def heartbeat(self, which: int) -> None:
        self.hall.heartbeat(self.ids[which % len(self.ids)])
        self.hall.commit(self.ids[which % len(self.ids)])

    @rule(which=st.integers(0, 99), instance=st.sampled_from((None, "i", "j")))
    def leave(self, which: int, instance: str | None) -> None:
        self.hall.leave((self.ids[which % len(self.ids)], instance))

    @rule(by_ms=st.sampled_from((1, 1_000, SESSION_MS, REBALANCE_MS, NEW_MEMBER_MS)))
    def pass_time(self, by_ms: int) -> None:
        self.hall.pass_time(by_ms)

    @rule(fails=st.booleans())
    def store(self, fails: bool) -> None:
        self.hall.store(StorageFull("full") if fails else None)

    @invariant()
    def holds(self) -> None:
        group = self.hall.group
        assert group.generation >= self.generation
        self.generation = group.generation
        assert (group.leader in group.members) or not group.members and not group.leader
        assert group.state is not EMPTY or not group.members
        assert group.state in (EMPTY, PREPARING) or group.members
        assert group.state is PREPARING or all(member.join is None for member in group.members.values())
        assert group.state is COMPLETING or all(member.sync is None for member in group.members.values())
        static_ids = [member.instance_id for member in group.members.values() if member.instance_id is not None]
        assert len(set(static_ids)) == len(static_ids)
        assert all(member.id == name for name, member in group.members.items())
        assert group.size_bytes == sum(member.joining.said_bytes + len(member.assignment)
                                       for member in group.members.values())
        assert set(group._known) == {name for member in group.members.values() for name, _ in member.joining.protocols}
        next_ms = group.next_ms()
        assert next_ms is None or next_ms > self.hall.now_ms or group.state is PREPARING
        self.look_at_answers()

    def look_at_answers(self) -> None:
        for answer in self.hall.answers.values():
            if isinstance(answer, Joined) and answer.member_id not in self.ids:
                self.ids.append(answer.member_id)
            if isinstance(answer, Assigned) and answer.assignment:
                generation = int(answer.assignment.split()[0])
                assert self.assignments.setdefault((generation, ""), answer.assignment) == answer.assignment, \
                    "one generation has one assignment"

    def teardown(self) -> None:
        if not hasattr(self, "hall"):
            return
        self.hall.store()
        for _ in range(5):
            self.hall.pass_time(NEW_MEMBER_MS)
            self.hall.store()
        assert self.asked == set(self.hall.answers), "everybody is answered, once"
        assert self.hall.group.is_unused and not self.hall.group._promised


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
