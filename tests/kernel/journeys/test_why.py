"""Why a message did not arrive: one test for each reason."""
from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.journeys.looking import MAX_EVENTS, Journey
from gatehouse.kernel.journeys.why import Reason
from gatehouse.kernel.message import When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import JourneySettings, KernelSettings
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.tracing.events import Kind
from tests.kernel.journeys.test_journeys import EDGE, NONE, Taker, rig
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk


def why(hub: Rig, message_id: int, consumer: str, tenant: str = "/") -> Reason | None:
    hub.world.advance(1_000)
    answers: list[Reason | None] = []
    hub.kernel.reasons.ask(message_id, consumer, tenant, lambda journey, reason, error: answers.append(reason))
    hub.run()
    return answers[0]


def code(hub: Rig, message_id: int, consumer: str = "work") -> str:
    reason = why(hub, message_id, consumer)
    assert reason is not None and reason.text
    return reason.code


def one(hub: Rig, address: str = "orders/1", **more: Any) -> int:
    return hub.publish(address, b"x", **more)[0][2]


@pytest.fixture
def hub() -> Rig:
    return rig(NONE)


def test_an_id_that_was_never_given(hub: Rig) -> None:
    assert code(hub, 1 << 50) == "never_given"


def test_an_id_of_which_nothing_is_there(hub: Rig) -> None:
    message_id = one(hub)
    hub.kernel.delete_topic("orders")
    hub.run()
    assert code(hub, message_id) == "gone"


def test_retention_has_passed_it() -> None:
    hub = rig(JourneySettings(rate=1.0), disk=SimDisk(Random(1)),
              settings=KernelSettings(segment_bytes=16 << 10, default_partitions=1, retention_bytes=3 * (16 << 10)))
    message_id = one(hub)
    Taker(hub)
    for _ in range(40):
        hub.publish("orders/1", b"x" * 3_000)
        hub.world.advance(2_500)
    topic = hub.kernel.topic("orders")
    assert topic is not None
    assert hub.kernel.bounds_of(topic)[0] > 0, "the test is about a topic that begins later now"
    assert code(hub, message_id) == "gone"


def test_it_waits_for_its_time_or_was_recalled(hub: Rig) -> None:
    placement = hub.kernel.place("orders/1")
    hub.kernel.schedule([(placement, b"x", encode_headers([]), 2, 0)], [When(delay_ms=600_000)], hub.witness, "later")
    hub.run()
    message_id = hub.witness.stored[-1].positions[0][2]
    assert code(hub, message_id) == "waits_for_time"
    hub.kernel.scheduling.recall(message_id, "/", hub.witness, "recall")
    hub.run()
    assert code(hub, message_id) == "recalled"


def test_there_is_no_such_consumer(hub: Rig) -> None:
    assert code(hub, one(hub), "nobody") == "no_consumer"


def test_a_group_is_named_as_doors_name_it_or_by_the_queue_of_its_filter(hub: Rig) -> None:
    reasons = hub.kernel.reasons
    assert [reasons.consumer_of(name, "/") for name in ("work", "$queue/tasks", "$share/work/orders/#", "$share/")] == [
        "work", "$queue/tasks", "work", "$share/"]
    hub.kernel.groups.shared_group("$share/some/plant/+/temp")
    assert reasons.consumer_of("$share/some/plant/+/temp", "/") == "$queue/$share/some/plant/+/temp"


def test_it_did_not_go_there(hub: Rig) -> None:
    message_id = one(hub)
    hub.publish("plant/1", b"x")
    Taker(hub, topic="plant")
    hub.kernel.groups.declare_queue("bills", QueueSettings())
    hub.run()
    reason = why(hub, message_id, "work")
    assert reason is not None and (reason.code, reason.evidence) == (
        "not_routed", {"entered": ["orders"], "reads": ["plant"]})
    reason = why(hub, message_id, "$queue/bills")
    assert reason is not None and (reason.code, reason.evidence) == ("not_routed", {"entered": ["orders"]})
    hub.kernel.groups.define("latecomers", GroupSettings())
    reason = why(hub, message_id, "latecomers")
    assert reason is not None and (reason.code, reason.text) == (
        "not_routed", "nobody has taken with 'latecomers' yet, so it reads no topic")


def test_it_died_while_more_did_than_is_recorded() -> None:
    hub = rig(JourneySettings(rate=0.0, errors_per_minute=0))
    died, arrived = one(hub), one(hub)
    taker = Taker(hub)
    taker.pop()
    taker.group.reject(taker.handles()[:1])
    taker.group.ack(taker.handles()[1:])
    assert [code(hub, died), code(hub, arrived)] == ["dead_letter", "arrived"]


