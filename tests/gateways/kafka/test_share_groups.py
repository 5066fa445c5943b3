"""Share groups (KIP-932) with the real kernel: members, what they are given, and what becomes of it."""
from __future__ import annotations

import uuid
from itertools import count
from types import SimpleNamespace as Row
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.guarded_groups import GuardedGroups
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.kafka.kept_configs import SHARE_RESET, GroupConfigs, checked_of_group
from gatehouse.gateways.kafka.share_members import ShareGroups, ShareMember, ShareRules
from gatehouse.gateways.kafka.share_session import (
    MAX_HELD,
    MAX_SESSIONS,
    MAX_TOPICS,
    MAX_TYPES,
    Held,
    ShareSession,
    ShareSessions,
)
from gatehouse.kernel.groups.cursor import Cursor
from gatehouse.kernel.groups.group_settings import GroupSettings, Pausing
from gatehouse.kernel.groups.handing_out import Prefetcher
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.message import Stored
from gatehouse.kernel.records.batch import encode_headers
from tests.gateways.kafka.share_rig import (
    ACCEPT,
    GAP,
    MEMBER,
    REJECT,
    RELEASE,
    RENEW,
    Client,
    Rig,
    acquired,
    joined,
    records_in,
    rows_of,
    values_of,
)

# ---- members

def test_a_member_is_given_every_partition_and_hears_of_changes() -> None:
    rig = Rig()
    client = rig.connect()
    answer = client.beat(0, ["jobs", "later"])
    assert answer["member_id"] == MEMBER and answer["heartbeat_interval_ms"] == 5_000
    assert [(row["topic_id"], row["partitions"]) for row in answer["assignment"]["topic_partitions"]] \
        == [(uuid.UUID(bytes=rig.topic.uuid), [0, 1])]
    epoch = answer["member_epoch"]
    assert epoch > 0
    assert client.beat(epoch)["assignment"] is None
    rig.hub.kernel.create_topic("later", partitions=1)
    rig.hub.kernel.flush()
    again = client.beat(epoch)
    assert again["member_epoch"] > epoch
    assert len(again["assignment"]["topic_partitions"]) == 2
    assert len(client.beat(epoch)["assignment"]["topic_partitions"]) == 2, "the answer may have been lost"
    assert client.beat(again["member_epoch"], ["jobs"])["assignment"]["topic_partitions"][0]["partitions"] == [0, 1]


@pytest.mark.parametrize(("fields", "code"), [
    ({"member": ""}, 42), ({"group": ""}, 42), ({"epoch": -2}, 42), ({"topics": []}, 42), ({"topics": None}, 42),
    ({"topics": ["t"] * 1_001}, 42), ({"rack": ""}, 42), ({"member": "m" * 256}, 42),
    ({"rack": "r" * 256}, 42), ({"group": "g" * 256}, 24), ({"epoch": 3}, 25), ({"epoch": -1}, 25)])
def test_what_no_member_says_is_refused(fields: dict[str, Any], code: int) -> None:
    asked: dict[str, Any] = {"epoch": 0, "topics": ["jobs"], **fields}
    answer = Rig().connect().beat(**asked)
    assert answer["error_code"] == code and answer["error_message"]
    assert answer["assignment"] is None


def test_an_epoch_that_nobody_was_given_is_fenced() -> None:
    client = joined(Rig())
    assert client.beat(99)["error_code"] == 110


def test_a_silent_member_is_forgotten_and_joins_again() -> None:
    rig = Rig(group_share_session_timeout_ms=1_000, group_share_heartbeat_interval_ms=100)
    client = rig.connect()
    epoch = client.beat(0, ["jobs"])["member_epoch"]
    rig.hub.advance(900)
    assert client.beat(epoch)["error_code"] == 0
    rig.hub.advance(1_000)
    assert client.beat(epoch)["error_code"] == 25
    assert client.beat(0, ["jobs"])["error_code"] == 0


def test_a_member_leaves() -> None:
    rig = Rig()
    client = joined(rig)
    assert client.beat(-1)["member_epoch"] == -1
    assert client.beat(-1)["error_code"] == 25
    assert client.ask(77, group_ids=["g"], include_authorized_operations=True)["groups"][0]["group_state"] == "Empty"


def test_there_are_so_many_members_and_no_more() -> None:
    rig = Rig(group_max_size=2)
    for number in range(2):
        assert rig.connect().beat(0, ["jobs"], member=f"m{number}")["error_code"] == 0
    assert rig.connect().beat(0, ["jobs"], member="m2")["error_code"] == 81
    assert rig.connect().beat(0, ["jobs"], member="m1")["error_code"] == 0, "that one is there already"


