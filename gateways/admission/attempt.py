"""One try to log in, and one password that several tries may wait for."""
from __future__ import annotations

from collections.abc import Callable

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.networks import network_of

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
