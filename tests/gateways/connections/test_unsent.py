"""One budget for what slow peers do not take: the largest get nothing more first, and all of it is given back."""
from __future__ import annotations

import asyncio

import pytest

from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.connections.unsent import FLOOR_BYTES, MUCH_BYTES, PART, UnsentBudget
from tests.gateways.connections.test_connection import Stage, run, until

MIB = 1 << 20
PATIENT = ConnectionSettings(write_timeout_ms=60_000)


def test_the_more_is_held_the_less_each_may_hold_and_the_sum_stays_within() -> None:
    budget = UnsentBudget(64 * MIB)
    held = []
    for _ in range(5_000):
        held.append(budget.part())
        budget.charge(held[-1])
    assert held == sorted(held, reverse=True) and held[0] == 64 * MIB // PART
    assert budget.used_bytes == sum(held) <= 64 * MIB


def test_who_keeps_up_may_be_written_to_however_much_others_hold() -> None:
    budget = UnsentBudget(MIB)
    budget.charge(10 * MIB)
    assert budget.part() == 0
    assert budget.allowed(256 << 10) > FLOOR_BYTES, "beyond it the connection is slow, and its end is waited for"
    assert budget.allowed(100) == 100


def test_what_is_released_at_once_is_told_once() -> None:
    told: list[int] = []
    budget = UnsentBudget(on_released=lambda: told.append(budget.used_bytes))
    for by in (MUCH_BYTES, -MUCH_BYTES // 2, MUCH_BYTES, -MUCH_BYTES, -MUCH_BYTES // 2, 1000, -1000):
        budget.charge(by)
    assert told == [0]


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_slow_connection_is_charged_until_its_peer_takes_what_waits(plain: bool) -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            budget = stage.services.unsent
            reader, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: budget.used_bytes)
            session, = stage.sessions
            assert budget.used_bytes >= session.link.unsent_bytes > FLOOR_BYTES
            session.link.write(bytes(1000))
            assert budget.used_bytes == session.link.unsent_bytes, "it is charged for what comes later, too"
            await reader.readexactly(64 * 65536 + 1000)
            await until(lambda: not budget.used_bytes)
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_slow_connection_that_goes_is_charged_no_more(plain: bool) -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            budget = stage.services.unsent
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: budget.used_bytes)
            writer.transport.abort()
            await until(lambda: stage.sessions[0].closed)
            assert budget.used_bytes == 0
    run(test, plain=plain)


def test_the_system_holds_little_for_a_peer_that_takes_nothing() -> None:
    async def test() -> None:
        async with Stage(settings=PATIENT) as stage:
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"hello")
            await until(lambda: stage.sessions)
            link, sent = stage.sessions[0].link, 0
            while link.unsent_bytes <= FLOOR_BYTES:
                link.write(bytes(65_536))
                sent += 65_536
                await asyncio.sleep(0)
            assert sent - link.unsent_bytes < MIB, "the system would take four"
    run(test)
