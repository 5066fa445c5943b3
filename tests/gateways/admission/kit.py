"""For tests of logins and changes: a clock that is turned by hand, a worker that works when it is told to."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gatehouse.gateways.admission.account_store import TRUTH, AccountStore
from gatehouse.gateways.admission.accounts import Accounts, User
from gatehouse.gateways.admission.administration import Administration
from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.passwords import hash_password, scram_secrets
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.state.catalogue import make_engine

PEER = "203.0.113.7:50000"


class Clock:
    """`kernel.ports.Loop`."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def now_ms(self) -> int:
        return self.ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self.ms, callback)

    def wall_ms(self) -> int:
        return self.ms

    def call_at_wall(self, when_ms: int, callback: Callable[[], None]) -> Any:
        return self.call_at(when_ms, callback)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Any:
        timer = (when_ms, self._made, callback)
        self._made += 1
        self._timers.append(timer)
        return Timer(self._timers, timer)

    def advance(self, ms: int) -> None:
        """Run what falls due, in order."""
        end_ms = self.ms + ms
        while due := sorted(timer for timer in self._timers if timer[0] <= end_ms):
            self._timers.remove(due[0])
            self.ms = max(self.ms, due[0][0])
            due[0][2]()
        self.ms = end_ms

    @property
    def waiting(self) -> int:
        return len(self._timers)


class Timer:
    def __init__(self, timers: list[Any], timer: Any) -> None:
        self._timers, self._timer = timers, timer

    def cancel(self) -> None:
        if self._timer in self._timers:
            self._timers.remove(self._timer)


class Worker:
    """`kernel.ports.Worker`: `work` runs what was submitted; `at_once` does so by itself."""

    def __init__(self, at_once: bool = False) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.at_once = at_once
        self.done = 0

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append((job, done))
        if self.at_once:
            self.work()

    def work(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            self.done += 1
            try:
                result = job()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)


class Rig:
    """Admission with accounts, and everything around it in the test's hands."""

    def __init__(self, *, allow_anonymous: bool = False, documents: dict[str, bytes] | None = None, chance: int = 0
                 ) -> None:
        self.clock = Clock()
        self.passwords, self.changes, self.fetching = Worker(), Worker(at_once=True), Worker(at_once=True)
        self.documents = documents if documents is not None else {}
        self.fetched = 0
        self._random = chance
        self.outside = Outside(self.clock, self.passwords, self.changes, self.fetching, self.random, self.fetch,
                               lasting_secret=b"lasting")
        self.accounts = Accounts()
        self.hub = FakeHub()
        self.admission = Admission(self.hub.services.kernel, self.clock.now_ms, allow_anonymous=allow_anonymous,
                                   accounts=self.accounts, outside=self.outside)
        self.audited: list[tuple[str, str, Any]] = []
        self.admission.audit = lambda *entry: self.audited.append(entry)           # type: ignore[method-assign]

    def random(self, size: int) -> bytes:
        self._random += 1
        return self._random.to_bytes(size, "big")

    def fetch(self, where: str) -> bytes:
        self.fetched += 1
        if where not in self.documents:
            raise OSError("nobody answers")
        return self.documents[where]

    def add(self, name: str, password: str = "", **more: Any) -> User:
        """A user in memory alone."""
        secrets = {"password_hash": hash_password(password), "scram": scram_secrets(password, self.random)}
        user = self.accounts.users[name] = User(name, **(secrets if password else {}), **more)
        return user

    def ask(self, user: str | None = None, password: str | None = None, *, token: str | None = None,
            certificate: str | None = None, ends_ms: int = 0, door: str = "mqtt", peer: str = PEER,
            preset: bool = False) -> list[Any]:
        """What will be told."""
        told: list[Any] = []
        self.admission.authenticate(door, peer, Credentials(user, password, token, certificate, ends_ms, preset),
                                    told.append)
        return told

    def login(self, *args: Any, **more: Any) -> Principal:
        """The principal, once the worker has worked and refusals have come. Raises NotAuthenticated."""
        told = self.ask(*args, **more)
        for _ in range(100):
            if told:
                break
            self.passwords.work()
            self.clock.advance(100)
        assert len(told) == 1
        if isinstance(told[0], NotAuthenticated):
            raise told[0]
        assert isinstance(told[0], Principal)
        return told[0]


class Administered(Rig):
    """With a database behind it."""

    def __init__(self, url: str = "sqlite://", **more: Any) -> None:
        super().__init__(**more)
        engine = make_engine(url)
        TRUTH.drop_all(engine)
        TRUTH.create_all(engine)
        self.store = AccountStore(engine)
        self.administration = Administration(self.accounts, self.store, self.outside, self.admission)

    def did(self, change: Callable[[Callable[[Any], None]], None]) -> Any:
        """What a change answers. Raises what it is refused with."""
        told: list[Any] = []
        change(told.append)
        if isinstance(told[0], Exception):
            raise told[0]
        return told[0]
