"""Retained values: the last of each address, by filter, over restarts and retention."""
from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.errors import InvalidAddress, InvalidFilter
from gatehouse.kernel.message import RETAIN, Retained
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.retention.test_retention import SEGMENT_BYTES, turn_over
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk

MARK = RETAIN | 2


Answer = tuple[list[Retained], "str | None", "Exception | None"]


def tell(answers: list[Answer], *answer: Any) -> None:
    answers.append(answer)  # type: ignore[arg-type]


def pages(rig: Rig, filter_text: str, max_values: int = 100) -> list[list[Retained]]:
    found: list[list[Retained]] = []
    start: str | None = ""
    while start is not None:
        answers: list[Answer] = []
        rig.kernel.retained(filter_text, "/", partial(tell, answers), max_values=max_values, start=start)
        rig.run()
        (values, start, error), = answers
        assert error is None
        found.append(values)
    return found


def values(rig: Rig, filter_text: str, max_values: int = 100) -> dict[str, bytes | None]:
    return {one.address: one.record[3] for page in pages(rig, filter_text, max_values) for one in page}


def test_the_last_marked_message_is_the_value() -> None:
    rig = Rig()
    rig.publish("plant/a", b"1", attributes=MARK)
    position, = rig.publish("plant/a", b"2", attributes=MARK, headers=[(b"unit", b"C")])
    rig.publish("plant/a", b"3")
    (found,), = pages(rig, "plant/a")
    assert (found.address, found.topic) == ("plant/a", "plant")
    assert found.record[3:5] == (b"2", ((b"unit", b"C"),))
    assert (found.partition_id, found.record[0], found.record[6]) == position
    assert found.record == [one for one in rig.read("plant") if one[3] == b"2"][0]


def test_an_empty_value_ends_it() -> None:
    rig = Rig()
    for value in (b"", b"1"):
        rig.publish("plant/a", value, attributes=MARK)
    assert values(rig, "#") == {"plant/a": b"1"}
    rig.publish("plant/a", b"", attributes=MARK)
    assert values(rig, "#") == {}


def test_of_several_in_one_frame_the_last_counts() -> None:
    rig = Rig()
    rig.publish("plant/a", b"1", b"", b"3", attributes=MARK)
    rig.publish("plant/b", b"1", b"", attributes=MARK)
    assert values(rig, "plant/+") == {"plant/a": b"3"}


ADDRESSES = ["plant", "plant/a", "plant/a/temp", "plant/a/temp/x", "plant/b/temp", "plant//temp", "plant-2/a/temp",
             "a", "/", "//", "z/a/temp"]
FILTERS = {"plant/+/temp": ["plant//temp", "plant/a/temp", "plant/b/temp"], "plant/#": ADDRESSES[:6],
           "#": ADDRESSES, "+": ["a", "plant"], "+/+/temp": ["plant//temp", "plant-2/a/temp", "plant/a/temp",
                                                             "plant/b/temp", "z/a/temp"],
           "#/temp": ["plant//temp", "plant-2/a/temp", "plant/a/temp", "plant/b/temp", "z/a/temp"],
           "plant/a": ["plant/a"], "plant/a/": [], "+/a/#": ["plant-2/a/temp", "plant/a", "plant/a/temp",
                                                            "plant/a/temp/x", "z/a/temp"], "/+": ["/"], "+/+/+/+": [
               "plant/a/temp/x"]}


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("max_values", [1, 3, 100])
@pytest.mark.parametrize("filter_text", FILTERS)
def test_filters(checkpointed: bool, max_values: int, filter_text: str) -> None:
    rig = Rig(routes=Routes([RouteEntry("#", "unrouted")]))
    for address in ADDRESSES:
        rig.publish(address, address.encode(), attributes=MARK)
    if checkpointed:
        rig.world.advance(5_000)
    assert sorted(values(rig, filter_text, max_values)) == sorted(FILTERS[filter_text])


def test_what_the_store_has_is_laid_over_by_what_changed_since() -> None:
    rig = Rig()
    for name in "abcd":
        rig.publish(f"plant/{name}", b"old", attributes=MARK)
    rig.world.advance(5_000)
    rig.publish("plant/b", b"", attributes=MARK)
    rig.publish("plant/c", b"new", attributes=MARK)
    rig.publish("plant/bb", b"new", attributes=MARK)
    expected = {"plant/a": b"old", "plant/bb": b"new", "plant/c": b"new", "plant/d": b"old"}
    for max_values in (1, 2, 100):
        assert values(rig, "plant/+", max_values) == expected
        assert list(values(rig, "plant/+", max_values)) == list(expected)