def test_members_of_all_groups_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, rules = ShareGroups(), ShareRules(5_000, 45_000, 1_000)
    monkeypatch.setattr("gatehouse.gateways.kafka.share_members.MAX_MEMBERS", 2)

    def join(group: str, member: str) -> None:
        groups.join("/", group, ShareMember(member, None, "c", "h", frozenset()), 0, rules)

    join("a", "m")
    join("b", "m")
    with pytest.raises(Exception, match="as many as may be"):
        join("c", "m")
    assert groups.get("/", "c", 0, rules) is None
    assert groups.leave("/", "a", "m")
    join("c", "m")


def test_members_that_nobody_asks_for_any_more_leave_their_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.gateways.kafka.share_members.MAX_MEMBERS", 2)
    rig = Rig()
    for group in ("a", "b"):
        assert rig.connect().beat(0, ["jobs"], group=group)["error_code"] == 0
    assert rig.connect().beat(0, ["jobs"], group="c")["error_code"] == 81
    rig.hub.advance(45_000)
    assert rig.connect().beat(0, ["jobs"], group="c")["error_code"] == 0


def test_what_members_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.gateways.kafka.share_members.MAX_BYTES", 600)
    client = Rig().connect()
    epoch = client.beat(0, ["jobs"], member="a")["member_epoch"]
    assert client.beat(0, ["jobs"], member="b")["error_code"] == 0
    assert client.beat(0, ["jobs"], member="c")["error_code"] == 81
    assert client.beat(epoch, ["jobs", "more"], member="a")["error_code"] == 81
    assert client.beat(0, ["other"], member="a")["error_code"] == 0, "another in its place"
    assert client.beat(-1, member="b")["error_code"] == 0
    assert client.beat(0, ["jobs"], member="c")["error_code"] == 0


def test_a_group_of_another_kind_has_no_share_members() -> None:
    rig = Rig()
    rig.hub.kernel.groups.define("g", GroupSettings(kind="assigned"))
    rig.hub.kernel.flush()
    client = rig.connect()
    assert client.beat(0, ["jobs"])["error_code"] == 69
    assert rows_of(client.fetch())[0]["error_code"] == 69


def test_rights_to_the_group_and_the_topic_are_asked_for() -> None:
    def decision(principal: Any, operation: Operation, name: str) -> bool:
        return name in ("g", "jobs")

    rig = Rig(decision)
    rig.hub.kernel.create_topic("secret", partitions=1)
    rig.hub.kernel.flush()
    client = rig.connect()
    assert client.beat(0, ["jobs"], group="theirs")["error_code"] == 30
    assert client.beat(0, ["secret"])["error_code"] == 29
    assert client.fetch(group="theirs", epoch=0)["error_code"] == 30
    secret = rig.hub.kernel.topic("secret")
    assert secret is not None
    row = rows_of(client.fetch(topic=secret.uuid, partitions=(0,)))[0]
    assert row["error_code"] == 29 and not row["records"]


# ---- messages

def test_a_new_group_begins_with_what_comes_from_now_on() -> None:
    rig = Rig()
    rig.publish(3)
    client = joined(rig)
    rig.publish(2)
    row = rows_of(client.fetch())[0]
    assert acquired(row) == [(3, 4, 1)]
    assert values_of(row) == [b"v0", b"v1"]


def test_a_setting_of_the_group_has_it_begin_with_everything() -> None:
    rig = Rig()
    rig.publish(3)
    client = rig.connect()
    GroupConfigs.of(rig.hub.services).put("/", "g", {"share.auto.offset.reset": "earliest"}, Ignoring(), None)
    rig.hub.kernel.flush()
    client.beat(0, ["jobs"])
    assert acquired(rows_of(client.fetch())[0]) == [(0, 2, 1)]


@pytest.mark.parametrize(("start", "first"), [
    ("by_duration:PT2M30S", 3), ("by_duration:pt150.5s", 3), ("by_duration:P1D", 0), ("by_duration:P0DT0H9M0.0S", 0),
    ("by_duration:PT0S", 5)])
def test_a_group_begins_with_what_came_since_some_time(start: str, first: int) -> None:
    rig, client = begins_at(start)
    epoch = client.beat(0, ["jobs"])["member_epoch"]
    client.beat(0, ["jobs"], member="two")
    answer = client.beat(epoch)
    assert len(answer["assignment"]["topic_partitions"]) == 1
    rig.publish(1)
    assert acquired(rows_of(client.fetch())[0]) == [(first, 5, 1)]
    rig.hub.kernel.create_topic("later", partitions=1)
    rig.hub.kernel.flush()
    rig.publish(1, topic="later")
    epoch = client.beat(answer["member_epoch"], ["jobs", "later"])["member_epoch"]
    assert len(client.beat(epoch)["assignment"]["topic_partitions"]) == 2


