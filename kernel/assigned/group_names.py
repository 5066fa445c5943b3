"""Names of assigned groups: whoever comes first, members or leases, has a name; and what is said of who has members."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.errors import GroupIsLeased
from gatehouse.kernel.groups.definitions import Definitions, LiveGroups
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Owner

OURS: Final = GroupSettings(kind=ASSIGNED)
"""The definition that a group gets from its first member."""

PutState = Callable[[list[StateRecord], "Owner | None", object], None]
"""Puts records into the pending frame. Raises Stopping."""


# decision 159: one table of names
class GroupNames:
    """Who has a name: whoever comes first, members or leases. And which groups have members, which `live` learns.
    `has_offsets` says whether a group has committed any."""

    def __init__(self, definitions: Definitions[GroupSettings], live: LiveGroups, put_state: PutState,
                 has_offsets: Callable[[str, str], bool]) -> None:
        self._definitions = definitions
        self._live = live
        self._put_state = put_state
        self._has_offsets = has_offsets

    def claim(self, tenant: str, name: str) -> bool:
        """The name is an assigned group's from now on; whether it is only now. Raises GroupIsLeased, Stopping."""
        if self.require_not_leased(tenant, name) is not None:
            return False
        self._put_state([self._definitions.put(tenant, name, OURS)], None, None)
        return True

    def disclaim(self, tenant: str, name: str) -> list[StateRecord]:
        """Records that forget the definition that was made for a group's first member, where it is still that one and
        nothing was committed under it."""
        if self._definitions.get(tenant, name) == OURS and not self._has_offsets(tenant, name):
            return [self._definitions.put(tenant, name, None)]
        return []

    def is_there(self, tenant: str, name: str) -> bool:
        """Whether the group is defined, or has committed. Raises GroupIsLeased."""
        return self.require_not_leased(tenant, name) is not None or self._has_offsets(tenant, name)

    def require_not_leased(self, tenant: str, name: str) -> GroupSettings | None:
        """The definition, if there is one. Raises GroupIsLeased."""
        settings = self._definitions.get(tenant, name)
        if settings is not None and settings.kind != ASSIGNED:
            raise GroupIsLeased(f"messages of group {name!r} are leased and acked; nobody is assigned its partitions")
        return settings

    def note(self, tenant: str, name: str, has_members: bool) -> None:
        """Whether a group has members now."""
        self._live.note(tenant, name, has_members)