def test_it_died_after_more_steps_than_a_journey_shows() -> None:
    hub = rig(JourneySettings(rate=1.0, errors_per_minute=10_000))
    message_id = one(hub)
    taker = Taker(hub, max_attempts=1_000)
    for _ in range(MAX_EVENTS // 2):
        taker.pop()
        taker.group.release(taker.handles(), 0)
        hub.run()
    taker.pop()
    taker.group.reject(taker.handles())
    assert code(hub, message_id) == "dead_letter"
    journeys: list[Journey] = []
    hub.kernel.looking.journey(message_id, "/", lambda journey, error: journeys.append(journey))
    hub.run()
    events = journeys[0].events
    assert (len(events), events[0].kind, events[-1].kind) == (MAX_EVENTS, Kind.STORED, Kind.GIVEN_UP)


def test_it_was_a_dead_letter_and_was_sent_back(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub, max_attempts=1)
    letters = "$dead-letters/work"
    taker.pop()
    taker.group.reject(taker.handles())
    assert code(hub, message_id, f"$queue/{letters}") != "redriven"
    queue = hub.kernel.groups.queue(letters)
    assert queue is not None
    hub.kernel.groups.redrive(queue, list(hub.read_partition(queue.first_partition_id)))
    reason = why(hub, message_id, f"$queue/{letters}")
    assert reason is not None and (reason.code, reason.evidence["address"]) == ("redriven", "orders/1")
    assert code(hub, message_id) in ("ready", "nobody_takes"), "where it was a dead letter it waits again"
    taker.pop()
    taker.group.reject(taker.handles())
    assert code(hub, message_id, f"$queue/{letters}") != "redriven", "it is there again"


def test_it_arrived(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub)
    taker.pop()
    taker.group.release(taker.handles(), 0)
    taker.pop()
    taker.group.ack(taker.handles())
    assert code(hub, message_id) == "arrived"


def test_it_arrived_and_nothing_was_recorded(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    assert code(hub, message_id) == "arrived"


def test_it_is_a_dead_letter(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub, max_attempts=1)
    taker.pop()
    taker.group.release(taker.handles(), 0)
    reason = why(hub, message_id, "work")
    assert reason is not None and (reason.code, reason.evidence["reason"]) == ("dead_letter", "attempts")


def test_somebody_has_it_leased(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub)
    taker.group.pop(1, 600_000, lambda messages: None, EDGE)
    reason = why(hub, message_id, "work")
    assert reason is not None and reason.code == "leased" and reason.evidence["until_hub_ms"] > 0


def test_it_waits_for_a_retry(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub)
    taker.pop()
    taker.group.release(taker.handles(), 60_000)
    reason = why(hub, message_id, "work")
    assert reason is not None and (reason.code, reason.evidence["attempts"]) == ("retry", 1)


def test_it_has_expired(hub: Rig) -> None:
    hub.kernel.create_topic("orders", partitions=1, settings=TopicSettings(message_ttl_ms=5_000))
    message_id = one(hub)
    taker = Taker(hub)
    hub.world.advance(10_000)
    assert code(hub, message_id) == "expired"
    taker.pop()
    reason = why(hub, message_id, "work")
    assert reason is not None and (reason.code, reason.evidence.get("reason")) == ("expired", "expired")


def test_a_selector_does_not_want_it(hub: Rig) -> None:
    hub.kernel.create_topic("orders", partitions=1)
    message_id = one(hub, headers=[(b"unit", b"C")])
    taker = Taker(hub, selector="unit = 'F'")
    assert code(hub, message_id) == "filtered"
    taker.pop()
    reason = why(hub, message_id, "work")
    assert reason is not None and reason.evidence == {"selector": "unit = 'F'"}


def test_it_is_behind_an_earlier_one_of_its_key(hub: Rig) -> None:
    first, second = (position[2] for position in hub.publish("orders/1", b"1", b"2"))
    taker = Taker(hub, ordered=True)
    taker.group.pop(2, 600_000, lambda messages: None, EDGE)
    hub.run()
    assert code(hub, first) == "leased"
    reason = why(hub, second, "work")
    assert reason is not None and (reason.code, reason.evidence) == ("behind", {"earlier_offset": 0})


def test_it_gave_way_at_the_queues_limit(hub: Rig) -> None:
    queue = hub.kernel.groups.declare_queue("short", QueueSettings(max_length=1))
    placement = hub.kernel.place_queue(queue)
    for value in (b"1", b"2"):
        hub.kernel.append([(placement, value, encode_headers([]), 2, 0)], hub.witness, value, positions=True)
        hub.run()
    message_id = hub.witness.stored[0].positions[0][2]
    assert code(hub, message_id, "$queue/short") == "dropped"


def test_the_group_began_behind_it(hub: Rig) -> None:
    message_id = one(hub)
    hub.kernel.groups.define("work", GroupSettings(start="latest", retry=Retry(delays_ms=(0,))))
    topic = hub.kernel.topic("orders")
    assert topic is not None
    hub.kernel.groups.over("work", topic, "latest")
    hub.run()
    assert code(hub, message_id) == "below_start"


def test_nobody_takes_or_its_turn_has_not_come(hub: Rig) -> None:
    message_id = one(hub)
    taker = Taker(hub)
    assert code(hub, message_id) == "nobody_takes"
    taker.group.join(Idle(), 0)
    assert code(hub, message_id) == "ready"


class Idle:
    """A member without room."""

    def on_leased(self, messages: list[Any]) -> None:
        raise AssertionError("it has no room")

    def on_gone(self) -> None:
        """Nothing to do."""


def test_an_assigned_group_has_passed_it_or_not(hub: Rig) -> None:
    (partition_id, offset, message_id), = hub.publish("orders/1", b"x")
    hub.kernel.groups.commit_offsets("readers", {partition_id: (offset, b"")}, hub.witness)
    hub.run()
    assert code(hub, message_id, "readers") == "ready"
    hub.kernel.groups.commit_offsets("readers", {partition_id: (offset + 1, b"")}, hub.witness)
    hub.run()
    assert code(hub, message_id, "readers") == "passed"


def test_another_tenants_message_is_nobodys_here() -> None:
    hub = rig(JourneySettings(rate=1.0))
    message_id = one(hub, tenant="shop")
    assert why(hub, message_id, "work") is None
