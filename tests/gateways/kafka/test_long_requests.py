"""Requests of many parts: read beside the loop, gone through in steps, bounded where each part costs much."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from inspect import isgeneratorfunction
from types import SimpleNamespace as Row
from typing import Any, get_type_hints

import pytest

from gatehouse.gateways.kafka import request as kafka_request
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.codec import PRODUCE_PARTITIONS
from tests.gateways.admission.kit import Worker
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.calls import accounts_of, message, plant
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed, produce
from tests.gateways.kafka.test_administration import KEYS, ask, asking

MANY = 3_000


def answer_of(api: str, frame: bytes) -> Any:
    key = KEYS[api]
    return decoded(message(key, "Response"), APIS[key].last_version, frame, 5)


def beside(peer: Peer) -> Worker:
    """Let the hub have a thread for what is long, which works when it is told to."""
    worker = Worker()
    peer.services.beside = worker
    return worker


class Ticking:
    """A clock that has gone on by 2 ms whenever somebody looks."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def __call__(self) -> int:
        self.peer.now_ms += 2
        return self.peer.now_ms


AT_ONE_GO = {11, 13, 14, 35, 46, 68, 74}
"""Of one group, or of what the kernel answers as a whole: a part of these costs less than to read it."""


@pytest.mark.parametrize("key", sorted(key for key, api in APIS.items() if api.message is not None))
def test_what_may_have_many_parts_is_gone_through_in_steps(key: int) -> None:
    fields = APIS[key].message._struct.untagged_fields(APIS[key].last_version)
    if key in AT_ONE_GO or not any(field.is_array() or field.is_struct_array() for field in fields):
        return
    with_steps = isgeneratorfunction(APIS[key].dispatch)
    assert with_steps or get_type_hints(APIS[key].dispatch, {**vars(kafka_request)})["return"] == Iterator[None]


def names(count: int = MANY) -> list[str]:
    return [f"group {number}" for number in range(count)]


def test_a_long_request_is_read_and_its_answer_written_beside_the_loop() -> None:
    peer = plant()
    worker = beside(peer)
    assert peer.send(asking("DescribeGroups", groups=names(), include_authorized_operations=False)) == []
    worker.work()                                           # it is read, and answered when the answer is written
    frame, = peer.link.frames()
    assert [group.group_id for group in answer_of("DescribeGroups", frame).groups] == names()
    assert worker.done == 2


def test_a_short_one_needs_nobody() -> None:
    peer = plant()
    worker = beside(peer)
    assert len(peer.send(asking("DescribeGroups", groups=["g"], include_authorized_operations=False))) == 1
    assert worker.done == 0 and not worker.jobs


def test_what_comes_behind_a_long_request_waits_for_it() -> None:
    peer = plant()
    worker = beside(peer)
    deletion = asking("DeleteGroups", groups_names=names())
    peer.send(deletion + asking("FindCoordinator", key_type=0, coordinator_keys=["g"]))
    assert peer.link.frames() == [] and peer.link.paused
    worker.work()
    first, second = peer.link.frames()
    assert len(answer_of("DeleteGroups", first).results) == MANY
    assert [row.key for row in answer_of("FindCoordinator", second).coordinators] == ["g"]
    assert not peer.link.paused


def test_a_long_request_is_gone_through_in_several_turns() -> None:
    peer = plant()
    asked = asking("FindCoordinator", key_type=0, coordinator_keys=names(200))
    peer.services.now_ms = Ticking(peer)
    frames, turns = peer.send(asked), 1
    while not frames:
        frames = peer.wait(10)
        turns += 1
    assert [row.key for row in answer_of("FindCoordinator", frames[0]).coordinators] == names(200)
    assert turns > 3                                        # 16 parts, and a look at the clock


def test_users_who_come_and_go_meanwhile_do_no_harm() -> None:
    peer = plant()
    users = accounts_of(peer).accounts.users
    users.update({name: replace(users["ann"], name=name) for name in names(200)})
    peer.services.now_ms = Ticking(peer)
    frames = peer.send(asking("DescribeClientQuotas", components=[], strict=False))
    while not frames:
        users[f"come at {peer.now_ms}"] = users["ann"]
        frames = peer.wait(10)
    assert len(answer_of("DescribeClientQuotas", frames[0]).entries) == 201


