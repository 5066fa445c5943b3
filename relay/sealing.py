"""Who a hub is, and how two hubs agree on keys that the meeting point does not have. Pure: chance comes as arguments.

A hub's identity is an Ed25519 key. Two hubs that have pinned each other's greet in three letters:

    GREET   first   ephemeral X25519 key 32 | hub 16 | signature 64
    ANSWER  second  ephemeral X25519 key 32 | hub 16 | signature 64
    CONFIRM first   signature 64

Each signature covers everything that was said until there, the addresses of both, and who speaks. Both keys of the
session, one for each direction, are made of the X25519 secret and of all that was signed, so they are new with every
session and are kept nowhere. A sealed letter is

    SEALED      session 8 | number u64 | ChaCha20-Poly1305 of what is said
    SEALED_AES  session 8 | number u64 | AES-256-GCM of what is said; 1.4, to who has said that he reads it

The numbers count up from 0 without a gap; kind, session, number and the topic on the envelope are sealed in. So a
letter that was dropped, doubled, moved or opened on the way is seen with the next one, and none of it is believed.
"""
# decision 208: signed keys of the moment, numbered letters; 312: AES where both machines have it
from __future__ import annotations

import hmac
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gatehouse.relay.errors import BadFrame, WrongKey
from gatehouse.relay.fields import Fields, u8, u64
from gatehouse.relay.frames import KEY_BYTES, SIGNATURE_BYTES, address_of_key

GREET: Final = 0x10
ANSWER: Final = 0x11
CONFIRM: Final = 0x12
SEALED: Final = 0x14
SEALED_AES: Final = 0x19

HUB_BYTES: Final = 16
SESSION_BYTES: Final = 8
TAG_BYTES: Final = 16
MAX_LETTERS: Final = 1 << 32
MAX_BYTES: Final = 1 << 40
"""Of one session in one direction; then the hubs greet anew. 2**36 blocks of AES-GCM leave a forger 2**-56."""


class Identity:
    """The key of a hub: made of a secret that the hub keeps, so that a restored hub is the same."""

    def __init__(self, secret: bytes, seed: bytes | None = None) -> None:
        """`seed`: of the key that has followed the one which is made of the secret."""
        if seed is None:
            seed = blake2b(secret, digest_size=32, person=b"relay identity").digest()
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public: Final = self._key.public_key().public_bytes_raw()
        self.address: Final = address_of_key(self.public)

    def sign(self, text: bytes) -> bytes:
        return self._key.sign(text)


def what_is_announced(hub: bytes, key: bytes, next_key: bytes) -> bytes:
    """What a hub signs with the key that will follow its own: it has it."""
    return b"gatehouse relay 1 next key" + hub + key + next_key


def verify(key: bytes, signature: bytes, text: bytes) -> None:
    """Raises WrongKey."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise WrongKey("a signature does not match the key that is pinned") from None


class Peer(NamedTuple):
    """The hub at the other end: its key and its hub's identity as pinned."""

    key: bytes
    hub: bytes

    @property
    def address(self) -> bytes:
        return address_of_key(self.key)


class SessionKeys(NamedTuple):
    """The keys by which letters of one direction of a session are sealed."""

    chacha: bytes
    aes: bytes


class Session:
    """Two hubs that have greeted: seals what one says, opens what the other does."""

    def __init__(self, session_id: bytes, sending: SessionKeys, receiving: SessionKeys) -> None:
        self.id: Final = session_id
        self.seals_aes = False
        """Letters are sealed with AES from now on: the other hub reads that."""

        self._seal: Final = ChaCha20Poly1305(sending.chacha)
        self._seal_aes: Final = AESGCM(sending.aes)
        self._open: Final = ChaCha20Poly1305(receiving.chacha)
        self._open_aes: Final = AESGCM(receiving.aes)
        self._sent = self._sent_bytes = 0
        self._received = self._received_bytes = 0

    @property
    def used_up(self) -> bool:
        """Whether it is time to greet anew."""
        return (max(self._sent, self._received) >= MAX_LETTERS
                or max(self._sent_bytes, self._received_bytes) >= MAX_BYTES)

    def seal(self, topic: str, said: bytes) -> bytes:
        kind, cipher = (SEALED_AES, self._seal_aes) if self.seals_aes else (SEALED, self._seal)
        head = u8(kind) + self.id + u64(self._sent)
        sealed = cipher.encrypt(b"\0\0\0\0" + u64(self._sent), said, head + topic.encode())
        self._sent += 1
        self._sent_bytes += len(said)
        return head + sealed

    def open(self, topic: str, letter: bytes) -> bytes:
        """What is said in a letter of this session. Raises WrongKey for any but the next one as it was sealed."""
        fields = Fields(letter, 1 + SESSION_BYTES)
        number = fields.u64()
        if number != self._received:
            raise WrongKey(f"letter {number} came where letter {self._received} is next: the way between the hubs "
                           "drops, doubles or moves letters")
        head = letter[:1 + SESSION_BYTES + 8]
        cipher = self._open_aes if letter[0] == SEALED_AES else self._open
        try:
            said = cipher.decrypt(b"\0\0\0\0" + u64(number), memoryview(letter)[len(head):], head + topic.encode())
        except InvalidTag:
            raise WrongKey("a letter was changed on the way, or sealed by somebody else") from None
        self._received += 1
        self._received_bytes += len(said)
        return said


