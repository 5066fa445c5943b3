"""What a hub does to itself when it is told to."""
from __future__ import annotations

import asyncio
import time

from gatehouse.drills import HOLDER, HubDrills
from gatehouse.kernel.world import FakeLoop, FakeWorker
from gatehouse.memory import MemoryBudget


def test_the_disk_is_held_on_the_thread_of_the_log_and_one_drill_runs_at_a_time() -> None:
    async def test() -> None:
        loop = FakeLoop()
        worker = FakeWorker(loop)
        drills = HubDrills(asyncio.get_running_loop(), worker, MemoryBudget(1_000, lambda: None))
        assert drills.begin("held_disk", 0.05)
        assert not drills.begin("full_memory", 0.05)
        began_s = time.monotonic()
        worker.step()
        assert time.monotonic() - began_s >= 0.05
        loop.step()
        assert drills.under_way == ""
    asyncio.run(test())


def test_memory_is_full_for_so_long_and_then_is_not() -> None:
    async def test() -> None:
        budget = MemoryBudget(1 << 50, lambda: None)
        over = asyncio.Event()
        budget.remove = lambda name: (MemoryBudget.remove(budget, name), over.set())[0]      # type: ignore[method-assign]
        drills = HubDrills(asyncio.get_running_loop(), FakeWorker(FakeLoop()), budget)
        assert drills.begin("full_memory", 0.01)
        assert budget.held() == {HOLDER: 1 << 50} and budget.share() >= 1
        await over.wait()
        assert budget.held() == {} and budget.share() < 1
    asyncio.run(test())


def test_the_end_comes_after_the_answer() -> None:
    async def test() -> None:
        ended = asyncio.Event()
        drills = HubDrills(asyncio.get_running_loop(), FakeWorker(FakeLoop()), MemoryBudget(1, lambda: None), ended.set)
        assert drills.begin("killed_hub", 1)
        assert not ended.is_set()
        await ended.wait()
    asyncio.run(test())


def test_a_link_is_lost_for_so_long_where_there_is_one() -> None:
    async def test() -> None:
        cut: list[float] = []
        budget = MemoryBudget(1, lambda: None)
        alone = HubDrills(asyncio.get_running_loop(), FakeWorker(FakeLoop()), budget)
        assert not alone.can("lost_link") and alone.can("held_disk")
        drills = HubDrills(asyncio.get_running_loop(), FakeWorker(FakeLoop()), budget, cut=cut.append)
        assert drills.can("lost_link") and drills.begin("lost_link", 0.01)
        assert cut == [0.01] and not drills.begin("held_disk", 1)
        over = asyncio.Event()
        budget.remove = lambda name: over.set()      # type: ignore[method-assign]
        await over.wait()
    asyncio.run(test())
