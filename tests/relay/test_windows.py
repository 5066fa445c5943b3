"""How much of a link is on its way: a way that is full, and little that waits before it."""
from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from gatehouse.relay.outgoing import DRAIN_MS, LEAST_BYTES, Window

LETTER = 128 << 10
MOST = 4 << 20


def run(window: Window, bytes_per_ms: int, way_ms: int, lasts_ms: int, bursts: dict[int, int] | None = None,
        busy_ms: Callable[[], float] = float) -> tuple[int, list[int]]:
    """A reader that takes so much in a millisecond, so far away: bytes that were stored, and how long letters took.
    `bursts`: so many letters are there to be sent every so many milliseconds; else always. `busy_ms`: so long more does
    the reader's disk take for a letter, beside others; letters are stored in their order."""
    waiting = 0
    last_ms = 0.0
    on_their_way: deque[tuple[int, float]] = deque()       # (said at, stored at)
    free_at = stored = 0
    took: list[int] = []
    for now_ms in range(lasts_ms):
        while on_their_way and on_their_way[0][1] <= now_ms:
            said_ms, _ = on_their_way.popleft()
            stored += LETTER
            took.append(now_ms - said_ms)
            window.on_stored(LETTER, now_ms - said_ms, now_ms)
        waiting = 1 << 30 if bursts is None else waiting + sum(
            [letters for every_ms, letters in bursts.items() if now_ms % every_ms == 0])
        while window.allows(len(on_their_way) * LETTER) and waiting:
            waiting -= 1
            free_at = max(free_at, now_ms + way_ms // 2) + max(LETTER // bytes_per_ms, 1)
            last_ms = max(last_ms, free_at + way_ms // 2 + busy_ms())
            on_their_way.append((now_ms, last_ms))
    return stored, took


@pytest.mark.parametrize(("bytes_per_ms", "way_ms"), [
    (LETTER, 2), (LETTER // 8, 2), (LETTER // 4, 60), (LETTER // 100, 0)])
def test_the_way_is_full_and_little_waits(bytes_per_ms: int, way_ms: int) -> None:
    lasts_ms = 30_000
    stored, took = run(Window(MOST), bytes_per_ms, way_ms, lasts_ms)
    possible = min(bytes_per_ms * lasts_ms, MOST * lasts_ms // max(way_ms, 1))
    assert stored > possible * 0.75
    alone_ms = way_ms + LETTER // bytes_per_ms
    usual = sorted(took)[len(took) * 9 // 10]
    assert usual <= 2 * alone_ms + 12 + LETTER // bytes_per_ms, "and not 4 MiB of it"


@pytest.mark.parametrize(("bytes_per_ms", "way_ms", "most_ms", "share"), [
    (100_000, 1, 10, 0.45), (32_768, 60, 40, 0.75), (LETTER // 8, 2, 10, 0.9)])
def test_a_disk_that_is_busy_now_and_then_does_not_keep_the_way_empty(bytes_per_ms: int, way_ms: int, most_ms: int,
                                                                    share: float) -> None:
    """Every letter takes up to so much longer: less on its way would not make one of them quicker."""
    chance = random.Random(1)
    stored, took = run(Window(MOST), bytes_per_ms, way_ms, 30_000, busy_ms=lambda: chance.uniform(0, most_ms))
    assert stored > bytes_per_ms * 30_000 * share
    alone_ms = way_ms + LETTER // bytes_per_ms + most_ms
    assert sorted(took)[len(took) * 9 // 10] <= 2.5 * alone_ms          # decision 323


def test_a_disk_that_is_busy_no_more_is_found_out() -> None:
    chance = random.Random(1)
    window = Window(MOST)
    run(window, LETTER // 8, 2, 30_000, busy_ms=lambda: chance.uniform(0, 40))
    run(window, LETTER // 8, 2, 5 * DRAIN_MS)
    _, took = run(window, LETTER // 8, 2, DRAIN_MS)
    assert sorted(took)[len(took) * 9 // 10] <= 2 * 10 + 12 + 8


def test_of_a_burst_behind_many_small_ones_little_waits() -> None:
    """A single letter every ten milliseconds is never late: it does not make room for forty at once."""
    _, took = run(Window(MOST), LETTER, 2, 30_000, {10: 1, 1_000: 40})
    assert sorted(took)[len(took) * 99 // 100] <= 3 * (2 + 1)


def test_the_window_stays_within_its_bounds() -> None:
    window = Window(MOST)
    assert window.bytes == LEAST_BYTES
    for _ in range(300):
        assert not window.allows(MOST)
        window.on_stored(LETTER, 1, 1)
    assert window.bytes == MOST
    for _ in range(1_000):
        window.on_stored(LETTER, 1_000, 1)
    assert window.bytes == LEAST_BYTES
    assert Window(1_000).bytes == 1_000 and not Window(0).allows(0)


def test_now_and_then_all_is_stored_and_the_shortest_time_is_looked_at_again() -> None:
    window = Window(MOST)
    window.on_stored(LETTER, 2, 0)
    window.on_stored(LETTER, 50, DRAIN_MS - 1)
    assert window.allows(LETTER)
    window.on_stored(LETTER, 50, DRAIN_MS)
    assert not window.allows(1) and window.allows(0)
    before = window.bytes
    assert not window.allows(MOST)
    window.on_stored(LETTER, 50, DRAIN_MS + 50)
    assert window.bytes > before, "the way is longer now"
