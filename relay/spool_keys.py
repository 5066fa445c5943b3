"""Keys that letters are sealed for which the meeting point keeps while their reader is away, and the seal itself. Pure.

    letter  0x18 | key number u64 | sender's key of the stretch 32 | signature 64 | number u64 | ciphertext
    sealed  apart i64 | a letter, packed or not        the reader's clock less the sender's, as they last were

The reader makes a key, keeps it in its log and says it in an open session. Another follows after a day; the older one
is kept for as long as something may lie at a meeting point that was sealed for it. The sender makes a key for each
stretch that it spools and signs it with its identity, over its address and the reader's key. So the meeting point
can drop letters and nothing else; a letter that comes twice is a repetition by its positions.

    SPOOL_KEY state   hub 16 | whose u8 | number u64   →  key 32 | made i64 | apart i64 | takes u8 | count u32 | filter*
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.relay.errors import WrongKey
from gatehouse.relay.fields import Fields, i64, text, u8, u32, u64
from gatehouse.relay.frames import (
    KEY_BYTES,
    SIGNATURE_BYTES,
)
from gatehouse.relay.sealing import Identity, Peer, verify

if TYPE_CHECKING:

    pass

SPOOL_SEALED: Final = 0x18
NUMBER_BYTES: Final = 8

OURS: Final = 0
THEIRS: Final = 1

ROTATE_MS: Final = 24 * 3_600_000
"""A key is followed by another after so long."""

KEPT_MS: Final = 62 * ROTATE_MS
"""A key is forgotten so long after it was made: twice what a meeting point keeps letters for at most."""


class KeptKey(NamedTuple):
    """A key of this hub (`key` is private) or of the other one (`key` is public)."""

    number: int
    key: bytes
    made_ms: int
    apart_ms: int = 0
    takes: int = 0
    filters: tuple[str, ...] = ()
    """What the reader takes: it knows a letter that was made for other filters by its key."""


def key_record(hub: bytes, whose: int, number: int, kept: KeptKey | None) -> StateRecord:
    value = None if kept is None else (
        kept.key + i64(kept.made_ms) + i64(kept.apart_ms) + u8(kept.takes) + u32(len(kept.filters))
        + b"".join([text(name) for name in kept.filters]))
    return StateRecord(Kind.SPOOL_KEY, hub + u8(whose) + u64(number), value)


def decode_key(key: bytes, value: bytes) -> KeptKey:
    number, fields = Fields(key, len(key) - NUMBER_BYTES).u64(), Fields(value)
    return KeptKey(number, fields.take(KEY_BYTES), fields.i64(), fields.i64(), fields.u8(),
                   tuple([fields.text() for _ in range(fields.u32())]))


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _signed(sender: bytes, number: int, reader_key: bytes, stretch_key: bytes) -> bytes:
    return b"gatehouse relay 1 spool" + sender + u64(number) + reader_key + stretch_key


def _cipher(private: X25519PrivateKey, public: bytes, signed: bytes) -> ChaCha20Poly1305:
    """Raises WrongKey."""
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise WrongKey("a key that letters were sealed with is none") from None
    return ChaCha20Poly1305(HKDF(hashes.SHA256(), 32, None, signed).derive(secret))


class Stretch:
    """The seal of what one hub has kept for another, from one start of it on. `secret`: 32 fresh random bytes."""

    def __init__(self, identity: Identity, theirs: KeptKey, secret: bytes) -> None:
        """Raises WrongKey."""
        ephemeral = X25519PrivateKey.from_private_bytes(secret)
        public = ephemeral.public_key().public_bytes_raw()
        signed = _signed(identity.address, theirs.number, theirs.key, public)
        self._cipher = _cipher(ephemeral, theirs.key, signed)
        self._head = u8(SPOOL_SEALED) + u64(theirs.number) + public + identity.sign(signed)
        self._apart = i64(theirs.apart_ms)
        self._sealed = 0

    def seal(self, topic: str, said: bytes) -> bytes:
        head = self._head + u64(self._sealed)
        sealed = self._cipher.encrypt(b"\1\0\0\0" + u64(self._sealed), self._apart + said, head + topic.encode())
        self._sealed += 1
        return head + sealed


class Opener:
    """Opens what the other hub had kept for this one; remembers one stretch."""

    def __init__(self) -> None:
        self._head = b""
        self._cipher: ChaCha20Poly1305 | None = None

    def open(self, topic: str, letter: bytes, ours: KeptKey, sender: Peer) -> tuple[int, bytes]:
        """How far the clocks are apart, and what is said. Raises WrongKey, BadFrame."""
        fields = Fields(letter, 1 + NUMBER_BYTES)
        stretch_key, signature = fields.take(KEY_BYTES), fields.take(SIGNATURE_BYTES)
        number = fields.u64()
        head = letter[:1 + NUMBER_BYTES + KEY_BYTES + SIGNATURE_BYTES]
        if self._cipher is None or head != self._head:
            private = X25519PrivateKey.from_private_bytes(ours.key)
            signed = _signed(sender.address, ours.number, public_of(ours.key), stretch_key)
            verify(sender.key, signature, signed)
            self._cipher, self._head = _cipher(private, stretch_key, signed), head
        try:
            said = self._cipher.decrypt(b"\1\0\0\0" + u64(number), fields.rest(), head + u64(number) + topic.encode())
        except InvalidTag:
            raise WrongKey("a letter that was kept was changed, or sealed by somebody else") from None
        opened = Fields(said)
        return opened.i64(), opened.rest()


def number_of(letter: bytes) -> int:
    """The number of the key that a letter was sealed for. Raises BadFrame."""
    return Fields(letter, 1).u64()
