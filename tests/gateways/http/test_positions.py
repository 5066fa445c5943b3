"""The word that says where a reader of a stream is."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.live.positions import MAX_PARTITIONS, MAX_WORD_CHARS, Positions, decode_word

HUB = bytes(range(16))
PLACES = st.dictionaries(st.integers(1, 1 << 40), st.integers(1, (1 << 62) - 1), max_size=20)


@given(PLACES)
def test_a_word_says_the_place(offsets):
    assert decode_word(Positions(HUB, offsets).word().decode(), HUB).offsets == offsets


def test_what_is_not_in_a_word_is_the_beginning():
    assert decode_word(Positions(HUB, {7: 0, 8: 3}).word().decode(), HUB).offsets == {8: 3}
    assert Positions(HUB).at(12) == 0


def test_a_place_moves_on_and_its_copy_does_not():
    positions = Positions(HUB, {1: 5, 2: 6})
    twin = positions.copy()
    positions.move(1, 9)
    positions.forget(2)
    assert (twin.offsets, positions.offsets) == ({1: 5, 2: 6}, {1: 9})
    assert decode_word(positions.word().decode(), HUB).offsets == {1: 9}


def test_the_widest_stream_fits_into_a_header():
    positions = Positions(HUB, {(1 << 20) + partition: (1 << 35) - 1 for partition in range(MAX_PARTITIONS)})
    assert 0 < len(positions.word()) <= MAX_WORD_CHARS
    positions.move(1, 1)
    assert positions.word() == b""


@given(st.one_of(st.text(max_size=40), st.binary(max_size=40).map(lambda data: data.hex())))
def test_garbage_is_refused(text):
    with pytest.raises(ValueError):
        decode_word(text, HUB)


@pytest.mark.parametrize("spoil", [lambda word: word[:-1], lambda word: word + "A", lambda word: "B" + word[1:],
                                   lambda word: word.swapcase(), lambda word: "A" * 8000])
def test_a_spoilt_word_is_refused(spoil):
    with pytest.raises(ValueError):
        decode_word(spoil(Positions(HUB, {3: 1000, 4: 77}).word().decode()), HUB)


def test_another_hubs_word_is_refused():
    with pytest.raises(ValueError, match="another hub"):
        decode_word(Positions(bytes(16), {3: 1}).word().decode(), HUB)
