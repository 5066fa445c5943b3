"""Who is behind and can be sent more is sent a piece in its turn."""
from __future__ import annotations

from typing import Any, cast

from gatehouse.gateways.mqtt.backlog import CatchingUp
from gatehouse.kernel.world import FakeLoop
from gatehouse.kernel.write.committer import SLICE_MS, Slices


class Behind:
    """A backlog of so many pieces; sending one takes a millisecond."""

    def __init__(self, loop: FakeLoop, turns: CatchingUp, pieces: int, order: list[Behind]) -> None:
        self.left = pieces
        self._loop = loop
        self._turns = turns
        self._order = order

    def go_on(self) -> None:
        self._loop.worked_ms += 1
        self._order.append(self)
        self.left -= 1
        if self.left:
            self._turns.add(cast(Any, self))


def test_each_has_its_turn_and_no_turn_of_the_loop_is_long() -> None:
    loop = FakeLoop()
    turns = CatchingUp(Slices(loop, [].append))
    order: list[Behind] = []
    clients = [Behind(loop, turns, 10, order) for _ in range(7)]
    for client in clients:
        turns.add(cast(Any, client))
    first = loop.worked_ms
    while loop.step():
        assert loop.worked_ms - first <= SLICE_MS
        first = loop.worked_ms
    assert not any(client.left for client in clients)
    assert set(order[SLICE_MS:SLICE_MS + 7]) == set(clients), "from the second turn on all are served in turn"


def test_who_has_gone_is_left_out() -> None:
    loop = FakeLoop()
    turns = CatchingUp(Slices(loop, [].append, slice_ms=0))
    order: list[Behind] = []
    clients = [Behind(loop, turns, 3, order) for _ in range(3)]
    for client in clients:
        turns.add(cast(Any, client))
    turns.remove(cast(Any, clients[1]))
    while loop.step():
        pass
    assert clients[1] not in order and order.count(clients[2]) == 3