def test_a_deleted_group_begins_so_again() -> None:
    rig, client = begins_at("by_duration:PT2M30S")
    epoch = client.beat(0, ["jobs"])["member_epoch"]
    client.beat(epoch)
    client.fetch()
    rig.hub.kernel.groups.delete("g")
    rig.hub.kernel.flush()
    assert rows_of(client.fetch()) == {}
    client.beat(epoch)
    assert acquired(rows_of(client.fetch())[0]) == [(3, 4, 1)]


def begins_at(start: str) -> tuple[Rig, Client]:
    """A hub with a message for each of the last five minutes; a group is to begin there."""
    rig = Rig()
    for _ in range(5):
        rig.publish(1)
        rig.hub.advance(60_000)
    GroupConfigs.of(rig.hub.services).put("/", "g", {SHARE_RESET: checked_of_group(SHARE_RESET, start)}, Ignoring(),
                                          None)
    rig.hub.kernel.flush()
    return rig, rig.connect()


class Ignoring:
    def on_stored(self, stored: list[Stored]) -> None:
        pass


def test_two_members_share_one_partition() -> None:
    rig = Rig()
    one, two = joined(rig), joined(rig)
    rig.publish(10)
    first, second = rows_of(one.fetch(most=4))[0], rows_of(two.fetch(most=500, member="two"))[0]
    assert acquired(first) == [(0, 3, 1)]
    assert acquired(second) == [(4, 9, 1)]


def test_one_member_alone_is_given_messages_where_the_group_says_so() -> None:
    rig = Rig(group_share_session_timeout_ms=40_000)
    rig.hub.kernel.groups.define("g", GroupSettings(single_active=True, start="latest"))
    first, second = rig.connect(), rig.connect()
    first.beat(0, ["jobs"])
    second.beat(0, ["jobs"], member="two")
    rig.publish(4)
    assert rows_of(second.fetch(member="two")) == {}
    assert acquired(rows_of(first.fetch(most=2))[0]) == [(0, 1, 1)]
    rig.hub.advance(40_000)
    assert second.beat(0, ["jobs"], member="two")["error_code"] == 0
    assert acquired(rows_of(second.fetch(member="two"))[0]) == [(0, 1, 2), (2, 3, 1)], "the other has been silent"


def test_what_is_settled_is_gone_and_what_is_released_comes_again() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(6)
    client.fetch()
    row = rows_of(client.fetch({0: [(0, 1, [ACCEPT]), (2, 4, [RELEASE, REJECT, ACCEPT]), (5, 5, [RELEASE])]}))[0]
    assert (row["error_code"], row["acknowledge_error_code"]) == (0, 0)
    assert acquired(row) == [(2, 2, 2), (5, 5, 2)]
    assert values_of(row) == [b"v2", b"v5"]
    done = rows_of(client.acknowledge({0: [(2, 2, [ACCEPT]), (3, 4, [GAP]), (5, 5, [ACCEPT])]}))[0]
    assert done["error_code"] == 0, "a gap is where nothing is"
    counts = rig.hub.kernel.groups.group("g", "jobs").counts()
    assert (counts.leased, counts.ready) == (0, 0)
    letters = rig.hub.kernel.groups.queue("$dead-letters/g")
    assert letters is not None and rig.hub.kernel.groups.ready(letters) == 1


def test_what_is_not_held_is_not_settled() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(4)
    client.fetch(most=2)
    for acks, code in (([(0, 2, [ACCEPT])], 121), ([(0, 1, [ACCEPT]), (1, 1, [ACCEPT])], 42), ([(1, 0, [ACCEPT])], 42),
                       ([(-1, 0, [ACCEPT])], 42), ([(0, 1, [])], 42), ([(0, 1, [1, 1, 1])], 42), ([(0, 1, [5])], 42),
                       ([(0, 1, [RENEW])], 42), ([(0, 1 << 62, [ACCEPT])], 121), ([(0, 2, [1, 1, 1])], 121)):
        row = rows_of(client.acknowledge({0: acks}))[0]
        assert row["error_code"] == code and row["error_message"], acks
    assert rows_of(client.acknowledge({0: [(0, 1, [ACCEPT])]}))[0]["error_code"] == 0, "nothing was taken by these"
    assert rows_of(client.acknowledge({0: [(0, 1, [ACCEPT])]}))[0]["error_code"] == 121, "once"


def test_a_message_is_kept_on_by_renewal_and_lost_without() -> None:
    rig = Rig()
    one, two = joined(rig), joined(rig)
    rig.publish(2)
    assert one.fetch()["acquisition_lock_timeout_ms"] == 30_000
    rig.hub.advance(20_000)
    row = rows_of(one.fetch({0: [(0, 0, [RENEW])]}, renews=True))[0]
    assert (row["acknowledge_error_code"], acquired(row)) == (0, [])
    rig.hub.advance(15_000)
    given = rows_of(two.fetch(member="two"))[0]
    assert acquired(given) == [(1, 1, 2)], "it was ready again at once"
    assert rows_of(one.acknowledge({0: [(1, 1, [ACCEPT])]}))[0]["error_code"] == 121
    assert rows_of(one.acknowledge({0: [(0, 0, [ACCEPT])]}))[0]["error_code"] == 0