def test_a_value_that_changes_while_the_page_is_read_is_the_new_one() -> None:
    rig = Rig()
    rig.publish("plant/a", b"old", attributes=MARK)
    rig.publish("plant/b", b"old", attributes=MARK)
    rig.world.advance(5_000)
    found: list[Retained] = []
    rig.kernel.retained("plant/+", "/", lambda page, start, error: found.extend(page))
    placement = rig.kernel.place("plant/a")
    rig.kernel.append([(placement, b"new", b"\0", MARK, 0)], None)
    rig.run()
    assert {one.address: one.record[3] for one in found} in ({"plant/a": b"old", "plant/b": b"old"},
                                                             {"plant/a": b"new", "plant/b": b"old"})
    assert values(rig, "plant/a") == {"plant/a": b"new"}


def test_tenants_do_not_see_each_other() -> None:
    rig = Rig()
    for tenant in ("/", "other", "othe"):
        placement = rig.kernel.place("plant/a", tenant=tenant)
        rig.kernel.append([(placement, tenant.encode(), b"\0", MARK, 0)], None)
    rig.run()
    assert values(rig, "#") == {"plant/a": b"/"}


def test_a_leading_wildcard_matches_no_address_of_the_hub() -> None:
    rig = Rig()
    rig.publish("plant/a", b"1", attributes=MARK)
    state = rig.kernel._state
    key = b"/\0$hub\0a"
    stored = state.get(Kind.RETAINED, b"/\0plant\0a")
    assert stored is not None
    state.changes.put((Kind.RETAINED, key), (1, 1, stored))
    assert sorted(values(rig, "#")) == ["plant/a"] and sorted(values(rig, "+/+")) == ["plant/a"]
    assert sorted(values(rig, "$hub/#")) == ["$hub/a"]


def test_expired_values_are_not_given_and_go() -> None:
    rig = Rig()
    at = rig.world.loop.now_ms()
    rig.publish("plant/a", b"1", attributes=MARK, headers=[(b"expires-at", b"%d" % (at + 60_000))])
    rig.publish("plant/b", b"1", attributes=MARK, headers=[(b"expires-at", b"soon")])
    rig.kernel.create_topic("short", settings=TopicSettings(message_ttl_ms=30_000))
    rig.publish("short/a", b"1", attributes=MARK)
    assert sorted(values(rig, "#")) == ["plant/a", "plant/b", "short/a"]
    rig.world.advance(30_001)
    assert sorted(values(rig, "#")) == ["plant/a", "plant/b"]
    rig.world.advance(60_000)
    assert sorted(values(rig, "#")) == ["plant/b"]
    rig.run()
    assert rig.kernel._state.get(Kind.RETAINED, b"/\0plant\0a") is None


def test_a_new_value_on_its_way_is_not_deleted_with_the_expired_one() -> None:
    rig = Rig()
    at = rig.world.loop.now_ms()
    rig.publish("plant/a", b"old", attributes=MARK, headers=[(b"expires-at", b"%d" % (at + 1_000))])
    rig.world.advance(2_000)
    placement = rig.kernel.place("plant/a")
    rig.kernel.append([(placement, b"new", b"\0", MARK, 0)], None)
    rig.kernel.retained("plant/a", "/", lambda *answer: None)
    rig.run()
    assert values(rig, "plant/a") == {"plant/a": b"new"}


def test_bad_input() -> None:
    rig = Rig()
    with pytest.raises(InvalidFilter):
        rig.kernel.retained("a+", "/", lambda *answer: None)
    long = "a/" + "x" * 65_533
    with pytest.raises(InvalidAddress):
        rig.publish(long, b"1", attributes=MARK)
    rig.publish(long, b"1")
    assert rig.values("a") == [b"1"]


@pytest.mark.parametrize("lose_index", [False, True])
def test_values_outlive_restart_and_retention(lose_index: bool) -> None:
    rig = Rig(disk=SimDisk(Random(1)), settings=KernelSettings(segment_bytes=SEGMENT_BYTES, default_partitions=1,
                                                               retention_bytes=2 * SEGMENT_BYTES))
    rig.publish("plant/a", b"kept", attributes=MARK)
    rig.publish("plant/b", b"ended", attributes=MARK)
    turn_over(rig)
    rig.publish("plant/b", b"", attributes=MARK)
    turn_over(rig)
    assert rig.log.segments()[0].base > 0
    for _ in range(2):
        rig.restart(lose_index=lose_index)
        assert values(rig, "#") == {"plant/a": b"kept"}


def test_over_files_and_rocksdb(tmp_path: Path) -> None:
    from gatehouse.kernel.state.store import RocksStore
    rig = Rig(tmp_path, store=RocksStore(tmp_path / "index"))
    for i in range(300):
        rig.publish(f"plant/{i}/temp", b"%d" % i, attributes=MARK)
        rig.publish(f"plant/{i}/other", b"%d" % i, attributes=MARK)
    rig.world.advance(5_000)
    rig.publish("plant/7/temp", b"", attributes=MARK)
    assert values(rig, "plant/+/temp", 50) == {f"plant/{i}/temp": b"%d" % i for i in range(300) if i != 7}
    rig.store.close()
