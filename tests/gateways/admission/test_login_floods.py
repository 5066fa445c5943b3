"""Wrong logins by the thousand, and whoever has the right password meanwhile.

The whole of `login` runs, with a clock of the test's own; only argon2 is stood in for, by what it costs: `CHECK_MS` of
one of `CHECKS_AT_ONCE` threads.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gatehouse.gateways.admission import login, scram
from gatehouse.gateways.admission.accounts import User
from gatehouse.gateways.admission.attempt import CHECKS_AT_ONCE, CHECKS_WAITING_MAX, QUEUE_MAX
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.passwords import PROVEN_MS
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.throttle import DELAY_MAX_MS, FREE_OF_NETWORK
from tests.gateways.admission.kit import Clock, Rig

CHECK_MS = 30
IN_TIME_MS = 2_000
PASSWORD = "right password"


def hash_of(password: str) -> str:
    return f"hash of {password}"


class Hashers:
    """`kernel.ports.Worker` with the threads that the hub has: a job takes `CHECK_MS` of one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self._busy = 0
        self.done = 0

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._jobs.append((job, done))
        self._begin()

    def _begin(self) -> None:
        while self._jobs and self._busy < CHECKS_AT_ONCE:
            job, done = self._jobs.pop(0)
            self._busy += 1
            self._clock.call_at(self._clock.ms + CHECK_MS, lambda job=job, done=done: self._end(job, done))

    def _end(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._busy -= 1
        self.done += 1
        done(job(), None)
        self._begin()


class Flood(Rig):
    """A hub under attack. `wrong` wrong logins a second come from `networks` networks, each with a name of its own."""

    def __init__(self, wrong: int = 0, networks: int = 1, network: str = "2001:db8:{:x}:1") -> None:
        super().__init__()
        self._network = network
        self.hashers = Hashers(self.clock)
        self.admission._login._outside = replace(self.outside, passwords=self.hashers)     # type: ignore[arg-type]
        self.wrong_per_s = wrong
        self.networks = networks
        self.refused = 0
        self._sent = 0
        self._due = 0.0

    def add(self, name: str, password: str = "", **more: Any) -> User:
        user = self.accounts.users[name] = User(name, password_hash=hash_of(password), **more)
        return user

    def run(self, ms: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let the flood go on for so long, or until something has happened."""
        for _ in range(ms // 10):
            if done():
                return
            self.clock.advance(10)
            self._due += self.wrong_per_s / 100
            while self._due >= 1:
                self._due -= 1
                self.send_one()

    def send_one(self) -> None:
        number = self._sent
        network = number % self.networks
        self._sent += 1
        self.admission.authenticate("mqtt", f"[{self._network.format(network)}::{number % 9 + 1}]:50000",
                                    Credentials(f"made up {number}", "guess"), self._on_refused)

    def _on_refused(self, told: Principal | NotAuthenticated) -> None:
        assert isinstance(told, NotAuthenticated)
        self.refused += 1

    def time_to_log_in(self, user: str, peer: str) -> int:
        """How long it takes who has the right password, in ms."""
        begin_ms = self.clock.ms
        told = self.ask(user, PASSWORD, peer=peer)
        self.run(60_000, lambda: bool(told))
        assert told and isinstance(told[0], Principal), told
        return self.clock.ms - begin_ms


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(login, "check_password", lambda password_hash, password: password_hash == hash_of(password))
    yield


# ---- the right one, new here, from a network of its own

@pytest.mark.parametrize("networks", [1, 1_000])
@pytest.mark.parametrize("wrong", [40, 4_000])
def test_a_newcomer_is_in_within_two_seconds_of_a_flood(wrong: int, networks: int) -> None:
    rig = Flood(wrong, networks)
    for moment_ms in (100, 100, 100, 300, 400, 1_000, 2_000, 6_000, 10_000):      # one after the other
        rig.run(moment_ms)
        name = f"newcomer {rig.clock.ms}"
        rig.add(name, PASSWORD)
        assert rig.time_to_log_in(name, f"[2001:db8:ffff:{moment_ms:x}::1]:1") <= IN_TIME_MS
    assert rig.refused > 20, "the flood was one"


def test_a_newcomer_does_not_wait_for_a_thousand_networks_that_all_wait_for_their_first_answer() -> None:
    """No network of them is known to be bad yet, and none has shown a second guess."""
    rig = Flood(networks=1_000)
    rig.add("ann", PASSWORD)
    for _ in range(1_000):
        rig.send_one()
    rig.run(1_000)
    assert rig.time_to_log_in("ann", "198.51.100.1:1") <= IN_TIME_MS


def test_a_newcomer_is_in_within_two_seconds_where_somebody_has_a_whole_site_of_networks() -> None:
    """65,536 of them, each used once."""
    rig = Flood(1_000, 65_536, "2001:db8:7:{:x}")
    rig.add("ann", PASSWORD)
    rig.run(10_000)
    assert rig.time_to_log_in("ann", "198.51.100.1:1") <= IN_TIME_MS


def test_who_has_logged_in_lately_from_there_goes_first_even_where_others_of_his_network_guess() -> None:
    rig = Flood(0, 1)
    peer = "[2001:db8:0:1::77]:1"
    rig.add("ann", PASSWORD)
    rig.time_to_log_in("ann", peer)
    rig.clock.advance(PROVEN_MS)
    rig.wrong_per_s = 400
    rig.run(30_000)
    assert isinstance(rig.ask("bob", PASSWORD, peer=peer)[0], LoginsFull), "there is no room for others"
    assert rig.time_to_log_in("ann", peer) <= IN_TIME_MS


# ---- what a flood costs

def test_a_network_that_fails_is_looked_at_less_and_less() -> None:
    rig = Flood(40, 1)
    rig.run(60_000)
    checked = rig.hashers.done
    assert checked <= FREE_OF_NETWORK + 60_000 // DELAY_MAX_MS + 10
    rig.run(60_000)
    assert rig.hashers.done - checked <= 60_000 // DELAY_MAX_MS + 1


def test_networks_that_fail_have_one_thread_and_leave_the_other_alone() -> None:
    rig = Flood(4_000, 1_000)
    rig.run(30_000)
    before = rig.hashers.done
    rig.run(3_000)
    assert rig.hashers.done - before <= 3_000 // CHECK_MS + 1


def test_queues_are_bounded_and_the_longest_loses_its_newest() -> None:
    rig = Flood()
    crowd = [rig.ask(f"user {n}", "guess", peer="198.51.100.1:1") for n in range(QUEUE_MAX + 1 + 5)]
    assert [isinstance(told[0], LoginsFull) for told in crowd if told] == [True] * 5, "one is looked at"
    pairs = (CHECKS_WAITING_MAX - QUEUE_MAX) // 2 + 1                 # and one of them is looked at, too
    others = [rig.ask(f"user {n}", "guess", peer=f"[2001:db8:{n // 2:x}::1]:1") for n in range(2 * pairs - 1)]
    assert not any(others) and rig.admission.statistics()["passwords_waiting"] == CHECKS_WAITING_MAX
    assert crowd[QUEUE_MAX] == []
    newcomer = rig.ask("new", "guess", peer="203.0.113.9:1")
    assert newcomer == [] and isinstance(crowd[QUEUE_MAX][0], LoginsFull) and not any(others)
    assert rig.admission.statistics()["passwords_waiting"] == CHECKS_WAITING_MAX


def test_who_is_turned_away_has_not_failed() -> None:
    rig = Flood()
    for n in range(QUEUE_MAX + 100):
        rig.ask(f"user {n}", "guess", peer="198.51.100.1:1")
    assert rig.admission.trace.counts["mqtt", "logins_full"] == 99
    assert rig.admission.statistics()["throttled"] == 0


def test_who_has_hung_up_is_not_checked() -> None:
    rig = Flood()
    rig.add("ann", PASSWORD)
    told: list[Any] = []
    for n in range(20):
        rig.admission.authenticate("mqtt", f"[2001:db8:{n}::1]:1", Credentials("ann", f"guess {n}"), told.append,
                                   lambda: True)
    assert rig.hashers.done == 0 and rig.admission.statistics()["passwords_waiting"] == 0
    assert len(told) == 20 and rig.admission.statistics()["throttled"] == 0
    gone = [False]
    rig.admission.authenticate("mqtt", "198.51.100.1:1", Credentials("ann", "guess"), told.append)
    rig.admission.authenticate("mqtt", "198.51.100.1:2", Credentials("ann", PASSWORD), told.append, lambda: gone[0])
    rig.admission.authenticate("mqtt", "198.51.100.1:3", Credentials("ann", PASSWORD), told.append)
    gone[0] = True
    rig.run(10_000)
    assert rig.hashers.done == 2 and isinstance(told[-1], Principal), "another waits for the same"


def test_a_made_up_name_waits_as_long_as_a_real_one() -> None:
    def waits(name: str) -> list[int]:
        rig = Flood()
        rig.add("ann", PASSWORD)
        took = []
        for n in range(30):
            begin_ms = rig.clock.ms
            told = rig.ask(name, f"guess {n}")
            rig.run(60_000, lambda told=told: bool(told))
            took.append(rig.clock.ms - begin_ms)
        return took

    assert waits("ann") == waits("nobody")


def test_one_device_with_an_old_password_does_not_slow_those_that_share_its_address() -> None:
    rig = Flood()
    for n in range(30):
        rig.add(f"device {n}", PASSWORD)
    for n in range(30):
        for _ in range(2):
            rig.ask(f"broken {n % 3}", "old password")
        rig.run(10_000)
        assert rig.time_to_log_in(f"device {n}", "203.0.113.7:1") <= IN_TIME_MS


def test_a_name_of_64_kibibytes_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """SASLprep of some letters is eighteen others: this one took more than a second of everybody's time."""
    prepared: list[str] = []
    monkeypatch.setattr(scram, "saslprep", lambda name: prepared.append(name) or name)
    rig = Flood()
    told = rig.ask("\ufdfa" * 21_000, "guess")
    rig.run(1_000)
    assert isinstance(told[0], NotAuthenticated) and not prepared
