"""How admission says no. The texts never repeat credentials. Pure."""
from __future__ import annotations

from gatehouse.kernel.errors import KernelError


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


