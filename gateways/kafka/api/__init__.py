"""The APIs that are offered, one file each. ApiVersions is answered from this table: what is not in it is not there."""
from __future__ import annotations

from typing import Final

from gateways.kafka.api.api_versions import API_VERSIONS
from gateways.kafka.api.create_topics import CREATE_TOPICS
from gateways.kafka.api.fetch import FETCH
from gateways.kafka.api.find_coordinator import FIND_COORDINATOR
from gateways.kafka.api.init_producer_id import INIT_PRODUCER_ID
from gateways.kafka.api.list_offsets import LIST_OFFSETS
from gateways.kafka.api.membership import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from gateways.kafka.api.metadata import METADATA
from gateways.kafka.api.offset_commit import OFFSET_COMMIT
from gateways.kafka.api.offset_fetch import OFFSET_FETCH
from gateways.kafka.api.produce import PRODUCE
from gateways.kafka.api.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from gateways.kafka.request import Api

APIS: Final[dict[int, Api]] = {api.key: api for api in (
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
    LEAVE_GROUP, SYNC_GROUP, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID, SASL_AUTHENTICATE)}
