"""What a leased group said of each message, and whether it keeps to it.

    returned    handed out after its ack was answered
    twice       handed out while a lease of it runs
    early       handed out before the delay of its release was over
    counted     an attempt that is not more than one that is known to be durable
    disorder    handed out while one before it of its key is not done
    doubled     one message at two places
    refused     a handle that is good was refused

What a crash or a full disk leaves open stays open until something is seen of it.
"""
from __future__ import annotations

from typing import Final, NamedTuple

from gatehouse.kernel.message import Leased
from tests.simulation.checker import Broken

OPEN: Final = "open"
ASKED: Final = "asked"                  # to be settled; not answered yet
UNKNOWN: Final = "unknown"              # asked, and the hub crashed
DONE: Final = "done"
FOREVER_MS: Final = 1 << 60


class Named(NamedTuple):
    """A handle as its text has it."""

    partition_id: int
    offset: int
    attempt: int
    epoch: int


class Fate:
    """One message in one group."""

    def __init__(self, number: int, place: tuple[int, int], key: bytes | None) -> None:
        self.number = number
        self.place = place
        self.key = key
        self.state = OPEN
        self.handle: Named | None = None
        self.until_ms = 0                       # the lease runs at least until then; 0: there may be none
        self.member = 0                         # whose end ends the lease; 0: a pop's
        self.not_before_ms = 0
        self.ends = 0                           # how often its leases may have ended
        self.attempt = 0                        # the highest that is durable for sure

    @property
    def settled(self) -> bool:
        return self.state in (ASKED, DONE)

    def let_go(self) -> None:
        """Whatever lease there is may end at any time."""
        self.until_ms = 0
        self.member = 0
        self.ends += 1


class Fates:
    """Every message that one group has handed out."""

    def __init__(self, name: str, *, ordered: bool) -> None:
        self.name = name
        self._ordered = ordered
        self.all: dict[int, Fate] = {}
        self._by_place: dict[tuple[int, int], Fate] = {}
        self.asked: list[Fate] = []             # in the order of asking

    def crashed(self) -> None:
        for fate in self.all.values():
            if fate.state == ASKED:
                fate.state = UNKNOWN
            if fate.member:
                fate.let_go()
            fate.not_before_ms = 0              # what is not answered may not be there

    def handed_out(self, message: Leased, number: int, now_ms: int, until_ms: int, member: int) -> None:
        """`until_ms` is the least that the lease lasts. A pop whose frame took longer than that is told of a lease that
        has ended: somebody else may have had the message since, and be done with it."""
        if until_ms <= now_ms:
            return
        place = message[0][0], message[1]
        fate = self.all.get(number)
        if fate is None:
            fate = self.all[number] = Fate(number, place, message[5])
        what = f"{self.name}: {number} at {place}"
        if fate.place != place or self._by_place.setdefault(place, fate) is not fate:
            raise Broken(f"doubled: {what}, and at {fate.place}")
        if fate.settled:
            raise Broken(f"returned: {what} was {fate.state}")
        if now_ms < fate.until_ms:
            raise Broken(f"twice: {what} is leased until {fate.until_ms}, and handed out at {now_ms}")
        if now_ms < fate.not_before_ms:
            raise Broken(f"early: {what} was to come at {fate.not_before_ms}, and came at {now_ms}")
        if message[2] <= fate.attempt:
            raise Broken(f"counted: {what} had attempt {fate.attempt}, and comes as {message[2]}")
        if self._ordered and fate.key is not None:
            self._check_order(fate, what, now_ms)
        fate.state = OPEN
        fate.handle = Named(*place, message[2], message[0][1])
        fate.until_ms, fate.member, fate.not_before_ms = until_ms, member, 0
        if not member:                          # a pop is answered when its leases are durable
            fate.attempt = message[2]

    def _check_order(self, fate: Fate, what: str, now_ms: int) -> None:
        (partition_id, offset) = fate.place
        for other in self.all.values():
            if other.key != fate.key or other.place[0] != partition_id:
                continue
            if other.place[1] < offset and other.state == OPEN and now_ms < other.until_ms:
                raise Broken(f"disorder: {what} while {other.number} is leased")
            if other.place[1] > offset and other.state == DONE:
                raise Broken(f"disorder: {what} after {other.number} was done")

    def left(self, member: int) -> None:
        for fate in self.all.values():
            if fate.member == member:
                fate.let_go()
