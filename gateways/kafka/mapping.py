"""Between Kafka's words and the kernel's: error numbers, what a produced batch may be, topic settings. Pure.

A record needs no conversion: what the kernel stores is Kafka's record batch, and `kernel.records.batch.as_batch`
gives what other doors published as one. Key, headers and timestamp are the record's own; the envelope travels as record
headers.
"""
from __future__ import annotations

import struct
from typing import Any, Final

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.kafka import error_codes
from gatehouse.gateways.kafka.codec import Malformed, read_count, read_string
from gatehouse.kernel import errors
from gatehouse.kernel.records.batch import CODEC_MASK, CONTROL, HEADER_BYTES, LENGTH_COVERS_FROM, TRANSACTIONAL
from gatehouse.kernel.state.topics import TopicSettings

ZSTD: Final = 4                          # codec number in a batch's attributes
PRODUCE_ZSTD: Final = 7                  # the first Produce version that may carry it (KIP-110)
MAX_DIGITS: Final = 18                   # of a number in a topic's settings: every such number fits 64 bits

_LENGTH_TO_ATTRIBUTES = struct.Struct(">8xi4xb4xh")
_RECORD_COUNT = struct.Struct(">57xi")

ERROR_CODES: Final[dict[type[Exception], int]] = {
    errors.UnknownTopic: error_codes.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: error_codes.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TooManyTopics: error_codes.POLICY_VIOLATION,
    errors.TopicExists: error_codes.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopic: error_codes.INVALID_TOPIC,
    errors.InvalidAddress: error_codes.INVALID_TOPIC,
    errors.CreateDenied: error_codes.TOPIC_AUTHORIZATION_FAILED,
    errors.MessageTooLarge: error_codes.MESSAGE_TOO_LARGE,
    errors.CorruptBatch: error_codes.CORRUPT_MESSAGE,
    errors.InvalidRecord: error_codes.INVALID_RECORD,
    errors.InvalidTimestamp: error_codes.INVALID_TIMESTAMP,
    errors.UnsupportedBatch: error_codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.OutOfOrderSequence: error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: error_codes.DUPLICATE_SEQUENCE_NUMBER,
    errors.FencedProducer: error_codes.INVALID_PRODUCER_EPOCH,
    errors.UnknownProducer: error_codes.UNKNOWN_PRODUCER_ID,
    errors.IdempotencyConflict: error_codes.INVALID_RECORD,
    errors.InvalidCheckBack: error_codes.INVALID_RECORD,
    errors.InvalidGroup: error_codes.INVALID_RECORD,                     # of half messages
    errors.TransactionTooLarge: error_codes.INVALID_RECORD,              # "too large" makes clients cut a batch in two
    errors.TooManyTransactions: error_codes.KAFKA_STORAGE_ERROR,
    errors.OffsetOutOfRange: error_codes.OFFSET_OUT_OF_RANGE,
    errors.StorageFull: error_codes.KAFKA_STORAGE_ERROR,
    errors.KeptFull: error_codes.KAFKA_STORAGE_ERROR,          # clients repeat: that is the back-pressure
    errors.StorageFailed: error_codes.KAFKA_STORAGE_ERROR,
    errors.Stopping: error_codes.NOT_LEADER_OR_FOLLOWER,       # clients look for the leader again and repeat
    Denied: error_codes.TOPIC_AUTHORIZATION_FAILED,
}


def code_of(error: Exception) -> int:
    """Kafka's number for a refusal of the kernel or of admission."""
    return ERROR_CODES.get(type(error), error_codes.UNKNOWN_SERVER_ERROR)


COORDINATOR_CODES: Final[dict[type[Exception], int]] = {
    errors.FencedEpoch: error_codes.FENCED_MEMBER_EPOCH,
    errors.FencedMember: error_codes.FENCED_INSTANCE_ID,
    errors.GroupFull: error_codes.GROUP_MAX_SIZE_REACHED,
    errors.GroupHasMembers: error_codes.NON_EMPTY_GROUP,
    errors.GroupIsLeased: error_codes.INCONSISTENT_GROUP_PROTOCOL,
    errors.InstanceTaken: error_codes.UNRELEASED_INSTANCE_ID,
    errors.InvalidPattern: error_codes.INVALID_REGULAR_EXPRESSION,
    errors.InconsistentProtocol: error_codes.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidGroup: error_codes.INVALID_GROUP_ID,
    errors.MemberIdRequired: error_codes.MEMBER_ID_REQUIRED,
    errors.Rebalancing: error_codes.REBALANCE_IN_PROGRESS,
    errors.StaleEpoch: error_codes.STALE_MEMBER_EPOCH,
    errors.StaleGeneration: error_codes.ILLEGAL_GENERATION,
    errors.UnknownAssignor: error_codes.UNSUPPORTED_ASSIGNOR,
    errors.UnknownGroup: error_codes.GROUP_ID_NOT_FOUND,
    errors.UnknownMember: error_codes.UNKNOWN_MEMBER_ID,
    errors.StorageFull: error_codes.COORDINATOR_NOT_AVAILABLE,          # clients repeat
    errors.StorageFailed: error_codes.COORDINATOR_NOT_AVAILABLE,
    errors.Stopping: error_codes.NOT_COORDINATOR,                       # clients look for the coordinator and repeat
}
"""Where groups and their offsets are asked about: the same refusals in a coordinator's words."""