def test_the_lock_time_is_that_of_the_group_or_as_a_client_has_set_it() -> None:
    rig = Rig()
    rig.hub.kernel.groups.define("g", GroupSettings(invisible_ms=7_000))
    client = joined(rig)
    rig.publish(1)
    assert client.fetch()["acquisition_lock_timeout_ms"] == 7_000
    GroupConfigs.of(rig.hub.services).put("/", "g", {"share.record.lock.duration.ms": "1234"}, Ignoring(), None)
    rig.hub.kernel.flush()
    assert client.acknowledge({0: [(0, 0, [ACCEPT])]})["acquisition_lock_timeout_ms"] == 1_234


def test_a_fetch_waits_for_the_first_message() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=10_000))
    rig.hub.advance(5_000)
    assert not client.answers(78)
    rig.publish(1, partition=1)
    rig.hub.advance(1)
    answer, = client.answers(78)
    assert acquired(rows_of(answer)[1]) == [(0, 0, 1)]


def test_a_fetch_that_finds_nothing_is_answered_in_time() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=1_000))
    rig.hub.advance(999)
    assert not client.answers(78)
    rig.hub.advance(2)
    answer, = client.answers(78)
    assert rows_of(answer) == {}
    rig.publish(1)
    assert acquired(rows_of(client.fetch())[0]) == [(0, 0, 1)], "the one before has taken nothing since"


def test_a_fetch_that_is_to_take_nothing_settles_alone() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(3)
    client.fetch(most=1)
    row = rows_of(client.fetch({0: [(0, 0, [ACCEPT])]}, most=0))[0]
    assert (row["acknowledge_error_code"], acquired(row)) == (0, [])


def test_topics_take_turns() -> None:
    rig = Rig()
    other = rig.hub.kernel.create_topic("other", partitions=1)
    rig.hub.kernel.flush()
    client = joined(rig, ("jobs", "other"))
    rig.publish(4)
    rig.publish(4, topic="other")
    fields = client.fetching(most=1)
    fields["topics"].append(Row(topic_id=uuid.UUID(bytes=other.uuid), partitions=[
        Row(partition_index=0, acknowledgement_batches=[])]))
    seen = {client.ask(78, wait_ms=1_000, **fields)["responses"][0]["topic_id"]}
    seen.add(client.fetch(most=1)["responses"][0]["topic_id"])
    assert len(seen) == 2


def test_a_partition_that_is_forgotten_gives_nothing_more() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(2, partition=0)
    assert rows_of(client.fetch(partitions=(0, 1), forgotten=[0, 1])) == {}
    assert acquired(rows_of(client.fetch(partitions=(0,)))[0])[0][:2] == (0, 1)


def test_what_is_given_of_a_partition_that_nobody_asked_for_goes_back() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(2, partition=0)
    assert rows_of(client.fetch(partitions=(1,))) == {}
    assert acquired(rows_of(joined(rig).fetch(member="two"))[0])[0][:2] == (0, 1)


def test_what_nobody_asked_for_was_never_tried() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1, partition=0)
    for _ in range(20):                                  # more often than a message is tried
        assert rows_of(client.fetch(partitions=(1,))) == {}
    assert acquired(rows_of(joined(rig).fetch(member="two"))[0]) == [(0, 0, 1)]
    assert rig.hub.kernel.groups.queue("$dead-letters/g") is None


def test_a_fetch_that_was_given_what_nobody_asked_for_waits_on() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1, partition=0)
    client.send(78, **client.fetching(partitions=(1,), max_wait_ms=1_000))
    rig.hub.kernel.flush()
    rig.hub.advance(500)
    assert not client.answers(78), "its client would ask again at once, and again"
    rig.hub.advance(501)
    assert rows_of(client.answers(78)[0]) == {}


# ---- how much a fetch asks for

