"""Users and rights behind a running hub, or behind a command on a data directory on which none runs.

Four threads: two check passwords, one changes the database, one reads the key sets of token issuers, so that none of
these waits for another.
"""
from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gatehouse import exits
from gatehouse.exits import Refused
from gatehouse.gateways.admission.account_store import AccountStore
from gatehouse.gateways.admission.accounts import Accounts, ApiKey, User
from gatehouse.gateways.admission.administration import Administration, Affected
from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.attempt import CHECKS_AT_ONCE
from gatehouse.gateways.admission.audit import By, compose
from gatehouse.gateways.admission.errors import AccountError
from gatehouse.gateways.admission.limits.limit import Limit
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.rules import Rule
from gatehouse.gateways.runtime import Completions, HubLoop, ThreadWorker
from gatehouse.kernel.message import Stored
from gatehouse.kernel.ports import Loop, Timer, Worker
from gatehouse.kernel.state.catalogue import make_engine

FETCH_S: Final = 10.0
MAX_KEY_SET_BYTES: Final = 1 << 20

T = TypeVar("T")


class AccountStorage:
    """The accounts of a hub that starts: read whole, then changed by `administration`. Opened after the catalogue, and
    after the kernel: `hub_secret` is what it keeps in the log, known to this hub alone."""

    def __init__(self, url: str, hub_loop: HubLoop, hub_secret: bytes) -> None:
        completions = Completions(hub_loop.aio)
        self._passwords = ThreadWorker("passwords", completions, CHECKS_AT_ONCE)
        self._changes, self._fetching = ThreadWorker("accounts", completions), ThreadWorker("key-sets", completions)
        self._store = AccountStore(make_engine(url, durable=True))
        self._notes: list[tuple[int, str]] = []
        self.accounts = Accounts()
        self.outside = Outside(hub_loop, self._passwords, self._changes, self._fetching, token_bytes, fetch,
                               blake2b(hub_secret, digest_size=32, person=b"logins").digest())

    def read(self) -> None:  # decision 82
        """Blocks. Raises Refused: a hub that does not know who may do what lets nobody do anything."""
        self.accounts.load(*_read(self._store))
        self._notes = self._store.notes()

    def audit_notes(self, admission: Admission) -> None:
        """Write what was changed while no hub ran to the audit topic; a note goes when its message is durable."""
        for id, text in self._notes:
            key = blake2b(text.encode(), digest_size=16).hexdigest()       # a start that was cut short writes it once
            admission.audit_kept(json.loads(text), _Noted(self._changes, self._store, id), f"audit {id} {key}")
        self._notes.clear()

    def administration(self, affected: Affected) -> Administration:
        return Administration(self.accounts, self._store, self.outside, affected)

    def release(self) -> None:
        """Changes that were asked for are made; passwords that wait are not looked at any more."""
        self._passwords.close(abandon=True)
        self._fetching.close(abandon=True)
        self._changes.close()
        self._store.close()


class _Noted:
    """The owner of one audit message that had waited."""

    def __init__(self, worker: Worker, store: AccountStore, id: int) -> None:
        self._worker = worker
        self._store = store
        self._id = id

    def on_stored(self, stored: list[Stored]) -> None:
        if stored[-1].error is None:
            self._worker.submit(lambda: self._store.forget_note(self._id), lambda _, __: None)


def _read(store: AccountStore) -> tuple[list[User], list[ApiKey], list[Rule], list[Limit]]:
    try:
        return store.read()
    except (SQLAlchemyError, ValueError, AccountError) as error:      # a rule that cannot be read is not left out
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise Refused(f"users and rights cannot be read from the catalogue: {reason}; the hub does not start without "
                      "them", exits.STORAGE) from None


# --- on a data directory that is not running -------------------------------------------------------------------------

class _AtOnce:
    """A worker for a command that has nothing else to do. A change and what it notes are one transaction."""

    def __init__(self, store: AccountStore) -> None:
        self._store = store

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        try:
            with self._store.transaction():
                done(job(), None)
        except Exception as error:
            done(None, error)


class _Clock:
    """Time without timers."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = self.wall_ms = now_ms

    def begin_at(self, now_ms: int) -> None:
        raise AssertionError("nothing begins here")

    def on_step(self, callback: Callable[[int], None]) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        raise AssertionError("nothing waits here")

    call_at_wall = call_at


class _Nobody:
    """No hub runs: nobody is connected, and audit messages wait for the next one, to whom the log belongs."""

    allow_anonymous = None

    def __init__(self, store: AccountStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    def on_user_changed(self, name: str, ended: str, logins: str) -> None: ...

    def on_rule_changed(self, before: Rule | None, after: Rule | None) -> None: ...

    def on_limit_changed(self, before: Limit | None, after: Limit | None) -> None: ...

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        self._store.note(json.dumps(compose(by, action, self._now_ms(), details), default=str))


def offline_administration(url: str, now_ms: Callable[[], int]) -> tuple[Administration, AccountStore]:
    """For a catalogue that is migrated. The store is the caller's to close. Raises Refused."""
    store = AccountStore(make_engine(url, durable=True))
    accounts = Accounts()
    accounts.load(*_read(store))
    at_once = _AtOnce(store)
    loop: Loop = _Clock(now_ms)
    outside = Outside(loop, at_once, at_once, at_once, token_bytes, fetch, lasting_secret=b"")      # nobody logs in
    return Administration(accounts, store, outside, _Nobody(store, now_ms)), store


# --- key sets --------------------------------------------------------------------------------------------------------

class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An issuer's key set is where the configuration says, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


def fetch(where: str) -> bytes:
    """A file, or what an address answers. Raises OSError."""
    if "://" not in where:
        with Path(where).open("rb") as file:
            return _bounded(file.read(MAX_KEY_SET_BYTES + 1))
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(where, timeout=FETCH_S) as answer:
            return _bounded(answer.read(MAX_KEY_SET_BYTES + 1))
    except urllib.error.HTTPError as error:
        raise OSError(f"it answers {error.code}") from None


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_KEY_SET_BYTES:
        raise OSError(f"it has more than {MAX_KEY_SET_BYTES} bytes")
    return content