def test_it_goes_on_with_its_time_alone() -> None:
    """What else happens on the connection, answers of the disk above all, is no turn for its steps."""
    peer = plant()
    peer.services.now_ms = Ticking(peer)
    assert peer.send(asking("FindCoordinator", key_type=0, coordinator_keys=names(200))) == []
    for _ in range(100):
        peer.session.handle_drained()
    assert peer.link.frames() == []


def test_who_goes_in_between_is_not_gone_on_with() -> None:
    peer = plant()
    worker = beside(peer)
    peer.send(asking("DeleteTopics", timeout_ms=1000, topics=[
        Row(name=name, topic_id=NO_ID) for name in ["plant", *names(1_000)]]))
    peer.session.handle_closed()
    worker.work()
    assert "plant" in peer.kernel.by_name


def test_a_long_request_that_lies_ends_its_connection() -> None:
    peer = plant()
    worker = beside(peer)
    peer.send(asking("FindCoordinator", key_type=0, coordinator_keys=["g"]))
    asked = bytearray(asking("DescribeGroups", groups=names(), include_authorized_operations=False))
    asked[-2:] = b"\xff\xff"                                # tagged fields that never end
    peer.send(bytes(asked))
    worker.work()
    assert peer.link.closed and "malformed" in peer.link.reason


NO_ID = message(20, "Request")._struct.fields["topics"].fields["topic_id"].default


def test_many_batches_are_appended_in_their_order_and_answered_once() -> None:
    peer = Peer(group_initial_rebalance_delay_ms=0)
    peer.kernel.create_topic("wide", partitions=1_500)
    peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.flush()
    batches: dict[tuple[str, int], bytes | None] = {("wide", number): batch(b"w") for number in range(1_500)}
    batches["plant", 1] = batch(b"p")
    frames = peer.send(framed(produce(9, batches), 5))
    for _ in range(20):
        peer.kernel.flush()
        frames += peer.wait(10)
    answer = decoded(message(0, "Response"), 9, frames[0], 5)
    assert [topic.name for topic in answer.responses] == ["wide", "plant"]
    assert {row.error_code for topic in answer.responses for row in topic.partition_responses} == {0}
    assert [row.index for row in answer.responses[0].partition_responses] == list(range(1_500))


def test_a_produce_request_of_too_many_partitions_ends_its_connection() -> None:
    peer = plant()
    peer.send(asking("FindCoordinator", key_type=0, coordinator_keys=["g"]))
    peer.send(framed(produce(9, {("wide", number): None for number in range(PRODUCE_PARTITIONS + 1)}), 5))
    assert peer.link.closed and "more than" in peer.link.reason


def credential(name: str) -> Row:
    return Row(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32))


def test_accounts_are_changed_a_thousand_at_most_in_a_request() -> None:
    peer = plant()
    quotas = [Row(entity=[Row(entity_type="client-id", entity_name=name)],
                  ops=[Row(key="producer_byte_rate", value=5.0, remove=False)]) for name in names(1_001)]
    rows = ask(peer, "AlterClientQuotas", validate_only=False, entries=quotas).entries
    assert {row.error_code for row in rows} == {44} and "at most 1000" in rows[0].error_message
    rows = ask(peer, "AlterUserScramCredentials", deletions=[], upsertions=[
        credential(name) for name in names(1_001)]).results
    assert {row.error_code for row in rows} == {44} and "at most 1000" in rows[0].error_message
    assert not accounts_of(peer).accounts.limits and list(accounts_of(peer).accounts.users) == ["ann"]


@pytest.mark.parametrize("count", [1, 100, 250])
def test_what_one_request_changes_in_accounts_goes_to_the_database_together(count: int) -> None:
    peer = plant()
    worker = accounts_of(peer)._outside.accounts
    assert isinstance(worker, Worker)
    before = worker.done
    rows = ask(peer, "AlterUserScramCredentials", deletions=[], upsertions=[
        credential(name) for name in names(count)]).results
    assert [row.error_code for row in rows] == [0] * count and len(accounts_of(peer).accounts.users) == count + 1
    assert worker.done - before == -(-count // 100)


def test_what_is_refused_among_changes_leaves_the_others_alone() -> None:
    peer = plant()
    rows = ask(peer, "AlterUserScramCredentials", deletions=[], upsertions=[
        credential(name) for name in ("bob", "wrong\x00name", "eve")]).results
    assert [row.error_code == 0 for row in rows] == [True, False, True]
    assert sorted(accounts_of(peer).accounts.users) == ["ann", "bob", "eve"]
