"""What a hub and the meeting point say to each other, one frame in each binary WebSocket message. Pure.

    1 HELLO      hub    "GHRL" | major u8 | minor u8 | key 32 | nonce 32 | name text
    2 CHALLENGE  relay  major u8 | minor u8 | nonce 32 | name text
    3 PROOF      hub    signature 64
    4 WELCOME    relay  largest frame u32
    5 REFUSED    relay  code text | text            then it hangs up
    6 CARRY      both   peer 16 | topic text | what is carried: to the peer, or from it
    7 PRESENCE   relay  peer 16 | there u8
    8 BOUNCED    relay  peer 16 | code text | text  something for this peer was not carried
    9 SPOOLS     relay  peer 16 | spool 8 | bytes u64          what is kept for it while it is away; 0: not now
   10 SPOOL      hub    peer 16 | number u64 | topic text | what is kept
   11 HELD       relay  peer 16 | number u64                   that letter for it, and those before, are on disk
   12 SPOOLED    relay  peer 16 | number u64 | topic text | what was kept: from this peer
   13 TAKEN      hub    peer 16 | number u64 | window u32      letters of this peer before that one may go

SPOOLS to TAKEN are of 1.2: only who said in HELLO that it speaks that is sent one. `spool` is another one whenever
letters of it were lost. TAKEN asks for what was kept, so many bytes of it on their way; window 0: for none.

Behind each kind (u8) come its fields; a minor version may add some at the end, which an older peer passes over. A hub
is known by its address: BLAKE2b of its key, 16 bytes long.
"""
from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from gatehouse.relay.errors import BadFrame, UnsupportedVersion
from gatehouse.relay.fields import Fields, text, u8, u32, u64

MAJOR: Final = 1
MINOR: Final = 4
SPOOL_MINOR: Final = 2                # from this minor version on a hub knows of spools
MAGIC: Final = b"GHRL"

HELLO: Final = 1
CHALLENGE: Final = 2
PROOF: Final = 3
WELCOME: Final = 4
REFUSED: Final = 5
CARRY: Final = 6
PRESENCE: Final = 7
BOUNCED: Final = 8
SPOOLS: Final = 9
SPOOL: Final = 10
HELD: Final = 11
SPOOLED: Final = 12
TAKEN: Final = 13

SPOOL_FULL: Final = "spool_full"
"""How BOUNCED says that nothing more is kept for this peer now."""

