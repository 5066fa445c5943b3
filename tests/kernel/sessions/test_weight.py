"""The bytes of what waits for a session: pieces, what is handed out of them, and where a limit cuts."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.sessions.session import PIECES, Weight

LIMIT = 640


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), max_size=40), st.integers(0, 250))
def test_weights_are_those_of_what_waits(frames: list[tuple[int, int]], offset: int) -> None:
    weight, behind, sizes = Weight(0), 0, []
    for count, size in frames:
        behind += count
        weight.add(behind, size * count, LIMIT)
        sizes += [size] * count
    assert weight.total == sum(sizes)
    weight.pass_to(min(offset, behind))
    assert weight.end_offset == behind
    assert abs(weight.total - sum(sizes[offset:])) <= max(50 * 5, LIMIT // PIECES), "but for the piece that is cut"
    first = weight.first_within(LIMIT)
    if first:
        weight.pass_to(first)
        assert weight.total <= LIMIT


def test_what_is_learned_later_lies_before() -> None:
    weight = Weight(10)
    weight.add(12, 200, LIMIT)
    weight.learn(0, 10, 1_000)
    assert weight.total == 1_200
    assert weight.first_within(LIMIT) == 6, "560 bytes too much are six messages of a hundred"
    weight.pass_to(6)
    assert weight.total == 600


def test_a_limit_may_fall_behind_everything() -> None:
    weight = Weight(0)
    weight.add(1, 5_000, LIMIT)
    assert weight.first_within(LIMIT) == 1
