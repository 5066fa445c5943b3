"""What crosses a link with a message, what does not pass, and what circulates: nothing."""
from __future__ import annotations

import random
from pathlib import Path

import pytest
import zstandard

from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.message import DOOR_MASK, RETAIN, SHOWN_ORIGIN, Stamp
from gatehouse.kernel.records.batch import CARRIED_HEADERS, MARK, encode_headers
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.relay import frames, sealing
from gatehouse.relay.incoming import PARKED_TOPIC
from gatehouse.relay.origins import ORIGIN_HEADER, Marks
from gatehouse.relay.outgoing import SKIPPED_MS
from gatehouse.relay.positions import decode_origin, decode_sent
from gatehouse.relay.sealing import SEALED, SEALED_AES
from gatehouse.relay.settings import LinkSettings
from gatehouse.relaying import has_aes
from tests.kernel.batches import batch_of
from tests.kernel.full_log import FullLog
from tests.relay.network import Network, TestHub, carried
from tests.simulation.disk import SimDisk
from tests.simulation.store import SimStore

SEND = {"send": ("plant/#",)}
RECEIVE = {"receive": ("plant/#",)}


def pair(a: dict, b: dict, **network) -> tuple[Network, TestHub, TestHub]:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", **a)], rng)
    right = TestHub("right", [LinkSettings("link", **b)], rng)
    joined = Network(left, right, rng=rng, **network)
    joined.join(left, right, "link")
    joined.settle()
    return joined, left, right


def retained(hub: TestHub, filter: str) -> dict[str, bytes | None]:
    pages: list = []
    hub.rig.kernel.retained(filter, "/", lambda values, next_start, error: pages.extend(values))
    hub.rig.run()
    return {value.address: value.record[3] for value in pages}


def test_how_far_the_other_hub_is_and_what_is_lost_are_kept_once_a_full_disk_takes_them() -> None:
    rng, log = random.Random(7), FullLog()
    left = TestHub("left", [LinkSettings("link", **SEND)], rng, log=log)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    kernel = left.rig.kernel
    left.rig.publish("plant/a", b"1")
    left.rig.publish("plant/over", b"2")
    network.settle(40)
    left.rig.publish("plant/a", b"3")
    log.full = True
    network.settle(40)
    assert right.values("plant") == [b"1", b"2", b"3"]
    log.full = False
    network.settle(40)
    ends = {decode_origin(key)[2]: decode_sent(value).next for key, value in kernel.link_states(Kind.SENT)}
    topic = kernel.topic("plant")
    assert topic is not None
    assert {number: end for number, end in ends.items() if end} == {
        number: end for number, partition_id in enumerate(topic.partition_ids())
        if (end := kernel.bounds(partition_id)[1])}


def test_key_headers_timestamp_and_origin_cross() -> None:
    network, left, right = pair(SEND, RECEIVE)
    placement = left.rig.kernel.place_in("plant", b"\x00\xff")
    headers = encode_headers([(b"content-type", b"text/plain"), (b"traceparent", b"00-ab-cd-01"), (b"n", None)])
    left.rig.kernel.append([(placement, b"v", headers, 3, 1_600_000_000_000)], left.rig.witness)
    left.rig.run()
    network.settle()
    record, = right.rig.read("plant")
    sent, = left.rig.read("plant")
    assert record[1:4] == (1_600_000_000_000, b"\x00\xff", b"v")
    assert record[4][:3] == ((b"content-type", b"text/plain"), (b"traceparent", b"00-ab-cd-01"), (b"n", None))
    assert dict(record[4])[SHOWN_ORIGIN] == f"{left.rig.kernel.hub.hex()}/{sent[6]}".encode()
    assert not [name for name, _ in record[4] if name == ORIGIN_HEADER], "private headers are not shown"


def test_what_a_door_keeps_of_a_message_does_not_cross_and_the_message_is_no_longer_its_own() -> None:
    """AMQP's door reads its own side in a message that says it came by it: here there is none."""
    network, left, right = pair(SEND, RECEIVE)
    amqp = 3
    left.rig.publish("plant/a", b"v", headers=[(MARK + b"amqp", b"its side"), (b"shown", b"1")], attributes=amqp)
    network.settle()
    record, = right.rig.read("plant")
    assert dict(record[4])[b"shown"] == b"1" and MARK + b"amqp" not in dict(record[4])
    assert record[5] & DOOR_MASK != amqp


def test_a_producers_batch_crosses_whole() -> None:
    network, left, right = pair(SEND, RECEIVE)
    topic = left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.run()
    batch = batch_of([(b"k%d" % number, b"v%d" % number, []) for number in range(50)], codec=4,
                     pack=zstandard.compress)
    left.rig.kernel.append_batch(topic.partition_id(0), batch, left.rig.witness)
    left.rig.run()
    network.settle()
    assert sorted((record[2], record[3]) for record in right.rig.read("plant")) == sorted(
        (b"k%d" % number, b"v%d" % number) for number in range(50))


