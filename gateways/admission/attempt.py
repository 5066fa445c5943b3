"""A try to log in: the try itself, the check of a password that several tries may wait for, and who has logged in
lately.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.networks import network_of

# --- tries and checks ---------------------------------------------------------------------------------------------

OnAuthenticated = Callable[[Principal | NotAuthenticated], None]

Gone = Callable[[], bool]
"""Whether whoever wants to log in has hung up: asked before work is done for him."""


def never() -> bool:
    """False: stands in for `Gone` where nobody can tell whether the peer has hung up."""
    return False


class Attempt:
    """One try to log in."""

    __slots__ = ("door", "gone", "network", "on_done", "user")

    def __init__(self, door: str, peer: str, user: str, on_done: OnAuthenticated, gone: Gone = never) -> None:
        self.door = door
        self.network = network_of(peer)
        self.user = user
        """The name under which a failure of this try is counted."""

        self.on_done = on_done
        self.gone = gone


class Check:
    """One password of one user, shown from one network. Tries that show the same password from there meanwhile are
    answered with it."""

    __slots__ = ("attempts", "digest", "key", "network", "password", "since_ms", "user")

    def __init__(self, first: Attempt, password: str, digest: bytes, since_ms: int) -> None:
        self.attempts = [first]
        self.password = password
        self.digest = digest
        """The hash of user, stored hash and password."""

        self.network = first.network
        self.user = first.user
        self.since_ms = since_ms
        self.key: tuple[str, str | None] = (first.network, None)
        """The key of the queue that the check stands in, see `check_queue`."""


# --- who has logged in lately -------------------------------------------------------------------------------------

# Such a login goes before those of strangers while many wait.
#
# Known is the pair, not the name: somebody who merely knows a name gains nothing by it elsewhere. A wrong password of
# that user there ends it.

RECENT_MAX: Final = 20_000        # (network, user) pairs; about 4 MB; the one that logged in longest ago goes first


class RecentLogins:
    """Pairs of network and user that have logged in since the hub's start, bounded."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], None] = {}

    def knows(self, network: str, user: str) -> bool:
        return (network, user) in self._pairs

    def remember(self, network: str, user: str) -> None:
        """Remember that a user's password or proof, from this network, was checked and is right."""
        pairs = self._pairs
        pairs.pop((network, user), None)             # to the end of the order
        if len(pairs) >= RECENT_MAX:
            del pairs[next(iter(pairs))]
        pairs[network, user] = None

    def forget(self, network: str, user: str) -> None:
        self._pairs.pop((network, user), None)
