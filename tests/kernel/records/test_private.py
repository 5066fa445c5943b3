"""What a door keeps of a message for itself is shown to nobody else."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Headers, Piece
from gatehouse.kernel.records.batch import as_batch, sound_records
from gatehouse.kernel.records.private import MARK, has_private, public_headers, public_piece, public_record
from gatehouse.kernel.records.record import encode_headers, encode_key, encode_record

OWN = (MARK + b"amqp", b"\x00\x01")
USERS: Headers = ((b"unit", b"C"), (b"none", None))


def piece_of(*headers: Headers, value: bytes | None = b"21", whole: bool = False) -> Piece:
    records = [encode_record(3, at, encode_key(b"k"), value, encode_headers(pairs)) for at, pairs in enumerate(headers)]
    return Piece(10, len(records), whole, b"".join(records), 1_000, 1_000 + len(records) - 1, 500)


def test_private_headers_are_taken_out_wherever_they_stand() -> None:
    assert public_headers(encode_headers([OWN, *USERS])) == USERS
    assert public_headers(encode_headers([USERS[0], OWN, USERS[1]])) == USERS
    assert public_headers(encode_headers([OWN])) == public_headers(encode_headers([])) == ()


def test_a_piece_without_them_is_the_same_piece() -> None:
    piece = piece_of(USERS, (), USERS)
    assert public_piece(piece) is piece


def test_a_piece_with_them_keeps_everything_else() -> None:
    piece = public_piece(piece_of(USERS, (OWN, *USERS), (OWN,), ()))
    assert not has_private(piece.data)
    assert [(record[0], record[1], record[2], record[3], record[4], record[5], record[6])
            for record in sound_records(piece)] == [
        (10 + at, 1_000 + at, b"k", b"21", headers, 3, 500 + at) for at, headers in enumerate((USERS, USERS, (), ()))]
    assert len(as_batch(piece, 0)) == 61 + len(piece.data)


@pytest.mark.parametrize("value", [MARK, b"\xf4", None])
def test_the_mark_in_a_value_or_a_header_s_value_is_nobody_s_own(value: bytes | None) -> None:
    headers = ((b"a", MARK),)
    piece = public_piece(piece_of(headers, (), value=value))
    assert [record[3:5] for record in sound_records(piece)] == [(value, headers), (value, ())]


def test_a_producer_s_batch_is_as_it_came() -> None:
    piece = piece_of((OWN,), whole=True)
    assert public_piece(piece) is piece


def test_a_record_that_is_read() -> None:
    clean = (1, 2, b"k", b"v", USERS, 3, 4)
    assert public_record(clean) == clean
    assert public_record((1, 2, b"k", b"v", (OWN, *USERS), 3, 4)) == clean


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        public_headers(b"\x04" + MARK)
