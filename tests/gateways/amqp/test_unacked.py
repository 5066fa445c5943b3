"""Deliveries that await their acknowledgement, compared with a plain dictionary."""
from __future__ import annotations

import random

import pytest

from gatehouse.gateways.amqp.unacked import Unacked
from gatehouse.kernel.message import Handle


@pytest.mark.parametrize("seed", range(200))
def test_like_a_dictionary(seed: int) -> None:
    chance = random.Random(seed)
    unacked: Unacked[str] = Unacked()
    model: dict[int, Handle] = {}
    for _ in range(60):
        tag = chance.randint(0, unacked.next_tag)
        what = chance.random()
        if what < 0.4:
            handles = [(None, unacked.next_tag + at, 1) for at in range(chance.randint(1, 5))]
            first = unacked.add("somebody", handles)
            model.update(zip(range(first, first + len(handles)), handles, strict=True))
        elif what < 0.7:
            taken = unacked.take(tag)
            known = model.pop(tag, None)
            assert taken == (None if known is None else ("somebody", [known]))
        else:
            through = [handle for _, handles in unacked.take_through(tag) for handle in handles]
            assert through == ([model.pop(one) for one in sorted(model) if one <= tag] if tag in model else [])
        assert unacked.count == len(model)
    assert [handle for _, handles in unacked.take_all() for handle in handles] == [model[tag] for tag in sorted(model)]
    assert unacked.count == 0