def test_a_rename_leads_elsewhere_and_back_to_the_same_topic_for_the_rest() -> None:
    network, left, right = pair(SEND, {**RECEIVE, "rename": ("plant/line1/# -> sites/factory/line1/#",)})
    left.rig.publish("plant/line1/temp", b"1")
    left.rig.publish("plant/line2/temp", b"2")
    network.settle()
    assert [record[2] for record in right.rig.read("sites")] == [b"factory/line1/temp"]
    assert right.values("plant") == [b"2"]


def test_what_a_rename_gives_another_key_has_it_however_often_it_comes() -> None:
    """A key that is known goes by a track of records as they came: not where its records are stored under another."""
    network, left, right = pair(SEND, {**RECEIVE, "rename": ("plant/# -> sites/factory/#",)})
    for number in range(4):
        left.rig.publish("plant/count", *[b"%d" % (3 * number + more) for more in range(3)])
        network.settle()
    assert [(record[2], record[3]) for record in right.rig.read("sites")] == [
        (b"factory/count", b"%d" % number) for number in range(12)]


@pytest.mark.parametrize("line", ["plant/# -> $audit/#", "plant/# -> ../up/#", "plant/+/# -> x/#", "plant -> x",
                                  "plant/# -> #", "a/# -> x/#"])
def test_a_rename_does_not_escape_or_collide(line: str) -> None:
    lines = (line,) if not line.startswith("a/") else (line, "b/# -> x/y/#")
    with pytest.raises(ValueError, match="rename"):
        LinkSettings("link", rename=lines)


def test_only_addresses_that_both_sides_allow_pass() -> None:
    network, left, right = pair({"send": ("plant/+/open/#", "other/#")}, {"receive": ("plant/line1/#",)})
    left.rig.publish("plant/line1/open/a", b"1")
    left.rig.publish("plant/line2/open/a", b"2")
    left.rig.publish("plant/line1/closed/a", b"3")
    left.rig.publish("other/a", b"4")
    network.settle(40)
    assert right.values("plant") == [b"1"]
    assert right.rig.kernel.topic("other") is None
    assert left.links.describe_link("link")["lag"]["messages"] == 0, "what does not match is not behind"


def test_a_link_is_of_one_tenant_at_each_hub() -> None:
    """What others have is not sent, and no rename leads to them."""
    network, left, right = pair({**SEND, "tenant": "north"}, {
        **RECEIVE, "tenant": "south", "rename": ("plant/up/# -> north/plant/#",)})
    left.rig.publish("plant/1", b"of the north", tenant="north")
    left.rig.publish("plant/up/1", b"renamed", tenant="north")
    left.rig.publish("plant/1", b"of everybody")
    network.settle()
    kernel = right.rig.kernel
    assert {topic.name for topic in kernel.topics("south")} == {"plant", "north"}
    assert not kernel.topics("north") and not kernel.topics("/")
    stored = [record[3] for topic in kernel.topics("south") for partition in topic.partition_ids()
              for record in right.rig.read_partition(partition)]
    assert sorted(stored) == [b"of the north", b"renamed"]


def test_a_topic_that_the_meeting_point_does_not_list_stops_the_link() -> None:
    network, left, right = pair(SEND, RECEIVE, topics=("other",))
    left.rig.publish("plant/a", b"1")
    network.settle()
    shown = left.links.describe_link("link")
    assert shown["state"] == "stopped" and "may not pass" in shown["fault"]
    assert right.rig.kernel.topic("plant") is None


