"""The options of the source and the sink, read once and strictly. Pure.

The Kafka connector's names mean here what they mean there. Names are case-insensitive, as Spark's are. An option that
is not known is refused with the nearest name, for a misspelt limit or position would be ignored in silence otherwise.
"""
from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.hub import HubAddress

COMPRESSIONS: Final = ("none", "lz4", "zstd")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
CONNECTION: Final = ("url", "user", "password", "token", "tlsCa", "tlsCert", "tlsKey", "tlsVerify", "retrySeconds")
WHAT: Final = ("subscribe", "subscribePattern", "assign", "filter")
POSITIONS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "endingOffsets",
                    "endingTimestamp", "endingOffsetsByTimestamp")
READING: Final = (*WHAT, *POSITIONS, "columns", "failOnDataLoss", "minPartitions", "maxRecordsPerPartition",
                  "maxOffsetsPerTrigger", "maxBytesPerTrigger", "fetchBytes")
WRITING: Final = ("topic", "batchBytes", "compression", "queryName", "checkpointLocation", "path")
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
WITHOUT_EFFECT: Final = ("includeHeaders", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
                         "fetchOffset.retryIntervalMs", STRATEGY)
"""Options of the Kafka connector that ask for what is always so here."""

KNOWN: Final = {name.lower(): name for name in (*CONNECTION, *READING, *WRITING, *WITHOUT_EFFECT)}

SPECIAL: Final = {-1: LATEST, -2: EARLIEST}
"""The Kafka connector's numbers for them in a JSON of offsets."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after a time: everywhere, or by topic and partition."""

    everywhere_ms: int | None = None
    by_partition_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


Place = str | Mapping[str, Mapping[int, int]] | AtTime
"""earliest, latest, offsets by topic and partition, or a time."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is read: exactly one of these."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    filter: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Everything about one source."""

    hub: HubAddress
    subscription: Subscription
    starting: Place | None
    ending: Place | None
    columns: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    fetch_bytes: int = 512 << 10


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Everything about one sink."""

    hub: HubAddress
    topic: str = ""
    batch_bytes: int = 2 << 20
    compression: str = "none"


class OptionReader:
    """Options by name, with one error for each way in which one can be wrong."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in KNOWN:
                raise InvalidOption(_unknown(name))
        if self.text(STRATEGY, LATEST).lower() != LATEST:
            raise InvalidOption(f"option {STRATEGY!r} is always 'latest' here: a partition without a message of that "
                                "time or later is read from its end")

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default).strip()

    def number(self, name: str, default: int, lowest: int = 0) -> int:
        text = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,18}", text) or int(text) < lowest:
            raise InvalidOption(f"option {name!r} is a whole number from {lowest}, not {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise InvalidOption(f"option {name!r} is true or false, not {text!r}")
        return text == "true"

    def document(self, name: str) -> Any:
        try:
            return json.loads(self.text(name))
        except ValueError as error:
            raise InvalidOption(f"option {name!r} is no JSON: {error}") from None


def _unknown(name: str) -> str:
    if name.lower().startswith("kafka."):
        return f"option {name!r} belongs to a Kafka client; here 'url' names the hub's HTTP door"
    near = get_close_matches(name.lower(), KNOWN, 1)
    hint = f"; did you mean {KNOWN[near[0]]!r}?" if near else ""
    return f"there is no option {name!r}{hint}"


def read_address(options: OptionReader) -> HubAddress:
    """Where the hub is and who asks. Raises InvalidOption."""
    url = options.text("url")
    if not url:
        raise InvalidOption("option 'url' is needed: the hub's HTTP door, http://HOST:8080")
    if options.text("token") and options.text("user"):
        raise InvalidOption("give 'token' or 'user' and 'password', not both")
    return HubAddress(url, options.text("user"), options.text("password"), options.text("token"),
                      options.text("tlsCa"), options.text("tlsCert"), options.text("tlsKey"),
                      options.flag("tlsVerify", True), options.number("retrySeconds", 60))


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a source. Raises InvalidOption."""
    options = OptionReader(given)
    columns = tuple(name.strip() for name in options.text("columns").split(",") if name.strip())
    return ReadOptions(
        read_address(options), _subscription(options), _position(options, "starting", LATEST),
        _position(options, "ending", EARLIEST), columns, options.flag("failOnDataLoss", True),
        options.number("minPartitions", 0), options.number("maxRecordsPerPartition", 0),
        options.number("maxOffsetsPerTrigger", 0), options.number("maxBytesPerTrigger", 0),
        options.number("fetchBytes", 512 << 10, 1024))


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a sink. Raises InvalidOption."""
    options = OptionReader(given)
    compression = options.text("compression", "none").lower()
    if compression not in COMPRESSIONS:
        raise InvalidOption(f"option 'compression' is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    return WriteOptions(read_address(options), options.text("topic"), options.number("batchBytes", 2 << 20, 1024),
                        compression)


def _subscription(options: OptionReader) -> Subscription:
    given = [name for name in WHAT if options.text(name)]
    if len(given) != 1:
        raise InvalidOption(f"exactly one of {', '.join(WHAT)} says what to read; there are: {given or 'none'}")
    (name,) = given
    text = options.text(name)
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidOption(f"'subscribePattern' is no regular expression: {error}") from None
        return Subscription(pattern=text)
    if name == "filter":
        return Subscription(filter=text)
    try:
        assigned = {topic: tuple(sorted({_whole(partition) for partition in partitions}))
                    for topic, partitions in options.document("assign").items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidOption('\'assign\' is JSON like {"plant": [0, 1]}') from None
    return Subscription(assigned=assigned)


def _position(options: OptionReader, which: str,
              forbidden: str) -> Place | None:
    """`startingOffsets`, or by a time; None where nothing is said. A batch may begin at `latest` for no reason, nor end
    at `earliest`."""
    names = [f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"]      # the connector's precedence
    name = next((name for name in names if options.text(name)), None)
    if name is None:
        return None
    text = options.text(name)
    if name == names[0]:
        return AtTime(everywhere_ms=options.number(name, 0))
    if name == names[1]:
        return AtTime(by_partition_ms=_by_partition(options, name))
    if text.lower() in (EARLIEST, LATEST):
        if which == "ending" and text.lower() == forbidden:
            raise InvalidOption(f"{name!r} cannot be {forbidden!r}")
        return text.lower()
    if text.startswith("{"):
        return _by_partition(options, name)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{name!r} is earliest, latest, JSON like {{\"plant\": {{\"0\": 17}}}}, or an RFC 3339 "
                            f"time, not {text!r}") from None
    if moment.tzinfo is None:
        raise InvalidOption(f"the time in {name!r} needs a zone, as in 2026-01-31T12:00:00Z")
    return AtTime(everywhere_ms=int(moment.timestamp() * 1000))


def _by_partition(options: OptionReader, name: str) -> dict[str, dict[int, int]]:
    try:
        return {topic: {int(partition): _whole(number) for partition, number in of_topic.items()}
                for topic, of_topic in options.document(name).items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidOption(f'{name!r} is JSON like {{"plant": {{"0": 17, "1": -2}}}}') from None


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value
