"""ACLs and SCRAM credentials over the hub's rules and users."""
from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rules import read_rule
from gatehouse.gateways.kafka.acl_mapping import acls_of
from tests.gateways.admission.kit import Administered
from tests.gateways.kafka.calls import accounts_of, plant
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.test_administration import ask, asking

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ALTER_CONFIGS, IDEMPOTENT_WRITE = 3, 4, 5, 6, 7, 8, 11, 12
ANY, ALL, DENY, ALLOW, MATCH, LITERAL, PREFIXED = 1, 2, 2, 3, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4


def creation(operation: int, **fields: Any) -> Row:
    return Row(**{"resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": LITERAL,
                  "principal": "User:bob", "host": "*", "operation": operation, "permission_type": ALLOW, **fields})


def created(peer: Peer, *creations: Row) -> list[int]:
    return [row.error_code for row in ask(peer, "CreateAcls", creations=list(creations)).results]


def filter_of(**fields: Any) -> dict[str, Any]:
    return {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
            "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY, **fields}


def listed(peer: Peer, **fields: Any) -> set[tuple[str, int, str, int]]:
    """(resource name, pattern type, principal, operation), of those that are not of the user ann."""
    answer = ask(peer, "DescribeAcls", **filter_of(**fields))
    assert answer.error_code == 0
    return {(row.resource_name, row.pattern_type, acl.principal, acl.operation)
            for row in answer.resources for acl in row.acls if acl.principal != "User:ann"}


def deleted(peer: Peer, **fields: Any) -> set[tuple[str, int]]:
    result, = ask(peer, "DeleteAcls", filters=[Row(**filter_of(**fields))]).filter_results
    assert result.error_code == 0
    return {(acl.principal, acl.operation) for acl in result.matching_acls if acl.error_code == 0}


def rules(peer: Peer) -> set[tuple[str, str, str, frozenset[str]]]:
    return {(rule.who, rule.kind, rule.pattern, frozenset(operation.value for operation in rule.operations))
            for rule in accounts_of(peer).accounts.rules.values() if rule.who != "user:ann"}


def test_what_tools_give_a_producer_and_a_consumer() -> None:
    peer = plant()
    assert created(peer, *map(creation, (WRITE, DESCRIBE, CREATE)),
                   creation(READ, resource_type=GROUP, resource_name="g", resource_pattern_type=PREFIXED),
                   creation(IDEMPOTENT_WRITE, resource_type=CLUSTER, resource_name="kafka-cluster")) == [0] * 5
    assert rules(peer) == {("user:bob", "group", "g*", frozenset(("consume",))), *[
        ("user:bob", "topic", "orders", frozenset((name,))) for name in ("publish", "describe", "create")]}
    assert listed(peer) == {("orders", LITERAL, "User:bob", number) for number in (WRITE, DESCRIBE, CREATE)} | {
        ("g", PREFIXED, "User:bob", READ)}


def test_an_acl_that_is_there_is_not_made_again() -> None:
    peer = plant()
    for _ in range(2):
        assert created(peer, creation(READ), creation(READ)) == [0, 0]
    assert len(rules(peer)) == len(accounts_of(peer).accounts.rules) - 1 == 1


def test_nobody_gets_more_than_an_acl_says() -> None:
    peer = plant()
    for one in (DELETE, ALTER, ALTER_CONFIGS):
        assert created(peer, creation(one)) == [42]
    assert rules(peer) == set()
    assert created(peer, *map(creation, (DELETE, ALTER, ALTER_CONFIGS))) == [0, 0, 0]
    assert rules(peer) == {("user:bob", "topic", "orders", frozenset(("alter",)))}
    assert created(peer, creation(DESCRIBE, resource_type=GROUP), creation(ALTER, resource_type=CLUSTER,
                                                                           resource_name="kafka-cluster")) == [42, 42]


def test_all_is_all_and_is_listed_as_all() -> None:
    peer = plant()
    assert created(peer, creation(ALL, resource_name="*", principal="User:*"),
                   creation(ALL, resource_type=CLUSTER, resource_name="kafka-cluster")) == [0, 0]
    assert listed(peer) == {("*", LITERAL, "User:*", ALL), ("kafka-cluster", LITERAL, "User:bob", ALL)}
    assert deleted(peer, operation=ALL) == {("User:*", ALL), ("User:bob", ALL)}
    assert rules(peer) == set()


@pytest.mark.parametrize("fields", [
    {"host": "10.0.0.1"}, {"principal": "bob"}, {"principal": "User:"}, {"resource_type": 5}, {"resource_type": 6},
    {"resource_name": ""}, {"resource_name": "a*"}, {"resource_name": "{user}"}, {"resource_pattern_type": MATCH},
    {"permission_type": ANY}, {"resource_type": CLUSTER}, {"principal": "User:\n"}])
def test_what_no_rule_says_is_refused(fields: dict[str, Any]) -> None:
    peer = plant()
    assert created(peer, creation(READ, **fields)) == [42]
    assert rules(peer) == set()


def test_an_acl_of_a_transactional_id_is_refused_by_name() -> None:
    row, = ask(plant(), "CreateAcls", creations=[creation(WRITE, resource_type=5)]).results
    assert "TransactionalId" in row.error_message and "`transact`" in row.error_message


def test_filters_ask_by_what_applies_to_a_name() -> None:
    peer = plant()
    created(peer, creation(READ), creation(READ, resource_name="ord", resource_pattern_type=PREFIXED),
            creation(READ, resource_name="*"), creation(READ, resource_name="others"),
            creation(WRITE, principal="User:eve", permission_type=DENY))
    match = listed(peer, resource_name_filter="orders", pattern_type_filter=MATCH, operation=READ)
    assert {name for name, *_ in match} == {"orders", "ord", "*"}
    assert {name for name, *_ in listed(peer, resource_name_filter="orders", pattern_type_filter=LITERAL)} == {"orders"}
    assert listed(peer, principal_filter="User:eve") == listed(peer, permission_type=DENY) == {
        ("orders", LITERAL, "User:eve", WRITE)}
    assert listed(peer, host_filter="10.0.0.1") == set()


def test_a_rule_of_several_operations_is_taken_apart() -> None:
    peer = plant()
    accounts = accounts_of(peer)
    accounts.add_rule("root", {"who": "group:ops", "kind": "topic", "pattern": "orders",
                               "operations": ["consume", "publish", "alter"]}, lambda rule: None)
    assert deleted(peer, operation=WRITE) == {("Group:ops", WRITE)}
    assert rules(peer) == {("group:ops", "topic", "orders", frozenset(("consume", "alter")))}
    assert deleted(peer, operation=DELETE, principal_filter="Group:ops") == {
        ("Group:ops", number) for number in (DELETE, ALTER, ALTER_CONFIGS)}, "it was one right"
    assert rules(peer) == {("group:ops", "topic", "orders", frozenset(("consume",)))}


def test_acls_of_one_rule_that_are_deleted_at_the_same_time_are_all_gone() -> None:
    peer, rig = plant(), Administered()
    peer.services.accounts = rig.administration
    rig.did(lambda told: rig.administration.add_rule("root", {
        "who": "group:ops", "kind": "topic", "pattern": "orders",
        "operations": ["consume", "publish", "create"]}, told))
    rig.changes.at_once = False                # both are asked for before the database has done the first
    peer.send(b"".join([asking("DeleteAcls", filters=[Row(**filter_of(operation=operation))])
                        for operation in (READ, WRITE)]))
    rig.changes.work()
    assert len(peer.link.frames()) == 2
    assert rules(peer) == {("group:ops", "topic", "orders", frozenset(("create",)))}


def test_an_acl_that_is_made_again_while_it_is_deleted_is_there() -> None:
    peer, rig = plant(), Administered()
    peer.services.accounts = rig.administration
    denied = creation(READ, permission_type=DENY)
    assert created(peer, denied) == [0]
    rig.changes.at_once = False                # it is asked for before the database has done the deletion
    peer.send(asking("DeleteAcls", filters=[Row(**filter_of())])
              + asking("CreateAcls", creations=[denied]) * 2)
    rig.changes.work()
    assert len(peer.link.frames()) == 3 and len(rig.accounts.rules) == 1


def test_a_denied_right_is_not_opened_by_a_part_of_it() -> None:
    peer = plant()
    created(peer, *[creation(one, permission_type=DENY) for one in (DELETE, ALTER, ALTER_CONFIGS)])
    assert deleted(peer, operation=DELETE) == set()
    assert len(rules(peer)) == 1


def test_rules_that_kafka_has_no_words_for_do_not_show() -> None:
    for table in ({"pattern": "plant/#"}, {"kind": "client", "pattern": "c*"},
                  {"kind": "topic", "pattern": "of-{user}"}, {"kind": "hub", "operations": ["relay"]}):
        assert list(acls_of(read_rule({"who": "everyone", **table}))) == []


def refusing() -> Peer:
    peer = Peer(decision=lambda principal, operation, address: operation is not Operation.ADMINISTER)
    peer.services.accounts = plant().services.accounts
    return peer


@pytest.mark.parametrize(("peer", "code"), [(refusing, 31), (Peer, 54)])
def test_it_takes_the_right_to_administer_and_a_database(peer: Any, code: int) -> None:
    assert created(peer(), creation(READ)) == [code]
    assert ask(peer(), "DescribeAcls", **filter_of()).error_code == code
    assert ask(peer(), "DeleteAcls", filters=[Row(**filter_of())]).filter_results[0].error_code == code
    assert ask(peer(), "DescribeUserScramCredentials", users=None).error_code == code
    assert scram_altered(peer(), upsertion()) == [code]


# ---- SCRAM

def upsertion(**fields: Any) -> Row:
    return Row(**{"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32),
                  **fields})


def scram_altered(peer: Peer, *upsertions: Row, deletions: tuple[Row, ...] = ()) -> list[int]:
    answer = ask(peer, "AlterUserScramCredentials", upsertions=list(upsertions), deletions=list(deletions))
    return [row.error_code for row in answer.results]


@pytest.mark.parametrize(("fields", "code"), [
    ({"iterations": 4095}, 93), ({"iterations": 16_385}, 93), ({"salted_password": b""}, 93), ({"salt": b""}, 93),
    ({"salted_password": bytes(1_025)}, 93), ({"salt": bytes(1_025)}, 93),
    ({"name": ""}, 93), ({"mechanism": 3}, 33), ({"name": "\0"}, 42)])
def test_credentials_that_cannot_be(fields: dict[str, Any], code: int) -> None:
    peer = plant()
    assert scram_altered(peer, upsertion(**fields)) == [code]
    assert list(accounts_of(peer).accounts.users) == ["ann"]


def test_what_was_salted_may_have_any_length() -> None:
    """As for Kafka: kafka-go's own tests alter a credential with 18 bytes."""
    peer = plant()
    assert scram_altered(peer, upsertion(salted_password=b"my-salted-password")) == [0]
    assert list(accounts_of(peer).accounts.users["bob"].scram) == ["SCRAM-SHA-256"]


def test_a_credential_is_changed_once_in_a_request() -> None:
    assert scram_altered(plant(), upsertion(), upsertion()) == [92]
    assert scram_altered(plant(), upsertion(name="ann"), deletions=(Row(name="ann", mechanism=1),)) == [92]


def test_only_what_is_there_is_deleted() -> None:
    peer = plant()
    assert scram_altered(peer, deletions=(Row(name="ann", mechanism=1), Row(name="eve", mechanism=1))) == [0, 91]
    assert scram_altered(peer, deletions=(Row(name="ann", mechanism=1),)) == [91]
    rows = ask(peer, "DescribeUserScramCredentials", users=[Row(name="ann"), Row(name="eve")]).results
    assert [(row.user, row.error_code, len(row.credential_infos)) for row in rows] == [("ann", 0, 1), ("eve", 91, 0)]
