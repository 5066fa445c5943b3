"""`[transactions]` and `[transactions.topics.NAME]` of `gateways.toml`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.config.settings import ConfigPlace, Problems, read_section
from gatehouse.transactions.settings import MAX_CHECKS, MAX_TIME_MS, CheckSettings, TransactionSettings


@dataclass(frozen=True, slots=True)
class TransactionSection:
    """[transactions]"""

    first_check_ms: int = field(default=6_000, metadata={
        "min": 1, "max": MAX_TIME_MS,
        "help": "How long the sender of half messages may be silent before a member of its group is asked what became "
                "of them, in milliseconds."})
    check_every_ms: int = field(default=30_000, metadata={
        "min": 1, "max": MAX_TIME_MS, "help": "Time between two checks, and after the last one, in milliseconds."})
    max_checks: int = field(default=15, metadata={
        "min": 0, "max": MAX_CHECKS,
        "help": "Checks after which half messages are rolled back and kept as dead letters of the group; checks that "
                "reach nobody count."})
    timeout_ms: int = field(default=60_000, metadata={
        "min": 1, "max": MAX_TIME_MS,
        "help": "After so many milliseconds a transaction without a group is rolled back: nobody can be asked."})
    max_open: int = field(default=10_000_000, metadata={
        "min": 0, "max": 1_000_000_000, "help": "Transactions that may be undecided; what comes beyond is refused."})
    max_open_bytes: int = field(default=10 << 30, metadata={
        "min": 0, "help": "Bytes that the half messages of all of them may have."})
    max_messages: int = field(default=10_000, metadata={
        "min": 1, "max": 1_000_000, "help": "Half messages of one transaction."})
    max_bytes: int = field(default=64 << 20, metadata={
        "min": 1024, "max": 1 << 30, "help": "Their size, in bytes: a transaction is appended as one."})
    remembered_hours: int = field(default=24, metadata={
        "min": 0, "max": 100_000, "help": "How long a decision is remembered, so that it can be repeated."})
    max_remembered: int = field(default=1_000_000, metadata={
        "min": 0, "max": 100_000_000, "help": "Decisions that are remembered; the oldest goes first."})


@dataclass(frozen=True, slots=True)
class TopicChecks:
    """[transactions.topics.NAME]"""

    first_check_ms: int | None = field(default=None, metadata={
        "min": 1, "max": MAX_TIME_MS,
        "help": "The same for transactions whose first message goes to this topic; left out, it is as above."})
    check_every_ms: int | None = field(default=None, metadata={
        "min": 1, "max": MAX_TIME_MS, "help": "The same for `check_every_ms`."})
    max_checks: int | None = field(default=None, metadata={
        "min": 0, "max": MAX_CHECKS, "help": "The same for `max_checks`."})


TOPICS: Final = "topics"


def read_topics(tables: dict[str, Any], place: ConfigPlace, problems: Problems) -> dict[str, TopicChecks]:
    """The tables of topics, taken out of [transactions]."""
    own = tables.get("transactions")
    topics = own.pop(TOPICS, {}) if isinstance(own, dict) else {}
    checks: dict[str, TopicChecks] = {}
    for name, table in topics.items() if isinstance(topics, dict) else ():
        key = f"transactions.{TOPICS}.{name}"
        if not isinstance(table, dict):
            problems.add(place.source, key, f"must be a table: [{key}]")
        else:
            checks[name] = read_section(TopicChecks, table, key, place, problems)
    if not isinstance(topics, dict):
        problems.add(place.source, f"transactions.{TOPICS}", f"must hold tables: [transactions.{TOPICS}.NAME]")
    return checks


def settings_of(section: TransactionSection, topics: Mapping[str, TopicChecks]) -> TransactionSettings:
    """The section and the tables of topics as the coordinator's settings."""
    checks = CheckSettings(section.first_check_ms, section.check_every_ms, section.max_checks)
    by_topic = {name: _with_own(checks, topic_checks) for name, topic_checks in topics.items()}
    return TransactionSettings(checks, by_topic, section.timeout_ms, section.max_open, section.max_open_bytes,
                               section.max_messages, section.max_bytes, section.remembered_hours * 3_600_000,
                               section.max_remembered)


def _with_own(base: CheckSettings, topic_checks: TopicChecks) -> CheckSettings:
    own = topic_checks.first_check_ms, topic_checks.check_every_ms, topic_checks.max_checks
    return CheckSettings(*(value if value is not None else default for value, default in zip(own, base, strict=True)))
