"""Every frame and letter of version 1, byte for byte: written, read, cut off anywhere, and with bytes behind."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import Piece
from gatehouse.relay import frames, letters
from gatehouse.relay.errors import BadFrame, RelayError, UnsupportedVersion, WrongKey
from gatehouse.relay.frames import (
    Bounced,
    Carry,
    Challenge,
    Held,
    Hello,
    Presence,
    Proof,
    Refused,
    Spool,
    Spooled,
    Spools,
    Taken,
    Welcome,
)
from gatehouse.relay.histories import Last, mark_of
from gatehouse.relay.invitations import Invitation, check_join, decode_join, encode_join
from gatehouse.relay.letters import Batches, NextKey, Pinned, Positions, Ready, Section, SpoolKey, Stopped, StoredUntil
from gatehouse.relay.sealing import SEALED, SEALED_AES, Greeting, Identity, Peer, session_of
from gatehouse.relay.spool_keys import KeptKey, Opener, Stretch, number_of, public_of

K, N, A = b"k" * 32, b"n" * 32, b"a" * 16
FRAMES = [
    (Hello(1, 0, K, N, "hub"), "01" + "4748524c" + "01" + "00" + K.hex() + N.hex() + "0003" + "687562"),
    (Challenge(1, 0, N, "relay"), "02" + "01" + "00" + N.hex() + "0005" + "72656c6179"),
    (Proof(b"s" * 64), "03" + "73" * 64),
    (Welcome(16 << 20), "04" + "01000000"),
    (Refused("full", "no"), "05" + "0004" + "66756c6c" + "0002" + "6e6f"),
    (Carry(A, "plant", b"xyz"), "06" + A.hex() + "0005" + "706c616e74" + "78797a"),
    (Presence(A, True), "07" + A.hex() + "01"),
    (Bounced(A, "not_here", ""), "08" + A.hex() + "0008" + "6e6f745f68657265" + "0000"),
    (Spools(A, b"i" * 8, 1 << 20), "09" + A.hex() + "69" * 8 + "0000000000100000"),
    (Spool(A, 7, "plant", b"xyz"), "0a" + A.hex() + "0000000000000007" + "0005" + "706c616e74" + "78797a"),
    (Held(A, 7), "0b" + A.hex() + "0000000000000007"),
    (Spooled(A, 7, "plant", b"xyz"), "0c" + A.hex() + "0000000000000007" + "0005" + "706c616e74" + "78797a"),
    (Taken(A, 8, 1 << 20), "0d" + A.hex() + "0000000000000008" + "00100000"),
]
PIECE = Piece(7, 2, True, b"data", 1_000, 2_000, 99)
LETTERS = [
    (Positions([(b"u" * 16, 3, 9)]), "01" + "00000001" + "75" * 16 + "00000003" + "0000000000000009"),
    (Positions([(b"u" * 16, 3, 9), (b"v" * 16, 0, 1)], [Last(7, b"m" * 8), None]),
     "01" + "00000002" + "75" * 16 + "00000003" + "0000000000000009" + "76" * 16 + "00000000" + "0000000000000001"
     + "0000000000000007" + "6d" * 8 + "00" * 16),
    (Batches(6, 1_000, b"u" * 16, "plant", [Section(3, False, 6, 9, 0, [], True)]),
     "03" + "0000000000000006" + "00000000000003e8" + "75" * 16 + "0005" + "706c616e74" + "00000001"
     + "00000003" + "02" + "0000000000000006" + "0000000000000009" + "0000000000000000" + "00000000"),
    (Ready(4 << 20, ["a/#", "b"]), "02" + "00400000" + "00000002" + "0003" + "612f23" + "0001" + "62" + "00"),
    (Ready(4 << 20, ["b"], 1), "02" + "00400000" + "00000001" + "0001" + "62" + "01"),
    (Batches(5, 1_000, b"u" * 16, "plant", [Section(3, True, 6, 9, 1, [PIECE])]),
     "03" + "0000000000000005" + "00000000000003e8" + "75" * 16 + "0005" + "706c616e74" + "00000001"
     + "00000003" + "01" + "0000000000000006" + "0000000000000009" + "0000000000000001" + "00000001"
     + "0000000000000007" + "00000002" + "00000000000003e8" + "00000000000007d0" + "0000000000000063" + "01"
     + "00000004" + "64617461"),
    (StoredUntil(5), "04" + "0000000000000005"),
    (Stopped("gap", "why"), "05" + "0003" + "676170" + "0003" + "776879"),
    (NextKey(K, b"s" * 64), "08" + K.hex() + "73" * 64),
    (Pinned(K), "09" + K.hex()),
    (SpoolKey(9, K, 1_000), "07" + "0000000000000009" + K.hex() + "00000000000003e8"),
]


OF_A_PIECE = ("first_offset", "count", "whole", "data", "append_ms", "max_timestamp_ms", "first_id")


def plain(letter: letters.Letter) -> object:
    """A letter whose pieces can be compared."""
    if not isinstance(letter, Batches):
        return letter
    return letter._replace(sections=[
        section._replace(pieces=[tuple(getattr(piece, name) for name in OF_A_PIECE) for piece in section.pieces])
        for section in letter.sections])


@pytest.mark.parametrize(("frame", "written"), FRAMES, ids=lambda value: type(value).__name__)
def test_frames(frame: frames.Frame, written: str) -> None:
    data = bytes.fromhex(written)
    assert frames.encode(frame) == data
    assert frames.decode(data) == frame
    if not isinstance(frame, (Carry, Spool, Spooled)):
        assert frames.decode(data + b"more of a later minor version") == frame
        for end in range(len(data)):
            with pytest.raises(BadFrame):
                frames.decode(data[:end])


@pytest.mark.parametrize(("letter", "written"), LETTERS, ids=lambda value: type(value).__name__)
def test_letters(letter: letters.Letter, written: str) -> None:
    data = bytes.fromhex(written)
    assert letters.encode(letter) == data
    assert plain(letters.decode(data)) == plain(letter)
    for end in range(len(data)):
        if isinstance(letter, Ready) and end == len(data) - 1:
            assert letters.decode(data[:end]) == letter._replace(takes=0), "as 1.0 says it"
            continue
        if isinstance(letter, Positions) and letter.last and end == len(data) - 16 * len(letter.last):
            assert letters.decode(data[:end]) == letter._replace(last=[]), "as 1.2 says it"
            continue
        with pytest.raises(BadFrame):
            letters.decode(data[:end])


NAME = bytes.fromhex("28b52ffd" + "20" + "04" + "210000" + "6e616d65")      # a frame of zstd with one block, as it is


def test_a_packed_letter() -> None:
    assert letters.unpack(b"\x06" + b"\0\0\0\x04" + NAME, 4) == b"name"
    letter = b"\x03" + b"reading " * 1_000
    packed = letters.pack(letter)
    assert packed[:5] == b"\x06" + len(letter).to_bytes(4, "big") and len(packed) < 100
    assert letters.unpack(packed, len(letter)) == letters.unpack(letter, 0) == letter
    assert letters.pack(b"\x03short") == b"\x03short"


@pytest.mark.parametrize("lie", [
    b"\x06", b"\x06\0\0", b"\x06\0\0\0\x04", b"\x06\0\0\0\x04no frame", b"\x06\xff\xff\xff\xff",
    b"\x06\0\0\0\x03" + NAME, b"\x06\0\0\0\x05" + NAME, b"\x06\0\0\0\x04" + NAME * 2,
    b"\x06\0\0\x04\0" + letters.pack(b"\x06" + bytes(1_023))[5:], letters.pack(bytes(200_000)),
    letters.pack(bytes(1_000)) + b"x", letters.pack(bytes(1_000))[:-1],
])
def test_a_packed_letter_that_lies(lie: bytes) -> None:
    with pytest.raises(BadFrame):
        letters.unpack(lie, 100_000)


def test_a_mark() -> None:
    assert mark_of(99, 1_000, b"key", b"value").hex() == "f1bb922106b57eba"
    others = [(98, 1_000, b"key", b"value"), (99, 999, b"key", b"value"), (99, 1_000, b"keyv", b"alue"),
              (99, 1_000, None, b"value"), (99, 1_000, b"", b"value"), (99, 1_000, b"key", None),
              (99, 1_000, b"key", b"")]
    assert len({mark_of(*other) for other in others} | {mark_of(99, 1_000, b"key", b"value")}) == len(others) + 1


def test_another_major_version_is_refused_by_name() -> None:
    for frame, _ in FRAMES[:2]:
        data = bytearray(frames.encode(frame))
        data[5 if isinstance(frame, Hello) else 1] = 2
        with pytest.raises(UnsupportedVersion, match="speaks version 2"):
            frames.decode(bytes(data))


@given(st.binary(max_size=300))
def test_garbage_raises_only_what_links_raise(garbage: bytes) -> None:
    for decode in (frames.decode, letters.decode, lambda data: decode_join(b"\x15" + data)):
        try:
            decode(garbage)
        except RelayError:
            pass


@given(st.integers(0, 150), st.binary(min_size=1, max_size=8))
def test_a_changed_letter_is_read_or_refused(at: int, instead: bytes) -> None:
    for _, written in LETTERS:
        data = bytes.fromhex(written)
        changed = data[:at] + instead + data[at + len(instead):]
        try:
            letters.decode(changed)
        except RelayError:
            pass


def greeted():
    a, b = Identity(b"a" * 32), Identity(b"b" * 32)
    first = Greeting(a, b"A" * 16, Peer(b.public, b"B" * 16), b"1" * 32, True)
    second = Greeting(b, b"B" * 16, Peer(a.public, b"A" * 16), b"2" * 32, False)
    greet = first.greet()
    answer = second.answer(greet)
    confirm, mine = first.confirm(answer)
    return greet, answer, confirm, mine, second.confirmed(confirm)


def test_a_greeting_of_known_keys() -> None:
    """What was made of these keys once is made of them again: another hub of version 1 can rely on it."""
    greet, answer, confirm, mine, theirs = greeted()
    assert (len(greet), len(answer), len(confirm)) == (113, 113, 65)
    assert mine.id == theirs.id
    sealed = mine.seal("plant", b"said")
    assert session_of(sealed) == mine.id and sealed[9:17] == bytes(8)
    assert theirs.open("plant", sealed) == b"said"
    assert (mine.id.hex(), sealed.hex()) == VECTOR
    mine.seals_aes = True
    sealed = mine.seal("plant", b"more")
    assert theirs.open("plant", sealed) == b"more"
    assert sealed.hex() == AES_VECTOR


@pytest.mark.parametrize("kind", [SEALED, SEALED_AES])
def test_a_letter_is_opened_as_it_was_sealed(kind: int) -> None:
    """Both kinds share one row of numbers, and each has keys of its own."""
    *_, mine, theirs = greeted()
    mine.seals_aes = kind == SEALED_AES
    sealed = mine.seal("plant", b"said")
    assert sealed[0] == kind
    with pytest.raises(WrongKey):
        theirs.open("plant", bytes((SEALED + SEALED_AES - kind,)) + sealed[1:])
    assert theirs.open("plant", sealed) == b"said"
    mine.seals_aes = not mine.seals_aes
    assert theirs.open("plant", mine.seal("plant", b"more")) == b"more"


AES_VECTOR = "192561452b8d0fe8870000000000000001c57b88590fd83a501355f6edbab1ee85a82d0835"
VECTOR = ("2561452b8d0fe887",
          "142561452b8d0fe8870000000000000000afa11f51ccef48af0bb7b22b4082b7f9e2da569e")


def test_a_join_is_proved_by_both() -> None:
    inviting, joining = Identity(b"i" * 32), Identity(b"j" * 32)
    invitation = Invitation("wss://r", "link", "i", inviting.public.hex(), "11" * 16, "22" * 8, "33" * 32, 1)
    join = decode_join(encode_join(invitation, joining, b"J" * 16, "j"))
    check_join(join, b"\x33" * 32, inviting.public)
    for other in (join._replace(hub=b"X" * 16), join._replace(key=Identity(b"x").public), join._replace(name="x"),
                  join._replace(proof=bytes(32)), join._replace(signature=bytes(64))):
        with pytest.raises(RelayError):
            check_join(other, b"\x33" * 32, inviting.public)


def test_a_letter_that_is_kept_of_known_keys() -> None:
    """Sealed for a key of the reader's, signed by its sender: the same bytes for the same keys."""
    sender = Identity(b"1" * 32)
    theirs = KeptKey(9, public_of(b"3" * 32), 0, apart_ms=-5)
    stretch = Stretch(sender, theirs, b"4" * 32)
    letters_kept = [stretch.seal("plant", b"said"), stretch.seal("plant", b"more")]
    assert letters_kept[0][:41].hex() == "18" + "0000000000000009" + public_of(b"4" * 32).hex()
    assert letters_kept[0][105:].hex() == "00" * 8 + "99ceef6d35395a889156a4f08ebafd0bff1737002a6b4d8c10ea8d20"
    assert [number_of(letter) for letter in letters_kept] == [9, 9]
    opener, said_by = Opener(), Peer(sender.public, b"sender".ljust(16))
    ours = theirs._replace(key=b"3" * 32)
    assert [opener.open("plant", letter, ours, said_by) for letter in letters_kept] == [(-5, b"said"), (-5, b"more")]
