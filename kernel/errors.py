"""Everything the kernel refuses, each with a stable code that every door translates into its protocol's words."""
from __future__ import annotations

from collections.abc import Sequence


class KernelError(Exception):
    """Base of all refusals. `code` is stable and documented; the text is for people."""

    code = "kernel_error"


class UnknownTopic(KernelError):
    """There is no topic of that name, and it is not created by this use."""

    code = "unknown_topic"


class TooManyTopics(KernelError):
    """Users may make no more topics: there are as many as may be, or this user has made as many as one may, or makes
    them too fast. Nothing was stored."""

    code = "too_many_topics"

    def __init__(self, text: str, wait_ms: int = 0) -> None:
        super().__init__(text)
        self.wait_ms = wait_ms
        """When the next may be made; 0: that is not known, somebody has to delete one."""


class TopicExists(KernelError):
    """A topic of that name exists already."""

    code = "topic_exists"


class InvalidTopic(KernelError):
    """A name that is no legal topic name, or settings that cannot be."""

    code = "invalid_topic"


class InvalidAddress(KernelError):
    """A text that is no address, or none that can be published to."""

    code = "invalid_address"


class Unroutable(InvalidAddress):
    """An address without a topic: its first level is no topic name, and no route gives it one."""

    code = "unroutable"


class CreateDenied(KernelError):
    """There is no such topic, and who publishes there has no right to create it."""

    code = "create_denied"


class InvalidFilter(KernelError):
    """A text that is no filter: empty, too long, with NUL, or with a wildcard that is not a whole level."""

    code = "invalid_filter"


class InvalidSelector(KernelError):
    """A text that is no selector of messages. `position` counts characters from 0; `expected` says what may stand
    there."""

    code = "invalid_selector"

    def __init__(self, position: int, expected: str, text: str = "") -> None:
        super().__init__(f"at character {position + 1}: expected {expected}{f', found {text}' if text else ''}")
        self.position = position
        self.expected = expected


class InvalidSchedule(KernelError):
    """A text that is no schedule of repeated deliveries, or one that never falls due."""

    code = "invalid_schedule"


class UnknownPartition(KernelError):
    """The topic exists; that partition number of it does not."""

    code = "unknown_partition"


class UnknownPlace(KernelError):
    """A place that was given to somebody else, or under rights that have changed: it is to be asked for again. A door
    does that by itself."""

    code = "unknown_place"


class UnknownQueue(KernelError):
    """There is no queue of that name, or another one by now."""

    code = "unknown_queue"


