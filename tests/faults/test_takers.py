"""What the members of a leased group take for a broken promise, and what may only look like one."""
from __future__ import annotations

import pytest

from tests.faults.takers import Grant, Takers

NAME = ("writer", 1)


def takers(held: Grant | None = None, acked_s: float | None = None) -> Takers:
    members = Takers(seed=1)
    if held is not None:
        members._held[NAME] = held
    if acked_s is not None:
        members.acked[NAME] = acked_s
    return members


@pytest.mark.parametrize("grant", [
    Grant(12.0, 12.1, 3.0), Grant(10.0, 10.1, 3.0), Grant(10.0, 12.9, 3.0), Grant(9.5, 10.2, 3.0)],
    ids=["while it is held", "at the same time", "told late, too soon all the same", "asked for before"])
def test_a_message_that_is_given_to_two_is_noticed(grant: Grant) -> None:
    with pytest.raises(AssertionError, match="two at a time"):
        takers(held=Grant(10.0, 10.1, 3.0))._check(NAME, grant)


@pytest.mark.parametrize("grant", [
    Grant(13.1, 13.2, 3.0), Grant(10.0, 13.2, 3.0), Grant(9.0, 10.2, 0.5), Grant(9.0, 14.0, 0.5)],
    ids=["afterwards", "asked for before, given afterwards", "given before", "given before and told late"])
def test_what_some_order_explains_is_none(grant: Grant) -> None:
    takers(held=Grant(10.0, 10.1, 3.0))._check(NAME, grant)


def test_what_is_given_again_after_its_ack_is_noticed() -> None:
    members = takers(acked_s=10.0)
    members._check(NAME, Grant(8.0, 11.0, 0.5))             # given before, told late
    for grant in (Grant(10.1, 10.2, 0.5), Grant(9.9, 10.2, 0.5)):
        with pytest.raises(AssertionError, match="given again"):
            members._check(NAME, grant)
