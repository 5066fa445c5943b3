"""Timers before a horizon, against a plain sorted list: every one comes once, in order, whatever the memory's bound."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.kernel.scheduling.schedule_records import FIRST_WALL, timer_key
from gatehouse.kernel.scheduling.timers import Timers


class Store:
    """Timers, and a store that checkpoints fill: begun and written at times of their own."""

    def __init__(self, max_keys: int) -> None:
        self.timers = Timers(max_keys=max_keys)
        self.changes: list[bytes] = []
        self.frozen: list[bytes] | None = None
        self.stored: set[bytes] = set()
        self.live: set[bytes] = set()
        self.scan: list[bytes] | None = None

    def add(self, keys: list[bytes]) -> None:
        self.changes += keys
        self.live.update(keys)
        self.timers.add(keys, self.changes, self.frozen)

    def begin_checkpoint(self) -> None:
        if self.frozen is None:
            self.frozen, self.changes = self.changes, []

    def end_checkpoint(self) -> None:
        if self.frozen is not None:
            self.stored.update(self.frozen)
            self.frozen = None

    def begin_scan(self) -> None:
        if self.timers.wants_more:
            self.timers.begin_extension(self.changes, self.frozen)
            found = sorted(key for key in self.stored if key >= self.timers.horizon)
            self.scan = found[:self.timers.quarter]

    def end_scan(self) -> None:
        if self.scan is not None:
            self.timers.extend(self.scan)
            self.scan = None

    def take(self, count: int) -> list[bytes]:
        taken = self.timers.keys[:count]
        del self.timers.keys[:count]
        self.live.difference_update(taken)
        self.stored.difference_update(taken)
        return taken


steps = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 99), max_size=30)),
    st.tuples(st.sampled_from(["begin_checkpoint", "end_checkpoint", "begin_scan", "end_scan"]), st.none()),
    st.tuples(st.just("take"), st.integers(1, 5)))


@settings(max_examples=300)
@given(st.integers(4, 40), st.lists(steps, max_size=40))
def test_none_is_lost_and_none_is_early(max_keys: int, plan: list[tuple[str, object]]) -> None:
    store, number = Store(max_keys), 0
    for name, argument in plan:
        if name == "add":
            dues: list[int] = argument  # type: ignore[assignment]
            store.add([timer_key(due, False, number + i) for i, due in enumerate(dues)])
            number += len(dues)
        elif name == "take":
            ahead = sorted(key for key in store.live if key < store.timers.horizon)
            taken = store.take(argument)  # type: ignore[arg-type]
            assert taken == ahead[:len(taken)]
        else:
            getattr(store, name)()
        assert store.timers.keys == sorted(key for key in store.live if key < store.timers.horizon)
    store.end_scan()
    for _ in range(len(store.live) + 2):
        store.take(1000)
        store.begin_scan()
        store.end_scan()
        store.begin_checkpoint()
        store.end_checkpoint()
    assert not store.live and store.timers.horizon == FIRST_WALL


def test_memory_is_bounded() -> None:
    timers = Timers(max_keys=100)
    timers.extend([])
    assert timers.horizon == FIRST_WALL
    changes = object()
    for start in range(0, 10_000, 50):
        timers.add([timer_key((start + i) * 7919 % 10_000, False, start + i) for i in range(50)], changes, None)
        assert len(timers.keys) <= 100
    timers.add([], object(), None)                    # a checkpoint is written: the store knows the rest
    assert timers.unseen_from(b"", 1_000) == timers.keys


def test_one_is_taken_off() -> None:
    timers = Timers()
    timers.extend([])
    timers.add([timer_key(5, False, 1), timer_key(6, False, 2)], None, None)
    timers.discard(timer_key(5, False, 1))
    timers.discard(timer_key(5, False, 3))
    assert timers.keys == [timer_key(6, False, 2)]
    assert timer_key(6, False, 2) in timers and timer_key(5, False, 1) not in timers
    assert timers.due(5, 9) == [] and timers.due(6, 9) == timers.keys and timers.due(6, 0) == []