def test_an_answer_has_no_more_bytes_than_asked_for_and_one_message_at_least() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(20, body=b"x" * 1_000)
    rig.publish(20, partition=1, body=b"x" * 1_000)
    first = rows_of(client.fetch(max_bytes=5_000))
    given = [each for row in first.values() for each in records_in(row)]
    assert len(given) == 4 and sum(len(row["records"]) for row in first.values()) <= 5_000
    second = rows_of(client.fetch(max_bytes=5_000))
    assert [tries for row in second.values() for _, _, tries in acquired(row)] == [1], "what had no room was not tried"
    assert len(records_in(*rows_of(client.fetch(max_bytes=0)).values())) == 1
    assert rig.hub.kernel.groups.group("g", "jobs").counts().leased == 9


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1, body=b"x" * 1_000)
    assert acquired(rows_of(client.fetch(min_bytes=3_000))[0]) == [(0, 0, 1)], "nobody knows how large they are"
    rig.publish(1, body=b"x" * 1_000)
    client.send(78, **client.fetching(min_bytes=3_000, max_wait_ms=10_000))
    rig.hub.advance(1_000)
    rig.publish(1, partition=1, body=b"x" * 1_000)
    rig.hub.advance(1_000)
    assert not client.answers(78)
    other = acquired(rows_of(joined(rig).fetch(member="two", most=1))[0])
    assert other == [(1, 1, 1)], "what waits is for anybody else"
    rig.publish(2, body=b"x" * 1_000)
    rig.hub.advance(10)
    rig.hub.kernel.flush()
    answer, = client.answers(78)
    assert sum(len(records_in(row)) for row in rows_of(answer).values()) == 3


@pytest.mark.parametrize("count", [0, 1])
def test_a_fetch_that_waits_for_more_is_given_what_there_is_when_its_time_is_over(count: int) -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1)
    client.fetch()
    rig.publish(count)
    client.send(78, **client.fetching(min_bytes=3_000, max_wait_ms=1_000))
    rig.hub.advance(999)
    assert not client.answers(78)
    rig.hub.advance(1)
    rig.hub.kernel.flush()
    rig.hub.advance(1)
    answer, = client.answers(78)
    assert [len(records_in(row)) for row in rows_of(answer).values()] == [1] * count


def test_a_fetch_that_may_be_given_few_waits_for_no_more() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(3)
    client.fetch(most=1)
    assert acquired(rows_of(client.fetch(most=2, min_bytes=1 << 20, max_wait_ms=10_000))[0]) == [(1, 2, 1)]


def test_a_fetch_that_waits_for_more_ends_with_its_topic_its_client_and_the_hub() -> None:
    rig = Rig()
    client, gone = joined(rig), joined(rig)
    rig.publish(2)
    for each, member in ((client, MEMBER), (gone, "two")):
        each.fetch(most=1, member=member)
        each.send(78, **each.fetching(min_bytes=1 << 20, max_wait_ms=10_000, member=member))
    rig.hub.cut(gone.session)
    rig.hub.kernel.delete_topic("jobs")
    rig.hub.kernel.flush()
    rig.hub.advance(10)
    answer, = client.answers(78)
    assert {row["error_code"] for row in rows_of(answer).values()} == {100}
    rig.hub.kernel.create_topic("jobs", partitions=1)
    rig.hub.kernel.flush()
    topic = rig.hub.kernel.topic("jobs")
    assert topic is not None
    rig.publish(1)
    client.send(78, **client.fetching(min_bytes=1 << 20, max_wait_ms=10_000, topic=topic.uuid, partitions=(0,)))
    client.session.handle_stopping()
    assert len(client.answers(78)) == 1


# ---- many topics

class Topics:
    """A member of many topics."""

    def __init__(self, count: int) -> None:
        self.rig = Rig()
        self.topics = [self.rig.hub.kernel.create_topic(f"t{number}", partitions=1) for number in range(count)]
        self.rig.hub.kernel.flush()
        self.client = self.rig.connect()
        self.client.beat(0, [topic.name for topic in self.topics])

    def fields(self, **options: Any) -> dict[str, Any]:
        fields = self.client.fetching(**options)
        fields["topics"] = [Row(topic_id=uuid.UUID(bytes=topic.uuid), partitions=[
            Row(partition_index=0, acknowledgement_batches=[])]) for topic in self.topics]
        return fields


def test_a_member_of_many_topics_takes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Topics(10)
    asked: list[str] = []
    take = GuardedGroups.take

    def noted(groups: GuardedGroups, source: tuple[str, str], *rest: Any) -> tuple[int, bool]:
        asked.append(source[1])
        return take(groups, source, *rest)

    monkeypatch.setattr(GuardedGroups, "take", noted)
    for topic in many.topics:
        many.rig.publish(10, topic=topic.name)
    answer = many.client.ask(78, **many.fields(most=5))
    assert sum(len(records_in(row)) for row in rows_of(answer).values()) == 5
    assert len(asked) == 1, "nothing is taken to be given back"


def test_topics_without_messages_are_passed_over() -> None:
    many = Topics(200)
    many.rig.publish(3, topic="t199")
    many.client.send(78, **many.fields(max_wait_ms=1_000))
    many.rig.hub.advance(10)
    many.rig.hub.kernel.flush()
    answer, = many.client.answers(78)
    assert acquired(rows_of(answer)[0]) == [(0, 2, 1)]