@pytest.mark.parametrize("route", [RouteEntry("#", "unrouted"), RouteEntry("fleet/{vehicle}/gps/#", "positions")])
def test_of_a_topic_of_which_nothing_passes_nothing_is_said(route: RouteEntry) -> None:
    """A route may store anything in any topic: they are all looked at. The meeting point hears of those that pass."""
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng, routes=Routes([route]))
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, rng=rng, topics=("plant",))
    network.join(left, right, "link")
    network.settle()
    for number in range(2):
        for address in ("secret/a", "/home/temp" if route.topic == "unrouted" else "fleet/7/gps/x", "plant/a"):
            left.rig.publish(address, b"%d" % number)
        network.settle(SKIPPED_MS // 250 + 4)
        shown = left.links.describe_link("link")
        assert (shown["state"], shown["fault"], shown["lag"]["messages"]) == ("open", "", 0)
        network.cut(left)
        network.settle()
    left.crash()
    network.settle()
    assert left.links.describe_link("link")["lag"]["messages"] == 0, "how far it has looked is in its log"
    assert right.values("plant") == [b"0", b"1"]
    assert not [topic.name for topic in right.rig.kernel.topics() if topic.name in ("secret", "unrouted", "positions")]


def test_what_the_other_hub_cannot_take_is_parked_with_the_reason() -> None:
    network, left, right = pair(SEND, RECEIVE)
    right.denied.add("plant/no")
    right.rig.kernel.create_topic("plant", settings=TopicSettings(max_message_bytes=1024))
    right.rig.run()
    left.rig.publish("plant/no", b"1", headers=[(b"h", b"v")])
    left.rig.publish("plant/large", bytes(2_000))
    left.rig.publish("plant/yes", b"2")
    network.settle()
    assert right.values("plant") == [b"2"]
    parked = {dict(record[4])[b"relay-address"]: record for record in right.rig.read(PARKED_TOPIC)}
    assert dict(parked[b"plant/no"][4])[b"relay-refused"].startswith(b"create_denied: ")
    assert (parked[b"plant/no"][3], dict(parked[b"plant/no"][4])[b"h"]) == (b"1", b"v")
    assert dict(parked[b"plant/large"][4])[b"relay-refused"].startswith(b"message_too_large: ")
    assert right.links.describe_link("link")["received"]["refused"] == {"create_denied": 1, "message_too_large": 1}


def test_a_message_that_has_too_many_headers_with_those_of_the_link_is_parked() -> None:
    network, left, right = pair(SEND, RECEIVE)
    left.rig.publish("plant/many", b"1", headers=[(b"", b"")] * CARRIED_HEADERS)
    left.rig.publish("plant/few", b"2")
    network.settle()
    assert right.values("plant") == [b"2"]
    [parked] = right.rig.read(PARKED_TOPIC)
    assert dict(parked[4])[b"relay-refused"].startswith(b"message_too_large: ")


def test_a_link_can_stop_where_a_message_is_refused_and_go_on() -> None:
    network, left, right = pair(SEND, {**RECEIVE, "on_refused": "stop"})
    right.denied.add("plant/no")
    left.rig.publish("plant/no", b"1")
    network.settle()
    assert left.state("link") == right.state("link") == "stopped"
    right.denied.clear()
    left.links.resume("link")
    right.links.resume("link")
    network.settle(40)
    assert right.values("plant") == [b"1"]


def test_retained_values_and_their_deletion_cross_and_the_later_one_stays() -> None:
    both = {"send": ("plant/#",), "receive": ("plant/#",)}
    network, left, right = pair(both, both)
    for hub in (left, right):
        hub.rig.publish("plant/a", hub.name.encode(), attributes=RETAIN | 2)
        network.tick(1_000)
    network.settle()
    assert retained(left, "plant/#") == retained(right, "plant/#") == {"plant/a": b"right"}
    left.rig.publish("plant/a", b"", attributes=RETAIN | 2)
    network.settle()
    assert retained(left, "plant/#") == retained(right, "plant/#") == {}


def test_what_expires_has_as_much_time_left() -> None:
    network, left, right = pair(SEND, RECEIVE)
    right.clock_apart_ms = 3_600_000
    now_ms = left.rig.world.loop.wall_ms()
    left.rig.publish("plant/a", b"1", headers=[(b"expires-at", str(now_ms + 60_000).encode())])
    network.settle()
    record, = right.rig.read("plant")
    theirs_ms = right.rig.world.loop.wall_ms() + right.clock_apart_ms
    assert 50_000 < int(dict(record[4])[b"expires-at"]) - theirs_ms <= 60_000


def test_tombstones_of_compacted_topics_cross() -> None:
    network, left, right = pair(SEND, RECEIVE)
    left.rig.kernel.create_topic("plant", settings=TopicSettings(compact=True))
    left.rig.run()
    placement = left.rig.kernel.place("plant/a")
    left.rig.kernel.append([(placement, value, b"\0", 2, 0) for value in (b"1", None)], left.rig.witness)
    left.rig.run()
    network.settle()
    assert [record[3] for record in right.rig.read("plant")] == [b"1", None]


def test_a_link_that_begins_now_leaves_out_what_was_there() -> None:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", start="now", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    left.rig.publish("plant/a", b"old")
    left.rig.world.loop.advance(1_000)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    left.rig.publish("plant/a", b"new")
    left.rig.publish("plant/fresh", b"new too")
    network.settle()
    assert right.values("plant") == [b"new", b"new too"]


def test_partitions_that_are_added_while_a_link_is_down_are_sent_from_their_start() -> None:
    """Also where the link left out what was there when it was first up."""
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", start="now", **SEND)], rng)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.publish("plant/a", b"old")
    left.rig.world.loop.advance(1_000)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    network.away.append(right)
    network.cut(right)
    network.settle()
    left.rig.kernel.change_topic("plant", partitions=8)
    left.rig.run()
    for number in range(20):
        left.rig.publish(f"plant/{number}", b"%02d" % number)
    network.away.clear()
    network.settle(12)
    assert right.values("plant") == [b"%02d" % number for number in range(20)]


def test_a_client_cannot_say_where_a_message_comes_from() -> None:
    network, left, right = pair(SEND, RECEIVE)
    forged = (right.rig.kernel.hub + bytes(16) + bytes(4) + b"\x7f" * 8 + bytes(8)) + bytes(8)
    left.rig.publish("plant/a", b"1", headers=[(ORIGIN_HEADER, forged)])
    network.settle()
    assert right.values("plant") == [b"1"]
    assert right.links.describe_link("link")["received"]["loops"] == 0


def test_a_producer_cannot_either_where_some_of_its_batch_passes() -> None:
    network, left, right = pair({"send": ("plant/a/#",)}, RECEIVE)
    topic = left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.run()
    batch = batch_of([(key, b"1", [(ORIGIN_HEADER, right.rig.kernel.hub + bytes(44))]) for key in (b"a/1", b"b/1")])
    left.rig.kernel.append_batch(topic.partition_id(0), batch, left.rig.witness)
    left.rig.run()
    network.settle()
    received = right.links.describe_link("link")["received"]
    assert (received["messages"], received["loops"]) == (1, 0)
    assert right.values("plant") == [b"1"]


def hubs_of(names: str, links: dict[str, list[str]], forward: bool) -> tuple[Network, dict[str, TestHub]]:
    """Hubs with links between pairs, named by both letters, over which everything may pass."""
    rng = random.Random(11)
    settings = {"send": ("plant/#",), "receive": ("plant/#",), "forward": forward}
    hubs = {name: TestHub(name, [LinkSettings(link, **settings) for link in links[name]], rng) for name in names}
    network = Network(*hubs.values(), rng=rng)
    for first in names:
        for link in links[first]:
            if link[0] == first:
                network.join(hubs[link[0]], hubs[link[1]], link)
    network.settle()
    return network, hubs


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "direct"])
def test_a_full_mesh_of_five_settles(forward: bool) -> None:
    names = "abcde"
    pairs = [a + b for i, a in enumerate(names) for b in names[i + 1:]]
    network, hubs = hubs_of(names, {name: [link for link in pairs if name in link] for name in names}, forward)
    for number in range(5):
        for hub in hubs.values():
            hub.rig.publish(f"plant/{number % 2}", f"{hub.name}{number}".encode())
        network.turn()
    network.settle(60)
    everything = sorted(f"{name}{number}".encode() for name in names for number in range(5))
    assert {name: hub.values("plant") for name, hub in hubs.items()} == dict.fromkeys(names, everything)


