"""Kill -9 under load from three doors: what was acknowledged is there, once, in order, where it was said to be.

`make soak` runs the same for a thousand rounds.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaign import DURABLE, SMALL_SEGMENTS, Campaign, Plan
from tests.faults.nursery import Nursery

ROUNDS = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", [DURABLE, SMALL_SEGMENTS], ids=["durable", "small segments and retention"])
def test_kill_nine(nursery: Nursery, tmp_path: Path, plan: Plan) -> None:
    campaign = Campaign(nursery, tmp_path, plan, seed=1)
    campaign.run(ROUNDS)
    assert campaign.kills >= ROUNDS
    assert campaign.inside