def test_a_topic_that_seems_to_have_messages_holds_up_others_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    other = rig.hub.kernel.create_topic("other", partitions=1)
    rig.hub.kernel.flush()
    client = joined(rig, ("jobs", "other"))
    rig.publish(1)
    rig.publish(1, topic="other")
    take = GuardedGroups.take

    def never(groups: GuardedGroups, source: tuple[str, str], *rest: Any) -> tuple[int, bool]:
        return (0, True) if source[1] == "jobs" else take(groups, source, *rest)

    monkeypatch.setattr(GuardedGroups, "take", never)
    fields = client.fetching(max_wait_ms=1_000)
    fields["topics"].append(Row(topic_id=uuid.UUID(bytes=other.uuid), partitions=[
        Row(partition_index=0, acknowledgement_batches=[])]))
    client.send(78, **fields)
    rig.hub.advance(21)
    rig.hub.kernel.flush()
    answer, = client.answers(78)
    assert [topic["topic_id"] for topic in answer["responses"]] == [uuid.UUID(bytes=other.uuid)]


def test_a_fetch_that_waits_looks_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of them, and a member asks twice a second."""
    rig = Rig()
    client = joined(rig)
    client.fetch()
    looked: list[Any] = []
    monkeypatch.setattr(Cursor, "ready", lambda cursor, end: looked.append(cursor) or 0)
    monkeypatch.setattr(Prefetcher, "has_more", property(lambda prefetcher: looked.append(prefetcher) or False))
    client.send(78, **client.fetching(max_wait_ms=1_000))
    assert not looked


def test_a_topic_that_is_gone_keeps_nothing_from_others() -> None:
    rig = Rig()
    other = rig.hub.kernel.create_topic("other", partitions=1)
    rig.hub.kernel.flush()
    client = joined(rig, ("jobs", "other"))
    rig.publish(2)
    fields = client.fetching()
    fields["topics"].append(Row(topic_id=uuid.UUID(bytes=other.uuid), partitions=[
        Row(partition_index=0, acknowledgement_batches=[])]))
    rig.hub.kernel.delete_topic("other")
    rig.hub.kernel.flush()
    answer = client.ask(78, **fields)
    codes = {topic["topic_id"].bytes: topic["partitions"][0]["error_code"] for topic in answer["responses"]}
    assert codes == {rig.topic.uuid: 0, other.uuid: 100}


def test_a_topic_that_grows_while_a_fetch_waits() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=1_000))
    rig.hub.kernel.change_topic("jobs", partitions=4)
    rig.hub.kernel.flush()
    rig.publish(1, partition=3)
    rig.hub.advance(1_001)
    assert rows_of(client.answers(78)[0]) == {}, "its client does not know it yet"
    assert acquired(rows_of(client.fetch(partitions=(2, 3)))[3]) == [(0, 0, 1)]


def test_a_topic_that_goes_while_a_fetch_waits_is_said_so() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=10_000))
    rig.hub.kernel.delete_topic("jobs")
    rig.hub.kernel.flush()
    answer, = client.answers(78)
    assert {row["error_code"] for row in rows_of(answer).values()} == {100}


def test_a_group_that_is_deleted_begins_anew_as_its_setting_says() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(3)
    rig.hub.kernel.groups.delete("g")
    rig.hub.kernel.flush()
    assert rows_of(client.fetch()) == {}, "by another door: it has members that read what comes from now on"
    rig.publish(1)
    assert acquired(rows_of(client.fetch())[0]) == [(3, 3, 1)]


def test_private_headers_are_not_shown() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1, headers=[(b"color", b"red")])
    assert records_in(rows_of(client.fetch())[0])[0].headers == [("color", b"red")]


# ---- sessions

def test_a_request_is_carried_out_once() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(2)
    client.fetch(most=1)
    assert client.fetch(epoch=0, acks={0: [(0, 0, [ACCEPT])]})["error_code"] == 42
    assert client.fetch(epoch=7)["error_code"] == 123
    assert client.fetch(epoch=3, member="nobody")["error_code"] == 122
    assert client.acknowledge({0: []}, epoch=0)["error_code"] == 123


def test_a_session_that_is_opened_anew_gives_back_what_it_held() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(2)
    client.fetch()
    again = rows_of(client.fetch(epoch=0))[0]
    assert acquired(again) == [(0, 1, 2)]


@pytest.mark.parametrize("by", ["fetch", "acknowledge", "cut"])
def test_the_end_of_a_session_gives_everything_back(by: str) -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(3)
    client.fetch()
    if by == "fetch":
        assert rows_of(client.fetch({0: [(0, 0, [ACCEPT])]}, epoch=-1))[0]["acknowledge_error_code"] == 0
    elif by == "acknowledge":
        assert rows_of(client.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=-1))[0]["error_code"] == 0
    else:
        assert rows_of(client.acknowledge({0: [(0, 0, [ACCEPT])]}))[0]["error_code"] == 0
        rig.hub.cut(client.session)
    rig.hub.kernel.flush()
    assert acquired(rows_of(joined(rig).fetch(member="two"))[0]) == [(1, 2, 2)]


def test_who_goes_away_fails_once_however_much_it_held() -> None:
    rig = Rig()
    rig.hub.kernel.groups.define("g", GroupSettings(pausing=Pausing(failures=3)))
    client = joined(rig)
    rig.publish(5, partition=0)
    rig.publish(5, partition=1)
    client.fetch()
    rig.hub.cut(client.session)
    rig.hub.kernel.flush()
    again = rows_of(joined(rig).fetch(member="two"))
    assert [acquired(row) for row in again.values()] == [[(0, 4, 2)], [(0, 4, 2)]], "the group is not paused"


def test_a_client_that_goes_while_it_waits_has_taken_nothing() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=10_000))
    rig.hub.cut(client.session)
    rig.publish(1)
    assert acquired(rows_of(joined(rig).fetch(member="two"))[0]) == [(0, 0, 1)]


@pytest.mark.parametrize(("by", "closes"), [(78, False), (78, True), (79, False), (79, True)])
def test_a_client_that_goes_in_the_middle_of_its_request_leaves_nothing_behind(
        by: int, closes: bool) -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(3)
    client.fetch()
    looks = count(0, 3)
    rig.hub.services.now_ms = lambda: rig.hub.now_ms() + next(looks)     # two looks of the session are a slice
    fields = client.fetching({0: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]}, epoch=-1 if closes else None,
                             partitions=tuple(range(100)))
    if by == 79:
        fields = {name: fields[name] for name in ("group_id", "member_id", "share_session_epoch", "is_renew_ack",
                                                  "topics")}
    client.send(by, **fields)
    assert not client.answers(by)
    rig.hub.cut(client.session)
    rig.hub.kernel.flush()
    counts = rig.hub.kernel.groups.group("g", "jobs").counts()
    assert (counts.leased, counts.ready) == ((0, 3) if counts.settled == 0 else (0, 2))


def test_a_hub_that_stops_answers_who_waits_for_a_limit() -> None:
    rig = Rig()
    client = joined(rig)
    limits = rig.hub.admission.limits
    limits.put(read_limit({"of": "hub", "direction": "out", "messages_per_s": 10}, "1"), rig.hub.now_ms())
    rig.publish(1)
    client.session.guard.hand_out(10_000, 0)             # as by another connection of the same user
    client.send(78, **client.fetching(max_wait_ms=10_000))
    rig.hub.advance(10)
    assert not client.answers(78)
    client.session.handle_stopping()
    assert rows_of(client.answers(78)[0]) == {}


def test_a_limit_holds_the_next_fetch_and_nothing_that_is_settled() -> None:
    """Else the lock is over before a member may say that it has done its work."""
    rig = Rig()
    client = joined(rig)
    limits = rig.hub.admission.limits
    limits.put(read_limit({"of": "user:anonymous", "direction": "out", "bytes_per_s": 1_000}, "1"), rig.hub.now_ms())
    for _ in range(20):
        placement = rig.hub.kernel.place_in("jobs", b"k", partition=0)
        rig.hub.kernel.append([(placement, b"x" * 2_000, encode_headers([]), 0, 0)], None)
    rig.hub.kernel.flush()
    answer = client.fetch()
    given = acquired(rows_of(answer)[0])
    assert answer["throttle_time_ms"] == 0, "clients send nothing for so long"
    assert rows_of(client.fetch(max_wait_ms=100)) == {}
    assert rows_of(client.acknowledge({0: [(first, last, [ACCEPT]) for first, last, _ in given]}))[0]["error_code"] == 0
    for _ in range(100):
        rig.hub.advance(500)
        if rows := rows_of(client.fetch(max_wait_ms=100)):
            break
    assert sum(last - first + 1 for first, last, _ in acquired(rows[0])) == 1, "now it is known how large they are"


def test_a_hub_that_stops_answers_who_waits() -> None:
    rig = Rig()
    client = joined(rig)
    client.send(78, **client.fetching(max_wait_ms=10_000))
    client.session.handle_stopping()
    answer, = client.answers(78)
    assert rows_of(answer) == {}


def test_a_full_disk_is_told_and_what_was_settled_comes_again() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1)
    client.fetch()
    rig.hub.log.fault = LogFull("no room")
    row = rows_of(client.acknowledge({0: [(0, 0, [ACCEPT])]}))[0]
    assert row["error_code"] == 56
    rig.hub.log.fault = None
    rig.hub.advance(40_000)
    assert acquired(rows_of(client.fetch())[0]) == [(0, 0, 2)]


def test_what_a_full_disk_has_refused_may_be_said_again() -> None:
    """Java's client does so by itself."""
    rig = Rig()
    client = joined(rig)
    rig.publish(200)
    client.fetch()
    rig.hub.log.fault = LogFull("no room")
    assert rows_of(client.acknowledge({0: [(0, 199, [ACCEPT])]}))[0]["error_code"] == 56
    rig.hub.advance(1_000)
    assert rows_of(client.acknowledge({0: [(0, 199, [ACCEPT])]}))[0]["error_code"] == 0
    counts = rig.hub.kernel.groups.group("g", "jobs").counts()
    assert (counts.leased, counts.ready, counts.waiting) == (0, 0, 0)


