"""Producers' batches on their way to live subscribers: bounded in a turn, in order, and only what is sound."""
from __future__ import annotations

import pytest

from gatehouse.kernel.delivery.deliveries import OPEN_HERE_BYTES
from gatehouse.kernel.message import Message, Placement
from gatehouse.kernel.records.opened import PART_RECORDS, Opened
from tests.kernel import poison
from tests.kernel.batches import encode_record
from tests.kernel.groups.test_claims import NUMBERS, POISON, little_memory
from tests.kernel.rig import Rig


class Listener:
    """Remembers offsets and values, and how many messages came in one call."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes | None]] = []
        self.calls: list[int] = []

    def on_delivery(self, deliveries: list[tuple[Placement, list[Message], int, int]]) -> None:
        self.calls.append(sum(len(messages) for _, messages, _, _ in deliveries))
        self.got += [(first + i, message[1]) for _, messages, first, _ in deliveries
                     for i, message in enumerate(messages)]


def listener(rig: Rig) -> Listener:
    found = Listener()
    rig.kernel.subscribe("plant/#", found)
    return found


@pytest.mark.parametrize(("batch", "count", "sound", "lost"), [row[1:] for row in POISON],
                         ids=[row[0] for row in POISON])
def test_what_is_sound_is_delivered_live(batch: bytes, count: int, sound: list[bytes], lost: int) -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    heard = listener(rig)
    with little_memory():
        poison.store(rig, topic, batch, count)
    rig.publish("plant/k", b"after")
    assert [value for _, value in heard.got] == [*sound, b"after"]
    assert heard.got[-1][0] == count
    assert rig.kernel.deliveries.idle and rig.kernel.statistics()["unreadable_stretches_total"] == (1 if lost else 0)


def test_very_many_small_records_are_handed_over_some_thousands_a_turn() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    heard = listener(rig)
    count = 100_000
    poison.store(rig, topic, poison.packed(encode_record(0, None, None) * count, count), count)
    assert [offset for offset, _ in heard.got] == list(range(count))
    assert max(heard.calls) <= PART_RECORDS


def test_many_batches_of_one_flush_are_opened_some_a_turn_and_stay_in_order() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    heard = listener(rig)
    each = 4_000
    batch = poison.packed(encode_record(0, None, b"x" * 3) * each, each)
    committer = rig.kernel.committer
    pending_frame = committer.open_frame()
    for _ in range(20):
        run = pending_frame.builder.add_batch(topic.partition_id(0), batch, each, 1000)
        pending_frame.builder.heard.append((None, [], run, 0))
    placement = rig.kernel.place("plant/k")
    rig.kernel.append([(placement, b"behind", b"\0", 2, 0)], None)
    rig.run()
    assert [offset for offset, _ in heard.got] == list(range(20 * each + 1))
    assert heard.got[-1][1] == b"behind"
    assert max(heard.calls) <= OPEN_HERE_BYTES // 7 + PART_RECORDS


def test_a_batch_that_opens_to_much_does_not_let_others_overtake_it() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    heard = listener(rig)
    count = 3 * PART_RECORDS
    pending_frame = rig.kernel.committer.open_frame()
    batch = poison.packed(encode_record(0, None, b"1") * count, count)
    run = pending_frame.builder.add_batch(topic.partition_id(0), batch, count, 1000)
    pending_frame.builder.heard.append((None, [], run, 0))
    placement = rig.kernel.place("plant/k")
    for value in NUMBERS:
        rig.kernel.append([(placement, value, b"\0", 2, 0)], None)
    rig.run()
    rig.publish("plant/k", b"last")
    assert [value for _, value in heard.got] == [*[b"1"] * count, *NUMBERS, b"last"]


def test_a_batch_that_cannot_be_opened_by_our_own_fault_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    heard = listener(rig)

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Opened, "__init__", fail)
    with pytest.raises(AssertionError, match="no room"):                 # the rig tells of what was contained
        poison.store(rig, topic, poison.lying(), poison.CLAIMED)
    rig.errors.clear()
    rig.publish("plant/k", b"behind")
    assert [value for _, value in heard.got] == [b"behind"] and rig.kernel.deliveries.idle
