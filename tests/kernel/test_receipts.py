"""Senders are told what became of their messages: acknowledged, dead or expired; across starts, refusals and copies."""
from __future__ import annotations

import json
from typing import Any

import pytest

from gatehouse.kernel.errors import ReceiptDenied
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.message import Allowed, Leased, When
from gatehouse.kernel.receipts import AllAwaited, Awaited, decode, key_of
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.headers import MAX_BYTES, Asked, asked_in
from tests.kernel.batches import batch_of
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig

ASKS: list[tuple[bytes, bytes | None]] = [(b"receipt", b"told/me"), (b"correlation-id", b"c\xff1"),
                                          (b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")]


def anything(_: str) -> Allowed:
    return Allowed(True, "ada")


def send(hub: Rig, address: str = "orders/1", headers=ASKS, judge=anything) -> None:
    place = hub.kernel.place(address)
    hub.kernel.append([(place, b"x", encode_headers(headers), 0, 0)], hub.witness, judge=judge)
    hub.run()


def told(hub: Rig) -> list[dict[str, Any]]:
    hub.world.advance(1_000)
    if hub.kernel.topic("told") is None:
        return []
    return [json.loads(record[3] or b"") for record in hub.read("told")]


class Taker:
    def __init__(self, hub: Rig, group: str = "work", **settings) -> None:
        self.hub = hub
        hub.kernel.groups.define(group, GroupSettings(retry=Retry(delays_ms=(0,)), **settings))
        topic = hub.kernel.topic("orders")
        assert topic is not None
        self.group = hub.kernel.groups.over(group, topic, "earliest")
        self.taken: list[Leased] = []

    def pop(self) -> list[Any]:
        self.taken = []
        self.group.pop(10, 1_000, self.taken.extend)
        self.hub.run()
        return [message[:3] for message in self.taken]


def test_a_sender_is_told_that_a_group_has_acknowledged_his_message():
    hub = Rig()
    send(hub)
    taker = Taker(hub)
    taker.group.ack(taker.pop())
    hub.run()
    (receipt,) = told(hub)
    assert (receipt["receipt"], receipt["group"], receipt["address"], receipt["attempts"]) == (
        "acked", "work", "orders/1", 1)
    (record,) = hub.read("told")
    assert dict(record[4])[b"correlation-id"] == b"c\xff1" and dict(record[4])[b"traceparent"] == ASKS[2][1]
    assert b"receipt" not in dict(record[4])                      # it asks for none


def test_the_receipt_is_in_the_frame_of_an_ack_that_nobody_waits_for():
    hub = Rig()
    send(hub)
    taker = Taker(hub)
    handles = taker.pop()
    taker.group.ack(handles, lazily=True)
    hub.run()                                                     # no time passes: no frame of its own for lazy acks
    assert len(hub.read("told")) == 1
    hub.restart()
    again = Taker(hub)
    assert again.pop() == []


def test_each_group_is_told_of_once_and_only_the_one_that_was_asked_about():
    hub = Rig()
    send(hub)
    send(hub, headers=[*ASKS, (b"receipt-group", b"two")])
    for name in ("one", "two"):
        taker = Taker(hub, name)
        taker.group.ack(taker.pop())
        hub.run()
    assert sorted((receipt["id"], receipt["group"]) for receipt in told(hub)) == sorted([
        (str(hub.read("orders")[0][6]), "one"), (str(hub.read("orders")[0][6]), "two"),
        (str(hub.read("orders")[1][6]), "two")])
    assert hub.kernel.receipts.statistics()["receipts_waiting"] == 1     # the other one may have more groups


def test_a_death_is_told_of_and_so_is_the_ack_of_what_was_redriven_after_a_start():
    hub = Rig()
    send(hub)
    taker = Taker(hub)
    taker.group.reject(taker.pop())
    hub.run()
    hub.restart()
    queue = hub.kernel.groups.queue("$dead-letters/work")
    assert queue is not None
    letters = hub.read_partition(queue.first_partition_id)
    hub.kernel.groups.redrive(queue, letters, hub.witness)
    hub.run()
    taker = Taker(hub)
    taker.group.ack(taker.pop())
    hub.run()
    assert [(receipt["receipt"], receipt.get("reason")) for receipt in told(hub)] == [
        ("dead", "rejected"), ("acked", None)]


def test_a_dead_letter_that_the_disk_refused_tells_nothing_of_who_lies_there_then():
    log = FullLog()
    hub = Rig(log=log)
    hub.publish("told/x", b"{}")
    hub.publish("orders/0", b"a letter, so that there is a queue")
    taker = Taker(hub)
    taker.group.reject(taker.pop())
    send(hub)
    handles = taker.pop()
    log.full = True
    taker.group.reject(handles)
    hub.run()
    log.full = False
    hub.world.advance(5_000)
    assert len(taker.pop()) == 1                                  # it is back, and nobody acknowledges it
    hub.publish("orders/2", b"somebody else's")
    taker.group.reject(taker.pop())
    hub.run()
    queue = hub.kernel.groups.queue("$dead-letters/work")
    assert queue is not None
    assert len(hub.read_partition(queue.first_partition_id)) == 2
    letters: list[Leased] = []
    group = hub.kernel.groups.queue_group(queue)
    group.pop(10, 1_000, letters.extend)
    hub.run()
    group.ack([letter[:3] for letter in letters])
    hub.run()
    assert told(hub) == [{}]


def test_one_that_expires_is_told_of():
    hub = Rig()
    send(hub, headers=[*ASKS, (b"expires-at", b"%d" % (hub.world.loop.wall_ms() + 100))])
    taker = Taker(hub)
    hub.world.advance(1_000)
    assert taker.pop() == []
    assert [receipt["receipt"] for receipt in told(hub)] == ["expired"]


def test_nobody_is_told_where_the_sender_may_not_publish_himself():
    hub = Rig()
    with pytest.raises(ReceiptDenied) as refused:
        place = hub.kernel.place("orders/1")
        hub.kernel.append([(place, b"x", encode_headers([]), 0, 0), (place, b"y", encode_headers(ASKS), 0, 0)],
                          hub.witness, judge=lambda address: None)
    assert refused.value.index == 1
    with pytest.raises(ReceiptDenied):
        send(hub, headers=[(b"receipt", b"told/#")])
    hub.run()
    assert hub.values("orders") == []                              # nothing of the call
    send(hub, judge=None)                                          # what comes from elsewhere asks for nothing
    assert not hub.kernel.receipts.waiting


def test_a_message_that_is_delivered_later_asks_too():
    hub = Rig()
    place = hub.kernel.place("orders/1")
    message = (place, b"x", encode_headers(ASKS), 0, 0)
    with pytest.raises(ReceiptDenied):
        hub.kernel.receipts.require([message], lambda address: None)
    hub.kernel.schedule([message], [When(delay_ms=500)], hub.witness)
    hub.run()
    hub.world.advance(1_000)
    taker = Taker(hub)
    taker.group.ack(taker.pop())
    hub.run()
    assert [receipt["receipt"] for receipt in told(hub)] == []     # its address has no topic, and nobody may make one
    assert hub.kernel.receipts.statistics()["receipts_lost_total"] == 1
    hub.kernel.create_topic("told")
    hub.kernel.schedule([message], [When(delay_ms=500)], hub.witness)
    hub.run()
    hub.world.advance(1_000)
    taker.group.ack(taker.pop())
    hub.run()
    assert [receipt["receipt"] for receipt in told(hub)] == ["acked"]


def test_a_producers_record_asks_and_an_assigned_group_acknowledges_by_its_offset():
    hub = Rig()
    topic = hub.kernel.create_topic("orders", partitions=1)
    batch = batch_of([(None, b"v", ()), (None, b"v", tuple(ASKS)), (None, b"v", ((b"x", b"y"),))])
    hub.kernel.append_batch(topic.partition_id(0), batch, hub.witness, judge=anything)
    hub.run()
    assert hub.witness.stored[-1].error is None and hub.kernel.receipts.waiting
    for offset in (1, 2, 3):
        hub.kernel.assigned.commit_offsets("readers", {topic.partition_id(0): (offset, b"")}, None, None)
        hub.run()
        assert [receipt["group"] for receipt in told(hub)] == ["readers"] * (offset > 1)
    with pytest.raises(ReceiptDenied):
        hub.kernel.append_batch(topic.partition_id(0), batch, hub.witness, judge=lambda _: None)


def test_a_message_in_a_queue_that_drops_it_is_told_of():
    hub = Rig()
    hub.kernel.groups.declare_queue("bills", QueueSettings(max_length=1, overflow="drop-head"))
    for _ in range(2):
        send(hub, "$queue/bills")
    assert [(receipt["receipt"], receipt["group"]) for receipt in told(hub)] == [("dropped", "$queue/bills")]


def test_headers_that_are_endless_repeat_or_are_empty():
    assert asked_in(encode_headers([(b"receipt", b"a" * (MAX_BYTES + 1))])) is None
    assert asked_in(encode_headers([(b"receipt", None)])) is None
    assert asked_in(encode_headers([(b"x", b"\x0ereceipt")])) is None
    twice = asked_in(encode_headers([(b"receipt", b"a"), (b"receipt", b"b"), (b"receipt-group", b"g")]))
    assert twice == Asked("a", "g", b"", b"")


def test_those_who_wait_are_found_by_place_and_id_and_come_back_from_their_records():
    one = Awaited(7, "/", Asked("told/me", "", b"\xff", b"t"), 5, "orders/1", True, "ada")
    one.places = [(3, 10), (4, 0)]
    one.told = ["work"]
    again = decode(key_of(7), one.encode())
    assert [getattr(again, name) for name in Awaited.__slots__] == [getattr(one, name) for name in Awaited.__slots__]
    every = AllAwaited(most=1)
    every.add(one)
    assert every.at(3, 10) is one and every.within(3, 0, 11) == [one] and every.ids_within(5, 3) == [7]
    assert not every.has_room
    every.remove(one)
    every.remove(one)
    assert (len(every), every.at(3, 10), every.within(3, 0, 11), every.reads(4)) == (0, None, [], False)