LEAST_FRAME_BYTES: Final = 1 << 16
"""What every meeting point carries."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
ADDRESS_BYTES: Final = 16
SPOOL_BYTES: Final = 8
ENVELOPE_BYTES: Final = 1 + ADDRESS_BYTES + 2        # and the topic


class Hello(NamedTuple):
    major: int
    minor: int
    key: bytes
    nonce: bytes
    name: str


class Challenge(NamedTuple):
    major: int
    minor: int
    nonce: bytes
    name: str


class Proof(NamedTuple):
    signature: bytes


class Welcome(NamedTuple):
    max_frame_bytes: int


class Refused(NamedTuple):
    code: str
    reason: str


class Carry(NamedTuple):
    peer: bytes
    topic: str
    payload: bytes


class Presence(NamedTuple):
    peer: bytes
    there: bool


class Bounced(NamedTuple):
    peer: bytes
    code: str
    reason: str


class Spools(NamedTuple):
    peer: bytes
    spool: bytes
    max_bytes: int


class Spool(NamedTuple):
    peer: bytes
    number: int
    topic: str
    payload: bytes


class Held(NamedTuple):
    peer: bytes
    number: int


class Spooled(NamedTuple):
    peer: bytes
    number: int
    topic: str
    payload: bytes


class Taken(NamedTuple):
    peer: bytes
    number: int
    window_bytes: int


Frame = (Hello | Challenge | Proof | Welcome | Refused | Carry | Presence | Bounced | Spools | Spool | Held | Spooled
         | Taken)


def address_of_key(key: bytes) -> bytes:
    """How a hub with this key is called at the meeting point."""
    return blake2b(key, digest_size=ADDRESS_BYTES).digest()


def what_is_proved(hub_nonce: bytes, relay_nonce: bytes, relay: str, key: bytes) -> bytes:
    """What a hub signs for the meeting point: it names the meeting point, so that nobody can pass it on to another."""
    return b"gatehouse relay 1 proof" + hub_nonce + relay_nonce + key + relay.encode()


def encode(frame: Frame) -> bytes:
    """One frame as it is sent."""
    match frame:
        case Hello(major, minor, key, nonce, name):
            return u8(HELLO) + MAGIC + u8(major) + u8(minor) + key + nonce + text(name)
        case Challenge(major, minor, nonce, name):
            return u8(CHALLENGE) + u8(major) + u8(minor) + nonce + text(name)
        case Proof(signature):
            return u8(PROOF) + signature
        case Welcome(max_frame_bytes):
            return u8(WELCOME) + u32(max_frame_bytes)
        case Refused(code, reason):
            return u8(REFUSED) + text(code) + text(reason)
        case Carry(peer, topic, payload):
            return u8(CARRY) + peer + text(topic) + payload
        case Presence(peer, there):
            return u8(PRESENCE) + peer + u8(there)
        case Bounced(peer, code, reason):
            return u8(BOUNCED) + peer + text(code) + text(reason)
        case Spools(peer, spool, max_bytes):
            return u8(SPOOLS) + peer + spool + u64(max_bytes)
        case Spool(peer, number, topic, payload):
            return u8(SPOOL) + peer + u64(number) + text(topic) + payload
        case Held(peer, number):
            return u8(HELD) + peer + u64(number)
        case Spooled(peer, number, topic, payload):
            return u8(SPOOLED) + peer + u64(number) + text(topic) + payload
        case Taken(peer, number, window_bytes):
            return u8(TAKEN) + peer + u64(number) + u32(window_bytes)


def decode(data: bytes) -> Frame:
    """Read one frame. Raises BadFrame, UnsupportedVersion."""
    fields = Fields(data)
    kind = fields.u8()
    if kind == CARRY:
        return Carry(fields.take(ADDRESS_BYTES), fields.text(), fields.rest())
    if kind == HELLO:
        if fields.take(len(MAGIC)) != MAGIC:
            raise BadFrame("whoever connects does not speak the relay's protocol")
        return Hello(_major(fields), fields.u8(), fields.take(KEY_BYTES), fields.take(NONCE_BYTES), fields.text())
    if kind == CHALLENGE:
        return Challenge(_major(fields), fields.u8(), fields.take(NONCE_BYTES), fields.text())
    if kind == PROOF:
        return Proof(fields.take(SIGNATURE_BYTES))
    if kind == WELCOME:
        return Welcome(fields.u32())
    if kind == REFUSED:
        return Refused(fields.text(), fields.text())
    if kind == PRESENCE:
        return Presence(fields.take(ADDRESS_BYTES), fields.u8() == 1)
    if kind == BOUNCED:
        return Bounced(fields.take(ADDRESS_BYTES), fields.text(), fields.text())
    if kind == SPOOLS:
        return Spools(fields.take(ADDRESS_BYTES), fields.take(SPOOL_BYTES), fields.u64())
    if kind == SPOOL:
        return Spool(fields.take(ADDRESS_BYTES), fields.u64(), fields.text(), fields.rest())
    if kind == HELD:
        return Held(fields.take(ADDRESS_BYTES), fields.u64())
    if kind == SPOOLED:
        return Spooled(fields.take(ADDRESS_BYTES), fields.u64(), fields.text(), fields.rest())
    if kind == TAKEN:
        return Taken(fields.take(ADDRESS_BYTES), fields.u64(), fields.u32())
    raise BadFrame(f"there is no frame of kind {kind}")


def _major(fields: Fields) -> int:
    major = fields.u8()
    if major != MAJOR:
        raise UnsupportedVersion(f"the other side speaks version {major} of the protocol, and this one {MAJOR}")
    return major
