"""Decisions about rights and logins, what each costs.

    python -m bench.decisions [--rules 10000] [--users 100] [--seconds 0.5]

Three tables of `--rules` rules each: every rule for everyone, without and with `{user}` in it, and as many for each of
`--users` users. In each: all of them compiled, the first decision of one principal and of another one, new addresses
and filters of a principal that is known, an address that was asked before, and a change of one rule with the first
decision after it. Then what a login costs: a password's check by argon2, one that was proven lately, an API key, a
token. All on one thread; times are of one, in processor time, so that what else runs on the machine counts for little.
"""
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, cast

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from gatehouse.gateways.admission.accounts import Accounts, ApiKey, User
from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.passwords import Proven, check_password, hash_password, make_key, scram_secrets
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.rules import Rule
from gatehouse.gateways.admission.tokens import JwtSettings, KeySet, read_claims

PUBLISH: Final = Operation.PUBLISH
CONSUME: Final = Operation.CONSUME


def rules_of(who: Callable[[int], str], pattern: Callable[[int], str], amount: int) -> Iterable[Rule]:
    """Nine allows, then a deny, and so on."""
    operations = frozenset((PUBLISH, CONSUME))
    return [Rule(n % 10 != 9, who(n), operations, "address", pattern(n), id=str(n)) for n in range(amount)]


def admission_of(rules: Iterable[Rule]) -> Admission:
    accounts = Accounts()
    accounts.configure(rules, {})
    return Admission(cast(Any, None), lambda: time.time_ns() // 1_000_000, accounts=accounts)


def spent(ask: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    begun = time.thread_time()
    ask()
    return time.thread_time() - begun


def repeated(ask: Callable[[int], object], seconds: float) -> float:
    """The same of one call among many, each with a number of its own."""
    numbers = count()
    begun = time.thread_time()
    while (took := time.thread_time() - begun) < seconds:
        for _ in range(100):
            ask(next(numbers))
    return took / next(numbers)


def shown(name: str, seconds: float) -> None:
    print(f"  {name:44} {seconds * 1e6:12,.2f} µs  {1 / seconds:14,.0f} /s", flush=True)


def measure_decisions(name: str, rules: Iterable[Rule], seconds: float) -> None:
    made = time.thread_time()
    admission = admission_of(rules)
    print(f"{name}: {len(admission.accounts.file_rules):,} rules, read in {(time.thread_time() - made) * 1e3:.1f} ms")
    first, second = Principal("user0"), Principal("user1")
    shown("first decision of the first principal", spent(lambda: admission.may(first, PUBLISH, "plant/0/line1/x")))
    shown("first decision of another principal", spent(lambda: admission.may(second, PUBLISH, "plant/0/line1/x")))
    shown("an address that is new", repeated(
        lambda n: admission.may(second, PUBLISH, f"plant/{n % 10_000}/line1/{n}"), seconds))
    admission.may(second, CONSUME, "plant/1/#")
    shown("a filter that is new", repeated(
        lambda n: admission.may(second, CONSUME, f"plant/{n % 10_000}/+/{n}/#"), seconds))
    shown("a filter over everything", spent(lambda: admission.may(second, CONSUME, "+/#")))
    shown("an address that was asked before", repeated(
        lambda n: admission.may(second, PUBLISH, "plant/0/line1/x"), seconds))
    measure_changes(admission, first, seconds)


def measure_changes(admission: Admission, principal: Principal, seconds: float) -> None:
    """A rule comes, somebody asks, it goes again: what the hub's thread spends on the change and the first decision."""
    rule = Rule(False, "everyone", frozenset((PUBLISH, CONSUME)), "address", "plant/1/+/secret", id="new")
    spells = []
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        for before, after, allowed in ((None, rule, False), (rule, None, True)):
            changing = time.thread_time()
            admission.on_rule_changed(before, after)
            admission.may(principal, PUBLISH, "plant/1/user0/secret")
            spells.append(time.thread_time() - changing)
            assert admission.may(principal, PUBLISH, "plant/1/user0/secret") is allowed, "a change holds at once"
    spells.sort()
    shown("a rule changed, and the first decision: p50", spells[len(spells) // 2])
    shown("a rule changed, and the first decision: p99", spells[len(spells) * 99 // 100])


def measure_logins(seconds: float) -> None:
    print("logins")
    password = "correct horse battery"
    user = User("ann", password_hash=hash_password(password), scram=scram_secrets(password, lambda size: bytes(size)))
    shown("a password's check (argon2id, another thread)", sum(
        spent(lambda: check_password(user.password_hash, password)) for _ in range(10)) / 10)
    shown("a new password (argon2id and both SCRAM)", spent(
        lambda: (hash_password(password), scram_secrets(password, lambda size: bytes(size)))))
    proven = Proven(bytes(32), lambda: time.time_ns() // 1_000_000)
    proven.remember(user, password)
    shown("a password that was proven lately", repeated(lambda n: proven.knows(user, password), seconds))
    accounts = Accounts()
    accounts.users["ann"] = user
    id, secret_hash, text = make_key(lambda size: bytes(size))
    accounts.keys[id] = ApiKey(id, "ann", "bench", secret_hash)
    admission = Admission(cast(Any, None), lambda: time.time_ns() // 1_000_000, accounts=accounts)
    shown("an API key", repeated(
        lambda n: admission.authenticate("http", "127.0.0.1", Credentials(token=text), _nothing), seconds))
    measure_tokens(seconds)


def measure_tokens(seconds: float) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": "k"}
    keys, settings = KeySet(json.dumps({"keys": [public]}).encode()), JwtSettings("x", "i", "a")
    token = jwt.encode({"iss": "i", "aud": "a", "sub": "ann", "exp": 1 << 33}, key, "ES256", headers={"kid": "k"})
    shown("a token's signature and claims (ES256)", repeated(
        lambda n: read_claims(token, keys, settings, time.time()), seconds))


def _nothing(who: object) -> None:
    assert isinstance(who, Principal)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    per_user, amount = options.rules // options.users, options.rules
    measure_decisions("for everyone", rules_of(lambda n: "everyone", lambda n: f"plant/{n}/+/#", amount),
                      options.seconds)
    measure_decisions("for everyone, with {user}", rules_of(
        lambda n: "everyone", lambda n: f"plant/{n}/{{user}}/#", amount), options.seconds)
    measure_decisions(f"{per_user} for each of {options.users} users", rules_of(
        lambda n: f"user:user{n // per_user}", lambda n: f"plant/{n % per_user}/+/#", amount), options.seconds)
    measure_logins(options.seconds)


if __name__ == "__main__":
    main()
