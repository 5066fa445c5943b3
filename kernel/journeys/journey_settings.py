"""What can be set about journeys; the configuration file's [tracing] table says the same in its own units."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TOPIC: Final = "journeys"
TENANT: Final = "/"


@dataclass(frozen=True, slots=True)
class JourneySettings:
    enabled: bool = True
    rate: float = 0.01
    """How much of a topic is followed from the start, from 0 to 1."""

    followed_per_second: int = 200
    """Messages that are followed from the start in a second, of all topics without a rate of their own."""

    topics: Mapping[str, float] = field(default_factory=dict)
    """The same for topics with a rate of their own."""

    retention_ms: int = 72 * 3_600_000
    asked_per_minute: int = 1_000
    """Messages that are followed because their senders ask for it, in a minute, of all topics."""

    errors_per_minute: int = 1_000
    """Errors of one topic that are recorded in a minute."""
