"""One bit flips in a file at rest, of each kind that a data directory has. The next start serves all but what was
there, tells of it, gives nothing out a second time; or says in one line why it cannot."""
from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gatehouse import exits
from tests.faults.clients import post, request
from tests.faults.conftest import Start
from tests.faults.nursery import ForkedHub, Nursery
from tests.faults.readers import read_over_http
from tests.running_hub import DEADLINE_S, config_of

KERNEL = "segment_bytes = 1048576\nretention_bytes = 3145728\ncheckpoint_ms = 100\ndefault_partitions = 2"
DOORS = ("http",)
VALUE_BYTES = 100_000


class Base(NamedTuple):
    """A hub that was killed: what it held and had given out."""

    folder: Path
    values: set[bytes]
    topics: list[str]
    users: list[str]
    last_offsets: dict[int, int]
    last_id: int


def put(port: int, path: str, document: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", path, json.dumps(document), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


def users_of(port: int) -> list[str]:
    return [user["name"] for user in request(port, "GET", "/v1/users")[1]["users"]]


def topics_of(port: int) -> list[str]:
    return sorted(topic["name"] for topic in request(port, "GET", "/v1/topics")[1]["topics"])


def values_in(port: int, gaps: list[tuple[int, int]] | None = None) -> set[bytes]:
    return {value[:9] for messages in read_over_http(port, gaps=gaps).values() for _, _, value in messages}


@pytest.fixture(scope="module")
def base(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("base")
    config = config_of(DOORS, KERNEL)
    given: list[dict[str, Any]] = []
    for life in range(2):                          # the second start has put the index's newest writes into tables
        hub = nursery.start(folder, config, {"retention": 0.1})
        assert hub.wait_ready(), hub.log
        port = hub.port("http")
        if not life:
            put(port, "/v1/users/ada", {"password": "correct horse battery"})
            put(port, "/v1/topics/quiet", {"partitions": 3})
        for number in range(50):
            status, answer = post(port, b"%d-%06d:" % (life, number) + bytes(VALUE_BYTES), key=f"k{number}")
            assert status == 201
            given.append(answer)
        wait_for_kept(port)
        values, topics, users = values_in(port), topics_of(port), users_of(port)
        hub.kill()
    last: dict[int, int] = {}
    for answer in given:
        last[answer["partition"]] = max(answer["offset"], last.get(answer["partition"], 0))
    return Base(folder / "data", values, topics, users, last, max(int(answer["id"]) for answer in given))


def wait_for_kept(port: int) -> None:
    """Until retention has come to rest."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        log = request(port, "GET", "/v1/status")[1]["log"]
        if log["bytes"] <= log["retention_bytes"] and log["kept_bytes"] > 100:
            return
    raise AssertionError(log)


def newest(pattern: str) -> Callable[[Path], Path]:
    return lambda data: sorted(data.glob(pattern))[-1]


def oldest(pattern: str) -> Callable[[Path], Path]:
    return lambda data: sorted(data.glob(pattern))[0]


def largest(pattern: str) -> Callable[[Path], Path]:
    return lambda data: max(data.glob(pattern), key=lambda file: file.stat().st_size)


def part(of: float) -> Callable[[bytes], int]:
    return lambda content: min(len(content) - 1, int(len(content) * of))


def at(offset: int) -> Callable[[bytes], int]:
    return lambda content: offset


def frame(number: int, offset: int) -> Callable[[bytes], int]:
    """Within one of a segment's frames."""
    def find(content: bytes) -> int:
        starts = [-1]
        while (found := content.find(b"GHF1", starts[-1] + 1)) >= 0:
            starts.append(found)
        return starts[1:][number] + offset

    return find


HARMLESS = [
    ("newest header", newest("log/*"), at(3)), ("newest header's place", newest("log/*"), at(9)),
    ("oldest header", oldest("log/*"), at(17)), ("kept header", newest("kept/*"), at(12)),
    ("index CURRENT", newest("index/CURRENT"), at(9)), ("index MANIFEST", newest("index/MANIFEST*"), part(0.5)),
    ("index table", largest("index/*.sst"), part(0.0)), ("index table's middle", largest("index/*.sst"), part(0.5)),
    ("index table's end", largest("index/*.sst"), part(0.99)),
    ("index's newest writes", largest("index/*.log"), part(0.3)),
    ("index OPTIONS", newest("index/OPTIONS*"), part(0.5)), ("index IDENTITY", newest("index/IDENTITY"), at(3)),
    ("reserve", newest("reserve"), part(0.5)), ("last of the reserve", newest("reserve-emergency"), at(0)),
    ("lock", newest("lock"), at(0)), ("kept frame", oldest("kept/*"), frame(0, 40)),
]

COSTLY = [
    ("envelope", oldest("log/*"), frame(2, 9)), ("head", oldest("log/*"), frame(3, 60)),
    ("body", oldest("log/*"), frame(4, 5_000)), ("newest envelope", newest("log/*"), frame(1, 17)),
    ("newest head", newest("log/*"), frame(1, 45)), ("newest body", newest("log/*"), frame(1, 3_000)),
]


def flipped(base: Base, folder: Path, choose: Callable[[Path], Path], where: Callable[[bytes], int]) -> Path:
    """The data of `base` in a new folder, with one bit in one file another."""
    shutil.copytree(base.folder, folder / "data")
    file = choose(folder / "data")
    content = bytearray(file.read_bytes())
    content[where(bytes(content))] ^= 1 << 2
    file.write_bytes(content)
    return file


def require_nothing_given_twice(base: Base, port: int) -> None:
    for number in range(4):
        status, answer = post(port, b"new", key=f"k{number}")
        assert status == 201
        assert answer["offset"] > base.last_offsets[answer["partition"]] and int(answer["id"]) > base.last_id


@pytest.mark.parametrize(("choose", "where"), [case[1:] for case in HARMLESS], ids=[case[0] for case in HARMLESS])
def test_a_bit_that_costs_nothing(base: Base, start: Start, tmp_path: Path, choose: Callable[[Path], Path],
                                  where: Callable[[bytes], int]) -> None:
    file = flipped(base, tmp_path, choose, where)
    for index_too in (False, True):
        hub = start(KERNEL, doors=DOORS)
        port = hub.port("http")
        assert values_in(port) >= base.values
        assert topics_of(port) == base.topics and users_of(port) == base.users
        require_nothing_given_twice(base, port)
        hub.kill()
        if index_too or file.parent.name == "kept":
            break
        shutil.rmtree(tmp_path / "data" / "index")


@pytest.mark.parametrize(("choose", "where"), [case[1:] for case in COSTLY], ids=[case[0] for case in COSTLY])
def test_a_bit_in_a_message_costs_that_frame_and_is_told(base: Base, start: Start, tmp_path: Path,
                                                         choose: Callable[[Path], Path],
                                                         where: Callable[[bytes], int]) -> None:
    flipped(base, tmp_path, choose, where)
    for _ in range(2):                              # with the index, and built anew
        hub = start(KERNEL, doors=DOORS)
        port = hub.port("http")
        gaps: list[tuple[int, int]] = []
        lost = base.values - values_in(port, gaps)
        assert len(lost) <= 1
        if lost:
            hub.wait_log("cannot be read from position")
            assert request(port, "GET", "/v1/status")[1]["log"]["damaged_ranges"] >= 1
        assert topics_of(port) == base.topics and users_of(port) == base.users
        require_nothing_given_twice(base, port)
        hub.kill()
        shutil.rmtree(tmp_path / "data" / "index")


@pytest.mark.parametrize("offset", [0, 18, 100, 103, 105, 4096, 4099, 3 * 4096 + 3, 5 * 4096 + 4, 9 * 4096 + 3])
@pytest.mark.parametrize("file", ["catalogue.sqlite", "catalogue.sqlite-wal"])
def test_users_and_rights_are_whole_or_nobody_is_let_in(base: Base, nursery: Nursery, tmp_path: Path, file: str,
                                                        offset: int) -> None:
    flipped(base, tmp_path, newest(file), lambda content: offset % len(content))
    hub = nursery.start(tmp_path, config_of(DOORS, KERNEL))
    try:
        if hub.wait_ready():
            assert users_of(hub.port("http")) == base.users
        else:
            assert hub.wait_ended() == exits.STORAGE
            assert "users and rights cannot be read from the catalogue" in hub.log.splitlines()[-1]
        assert "Traceback" not in hub.log
    finally:
        hub.kill()


@pytest.mark.parametrize("bit", range(8))
def test_a_format_that_makes_no_sense_is_refused(base: Base, nursery: Nursery, tmp_path: Path, bit: int) -> None:
    shutil.copytree(base.folder, tmp_path / "data")
    file = tmp_path / "data" / "format"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1 << bit]) + b"\n")
    hub: ForkedHub = nursery.start(tmp_path, config_of(DOORS, KERNEL))
    try:
        if not hub.wait_ready():
            assert hub.wait_ended() in (exits.DATA_FORMAT, exits.STORAGE)
            assert hub.log.count("\n") <= 2 and "format" in hub.log
        assert "Traceback" not in hub.log
    finally:
        hub.kill()
