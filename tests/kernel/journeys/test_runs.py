"""Many messages to which the same happens are one event, and each of them is found as if it had its own."""
from __future__ import annotations

from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.journeys.trail import TOPIC, event_of
from gatehouse.kernel.message import Leased, Origin
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.compression import GZIP
from gatehouse.kernel.settings import JourneySettings
from gatehouse.tracing.context import HEADER, read
from gatehouse.tracing.events import Event, Kind
from tests.kernel.batches import batch_of
from tests.kernel.journeys.test_journeys import EDGE, Taker, rig
from tests.kernel.packers import gzip
from tests.kernel.rig import Rig

MANY = JourneySettings(rate=1.0, followed_per_second=1_000_000)


def told(hub: Rig) -> list[Event]:
    """Events as they are stored."""
    hub.world.advance(1_000)
    return [event for record in hub.read(TOPIC) if (event := event_of(record)) is not None]


def journey(hub: Rig, message_id: int) -> Journey:
    found: list[Journey] = []
    hub.kernel.looking.journey(message_id, "/", lambda journey, error: found.append(journey))
    hub.run()
    return found[0]


def names(hub: Rig, message_id: int) -> list[str]:
    return [Kind(event.kind).name for event in journey(hub, message_id).events]


def found(hub: Rig, what: str, value: bytes, **more: int) -> list[int]:
    answers: list[list[Event]] = []
    hub.kernel.looking.find(what, value, "/", 1_000, lambda events, error: answers.append(events), **more)
    hub.run()
    return [event.message_id for event in answers[0]]


def test_what_happens_to_a_burst_is_an_event_for_each_step() -> None:
    hub = rig(MANY)
    hub.kernel.speaker.speaks(EDGE)
    places = hub.publish("orders/1", *[b"x"] * 100)
    taker = Taker(hub)
    taker.pop(100)
    taker.group.ack(taker.handles())
    assert [(Kind(event.kind), event.rows) for event in told(hub)] == [
        (Kind.STORED, 100), (Kind.HANDED_OUT, 100), (Kind.ACKED, 100)]
    for partition_id, offset, message_id in (places[0], places[57], places[99]):
        stored, handed, acked = journey(hub, message_id).events
        assert {event.message_id for event in (stored, handed, acked)} == {message_id}
        assert {event.offset for event in (stored, handed, acked)} == {offset}
        assert (stored.partition_id, stored.user, stored.rows) == (partition_id, "edge", 0)
        assert (handed.attempt, acked.attempt) == (1, 1)
    assert hub.kernel.statistics()["journey_events_total"] == 300


def test_each_message_of_a_run_has_a_trace_of_its_own_by_which_it_is_found() -> None:
    hub = rig(MANY)
    places = hub.publish("orders/1", *[b"x"] * 50)
    hub.world.advance(1_000)
    contexts = [read(dict(record[4])[HEADER]) for record in hub.read("orders")]
    assert len({context.trace_id for context in contexts if context is not None}) == 50
    for place, context in zip(places, contexts, strict=True):
        assert context is not None and context.sampled and context.span_id != bytes(8)
        assert found(hub, "trace", context.trace_id) == [place[2]]


def test_it_is_found_by_key_and_address_and_time() -> None:
    hub = rig(MANY)
    first = [place[2] for place in hub.publish("orders/1", *[b"x"] * 20)]
    hub.world.advance(10_000)
    between = hub.world.loop.wall_ms()
    hub.world.advance(10_000)
    second = [place[2] for place in hub.publish("orders/1", *[b"x"] * 20)]
    hub.publish("orders/2", b"x")
    hub.world.advance(10_000)                                    # into the store
    for what, value in (("key", b"1"), ("address", b"orders/1")):
        assert found(hub, what, value) == first + second
        assert found(hub, what, value, last_ms=between) == first
        assert found(hub, what, value, first_ms=between) == second
    assert found(hub, "key", b"3") == []


def test_a_message_of_a_run_that_fails_goes_its_own_way() -> None:
    hub = rig(MANY)
    ids = [place[2] for place in hub.publish("orders/1", *[b"x"] * 5)]
    taker = Taker(hub)
    taker.pop(5)
    handles = taker.handles()
    taker.group.release(handles[2:3], 0)
    taker.group.ack(handles[:2] + handles[3:])
    hub.run()
    taker.pop(5)
    taker.group.ack(taker.handles())
    hub.world.advance(1_000)
    assert names(hub, ids[2]) == ["STORED", "HANDED_OUT", "RELEASED", "HANDED_OUT", "ACKED"]
    assert [event.attempt for event in journey(hub, ids[2]).events] == [0, 1, 1, 2, 2]
    for other in (ids[1], ids[3]):
        assert names(hub, other) == ["STORED", "HANDED_OUT", "ACKED"]


def test_a_run_is_followed_into_queues() -> None:
    hub = rig(MANY)
    queue = hub.kernel.groups.declare_queue("bills", QueueSettings())
    hub.kernel.groups.bind("orders/#", queue)
    hub.run()
    hub.publish("orders/1", b"x")
    ids = [place[2] for place in hub.publish("orders/1", *[b"x"] * 10)]
    group = hub.kernel.groups.queue_group(queue)
    taken: list[Leased] = []
    group.pop(11, 1_000, taken.extend, EDGE)
    hub.run()
    group.ack([message[:3] for message in taken[4:9]])
    hub.world.advance(1_000)
    assert names(hub, ids[5]) == ["STORED", "ROUTED", "HANDED_OUT", "ACKED"]
    assert names(hub, ids[9]) == ["STORED", "ROUTED", "HANDED_OUT", "LEASE_OVER"]


