"""How admission says no: the errors, and the line that a refusal leaves in the log. And the quota of a user.

The texts never repeat credentials.
"""
from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gatehouse.kernel.errors import KernelError
from gatehouse.tracing.context import in_a_line, trace_id_in

# --- errors -------------------------------------------------------------------------------------------------------

class NotAuthenticated(Exception):
    """The credentials are wrong, or none came where some are needed. The text never repeats them."""

    code = "not_authenticated"

    def __init__(self, text: str, delay_ms: int = 0) -> None:
        super().__init__(text)
        self.delay_ms = delay_ms
        """For how long the refusal is held back; `authenticate` has waited already, a door with SCRAM waits itself."""


class LoginsFull(NotAuthenticated):
    """More logins wait to be checked than may. Nothing was looked at and nothing is held against anybody: try again."""

    code = "busy"

    def __init__(self) -> None:
        super().__init__("too many logins wait to be checked; try again")


class TooManyConnections(LoginsFull):
    """A limit of connections is reached: somebody has to leave first. Who asks is known and may come again."""

    code = "too_many_connections"

    def __init__(self, text: str) -> None:
        NotAuthenticated.__init__(self, text)


class Overloaded(TooManyConnections):
    """The hub has more to do than it can, and lets nobody new in for a while. Come again."""

    code = "overloaded"

    def __init__(self) -> None:
        super().__init__("the hub has more to do than it can: nobody new is let in for a while; come again")


class Denied(Exception):
    """The principal may not do that there."""

    code = "not_authorized"


class OverQuota(KernelError):
    """A quota or another limit is used up for now, and nothing was stored; `wait_ms` says for how long."""

    code = "over_quota"

    def __init__(self, id: str, of: str, wait_ms: int, places: frozenset[int] = frozenset()) -> None:
        super().__init__(f"the limit {id} of {of} is used up for {wait_ms} ms; nothing was stored")
        self.wait_ms = wait_ms
        self.places = places
        """Of these places; the rest of a burst may be stored."""


class NoRoomLeft(OverQuota):
    """As much is stored as a limit lets there be: room comes with what is deleted or expires. The sender may repeat
    it."""

    code = "no_room_left"


class AccountError(Exception):
    """A change of users, keys or rules that was refused."""

    code = "invalid_user"


class InvalidUser(AccountError):
    """A user, a group, a password or a key that cannot be as it was asked for."""

    code = "invalid_user"


class InvalidRule(AccountError):
    """This is no rule of the rights."""

    code = "invalid_rule"


class UnknownUser(AccountError):
    """There is no user of this name."""

    code = "unknown_user"


class UserExists(AccountError):
    """There is a user of this name already."""

    code = "user_exists"


class LastAdministrator(AccountError):
    """Nobody would be left who may administer the hub; make another administrator first."""

    code = "last_administrator"


class UnknownKey(AccountError):
    """The user has no API key of this id."""

    code = "unknown_key"


class UnknownRule(AccountError):
    """There is no rule of this id."""

    code = "unknown_rule"


class InvalidLimit(AccountError):
    """A limit that cannot be as it was asked for."""

    code = "invalid_limit"


class UnknownLimit(AccountError):
    """There is no limit of this id."""

    code = "unknown_limit"


class FromFile(AccountError):
    """It stands in the configuration file, and is changed there."""

    code = "from_file"


class AccountsUnavailable(AccountError):
    """The database of users and rights does not answer; nothing was changed."""

    code = "accounts_unavailable"


# --- refusals in the log ------------------------------------------------------------------------------------------

# What is refused leaves a line in the log, on every door by one rule: once a minute for each peer and reason.
#
# What is refused again within the minute is counted, and the next line says how often. A peer is an address for a login
# that failed, and a user for a right that is missing.

log = logging.getLogger("gatehouse.admission")

EVERY_MS: Final = 60_000
MAX_KEPT: Final = 10_000
"""Peers and reasons that are remembered; the oldest is forgotten first, and may have a line again."""

MAX_LINES: Final = 100
"""In a minute, whoever they are about: a flood of peers is counted."""


class Refusals:
    """Writes the lines of one hub: once a minute for each door, peer and reason, and at most `MAX_LINES` in all."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last: OrderedDict[tuple[str, str, str], tuple[int, int]] = OrderedDict()
        self._minute = self._lines = 0

    def note(self, door: str, peer: str, reason: str, text: str, said: bytes = b"") -> None:
        """Somebody was refused: at a door, for a reason (a constant name), in words. `said`: the message that was, or
        its headers, whose trace id the line has."""
        key, now_ms = (door, peer, reason), self._now_ms()
        last_ms, again = self._last.get(key, (0, 0))
        if key in self._last and now_ms - last_ms < EVERY_MS:
            self._last[key] = (last_ms, again + 1)
            return
        self._last[key] = (now_ms, 0)
        self._last.move_to_end(key)
        if len(self._last) > MAX_KEPT:
            self._last.popitem(last=False)
        if now_ms // EVERY_MS != self._minute:
            self._minute, self._lines = now_ms // EVERY_MS, 0
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        more = f" ({again} times more since the last line)" if again else ""
        trace, traced = in_a_line(trace_id_in(said))
        log.info("%s refused %s: %s: %s%s%s", door or "the hub", peer, reason, text, more, trace,
                 extra={"fields": {"door": door, "peer": peer, "reason": reason, "again": again, **traced}})


def address_of(peer: str) -> str:
    """A peer without its port: one that comes back has another."""
    return peer.rpartition(":")[0] or peer


# --- the quota of a user ------------------------------------------------------------------------------------------

# It is kept with the user, and is one of the limits of `limits.book`.

@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one user, summed over all its connections on all doors. 0: no limit."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