class RecordsRefused(Exception):
    """Part of refusals of a producer's batch that some of its records may be the reason of. `records`: which, counted
    from 0, as far as they are told; none where it is the batch."""

    def __init__(self, text: str, records: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.records = records


class MessageTooLarge(RecordsRefused, KernelError):
    """Larger than the topic's limit, or the hub's where the topic has none."""

    code = "message_too_large"


class CorruptBatch(KernelError):
    """A producer's batch whose CRC, length or count lies, or that does not decompress."""

    code = "corrupt_batch"


class InvalidRecord(RecordsRefused, KernelError):
    """A producer's batch that is not what it claims once it is opened: counts, offsets or lengths of its records."""

    code = "invalid_record"


class InvalidTimestamp(RecordsRefused, KernelError):
    """A time that no record can have, or a batch that states a false one for its newest record."""

    code = "invalid_timestamp"


class UnsupportedBatch(KernelError):
    """A batch of a format that is not stored here (magic 0 or 1)."""

    code = "unsupported_batch"


class OutOfOrderSequence(KernelError):
    """A producer's sequence that does not follow the last one stored, and is none of the five batches remembered."""

    code = "out_of_order_sequence"


class FencedProducer(KernelError):
    """A newer epoch of this producer id has written."""

    code = "fenced_producer"


class OtherProducer(KernelError):
    """A producer id that is not the one of this producer's name."""

    code = "other_producer"


class OffsetOutOfRange(KernelError):
    """The partition holds no such offset: retention has deleted it, or it is not written yet."""

    code = "offset_out_of_range"


class IdempotencyConflict(KernelError):
    """The same idempotency key came with a different message."""

    code = "idempotency_conflict"


class StorageFull(KernelError):
    """The disk took no more; nothing of this was stored, and reading goes on."""

    code = "storage_full"


class KeptFull(KernelError):
    """What is owed beyond retention has reached `kept_bytes`; nothing new that would have to be kept is taken."""

    code = "kept_full"


class StorageFailed(KernelError):
    """A read failed or what was read does not match its checksum."""

    code = "storage_failed"


class Stopping(KernelError):
    """The hub is shutting down and takes nothing new."""

    code = "stopping"


class InvalidGroup(KernelError):
    """A name that no group can have, or settings that cannot be."""

    code = "invalid_group"


class UnknownGroup(KernelError):
    """There is no group of that name, or it does not read that topic."""

    code = "unknown_group"


class AssignedGroup(KernelError):
    """The group's partitions are assigned to members that commit offsets; messages cannot be leased from it."""

    code = "assigned_group"


class GroupIsLeased(KernelError):
    """Messages are leased from the group one by one; nobody commits offsets for it."""

    code = "leased_group"


class GroupHasMembers(KernelError):
    """The assigned group has members that read: it is not deleted, and nobody but they moves its offsets."""

    code = "group_has_members"


class GroupFull(KernelError):
    """The group has as many members, or the hub as many groups with members, or bytes of what they say, as may be."""

    code = "group_full"


class MemberIdRequired(KernelError):
    """Whoever joins is to come again with the id that is given here, so that one that never does is no member."""

    code = "member_id_required"

    def __init__(self, text: str, member_id: str) -> None:
        super().__init__(text)
        self.member_id = member_id


class UnknownMember(KernelError):
    """The group has no member of this id: none was given it, or it left, or was silent for too long."""

    code = "unknown_member"


class FencedMember(KernelError):
    """Another process has come under the instance id of this member, and has taken its place."""

    code = "fenced_member"


class StaleGeneration(KernelError):
    """The partitions of the group have been shared out anew since, or never were under this number."""

    code = "stale_generation"


class Rebalancing(KernelError):
    """The partitions of the group are being shared out anew: its members join again."""

    code = "rebalancing"


class InconsistentProtocol(KernelError):
    """Who joins has no protocol that all members of the group have, or names another one than the group follows."""

    code = "inconsistent_protocol"


class FencedEpoch(KernelError):
    """The member epoch is not the one that the group gave this member last: it joins again, with nothing assigned."""

    code = "fenced_epoch"


class StaleEpoch(KernelError):
    """The member epoch of a commit is not the member's own any more: it learns the new one with its next heartbeat."""

    code = "stale_epoch"


class InstanceTaken(KernelError):
    """A member with this instance id is in the group and has not left."""

    code = "instance_taken"


class UnknownAssignor(KernelError):
    """The group has no assignor of this name."""

    code = "unknown_assignor"


class InvalidPattern(KernelError):
    """A regular expression of topics is none, uses what is not offered, or takes too much work to match."""

    code = "invalid_pattern"


class InvalidQueue(KernelError):
    """Settings that no queue can have."""

    code = "invalid_queue"


class QueueExists(KernelError):
    """A queue of that name exists with other settings."""

    code = "queue_exists"


class QueueFull(KernelError):
    """The queue is at its limit and refuses what would exceed it."""

    code = "queue_full"

    def __init__(self, text: str, index: int = 0, queue: str = "") -> None:
        super().__init__(text)
        self.index = index              # of the first message of a list that has no room; those before it have
        self.queue = queue              # the name of the one that is full


class ReceiptDenied(KernelError):
    """A message asks for a delivery receipt at an address where its sender may not publish, or that is none. Nothing
    of the call was stored."""

    code = "receipt_denied"

    def __init__(self, text: str, index: int = 0) -> None:
        super().__init__(text)
        self.index = index              # of the first such message of a list


class ExpiredReceipt(KernelError):
    """The lease has ended: its time ran out, it was released, or its message is settled."""

    code = "receipt_expired"


class UnknownReceipt(KernelError):
    """A receipt handle that this hub never gave, or gave to another group."""

    code = "unknown_receipt"


class SessionRefused(KernelError):
    """The session of this client id belongs to another user: it is his to resume and to end."""

    code = "session_refused"


class TooManySessions(KernelError):
    """As many sessions outlive their connections already as may, in the hub or of this user."""

    code = "too_many_sessions"


class TooManySubscriptions(KernelError):
    """A session has as many subscriptions as it may."""

    code = "too_many_subscriptions"


class TooManyReceived(KernelError):
    """As many QoS 2 messages of a client are not released yet as may be: it is to release some first."""

    code = "too_many_received"


class UnknownSession(KernelError):
    """There is no session of this client id."""

    code = "unknown_session"


class InvalidDelay(KernelError):
    """A time of delivery that is more than ten years ahead, or a repetition that never falls due."""

    code = "invalid_delay"


class TooManyScheduled(KernelError):
    """As many messages as the hub keeps for later are waiting already."""

    code = "too_many_scheduled"


class UnknownScheduled(KernelError):
    """No message with this id waits for its time, or did within the last day."""

    code = "unknown_scheduled"


class AlreadyDelivered(KernelError):
    """A scheduled message that can no longer be recalled: it has been delivered."""

    code = "already_delivered"


class UnknownTransaction(KernelError):
    """No transaction with this id is undecided, or was decided within the time that decisions are remembered."""

    code = "unknown_transaction"


class AlreadyDecided(KernelError):
    """The transaction has been decided otherwise, or it is too late to add to it."""

    code = "already_decided"

    def __init__(self, text: str, state: str = "", when_ms: int = 0) -> None:
        super().__init__(text)
        self.state = state              # `committed`, `rolled_back` or `expired`
        self.when_ms = when_ms


class TransactionTooLarge(KernelError):
    """More half messages, or more bytes of them, than one transaction may have."""

    code = "transaction_too_large"


class TooManyTransactions(KernelError):
    """As many transactions are undecided already, or hold as many bytes, as the hub keeps."""

    code = "too_many_transactions"


class NoTransaction(KernelError):
    """A producer that has begun no transaction, or whose last one ended otherwise; or a batch that comes beside its
    transactions."""

    code = "no_transaction"


class TransactionEnding(KernelError):
    """The producer's transaction is being committed; nothing was done, try again."""

    code = "transaction_ending"


class InvalidTimeout(KernelError):
    """A time that no transaction can have."""

    code = "invalid_timeout"


class InvalidCheckBack(KernelError):
    """Times or numbers that no check-back can have."""

    code = "invalid_check_back"


class Busy(KernelError):
    """Too many requests wait for the same thing; nothing was done, try again."""

    code = "busy"


class TooManyBackups(KernelError):
    """As many backups as may be read at one time are being read."""

    code = "too_many_backups"


class UnknownBackup(KernelError):
    """A backup that never was, or that has ended: nobody read it for a minute, or the hub was started again."""

    code = "unknown_backup"