def test_a_topic_that_is_gone_is_said_so() -> None:
    rig = Rig()
    client = joined(rig)
    rig.hub.kernel.delete_topic("jobs")
    rig.hub.kernel.flush()
    assert {row["error_code"] for row in rows_of(client.fetch()).values()} == {100}


# ---- bounds

def test_a_session_asks_for_so_many_topics() -> None:
    session = ShareSession()
    for number in range(MAX_TOPICS):
        session.ask(b"%d" % number, [0], 10)
    with pytest.raises(Exception, match="1000 topics"):
        session.ask(b"more", [0], 10)
    with pytest.raises(Exception, match="10 partitions"):
        session.ask(b"0", list(range(12)), 10)
    assert session.size == MAX_TOPICS, "what is refused is not kept"
    session.ask(b"0", list(range(11)), 10)
    session.forget(b"0", list(range(5)))
    assert session.size == MAX_TOPICS + 5


def test_all_sessions_of_a_connection_ask_for_so_many_partitions() -> None:
    rig = Rig(fetch_max_partitions=3)
    client = joined(rig)
    assert client.fetch(partitions=(0, 1))["error_code"] == 0
    assert client.fetch(partitions=(2, 3))["error_code"] == 42
    assert client.fetch(epoch=0, member="two", partitions=(0,))["error_code"] == 0
    assert client.fetch(epoch=1, member="two", partitions=(1,))["error_code"] == 42
    assert client.fetch(epoch=2, member="two", partitions=(0,), forgotten=[0])["error_code"] == 0
    assert client.fetch(partitions=(2,))["error_code"] == 0