def test_one_of_a_hundred_of_a_long_burst_is_one_event() -> None:
    hub = rig(JourneySettings(rate=0.01, followed_per_second=1_000_000))
    ids = [place[2] for place in hub.publish("orders/1", *[b"x"] * 5_000)]
    hub.world.advance(1_000)
    events = told(hub)
    followed = [event.nth(at).message_id for event in events for at in range(max(1, event.rows))]
    assert 25 <= len(followed) <= 100 and len(events) <= 16 and set(followed) <= set(ids)
    with_trace = [record[6] for record in hub.read("orders") if HEADER in dict(record[4])]
    assert with_trace == followed


def test_when_few_messages_come_again_the_gap_is_that_of_few() -> None:
    hub = rig(JourneySettings(rate=0.01, followed_per_second=1_000_000))
    for _ in range(100):
        hub.publish("orders/1", *[b"x"] * 5_000)
        hub.world.advance(10)
    hub.world.advance(5_000)
    before = hub.kernel.statistics()["journey_events_total"]
    for _ in range(400):
        hub.publish("orders/1", b"x")
        hub.world.advance(100)
    assert hub.kernel.statistics()["journey_events_total"] > before


def test_senders_and_places_are_told_apart() -> None:
    hub = rig(MANY)
    one, other = hub.kernel.place("orders/1"), hub.kernel.place("orders/2")
    hub.kernel.speaker.speak_in_turn([3, 6], [EDGE, Origin("amqp", "desk")])
    hub.kernel.append([(where, b"x", b"\0", 2, 0) for where in (one, other, one, other, one, other)], hub.witness,
                      positions=True)
    hub.run()
    ids = [position[2] for position in hub.witness.stored[-1].positions]
    said = [(event.user, event.address) for message_id in ids for event in journey(hub, message_id).events]
    assert said == [("edge", "orders/1"), ("edge", "orders/2"), ("edge", "orders/1"), ("desk", "orders/2"),
                    ("desk", "orders/1"), ("desk", "orders/2")]


def test_a_start_goes_on_with_runs() -> None:
    hub = rig(MANY)
    ids = [place[2] for place in hub.publish("orders/1", *[b"x"] * 30)]
    for lose_index in (False, True):
        hub.restart(lose_index=lose_index)
        hub.world.advance(10_000)
        assert names(hub, ids[17]) == ["STORED"]
    taker = Taker(hub)
    taker.pop(30)
    taker.group.ack(taker.handles())
    hub.world.advance(1_000)
    assert names(hub, ids[17]) == ["STORED", "HANDED_OUT", "ACKED"]
    hub.restart()
    hub.world.advance(10_000)
    assert names(hub, ids[17]) == ["STORED", "HANDED_OUT", "ACKED"]
    assert len(hub.kernel.journeys.following) == 30


def test_beyond_what_may_be_made_anew_a_batch_stays_and_its_records_are_one_event() -> None:
    hub = rig(MANY)
    topic = hub.kernel.create_topic("orders")
    partition_id = topic.partition_id(0)
    theirs = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
    batches = [batch_of([(b"k", b"a", ((HEADER, theirs),))] * 100, codec=codec, pack=pack)
               for codec, pack in ((0, bytes), (0, bytes), (GZIP, gzip))]
    hub.kernel.speaker.speaks(EDGE)
    for number, batch in enumerate(batches):
        hub.kernel.append_batch(partition_id, batch, hub.witness, number)
    hub.run()
    events = told(hub)
    assert [event.rows for event in events] == [0] * 100 + [100] * 2
    record = hub.read("orders")[250]
    seen = journey(hub, record[6])
    assert [(event.user, event.offset, event.trace_id) for event in seen.events] == [("edge", 250, b"")]
    assert seen.record is not None and dict(seen.record[4])[HEADER] == theirs


def test_what_came_with_a_correlation_id_or_a_trace_is_told_of_alone() -> None:
    hub = rig(MANY)
    place = hub.kernel.place("orders/1")
    theirs = [b"00-%032x-%016x-01" % (number + 1, number + 1) for number in range(4)]
    headers = [[(b"correlation-id", b"%d" % number)] for number in range(4)]
    headers += [[(HEADER, context)] for context in theirs]
    hub.kernel.append([(place, b"x", encode_headers(each), 2, 0) for each in headers], hub.witness, positions=True)
    hub.run()
    ids = [position[2] for position in hub.witness.stored[-1].positions]
    hub.world.advance(1_000)
    for number in range(4):
        assert found(hub, "correlation", b"%d" % number) == [ids[number]]
        assert found(hub, "trace", bytes.fromhex("%032x" % (number + 1))) == [ids[4 + number]]
    assert [event.rows for event in told(hub)] == [0] * 8
    kept = [dict(record[4])[HEADER] for record in hub.read("orders")[4:]]
    assert kept == theirs


def test_many_that_are_followed_apart_are_found_among_each_other() -> None:
    hub = rig(MANY)
    ids = [hub.publish(f"orders/{number}", b"x")[0][2] for number in range(300)]
    hub.world.advance(10_000)
    assert [names(hub, message_id) for message_id in ids[::37]] == [["STORED"]] * 9
    assert found(hub, "key", b"211") == [ids[211]]
