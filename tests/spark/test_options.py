"""Options: what they mean, and what is said of those that mean nothing."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.options import AtTime, Subscription, read_options, read_write_options

BASE = {"url": "http://hub:8080", "subscribe": "plant"}


def test_names_are_those_of_the_kafka_connector_in_any_case() -> None:
    options = read_options({"URL": "http://hub:8080", "SUBSCRIBE": " a, b,a ", "startingoffsets": "EARLIEST",
                            "maxOffsetsPerTrigger": "10", "failOnDataLoss": "FALSE", "includeHeaders": "true"})
    assert options.subscription == Subscription(topics=("a", "b"))
    assert (options.starting, options.max_offsets_per_trigger, options.fail_on_data_loss) == ("earliest", 10, False)


def test_defaults() -> None:
    options = read_options(BASE)
    assert (options.starting, options.ending, options.columns, options.fail_on_data_loss) == (None, None, (), True)
    assert read_write_options({"url": "http://hub:8080"}).topic == ""


@pytest.mark.parametrize(("name", "value", "meaning"), [
    ("startingOffsets", '{"plant": {"0": 23, "1": -2}}', {"plant": {0: 23, 1: -2}}),
    ("startingOffsets", "2026-01-31T12:00:00Z", AtTime(1_769_860_800_000)),
    ("startingOffsets", "2026-01-31T13:00:00.5+01:00", AtTime(1_769_860_800_500)),
    ("startingTimestamp", "1700000000000", AtTime(1_700_000_000_000)),
    ("startingOffsetsByTimestamp", '{"plant": {"0": 5}}', AtTime(by_partition_ms={"plant": {0: 5}})),
])
def test_where_to_begin(name: str, value: str, meaning: Any) -> None:
    assert read_options({**BASE, name: value}).starting == meaning


def test_a_time_goes_before_offsets_as_in_the_connector() -> None:
    assert read_options({**BASE, "startingOffsets": "latest", "startingTimestamp": "5"}).starting == AtTime(5)


@pytest.mark.parametrize(("given", "said"), [
    ({"url": ""}, "option 'url' is needed"),
    ({"subscribe": ""}, "exactly one of subscribe"),
    ({"filter": "a/#"}, "exactly one of subscribe"),
    ({"subscribe": "", "subscribePattern": "("}, "is no regular expression"),
    ({"subscribe": "", "assign": "[1]"}, "'assign' is JSON like"),
    ({"subscribe": "", "assign": '{"a": ["0"]}'}, "'assign' is JSON like"),
    ({"startingOffsets": "begin"}, "is earliest, latest, JSON"),
    ({"startingOffsets": "2026-01-31T12:00:00"}, "needs a zone"),
    ({"startingOffsets": "{"}, "is no JSON"),
    ({"startingOffsets": '{"plant": {"0": "5"}}'}, "is JSON like"),
    ({"endingOffsets": "earliest"}, "cannot be 'earliest'"),
    ({"maxOffsetsPerTrigger": "-1"}, "is a whole number from 0"),
    ({"fetchBytes": "1"}, "is a whole number from 1024"),
    ({"failOnDataLoss": "maybe"}, "is true or false"),
    ({"user": "u", "token": "t"}, "give 'token' or 'user'"),
    ({"faliOnDataLoss": "true"}, "did you mean 'failOnDataLoss'"),
    ({"kafka.group.id": "x"}, "belongs to a Kafka client"),
    ({"startingOffsetsByTimestampStrategy": "error"}, "is always 'latest'"),
])
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read_options({**BASE, **given})


def test_a_sinks_compression() -> None:
    assert read_write_options({"url": "http://hub:8080", "compression": "ZSTD"}).compression == "zstd"
    with pytest.raises(InvalidOption, match="one of none, lz4, zstd, not 'gzip'"):
        read_write_options({"url": "http://hub:8080", "compression": "gzip"})
