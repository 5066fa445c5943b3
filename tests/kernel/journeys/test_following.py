"""What is followed, where it lies, and that a stretch says of its messages what each alone would."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.journeys.following import FollowedPiece, Following, even, evenly


def offsets_of(pieces: list[FollowedPiece]) -> list[tuple[int, int]]:
    return sorted((piece.offset + at * piece.step, piece.message_id + at * piece.step)
                  for piece in pieces for at in range(piece.rows))


ROWS = st.one_of(st.builds(range, st.integers(0, 5), st.integers(6, 60), st.integers(1, 9)),
                 st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True).map(sorted))


@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(st.integers(0, 320), min_size=1, max_size=80, unique=True),
       st.lists(st.integers(0, 320), max_size=6))
def test_pieces_are_what_lies_there_whatever_was_taken_apart(stretches, offsets: list[int], failing: list[int]) -> None:
    following, known = Following(), {}
    for number, rows in enumerate(stretches):
        first_id, offset = 1_000 * number + 7, 80 * number
        stretch = following.add_stretch(first_id, 1, rows)
        following.view(stretch, 5, offset + rows[0], rows[0], rows[-1])
        known |= {offset + row: first_id + row for row in rows}
    assert len(following) == len(known)
    apart = set()
    for offset in failing:
        followed = following.at(5, offset)
        assert (followed.message_id if followed is not None else None) == known.get(offset)
        apart |= {offset} & known.keys()
    assert len(following) == len(known)
    wanted = [offset for offset in offsets if offset in known]
    lowest, highest = min(offsets), max(offsets)
    pieces = offsets_of(following.pieces(5, offsets, lowest, highest))
    assert pieces == sorted((offset, known[offset]) for offset in wanted if offset not in apart)
    among = following.among(5, offsets, lowest, highest)
    assert sorted((offset, followed.message_id) for offset, followed in among) == sorted(
        (offset, known[offset]) for offset in wanted if offset in apart)
    assert not wanted or following.any_within(5, lowest, highest)
    assert following.pieces(6, offsets, lowest, highest) == [] and not following.any_within(6, lowest, highest)
    assert following.partitions == {5}
    assert following.ids_within(0, 10_000) == sorted(known.values())
    assert all(following.by_id(message_id) is not None for message_id in known.values())
    assert following.by_id(999) is None


def test_a_message_that_is_taken_apart_lies_wherever_its_stretch_does() -> None:
    following = Following()
    stretch = following.add_stretch(100, 1, range(0, 10, 2))
    following.view(stretch, 5, 50, 0, 8)
    following.view(stretch, 9, 3, 4, 8)                          # a queue that took a part of the run
    followed = following.by_id(104)
    assert followed is not None and followed.places == [(5, 54), (9, 3)]
    assert following.at(9, 3) is followed and following.at(9, 4) is None
    beside = following.by_id(102)
    assert beside is not None and beside.places == [(5, 52)]


def test_of_too_many_stretches_the_oldest_go() -> None:
    following = Following(most=64)
    for number in range(200):
        stretch = following.add_stretch(number * 10, 1, range(3))
        following.view(stretch, number % 2, number * 10, 0, 2)
    assert following.by_id(0) is None and following.at(0, 0) is None
    assert following.by_id(1_990) is not None and following.at(1, 1_991) is not None
    assert len(following) == 3 * 64
    for number in range(200, 300):
        following.view(following.add_stretch(number * 10, 1, range(3)), 2, number * 10, 0, 2)
    assert following.partitions == {1, 2}                       # in 1 lies what was taken apart


def test_of_too_many_that_failed_the_oldest_go() -> None:
    following = Following(most=3)
    for message_id in (4, 3, 2, 1):
        following.place(following.add(message_id, 0), 7, message_id)
    assert len(following) == 3 and following.by_id(4) is None and following.at(7, 4) is None
    following.place(following.add(5, 0), 8, 1)
    for message_id in (1, 2, 3):
        following.remove(message_id)
    assert following.partitions == {8}


@given(st.lists(st.integers(0, 200), unique=True).map(sorted))
def test_numbers_as_ranges(numbers: list[int]) -> None:
    parts = evenly(numbers)
    assert [number for part in parts for number in part] == numbers
    whole = even(numbers)
    assert whole is None or list(whole) == numbers
    assert (whole is not None) == (len(parts) <= 1)
