"""One call of every API that is offered, with one effect that it has, in the words of kafka-python's schemas."""
from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from types import SimpleNamespace as Row
from typing import Any, NamedTuple

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.api_message import ApiMessage

from gatehouse.gateways.admission.administration import Administration, UserChanges
from gatehouse.gateways.admission.scram import HASHES, salted_secret
from gatehouse.kernel.halves.producer_transactions import KnownTransaction
from tests.gateways.admission.kit import Administered
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import EPOCH, NOW_MS, Peer

MODULES = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer,
           kafka.protocol.sasl)
SUBSCRIPTION = b"\0\1" + b"\0\0\0\1" + b"\0\5plant" + b"\xff\xff\xff\xff"


def plant() -> Peer:
    """A client of a hub with a topic of two partitions, and three records in the first of them."""
    peer = Peer(group_initial_rebalance_delay_ms=0)
    topic = peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.append_batch(topic.partition_id(0), batch(b"a", b"b", b"c", timestamp_ms=1000), None)
    peer.kernel.flush()
    peer.link.take()
    rig = Administered()
    secrets = {mechanism: salted_secret(mechanism, b"salted", b"salt", 4096) for mechanism in HASHES}
    rig.did(lambda told: rig.administration.put_user("root", "ann", UserChanges(scram=secrets, bytes_per_s=5000), told))
    rig.did(lambda told: rig.administration.add_rule("root", {
        "who": "user:ann", "kind": "topic", "pattern": "plant", "operations": ["consume"]}, told))
    peer.services.accounts = rig.administration
    return peer


def plant_id(peer: Peer) -> uuid.UUID:
    return uuid.UUID(bytes=peer.kernel.by_name["plant"].uuid)


class Call(NamedTuple):
    """What is asked, and what is seen of the answer and of the hub."""

    fields: Callable[[Peer, int], dict[str, Any]]
    effect: Callable[[Peer, Any], bool]


def message(key: int, kind: str) -> Any:
    """kafka-python's class of an API's Request or Response."""
    return next(made_of for made_of in _classes(ApiMessage)
                if made_of.API_KEY == key and str(made_of.name).endswith(kind))


def _classes(of: Any) -> Any:
    for made_of in of.__subclasses__():
        yield made_of
        yield from _classes(made_of)


def _fetched(peer: Peer, version: int) -> dict[str, Any]:
    topic = {"topic": "plant"} if version < 13 else {"topic_id": plant_id(peer)}
    part = Row(partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
               partition_max_bytes=1 << 20)
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
            "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
            "topics": [Row(**topic, partitions=[part])]}


def _produced(peer: Peer, version: int) -> dict[str, Any]:
    topic = {"name": "plant"} if version < 13 else {"topic_id": plant_id(peer)}
    part = Row(index=1, records=batch(b"x"))
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1000,
            "topic_data": [Row(**topic, partition_data=[part])]}


def _with_producer(peer: Peer, version: int) -> dict[str, Any]:
    partition_id = peer.kernel.by_name["plant"].partition_id(1)
    peer.kernel.append_batch(partition_id, batch(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=5), None)
    peer.kernel.flush()
    return {"topics": [Row(name="plant", partition_indexes=[0, 1, 2])]}


def plant_ids(peer: Peer) -> Sequence[int]:
    """The partition ids of the topic."""
    return list(peer.kernel.by_name["plant"].partition_ids())


def _producer(prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}transactional_id": "t", f"{prefix}producer_id": 7, f"{prefix}producer_epoch": 2}


def _with_transaction(fields: dict[str, Any]) -> Callable[[Peer, int], dict[str, Any]]:
    def fields_of(peer: Peer, version: int) -> dict[str, Any]:
        peer.kernel.producing.transactions = [
            KnownTransaction("t", 7, 2, "open", False, 60_000, NOW_MS - 5, [plant_ids(peer)[1]], []),
            KnownTransaction("v", 8, 0, "committed", False, 60_000, -1, [], [])]
        return fields
    return fields_of


