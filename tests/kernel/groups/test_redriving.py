"""Dead letters go back to where they died, once, whatever happens."""
from __future__ import annotations

import json

import pytest

from gatehouse.kernel.errors import ExpiredReceipt, KernelError, QueueFull, UnknownQueue, UnknownTopic
from gatehouse.kernel.groups.dead_lettering import HEADER, MAX_HISTORY, read_deaths
from gatehouse.kernel.groups.group_settings import (
    GroupSettings,
    Queue,
    QueueSettings,
    Retry,
    decode_queue,
    encode_queue,
    named_key,
)
from gatehouse.kernel.message import RETAIN, Record, Retained
from gatehouse.kernel.records.batch import read_headers
from tests.kernel.groups.test_groups import handles, pop, send, values
from tests.kernel.rig import Rig

ONCE = GroupSettings(max_attempts=1, retry=Retry((0,)))


def rig_with_dead(count: int = 3) -> Rig:
    """Messages of `orders/a` that the group `billing` gave up."""
    rig = Rig()
    rig.kernel.groups.define("billing", ONCE)
    rig.publish("orders/a", *(b"%d" % number for number in range(count)), headers=[(b"unit", b"C")])
    group = rig.kernel.groups.group("billing", "orders")
    group.release(handles(pop(rig, group, count)))
    rig.run()
    return rig


def dead_queue(rig: Rig) -> Queue:
    queue = rig.kernel.groups.queue("$dead-letters/billing")
    assert queue is not None
    return queue


def letters(rig: Rig) -> list[Record]:
    """What lies in the dead-letter queue."""
    queue = dead_queue(rig)
    cursor = rig.kernel.groups.queue_group(queue).prefetchers[queue.first_partition_id].cursor
    return [record for record in rig.read_partition(queue.first_partition_id) if not cursor.is_settled(record[0])]


def redrive(rig: Rig, chosen: list[Record]) -> list[KernelError | None]:
    results = rig.kernel.groups.redrive(dead_queue(rig), chosen, rig.witness, "redriven")
    rig.run()
    assert rig.witness.stored[-1].token == "redriven"
    return results


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_redriven_is_as_it_was_and_tried_again(crash: bool) -> None:
    rig = rig_with_dead()
    before = rig.read("orders")
    dead = letters(rig)
    assert [record[3] for record in dead] == [b"0", b"1", b"2"]
    assert redrive(rig, dead[1:]) == [None, None]
    if crash:
        rig.restart()
    assert [record[3] for record in letters(rig)] == [b"0"]
    again = rig.read("orders")[3:]
    as_it_was = [(*record[1:4], tuple(one for one in record[4] if one[0] != HEADER), *record[5:]) for record in again]
    assert as_it_was == [record[1:] for record in before[1:]]       # all but the offset, and the history
    assert values(pop(rig, rig.kernel.groups.group("billing", "orders"))) == [b"1", b"2"]


def test_a_crash_before_it_is_durable_leaves_the_letter_where_it_was() -> None:
    rig = rig_with_dead(1)
    rig.kernel.groups.redrive(dead_queue(rig), letters(rig))
    rig.restart()
    assert len(letters(rig)) == 1
    assert len(rig.read("orders")) == 1


def test_a_letter_is_redriven_once() -> None:
    rig = rig_with_dead(2)
    dead = letters(rig)
    redrive(rig, dead[:1])
    assert [type(result) for result in redrive(rig, dead)] == [ExpiredReceipt, type(None)]
    assert len(rig.read("orders")) == 4


def test_a_letter_that_somebody_has_stays() -> None:
    rig = rig_with_dead(3)
    dead = letters(rig)
    group = rig.kernel.groups.queue_group(dead_queue(rig))
    held = pop(rig, group, 1)
    assert [type(result) for result in redrive(rig, dead)] == [ExpiredReceipt, type(None), type(None)]
    assert pop(rig, group) == []
    group.release(handles(held), 0)
    assert values(pop(rig, group)) == [b"0"]


def test_letters_that_are_ready_again_or_read_ahead_are_not_handed_out_after_it() -> None:
    rig = rig_with_dead(6)
    dead = letters(rig)
    group = rig.kernel.groups.queue_group(dead_queue(rig))
    group.release(handles(pop(rig, group, 3)), 0)
    rig.run()
    assert redrive(rig, [dead[1], dead[4]]) == [None, None]
    left = pop(rig, group)
    assert values(left) == [b"0", b"2", b"3", b"5"]
    assert group.ack(handles(left)) == [None] * 4
    rig.run()
    rig.restart()
    assert letters(rig) == []


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_lost_end_of_two_milliards_of_offsets_before_a_letter_is_passed_over_at_once(ahead: int, crash: bool) -> None:
    rig = rig_with_dead(3)
    redrive(rig, letters(rig)[ahead:])
    group = rig.kernel.groups.group("billing", "orders")
    group.ack(handles(pop(rig, group)))
    rig.run()
    queue, heads = dead_queue(rig), rig.kernel._watermarks      # as recovery lets a queue go on behind a lost end
    for number, page in heads.pages_leaping([queue.first_partition_id], 1 << 31).items():
        heads.merge(number, page)
    rig.publish("orders/a", b"x", b"y")
    group.release(handles(pop(rig, group, 2)))
    rig.run()
    dead = letters(rig)
    assert dead[-1][0] >= 1 << 31
    assert rig.kernel.groups.redrive(queue, dead[-1:], gaps=[(3, dead[-2][0])]) == [None]
    rig.run()
    if crash:
        rig.restart()
    assert [record[3] for record in letters(rig)] == [b"0", b"x"][1 - ahead:]
    assert values(pop(rig, rig.kernel.groups.queue_group(dead_queue(rig)))) == [b"0", b"x"][1 - ahead:]


