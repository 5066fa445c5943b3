"""What the dead letters of one transaction say, and that many to one place cost little."""
from __future__ import annotations

import json
from typing import Any

import pytest

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.groups.dead_lettering import HEADER
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.message import RETAIN, Record
from gatehouse.transactions.coordinator import CheckSettings, State
from tests.transactions.rig import Half, TransactionRig

OVER = CheckSettings(1_000, 1_000, 0)
EARLIER = {"reason": "rejected", "topic": "orders", "partition": 0, "offset": 7, "attempts": 3, "at_ms": 1,
           "address": "orders/1"}


@pytest.fixture
def rig() -> TransactionRig:
    return TransactionRig()


def give_up(rig: TransactionRig, *halves: Half) -> list[Record]:
    one = rig.begin(*halves, checks=OVER)
    rig.advance(2_000)
    assert rig.state(one) is State.EXPIRED
    queue = rig.kernel.groups.queue("$dead-letters/shop")
    assert queue is not None
    letters: list[Record] = rig.read_partition(queue.first_partition_id)
    assert [letter[6] for letter in letters] == list(range(one, one + len(halves)))
    return letters


def half(rig: TransactionRig, address: str, *headers: tuple[bytes, bytes | None], value: bytes | None = b"half",
         attributes: int = 2) -> Half:
    return Half(rig.message(address, value, list(headers), attributes), None, 0)


def deaths(letter: Record) -> list[dict[str, Any]]:
    history, = (value for name, value in letter[4] if name == HEADER)
    assert history is not None
    read: list[dict[str, Any]] = json.loads(history)
    return read


def test_each_keeps_what_it_was_and_says_where_it_was_to_go(rig: TransactionRig) -> None:
    rig.kernel.groups.declare_queue("jobs", QueueSettings())
    letters = give_up(rig, half(rig, "orders/1", (b"kind", b"a")), half(rig, "orders/2", (b"kind", None), value=None),
                      half(rig, "$queue/jobs", (b"kind", b"b")), half(rig, "orders/1", attributes=2 | RETAIN))
    assert [(letter[2], letter[3], letter[5] & RETAIN) for letter in letters] == [
        (b"1", b"half", 0), (b"2", None, 0), (None, b"half", 0), (b"1", b"half", 0)]
    assert [[header for header in letter[4] if header[0] != HEADER] for letter in letters] == [
        [(b"kind", b"a"), (b"address", b"orders/1")], [(b"kind", None), (b"address", b"orders/2")],
        [(b"kind", b"b")], [(b"address", b"orders/1")]]
    assert [[(death["topic"], death["address"], death["partition"], death["offset"]) for death in deaths(letter)]
            for letter in letters] == [[("orders", "orders/1", -1, -1)], [("orders", "orders/2", -1, -1)],
                                       [("", "$queue/jobs", 0, -1)], [("orders", "orders/1", -1, -1)]]
    assert all(death["transaction"]["by"] == "the sender" for letter in letters for death in deaths(letter))


def test_the_death_is_the_newest_of_those_that_a_message_has_died(rig: TransactionRig) -> None:
    history = json.dumps([EARLIER]).encode()
    first, second = give_up(rig, half(rig, "orders/1", (HEADER, history), (ADDRESS_HEADER, b"orders/1")),
                            half(rig, "orders/1", (b"note", b"no dead-letter yet")))
    assert [death["reason"] for death in deaths(first)] == ["rejected", "unanswered"]
    assert deaths(first)[-1] == deaths(second)[-1]
    assert [name for name, _ in first[4]] == [b"address", b"dead-letter"]
    assert [name for name, _ in second[4]] == [b"note", b"address", b"dead-letter"]


def test_what_goes_to_one_place_is_placed_once(rig: TransactionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = 0
    place_queue = Places.place_queue

    def counted(self: Places, *what: Any) -> Any:
        nonlocal placed
        placed += 1
        return place_queue(self, *what)
    monkeypatch.setattr(Places, "place_queue", counted)
    give_up(rig, *(half(rig, f"orders/{number % 2}", (b"number", b"%d" % number)) for number in range(1_000)))
    assert placed == 2