def test_a_session_that_closes_and_asks_for_too_much_gives_back_what_it_held() -> None:
    rig = Rig(fetch_max_partitions=2)
    client = joined(rig)
    rig.publish(1)
    client.fetch()
    assert client.fetch(partitions=(0, 1, 2), epoch=-1)["error_code"] == 42
    assert acquired(rows_of(joined(rig).fetch(member="two"))[0]) == [(0, 0, 2)]


def test_one_row_says_that_a_topic_cannot_be_read() -> None:
    rig = Rig()
    client = joined(rig)
    rows = rows_of(client.fetch(topic=b"x" * 16, partitions=tuple(range(1_000))))
    assert [row["error_code"] for row in rows.values()] == [100]


def test_a_connection_has_so_many_sessions() -> None:
    sessions = ShareSessions()
    for number in range(MAX_SESSIONS):
        sessions.enter("g", f"m{number}", 0, True)
    with pytest.raises(Exception, match="share sessions at most"):
        sessions.enter("g", "more", 0, True)
    sessions.enter("g", "m0", -1, True)
    sessions.enter("g", "more", 0, True)


def test_who_settles_nothing_is_given_no_more() -> None:
    rig = Rig()
    client = joined(rig)
    for _ in range(5):
        rig.publish(MAX_HELD // 4)
    given = 0
    for _ in range(40):
        rows = rows_of(client.fetch())
        given += sum(last - first + 1 for first, last, _ in acquired(rows[0])) if rows else 0
    assert given == MAX_HELD


def test_what_was_kept_for_too_long_is_forgotten() -> None:
    session, name = ShareSession(), (b"t", 0)
    session.hold(name, 0, Held("a", 100))
    session.hold(name, 1, Held("b", 200))
    session.drop_overdue(99)
    assert session.count == 2
    session.drop_overdue(100)
    assert session.count == 1 and list(session.held[name]) == [1]
    session.drop_overdue(200)
    assert session.count == 0 and not session.held


def test_more_stretches_than_a_member_may_hold_are_refused() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(1)
    client.fetch()
    many = [(number, number, [GAP]) for number in range(2 * MAX_HELD + 1)]
    assert client.acknowledge({0: many})["error_code"] == 42
    assert client.acknowledge({0: [(0, MAX_TYPES, [GAP] * (MAX_TYPES + 1))]})["error_code"] == 42