def test_a_death_that_a_log_from_before_tells_of_has_its_partition_and_its_seal() -> None:
    rig = rig_with_dead(1)
    (letter,) = letters(rig)
    (name, value) = next(header for header in letter[4] if header[0] == HEADER)
    assert value is not None
    (death,) = read_deaths(((name, value.replace(b'"partition"', b'"queue"')),))
    assert [death] == read_deaths(letter[4]) and death["partition"] == 0 and death["seal"]


def test_a_queue_that_a_log_from_before_defines_is_found() -> None:
    rig = rig_with_dead(1)
    queue = dead_queue(rig)
    key = named_key(queue.tenant, queue.name)
    assert decode_queue(key, encode_queue(queue).replace(b"first_partition_id", b"first_queue_id")) == queue


def test_a_letter_whose_topic_is_gone_stays() -> None:
    rig = rig_with_dead(1)
    rig.kernel.delete_topic("orders")
    rig.run()
    (result,) = redrive(rig, letters(rig))
    assert isinstance(result, UnknownTopic)
    assert len(letters(rig)) == 1
    rig.kernel.create_topic("orders", partitions=1)
    assert redrive(rig, letters(rig)) == [None]
    assert rig.values("orders") == [b"0"]


def test_a_message_that_never_died_has_nowhere_to_go() -> None:
    rig = rig_with_dead(1)
    send(rig, dead_queue(rig), b"stray")
    results = redrive(rig, letters(rig))
    assert results[0] is None
    assert isinstance(results[1], UnknownTopic)


def test_a_letter_that_dies_again_has_died_twice() -> None:
    """Its attempts begin anew; what it says of its deaths does not."""
    rig = rig_with_dead(1)
    first_id = letters(rig)[0][6]
    for deaths in range(2, 30):
        assert redrive(rig, letters(rig)) == [None]
        group = rig.kernel.groups.group("billing", "orders")
        again = pop(rig, group)
        assert [one[2] for one in again] == [1]
        group.release(handles(again))
        rig.run()
        (letter,) = letters(rig)
        assert letter[6] == first_id
        history = read_deaths(letter[4])
        assert len(history) == min(deaths, MAX_HISTORY)
        assert (history[0]["offset"], history[-1]["offset"]) == (0, deaths - 1)


DEATH = json.dumps({"reason": "attempts", "topic": "t", "partition": 0, "offset": 0, "attempts": 1, "at_ms": 1,
                    "address": "t/a"}).encode()


@pytest.mark.parametrize("made_up", [
    b"nonsense", b'"', b"\xff", b"{}", b"[" * 100_000, b"[" * 1_000 + b"]" * 1_000, b"[" + b"9" * 10_000 + b"]",
    b"[%b]" % DEATH.replace(b'"at_ms": 1', b'"at_ms": 1e999'), b"[%b]" % DEATH.replace(b": 1,", b": %d," % (1 << 64)),
    b"[%b]" % DEATH.replace(b"t/a", b"\\ud800"), b"[%b]" % DEATH.replace(b"{", b'{"z": %b,' % (b"[" * 9 + b"]" * 9))
], ids=range(11))
def test_deaths_that_a_sender_made_up_are_none(made_up: bytes) -> None:
    """Whatever they are: the message dies its own death, and everybody can be shown it."""
    rig = Rig()
    rig.kernel.groups.define("billing", ONCE)
    rig.publish("orders/a", b"1", headers=[(HEADER, made_up)])
    group = rig.kernel.groups.group("billing", "orders")
    group.release(handles(pop(rig, group)))
    rig.run()
    (letter,) = letters(rig)
    (death,) = read_deaths(letter[4])
    assert (death["reason"], death["address"]) == ("attempts", "orders/a")
    assert redrive(rig, [letter]) == [None]


