"""What is recorded of messages: from the start of those that are followed, from the first error on of all others."""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.background import LIVE_MS, LOOK_MS
from gatehouse.kernel.errors import InvalidRecord
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.journeys.looking import SKEW_MS
from gatehouse.kernel.journeys.trail import MAX_CHUNKS, META, PREFIX, TOPIC, WRITE_MS, event_of, of_id, of_message
from gatehouse.kernel.message import Leased, Origin, When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.compression import GZIP
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.write.validating import OPEN_HERE_BYTES
from gatehouse.tracing.context import HEADER
from gatehouse.tracing.events import Event, Kind
from tests.kernel.batches import batch_of, encode_record, wrap
from tests.kernel.packers import gzip, stored
from tests.kernel.rig import Rig

ALL = JourneySettings(rate=1.0)
NONE = JourneySettings(rate=0.0)
EDGE = Origin("http", "edge", "", "192.0.2.7:5000")


def rig(journeys: JourneySettings | None, **more) -> Rig:
    return Rig(routes=Routes((), ROUTES), journeys=journeys, **more)


def events(hub: Rig) -> list[Event]:
    hub.world.advance(1_000)
    if hub.kernel.topic(TOPIC) is None:
        return []
    return [event.nth(at) for record in hub.read(TOPIC) if (event := event_of(record)) is not None
            for at in range(max(1, event.rows))]


def kinds(hub: Rig, message_id: int | None = None) -> list[str]:
    return [Kind(event.kind).name for event in events(hub) if message_id in (None, event.message_id)]


def found(hub: Rig, message_id: int) -> list[str]:
    answers: list[list[tuple[int, Event]]] = []
    hub.kernel.trail.find(of_id(message_id), of_message(message_id), 100, lambda events, error: answers.append(events))
    hub.run()
    return [Kind(event.kind).name for _, event in answers[0]]


def looked_for(hub: Rig, what: str, value: bytes, tenant: str) -> list[Event]:
    answers: list[list[Event]] = []
    hub.kernel.looking.find(what, value, tenant, 10, lambda told, error: answers.append(told))
    hub.run()
    return answers[0]


class Taker:
    def __init__(self, hub: Rig, group: str = "work", topic: str = "orders", **settings) -> None:
        self.hub = hub
        hub.kernel.groups.define(group, GroupSettings(retry=Retry(delays_ms=(0,)), **settings))
        existing = hub.kernel.topic(topic)
        assert existing is not None
        self.group = hub.kernel.groups.over(group, existing, "earliest")
        self.taken: list[Leased] = []

    def pop(self, count: int = 10) -> list[Leased]:
        self.taken = []
        self.group.pop(count, 1_000, self.taken.extend, EDGE)
        self.hub.run()
        return self.taken

    def handles(self):
        return [message[:3] for message in self.taken]


def test_a_message_that_is_followed_is_recorded_step_by_step():
    hub = rig(ALL)
    hub.kernel.speaker.speaks(EDGE)
    (partition_id, offset, message_id), = hub.publish("orders/1", b"x")
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    hub.run()
    stored, handed, acked = events(hub)
    assert [stored.kind, handed.kind, acked.kind] == [Kind.STORED, Kind.HANDED_OUT, Kind.ACKED]
    assert {event.message_id for event in (stored, handed, acked)} == {message_id}
    assert (stored.partition_id, stored.offset, stored.address, stored.user, stored.peer, stored.key) == (
        partition_id, offset, "orders/1", "edge", "192.0.2.7:5000", b"1")
    assert (handed.group, handed.attempt, handed.user) == ("work", 1, "edge")
    assert found(hub, message_id) == ["STORED", "HANDED_OUT", "ACKED"]


def test_events_are_no_live_messages_that_background_work_would_yield_to() -> None:
    hub = rig(ALL)
    hub.publish("orders/1", b"x")
    hub.world.advance(LOOK_MS)
    assert hub.kernel.background.yields()
    hub.world.advance(LIVE_MS)
    assert not hub.kernel.background.yields()
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    hub.run()
    hub.world.advance(LOOK_MS)
    assert not hub.kernel.background.yields()
    assert kinds(hub) == ["STORED", "HANDED_OUT", "ACKED"]


