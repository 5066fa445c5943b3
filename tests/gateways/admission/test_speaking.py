"""Who tells the kernel something is noted for that call, and for none behind it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.guard import Guard
from gatehouse.gateways.admission.guarded_session import WillPublisher
from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.contract import Services
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group_settings import DEAD_LETTER_PREFIX, GroupSettings, QueueSettings
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import NOBODY, Origin, Stored, When
from gatehouse.kernel.port import Port
from gatehouse.kernel.sessions.session_values import Will
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.transactions.coordinator import Transactions
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig

EMPTY = b"\x00"


class HeardPort:
    """A port that notes who speaks."""

    def __init__(self, port: Port, spoke: list[Origin]) -> None:
        self._port = port
        self._spoke = spoke

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def speaks(self, origin: Origin) -> None:
        self._spoke.append(origin)
        self._port.speaks(origin)


class Hub:
    """A kernel that records journeys, and users of a door."""

    def __init__(self) -> None:
        self.rig = Rig(routes=Routes((), ROUTES), journeys=JourneySettings(rate=0.0))
        self.transactions = Transactions(self.rig.kernel)
        self.transactions.open()
        now_ms = self.rig.world.loop.now_ms
        self.admission = Admission(self.rig.kernel, now_ms, decision=lambda principal, operation, on: True)
        self.services = Services("hub", self.rig.kernel, self.admission, now_ms, transactions=self.transactions)
        self.spoke: list[Origin] = []              # of whom the kernel is told that he speaks, in this order
        self.speaker = self.rig.kernel.speaker
        spoke = self.spoke

        class Heard(Kernel):
            def port(self, *arguments: Any) -> Any:
                return HeardPort(super().port(*arguments), spoke)

        self.rig.kernel.__class__ = Heard

    def on_stored(self, stored: list[Stored]) -> None:
        """A session that wants no answer."""

    def guard(self, user: str) -> Guard:
        return self.services.guard("http", Principal(user), None, peer=f"peer of {user}")

    def publish(self, user: str, address: str = "orders/1") -> None:
        guard = self.guard(user)
        guard.append([(guard.place(address), b"x", EMPTY, 0, 0)], self, None, 1)

    def publisher(self, topic: str, offset: int) -> str | None:
        """Who published the message there, as the log says."""
        looking, found = self.rig.kernel.looking, []
        self.rig.run()
        made = self.rig.kernel.topic(topic)
        assert made is not None
        partition_id = next(each for each in made.partition_ids() if self.rig.kernel.bounds(each)[1] > offset)
        looking.journey(looking.id_at(partition_id, offset), "/", lambda journey, error: found.append(journey))
        self.rig.run()
        return None if found[0].publisher is None else str(found[0].publisher.user)


@pytest.fixture
def hub() -> Hub:
    hub = Hub()
    hub.rig.kernel.create_topic("orders", partitions=1)
    hub.rig.run()
    return hub


def schedule(hub: Hub, guard: Guard) -> None:
    guard.schedule.add([(guard.place("orders/2"), b"x", EMPTY, 0, 0)], [When(delay_ms=1_000)], hub, None, 1)


def begin(hub: Hub, guard: Guard) -> None:
    half = HalfMessage((guard.place("orders/3"), b"x", EMPTY, 0, 0), None, 0)
    guard.transactions.begin([half], "sellers", None, None, hub, None, 1)


def declare(hub: Hub, guard: Guard) -> None:
    guard.groups.declare_queue("bills", QueueSettings(), hub, None)


def bind(hub: Hub, guard: Guard) -> None:
    guard.groups.bind("orders/#", guard.groups.declare_queue("bills", QueueSettings(), hub, None), hub, None)


def purge(hub: Hub, guard: Guard) -> None:
    guard.groups.purge(guard.groups.declare_queue("bills", QueueSettings(), hub, None), hub, None)


def delete_queue(hub: Hub, guard: Guard) -> None:
    guard.groups.delete_queue(guard.groups.declare_queue("bills", QueueSettings(), hub, None), hub, None)


def move(hub: Hub, guard: Guard) -> None:
    guard.groups.move(guard.groups.declare_queue("bills", QueueSettings(), hub, None), [], "orders/4", hub, None)


def redrive(hub: Hub, guard: Guard) -> None:
    guard.groups.define("work", GroupSettings(), hub, None)
    letters = guard.groups.declare_queue(DEAD_LETTER_PREFIX + "work", QueueSettings(), hub, None)
    guard.groups.redrive("work", letters, [], [], hub, None)


def define(hub: Hub, guard: Guard) -> None:
    guard.groups.define("work", GroupSettings(), hub, None)


def create_topic(hub: Hub, guard: Guard) -> None:
    guard.topics.create("plant", 1, TopicSettings(), hub, None)


def append_batch(hub: Hub, guard: Guard) -> None:
    guard.append_batch("orders", 0, batch_of([(b"k", b"v", ())]), 1, hub, None)


def append_batches(hub: Hub, guard: Guard) -> None:
    topic = guard.topic("orders", Operation.PUBLISH)
    guard.append_batches(topic, [(0, batch_of([(b"k", b"v", ())]))], 1, hub, None, None)


CALLS = (schedule, begin, declare, bind, purge, delete_queue, move, redrive, define, create_topic, append_batch,
         append_batches)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.__name__))
def test_what_a_user_tells_comes_from_him_and_what_follows_from_nobody(hub: Hub, call: Callable[[Hub, Guard], None]
                                                                       ) -> None:
    hub.publish("ann")
    hub.spoke.clear()
    call(hub, hub.guard("bob"))
    assert {origin.user for origin in hub.spoke if origin is not NOBODY} == {"bob"}
    assert hub.speaker.origin is NOBODY


def test_what_the_hub_itself_publishes_is_nobodys_whoever_spoke_last(hub: Hub) -> None:
    hub.publish("ann")
    hub.rig.kernel.append([(hub.rig.kernel.place("orders/2"), b"the hub's", EMPTY, 0, 0)], None)
    assert [hub.publisher("orders", offset) for offset in range(2)] == ["ann", None]


def test_a_call_that_is_refused_leaves_nobody_speaking(hub: Hub) -> None:
    guard = hub.guard("ann")
    with pytest.raises(KernelError):
        guard.append([(12_345, b"x", EMPTY, 0, 0)], hub, None, 1)
    with pytest.raises(KernelError):
        guard.append_batch("orders", 0, b"no batch", 1, hub, None)
    assert hub.speaker.origin is NOBODY


def test_a_will_is_published_by_its_client(hub: Hub) -> None:
    hub.publish("ann")
    publisher = WillPublisher(hub.rig.kernel, hub.admission, "mqtt", hub.rig.world.loop.now_ms)
    assert publisher.publish(Will("/", "meter7", "bob", "orders/2", b"gone", EMPTY, 0, 0))
    assert hub.publisher("orders", 1) == "bob"