def session_of(letter: bytes) -> bytes:
    """The session that a sealed letter belongs to. Raises BadFrame."""
    fields = Fields(letter)
    fields.u8()
    return fields.take(SESSION_BYTES)


class Greeting:
    """One try of two hubs to greet. `secret`: 32 fresh random bytes; `first`: whether this hub speaks first."""

    def __init__(self, identity: Identity, hub: bytes, peer: Peer, secret: bytes, first: bool) -> None:
        self._identity = identity
        self._hub = hub
        self._peer = peer
        self._ephemeral = X25519PrivateKey.from_private_bytes(secret)
        self.first: Final = first
        names = (identity.address, peer.address) if first else (peer.address, identity.address)
        self._said = b"gatehouse relay 1 greeting" + b"".join(names)
        self._theirs = b""

    def greet(self) -> bytes:
        """The first letter."""
        return self._say(GREET)

    def answer(self, letter: bytes) -> bytes:
        """The second letter, of the first. Raises WrongKey, BadFrame."""
        self._hear(GREET, letter)
        return self._say(ANSWER)

    def confirm(self, letter: bytes) -> tuple[bytes, Session]:
        """The third letter, of the second, and the session. Raises WrongKey, BadFrame."""
        self._hear(ANSWER, letter)
        signed = self._identity.sign(self._said + u8(CONFIRM))
        return u8(CONFIRM) + signed, self._session()

    def confirmed(self, letter: bytes) -> Session:
        """The session, of the third letter. Raises WrongKey, BadFrame."""
        fields = Fields(letter, 1)
        verify(self._peer.key, fields.take(SIGNATURE_BYTES), self._said + u8(CONFIRM))
        fields.end()
        return self._session()

    def _say(self, kind: int) -> bytes:
        words = u8(kind) + self._ephemeral.public_key().public_bytes_raw() + self._hub
        self._said += words
        return words + self._identity.sign(self._said)

    def _hear(self, kind: int, letter: bytes) -> None:
        fields = Fields(letter)
        if fields.u8() != kind:
            raise BadFrame("a greeting came out of turn")
        self._theirs = fields.take(KEY_BYTES)
        hub, signature = fields.take(HUB_BYTES), fields.take(SIGNATURE_BYTES)
        fields.end()
        self._said += letter[:-SIGNATURE_BYTES]
        verify(self._peer.key, signature, self._said)
        if hub != self._peer.hub:
            raise WrongKey("the other hub says that it is another one than the link was made with")

    def _session(self) -> Session:
        try:
            secret = self._ephemeral.exchange(X25519PublicKey.from_public_bytes(self._theirs))
        except ValueError:
            raise WrongKey("the other hub's key for this session is none") from None
        digest = sha256(self._said).digest()
        keys = HKDF(hashes.SHA256(), 64, digest, b"gatehouse relay 1 keys").derive(secret)
        aes_keys = HKDF(hashes.SHA256(), 64, digest, b"gatehouse relay 1 aes keys").derive(secret)
        first, second = SessionKeys(keys[:32], aes_keys[:32]), SessionKeys(keys[32:], aes_keys[32:])
        return Session(digest[:SESSION_BYTES], *((first, second) if self.first else (second, first)))


def proof_of_invitation(secret: bytes, text: bytes) -> bytes:
    """What shows that somebody was given an invitation's secret."""
    return hmac.digest(secret, b"gatehouse relay 1 invitation" + text, "sha256")


def is_proof_of_invitation(secret: bytes, text: bytes, proof: bytes) -> bool:
    return hmac.compare_digest(proof_of_invitation(secret, text), proof)
