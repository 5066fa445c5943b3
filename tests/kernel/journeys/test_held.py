"""Journeys of what the hub holds: messages that wait for their time, and half messages."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.halves.half_records import Half
from gatehouse.kernel.journeys.following import MAX_FOLLOWED, Following
from gatehouse.kernel.journeys.held import HeldJourneys
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.message import Origin, When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import JourneySettings
from gatehouse.tracing.context import HEADER
from gatehouse.tracing.events import Event, Kind
from gatehouse.tracing.sampling import Budget
from gatehouse.transactions.coordinator import CheckSettings, Decision, Transactions
from tests.kernel.journeys.test_journeys import NONE, Taker, events, found, kinds
from tests.kernel.journeys.test_why import code
from tests.kernel.rig import Rig

EDGE = Origin("mqtt", "edge", "meter7", "192.0.2.7:5000")
THEIRS = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
SOON = CheckSettings(1_000, 1_000, 1)


class Held(Rig):
    """With transactions, and shorter words for both."""

    def __init__(self, journeys: JourneySettings = NONE, **more: Any) -> None:
        super().__init__(routes=Routes((), ROUTES), journeys=journeys, **more)
        self.open_transactions()
        self.kernel.speaker.speaks(EDGE)

    def open_transactions(self) -> None:
        self.transactions = Transactions(self.kernel)
        self.transactions.open()

    def half(self, address: str, headers: list[tuple[bytes, bytes | None]] | None = None, delay_ms: int = 0) -> Half:
        return Half((self.kernel.place(address), b"x", encode_headers(headers or []), 2, 0), None, delay_ms)

    def ids(self) -> list[int]:
        """Of what was asked for last."""
        self.run()
        answer = self.witness.stored[-1]
        assert answer.error is None
        return [position[2] for position in answer.positions]

    def begin(self, *halves: Half, group: str = "", checks: CheckSettings | None = None) -> list[int]:
        self.transactions.begin(list(halves), group=group, by="edge", settings=checks, owner=self.witness,
                                token="begin")
        return self.ids()

    def decide(self, transaction_id: int, decision: Decision) -> None:
        self.transactions.decide(transaction_id, decision, by="desk", owner=self.witness, token="decide")
        self.run()
        assert self.witness.stored[-1].error is None

    def later(self, **when: Any) -> int:
        self.kernel.schedule([(self.kernel.place("orders/1"), b"x", encode_headers([]), 2, 0)], [When(**when)],
                             self.witness, "later")
        return self.ids()[0]

    def journey(self, message_id: int) -> Journey:
        self.world.advance(1_000)
        answers: list[Journey] = []
        self.kernel.looking.journey(message_id, "/", lambda journey, error: answers.append(journey))
        self.run()
        return answers[0]


def of(hub: Held, message_id: int, kind: Kind) -> Event:
    told, = [event for event in events(hub) if event.of(message_id) is not None and event.kind == kind]
    return told


def test_a_half_message_is_followed_from_the_moment_at_which_it_is_held():
    hub = Held()
    message_id, = hub.begin(hub.half("orders/1", [(HEADER, THEIRS)]))
    held = of(hub, message_id, Kind.HELD)
    assert (held.transaction, held.address, held.user, held.client, held.trace_id.hex()) == (
        message_id, "orders/1", "edge", "meter7", "ab" * 16)
    assert hub.journey(message_id).is_held and code(hub, message_id) == "gone", "no group can have it"
    hub.decide(message_id, Decision.COMMIT)
    taker = Taker(hub)
    taker.pop()
    taker.group.ack(taker.handles())
    assert kinds(hub, message_id) == found(hub, message_id) == ["HELD", "COMMITTED", "HANDED_OUT", "ACKED"]
    committed = of(hub, message_id, Kind.COMMITTED)
    assert (committed.transaction, committed.user, committed.trace_id.hex()) == (message_id, "desk", "ab" * 16)
    journey = hub.journey(message_id)
    assert journey.place is not None and journey.place.topic == "orders" and not journey.is_held


def test_those_of_one_place_are_one_event_and_what_is_added_later_is_another():
    hub = Held()
    first, second, third = hub.begin(hub.half("orders/1"), hub.half("orders/1"), hub.half("plant/1"))
    hub.transactions.add(first, [hub.half("plant/1")], owner=hub.witness)
    added, = hub.ids()
    hub.world.advance(1_000)
    told = [event for event in events(hub) if event.kind == Kind.HELD]
    assert [(event.message_id, event.transaction) for event in told] == [
        (each, first) for each in (first, second, third, added)]
    before = hub.kernel.journeys.events
    hub.decide(first, Decision.ROLLBACK)
    for each in (first, second, third, added):
        assert kinds(hub, each) == found(hub, each) == ["HELD", "ROLLED_BACK"]
        assert of(hub, each, Kind.ROLLED_BACK).user == "desk"
    assert hub.kernel.journeys.events == before + 4
    assert [event for event in events(hub) if event.kind == Kind.COMMITTED] == []


def test_a_check_is_told_and_what_nobody_answers_for_is_given_up():
    hub = Held()
    class Member:
        def on_checks(self, checks: list[Any]) -> None:
            pass

    hub.transactions.join("shop", "/", Member(), name="till-3")
    message_id, = hub.begin(hub.half("orders/1"), group="shop", checks=SOON)
    for _ in range(40):
        hub.world.advance(100)
    assert kinds(hub, message_id) == ["HELD", "CHECKED", "GIVEN_UP"]
    checked, given_up = of(hub, message_id, Kind.CHECKED), of(hub, message_id, Kind.GIVEN_UP)
    assert (checked.group, checked.client, checked.attempt) == ("shop", "till-3", 1)
    assert (given_up.group, given_up.reason) == ("shop", "unanswered")
    journey = hub.journey(message_id)
    assert journey.place is not None and journey.place.queue == "$dead-letters/shop"


def test_after_a_start_the_same_transaction_is_told_of():
    hub = Held()
    message_id, = hub.begin(hub.half("orders/1"))
    hub.world.advance(1_000)
    hub.restart()
    hub.open_transactions()
    hub.world.advance(1_000)
    hub.decide(message_id, Decision.ROLLBACK)
    assert kinds(hub, message_id) == ["HELD", "ROLLED_BACK"]


def test_what_an_event_of_before_claims_to_tell_of_is_followed_as_far_as_anything_is() -> None:
    following = Following()
    held = HeldJourneys(loop=Held().world.loop, following=following, budget=Budget(1), add=lambda event: True)
    held.resume(Event(Kind.HELD, 1, rows=10 ** 15, transaction=1))
    assert len(following) == MAX_FOLLOWED and following.by_id(10 ** 15) is not None


def test_one_that_waits_for_its_time_behind_its_commit():
    hub = Held()
    message_id, = hub.begin(hub.half("orders/1", delay_ms=60_000))
    hub.decide(message_id, Decision.COMMIT)
    assert kinds(hub, message_id) == ["HELD", "COMMITTED"]
    assert of(hub, message_id, Kind.COMMITTED).until_ms > hub.world.loop.now_ms()
    assert code(hub, message_id) == "waits_for_time"
    hub.world.advance(60_000)
    assert kinds(hub, message_id) == ["HELD", "COMMITTED", "FELL_DUE"]


def test_what_waits_is_accepted_until_then_and_recalled_by_somebody():
    hub = Held()
    message_id = hub.later(delay_ms=60_000)
    timed = hub.later(due_ms=hub.world.loop.wall_ms() + 60_000)
    for each in (message_id, timed):
        accepted = of(hub, each, Kind.ACCEPTED)
        assert (accepted.address, accepted.user, accepted.partition_id) == ("orders/1", "edge", 0)
        assert 0 < accepted.until_ms - hub.world.loop.now_ms() <= 60_000
    assert hub.journey(message_id).is_held and code(hub, message_id) == "waits_for_time"
    hub.kernel.speaker.speaks(Origin("http", "desk"))
    hub.kernel.scheduling.recall(message_id, "/", hub.witness, "recall")
    hub.run()
    assert kinds(hub, message_id) == found(hub, message_id) == ["ACCEPTED", "RECALLED"]
    assert of(hub, message_id, Kind.RECALLED).user == "desk" and code(hub, message_id) == "recalled"


def test_a_recall_is_told_of_what_was_not_followed():
    hub = Held(JourneySettings(rate=0.0, errors_per_minute=1))
    hub.later(delay_ms=60_000)
    message_id = hub.later(delay_ms=60_000)
    hub.kernel.scheduling.recall(message_id, "/", hub.witness, "recall")
    hub.run()
    assert kinds(hub, message_id) == ["RECALLED"]


def test_beyond_the_budget_of_a_topic_half_messages_are_counted():
    hub = Held(JourneySettings(rate=0.0, errors_per_minute=3))
    for _ in range(5):
        message_id, = hub.begin(hub.half("orders/1"))
        hub.decide(message_id, Decision.ROLLBACK)
    told = [Kind(event.kind) for event in events(hub)]
    assert told.count(Kind.HELD) == told.count(Kind.ROLLED_BACK) == 3
    assert hub.kernel.journeys.left_out == 2


def test_where_nothing_is_recorded_nothing_is_told():
    hub = Held(JourneySettings(enabled=False))
    message_id, = hub.begin(hub.half("orders/1"))
    hub.decide(message_id, Decision.COMMIT)
    assert events(hub) == []
    assert hub.later(delay_ms=1_000) > 0
