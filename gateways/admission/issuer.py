"""The issuer of tokens as it is reached: its key set, read by another thread, kept, and read again when it is due.

A key set that cannot be read leaves the one from before in use; where that goes on, a circuit opens, and the issuer is
asked once a minute, then less often. Where it has mirrors they are asked in turn, and one that fails is followed by the
next at once (`gateways.circuits`). A token of an unknown key has it read at once, but not
more often than `refetch_s`, whatever tokens come: the waiting ones are answered together.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.tokens import MAX_TOKEN_BYTES, Claims, JwtSettings, KeySet, UnknownKid, read_claims
from gatehouse.gateways.circuits import NOBODY
from gatehouse.kernel.ports import Timer

if TYPE_CHECKING:
    from gatehouse.gateways.circuits import TargetCircuits

WAITING_MAX: Final = 1000                # tokens that wait for a key set

OnClaims = Callable[[Claims | NotAuthenticated], None]


class Issuer:
    """One `[auth.jwt]`, behind `circuits` of its addresses. `on_failure` is told in a sentence, once until it is well
    again; `on_other_keys` when what was verified by the keys of before is to be verified anew."""

    def __init__(self, settings: JwtSettings, outside: Outside, circuits: TargetCircuits,
                 on_failure: Callable[[str], None], on_other_keys: Callable[[], None]) -> None:
        self.settings = settings
        self.failures = 0
        self._outside = outside
        self._circuits = circuits
        self._tries = 0                  # one after the other, of the addresses
        self._on_failure = on_failure
        self._on_other_keys = on_other_keys
        self._keys: KeySet | None = None
        self._fetching = False
        self._fetched_ms = 0             # when the last try ended
        self._failing = False
        self._closed = False
        self._waiting: list[tuple[str, OnClaims]] = []
        self._timer: Timer | None = None
        self._fetch()

    def read_again(self) -> None:
        """Read the key set again: somebody has changed it, and says so."""
        for circuit in dict.fromkeys((self._circuits.whole, *self._circuits.each)):
            if not circuit.by_hand:
                circuit.close()
        self._fetch()

    def on_circuit(self) -> None:
        """People have opened the circuit, or closed it."""
        self._fetch()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._answer_waiting()

    def check(self, token: str, on_claims: OnClaims) -> None:
        """Tell what the token says, before this returns unless the key set has to be read for it."""
        if len(token) > MAX_TOKEN_BYTES:
            on_claims(NotAuthenticated(f"a token of more than {MAX_TOKEN_BYTES} bytes"))
            return
        claims = self._read(token)
        if claims is not None:
            on_claims(claims)
        elif len(self._waiting) < WAITING_MAX and (self._fetching or self._may_fetch()):
            self._waiting.append((token, on_claims))
            self._fetch()
        else:
            on_claims(NotAuthenticated("the token's key is unknown"))

    def _read(self, token: str) -> Claims | NotAuthenticated | None:
        """Read a token's claims with the keys that are known; None where its key is not."""
        if self._keys is None:
            return None
        try:
            return read_claims(token, self._keys, self.settings, self._outside.loop.wall_ms() / 1000)
        except UnknownKid:
            return None
        except NotAuthenticated as refusal:
            return refusal

    def _may_fetch(self) -> bool:
        now_ms = self._outside.loop.now_ms()
        return not self._closed and self._circuits.whole.would_pass(now_ms) and \
            now_ms >= self._fetched_ms + self.settings.refetch_s * 1000

    def _fetch(self) -> None:
        now_ms = self._outside.loop.now_ms()
        if self._fetching or self._closed:
            return
        target = self._circuits.choose(now_ms)
        if target == NOBODY:
            return
        self._fetching = True
        self._tries += 1
        fetch, where = self._outside.fetch, self.settings.key_sets[target]
        self._outside.fetching.submit(lambda: KeySet(fetch(where)), partial(self._on_fetched, target, now_ms))

    def _on_fetched(self, target: int, began_ms: int, keys: KeySet | None, error: BaseException | None) -> None:
        self._fetching = False
        loop = self._outside.loop
        self._fetched_ms = loop.now_ms()
        self._circuits.note(target, keys is not None, self._fetched_ms, self._fetched_ms - began_ms, str(error or ""))
        if keys is not None:
            others = self._keys is not None and self._keys.digest != keys.digest
            self._keys, self._failing = keys, False
            if others:
                self._on_other_keys()
        else:
            self.failures += 1
            if self._tries < len(self.settings.key_sets):
                self._fetch()
                if self._fetching:
                    return
            if not self._failing:
                self._failing = True
                self._on_failure(f"auth.jwt.jwks {self.settings.key_sets[target]} cannot be read: {error}; it is tried "
                                 "again")
        self._tries = 0
        if not self._closed:
            wait_s = self.settings.refetch_s if keys is None else self.settings.refresh_s
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(max(self._fetched_ms + wait_s * 1000, self._circuits.until_ms), self._fetch)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for token, on_claims in waiting:
            on_claims(self._read(token) or NotAuthenticated("the token's key is unknown"))
