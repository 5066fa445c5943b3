"""One try to log in, and one password that several tries may wait for."""
from __future__ import annotations

from collections.abc import Callable

from gateways.admission.errors import NotAuthenticated
from gateways.admission.principal import Principal
from gateways.networks import network_of

OnAuthenticated = Callable[[Principal | NotAuthenticated], None]

Gone = Callable[[], bool]
"""Whether whoever wants to log in has hung up: asked before work is done for him."""


def never() -> bool:
    """Of a peer that nobody can look at."""
    return False


class Attempt:
    """One try to log in."""

    __slots__ = ("door", "gone", "network", "on_done", "user")

    def __init__(self, door: str, peer: str, user: str, on_done: OnAuthenticated, gone: Gone = never) -> None:
        self.door = door
        self.network = network_of(peer)
        self.user = user
        """Whom its failure is counted under."""

        self.on_done = on_done
        self.gone = gone


class Check:
    """One password of one user, shown from one network. Who shows the same from there meanwhile is told with it."""

    __slots__ = ("attempts", "digest", "key", "network", "password", "since_ms", "user")

    def __init__(self, first: Attempt, password: str, digest: bytes, since_ms: int) -> None:
        self.attempts = [first]
        self.password = password
        self.digest = digest
        """A hash of user, stored hash and password."""

        self.network = first.network
        self.user = first.user
        self.since_ms = since_ms
        self.key: tuple[str, str | None] = (first.network, None)
        """The queue that it stands in, see `check_queue`."""
