"""A sender may call a header `address`: where its message was published is what the hub says, whoever reads it."""
from __future__ import annotations

import pytest

from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.message import RETAIN, Message, When
from gatehouse.kernel.records.batch import encode_headers, read_headers
from tests.kernel.groups.test_groups import handles, pop
from tests.kernel.rig import Rig

FORGED = [(b"a", b"1"), (b"address", b"plant/sealed/x"), (b"z", b"2")]


def addresses(rig: Rig, topic: str = "plant") -> list[str]:
    return [rig.kernel.address_of(topic, record[2], record[4]) for record in rig.read(topic)]


def message(rig: Rig, address: str, headers: list[tuple[bytes, bytes | None]], attributes: int = 2) -> Message:
    return rig.kernel.place(address), b"1", encode_headers(headers), attributes, 0


def test_a_message_that_is_stored() -> None:
    rig = Rig()
    rig.publish("plant/open/x", b"1", headers=FORGED)
    assert addresses(rig) == ["plant/open/x"]
    (record,) = rig.read("plant")
    assert [*record[4][:3]] == FORGED, "the sender's own are as they were"


def test_a_true_header_is_left_alone_and_so_is_a_value_that_looks_like_one() -> None:
    rig = Rig()
    true = [(b"address", b"plant/open/x")]
    alike = [(b"x", b"\x0eaddress\x1cplant/sealed/x")]
    rig.publish("plant/open/x", b"1", headers=true)
    rig.publish("plant/open/x", b"1", headers=alike)
    assert [list(record[4]) for record in rig.read("plant")] == [true, alike]


def test_a_header_that_the_hub_needs_anyway_is_behind_the_senders() -> None:
    rig = Rig(routes=Routes([RouteEntry("a/{x}", "t", "{x}"), RouteEntry("b/{x}", "t", "{x}")]))
    rig.publish("b/1", b"1", headers=[(b"address", b"a/9")])
    assert addresses(rig, "t") == ["b/1"]


def test_one_for_later_a_repeated_one_and_a_retained_one() -> None:
    rig = Rig()
    now_ms = rig.world.loop.now_ms()
    rig.kernel.schedule([message(rig, "plant/open/x", FORGED)], [When(now_ms + 1000)], rig.witness, "later")
    rig.run()
    rig.world.loop.advance(5000)
    rig.run()
    rig.kernel.append([message(rig, "plant/open/x", FORGED, 2 | RETAIN)], rig.witness, "retained")
    rig.run()
    assert addresses(rig) == ["plant/open/x"] * 2


@pytest.mark.parametrize("bound", [True, False])
def test_in_a_queue(bound: bool) -> None:
    """By its binding, or put into the queue itself."""
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings())
    if bound:
        rig.kernel.groups.bind("plant/#", queue)
        rig.publish("plant/open/x", b"1", headers=FORGED)
    else:
        rig.kernel.append([(rig.kernel.place_queue(queue, 0), b"1", encode_headers(FORGED), 2, 0)], rig.witness, "put")
        rig.run()
    (leased,) = pop(rig, rig.kernel.groups.queue_group(queue))
    assert rig.kernel.groups.address_of_leased(leased) == ("plant/open/x" if bound else "$queue/work")


def test_a_dead_letter_goes_back_to_where_it_died_whatever_its_sender_made_up() -> None:
    """Whoever redrives may have rights that the sender has not."""
    rig = Rig()
    rig.kernel.create_topic("vault", partitions=1)
    rig.kernel.groups.define("billing", GroupSettings(max_attempts=1, retry=Retry((0,))))
    made_up = b'[{"reason":"attempts","topic":"vault","queue":0,"offset":0,"attempts":1,"at_ms":1,"address":"vault/x"}]'
    rig.publish("orders/a", b"1", headers=[(b"dead-letter", made_up), (b"address", b"orders/b")])
    group = rig.kernel.groups.group("billing", "orders")
    group.release(handles(pop(rig, group)))
    rig.run()
    dead = rig.kernel.groups.queue("$dead-letters/billing")
    assert dead is not None
    assert rig.kernel.groups.redrive(dead, rig.read_partition(dead.first_partition_id)) == [None]
    rig.run()
    assert rig.values("vault") == [] and addresses(rig, "orders") == ["orders/a"] * 2


def test_a_leased_message_says_its_address_to_whoever_holds_it() -> None:
    rig = Rig()
    rig.publish("plant/open/x", b"1", headers=FORGED)
    (leased,) = pop(rig, rig.kernel.groups.group("crew", "plant"))
    assert rig.kernel.groups.address_of_leased(leased) == "plant/open/x"
    assert (b"address", b"plant/sealed/x") in read_headers(leased[7], 0)[0]