def test_a_trace_that_it_is_given_has_no_state_of_another() -> None:
    hub = rig(ALL)
    hub.publish("orders/1", b"x", headers=[(b"tracestate", b"theirs=1"), (b"a", b"b")])
    hub.publish("orders/1", b"y", headers=[(HEADER, b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"),
                                           (b"tracestate", b"theirs=1")])
    given, kept = [[name for name, _ in record[4]] for record in hub.read("orders")]
    assert given == [b"a", HEADER] and kept == [HEADER, b"tracestate"]


def test_it_is_given_a_trace_where_it_has_none_and_keeps_the_one_that_it_has():
    hub = rig(ALL)
    theirs = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
    hub.publish("orders/1", b"x")
    hub.publish("orders/1", b"y", headers=[(HEADER, theirs)])
    mine, kept = [dict(record[4])[HEADER] for record in hub.read("orders")]
    assert mine is not None and mine.startswith(b"00-") and mine.endswith(b"-01") and kept == theirs
    assert [event.trace_id.hex() for event in events(hub)] == [mine.split(b"-")[1].decode(), "ab" * 16]


def test_what_nobody_follows_costs_no_event_and_no_topic():
    for settings in (NONE, None, JourneySettings(enabled=False)):
        hub = rig(settings)
        hub.publish("orders/1", b"x")
        taker = Taker(hub)
        taker.pop()
        taker.group.ack(taker.handles())
        assert events(hub) == [] and hub.kernel.topic(TOPIC) is None


def test_a_message_that_fails_is_recorded_from_its_first_error_on():
    hub = rig(NONE)
    first, second = (position[2] for position in hub.publish("orders/1", b"x", b"y"))
    taker = Taker(hub)
    taker.pop(1)
    taker.group.release(taker.handles(), 0)
    taker.pop(2)
    taker.group.ack(taker.handles())
    assert kinds(hub, first) == ["RELEASED", "HANDED_OUT", "ACKED"] and kinds(hub, second) == []
    assert found(hub, first) == ["RELEASED", "HANDED_OUT", "ACKED"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_message_that_failed_is_found_by_what_is_known_of_it_once_it_is_at_hand_again(dies: bool) -> None:
    hub = rig(NONE)
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = encode_headers([(b"traceparent", f"00-{trace}-b7ad6b7169203331-00".encode()),
                              (b"correlation-id", b"c-1")])
    place = hub.kernel.place("orders/line1/7")
    hub.kernel.append([(place, b"x", headers, 0, 0), (hub.kernel.place("orders/2"), b"y", b"\x00", 0, 0)], hub.witness,
                      "m", positions=True)
    hub.run()
    message_id = hub.witness.stored[-1].positions[0][2]
    taker = Taker(hub, max_attempts=1 if dies else 3)
    taker.pop(2)
    taker.group.ack([message[:3] for message in taker.taken if message[3] != message_id])
    taker.group.release([message[:3] for message in taker.taken if message[3] == message_id], 0)
    hub.run()
    if not dies:
        taker.pop()
        taker.group.release(taker.handles(), 0)           # a second error says it no more
        hub.run()
    events(hub)
    for what, value in (("address", b"orders/line1/7"), ("key", b"line1/7"), ("trace", bytes.fromhex(trace)),
                        ("correlation", b"c-1")):
        assert [(Kind(event.kind).name, event.message_id) for event in looked_for(hub, what, value, "/")] == [
            ("GIVEN_UP" if dies else "HANDED_OUT", message_id)], what
        assert what == "trace" or looked_for(hub, what, value, "red") == []
    assert [event.address for event in events(hub) if event.address] == ["orders/line1/7"]


@pytest.mark.parametrize("together", [False, True])
def test_a_producers_batch_that_is_refused_only_on_another_thread_is_told_of(together: bool):
    hub = rig(NONE)
    partition_id = hub.kernel.create_topic("orders", partitions=1).partition_id(0)
    batch = wrap(gzip(encode_record(1, None, random.Random(7).randbytes(OPEN_HERE_BYTES))), 1, codec=GZIP)
    hub.kernel.speaker.speaks(EDGE)
    if together:
        hub.kernel.append_batches([(partition_id, batch)], hub.witness, "b")
    else:
        hub.kernel.append_batch(partition_id, batch, hub.witness, "b")
    hub.kernel.speaker.speaks(Origin("mqtt", "another"))
    hub.run()
    assert isinstance(hub.witness.stored[0].error, InvalidRecord)
    told, = looked_for(hub, "told-user", b"edge", "/")
    assert (told.kind, told.address, told.reason, told.door) == (Kind.REFUSED, "orders", InvalidRecord.code, "http")


def test_a_dead_letter_is_followed_into_its_queue_and_back():
    hub = rig(NONE)
    (_, _, message_id), = hub.publish("orders/1", b"x")
    taker = Taker(hub, max_attempts=2)
    for _ in range(2):
        taker.pop()
        taker.group.release(taker.handles(), 0)
        hub.run()
    letters = hub.kernel.groups.queue("$dead-letters/work")
    assert letters is not None
    record, = hub.read_partition(letters.first_partition_id)
    hub.kernel.groups.redrive(letters, [record])
    hub.run()
    taker.pop()
    taker.group.ack(taker.handles())
    assert kinds(hub, message_id) == ["RELEASED", "HANDED_OUT", "GIVEN_UP", "REDRIVEN", "HANDED_OUT", "ACKED"]
    given_up = next(event for event in events(hub) if event.kind == Kind.GIVEN_UP)
    assert (given_up.reason, given_up.attempt) == ("attempts", 2)


def test_a_lease_whose_time_is_up_is_told():
    hub = rig(ALL)
    (_, _, message_id), = hub.publish("orders/1", b"x")
    taker = Taker(hub)
    taker.pop()
    hub.world.advance(2_000)
    assert kinds(hub, message_id) == ["STORED", "HANDED_OUT", "LEASE_OVER"]


def test_events_use_up_no_message_id():
    hub = rig(ALL)
    ids = [hub.publish("orders/1", b"x")[0][2] for _ in range(3)]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]


def test_queues_that_it_enters_are_told_and_it_is_followed_there():
    hub = rig(ALL)
    queue = hub.kernel.groups.declare_queue("bills", QueueSettings())
    hub.kernel.groups.bind("orders/#", queue)
    hub.run()
    (_, _, message_id), = hub.publish("orders/1", b"x")
    group = hub.kernel.groups.queue_group(queue)
    taken: list[Leased] = []
    group.pop(1, 1_000, taken.extend, EDGE)
    hub.run()
    group.ack([taken[0][:3]])
    assert kinds(hub, message_id) == ["STORED", "ROUTED", "HANDED_OUT", "ACKED"]
    assert [event.group for event in events(hub)][2:] == ["$queue/bills"] * 2


def test_a_topic_with_a_rate_of_its_own():
    hub = rig(JourneySettings(rate=0.0, topics={"orders": 1.0}))
    for _ in range(3):
        hub.publish("orders/1", b"x")
        hub.publish("plant/1", b"x")
    assert [event.address for event in events(hub)] == ["orders/1"] * 3


def test_of_many_messages_some_are_followed():
    hub = rig(JourneySettings(rate=0.1))
    for _ in range(20):
        hub.publish("orders/1", *[b"x"] * 50)
        hub.world.advance(100)
    assert 80 <= len(events(hub)) <= 120


def test_a_burst_of_messages_is_not_followed_all_at_once():
    hub = rig(JourneySettings(rate=1.0, followed_per_second=50))
    hub.publish("orders/1", *[b"x"] * 200)
    assert kinds(hub) == ["STORED"] * 5
    hub.publish("orders/1", *[b"x"] * 200)
    assert kinds(hub) == ["STORED"] * 10


def test_the_last_error_of_a_message_stays_whatever_the_others_took():
    hub = rig(JourneySettings(rate=0.0, errors_per_minute=8))
    (_, _, first), = hub.publish("orders/1", b"x")
    taker = Taker(hub)
    for _ in range(16):
        taker.pop()
        taker.group.release(taker.handles())
        hub.run()
    (_, _, second), = hub.publish("orders/2", b"y")
    taker.pop()
    taker.group.reject(taker.handles())
    hub.run()
    assert kinds(hub, first)[0] == "RELEASED" and kinds(hub, first)[-1] == "GIVEN_UP"
    assert kinds(hub, second) == ["GIVEN_UP"]                      # the one that failed so often left room for it
    assert sum(event.number for event in events(hub)) > 20         # what is missing is said


def test_what_is_told_of_clients_is_found_by_user_client_id_and_address():
    hub = rig(NONE)
    recorder = hub.kernel.journeys
    assert recorder is not None
    desk = Origin("mqtt", "ada", "desk", "192.0.2.7:5000")
    recorder.on_client(Kind.REFUSED, desk, "red", "shut/1", "not_authorized")
    recorder.on_client(Kind.CONNECTED, desk, "/", "", "")
    hub.world.advance(1_000)
    found: list[list[Event]] = []
    for what, value, tenant in (("told-user", b"ada", "red"), ("told-address", b"shut/1", "red"),
                                ("told-client", b"desk", "/"), ("told-address", b"shut/1", "/")):
        hub.kernel.looking.find(what, value, tenant, 10, lambda events, error: found.append(events))
        hub.run()
    names = [[Kind(event.kind).name for event in each] for each in found]
    assert names == [["REFUSED"], ["REFUSED"], ["CONNECTED"], []]
    assert (found[0][0].reason, found[0][0].tenant, found[0][0].message_id) == ("not_authorized", "red", 0)
    hub.restart()
    for number in range(3_000):                                    # a flood of them is counted
        assert hub.kernel.journeys is not None
        hub.kernel.journeys.on_client(Kind.CONNECTED, desk, "/", f"{number}", "")
    assert hub.kernel.journeys.left_out == 2_000


def test_errors_have_a_budget_and_what_is_left_out_is_counted():
    hub = rig(JourneySettings(rate=0.0, errors_per_minute=3))
    ids = [position[2] for position in hub.publish("orders/1", *[b"x"] * 5)]
    taker = Taker(hub)
    taker.pop()
    taker.group.release(taker.handles(), 0)
    taker.pop()
    taker.group.ack(taker.handles())
    assert kinds(hub, ids[0]) == ["RELEASED", "ACKED"] and kinds(hub, ids[4]) == []
    assert next(event for event in events(hub) if event.kind == Kind.ACKED).number == 1      # it was handed out again
    assert hub.kernel.statistics()["journey_events_left_out_total"] == 5


def test_each_message_that_dies_is_recorded_or_counted_and_none_is_both():
    hub = rig(JourneySettings(rate=0.0, errors_per_minute=7))
    for minute in range(3):
        hub.publish(f"orders/{minute}", *[b"x"] * 20)
        taker = Taker(hub)
        taker.pop(20)
        taker.group.reject(taker.handles())
        hub.world.advance(60_000)
    assert kinds(hub).count("GIVEN_UP") == 3 * 7 and hub.kernel.statistics()["journey_events_left_out_total"] == 3 * 13


def test_what_cannot_be_stored_is_counted():
    hub = rig(NONE)
    hub.publish("orders/1", b"x", b"y")
    taker = Taker(hub)
    taker.pop()
    assert hub.kernel.journeys is not None
    hub.kernel.journeys.stop()                              # the topic is not there yet, and is not made any more
    taker.group.release(taker.handles(), 0)
    assert kinds(hub) == [] and hub.kernel.statistics()["journey_events_left_out_total"] == 2


def test_an_error_of_a_message_whose_id_cannot_be_found_is_counted():
    hub = rig(NONE)
    hub.publish("orders/1", b"x")
    taker = Taker(hub)
    taker.pop()
    assert hub.kernel.journeys is not None
    hub.kernel.journeys._id_of = lambda partition_id, offset: -1
    taker.group.release(taker.handles(), 0)
    assert kinds(hub) == [] and hub.kernel.statistics()["journey_events_left_out_total"] == 1


def test_a_start_goes_on_and_finds_what_was_before_with_its_index_or_without():
    hub = rig(ALL)
    (_, _, message_id), = hub.publish("orders/1", b"x")
    for lose_index in (False, True, False):
        hub.restart(lose_index=lose_index)
        hub.run()
        assert found(hub, message_id) == ["STORED"]
        hub.world.advance(10_000)                            # into the store
        assert found(hub, message_id) == ["STORED"]
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    hub.world.advance(1_000)
    assert found(hub, message_id) == ["STORED", "HANDED_OUT", "ACKED"]


def test_an_event_takes_some_two_hundred_bytes_with_its_index():
    hub = rig(ALL)
    before = hub.kernel.statistics()["appended_bytes_total"]
    hub.publish("orders/line1/temp", b"")
    one = hub.kernel.statistics()["appended_bytes_total"] - before
    assert one < 300


def test_no_more_are_followed_in_a_second_than_the_settings_say():
    hub = rig(JourneySettings(rate=1.0, followed_per_second=30, topics={"orders": 1.0}))
    hub.publish("plant/1", *[b"x"] * 10)
    hub.publish("orders/1", *[b"x"] * 10)
    assert [event.address for event in events(hub)] == ["plant/1"] * 3 + ["orders/1"] * 10
    hub.publish("plant/1", b"x")
    assert len(events(hub)) == 14


def test_a_message_that_waits_for_its_time_is_followed_from_then_on():
    hub = rig(NONE)
    placement = hub.kernel.place("orders/1")
    hub.kernel.schedule([(placement, b"x", encode_headers([]), 2, 0)], [When(delay_ms=5_000)], hub.witness, "later")
    hub.run()
    message_id = hub.witness.stored[-1].positions[0][2]
    hub.world.advance(6_000)
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    assert kinds(hub, message_id) == ["ACCEPTED", "FELL_DUE", "HANDED_OUT", "ACKED"]
    assert found(hub, message_id) == ["ACCEPTED", "FELL_DUE", "HANDED_OUT", "ACKED"]


@pytest.mark.parametrize(("codec", "pack"), [(0, bytes), (GZIP, gzip)], ids=["plain", "gzip"])
def test_a_record_of_a_producers_batch_that_is_followed_has_a_trace(codec: int, pack: Callable[[bytes], bytes]) -> None:
    """Whatever reads it finds the trace id of its journey."""
    hub = rig(ALL)
    topic = hub.kernel.create_topic("orders")
    hub.kernel.speaker.speaks(EDGE)
    theirs = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
    hub.kernel.append_batch(topic.partition_id(0), batch_of(
        [(b"k", b"a", ()), (b"l", b"b", ((HEADER, theirs), (b"correlation-id", b"c")))], 7, 0, codec, pack),
        hub.witness, 1)
    hub.run()
    given, kept = [dict(record[4])[HEADER] for record in hub.read("orders")]
    assert given is not None and given.endswith(b"-01") and kept == theirs
    first, second = events(hub)
    assert (first.trace_id.hex(), first.key, first.user, first.offset) == (
        given.split(b"-")[1].decode(), b"k", "edge", 0)
    assert (second.trace_id.hex(), second.correlation_id, second.offset) == ("ab" * 16, b"c", 1)
    hub.kernel.append_batch(topic.partition_id(0), batch_of(
        [(b"k", b"a", ()), (b"l", b"b", ((HEADER, theirs), (b"correlation-id", b"c")))], 7, 0, codec, pack),
        hub.witness, 2)
    hub.run()
    assert len(hub.read("orders")) == 2, "a repeated batch is known by its sequence, whatever was added to it"


def test_of_a_topic_that_is_not_followed_whole_records_stay_as_they_were_sent() -> None:
    hub = rig(JourneySettings(rate=0.5, followed_per_second=1_000))
    topic = hub.kernel.create_topic("orders")
    hub.kernel.speaker.speaks(EDGE)
    sent = [(b"k%d" % number, b"a", ((b"unit", b"C"),)) for number in range(100)]
    batch = batch_of(sent)
    hub.kernel.append_batch(topic.partition_id(0), batch, hub.witness, 1)
    hub.run()
    assert [(record[2], record[4]) for record in hub.read("orders")] == [(key, headers) for key, _, headers in sent]
    followed = events(hub)
    assert 30 < len(followed) < 70
    assert {event.key for event in followed} <= {key for key, _, _ in sent}, "and they are found all the same"


def test_who_sent_a_batch_is_told_though_it_entered_later() -> None:
    """Large ones are opened on another thread, and meanwhile others speak."""
    hub = rig(ALL)
    topic = hub.kernel.create_topic("orders")
    hub.kernel.speaker.speaks(EDGE)
    hub.kernel.append_batch(topic.partition_id(0), batch_of(
        [(b"k", bytes(1 << 20), ())] * 3, codec=GZIP, pack=stored), hub.witness, 1)
    hub.kernel.speaker.speaks(Origin("mqtt", "other"))
    hub.run()
    assert {event.user for event in events(hub)} == {"edge"}


def test_packing_batches_again_has_a_bound() -> None:
    """Beyond it they are followed, and their records stay as they came."""
    hub = rig(ALL)
    topic = hub.kernel.create_topic("orders")
    for at in range(3):
        hub.kernel.append_batch(topic.partition_id(0), batch_of([(b"k", bytes(50_000), ())], codec=GZIP, pack=gzip),
                                hub.witness, at)
    hub.run()
    assert [HEADER in dict(record[4]) for record in hub.read("orders")] == [True, False, False]
    assert [event.kind for event in events(hub)] == [Kind.STORED] * 3
    hub.world.advance(1_000)
    hub.kernel.append_batch(topic.partition_id(0), batch_of([(b"k", bytes(50_000), ())], codec=GZIP, pack=gzip),
                            hub.witness, 4)
    hub.run()
    assert HEADER in dict(hub.read("orders")[3][4])


ASKER = Origin("http", "edge", "", "192.0.2.7:5000", traces=True)
MARKED = [(b"x-trace", b"always")]
SAMPLED, PASSED_OVER = ([(HEADER, b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + flags)] for flags in (b"-01", b"-00"))


@pytest.mark.parametrize(("headers", "origin", "is_followed"), [
    (MARKED, ASKER, True), (MARKED, EDGE, False), (SAMPLED, ASKER, True), (SAMPLED, EDGE, False),
    (PASSED_OVER, ASKER, False), ([(b"x-trace", b"now")], ASKER, False), ([*PASSED_OVER, *MARKED], ASKER, True),
    ([(b"x-trace", b"no"), *MARKED], ASKER, False), ([(b"x-trace", None)], ASKER, False),
    ([(HEADER, b"00-garbage-01")], ASKER, False), ([(HEADER, bytes(100_000))], ASKER, False)])
@pytest.mark.parametrize("comes", ["alone", "once", "batch"])
def test_a_sender_with_the_right_has_a_message_followed(headers: list[tuple[bytes, bytes | None]], origin: Origin,
                                                        is_followed: bool, comes: str) -> None:
    hub = rig(NONE)
    topic = hub.kernel.create_topic("orders")
    hub.kernel.speaker.speaks(origin)
    if comes == "batch":
        hub.kernel.append_batch(topic.partition_id(0), batch_of([(b"1", b"a", ()), (b"1", b"b", tuple(headers))]),
                                hub.witness, 1)
    else:
        placement = hub.kernel.place("orders/1")
        hub.kernel.append([(placement, b"a", encode_headers([(b"a", b"b")]), 0, 0),
                           (placement, b"b", encode_headers(headers), 0, 0)], hub.witness, 1,
                          idempotency_key="k" if comes == "once" else None)
    hub.run()
    stored = hub.read("orders")
    told = [(event.offset, event.user, event.trace_id.hex()) for event in events(hub)]
    traced = [dict(record[4]).get(HEADER) for record in stored]
    assert traced[0] is None and len(stored) == 2
    assert told == ([(1, "edge", (traced[1] or b"").split(b"-")[1].decode())] if is_followed else [])


def test_what_is_asked_for_has_a_budget_and_the_rest_is_counted() -> None:
    hub = rig(JourneySettings(rate=0.0, asked_per_minute=2))
    hub.kernel.speaker.speaks(ASKER)
    hub.publish("orders/1", b"a", b"b", b"c", headers=MARKED)
    assert len(events(hub)) == 2 and hub.kernel.statistics()["journeys_asked_left_out_total"] == 1
    hub.world.advance(60_000)
    hub.publish("orders/1", b"d", headers=MARKED)
    assert len(events(hub)) == 3


def test_of_several_who_speak_each_has_its_own_right() -> None:
    hub = rig(NONE)
    hub.kernel.speaker.speak_in_turn([1, 2], [EDGE, ASKER])
    hub.publish("orders/1", b"a", b"b", headers=MARKED)
    assert [event.offset for event in events(hub)] == [1]


def test_what_was_so_before_a_time_is_found_however_much_came_since() -> None:
    hub = rig(JourneySettings(rate=1.0, followed_per_second=1_000_000))
    (_, _, message_id), = hub.publish("orders/1", b"x")
    hub.world.advance(1_000)
    until_ms = hub.world.loop.wall_ms()
    hub.world.advance(SKEW_MS)
    for _ in range(MAX_CHUNKS):                                  # each an event in a frame of its own
        hub.publish("orders/1", b"x")
    answers: list[list[Event]] = []
    hub.kernel.looking.find("address", b"orders/1", "/", 10, lambda told, error: answers.append(told), 0, until_ms)
    hub.run()
    assert [event.message_id for event in answers[0]] == [message_id]


@pytest.mark.parametrize("lose_index", [False, True])
def test_long_keys_addresses_and_ids_are_found_by_what_events_keep_of_them(lose_index: bool) -> None:
    hub = rig(ALL)
    long = "x" + "\u00e9" * 300                                     # a character is cut in two
    hub.publish(f"orders/{long}", b"x", headers=[(b"correlation-id", b"c" * 600)])
    hub.world.advance(1_000)
    if lose_index:
        hub.restart(lose_index=True)
        hub.run()
    for what, value in (("key", long.encode()), ("address", f"orders/{long}".encode()), ("correlation", b"c" * 600)):
        assert len(looked_for(hub, what, value, "/")) == 1, what


def test_events_are_found_also_where_somebody_gave_their_topic_more_partitions() -> None:
    hub = rig(ALL)
    hub.publish("orders/1", b"x")
    hub.kernel.change_topic(TOPIC, partitions=4)
    (_, _, message_id), = hub.publish("orders/1", b"x")
    hub.world.advance(1_000)
    assert found(hub, message_id) == ["STORED"]
    hub.restart(lose_index=True)
    hub.run()
    assert found(hub, message_id) == ["STORED"]
    hub.kernel.subscribe("$journeys/#", hub.witness)
    hub.publish("orders/1", b"x")
    assert [address for address, *_ in hub.witness.delivered] == ["$journeys/stored"]


def test_events_that_are_too_large_for_their_topic_are_counted_and_cost_no_others() -> None:
    hub = rig(ALL)
    hub.publish("orders/1", b"x")
    topic = hub.kernel.topic(TOPIC)
    assert topic is not None
    hub.kernel.change_topic(TOPIC, settings=replace(topic.settings, max_message_bytes=60))
    hub.publish("orders/1", b"y")
    (_, _, message_id), = hub.publish(f"orders/{'l' * 100}", b"z")
    assert found(hub, message_id) == [] and hub.kernel.journeys.left_out == 1
    hub.publish("orders/1", b"y")
    Taker(hub, "g" * 100).pop()                              # what is told of it gets a frame of its own
    hub.world.advance(1_000)
    hub.run()
    assert kinds(hub) == ["STORED"] * 3 and hub.kernel.journeys.left_out > 1


@pytest.mark.parametrize("restart", [False, True])
def test_what_was_kept_to_find_events_goes_with_their_topic(restart: bool) -> None:
    hub = rig(ALL)

    def keys() -> set[bytes]:
        hub.world.advance(WRITE_MS + 1_000)
        return {key for key, _ in hub.store.scan(PREFIX, META)}

    for number in range(20):
        hub.publish(f"orders/{number}", b"x")
    before = keys()
    assert len(before) > 10
    hub.kernel.delete_topic(TOPIC)
    hub.run()
    if restart:
        hub.restart()
    (_, _, message_id), = hub.publish("orders/after", b"y")
    after = keys()
    assert after and len(after) < len(before) // 2, "those of the topic that is there"
    assert found(hub, message_id) == ["STORED"]
