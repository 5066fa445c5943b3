"""Memory that was freed goes back to the system, once, some time after it was asked for."""
from __future__ import annotations

import asyncio

import pytest

from gatehouse import memory
from gatehouse.memory import GivingBack, give_back, resident_bytes


def test_it_is_given_back_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "GIVE_BACK_S", 0.01)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        given: asyncio.Queue[int] = asyncio.Queue()

        def give() -> None:
            loop.call_soon_threadsafe(given.put_nowait, 1)

        giving = GivingBack(loop, give)
        for _ in range(3):
            giving.soon()
        await given.get()
        giving.soon()
        await given.get()
        assert given.empty()

    asyncio.run(test())


def test_what_lies_scattered_is_given_back() -> None:
    pieces = [bytes(60_000 + number % 1000) for number in range(2_000)]
    kept = pieces[::50]
    full = resident_bytes()
    del pieces
    give_back()
    assert full - resident_bytes() > 60 << 20, "of 115 MiB"
    assert len(kept) == 40
