"""Tries to log in: the try itself, the check of a password that several tries may wait for, which password is checked
next, and who has logged in lately. Pure: time is an argument; `login` begins the checks and says when they are done.

Checks stand in queues: one per network (an IPv4 address, a /64 of IPv6), and one for each user at a network from which
it has logged in lately. A queue has one check under way at a time, so what a guess has cost is known before the next
one is looked at. `throttle` says when a queue's next check may begin. Queues have ranks, and a lower rank goes first:

    KNOWN      a user at a network from which it has logged in lately
    NEW        a network against which nothing is held, with one check
    CROWD      such a network with several, or with what is left of several
    FAILING    a network whose logins, or its neighbours', have failed lately; `FAILING_AT_ONCE` check of all of them

Within a rank queues come in turn. Where the first two ranks have let somebody wait for `PATIENCE_MS` they take the
newest first: in a flood the oldest has often given up, and whoever comes when it has begun does not stand behind it.
A queue that is full refuses. Where all together are full, the longest loses its newest check; among equally long ones
that of the last rank does.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.throttle import WAITING_MAX, Throttle
from gatehouse.gateways.networks import network_of

CHECKS_AT_ONCE: Final = 2            # threads that check: 19 MiB and a core each while they do
FAILING_AT_ONCE: Final = 1           # of these for networks whose logins fail; the other one is there for newcomers
CHECKS_WAITING_MAX: Final = 2048     # half a minute of both threads, at 30 ms each: no client waits for longer
QUEUE_MAX: Final = 32                # checks that wait in one queue: a second of one thread
PATIENCE_MS: Final = 1_000           # a wait after which the newest goes first

KNOWN: Final = 0
NEW: Final = 1
CROWD: Final = 2
FAILING: Final = 3

Key = tuple[str, str | None]
"""The key of a queue: the network, and the user where it has logged in from there lately, else None."""

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
        """The key of the queue that the check stands in."""

RECENT_MAX: Final = 20_000        # (network, user) pairs; about 4 MB; the one that logged in longest ago goes first


class RecentLogins:
    """Pairs of network and user that have logged in since the hub's start, bounded. Such a login goes before those of
    strangers while many wait.

    Known is the pair, not the name: somebody who merely knows a name gains nothing by it elsewhere. A wrong password of
    that user there ends it.
    """

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


class NetworkQueue:
    """The checks that wait for one network, or for one user at that network."""

    __slots__ = ("busy", "checks", "crowd", "due_ms", "failing", "key", "length", "rank")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.checks: list[Check] = []        # that wait, oldest first
        self.crowd = False                   # several have waited here
        self.busy = False                    # one is under way
        self.failing = False                 # and counts as one of a failing network
        self.due_ms = 0                      # when it is looked at again; 0: it does not sleep
        self.rank = NEW                      # where it is listed, with how many that wait
        self.length = 0


class CheckQueue:  # decision 88, 119
    """The queues of all networks, bounded in sum."""

    def __init__(self, throttle: Throttle, recent: RecentLogins) -> None:
        self._throttle = throttle
        self._recent = recent
        self._queues: dict[Key, NetworkQueue] = {}
        self._ready: tuple[dict[NetworkQueue, None], ...] = ({}, {}, {}, {})                # by rank, in turn
        self._listed: dict[tuple[int, int], dict[NetworkQueue, None]] = {}                  # by (length, rank)
        self._sleeping: list[tuple[int, int, NetworkQueue]] = []  # heap: due_ms, serial number
        self._slept = 0
        self._waiting = 0
        self._under_way = 0
        self._failing_under_way = 0

    def __len__(self) -> int:
        """How many checks wait."""
        return self._waiting

    @property
    def wake_ms(self) -> int:
        """When `take` will have something to give that it has not now; 0: not before somebody comes or a check is
        done."""
        return self._sleeping[0][0] if self._sleeping else 0

    def key_of(self, network: str, user: str) -> Key:
        """The queue for this user's checks."""
        return network, user if self._recent.knows(network, user) else None

    def add(self, check: Check, now_ms: int) -> Check | None:
        """Let a check wait. Returns the check that has no place any more, which may be this one."""
        check.key = key = self.key_of(check.network, check.user)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = NetworkQueue(key)
        of_user = sum([other.user == check.user for other in queue.checks])
        if len(queue.checks) >= QUEUE_MAX or of_user >= WAITING_MAX:
            return check
        queue.checks.append(check)
        queue.crowd |= len(queue.checks) > 1
        self._waiting += 1
        self._settle(queue, now_ms)
        return self._drop_one(now_ms) if self._waiting > CHECKS_WAITING_MAX else None

    def take(self, now_ms: int) -> Check | None:
        """The check that is to begin now; `done` is to be called with it. None: nothing may begin at present."""
        self._wake(now_ms)
        while (queue := self._first(now_ms)) is not None:
            rank = queue.rank
            self._settle(queue, now_ms)              # others of its network may have failed since it was listed
            if not queue.due_ms and queue.rank == rank:
                return self._begin(queue, now_ms)
        return None

    def done(self, check: Check, now_ms: int) -> None:
        """A check that `take` gave is over; its outcome has been counted."""
        queue = self._queues[check.key]
        self._under_way -= 1
        self._failing_under_way -= queue.failing
        queue.busy = False
        self._settle(queue, now_ms)

    # ---- inside

    def _first(self, now_ms: int) -> NetworkQueue | None:
        """The queue whose turn it is; None where nothing may begin."""
        if self._under_way >= CHECKS_AT_ONCE:
            return None
        for rank, ready in enumerate(self._ready):
            if ready and (rank != FAILING or self._failing_under_way < FAILING_AT_ONCE):
                oldest = next(iter(ready))
                if rank <= NEW and now_ms - oldest.checks[0].since_ms > PATIENCE_MS:
                    return next(reversed(ready))
                return oldest
        return None

    def _begin(self, queue: NetworkQueue, now_ms: int) -> Check:
        """Take the queue's first check whose user does not have to wait, and count it as under way."""
        check = next(candidate for candidate in queue.checks if self._user_free_ms(candidate, now_ms) <= now_ms)
        queue.checks.remove(check)
        queue.busy, queue.failing = True, queue.rank == FAILING
        self._waiting -= 1
        self._under_way += 1
        self._failing_under_way += queue.failing
        self._settle(queue, now_ms)
        return check

    def _drop_one(self, now_ms: int) -> Check:
        length, rank = max(self._listed)
        longest = self._listed[length, rank]
        # Of strangers with one check each, the one that came first has the least hope: see PATIENCE_MS.
        queue = next(iter(longest)) if rank <= NEW else next(reversed(longest))
        check = queue.checks.pop()
        self._waiting -= 1
        self._settle(queue, now_ms)
        return check

    def _settle(self, queue: NetworkQueue, now_ms: int) -> None:
        """Put the queue into the list where it belongs now, at the end."""
        self._unlist(queue)
        if not queue.checks:
            if not queue.busy:
                del self._queues[queue.key]
            return
        queue.rank, queue.length = self._rank(queue, now_ms), len(queue.checks)
        self._listed.setdefault((queue.length, queue.rank), {})[queue] = None
        if queue.busy:
            return
        due_ms = self._due_ms(queue, now_ms)
        if due_ms <= now_ms:
            queue.due_ms = 0
            self._ready[queue.rank][queue] = None
        elif due_ms != queue.due_ms:
            queue.due_ms = due_ms
            self._slept += 1
            heapq.heappush(self._sleeping, (due_ms, self._slept, queue))

    def _unlist(self, queue: NetworkQueue) -> None:
        self._ready[queue.rank].pop(queue, None)
        listed = self._listed.get((queue.length, queue.rank))
        if listed is not None:
            listed.pop(queue, None)
            if not listed:
                del self._listed[queue.length, queue.rank]

    def _wake(self, now_ms: int) -> None:
        """Look again at the queues whose time has come. A queue that has been moved meanwhile is left as it is."""
        while self._sleeping and self._sleeping[0][0] <= now_ms:
            due_ms, _, queue = heapq.heappop(self._sleeping)
            if queue.due_ms == due_ms and self._queues.get(queue.key) is queue:
                queue.due_ms = 0
                self._settle(queue, now_ms)

    def _rank(self, queue: NetworkQueue, now_ms: int) -> int:
        network, user = queue.key
        if user is not None and self._recent.knows(network, user):
            return KNOWN
        if self._throttle.is_failing(network, now_ms):
            return FAILING
        return CROWD if queue.crowd else NEW

    def _due_ms(self, queue: NetworkQueue, now_ms: int) -> int:
        earliest_ms = min(self._user_free_ms(check, now_ms) for check in queue.checks)
        if queue.rank == KNOWN:
            return earliest_ms
        return max(earliest_ms, self._throttle.network_free_ms(queue.key[0], now_ms))

    def _user_free_ms(self, check: Check, now_ms: int) -> int:
        return self._throttle.free_ms(check.network, check.user, now_ms)
