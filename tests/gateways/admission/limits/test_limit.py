"""What is a limit, and what is none."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.errors import InvalidLimit
from gatehouse.gateways.admission.limits.limit import Limit, read_limit


def test_a_limit_reads_as_it_is_shown() -> None:
    table = {"of": "address:plant/+/temp", "direction": "out", "tenant": "blue", "messages_per_s": 50,
             "bytes_burst": 10 ** 18, "bytes_per_s": 0.5, "observe": True}
    limit = read_limit(table, "7")
    assert limit.as_dict() == {**table, "id": "7", "from_file": False}
    assert read_limit({"of": "address:plant/+/temp", "direction": "out", "tenant": "blue", **limit.amounts()},
                      "7") == limit
    assert (limit.kind, limit.name) == ("address", "plant/+/temp")


@pytest.mark.parametrize("table", [
    {"of": "hub", "messages_per_s": 0}, {"of": "hub", "operations_per_s": 10 ** 18},
    {"of": "user:*", "bytes_per_s": 1.0}, {"of": "consumers:workers", "direction": "out", "messages_per_s": 5},
    {"of": "consumers:workers", "direction": "out", "messages_per_s": 5},
    {"of": "client:a:b", "tenant": "*", "messages_per_s": 5},
    {"of": "user-client:ann/a/b", "bytes_per_s": 5, "yields": True}])
def test_what_is_a_limit(table: dict[str, Any]) -> None:
    assert isinstance(read_limit(table), Limit)


@pytest.mark.parametrize("table", [
    {}, {"of": "hub"}, {"of": "hub:", "messages_per_s": 1}, {"of": "hub:x", "messages_per_s": 1},
    {"of": "user", "messages_per_s": 1}, {"of": "user:", "messages_per_s": 1}, {"of": "nobody:x", "messages_per_s": 1},
    {"of": ["user:a"], "messages_per_s": 1}, {"of": "address:a+/b", "messages_per_s": 1},
    {"of": "consumers:workers", "messages_per_s": 5}, {"of": "hub", "messages_per_s": -1},
    {"of": "hub", "messages_per_s": True}, {"of": "hub", "messages_per_s": "5"}, {"of": "hub", "messages_per_s": 1e19},
    {"of": "hub", "messages_per_s": float("nan")}, {"of": "hub", "messages_burst": 5},
    {"of": "hub", "messages_per_s": 5, "messages_burst": 0}, {"of": "hub", "messages_per_s": 5, "messages_burst": 1.5},
    {"of": "hub", "messages_per_s": 5, "direction": "up"}, {"of": "hub", "messages_per_s": 5, "tenant": "blue"},
    {"of": "hub", "messages_per_s": 5, "observe": 1}, {"of": "hub", "messages_per_s": 5, "colour": "blue"},
    {"of": "user:a\0", "messages_per_s": 5}, {"of": "user:" + "a" * 70_000, "messages_per_s": 5},
    {"of": "user-client:ann", "bytes_per_s": 5}, {"of": "user-client:/a", "bytes_per_s": 5},
    {"of": "hub", "bytes_per_s": 5, "yields": True}, {"of": "user:ann", "bytes_per_s": 5, "yields": 1}])
def test_what_is_none(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidLimit):
        read_limit(table)
