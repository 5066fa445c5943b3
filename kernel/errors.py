"""Everything the kernel refuses, each with a stable code that every door translates into its protocol's words."""
from __future__ import annotations


class KernelError(Exception):
    """Base of all refusals. `code` is stable and documented; the text is for people."""

    code = "kernel_error"


class UnknownTopic(KernelError):
    """There is no topic of that name, and it is not created by this use."""

    code = "unknown_topic"


class TopicExists(KernelError):
    """A topic of that name exists already."""

    code = "topic_exists"


class InvalidTopic(KernelError):
    """A name that is no legal topic name, or settings that cannot be."""

    code = "invalid_topic"


class InvalidAddress(KernelError):
    """A text that is no address, or none that can be published to."""

    code = "invalid_address"


class InvalidFilter(KernelError):
    """A text that is no filter: empty, too long, with NUL, or with a wildcard that is not a whole level."""

    code = "invalid_filter"


class UnknownQueue(KernelError):
    """The topic exists; that queue number of it does not."""

    code = "unknown_queue"


class MessageTooLarge(KernelError):
    """Larger than the topic's limit, or the hub's where the topic has none."""

    code = "message_too_large"


class CorruptBatch(KernelError):
    """A producer's batch whose CRC, lengths or counts lie."""

    code = "corrupt_batch"


class UnsupportedBatch(KernelError):
    """A batch of a format that is not stored here (magic 0 or 1)."""

    code = "unsupported_batch"


class OutOfOrderSequence(KernelError):
    """A producer's sequence that does not follow the last one stored: something between them is missing."""

    code = "out_of_order_sequence"


class DuplicateSequence(KernelError):
    """A sequence older than the five batches that are remembered."""

    code = "duplicate_sequence"


class FencedProducer(KernelError):
    """A newer epoch of this producer id has written."""

    code = "fenced_producer"


class UnknownProducer(KernelError):
    """A producer id that this hub never gave, or has forgotten."""

    code = "unknown_producer"


class OffsetOutOfRange(KernelError):
    """The queue holds no such offset: retention has deleted it, or it is not written yet."""

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
