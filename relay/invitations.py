"""An invitation: what one hub prints and the other is given, so that both pin each other's key. Pure.

    text       ghl1.BASE64URL of JSON {"url", "relay_ca", "link", "name", "key", "hub", "id", "secret", "ends_ms"}
    JOIN       0x15 | id 8 | key 32 | hub 16 | name text | signature 64 | proof 32       from whoever was invited
    JOINED     0x16 | id 8 | signature 64                                                from whoever invited

The secret is in the text alone and is sent by nobody: the proof is made with it. An invitation is used once, and ends.
"""
# decision 210: the secret is never sent
from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from gatehouse.relay.errors import BadInvitation
from gatehouse.relay.fields import Fields, text, u8
from gatehouse.relay.frames import KEY_BYTES, SIGNATURE_BYTES
from gatehouse.relay.sealing import HUB_BYTES, Identity, is_proof_of_invitation, proof_of_invitation, verify

JOIN: Final = 0x15
JOINED: Final = 0x16

PREFIX: Final = "ghl1."
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
MAX_TEXT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the text says; bytes as hexadecimal digits."""

    url: str
    link: str
    name: str
    key: str
    hub: str
    id: str
    secret: str
    ends_ms: int


class Join(NamedTuple):
    id: bytes
    key: bytes
    hub: bytes
    name: str
    signature: bytes
    proof: bytes


def encode_invitation(invitation: Invitation) -> str:
    return PREFIX + urlsafe_b64encode(json.dumps(asdict(invitation)).encode()).decode().rstrip("=")


def decode_invitation(said: str) -> Invitation:
    """Raises BadInvitation."""
    said = said.strip()
    if not said.startswith(PREFIX) or len(said) > MAX_TEXT:
        raise BadInvitation(f"this is no invitation: one begins with {PREFIX}")
    try:
        fields = json.loads(urlsafe_b64decode(said[len(PREFIX):] + "==="))
        invitation = Invitation(**fields)
        lengths = {"key": KEY_BYTES, "hub": HUB_BYTES, "id": ID_BYTES, "secret": SECRET_BYTES}
        sound = all(len(bytes.fromhex(getattr(invitation, name))) == length for name, length in lengths.items())
        sound = sound and isinstance(invitation.ends_ms, int) and all(
            isinstance(value, str) for value in (invitation.url, invitation.link, invitation.name))
    except (ValueError, TypeError, binascii.Error, UnicodeDecodeError):
        sound = False
    if not sound:
        raise BadInvitation("this invitation does not read: parts of it are missing, or were changed")
    return invitation


def _joining(invitation_id: bytes, inviting_key: bytes, key: bytes, hub: bytes, name: str) -> bytes:
    return b"gatehouse relay 1 join" + invitation_id + inviting_key + key + hub + text(name)


def encode_join(invitation: Invitation, identity: Identity, hub: bytes, name: str) -> bytes:
    """What the invited hub sends."""
    invitation_id = bytes.fromhex(invitation.id)
    words = _joining(invitation_id, bytes.fromhex(invitation.key), identity.public, hub, name)
    return (u8(JOIN) + invitation_id + identity.public + hub + text(name) + identity.sign(words)
            + proof_of_invitation(bytes.fromhex(invitation.secret), words))


def decode_join(letter: bytes) -> Join:
    """Raises BadFrame."""
    fields = Fields(letter, 1)
    join = Join(fields.take(ID_BYTES), fields.take(KEY_BYTES), fields.take(HUB_BYTES), fields.text(),
                fields.take(SIGNATURE_BYTES), fields.take(32))
    fields.end()
    return join


def check_join(join: Join, secret: bytes, inviting_key: bytes) -> None:
    """Raises BadInvitation, WrongKey."""
    words = _joining(join.id, inviting_key, join.key, join.hub, join.name)
    if not is_proof_of_invitation(secret, words, join.proof):
        raise BadInvitation("whoever wants to join was not given the invitation")
    verify(join.key, join.signature, words)


def encode_joined(invitation_id: bytes, identity: Identity, joining_key: bytes) -> bytes:
    """What the inviting hub answers."""
    return u8(JOINED) + invitation_id + identity.sign(b"gatehouse relay 1 joined" + invitation_id + joining_key)


def check_joined(letter: bytes, inviting_key: bytes, joining_key: bytes) -> bytes:
    """The number of the invitation that was used. Raises BadFrame, WrongKey."""
    fields = Fields(letter, 1)
    invitation_id, signature = fields.take(ID_BYTES), fields.take(SIGNATURE_BYTES)
    fields.end()
    verify(inviting_key, signature, b"gatehouse relay 1 joined" + invitation_id + joining_key)
    return invitation_id