def test_a_letter_of_a_queue_goes_back_into_it() -> None:
    """By the shortest way, however far it has come; with its key and the address it was bound by."""
    rig = Rig()
    rig.kernel.groups.declare_queue("two", QueueSettings(dead_letter="queue:three"))
    rig.kernel.groups.declare_queue("three")
    one = rig.kernel.groups.declare_queue("one", QueueSettings(dead_letter="queue:two"))
    rig.kernel.groups.bind("orders/#", one)
    rig.publish("orders/a", b"1")
    for name in ("one", "two"):
        queue = rig.kernel.groups.queue(name)
        assert queue is not None
        group = rig.kernel.groups.queue_group(queue)
        group.reject(handles(pop(rig, group)))
        rig.run()
    three = rig.kernel.groups.queue("three")
    assert three is not None
    letter = rig.read_partition(three.first_partition_id)
    assert [death["address"] for death in read_deaths(letter[0][4])] == ["$queue/one", "$queue/two"]
    assert rig.kernel.groups.redrive(three, letter) == [None]
    rig.run()
    found = pop(rig, rig.kernel.groups.queue_group(one))
    assert [(message[5], message[6]) for message in found] == [(b"a", b"1")]
    assert read_headers(found[0][7], 0)[0][0] == (b"address", b"orders/a")
    rig.kernel.groups.queue_group(one).release(handles(found), 0)
    rig.kernel.groups.delete_queue(one)
    rig.run()
    assert rig.read_partition(three.first_partition_id) == []


@pytest.mark.parametrize("copied", [False, True], ids=["made up", "of another message"])
def test_no_sender_leads_a_letter_to_a_queue_that_it_was_never_in(copied: bool) -> None:
    """Neither by a death that it made up nor by one that another message has died, where the queue's dead letters do
    lead to where its own message died."""
    rig = Rig()
    rig.kernel.groups.declare_queue("dead")
    rig.kernel.groups.declare_queue("open", QueueSettings(dead_letter="queue:dead"))
    vault = rig.kernel.groups.declare_queue("vault", QueueSettings(dead_letter="queue:open"))
    death = {"reason": "rejected", "topic": "", "partition": 0, "offset": 0, "attempts": 1, "at_ms": 1,
             "address": "$queue/vault"}
    if copied:
        send(rig, vault, b"of another")
        rig.kernel.groups.queue_group(vault).reject(handles(pop(rig, rig.kernel.groups.queue_group(vault))))
        rig.run()
        (other,) = rig.read_partition(queue_of(rig, "open").first_partition_id)
        (death,) = read_deaths(other[4])
        assert death["address"] == "$queue/vault"
    queue = queue_of(rig, "open")
    rig.kernel.groups.bind("orders/#", queue)
    rig.publish("orders/a", b"1", headers=[(HEADER, json.dumps([death]).encode())])
    group = rig.kernel.groups.queue_group(queue)
    group.reject(handles(pop(rig, group)))
    rig.run()
    dead = queue_of(rig, "dead")
    letter = [one for one in rig.read_partition(dead.first_partition_id) if one[3] == b"1"]
    assert [one["address"] for one in read_deaths(letter[0][4])] == ["$queue/vault", "$queue/open"]
    assert rig.kernel.groups.redrive(dead, letter) == [None]
    rig.run()
    assert pop(rig, rig.kernel.groups.queue_group(vault)) == [], "nobody let it in there"
    assert values(pop(rig, group)) == [b"1"]


def queue_of(rig: Rig, name: str) -> Queue:
    queue = rig.kernel.groups.queue(name)
    assert queue is not None
    return queue


def test_a_letter_stays_while_where_it_came_from_is_full_or_gone() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("dead")
    settings = QueueSettings(max_length=1, overflow="reject", dead_letter="queue:dead")
    work = rig.kernel.groups.declare_queue("work", settings)
    dead = rig.kernel.groups.queue("dead")
    assert dead is not None
    send(rig, work, b"1")
    group = rig.kernel.groups.queue_group(work)
    group.reject(handles(pop(rig, group)))
    send(rig, work, b"2")
    (result,) = rig.kernel.groups.redrive(dead, rig.read_partition(dead.first_partition_id))
    assert isinstance(result, QueueFull)
    rig.kernel.groups.delete_queue(work)
    rig.run()
    (result,) = rig.kernel.groups.redrive(dead, rig.read_partition(dead.first_partition_id))
    assert isinstance(result, UnknownQueue)
    assert values(pop(rig, rig.kernel.groups.queue_group(dead))) == [b"1"]


def test_a_group_with_the_longest_name_has_dead_letters_and_so_has_one_whose_queue_somebody_made() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    rig.kernel.groups.declare_queue("$dead-letters/taken", QueueSettings(max_length=7))
    for name in ("x" * 255, "taken"):
        rig.kernel.groups.define(name, ONCE)
        group = rig.kernel.groups.group(name, "orders")
        group.release(handles(pop(rig, group)))
        rig.run()
        queue = rig.kernel.groups.queue(f"$dead-letters/{name}")
        assert queue is not None
        assert values(pop(rig, rig.kernel.groups.queue_group(queue))) == [b"1"]


def test_a_retained_value_is_not_set_by_a_death() -> None:
    rig = Rig()
    rig.kernel.groups.define("billing", ONCE)
    rig.publish("orders/a", b"old", attributes=RETAIN | 2)
    group = rig.kernel.groups.group("billing", "orders")
    old = pop(rig, group)
    rig.publish("orders/a", b"new", attributes=RETAIN | 2)
    group.release(handles(old))
    rig.run()
    assert redrive(rig, letters(rig)) == [None]
    found: list[Retained] = []
    rig.kernel.retained("#", "/", lambda page, *_: found.extend(page))
    rig.run()
    assert [(one.address, one.record[3]) for one in found] == [("orders/a", b"new")]
