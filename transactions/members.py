"""Who can be asked about a group's transactions: its members, in turn."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

MAX_NAME: Final = 200             # characters of a member's name that are kept with a check
ANY: Final = 1 << 30              # room of a member without bounds


class Check(NamedTuple):
    """The question what became of a transaction."""

    id: int
    tenant: str
    group: str
    attempt: int                 # from 1
    max_checks: int
    age_ms: int                  # since it began
    messages: int
    by: str                      # who began it
    # its first message:
    address: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: bytes               # as they stand in a record
    attributes: int


class Member(Protocol):
    """Who is asked."""

    def on_checks(self, checks: list[Check]) -> None:
        """Each is in the log already. Must not block or raise."""


class Membership:
    """One member's place in a group; ended by `leave`. `credit` is how many checks it takes; None: any number."""

    def __init__(self, members: Members, tenant: str, group: str, member: Member, name: str, credit: int | None
                 ) -> None:
        self._members = members
        self.tenant = tenant
        self.group = group
        self.member = member
        self.name = name
        self.credit = credit
        self.left = False

    @property
    def has_room(self) -> bool:
        return self.credit is None or self.credit > 0

    def add_credit(self, count: int) -> None:
        """It takes so many more."""
        if self.credit is not None:
            self.credit += count
            self._members.note_room(self)

    def leave(self) -> None:
        """It is asked nothing more; what it was asked is asked again in time."""
        self._members.remove(self)


class Members:
    """`on_room` is called when somebody can be asked in a group, once per change."""

    def __init__(self, on_room: Callable[[str, str], None]) -> None:
        self._groups: dict[tuple[str, str], list[Membership]] = {}
        self._on_room = on_room
        self.count = 0

    def join(self, tenant: str, group: str, member: Member, name: str, credit: int | None) -> Membership:
        membership = Membership(self, tenant, group, member, name[:MAX_NAME] or "member", credit)
        self._groups.setdefault((tenant, group), []).append(membership)
        self.count += 1
        self.note_room(membership)
        return membership

    def remove(self, membership: Membership) -> None:
        if membership.left:
            return
        membership.left = True
        name = membership.tenant, membership.group
        self._groups[name].remove(membership)
        if not self._groups[name]:
            del self._groups[name]
        self.count -= 1
        assert self.count >= len(self._groups), "every group in here has a member"

    def note_room(self, membership: Membership) -> None:
        if membership.has_room and not membership.left:
            self._on_room(membership.tenant, membership.group)

    def room(self, tenant: str, group: str) -> int:
        """How many checks members take now."""
        memberships = self._groups.get((tenant, group), [])
        return sum([ANY if membership.credit is None else max(0, membership.credit) for membership in memberships])

    def pick(self, tenant: str, group: str) -> Membership | None:
        """Who is asked next; it has one place less for checks."""
        memberships = self._groups.get((tenant, group), [])
        for number, membership in enumerate(memberships):
            if membership.has_room:
                memberships.append(memberships.pop(number))  # last in turn
                if membership.credit is not None:
                    membership.credit -= 1
                    assert membership.credit >= 0, "who is asked has room"
                return membership
        return None

    @staticmethod
    def put_back(membership: Membership) -> None:
        """It was picked, and is not asked after all."""
        if membership.credit is not None:
            membership.credit += 1
