"""What a task makes of the hub's answers: what is left to ask for, what is lost, what is only not there."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gatehouse.kernel.message import Piece
from gatehouse.spark import fetching
from gatehouse.spark.answers import Heads, read_answer
from gatehouse.spark.columns import HubFacts
from gatehouse.spark.errors import DataLoss, GatehouseError, HubRefused
from gatehouse.spark.fetching import ReadSpec, Task, read_task
from gatehouse.spark.hub import HubAddress
from gatehouse.spark.plan import Range
from tests.kernel import poison
from tests.kernel.groups.test_claims import little_memory
from tests.spark.pieces import answer_of, run_of

RANGE = Range("plant", "u", 3, 10, 20)
Answer = Callable[[Sequence[Range]], bytes]


def rows(first: int, end: int) -> Any:
    return run_of([(b"k%d" % n, b"%d" % n, (), 1, 0) for n in range(first, end)], first, first)


def read(monkeypatch: pytest.MonkeyPatch, *answers: bytes, ranges: Sequence[Range] = (RANGE,),
         **spec: Any) -> list[int]:
    """The values that a task reads when the hub answers so, one answer a request."""
    waiting = list(answers)
    monkeypatch.setattr(fetching, "_fetch", lambda hub, asked, max_bytes: read_answer(waiting.pop(0)))
    given = ReadSpec(HubAddress("http://hub"), ("value",), **spec)
    found = [int(value) for batch in read_task(given, Task(ranges, HubFacts({}, ())))
             for value in batch.column("value").to_pylist()]
    assert not waiting
    return found


def test_pieces_that_reach_beyond_the_range_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, answer_of([rows(5, 12)]), answer_of([rows(12, 14), rows(14, 30)])) == list(range(10, 20))


def test_pages_are_joined_to_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = (Range("plant", "u", 3, 0, 40), Range("plant", "u", 4, 0, 5))
    answers = [answer_of([rows(0, 10)], [rows(0, 2)]), answer_of([rows(10, 12), rows(12, 13)], []),
               answer_of([rows(13, 40)], []), answer_of([rows(2, 5)])]
    found: list[int] = []
    for size in (1, 250, 1 << 20):
        monkeypatch.setattr(fetching, "GROUP_BYTES", size)
        found = read(monkeypatch, *answers, ranges=ranges)
        assert sorted(found) == sorted([*range(40), *range(5)])
    assert found[:12] == [*range(10), 0, 1]


def test_ranges_that_the_answer_had_no_room_for_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = (RANGE, Range("plant", "u", 4, 0, 2))
    assert read(monkeypatch, answer_of([rows(10, 20)], []), answer_of([rows(0, 2)]), ranges=ranges) == [
        *range(10, 20), 0, 1]


def test_a_gap_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answer_of([rows(10, 12), rows(15, 20)])
    with pytest.raises(DataLoss, match="3 messages are gone: offsets 12 to 14 of partition 3 of 'plant'"):
        read(monkeypatch, answer)
    assert read(monkeypatch, answer, fail_on_data_loss=False) == [10, 11, 15, 16, 17, 18, 19]


def test_gaps_of_a_compacted_topic_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    compacted = {"compacted": True}
    assert read(monkeypatch, answer_of([rows(12, 13)], head={**compacted, "next_offset": 15}),
                answer_of([rows(17, 18)], head=compacted),
                answer_of([], head={**compacted, "next_offset": 25})) == [12, 17]


def test_a_hub_that_gives_nothing_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLoss, match="the hub gives nothing of offsets 10 to 19"):
        read(monkeypatch, answer_of([]))


def test_what_the_hub_refuses_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = answer_of([], head={"code": "not_authorized", "detail": "no right"})
    with pytest.raises(HubRefused, match="not_authorized.*partition 3 of 'plant': no right"):
        read(monkeypatch, refused, fail_on_data_loss=False)


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_producer_wrote_wrongly_is_passed_over_and_no_loss(monkeypatch: pytest.MonkeyPatch, fails: bool,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    """An archive that ended there would end there again, for good."""
    broken = rows(10, 15)
    broken.data = broken.data[:-20]
    assert read(monkeypatch, answer_of([broken, rows(15, 20)]), fail_on_data_loss=fails) == [10, 11, 12, *range(15, 20)]
    assert "2 offsets are passed over: offsets 13 to 14 of partition 3 of 'plant'" in caplog.text


def test_a_batch_that_claims_two_milliards_is_read_and_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    lying = Piece(10, poison.CLAIMED, True, poison.lying(), 0, 0, 10)
    one = Range("plant", "u", 3, 10, 10 + poison.CLAIMED)
    with little_memory():
        assert read(monkeypatch, answer_of([lying]), ranges=(one,)) == list(range(10))
        assert read(monkeypatch, answer_of([lying]), ranges=(Range("plant", "u", 3, 5_000, 6_000),)) == []


def test_address_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, answer_of([rows(10, 20)]), filter=("plant", "k12")) == [12]
    assert read(monkeypatch, answer_of([rows(10, 20)]), filter=("fleet", "#")) == []


@pytest.mark.parametrize("answer", [b"", b"\5\0\0\0{}", answer_of([rows(0, 5)])[:-1]])
def test_bytes_that_are_no_answer(answer: bytes) -> None:
    with pytest.raises(GatehouseError, match="cannot be read"):
        read_answer(answer)


def test_heads_without_pieces() -> None:
    (served,) = read_answer(answer_of([]))
    assert isinstance(served.pieces, Heads)
    assert (len(served.pieces), served.pieces.end_offset) == (0, -1)
