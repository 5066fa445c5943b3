"""What can be set about the kernel, and about the journeys of messages; the configuration file's tables [kernel] and
[tracing] say the same in their own units."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FSYNC_POLICIES: Final = ("commit", "interval", "never")

LIVE: Final = frozenset(("auto_create_topics", "max_auto_topics", "max_auto_topics_per_user",
                         "auto_topics_per_minute", "default_partitions", "retention_ms", "retention_bytes",
                         "kept_bytes",
                         "max_message_bytes"))
"""What may change while the kernel runs; everything else takes effect at its next start."""


@dataclass(frozen=True, slots=True)
class KernelSettings:
    fsync: str = "commit"
    """`commit`: acknowledged means durable. `interval`: durable a second later. `never`: when the system writes it."""

    auto_create_topics: bool = True
    max_auto_topics: int = 10_000
    max_auto_topics_per_user: int = 2_500
    auto_topics_per_minute: int = 600
    """Topics made by users: in sum, by each, and by each in a minute, which is also what it may make at once."""

    default_partitions: int = 4
    retention_ms: int = 72 * 3_600_000
    retention_bytes: int = 10 << 30
    kept_bytes: int = 10 << 30
    max_message_bytes: int = 16 << 20

    max_scheduled: int = 10_000_000
    """Messages that wait for their time."""

    max_sessions: int = 1_000_000
    max_session_messages: int = 100_000
    max_session_bytes: int = 1 << 30
    max_session_wait_ms: int = 0
    """Sessions that outlive their connections, and messages that wait for each, their bytes, and how old they may be;
    beyond, the oldest of those give way. 0 of the last two: no limit."""

    session_keeps_transient: bool = False
    """Whether messages that their senders asked no durability of wait for sessions, too."""

    reserve_bytes: int = 64 << 20
    """Held on the disk for the day on which it is full, see `kernel.log.disk_guard`."""

    segment_bytes: int = 256 << 20
    """The size of one file of the log; retention deletes whole files."""

    checkpoint_ms: int = 2_000
    checkpoint_bytes: int = 64 << 20
    """A checkpoint of the index is taken after this time or this much log."""

    recent_bytes: int = 128 << 20
    """Bodies of the newest frames kept in memory for readers at the tail."""

    pending_bytes: int = 4 << 20
    """More than this not yet flushed, and publishers are not read until half of it is.

    It is also the size of the largest burst that subscribers get at once. Measured with one QoS 0 publisher at full
    speed: 4 MiB carries twice what 32 MiB does, since a burst stays in the processor's cache and in one socket buffer.
    """

    gather_turns: int = 0
    """Of the loop, for which a frame waits for publishers who were answered a moment ago: see
    `write.committer.Patience`."""

    idempotency_ms: int = 3_600_000
    max_idempotency_keys: int = 100_000
    max_idempotency_bytes: int = 128 << 20
    """How long, and how many, answers for idempotency keys are remembered."""


@dataclass(frozen=True, slots=True)
class JourneySettings:
    """Which messages are followed, and how many events are recorded of them."""

    enabled: bool = True
    rate: float = 0.01
    """How much of a topic is followed from the start, from 0 to 1."""

    followed_per_second: int = 200
    """Messages that are followed from the start in a second, of all topics without a rate of their own."""

    topics: Mapping[str, float] = field(default_factory=dict)
    """How much of a topic is followed from the start, for topics with a rate of their own."""

    retention_ms: int = 72 * 3_600_000
    asked_per_minute: int = 1_000
    """Messages that are followed because their senders ask for it, in a minute, of all topics."""

    errors_per_minute: int = 1_000
    """Errors of one topic that are recorded in a minute."""
