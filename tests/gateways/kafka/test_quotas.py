"""Client quotas over the hub's quotas of users and its limits."""
from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

import pytest
from kafka.protocol.producer import ProduceResponse

from tests.gateways.admission.kit import Administered
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.calls import accounts_of, plant
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import CLIENT_ID, decoded, framed, produce
from tests.gateways.kafka.test_acls import refusing
from tests.gateways.kafka.test_administration import ask, asking

IN_RATE, OUT_RATE = "producer_byte_rate", "consumer_byte_rate"


def altered(peer: Peer, entity: dict[str, str | None], rate: float, *keys: str, **fields: Any) -> int:
    row, = ask(peer, "AlterClientQuotas", validate_only=False, entries=[Row(
        entity=[Row(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[Row(**{"key": key, "value": rate, "remove": False, **fields}) for key in keys or (IN_RATE,)])]).entries
    return int(row.error_code)


def entries(peer: Peer, *components: tuple[str, int, str | None], strict: bool = False
            ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    answer = ask(peer, "DescribeClientQuotas", strict=strict, components=[
        Row(entity_type=kind, match_type=match, match=name) for kind, match, name in components])
    return [({part.entity_type: part.entity_name for part in entry.entity},
             {row.key: row.value for row in entry.values}) for entry in answer.entries]


def quota_altered(peer: Peer, user: str | None, rate: float, **fields: Any) -> int:
    step = {"key": "producer_byte_rate", "value": rate, "remove": False, **fields}
    row, = ask(peer, "AlterClientQuotas", validate_only=step.pop("validate_only", False), entries=[
        Row(entity=[Row(entity_type=step.pop("entity", "user"), entity_name=user)], ops=[Row(**step)])]).entries
    return int(row.error_code)


def test_a_quota_is_what_a_user_may_send() -> None:
    peer = plant()
    assert quota_altered(peer, "ann", 7.0, validate_only=True) == 0
    assert accounts_of(peer).accounts.users["ann"].quota.bytes_per_s == 5000
    assert quota_altered(peer, "ann", 0.0, remove=True) == 0
    assert accounts_of(peer).accounts.users["ann"].quota.bytes_per_s == 0
    assert list(ask(peer, "DescribeClientQuotas", components=[], strict=False).entries) == []


def quotas_of(peer: Peer) -> dict[str, dict[str, float]]:
    answer = ask(peer, "DescribeClientQuotas", components=[], strict=False)
    return {entry.entity[0].entity_name: {row.key: row.value for row in entry.values} for entry in answer.entries}


def test_a_limit_is_what_may_go_out_to_a_user() -> None:
    peer = plant()
    assert quota_altered(peer, "ann", 0.0, key="consumer_byte_rate", remove=True) == 0, "there was none"
    assert quota_altered(peer, "ann", 1e19, key="consumer_byte_rate") == 42, "more than a limit may be"
    for rate in (9000.0, 8000.0):
        assert quota_altered(peer, "ann", rate, key="consumer_byte_rate") == 0
        assert quotas_of(peer) == {"ann": {"producer_byte_rate": 5000.0, "consumer_byte_rate": rate}}
    limit, = accounts_of(peer).accounts.every_limit()
    assert (limit.of, limit.direction, limit.bytes_per_s) == ("user:ann", "out", 8000)
    assert quota_altered(peer, "ann", 0.0, key="consumer_byte_rate", remove=True) == 0
    assert list(accounts_of(peer).accounts.every_limit()) == []


def test_two_quotas_of_a_user_are_changed_at_once_and_named_once() -> None:
    peer = plant()

    def altered(*keys: str) -> int:
        row, = ask(peer, "AlterClientQuotas", validate_only=False, entries=[Row(
            entity=[Row(entity_type="user", entity_name="ann")],
            ops=[Row(key=key, value=7.0, remove=False) for key in keys])]).entries
        return int(row.error_code)

    assert altered("producer_byte_rate", "consumer_byte_rate") == 0
    assert quotas_of(peer) == {"ann": {"producer_byte_rate": 7.0, "consumer_byte_rate": 7.0}}
    assert altered("consumer_byte_rate", "consumer_byte_rate") == 42 and altered() == 42


@pytest.mark.parametrize(("peer", "code"), [(refusing, 31), (Peer, 54)])
def test_it_takes_the_right_to_administer_and_a_database(peer: Any, code: int) -> None:
    assert ask(peer(), "DescribeClientQuotas", components=[], strict=False).error_code == code
    assert quota_altered(peer(), "ann", 5.0) == code


@pytest.mark.parametrize(("user", "fields", "code"), [
    ("eve", {}, 91), ("", {}, 42), ("*", {}, 42), ("ann", {"entity": "ip"}, 42),
    ("ann", {"key": "request_percentage"}, 42), ("ann", {"key": "controller_mutation_rate"}, 42),
    ("ann", {"value": float("nan")}, 42), ("ann", {"value": 0.0}, 42)])
def test_quotas_that_there_are_not(user: str | None, fields: dict[str, Any], code: int) -> None:
    assert quota_altered(plant(), user, 5.0, **fields) == code


@pytest.mark.parametrize(("entity", "of"), [
    ({"client-id": "app"}, "client:app"), ({"client-id": None}, "client:*"), ({"user": None}, "user:*"),
    ({"user": "ann", "client-id": "app"}, "user-client:ann/app"),
    ({"user": None, "client-id": "a/b"}, "user-client:*/a/b"),
    ({"user": None, "client-id": None}, "user-client:*/*")])
def test_quotas_of_client_ids_and_of_those_that_have_none_are_limits_that_yield(entity: dict[str, str | None], of: str
                                                                                ) -> None:
    peer = plant()
    assert altered(peer, entity, 9.0, IN_RATE, OUT_RATE) == 0
    limits = list(accounts_of(peer).accounts.every_limit())
    assert {(limit.of, limit.direction, limit.bytes_per_s, limit.yields) for limit in limits} == {
        (of, "in", 9, True), (of, "out", 9, True)}
    assert (entity, {IN_RATE: 9.0, OUT_RATE: 9.0}) in entries(peer)
    assert altered(peer, entity, 8.0) == 0 and (entity, {IN_RATE: 8.0, OUT_RATE: 9.0}) in entries(peer)
    assert altered(peer, entity, 0.0, IN_RATE, OUT_RATE, remove=True) == 0
    assert list(accounts_of(peer).accounts.every_limit()) == []


@pytest.mark.parametrize(("components", "strict", "found"), [
    ([], False, 5), ([("user", 0, "ann")], True, 1), ([("user", 0, "ann")], False, 2), ([("user", 1, None)], True, 1),
    ([("user", 2, None)], False, 3), ([("client-id", 2, None)], True, 2), ([("client-id", 2, None)], False, 3),
    ([("user", 0, "ann"), ("client-id", 0, "app")], True, 1), ([("user", 0, "bob")], False, 0),
    ([("ip", 2, None)], False, 0)])
def test_quotas_are_asked_for_by_entity(components: list[tuple[str, int, str | None]], strict: bool, found: int
                                        ) -> None:
    peer = plant()
    for entity in ({"client-id": "app"}, {"client-id": None}, {"user": None}, {"user": "ann", "client-id": "app"}):
        assert altered(peer, entity, 9.0) == 0
    assert len(entries(peer, *components, strict=strict)) == found


def test_a_quota_of_a_client_id_throttles_who_comes_with_it_and_nobody_else() -> None:
    def waits(client_id: str, rate: float) -> bool:
        peer = plant()
        assert altered(peer, {"client-id": client_id}, rate) == 0
        limit, = accounts_of(peer).accounts.every_limit()
        peer.services.admission.limits.put(limit, peer.now_ms)
        peer.send(framed(produce(7, {("plant", 0): batch(b"x" * 500)}), 1))
        peer.kernel.flush()
        return bool(decoded(ProduceResponse, 7, *peer.link.frames()).throttle_time_ms)

    assert (waits(CLIENT_ID, 5.0), waits(CLIENT_ID, 1e6), waits("other", 5.0)) == (True, False, False)


def test_a_quota_that_is_set_twice_at_the_same_time_is_one_quota() -> None:
    peer, rig = plant(), Administered()
    peer.services.accounts = rig.administration
    rig.changes.at_once = False                # both are asked for before the database has done the first
    entry = Row(entity=[Row(entity_type="client-id", entity_name="app")],
                ops=[Row(key=IN_RATE, value=1000.0, remove=False)])
    peer.send(asking("AlterClientQuotas", validate_only=False, entries=[entry]) * 2)
    rig.changes.work()
    assert len(peer.link.frames()) == 2
    assert [limit.bytes_per_s for limit in rig.accounts.limits.values()] == [1000]