def test_a_ring_of_five_passes_everything_on_and_nothing_circulates() -> None:
    names = "abcde"
    ring = ["ab", "bc", "cd", "de", "ea"]
    network, hubs = hubs_of(names, {name: [link for link in ring if name in link] for name in names}, True)
    for hub in hubs.values():
        hub.rig.publish("plant/x", hub.name.encode())
    network.settle(60)
    everything = sorted(name.encode() for name in names)
    assert {name: hub.values("plant") for name, hub in hubs.items()} == dict.fromkeys(names, everything)
    before = {name: hub.rig.kernel.statistics()["appended_messages_total"] for name, hub in hubs.items()}
    network.settle(60)
    assert before == {name: hub.rig.kernel.statistics()["appended_messages_total"] for name, hub in hubs.items()}



def passed_on(**of_middle) -> tuple[Network, TestHub, TestHub, TestHub]:
    """What the first stores comes to the last by the middle, where its topic has another number of partitions."""
    rng = random.Random(11)
    first = TestHub("first", [LinkSettings("in", **SEND)], rng)
    middle = TestHub("middle", [LinkSettings("in", **RECEIVE),
                                LinkSettings("on", forward=True, **SEND, **of_middle)], rng)
    last = TestHub("last", [LinkSettings("on", **RECEIVE)], rng)
    for hub, partitions in ((first, 1), (middle, 8)):
        hub.rig.kernel.create_topic("plant", partitions=partitions)
        hub.rig.run()
    network = Network(first, middle, last, rng=rng)
    network.join(first, middle, "in")
    network.join(middle, last, "on")
    network.settle()
    return network, first, middle, last


