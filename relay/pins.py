"""What is kept of links and invitations, as state records: who is at the other end, and what people have said. Pure."""
from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.relay.sealing import Peer


@dataclass(frozen=True, slots=True)
class Pin:
    """One link. `secret` and the rest of an invitation stay until the other hub has answered."""

    key: str
    hub: str
    name: str = ""
    begun_ms: int = 0
    paused: bool = False
    invitation: str = ""
    next_key: str = ""
    """What the other hub has said will follow its key."""

    old_key: str = ""
    """What its key has followed: letters that are kept may be signed with it."""

    next_pinned: str = ""
    """The key that will follow ours, once the other hub has said that it has pinned it."""

    @property
    def peer(self) -> Peer:
        return Peer(bytes.fromhex(self.key), bytes.fromhex(self.hub))

    @property
    def peers(self) -> list[Peer]:
        """By every key that is pinned, the one in use first."""
        return [Peer(bytes.fromhex(key), bytes.fromhex(self.hub))
                for key in (self.key, self.next_key, self.old_key) if key]


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation that nobody has used."""

    link: str
    secret: str
    ends_ms: int


def pin_record(link: str, pin: Pin | None) -> StateRecord:
    value = None if pin is None else json.dumps(dataclasses.asdict(pin)).encode()
    return StateRecord(Kind.LINK, link.encode(), value)


def decode_pin(value: bytes) -> Pin:
    fields = json.loads(value)
    if "told" in fields:                     # as it was called once
        fields["next_pinned"] = fields.pop("told")
    return Pin(**fields)


def invited_record(invitation_id: bytes, invited: Invited | None) -> StateRecord:
    value = None if invited is None else json.dumps(dataclasses.asdict(invited)).encode()
    return StateRecord(Kind.INVITATION, invitation_id, value)


def decode_invited(value: bytes) -> Invited:
    return Invited(**json.loads(value))
