"""`[tracing]` and `[tracing.topics.NAME]` of `gateways.toml`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.config.settings import ConfigPlace, Problems, read_section
from gatehouse.kernel.settings import JourneySettings


@dataclass(frozen=True, slots=True)
class TracingSection:
    """[tracing]"""

    enabled: bool = field(default=True, metadata={
        "help": "Whether journeys of messages are recorded at all, see `gatehouse trace`."})
    rate: float = field(default=0.01, metadata={
        "min": 0, "max": 1,
        "help": "How many of the messages of a topic are followed from the start, from 0 to 1. A message that fails is "
                "recorded from its first error on whatever this says."})
    followed_per_second: int = field(default=200, metadata={
        "min": 0, "max": 1_000_000,
        "help": "Messages that are followed from the start in one second, of all topics without a `rate` of their own: "
                "one costs some 100 microseconds of the processor until it is acked."})
    retention_hours: int = field(default=72, metadata={
        "min": 1, "max": 100_000, "help": "How long the topic `journeys` keeps what was recorded. It counts when the "
                                          "topic is made; later it is changed as that of any topic."})
    errors_per_minute: int = field(default=1_000, metadata={
        "min": 0, "max": 1_000_000,
        "help": "Errors of one topic that are recorded in a minute: retries, leases whose time was up, dead letters. "
                "Those beyond are counted."})
    asked_per_minute: int = field(default=1_000, metadata={
        "min": 0, "max": 1_000_000,
        "help": "Messages of all topics that are followed in a minute because their senders ask for it: by "
                "`x-trace: always`, or by a `traceparent` whose sampled flag is set. It takes the right `trace` on the "
                "hub; of others, and beyond this, it means nothing."})
    otlp_endpoint: str = field(default="", metadata={
        "help": "Where spans of followed messages are sent over OTLP/HTTP, as `http://127.0.0.1:4318/v1/traces`; \"\": "
                "nowhere. Needs the extra `otlp`; the SDK reads OTEL_EXPORTER_OTLP_HEADERS and its like."})


@dataclass(frozen=True, slots=True)
class TopicTracing:
    """[tracing.topics.NAME]"""

    rate: float = field(default=1.0, metadata={
        "min": 0, "max": 1, "help": "The same for messages of this topic."})


TOPICS: Final = "topics"


def read_topic_rates(tables: dict[str, Any], place: ConfigPlace, problems: Problems) -> dict[str, float]:
    """The tables of topics, taken out of [tracing]."""
    own = tables.get("tracing")
    topics = own.pop(TOPICS, {}) if isinstance(own, dict) else {}
    rates: dict[str, float] = {}
    for name, table in topics.items() if isinstance(topics, dict) else ():
        key = f"tracing.{TOPICS}.{name}"
        read = None if not isinstance(table, dict) else read_section(TopicTracing, table, key, place, problems)
        if not isinstance(table, dict):
            problems.add(place.source, key, f"must be a table: [{key}]")
        elif read is not None:
            rates[name] = read.rate
    if not isinstance(topics, dict):
        problems.add(place.source, f"tracing.{TOPICS}", f"must hold tables: [tracing.{TOPICS}.NAME]")
    return rates


def journeys_of(section: TracingSection, topics: Mapping[str, float]) -> JourneySettings:
    """The section and the tables of topics as the kernel's settings."""
    return JourneySettings(section.enabled, section.rate, section.followed_per_second, topics,
                           section.retention_hours * 3_600_000, section.asked_per_minute, section.errors_per_minute)
