"""What the kernel leaves undone under overload."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.background import SHED_REST_MS, Background
from gatehouse.kernel.shedding import Rung, Shedding
from gatehouse.kernel.world import InlineWorker, World
from tests.kernel.journeys.test_journeys import ALL, kinds
from tests.kernel.rig import Rig


def test_trace_events_are_not_recorded_and_counted_as_left_out() -> None:
    hub = Rig(routes=Routes((), ROUTES), journeys=ALL)
    hub.kernel.shedding.level = Rung.TRACE_EVENTS
    hub.publish("orders/a", b"1")
    hub.run()
    assert kinds(hub) == [] and hub.kernel.shedding.counts[Rung.TRACE_EVENTS] == 1
    assert len(hub.read("orders")) == 1, "the message itself is stored"
    hub.kernel.shedding.level = Rung.NOTHING
    hub.publish("orders/a", b"2")
    hub.run()
    assert kinds(hub) == ["STORED"]


class Jobs:
    """What a worker of bulk reads has handed on, in order."""

    def __init__(self) -> None:
        self.world = World(1_000)
        self.shedding = Shedding()
        self.background = Background(self.world.loop, self.shedding)
        self.worker = self.background.worker(InlineWorker(), "bulk", may_be_shed=True)
        self.done: list[Any] = []

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            self.worker.submit(lambda number=number: number, lambda result, _: self.done.append(result))


def test_bulk_reads_have_their_turn_one_by_one_and_in_order() -> None:
    jobs = Jobs()
    jobs.submit(0)
    assert jobs.done == [0]
    jobs.shedding.level = Rung.BULK_READS
    jobs.submit(1, 2, 3, 4)
    assert jobs.done == [0, 1] and jobs.shedding.counts[Rung.BULK_READS] == 4
    jobs.world.advance(SHED_REST_MS)
    assert jobs.done == [0, 1, 2]
    jobs.world.advance(SHED_REST_MS)
    assert jobs.done == [0, 1, 2, 3]
    jobs.shedding.level = Rung.NOTHING
    jobs.submit(5)
    jobs.world.advance(SHED_REST_MS)
    assert jobs.done == [0, 1, 2, 3, 4, 5]


def test_nothing_waits_once_the_kernel_ends() -> None:
    jobs = Jobs()
    jobs.shedding.level = Rung.PUBLISHERS
    jobs.submit(1, 2)
    jobs.background.stop()
    jobs.submit(3)
    assert jobs.done == [1, 2, 3]


def test_what_is_in_memory_is_read_all_the_same() -> None:
    hub = Rig()
    hub.publish("orders/a", b"1")
    hub.run()
    hub.kernel.shedding.level = Rung.PUBLISHERS
    assert len(hub.read("orders")) == 1
