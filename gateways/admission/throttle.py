"""Failed logins, counted per (network, user) and per network, and how long the next waits. Pure: time is an argument.

A network is as in `gateways.networks`. The first failures of a user at a network hold the next login of that user
there back for `DELAY_MS`, each further one for twice as long, up to `DELAY_MAX_MS`. Failures under whatever names are
counted for the network too: beyond `FREE_OF_NETWORK` they hold everybody there back in the same way, so that trying
one password with every name is slowed as well. Names that nobody has count as all others do. Somebody may have
thousands of networks side by side: beyond `FREE_OF_REGION` failures in an IPv4 /24 or an IPv6 /48 all networks there
count as failing, and are held back no longer for it.

A success forgets what was held against its user there and, where that user was not known there, half of what was held
against the network: one device with an old password does not keep out those that share its address. Ten minutes
without a failure forget everything.
"""
from __future__ import annotations

from typing import Final, Generic, TypeVar

from gatehouse.gateways.networks import region_of

DELAY_MS: Final = 100
DELAY_MAX_MS: Final = 5_000
FORGET_MS: Final = 600_000               # after this long without a failure nothing is held against anybody
FREE_OF_NETWORK: Final = 20              # failures of one network under whatever names before all of it is slowed
FREE_OF_REGION: Final = 64               # failures of neighbours before a network of which nothing is known is as bad
COUNTED_MAX: Final = 20_000              # pairs, networks, regions: about 5 MB each; who failed longest ago goes first
PROOFS_MAX: Final = 32                   # SCRAM proofs of one network that may wait at a time: each holds a connection
WAITING_MAX: Final = 8                   # logins of one user at one network that may wait at a time
MAX_USER_CHARACTERS: Final = 255         # of a name that is counted under

Key = TypeVar("Key")


class Failures:
    """How often one pair (network, user), network or region has failed lately."""

    __slots__ = ("count", "free_ms", "last_ms", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.free_ms = 0                 # when the next login may be looked at
        self.waiting = 0                 # SCRAM proofs that are held back


class Counts(Generic[Key]):
    """Failures by key; bounded: the key that failed longest ago is forgotten first."""

    def __init__(self) -> None:
        self._failures: dict[Key, Failures] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def find(self, key: Key, now_ms: int) -> Failures | None:
        """The failures of a key; None where there are none, or they are too long ago."""
        failures = self._failures.get(key)
        if failures is not None and now_ms - failures.last_ms > FORGET_MS:
            del self._failures[key]
            return None
        return failures

    def add(self, key: Key, now_ms: int) -> Failures:
        """Count one failure of a key more."""
        failures = self.find(key, now_ms)
        if failures is None:
            if len(self._failures) >= COUNTED_MAX:
                del self._failures[next(iter(self._failures))]
            failures = Failures()
        else:
            del self._failures[key]
        self._failures[key] = failures   # at the end of the order: the one that failed longest ago goes first
        failures.count += 1
        failures.last_ms = now_ms
        return failures

    def halve(self, key: Key, now_ms: int) -> None:
        """Halve the failures of a key: somebody there has shown a right password or proof."""
        failures = self.find(key, now_ms)
        if failures is not None:
            failures.count //= 2
            if failures.count <= FREE_OF_NETWORK:
                failures.free_ms = 0
            if not failures.count:
                del self._failures[key]

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)


class Delayed:
    """A SCRAM proof that is held back for `wait_ms`; then it is to be released, once."""

    def __init__(self, failures: list[Failures], now_ms: int) -> None:
        self.wait_ms = max((failure.free_ms - now_ms for failure in failures), default=0)
        self._failures = failures
        for failure in failures:
            failure.waiting += 1

    def release(self) -> None:
        for failure in self._failures:
            failure.waiting -= 1


class Throttle:
    """The failures of all networks and users. Names of users are cut to `MAX_USER_CHARACTERS`."""

    def __init__(self) -> None:
        self._pairs: Counts[tuple[str, str]] = Counts()
        self._networks: Counts[str] = Counts()
        self._regions: Counts[str] = Counts()

    def __len__(self) -> int:
        return len(self._pairs) + len(self._networks)

    def is_failing(self, network: str, now_ms: int) -> bool:
        """Whether any failure is held against this network, or many against its neighbours."""
        if self._networks.find(network, now_ms) is not None:
            return True
        region = self._regions.find(region_of(network), now_ms)
        return region is not None and region.count > FREE_OF_REGION

    def free_ms(self, network: str, user: str, now_ms: int) -> int:
        """When this user's next login from this network may be looked at, whatever other users there have done; 0: at
        any time."""
        failures = self._pairs.find((network, user[:MAX_USER_CHARACTERS]), now_ms)
        return 0 if failures is None else failures.free_ms

    def network_free_ms(self, network: str, now_ms: int) -> int:
        """When the next login of anybody from this network may be looked at; 0: at any time."""
        failures = self._networks.find(network, now_ms)
        return 0 if failures is None else failures.free_ms

    def hold_proof(self, network: str, user: str, is_known: bool, now_ms: int) -> Delayed | None:  # decision 88
        """Hold back the answer to a SCRAM proof, as long as the next password would wait; None: too many are held back
        already, do not look at it. Who is known there does not wait for what others did."""
        pair = self._pairs.find((network, user[:MAX_USER_CHARACTERS]), now_ms)
        of_network = None if is_known else self._networks.find(network, now_ms)
        held = [(failures, most) for failures, most in ((pair, WAITING_MAX), (of_network, PROOFS_MAX))
                if failures is not None and failures.free_ms > now_ms]
        if any(failures.waiting >= most for failures, most in held):
            return None
        return Delayed([failures for failures, _ in held], now_ms)

    def on_failure(self, network: str, user: str, now_ms: int) -> int:
        """Count a failed login; returns for how many ms its answer waits."""
        of_network = self._networks.add(network, now_ms)
        self._regions.add(region_of(network), now_ms)
        of_pair = self._pairs.add((network, user[:MAX_USER_CHARACTERS]), now_ms)
        beyond = of_network.count - FREE_OF_NETWORK
        if beyond > 0:
            of_network.free_ms = max(of_network.free_ms, now_ms + _delay_ms(beyond))
        delay_ms = _delay_ms(max(of_pair.count, beyond))
        of_pair.free_ms = max(of_pair.free_ms, now_ms + delay_ms)
        return delay_ms

    def on_success(self, network: str, user: str, was_known: bool, now_ms: int) -> None:
        """A password or a proof was checked and is right. Who was known there says nothing new about his network."""
        self._pairs.forget((network, user[:MAX_USER_CHARACTERS]))
        if not was_known:
            self._networks.halve(network, now_ms)
            self._regions.halve(region_of(network), now_ms)


def _delay_ms(count: int) -> int:
    """How long the answer waits after so many failures, in ms."""
    return min(DELAY_MS << min(count - 1, 16), DELAY_MAX_MS)