def coordinator_code_of(error: Exception) -> int:
    """Kafka's number for a refusal in a request about groups."""
    return COORDINATOR_CODES.get(type(error), code_of(error))


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics that a consumer wants, in what it says to its group: a version (i16), an array of names, and more.
    None where it is no such thing."""
    try:
        count, at = read_count(metadata, 2, len(metadata), False, 2)
        topics = set()
        for _ in range(count):
            name, at = read_string(metadata, at, len(metadata), False)
            topics.add((name or b"").decode())
        return topics
    except (Malformed, UnicodeDecodeError):
        return None


class Refused(Exception):
    """A part of a request that this door refuses before the kernel is asked. `code` is Kafka's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def check_produced(batch: bytes, version: int) -> int:
    """The number of records that a produced batch claims. Raises Refused for what Produce `version` may not carry.

    Whether it is sound (CRC, records, sequence) is for the kernel to say.
    """
    if not batch:
        raise Refused(error_codes.INVALID_RECORD, "a partition without a record batch")
    if len(batch) > 16 and batch[16] < 2:
        raise Refused(error_codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                      f"message format {batch[16]} is not stored here: use a client of Kafka 0.11 or later")
    if len(batch) < HEADER_BYTES:
        raise Refused(error_codes.CORRUPT_MESSAGE, f"{len(batch)} bytes hold no record batch")
    length, magic, attributes = _LENGTH_TO_ATTRIBUTES.unpack_from(batch)
    if magic != 2:
        raise Refused(error_codes.INVALID_RECORD, f"message format {magic} is unknown")
    if 0 <= length < len(batch) - LENGTH_COVERS_FROM:
        raise Refused(error_codes.INVALID_RECORD, "a produce request carries exactly one record batch per partition")
    if attributes & CONTROL:
        raise Refused(error_codes.INVALID_RECORD, "control batches are not accepted from producers")
    if attributes & TRANSACTIONAL:
        raise Refused(error_codes.INVALID_TXN_STATE, "transactions are not offered here")
    codec = attributes & CODEC_MASK
    if codec > ZSTD or codec == ZSTD and version < PRODUCE_ZSTD:
        raise Refused(error_codes.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} in Produce {version}")
    count: int = _RECORD_COUNT.unpack_from(batch)[0]
    return count


ACCEPTED_CONFIGS: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": ("delete",),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "local.retention.bytes": ("-2",),
    "local.retention.ms": ("-2",),
    "message.downconversion.enable": ("true", "false"),
    "message.timestamp.type": ("CreateTime",),
    "min.insync.replicas": ("1",),
    "preallocate": ("true", "false"),
    "remote.storage.enable": ("false",),
    "retention.bytes": ("-1",),
    "unclean.leader.election.enable": ("true", "false"),
}
"""Topic settings with the values that are taken: they say what this hub does anyway, or change nothing that a client
sees (batches stay compressed as they came). Another value is refused, so that nobody believes in one without effect."""

TUNING_CONFIGS: Final = frozenset((
    "file.delete.delay.ms", "flush.messages", "flush.ms", "index.interval.bytes", "min.cleanable.dirty.ratio",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms"))
"""Settings of the files that Kafka keeps for a topic. Here all topics share one log, and every message that is
acknowledged is flushed: any number is taken, and changes nothing that a client sees."""


def settings_of(configs: list[Any]) -> TopicSettings:
    """What a CreateTopics request sets. Raises Refused (INVALID_CONFIG) for what is not honoured here."""
    retention_ms: int | None = None
    max_message_bytes: int | None = None
    delete_retention_ms: int | None = None
    compact = False
    for config in configs:
        name, value = config.name, config.value
        if name == "retention.ms":
            retention_ms = _positive(name, value)
        elif name == "max.message.bytes":
            max_message_bytes = _positive(name, value)
        elif name == "delete.retention.ms":
            delete_retention_ms = _positive(name, value)
        elif (name, value) == ("cleanup.policy", "compact"):
            compact = True
        elif name in TUNING_CONFIGS:
            _number(name, value)
        elif value not in ACCEPTED_CONFIGS.get(name, ()):
            raise Refused(error_codes.INVALID_CONFIG, f"{name}={value} is not offered here")
    if compact and retention_ms is not None:
        raise Refused(error_codes.INVALID_CONFIG, "a compacted topic has no retention.ms here")
    return TopicSettings(retention_ms=retention_ms, max_message_bytes=max_message_bytes, compact=compact,
                         delete_retention_ms=delete_retention_ms)


def _number(name: str, value: str | None) -> None:
    if value is None or len(value) > MAX_DIGITS + 1 or not value.replace(".", "", 1).isdecimal():
        raise Refused(error_codes.INVALID_CONFIG, f"{name}={value} is not a number")


def _positive(name: str, value: str | None) -> int:
    if value is None or not value.isdecimal() or len(value) > MAX_DIGITS or int(value) < 1:
        raise Refused(error_codes.INVALID_CONFIG, f"{name}={value} is not a positive number")
    return int(value)
