"""The APIs that are offered, one file each. ApiVersions is answered from this table: what is not in it is not there."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.kafka.api.accounts import ALTER_SCRAM, DESCRIBE_SCRAM
from gatehouse.gateways.kafka.api.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from gatehouse.gateways.kafka.api.api_versions import API_VERSIONS
from gatehouse.gateways.kafka.api.cluster import (
    ALTER_LOG_DIRS,
    ALTER_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
)
from gatehouse.gateways.kafka.api.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from gatehouse.gateways.kafka.api.consumer_groups import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from gatehouse.gateways.kafka.api.fetch import FETCH
from gatehouse.gateways.kafka.api.group_administration import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_DELETE,
)
from gatehouse.gateways.kafka.api.membership import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from gatehouse.gateways.kafka.api.metadata import FIND_COORDINATOR, METADATA
from gatehouse.gateways.kafka.api.offsets import OFFSET_COMMIT, OFFSET_FETCH
from gatehouse.gateways.kafka.api.partition_lookup import DESCRIBE_PRODUCERS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from gatehouse.gateways.kafka.api.produce import PRODUCE
from gatehouse.gateways.kafka.api.quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from gatehouse.gateways.kafka.api.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from gatehouse.gateways.kafka.api.share_fetch import SHARE_ACKNOWLEDGE, SHARE_FETCH
from gatehouse.gateways.kafka.api.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
)
from gatehouse.gateways.kafka.api.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from gatehouse.gateways.kafka.api.transactions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
)
from gatehouse.gateways.kafka.request import Api

APIS: Final[dict[int, Api]] = {api.key: api for api in (
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
    LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS,
    INIT_PRODUCER_ID, SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE, DELETE_TOPICS, CREATE_PARTITIONS,
    DELETE_RECORDS, DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES,
    DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS,
    OFFSET_FOR_LEADER_EPOCH, ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS, DESCRIBE_QUORUM,
    DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_SCRAM, ALTER_SCRAM, DESCRIBE_CLIENT_QUOTAS,
    ALTER_CLIENT_QUOTAS, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE, DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS,
    ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)}