def test_what_is_passed_on_from_other_partitions_comes_whole_and_once() -> None:
    network, first, middle, last = passed_on()
    for number in range(60):
        first.rig.publish(f"plant/{number % 9}", b"%02d" % number)
        if number % 20 == 10:
            network.settle(4)
            last.crash()
    network.settle(20)
    assert last.values("plant") == middle.values("plant") == [b"%02d" % number for number in range(60)]
    for key in range(9):
        came = [record[3] for record in last.rig.read("plant") if record[2] == b"%d" % key]
        assert came == sorted(came), "in the order of its key"


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("at_least", [1, 10, 30])
def test_what_lags_behind_when_a_direct_way_is_opened_comes_late_and_once(at_least: int, crashes: bool) -> None:
    """The middle hub has partitions of its own: when it stops, the last message may be there, and not the first."""
    rng = random.Random(11)
    first = TestHub("first", [LinkSettings(name, **SEND) for name in ("in", "direct")], rng)
    middle = TestHub("middle", [LinkSettings("in", **RECEIVE), LinkSettings("on", forward=True, **SEND)], rng)
    last = TestHub("last", [LinkSettings(name, **RECEIVE) for name in ("on", "direct")], rng)
    for hub, partitions in ((first, 1), (middle, 8)):
        hub.rig.kernel.create_topic("plant", partitions=partitions)
        hub.rig.run()
    network = Network(first, middle, last, rng=rng)
    network.join(first, middle, "in")
    network.join(middle, last, "on")
    network.settle()
    network.away.append(last)
    network.cut(last)
    network.settle()
    sent = [b"%02d" % number + bytes(50_000) for number in range(60)]        # a letter has few of them
    for number, value in enumerate(sent):
        first.rig.publish(f"plant/{number % 9}", value)
    network.settle()
    assert middle.values("plant") == sent
    network.away.clear()
    while last.rig.kernel.topic("plant") is None or len(last.values("plant")) < at_least:
        network.turn()
        network.tick_of(last)
        network.tick_of(middle)
    network.away.append(middle)
    network.cut(middle)
    network.settle()
    assert len(last.values("plant")) < len(sent)
    network.join(first, last, "direct")
    network.settle()
    first.rig.publish("plant/0", b"60")
    network.settle()
    if crashes:
        last.crash()
    network.away.clear()
    network.settle(20)
    assert sorted(last.values("plant")) == [*sent, b"60"]


def two_ways() -> tuple[Network, TestHub, TestHub]:
    """The first hub's messages come to the last by `left`, and could come by `right`."""
    rng = random.Random(11)
    first = TestHub("first", [LinkSettings(name, **SEND) for name in ("to-left", "to-right", "direct")], rng)
    last = TestHub("last", [LinkSettings(name, **RECEIVE) for name in ("left", "right", "direct")], rng)
    between = [TestHub(name, [LinkSettings(f"to-{name}", **RECEIVE), LinkSettings(name, forward=True, **SEND)], rng)
               for name in ("left", "right")]
    network = Network(first, last, *between, rng=rng)
    for hub in between:
        network.join(first, hub, f"to-{hub.name}")
        network.join(hub, last, hub.name)
        network.settle()
        first.rig.publish("plant/a", f"by {hub.name}".encode())
        network.settle()
    return network, first, last


def test_a_way_that_is_unlinked_is_followed_by_another() -> None:
    network, first, last = two_ways()
    last.links.unlink("left")
    network.settle()
    first.rig.publish("plant/a", b"then")
    network.settle()
    assert [record[3] for record in last.rig.read("plant")] == [b"by left", b"by right", b"then"]


def test_a_way_stays_the_way_when_the_hub_starts_anew() -> None:
    """Another one was it before: what that brought meanwhile was passed over, and is still to come by this."""
    network, first, last = two_ways()
    left, right = network.hubs[2:]
    everywhere = [f"plant/k{number}" for number in range(12)]
    for address in everywhere:
        first.rig.publish(address, b"by left")
    network.settle()
    last.links.unlink("left")
    first.rig.publish(everywhere[0], b"by right")
    network.settle()
    network.join(left, last, "left")
    network.away.append(right)
    network.cut(right)
    network.settle()
    for address in everywhere:
        first.rig.publish(address, b"late")
    network.settle()
    last.crash()
    network.away.clear()
    network.settle(20)
    assert last.values("plant").count(b"late") == len(everywhere), last.links.describe_link("right")["received"]


def test_a_link_that_is_only_joining_is_no_way() -> None:
    """Its invitation was over: what others pass on comes as before."""
    network, first, last = two_ways()
    text = first.links.invite("direct", 1)
    first.rig.run()
    network.tick(1_000)
    last.links.join(text)
    network.settle()
    first.rig.publish("plant/a", b"meanwhile")
    network.settle()
    assert last.state("direct") == "joining" and b"meanwhile" in last.values("plant")
    last.links.unlink("direct")
    network.join(first, last, "direct")
    network.settle()
    first.rig.publish("plant/a", b"then")
    network.settle()
    assert last.links.describe_link("direct")["state"] == "open"
    assert [record[3] for record in last.rig.read("plant")] == [b"by left", b"by right", b"meanwhile", b"then"]


