"""Who takes from a group beside the plain model."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.groups.handing_out import Membership, Pop
from gatehouse.kernel.message import Leased

if TYPE_CHECKING:
    from tests.properties.test_group_properties import GroupMachine


class Taker:
    """A member, or who waits for a pop, and what it was told in this step."""

    def __init__(self, machine: GroupMachine, name: str, number: int, keeps: bool = True) -> None:
        self._machine = machine
        self.name = name
        self.number = number
        self.keeps = keeps
        self.membership: Membership | None = None
        self.pop: Pop | None = None
        self.invisible_ms = 0
        self.answered = False

    def on_leased(self, messages: list[Leased]) -> None:
        self._machine.told.append((self, messages))

    def on_popped(self, messages: list[Leased]) -> None:
        self.answered = True
        self._machine.told.append((self, messages))

    def on_gone(self) -> None:
        raise AssertionError("nothing was deleted")
