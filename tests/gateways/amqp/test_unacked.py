"""Deliveries that await their acknowledgement, compared with a plain dictionary."""
from __future__ import annotations

import random

import pytest

from gatehouse.gateways.amqp.channel import Unacked
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


@pytest.mark.parametrize("seed", range(200))
def test_what_is_put_back_was_never_taken(seed: int) -> None:
    chance = random.Random(seed)
    unacked: Unacked[str] = Unacked()
    model: dict[int, Handle] = {}
    for _ in range(30):
        handles = [(None, unacked.next_tag + at, 1) for at in range(chance.randint(1, 5))]
        first = unacked.add(chance.choice(("a", "b")), handles)
        model.update(zip(range(first, first + len(handles)), handles, strict=True))
        for tag in chance.sample(sorted(model), min(2, len(model))):
            unacked.take(tag)
            del model[tag]
        runs = []
        gone: dict[int, Handle] = {}
        for _ in range(chance.randint(0, 4)):
            tag, multiple = chance.randint(0, unacked.next_tag), chance.random() < 0.5
            taken = unacked.take_runs(tag, multiple)
            runs += taken
            if multiple and tag == 0:
                wanted = sorted(model)
            elif multiple:
                wanted = [one for one in sorted(model) if one <= tag] if tag in model else []
            else:
                wanted = [tag] if tag in model else []
            assert [handle for run in taken for handle in run.handles if handle is not None] \
                == [model[one] for one in wanted]
            assert sum(run.open for run in taken) == len(wanted)
            gone.update({one: model.pop(one) for one in wanted})
            assert unacked.count == len(model)
        if chance.random() < 0.5:
            unacked.put_back(runs)
            model.update(gone)
        assert unacked.count == len(model)
    for tag in chance.sample(sorted(model), len(model) // 2):
        taken_one = unacked.take(tag)
        assert taken_one is not None and taken_one[1] == [model.pop(tag)]
    assert [handle for _, handles in unacked.take_all() for handle in handles] == [model[tag] for tag in sorted(model)]