def _configs(peer: Peer, version: int) -> dict[str, Any]:
    return {"validate_only": False, "resources": [Row(resource_type=2, resource_name="plant", configs=[
        Row(name="retention.ms", value="60000", config_operation=0)])]}


def _retention(peer: Peer) -> int | None:
    return peer.kernel.by_name["plant"].settings.retention_ms


def _partitions(answer: Any) -> list[Any]:
    return [part for topic in answer.topics for part in topic.partitions]


def _group(*names: str, **fields: Any) -> Callable[[Peer, int], dict[str, Any]]:
    return lambda peer, version: {"groups": list(names), **fields}


def _committed(peer: Peer, version: int) -> dict[str, Any]:
    part = Row(partition_index=0, committed_offset=2, committed_leader_epoch=-1, committed_metadata="")
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": "",
            "group_instance_id": None, "retention_time_ms": -1,
            "topics": [Row(name="plant", topic_id=plant_id(peer), partitions=[part])]}


def accounts_of(peer: Peer) -> Administration:
    assert peer.services.accounts is not None
    return peer.services.accounts


def _acl_filter(peer: Peer, version: int) -> dict[str, Any]:
    return {"resource_type_filter": 2, "resource_name_filter": "plant", "pattern_type_filter": 3,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


CALLS: dict[int, Call] = {
    0: Call(_produced, lambda peer, answer: peer.kernel.bounds(
        peer.kernel.by_name["plant"].partition_id(1)) == (0, 1)
        and [part.error_code for topic in answer.responses for part in topic.partition_responses] == [0]),
    1: Call(_fetched, lambda peer, answer: [
        (part.error_code, part.high_watermark, len(part.records) > 60)
        for topic in answer.responses for part in topic.partitions] == [(0, 3, True)]),
    2: Call(lambda peer, version: {"replica_id": -1, "isolation_level": 0, "topics": [Row(name="plant", partitions=[
        Row(partition_index=0, current_leader_epoch=-1, timestamp=-1)])]},
        lambda peer, answer: [part.offset for part in _partitions(answer)] == [3]),
    3: Call(lambda peer, version: {"topics": [Row(name="plant", topic_id=uuid.UUID(int=0))],
                                   "allow_auto_topic_creation": False, "include_cluster_authorized_operations": True,
                                   "include_topic_authorized_operations": True},
            lambda peer, answer: len(_partitions(answer)) == 2),
    8: Call(_committed, lambda peer, answer: [part.error_code for part in _partitions(answer)] == [0]
            and len(peer.kernel.offsets["g"]) == 1),
    9: Call(lambda peer, version: {"group_id": "g", "topics": None if version >= 2 else [
        Row(name="plant", partition_indexes=[0])], "require_stable": False, "groups": [
            Row(group_id="g", member_id=None, member_epoch=-1, topics=None)]},
        lambda peer, answer: [group.error_code for group in getattr(answer, "groups", None) or [answer]] == [0]
        if answer.version >= 2 else len(_partitions(answer)) == 1),
    10: Call(lambda peer, version: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
             lambda peer, answer: [
                 coordinator.node_id for coordinator in (answer.coordinators if answer.version >= 4 else [answer])]
             == [1]),
    11: Call(lambda peer, version: {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "reason": None,
        "protocols": [Row(name="range", metadata=SUBSCRIPTION)]},
        lambda peer, answer: answer.member_id != "" and answer.error_code == (79 if answer.version >= 4 else 0)),
    12: Call(lambda peer, version: {"group_id": "g", "generation_id": 1, "member_id": "nobody",
                                    "group_instance_id": None}, lambda peer, answer: answer.error_code == 25),
    13: Call(lambda peer, version: {"group_id": "g", "member_id": "nobody", "members": [
        Row(member_id="nobody", group_instance_id=None, reason=None)]},
        lambda peer, answer: [member.error_code for member in (answer.members if answer.version >= 3 else [answer])]
        == [25]),
    14: Call(lambda peer, version: {"group_id": "g", "generation_id": 1, "member_id": "nobody",
                                    "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
                                    "assignments": []}, lambda peer, answer: answer.error_code == 25),
    15: Call(_group("g", include_authorized_operations=False),
             lambda peer, answer: [group.group_state for group in answer.groups] == ["Dead"]),
    16: Call(lambda peer, version: {"states_filter": [], "types_filter": []},
             lambda peer, answer: (answer.error_code, list(answer.groups)) == (0, [])),
    17: Call(lambda peer, version: {"mechanism": "SCRAM-SHA-512"},
             lambda peer, answer: answer.error_code == 0 and "PLAIN" in answer.mechanisms),
    18: Call(lambda peer, version: {"client_software_name": "judge", "client_software_version": "1"},
             lambda peer, answer: {18, 20, 32} <= {api.api_key for api in answer.api_keys}),
    19: Call(lambda peer, version: {"timeout_ms": 1000, "validate_only": False, "topics": [
        Row(name="new", num_partitions=3, replication_factor=1, assignments=[], configs=[])]},
        lambda peer, answer: peer.kernel.by_name["new"].partitions == 3),
    20: Call(lambda peer, version: {"timeout_ms": 1000, "topic_names": ["plant"], "topics": [
        Row(name="plant", topic_id=uuid.UUID(int=0))]},
        lambda peer, answer: peer.kernel.by_name == {} and [row.error_code for row in answer.responses] == [0]),
    21: Call(lambda peer, version: {"timeout_ms": 1000, "topics": [Row(name="plant", partitions=[
        Row(partition_index=0, offset=2)])]},
        lambda peer, answer: [(part.error_code, part.low_watermark) for part in _partitions(answer)] == [(0, 2)]),
    22: Call(lambda peer, version: {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1,
                                    "producer_epoch": -1, "enable2_pc": False, "keep_prepared_txn": False},
             lambda peer, answer: answer.error_code == 0 and answer.producer_id > 0),
    24: Call(lambda peer, version: {
        **_producer("v3_and_below_"), "v3_and_below_topics": [Row(name="plant", partitions=[0, 1])]},
        lambda peer, answer: [part.partition_error_code for row in answer.results_by_topic_v3_and_below
                              for part in row.results_by_partition] == [0, 0]
        and peer.kernel.producing.asked == [("begin", "t", 7, 2, list(plant_ids(peer)), None)]),
    25: Call(lambda peer, version: {**_producer(), "group_id": "g"},
             lambda peer, answer: answer.error_code == 0
             and peer.kernel.producing.asked == [("begin", "t", 7, 2, [], "g")]),
    26: Call(lambda peer, version: {**_producer(), "committed": True},
             lambda peer, answer: answer.error_code == 0
             and peer.kernel.producing.asked == [("end", "t", 7, 2, True)]),
    28: Call(lambda peer, version: {
        **_producer(), "group_id": "g", "generation_id": -1, "member_id": "", "group_instance_id": None,
        "topics": [Row(name="plant", partitions=[Row(partition_index=1, committed_offset=5, committed_leader_epoch=-1,
                                                     committed_metadata="m")])]},
        lambda peer, answer: [part.error_code for part in _partitions(answer)] == [0]
        and peer.kernel.producing.asked == [("offsets", "t", 7, 2, "g", {plant_ids(peer)[1]: (5, b"m")})]),
    32: Call(lambda peer, version: {"include_synonyms": True, "include_documentation": True, "resources": [
        Row(resource_type=2, resource_name="plant", configuration_keys=["cleanup.policy"])]},
        lambda peer, answer: [(config.name, config.value, config.config_source)
                              for result in answer.results for config in result.configs]
        == [("cleanup.policy", "delete", 5)]),
    33: Call(_configs, lambda peer, answer: [row.error_code for row in answer.responses] == [0]
             and _retention(peer) == 60_000),
    23: Call(lambda peer, version: {"replica_id": -1, "topics": [Row(topic="plant", partitions=[
        Row(partition=0, current_leader_epoch=EPOCH, leader_epoch=EPOCH),
        Row(partition=0, current_leader_epoch=EPOCH - 1, leader_epoch=EPOCH),
        Row(partition=0, current_leader_epoch=-1, leader_epoch=EPOCH + 1)])]},
        lambda peer, answer: [(part.error_code, part.leader_epoch, part.end_offset) for part in _partitions(answer)]
        == [(0, EPOCH, 3), (74, -1, -1), (0, -1, -1)]),
    29: Call(_acl_filter, lambda peer, answer: [(row.resource_type, row.resource_name, [
        (acl.principal, acl.operation, acl.permission_type) for acl in row.acls]) for row in answer.resources]
        == [(2, "plant", [("User:ann", 3, 3)])]),
    30: Call(lambda peer, version: {"creations": [Row(
        resource_type=2, resource_name="pl", resource_pattern_type=4, principal="User:bob", host="*", operation=4,
        permission_type=2)]}, lambda peer, answer: [row.error_code for row in answer.results] == [0]
        and [(rule.who, rule.pattern, rule.allows) for rule in accounts_of(peer).accounts.rules.values()][1:]
        == [("user:bob", "pl*", False)]),
    31: Call(lambda peer, version: {"filters": [Row(**_acl_filter(peer, version))]},
             lambda peer, answer: [len(row.matching_acls) for row in answer.filter_results] == [1]
             and accounts_of(peer).accounts.rules == {}),
    34: Call(lambda peer, version: {"dirs": [
        Row(path="log", topics=[Row(name="plant", partitions=[0, 7])]),
        Row(path="elsewhere", topics=[Row(name="plant", partitions=[1])])]},
        lambda peer, answer: [(topic.topic_name, [(part.partition_index, part.error_code) for part in topic.partitions])
                              for topic in answer.results] == [("plant", [(0, 0), (7, 3), (1, 57)])]),
    35: Call(lambda peer, version: {"topics": [Row(topic="plant", partitions=[0])]},
             lambda peer, answer: [(topic.name, [(part.partition_index, part.partition_size > 60)
                                                 for part in topic.partitions])
                                   for result in answer.results for topic in result.topics]
             == [("plant", [(0, True)])]),
    36: Call(lambda peer, version: {"auth_bytes": b""}, lambda peer, answer: answer.error_code == 34),
    37: Call(lambda peer, version: {"timeout_ms": 1000, "validate_only": False, "topics": [
        Row(name="plant", count=5, assignments=None)]},
        lambda peer, answer: peer.kernel.by_name["plant"].partitions == 5),
    42: Call(lambda peer, version: {"groups_names": ["g"]},
             lambda peer, answer: [row.error_code for row in answer.results] == [69]),
    43: Call(lambda peer, version: {"election_type": 0, "timeout_ms": 1000, "topic_partitions": [
        Row(topic="plant", partitions=[0, 9])]},
        lambda peer, answer: [part.error_code for row in answer.replica_election_results
                              for part in row.partition_result] == [84, 3]),
    44: Call(_configs, lambda peer, answer: [row.error_code for row in answer.responses] == [0]
             and _retention(peer) == 60_000),
    45: Call(lambda peer, version: {"timeout_ms": 1000, "allow_replication_factor_change": True, "topics": [
        Row(name="plant", partitions=[Row(partition_index=0, replicas=[1]), Row(partition_index=1, replicas=[1, 2]),
                                      Row(partition_index=0, replicas=None), Row(partition_index=7, replicas=[1])])]},
        lambda peer, answer: [part.error_code for row in answer.responses for part in row.partitions]
        == [0, 39, 85, 3]),
    46: Call(lambda peer, version: {"timeout_ms": 1000, "topics": None},
             lambda peer, answer: (answer.error_code, list(answer.topics)) == (0, [])),
    47: Call(lambda peer, version: {"group_id": "g", "topics": []}, lambda peer, answer: answer.error_code == 69),
    48: Call(lambda peer, version: {"strict": False, "components": [Row(entity_type="user", match_type=2, match=None)]},
             lambda peer, answer: [(entry.entity[0].entity_name, entry.values[0].key, entry.values[0].value)
                                   for entry in answer.entries] == [("ann", "producer_byte_rate", 5000.0)]),
    49: Call(lambda peer, version: {"validate_only": False, "entries": [Row(
        entity=[Row(entity_type="user", entity_name="ann")],
        ops=[Row(key="producer_byte_rate", value=7.0, remove=False)])]},
        lambda peer, answer: accounts_of(peer).accounts.users["ann"].quota.bytes_per_s == 7.0),
    50: Call(lambda peer, version: {"users": None}, lambda peer, answer: [
        (row.user, [info.mechanism for info in row.credential_infos]) for row in answer.results] == [("ann", [1, 2])]),
    51: Call(lambda peer, version: {"deletions": [Row(name="ann", mechanism=1)], "upsertions": [
        Row(name="new", mechanism=2, iterations=4096, salt=b"salt", salted_password=bytes(64))]},
        lambda peer, answer: [row.error_code for row in answer.results] == [0, 0]
        and {name: list(user.scram) for name, user in accounts_of(peer).accounts.users.items()}
        == {"ann": ["SCRAM-SHA-512"], "new": ["SCRAM-SHA-512"]}),
    55: Call(lambda peer, version: {"topics": [Row(topic_name="__cluster_metadata", partitions=[
        Row(partition_index=0), Row(partition_index=1)])]},
        lambda peer, answer: [(part.error_code, part.leader_id, [voter.replica_id for voter in part.current_voters])
                              for part in _partitions(answer)] == [(0, 1, [1]), (3, -1, [])]),
    60: Call(lambda peer, version: {"include_cluster_authorized_operations": True, "endpoint_type": 1,
                                    "include_fenced_brokers": False},
             lambda peer, answer: (answer.cluster_id, answer.controller_id, [broker.broker_id for broker in
                                                                             answer.brokers]) == ("hub", 1, [1])),
    61: Call(_with_producer, lambda peer, answer: [
        (part.error_code, [(one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
                           for one in part.active_producers]) for part in _partitions(answer)]
        == [(0, []), (0, [(7, 2, 6, NOW_MS)]), (3, [])]),
    65: Call(_with_transaction({"transactional_ids": ["t", "u"]}), lambda peer, answer: [
        (row.error_code, row.transaction_state, row.producer_id, row.producer_epoch, row.transaction_timeout_ms,
         row.transaction_start_time_ms, [(topic.topic, list(topic.partitions)) for topic in row.topics])
        for row in answer.transaction_states]
        == [(0, "Ongoing", 7, 2, 60_000, NOW_MS - 5, [("plant", [1])]), (105, "", -1, -1, 0, -1, [])]),
    66: Call(_with_transaction({"state_filters": ["Ongoing", "Odd"], "producer_id_filters": [], "duration_filter": 4}),
             lambda peer, answer: (list(answer.unknown_state_filters), [
                 (row.transactional_id, row.producer_id, row.transaction_state) for row in answer.transaction_states])
             == (["Odd"], [("t", 7, "Ongoing")])),
    74: Call(lambda peer, version: {"resource_types": [2]},
             lambda peer, answer: [row.resource_name for row in answer.config_resources]
             == (["plant"] if answer.version else [])),
    75: Call(lambda peer, version: {"topics": [Row(name="plant")], "response_partition_limit": 1, "cursor": None},
             lambda peer, answer: [(part.partition_index, part.leader_id, part.leader_epoch)
                                   for part in _partitions(answer)] == [(0, 1, EPOCH)]
             and (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("plant", 1)),
}
