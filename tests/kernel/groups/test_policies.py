"""Policies of groups: a new one is a class and a line, and is asked about batches, at its moments alone."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.groups.dead_lettering import DeadLettering
from gatehouse.kernel.groups.expiry import Expiry, QueueExpiry
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings
from gatehouse.kernel.groups.handing_out import Prefetcher, Verdict
from gatehouse.kernel.groups.max_length import MaxLength
from gatehouse.kernel.groups.policy import EXPIRED, KeyOrder, Ordering, Policy, Selecting
from gatehouse.kernel.message import Leased
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.groups.test_groups import handles, pop, send, values
from tests.kernel.rig import Rig


class Witnessing(Policy):
    """A policy that nobody has thought of yet: it notes what it is asked, and does not want what begins with `no`."""

    judges_plain = True

    def __init__(self) -> None:
        self.judged: list[list[bytes | None]] = []
        self.given_up: list[tuple[str, list[bytes | None]]] = []

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        self.judged.append(values(messages))
        wanted = []
        for message in messages:
            if (message[6] or b"").startswith(b"no"):
                verdict.settle(message)
            else:
                wanted.append(message)
        return wanted

    def on_given_up(self, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        self.given_up.append((reason, values(messages)))


def witnessed(rig: Rig) -> tuple[LeasedGroup, Witnessing]:
    """A group over topic `t` with such a policy, behind the others."""
    group, policy = rig.kernel.groups.group("g", "t"), Witnessing()
    group.follow([*group.policies, policy])
    return group, policy


def test_a_new_policy_judges_batches_and_hears_what_is_given_up() -> None:
    rig = Rig()
    rig.kernel.create_topic("t", settings=TopicSettings(message_ttl_ms=1_000), partitions=1)
    group, witness = witnessed(rig)
    rig.publish("t/a", b"1", b"no", b"2")
    assert values(pop(rig, group)) == [b"1", b"2"]
    assert witness.judged == [[b"1", b"no", b"2"]], "once for all of them"
    rig.publish("t/a", b"3", b"4")
    rig.world.advance(2_000)
    assert values(pop(rig, group)) == []
    assert witness.given_up == [(EXPIRED, [b"3", b"4"])]
    assert group.counts().expired == 2


def test_what_a_policy_does_not_want_stays_settled_over_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish("t/a", b"no", b"1", b"no")
    group, _ = witnessed(rig)
    messages = pop(rig, group)
    assert values(messages) == [b"1"]
    group.ack(handles(messages))
    rig.run()
    rig.restart()
    group = rig.kernel.groups.group("g", "t")
    assert group.counts()[:3] == (0, 0, 0) and group.unsettled() == []


def test_policies_are_asked_at_their_moments_alone() -> None:
    assert Ordering.moments == {"judge", "on_settled", "on_loaded", "on_put_back", "on_reset", "on_configured"}
    assert Expiry.moments == {"judge", "on_configured"}
    assert QueueExpiry.moments == {"judge", "on_configured", "on_start", "on_idle"}
    assert MaxLength.moments == {"on_start", "on_ready"}
    assert DeadLettering.moments == {"judge", "on_given_up"}
    assert Selecting.moments == {"judge", "on_configured"}


def kinds(group: LeasedGroup) -> list[type[Policy]]:
    return [type(policy) for policy in group.policies]


def test_a_group_has_the_policies_of_what_it_reads() -> None:
    rig = Rig()
    rig.publish("t/a", b"1")
    assert kinds(rig.kernel.groups.group("g", "t")) == [Expiry, DeadLettering, Selecting, Ordering]
    plain = rig.kernel.groups.declare_queue("plain")
    limited = rig.kernel.groups.declare_queue("limited", QueueSettings(max_length=1))
    assert kinds(rig.kernel.groups.queue_group(plain)) == [QueueExpiry, DeadLettering]
    assert kinds(rig.kernel.groups.queue_group(limited)) == [QueueExpiry, DeadLettering, MaxLength]


def test_plain_messages_are_judged_only_where_a_policy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    judged: list[int] = []
    real = Expiry.judge

    def judge(expiry: Expiry, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        judged.append(len(messages))
        return real(expiry, prefetcher, messages, verdict)

    monkeypatch.setattr(Expiry, "judge", judge)
    queue = rig.kernel.groups.declare_queue("work")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"1", b"2")
    first = pop(rig, group)
    assert values(first) == [b"1", b"2"] and not judged
    group.release(handles(first), 0)
    rig.run()
    assert values(pop(rig, group)) == [b"1", b"2"] and judged == [2], "they were handed out before"


def test_a_topic_whose_messages_begin_to_expire_is_judged_from_then_on() -> None:
    rig = Rig()
    rig.kernel.create_topic("t", partitions=1)
    group = rig.kernel.groups.group("g", "t")
    rig.publish("t/a", b"1")
    rig.kernel.change_topic("t", settings=TopicSettings(message_ttl_ms=1_000))
    rig.world.advance(2_000)
    assert pop(rig, group) == [] and group.counts().expired == 1
    rig.kernel.change_topic("t", settings=TopicSettings())
    rig.publish("t/a", b"2")
    rig.world.advance(2_000)
    assert values(pop(rig, group)) == [b"2"]


def test_a_group_begins_to_keep_the_order_of_keys_when_it_is_told_to() -> None:
    rig = Rig()
    rig.publish("t/a", b"1", b"2")
    group = rig.kernel.groups.group("g", "t")
    rig.kernel.groups.define("g", GroupSettings(ordered=True))
    first = pop(rig, group)
    assert values(first) == [b"1"]
    group.ack(handles(first))
    rig.run()
    assert values(pop(rig, group)) == [b"2"]


# ---- keys

def test_a_key_goes_to_the_next_in_line() -> None:
    keys = KeyOrder()
    assert [keys.claim(b"a", 1), keys.claim(b"a", 2), keys.claim(b"b", 3), keys.claim(b"a", 4)] == [
        True, False, True, False]
    assert keys.free([1, 3]) == [2]
    assert keys.claim(b"a", 2), "it has its key already"
    assert not keys.claim(b"a", 5)
    assert keys.free([2]) == [4] and keys.free([4]) == [5] and keys.free([5]) == []
    assert keys.is_empty


def test_what_was_put_back_waits_no_longer() -> None:
    keys = KeyOrder()
    keys.claim(b"a", 1)
    keys.claim(b"a", 2)
    keys.forget_waiting()
    assert keys.free([1]) == [] and keys.is_empty