def test_what_is_larger_than_a_frame_goes_in_parts_and_one_message_that_is_stops_the_link() -> None:
    network, left, right = pair(SEND, RECEIVE, max_frame_bytes=1 << 16)
    topic = left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.run()
    batch = batch_of([(b"k", bytes(20_000) + b"%d" % number, []) for number in range(20)])
    left.rig.kernel.append_batch(topic.partition_id(0), batch, left.rig.witness)
    left.rig.run()
    network.settle()
    assert right.values("plant") == sorted(bytes(20_000) + b"%d" % number for number in range(20))
    left.rig.publish("plant/k", bytes(100_000))
    left.rig.publish("plant/k", b"behind it")
    network.settle()
    assert left.state("link") == right.state("link") == "stopped"
    assert "more than the meeting point carries" in left.links.describe_link("link")["fault"]


def test_a_compressed_batch_of_which_some_passes_is_as_large_as_it_opens() -> None:
    network, left, right = pair({"send": ("plant/a/#",)}, RECEIVE, max_frame_bytes=1 << 16)
    topic = left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.run()
    values = [bytes(5_000) + b"%d" % number for number in range(20)]
    batch = batch_of([(b"a/1", value, []) for value in values] + [(b"b/1", b"not for them", [])], codec=4,
                     pack=zstandard.compress)
    left.rig.kernel.append_batch(topic.partition_id(0), batch, left.rig.witness)
    left.rig.run()
    network.settle(20)
    assert left.state("link") == "open", left.links.describe_link("link")["fault"]
    assert [record[3] for record in right.rig.read("plant")] == values


def behind(owed: int, choice: str, route: RouteEntry | None = None) -> tuple[Network, TestHub, TestHub]:
    """A link that was paused while retention deleted what it has not sent, but for what is owed. `route`: the way of
    these messages to their topic."""
    topic = "plant" if route is None else "things-1"
    rng = random.Random(7)
    disk = SimDisk(random.Random(1))
    left = TestHub("left", [LinkSettings("link", on_lost=choice, **SEND)], rng, owed, disk=disk,
                   store=SimStore(random.Random(2), disk.operate), routes=Routes([] if route is None else [route]),
                   settings=KernelSettings(segment_bytes=1 << 20, retention_bytes=1 << 20, recent_bytes=0))
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    left.rig.publish("plant/1", b"first")
    network.settle()
    left.links.pause("link")
    left.rig.run()
    for number in range(60):
        left.rig.publish("plant/1", bytes(64_000) + b"%d" % number)
        left.rig.world.loop.advance(1_000)
        left.rig.run()
    for _ in range(20):
        left.rig.world.loop.advance(60_000)
        left.rig.run()
    starts = [left.rig.kernel.bounds(partition)[0] for partition in left.rig.kernel.topic(topic).partition_ids()]
    assert max(starts) > 10, "retention has deleted something"
    left.links.resume("link")
    network.settle(60)
    return network, left, right


@pytest.mark.parametrize("route", [
    None, RouteEntry("plant/#", "things-1"), RouteEntry("{what}/#", "things-1", "{what}/{rest}"),
    RouteEntry("plant/{number}", "things-{number}", "{number}")])
def test_what_a_link_owes_is_kept_beyond_retention(route: RouteEntry | None) -> None:
    _, left, right = behind(1_000, "stop", route)
    assert len(right.values("plant")) == 61, left.links.describe_link("link")
    left.rig.world.loop.advance(60_000)
    left.links.handle_tick()
    left.rig.run()


def test_a_link_is_rewound_to_the_first_message_that_is_still_there() -> None:
    """Retention has deleted what came before: that has come once, and is not lost."""
    network, left, right = behind(1_000, "stop")
    left.rig.world.loop.advance(60_000)
    network.settle(60)
    kept = sum([high - start for start, high in [
        left.rig.kernel.bounds(partition) for partition in left.rig.kernel.topic("plant").partition_ids()]])
    right.links.rewind("link", "plant")
    network.settle(60)
    assert left.state("link") == right.state("link") == "open", left.links.describe_link("link")["fault"]
    assert 0 < kept < 61 and len(right.values("plant")) == 61 + kept
    assert "deleted" not in [loss["why"] for loss in left.links.describe_link("link")["sent"]["lost_ranges"]]


