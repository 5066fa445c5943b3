"""Failed logins, counted per (peer, user), and how long the next answer waits. Pure: time is an argument.

The first failures are answered after `DELAY_MS`, and each further one after twice as long, up to `DELAY_MAX_MS`. Who
comes again meanwhile waits behind: `WAITING_MAX` logins, then refusals without a look. A success forgets the count, and
so does time. Counting is by address without port; users that come by the thousand from one address are counted there
as well, so that trying one password with every name is slowed too.
"""
from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

DELAY_MS: Final = 100
DELAY_MAX_MS: Final = 5_000
FORGET_MS: Final = 600_000               # after this long without a failure nothing is held against anybody
FREE_OF_PEER: Final = 20                 # failures of one address under whatever names before all of them are slowed
COUNTED_MAX: Final = 20_000              # (peer, user) pairs and peers; about 5 MB; the oldest goes first
WAITING_MAX: Final = 8                   # logins of one (peer, user) that may wait at a time
MAX_USER_CHARACTERS: Final = 255         # of a name that is counted under


class Failures:
    """How often one (peer, user) has failed lately."""

    __slots__ = ("count", "free_ms", "last_ms", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.free_ms = 0                 # when the next login may be looked at
        self.waiting = 0


def host_of(peer: str) -> str:
    """Whom a failure at this address is held against: the address without its port, of IPv6 the network of 64 bits, all
    of which is one customer's (RFC 6177). As it is where it is no address."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit() or not (host.endswith("]") or ":" not in host):
        return peer
    return _network(host) if host.startswith("[") else host


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    """Of `[ADDRESS]`."""
    try:
        address = IPv6Address(host[1:-1])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64)) + "/64"


class Throttle:
    """All failures, bounded."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str | None], Failures] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def wait_ms(self, peer: str, user: str, now_ms: int) -> int | None:
        """How long this login is to wait before it is looked at; None: too many wait already, refuse it.

        A login that waits is told by `waited` when it has.
        """
        found = self._find(peer, user, now_ms)
        if found is None or found.free_ms <= now_ms:
            return 0
        if found.waiting >= WAITING_MAX:
            return None
        found.waiting += 1
        return found.free_ms - now_ms

    def waited(self, peer: str, user: str) -> None:
        found = self._failures.get(_key(peer, user))
        if found is not None and found.waiting:
            found.waiting -= 1

    def on_failure(self, peer: str, user: str, now_ms: int) -> int:
        """Count it; returns for how many ms its answer waits."""
        of_peer = self._count((host_of(peer), None), now_ms)
        of_user = self._count(_key(peer, user), now_ms)
        count = max(of_user.count, of_peer.count - FREE_OF_PEER)
        delay_ms = min(DELAY_MS << min(count - 1, 16), DELAY_MAX_MS)
        of_user.free_ms = max(of_user.free_ms, now_ms + delay_ms)
        return delay_ms

    def on_success(self, peer: str, user: str) -> None:
        """Nothing is held against this user at this peer any more."""
        self._failures.pop(_key(peer, user), None)

    def _find(self, peer: str, user: str, now_ms: int) -> Failures | None:
        found = self._failures.get(_key(peer, user))
        if found is not None and now_ms - found.last_ms > FORGET_MS:
            del self._failures[_key(peer, user)]
            return None
        return found

    def _count(self, key: tuple[str, str | None], now_ms: int) -> Failures:
        failures = self._failures
        found = failures.pop(key, None)
        if found is None or now_ms - found.last_ms > FORGET_MS:
            if len(failures) >= COUNTED_MAX:
                del failures[next(iter(failures))]
            found = Failures()
        failures[key] = found            # to the end of the order
        found.count += 1
        found.last_ms = now_ms
        return found


def _key(peer: str, user: str) -> tuple[str, str | None]:
    return host_of(peer), user[:MAX_USER_CHARACTERS]
