"""Which number stands for which door in each record's attributes.

The numbers are the hub's own. Those of its own doors are fixed, in their declarations; a door from outside is given one
when it is first opened here, which is kept in the log under the door's name: no two packages in the world have to agree
about numbers. A number is never given to another name, since records keep it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gatehouse.gateways.contract import GatewaySpec
    from gatehouse.kernel.api import HubPort

SPACE: Final = "doors"               # of the definitions that keep them
FIXED: Final = range(8)              # for doors of the hub's own, built or to come
OWN: Final = {0: "kafka", 1: "mqtt", 2: "http", 3: "amqp"}
"""The hub's own doors, open or not: what has come by them comes over links, too, and stays when a door is closed."""

GIVEN: Final = (*range(8, 16), *range(0x80, 0x90))
"""Those that are given, in this order: values of `message.DOOR_MASK`."""


class NoDoorNumber(Exception):
    """This hub has given away all numbers that it has. The text says to whom."""


class DoorNumbers:  # decision 57, decision 153
    """The number of each door by its name, and back. One per hub, in `Services`."""

    def __init__(self, kernel: HubPort, specs: Iterable[GatewaySpec] = ()) -> None:
        self._kernel = kernel
        self._numbers: dict[str, int] = {spec.name: spec.door for spec in specs if spec.door is not None}
        self.names: dict[int, str] = OWN | {number: name for name, number in self._numbers.items()}
        """By number: the hub's own doors, and those from outside that are open, or were at some time."""

        self._is_read = False

    def open(self, spec: GatewaySpec) -> None:
        """See that a door has its number. Raises NoDoorNumber."""
        self._read()
        number = spec.door
        if number is None:
            number = self._numbers.get(spec.name)
        if number is None:
            number = self._give(spec.name)
        self._numbers[spec.name] = number
        self.names[number] = spec.name

    def of(self, name: str) -> int:
        """The number of a door that is open: what its sessions put into the attributes of each message."""
        return self._numbers[name]

    def _give(self, name: str) -> int:
        free: list[int] = [number for number in GIVEN if number not in self.names]
        if not free:
            taken = ", ".join(sorted(self.names[number] for number in GIVEN))
            raise NoDoorNumber(f"records can tell {len(GIVEN)} doors from outside apart, and this hub has had as many: "
                               f"{taken}")
        self._kernel.put_definition(SPACE, name, b"%d" % free[0])
        return free[0]

    def _read(self) -> None:
        if not self._is_read:
            self._is_read = True
            for _, name, value in self._kernel.definitions(SPACE):
                self._numbers[name] = int(value)
                self.names[int(value)] = name