@pytest.mark.parametrize("choice", ["stop", "go_on"])
def test_history_that_is_lost_is_listed_on_both_sides(choice: str) -> None:
    _, left, right = behind(0, choice)
    if choice == "stop":
        assert left.state("link") == "stopped" and "no longer stored" in left.links.describe_link("link")["fault"]
        return
    came = len(right.values("plant"))
    lost, = left.links.describe_link("link")["sent"]["lost_ranges"]
    assert (lost["topic"], lost["first"], lost["count"]) == ("plant", 1, 61 - came)
    assert right.links.describe_link("link")["received"]["lost"] == 61 - came > 10


def test_rights_that_are_taken_away_hold_for_the_next_message() -> None:
    network, left, right = pair(SEND, RECEIVE)
    left.rig.publish("plant/a", b"1", b"2")
    network.settle()
    right.denied.add("plant/a")
    right.rights = object()
    left.rig.publish("plant/a", b"3")
    network.settle()
    assert right.values("plant") == [b"1", b"2"]
    assert right.links.describe_link("link")["received"]["parked"] == 1


def test_who_rewinds_a_link_leaves_the_others_where_they_are() -> None:
    """What has come over another one is on its way to the disk then: what follows it leaves no gap."""
    rng = random.Random(7)
    one, two = [TestHub(name, [LinkSettings(name, send=(f"{name}/#",))], rng) for name in ("one", "two")]
    hub = TestHub("hub", [LinkSettings(name, receive=(f"{name}/#",)) for name in ("one", "two")], rng)
    network = Network(one, two, hub, rng=rng)
    for other in (one, two):
        network.join(other, hub, other.name)
        network.settle()
        other.rig.publish(f"{other.name}/a", b"0")
        network.settle()
    letters = []

    def rewind(to: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if to is hub and not up and carried(frame):
            letters.append(frame)
            if len(letters) == 2:
                hub.links.rewind("two", "two")
        return [frame]

    for number in range(1, 4):
        one.rig.publish("one/a", b"%d" % number)
    network.change = rewind
    network.settle()
    assert len(letters) > 2 and hub.state("one") == "open", hub.links.describe_link("one")["fault"]
    assert hub.values("one") == [b"0", b"1", b"2", b"3"] and hub.values("two") == [b"0", b"0"]


def test_a_link_is_explained_without_sending() -> None:
    network, left, right = pair({"send": ("plant/#",)}, {"receive": ("plant/a/#",), "rename": ("plant/# -> there/#",)})
    assert left.links.explain("link", "plant/a/1")["out"] == {"sent": True, "taken_there": True}
    assert left.links.explain("link", "plant/b")["out"] == {"sent": True, "taken_there": False}
    assert left.links.explain("link", "other")["out"] == {"sent": False, "taken_there": False}
    assert right.links.explain("link", "plant/a/1")["in"] == {"received": True, "address_here": "there/a/1"}
    network.cut(left)
    network.turn_of(left)
    assert left.links.explain("link", "plant/a/1")["out"]["taken_there"] is None


def test_a_clock_that_is_behind_does_not_make_a_value_older() -> None:
    both = {"send": ("plant/#",), "receive": ("plant/#",)}
    network, left, right = pair(both, both)
    right.rig.world.loop.advance(3_600_000)
    right.rig.publish("plant/a", b"an hour ahead", attributes=RETAIN | 2)
    network.settle()
    assert retained(left, "plant/#") == retained(right, "plant/#") == {"plant/a": b"an hour ahead"}
    left.rig.publish("plant/a", b"after it", attributes=RETAIN | 2)
    network.settle()
    assert retained(left, "plant/#") == retained(right, "plant/#") == {"plant/a": b"after it"}


def test_an_end_and_a_value_that_cross_leave_the_same_on_both() -> None:
    both = {"send": ("plant/#",), "receive": ("plant/#",)}
    for later in ("end", "value"):
        network, left, right = pair(both, both)
        left.rig.publish("plant/a", b"first", attributes=RETAIN | 2)
        network.settle()
        for what in ("value", "end") if later == "end" else ("end", "value"):
            left.rig.world.loop.advance(5)
            right.rig.world.loop.advance(5)
            if what == "end":
                left.rig.publish("plant/a", b"", attributes=RETAIN | 2)
            else:
                right.rig.publish("plant/a", b"second", attributes=RETAIN | 2)
        network.settle()
        left.crash()
        network.settle()
        stays = {} if later == "end" else {"plant/a": b"second"}
        assert retained(left, "plant/#") == retained(right, "plant/#") == stays


def test_a_client_cannot_make_a_clock() -> None:
    both = {"send": ("plant/#",), "receive": ("plant/#",)}
    network, left, right = pair(both, both)
    forged = Marks(b"of nobody").clock(Stamp((1 << 64) - 1, b"x" * 16))
    left.rig.publish("plant/a", b"forged", headers=[forged], attributes=RETAIN | 2)
    network.settle()
    right.rig.publish("plant/a", b"after it", attributes=RETAIN | 2)
    network.settle()
    assert retained(left, "plant/#") == retained(right, "plant/#") == {"plant/a": b"after it"}


def test_a_narrow_way_carries_less_and_the_same() -> None:
    for compress, there in (("none", True), ("zstd", True), ("zstd", False)):
        network, left, right = pair({**SEND, "compress": compress}, RECEIVE)
        if not there:                                            # it speaks 1.0
            left.links.links["link"].outgoing._packs = False
        values = [b"%06d reading 21.5 of the oven" % number for number in range(500)]
        left.rig.publish("plant/a", *values)
        network.settle()
        assert right.values("plant") == values
        sent = left.links.describe_link("link")["sent"]["bytes"]
        assert (sent < 500 * 12) == (compress == "zstd" and there), sent
        assert left.links.links["link"].outgoing.unstored_bytes == 0


@pytest.mark.parametrize(("left_has", "right_has"), [(True, True), (True, False), (False, True), (False, False)])
def test_letters_are_sealed_with_aes_where_both_processors_do_that(left_has: bool, right_has: bool) -> None:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", **SEND)], rng, has_aes=left_has)
    right = TestHub("right", [LinkSettings("link", **RECEIVE)], rng, has_aes=right_has)
    network = Network(left, right, rng=rng)
    kinds: set[int] = set()

    def look(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if up and carried(frame) and frames.decode(frame).topic:
            kinds.add(frames.decode(frame).payload[0])
        return [frame]

    network.change = look
    network.join(left, right, "link")
    network.settle()
    left.rig.publish("plant/a", b"1", b"2")
    network.settle()
    assert right.values("plant") == [b"1", b"2"]
    assert kinds == {SEALED_AES if left_has and right_has else SEALED}


@pytest.mark.parametrize(("says", "has"), [
    ("flags\t\t: fpu aes avx2\n", True), ("Features\t: fp asimd aes pmull\n", True),
    ("flags : fpu vaes\nmodel name: aes\n", False), (None, False)])
def test_a_processor_does_aes_where_the_system_says_so(says: str | None, has: bool, tmp_path: Path) -> None:
    if says is not None:
        (tmp_path / "cpuinfo").write_text(says)
    assert has_aes(tmp_path / "cpuinfo") == has


def test_a_session_that_is_used_up_is_followed_by_another_while_messages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_BYTES", 2_000)
    network, left, right = pair(SEND, RECEIVE)
    values = []
    for number in range(60):                 # something is on its way whenever time passes
        values.append(b"%04d" % number + bytes(200))
        left.rig.publish("plant/a", values[-1])
        network.tick()
        network.turn()
    assert len(right.values("plant")) > 50
    network.settle(4)
    assert right.values("plant") == values
    assert 3 < left.links.describe_link("link")["sessions"] < 60
    assert not left.links.links["link"].counts.faults and not right.links.links["link"].counts.faults


def test_a_link_that_is_down_says_for_how_long_messages_wait() -> None:
    network, left, right = pair(SEND, RECEIVE)
    network.away.append(right)
    network.cut(right)
    network.settle(2)
    assert left.links.describe_link("link")["lag"] == {"messages": 0, "ms": 0, "bytes_on_their_way": 0}
    left.rig.publish("plant/a", b"1")
    for _ in range(6):
        network.tick(10_000)
    lag = left.links.describe_link("link")["lag"]
    assert lag["messages"] == 1 and 60_000 <= lag["ms"] <= 62_000
    network.away.clear()
    network.settle(12)
    assert left.links.describe_link("link")["lag"] == {"messages": 0, "ms": 0, "bytes_on_their_way": 0}


def test_a_way_that_takes_long_for_each_letter_is_no_silent_one() -> None:
    network, left, right = pair(SEND, RECEIVE)
    waiting: list[bytes] = []

    def slow(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if hub is right and not up and carried(frame) and len(frame) > 10_000:
            waiting.append(frame)
            return []
        return [frame]

    network.change = slow
    for number in range(12):
        left.rig.publish("plant/a", b"%02d" % number + bytes(100_000))
    network.settle(2)
    assert len(waiting) > 1
    sessions = left.links.describe_link("link")["sessions"]
    while waiting:
        network.tick(20_000)
        right.links.handle_frame(waiting.pop(0))
        network.settle(1)
    assert [value[:2] for value in right.values("plant")] == [b"%02d" % number for number in range(12)]
    assert left.links.describe_link("link")["sessions"] == sessions, "nothing began anew"
