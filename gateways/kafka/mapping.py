"""Between Kafka's words and the kernel's: error numbers, what a produced batch may be. Pure.

A record needs no conversion: what the kernel stores is Kafka's record batch, and `kernel.records.batch.as_batch`
gives what other doors published as one. Key, headers and timestamp are the record's own; the envelope travels as record
headers.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.admission import errors as refusals
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.kafka import error_codes
from gatehouse.gateways.kafka.codec import Malformed, read_count, read_string
from gatehouse.kernel import errors

ERROR_CODES: Final[dict[type[Exception], int]] = {
    errors.UnknownTopic: error_codes.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: error_codes.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TooManyTopics: error_codes.POLICY_VIOLATION,
    refusals.OverQuota: error_codes.POLICY_VIOLATION,
    refusals.NoRoomLeft: error_codes.KAFKA_STORAGE_ERROR,               # which producers repeat
    errors.TopicExists: error_codes.TOPIC_ALREADY_EXISTS,
    errors.AssignedGroup: error_codes.GROUP_ID_NOT_FOUND,               # as a share group
    errors.InvalidTopic: error_codes.INVALID_TOPIC,
    errors.InvalidAddress: error_codes.INVALID_TOPIC,
    errors.CreateDenied: error_codes.TOPIC_AUTHORIZATION_FAILED,
    errors.ReceiptDenied: error_codes.TOPIC_AUTHORIZATION_FAILED,
    errors.MessageTooLarge: error_codes.MESSAGE_TOO_LARGE,
    errors.CorruptBatch: error_codes.CORRUPT_MESSAGE,
    errors.InvalidRecord: error_codes.INVALID_RECORD,
    errors.InvalidTimestamp: error_codes.INVALID_TIMESTAMP,
    errors.UnsupportedBatch: error_codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.OutOfOrderSequence: error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.FencedProducer: error_codes.INVALID_PRODUCER_EPOCH,
    errors.OtherProducer: error_codes.INVALID_PRODUCER_ID_MAPPING,
    errors.NoTransaction: error_codes.INVALID_TXN_STATE,
    errors.TransactionEnding: error_codes.CONCURRENT_TRANSACTIONS,
    errors.InvalidTimeout: error_codes.INVALID_TRANSACTION_TIMEOUT,
    errors.IdempotencyConflict: error_codes.INVALID_RECORD,
    errors.InvalidCheckBack: error_codes.INVALID_RECORD,
    errors.InvalidGroup: error_codes.INVALID_RECORD,                     # of half messages
    errors.TransactionTooLarge: error_codes.INVALID_RECORD,              # "too large" makes clients cut a batch in two
    errors.TooManyTransactions: error_codes.KAFKA_STORAGE_ERROR,
    errors.OffsetOutOfRange: error_codes.OFFSET_OUT_OF_RANGE,
    errors.StorageFull: error_codes.KAFKA_STORAGE_ERROR,
    errors.QueueFull: error_codes.POLICY_VIOLATION,            # which they do not: to be told is what `reject` asks for
    errors.KeptFull: error_codes.KAFKA_STORAGE_ERROR,          # clients repeat: that is the back-pressure
    errors.StorageFailed: error_codes.KAFKA_STORAGE_ERROR,
    errors.Stopping: error_codes.NOT_LEADER_OR_FOLLOWER,       # clients look for the leader again and repeat
    Denied: error_codes.TOPIC_AUTHORIZATION_FAILED,
    refusals.InvalidUser: error_codes.INVALID_REQUEST,
    refusals.InvalidRule: error_codes.INVALID_REQUEST,
    refusals.InvalidLimit: error_codes.INVALID_REQUEST,
    refusals.UnknownUser: error_codes.RESOURCE_NOT_FOUND,
    refusals.UnknownRule: error_codes.RESOURCE_NOT_FOUND,
    refusals.UnknownLimit: error_codes.RESOURCE_NOT_FOUND,
    refusals.FromFile: error_codes.POLICY_VIOLATION,
    refusals.LastAdministrator: error_codes.POLICY_VIOLATION,
    refusals.AccountsUnavailable: error_codes.COORDINATOR_NOT_AVAILABLE,          # clients repeat
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
    errors.TooManyTransactions: error_codes.COORDINATOR_NOT_AVAILABLE,
    errors.QueueFull: error_codes.COORDINATOR_NOT_AVAILABLE,            # of a transaction's commit; clients repeat
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
