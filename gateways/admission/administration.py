"""Changes of users, API keys, rules and limits: the database first, in a worker's thread, then memory, then who is
connected.

    administration.put_user(by, "ann", UserChanges(password="…", groups={"ops"}), on_done)

Every call ends in `on_done(result)` or `on_done(AccountError)`, on the hub's thread, and in an audit message that says
who changed what and holds no secret. No change may leave a hub that nobody may administer: who may is told here, too.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gatehouse.gateways.admission.account_store import AccountStore
from gatehouse.gateways.admission.accounts import (
    ADMINS,
    MAX_GROUPS,
    MAX_NAME_CHARACTERS,
    MAX_TENANTS,
    Accounts,
    ApiKey,
    ScramSecret,
    User,
    check_group_name,
    check_tenant_name,
    check_user_name,
)
from gatehouse.gateways.admission.audit import By
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import (
    AccountError,
    AccountsUnavailable,
    FromFile,
    InvalidLimit,
    InvalidUser,
    LastAdministrator,
    UnknownKey,
    UnknownLimit,
    UnknownRule,
    UnknownUser,
    UserExists,
)
from gatehouse.gateways.admission.limits.limit import Limit, Quota, read_limit
from gatehouse.gateways.admission.passwords import check_new_password, hash_password, make_key, scram_secrets
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.principal import ANONYMOUS, DEFAULT_TENANT
from gatehouse.gateways.admission.rules import CLIENT, EVERY_TENANT, EVERYONE, Rule, read_rule
from gatehouse.gateways.admission.scram import ForbiddenCharacter, name_form, saslprep

# --- who may administer the hub, and whether anybody is left who may ----------------------------------------------

# Whoever is in the group `admins` may do everything, and no rule takes that away, as Kafka's `super.users` and
# RabbitMQ's `administrator` stand above what is granted and denied. Others may administer by a rule on the hub, which a
# deny takes away; and `anonymous` may on a hub that nobody has closed yet.

def somebody_administers(accounts: Accounts, users: Mapping[str, User], rules: Iterable[Rule],  # decision 86
                         allow_anonymous: bool) -> bool:
    """Whether one of these users may, or anonymous, as rules and groups of the configuration stand in `accounts`."""
    every_rule = list(rules)
    deciding = [rule for rule in every_rule if rule.decides_administering]
    if allow_anonymous and (not any(rule.speaks_of_anonymous for rule in every_rule)
                            or _by_rule(deciding, ANONYMOUS, (), frozenset((DEFAULT_TENANT,)))):
        return True
    return any(may_administer(accounts, user, deciding) for user in users.values())


def may_administer(accounts: Accounts, user: User, deciding: Iterable[Rule]) -> bool:
    """Whether the rules let this user administer the hub for as long as nobody changes anything. A user that will
    expire does not count, or one day nobody would be left."""
    if user.disabled or user.expires_ms:  # decision 89
        return False
    groups = user.groups | accounts.file_groups_of(user.name)
    return ADMINS in groups or _by_rule(deciding, user.name, groups, user.tenants | {user.tenant})


def _by_rule(deciding: Iterable[Rule], name: str, groups: Iterable[str], tenants: frozenset[str]) -> bool:
    """Whether the rules let this user administer in one of the tenants that it may work in."""
    whos = {f"user:{name}", *[f"group:{group}" for group in groups], EVERYONE}
    mine = [rule for rule in deciding if rule.who in whos]
    for tenant in tenants:
        there = [rule.allows for rule in mine if rule.tenant in (tenant, EVERY_TENANT)]
        if there and all(there):
            return True
    return False


# --- the changes --------------------------------------------------------------------------------------------------

log = logging.getLogger("gatehouse.admission")

MAX_USERS: Final = 100_000               # in memory whole: some 1 KB each
MAX_KEYS_OF_USER: Final = 100
MAX_RULES: Final = 100_000
MAX_LIMITS_OF_THE_HUB: Final = 20_000    # beside the quotas of users
MAX_EXPIRES_MS: Final = (1 << 53) - 1    # the largest number that JavaScript holds
MAX_LIMITS: Final = 100                  # allows that restrict one API key
MAX_TOGETHER: Final = 100                # changes of one transaction: what they lead to takes milliseconds

T = TypeVar("T")
OnChanged = Callable[[T | AccountError], None]


class Affected(Protocol):
    """What changes with accounts: `Admission`, or nobody where no hub runs."""

    def on_user_changed(self, name: str, ended: str, logins: str) -> None:
        """A user is another now. `ended`: why connections end, "" if they do not; `logins`: those whose way to log in
        begins so, "" for all."""

    def on_rule_changed(self, before: Rule | None, after: Rule | None) -> None:
        """A rule is added (None before), changed, or gone (None after)."""

    def on_limit_changed(self, before: Limit | None, after: Limit | None) -> None:
        """A limit is added (None before), changed, or gone (None after)."""

    @property
    def allow_anonymous(self) -> bool | None:
        """Whether a peer without credentials is let in. None where no hub runs: whoever has the hub's directory may
        mend anything."""

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class UserChanges:
    """The changes of a user. None in a field: it stays as it is, or has its default for a new user."""

    password: str | None = field(default=None, repr=False)
    tenant: str | None = None
    tenants: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    add_groups: frozenset[str] = frozenset()
    remove_groups: frozenset[str] = frozenset()
    disabled: bool | None = None
    expires_ms: int | None = None
    """When the user is no longer let in, in ms since 1970; 0: never."""

    messages_per_s: float | None = None
    bytes_per_s: float | None = None
    scram: Mapping[str, ScramSecret | None] = field(default_factory=dict, repr=False)
    """By mechanism, a secret that somebody else has made of a password, for logins by that mechanism alone; None: there
    is none any more."""

    def check(self) -> None:
        """Check the fields. Raises InvalidUser."""
        for group in (self.groups or frozenset()) | self.add_groups:
            check_group_name(group)
        for tenant in (self.tenants or frozenset()) | ({self.tenant} if self.tenant is not None else set()):
            check_tenant_name(tenant)
        for rate in (self.messages_per_s, self.bytes_per_s):
            if rate is not None and not 0 <= rate <= 1e15:
                raise InvalidUser("a quota is a number from 0, which is no limit, to 1e15")
        if self.expires_ms is not None and not 0 <= self.expires_ms <= MAX_EXPIRES_MS:
            raise InvalidUser("a user expires at a time in milliseconds since 1970, or never, which is 0")

    def apply(self, user: User, random: Callable[[int], bytes]) -> User:
        """The changed user; hashes a new password, which takes a while. Raises InvalidUser."""
        groups = (user.groups if self.groups is None else self.groups) | self.add_groups
        tenants = user.tenants if self.tenants is None else self.tenants
        if len(groups) > MAX_GROUPS or len(tenants) > MAX_TENANTS:
            raise InvalidUser(f"a user has at most {MAX_GROUPS} groups and {MAX_TENANTS} tenants")
        quota = Quota(user.quota.messages_per_s if self.messages_per_s is None else self.messages_per_s,
                      user.quota.bytes_per_s if self.bytes_per_s is None else self.bytes_per_s)
        changed = replace(user, groups=groups - self.remove_groups, tenants=tenants, quota=quota,
                          tenant=user.tenant if self.tenant is None else self.tenant,
                          disabled=user.disabled if self.disabled is None else self.disabled,
                          expires_ms=user.expires_ms if self.expires_ms is None else self.expires_ms)
        if self.scram:
            secrets = {**user.scram, **self.scram}
            changed = replace(changed, scram={name: secret for name, secret in secrets.items() if secret is not None})
        if self.password is None:
            return changed
        password = check_new_password(self.password)
        return replace(changed, password_hash=hash_password(password), scram=scram_secrets(password, random))

    def shown(self) -> dict[str, Any]:
        """The changes as the audit topic shows them."""
        shown = {name: getattr(self, name) for name in ("tenant", "disabled", "messages_per_s", "bytes_per_s")}
        for name in ("tenants", "groups", "add_groups", "remove_groups"):
            shown[name] = sorted(getattr(self, name)) if getattr(self, name) else None
        shown["password"] = "changed" if self.password is not None else None
        shown["scram"] = sorted(self.scram) or None
        changed = {name: value for name, value in shown.items() if value is not None}
        return changed if self.expires_ms is None else {**changed, "expires": self.expires_ms or None}


class AccountChange(NamedTuple):
    """A change of accounts on its way to the database, to memory and to who asked for it."""

    job: Callable[[], Any]
    applied: Callable[[Any], Any]
    on_done: OnChanged[Any]


class Ahead(Generic[T]):
    """Rows as changes have left them in the database that have not come to memory yet; None: deleted. They are noted on
    the thread that makes changes, and the hub's lets go of them."""

    def __init__(self) -> None:
        self._rows: dict[str, T | None] = {}

    def note(self, id: str, row: T | None) -> None:
        """A change has left it so."""
        self._rows[id] = row

    def row(self, id: str, there: Mapping[str, T]) -> T | None:
        """One of the rows; `there` are those in memory."""
        ahead = dict(self._rows)
        return ahead[id] if id in ahead else there.get(id)

    def rows(self, there: Mapping[str, T]) -> dict[str, T]:
        """All of them, by their ids."""
        ahead = dict(self._rows)
        return {id: row for id, row in {**there, **ahead}.items() if row is not None}

    def caught_up(self, id: str, row: T | None) -> None:
        """Memory has it as a change has left it, which may not be the last one."""
        if id in self._rows and self._rows[id] is row:
            del self._rows[id]

    def clear(self) -> None:
        """None of it is kept in the database."""
        self._rows.clear()


class Administration:
    """All changes of one hub's accounts, in the order in which they were asked for."""

    def __init__(self, accounts: Accounts, store: AccountStore, outside: Outside, affected: Affected) -> None:
        self.accounts = accounts
        self._store = store
        self._outside = outside
        self._affected = affected
        self._together: list[AccountChange] | None = None       # asked for within `together`
        self._rules_ahead = Ahead[Rule]()
        self._users_ahead = Ahead[User]()
        self._limits_ahead = Ahead[Limit]()

    @contextmanager
    def together(self) -> Iterator[None]:  # decision 338
        """What is asked for within goes to the database `MAX_TOGETHER` at a time. Each change has an answer of its own
        all the same: one that is refused leaves the others alone."""
        assert self._together is None, "changes are gathered by one at a time"
        self._together = []
        try:
            yield
        finally:
            gathered, self._together = self._together, None
            for at in range(0, len(gathered), MAX_TOGETHER):
                self._submit(gathered[at:at + MAX_TOGETHER])

    # ---- users

    def put_user(self, by: By, name: str, changes: UserChanges, on_done: OnChanged[User], *,
                 create: bool | None = None) -> None:
        """Make a user, or change one; `create` says which of both it must be. Answers the user as it is now."""
        def job() -> tuple[User, bool]:
            changes.check()
            prepared = prepared_name(name)
            random, wall_ms = self._outside.random, self._outside.loop.wall_ms()
            exists = self._users_ahead.row(prepared, self.accounts.users) is not None
            if create is True or create is None and not exists:
                if len(self.accounts.users) >= MAX_USERS:
                    raise InvalidUser(f"there are {MAX_USERS} users, and no more are kept")
                if exists:
                    raise UserExists(f"there is a user {prepared!r} already")
                user = self._store.add_user(changes.apply(User(prepared, created_ms=wall_ms), random))
            else:
                user = self._store.change_user(prepared, lambda before: self._left(changes.apply(before, random)))
            self._users_ahead.note(prepared, user)
            return user, not exists

        self._run(job, lambda result: self._on_user_put(by, changes, *result), on_done)

    def _on_user_put(self, by: By, changes: UserChanges, user: User, is_new: bool) -> User:
        before = self.accounts.users.get(user.name)
        self.accounts.users[user.name] = user
        self._users_ahead.caught_up(user.name, user)
        ended, logins = _why_ended(before, user)
        self._affected.on_user_changed(user.name, ended, logins)
        self._affected.audit(by, "user.created" if is_new else "user.changed", {"user": user.name, **changes.shown()})
        return user

    def delete_user(self, by: By, name: str, on_done: OnChanged[None]) -> None:
        """Delete a user with its keys. Rules that name it stay, and mean nobody."""
        name = name_form(name)

        def applied(_: None) -> None:
            self.accounts.users.pop(name, None)
            self._users_ahead.caught_up(name, None)
            for key in self.accounts.keys_of(name):
                del self.accounts.keys[key.id]
            self._affected.on_user_changed(name, "the user was deleted", "")
            self._affected.audit(by, "user.deleted", {"user": name})

        def job() -> None:
            user = self._users_ahead.row(name, self.accounts.users)
            if user is not None:
                self._left(replace(user, disabled=True))
            self._store.delete_user(name)
            self._users_ahead.note(name, None)

        self._run(job, applied, on_done)

    def _left(self, changed: User) -> User:  # decision 86
        """The user as it is to be. Raises LastAdministrator where there is an administrator and would be none."""
        accounts = self.accounts
        before, rules = self._users_ahead.row(changed.name, accounts.users), self._every_rule()
        deciding = [rule for rule in rules if rule.decides_administering]
        if (before is None or not may_administer(accounts, before, deciding)
                or may_administer(accounts, changed, deciding)
                or somebody_administers(accounts, {**self._every_user(), changed.name: changed}, rules,
                                        self._affected.allow_anonymous is True)):
            return changed
        raise LastAdministrator("nobody would be left who may administer this hub; make another administrator first")

    def _every_user(self) -> dict[str, User]:
        return self._users_ahead.rows(self.accounts.users)

    # ---- API keys

    def create_key(self, by: By, user: str, name: str, on_done: OnChanged[tuple[ApiKey, str]], *,
                   expires_ms: int = 0, restriction: Iterable[Mapping[str, Any]] | None = None) -> None:
        """Answers the key and its text, which nobody can be told again. `restriction` is rules without `who`."""
        user = name_form(user)

        def job() -> tuple[ApiKey, str]:
            if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
                raise InvalidUser(f"a key's name has 1 to {MAX_NAME_CHARACTERS} characters, all printable")
            if len(self.accounts.keys_of(user)) >= MAX_KEYS_OF_USER:
                raise InvalidUser(f"a user has at most {MAX_KEYS_OF_USER} keys")
            id, secret_hash, text = make_key(self._outside.random)
            key = ApiKey(id, user, name, secret_hash, expires_ms, _read_limits(restriction),
                         self._outside.loop.wall_ms())
            return self._store.add_key(key), text

        def applied(made: tuple[ApiKey, str]) -> tuple[ApiKey, str]:
            key = made[0]
            self.accounts.keys[key.id] = key
            self._affected.audit(by, "key.created", {"user": user, **key.as_dict()})
            return made

        self._run(job, applied, on_done)

    def revoke_key(self, by: By, user: str, id: str, on_done: OnChanged[None]) -> None:
        user = name_form(user)

        def applied(_: None) -> None:
            self.accounts.keys.pop(id, None)
            self._affected.on_user_changed(user, "the API key was revoked", f"key:{id}")
            self._affected.audit(by, "key.revoked", {"user": user, "id": id})

        self._run(lambda: self._store.delete_key(user, id), applied, on_done)

    # ---- rules

    def add_rule(self, by: By, table: Mapping[str, Any], on_done: OnChanged[Rule]) -> None:
        self._run(lambda: self._add_rule(read_rule(table), self._every_rule()),
                  partial(self._on_rule, by, "rule.added"), on_done)

    def ensure_rule(self, by: By, table: Mapping[str, Any], on_done: OnChanged[Rule]) -> None:
        """Add a rule unless one is there that says as much, as the changes before this one have left them."""
        def job() -> tuple[Rule, bool]:
            rule = read_rule(table)
            rules = self._every_rule()
            there = next((other for other in rules if other.says(rule)), None)
            return (self._add_rule(rule, rules), True) if there is None else (there, False)

        self._run(job, lambda result: self._on_rule(by, "rule.added", result[0]) if result[1] else result[0], on_done)

    def _add_rule(self, rule: Rule, rules: list[Rule]) -> Rule:
        """To these, which are all that there are."""
        if len(self.accounts.rules) >= MAX_RULES:
            raise InvalidUser(f"there are {MAX_RULES} rules, and no more are kept")
        self._check_rules((rule,), [*rules, rule])
        added = self._store.add_rule(rule)
        self._rules_ahead.note(added.id, added)
        return added

    def replace_rule(self, by: By, id: str, table: Mapping[str, Any], on_done: OnChanged[Rule]) -> None:
        def job() -> Rule:
            self._require_own_rule(id)
            before, rule = self._rule(id), read_rule(table, id)
            others = [other for other in self._every_rule() if other.id != id]
            self._check_rules((before, rule), [*others, rule])
            self._rules_ahead.note(id, self._store.replace_rule(rule))
            return rule

        self._run(job, partial(self._on_rule, by, "rule.changed"), on_done)

    def _on_rule(self, by: By, action: str, rule: Rule) -> Rule:
        before = self.accounts.rules.get(rule.id)
        self.accounts.rules[rule.id] = rule
        self._rules_ahead.caught_up(rule.id, rule)
        self._affected.on_rule_changed(before, rule)
        self._affected.audit(by, action, {"rule": rule.as_dict()})
        return rule

    def delete_rule(self, by: By, id: str, on_done: OnChanged[None]) -> None:
        def job() -> None:
            self._require_own_rule(id)
            self._check_rules((self._rule(id),), [rule for rule in self._every_rule() if rule.id != id])
            self._store.delete_rule(id)
            self._rules_ahead.note(id, None)

        self._run(job, lambda _: self._on_rule_gone(by, id), on_done)

    def _on_rule_gone(self, by: By, id: str) -> None:
        gone = self.accounts.rules.pop(id, None)
        self._rules_ahead.caught_up(id, None)
        self._affected.on_rule_changed(gone, None)
        self._affected.audit(by, "rule.removed", {"rule": gone.as_dict() if gone is not None else {"id": id}})

    def narrow_rule(self, by: By, id: str, gone: Iterable[Operation], on_done: OnChanged[Rule | None]) -> None:
        """Take operations from a rule, as the changes before this one have left it; one that says nothing more goes.
        Answers what is left of it."""
        def job() -> Rule | None:
            self._require_own_rule(id)
            before = self._rule(id)
            if before is None:
                raise UnknownRule(f"there is no rule {id[:40]!r}")
            left = before.operations.difference(gone)
            rule = replace(before, operations=left) if left else None
            others = [other for other in self._every_rule() if other.id != id]
            self._check_rules((before, rule), others if rule is None else [*others, rule])
            if rule is None:
                self._store.delete_rule(id)
            else:
                self._store.replace_rule(rule)
            self._rules_ahead.note(id, rule)
            return rule

        def applied(rule: Rule | None) -> Rule | None:
            if rule is None:
                self._on_rule_gone(by, id)
                return None
            return self._on_rule(by, "rule.changed", rule)

        self._run(job, applied, on_done)

    def _every_rule(self) -> list[Rule]:
        """Those of the configuration file first."""
        return [*self.accounts.file_rules, *self._rules_ahead.rows(self.accounts.rules).values()]

    def _rule(self, id: str) -> Rule | None:
        return self._rules_ahead.row(id, self.accounts.rules)

    def _check_rules(self, changed: Iterable[Rule | None], rules: list[Rule]) -> None:
        """Raises LastAdministrator where somebody may mend the rules now, and nobody could once they are these."""
        anonymous = self._affected.allow_anonymous
        if anonymous is None or not any(rule.decides_administering or anonymous and rule.speaks_of_anonymous
                                        for rule in changed if rule is not None):
            return
        accounts, users = self.accounts, self._every_user()
        if somebody_administers(accounts, users, rules, anonymous) \
                or not somebody_administers(accounts, users, self._every_rule(), anonymous):
            return
        text = "nobody would be left who may administer this hub, and mend its rules; make an administrator first"
        if anonymous:
            text += (" (once a rule speaks of everyone or of anonymous, anonymous may only what rules allow: for a hub "
                     "without users that is a rule which allows user:anonymous to administer the hub)")
        raise LastAdministrator(text)

    def _require_own_rule(self, id: str) -> None:
        if any(rule.id == id for rule in self.accounts.file_rules):
            raise FromFile(f"the rule {id} stands in the configuration file and is changed there")

    # ---- limits

    def add_limit(self, by: By, table: Mapping[str, Any], on_done: OnChanged[Limit]) -> None:
        def job() -> Limit:
            return self._add_limit(read_limit(table))

        self._run(job, partial(self._on_limit, by, "limit.added"), on_done)

    def _add_limit(self, limit: Limit) -> Limit:
        if len(self.accounts.limits) >= MAX_LIMITS_OF_THE_HUB:
            raise InvalidLimit(f"there are {MAX_LIMITS_OF_THE_HUB} limits, and no more are kept")
        added = self._store.add_limit(limit)
        self._limits_ahead.note(added.id, added)
        return added

    def replace_limit(self, by: By, id: str, table: Mapping[str, Any], on_done: OnChanged[Limit]) -> None:
        def job() -> Limit:
            self._require_own_limit(id)
            return self._replace_limit(read_limit(table, id))

        self._run(job, partial(self._on_limit, by, "limit.changed"), on_done)

    def _replace_limit(self, limit: Limit) -> Limit:
        self._limits_ahead.note(limit.id, self._store.replace_limit(limit))
        return limit

    def _on_limit(self, by: By, action: str, limit: Limit) -> Limit:
        before = self.accounts.limits.get(limit.id)
        self.accounts.limits[limit.id] = limit
        self._limits_ahead.caught_up(limit.id, limit)
        self._affected.on_limit_changed(before, limit)
        self._affected.audit(by, action, {"limit": limit.as_dict()})
        return limit

    def delete_limit(self, by: By, id: str, on_done: OnChanged[None]) -> None:
        def job() -> None:
            self._require_own_limit(id)
            self._delete_limit(id)

        self._run(job, lambda _: self._on_limit_gone(by, id), on_done)

    def _delete_limit(self, id: str) -> None:
        self._store.delete_limit(id)
        self._limits_ahead.note(id, None)

    def _on_limit_gone(self, by: By, id: str) -> None:
        gone = self.accounts.limits.pop(id, None)
        self._limits_ahead.caught_up(id, None)
        self._affected.on_limit_changed(gone, None)
        self._affected.audit(by, "limit.removed", {"limit": gone.as_dict() if gone is not None else {"id": id}})

    def set_limit(self, by: By, table: Mapping[str, Any], is_same: Callable[[Limit], bool], stays: bool,
                  on_done: OnChanged[Limit | None]) -> None:
        """Make a limit, or change the one that `is_same`; without `stays` remove that, if it is there. What is there is
        what the changes before this one have left."""
        def job() -> tuple[Limit | None, Limit | None]:
            limit = read_limit(table)
            limits = self._limits_ahead.rows(self.accounts.limits).values()
            before = next((other for other in limits if other.of == limit.of and is_same(other)), None)
            if stays:
                return before, self._add_limit(limit) if before is None \
                    else self._replace_limit(replace(limit, id=before.id))
            if before is not None:
                self._delete_limit(before.id)
            return before, None

        def applied(result: tuple[Limit | None, Limit | None]) -> Limit | None:
            before, limit = result
            if limit is not None:
                return self._on_limit(by, "limit.added" if before is None else "limit.changed", limit)
            if before is not None:
                self._on_limit_gone(by, before.id)
            return None

        self._run(job, applied, on_done)

    def _require_own_limit(self, id: str) -> None:
        if any(limit.id == id for limit in self.accounts.file_limits):
            raise FromFile(f"the limit {id} stands in the configuration file and is changed there")

    # ---- reading

    def limit(self, id: str) -> Limit:
        """The limit of this id. Raises UnknownLimit."""
        match = next((limit for limit in self.accounts.every_limit() if limit.id == id), None)
        if match is None:
            raise UnknownLimit(f"there is no limit {id[:40]!r}")
        return match

    def user(self, name: str) -> User:
        """The user of this name. Raises UnknownUser."""
        user = self.accounts.users.get(name_form(name))
        if user is None:
            raise UnknownUser(f"there is no user {name[:MAX_NAME_CHARACTERS]!r}")
        return user

    def rule(self, id: str) -> Rule:
        """The rule of this id. Raises UnknownRule."""
        match = next((rule for rule in self.accounts.every_rule() if rule.id == id), None)
        if match is None:
            raise UnknownRule(f"there is no rule {id[:40]!r}")
        return match

    def key(self, user: str, id: str) -> ApiKey:
        """A user's key of this id. Raises UnknownKey."""
        key = self.accounts.keys.get(id)
        if key is None or key.user != user:
            raise UnknownKey(f"the user {user[:MAX_NAME_CHARACTERS]!r} has no API key {id[:40]!r}")
        return key

    # ---- inside

    # decision 82
    def _run(self, job: Callable[[], Any], applied: Callable[[Any], Any], on_done: OnChanged[Any]) -> None:
        """Run the job in the worker's thread, then apply its changes to memory on the hub's thread, then answer."""
        change = AccountChange(job, applied, on_done)
        if self._together is not None:
            self._together.append(change)
        else:
            self._submit([change])

    def _submit(self, changes: list[AccountChange]) -> None:
        """Make changes in one transaction."""
        def attempt() -> list[Any]:
            try:
                if len(changes) == 1:
                    return [_outcome(changes[0])]
                with self._store.transaction():
                    return [_outcome(change) for change in changes]
            except Exception as error:
                for ahead in (self._rules_ahead, self._users_ahead, self._limits_ahead):
                    ahead.clear()        # none of it is kept
                if isinstance(error, SQLAlchemyError):
                    self._store.close()  # a connection in an unknown state is not used again
                raise

        def done(outcomes: list[Any] | None, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, SQLAlchemyError):
                log.error("a mistake of the hub in a change of accounts", exc_info=error)
            if outcomes is None:
                text = "the database of users and rights does not answer; nothing was changed"
                outcomes = [AccountsUnavailable(text)] * len(changes)
            for change, outcome in zip(changes, outcomes, strict=True):
                change.on_done(outcome if isinstance(outcome, AccountError) else change.applied(outcome))

        self._outside.accounts.submit(attempt, done)


def _outcome(change: AccountChange) -> Any:
    """What a change comes to in the database, or why it is refused: it has written nothing then."""
    try:
        return change.job()
    except AccountError as refusal:
        return refusal


def _why_ended(before: User | None, user: User) -> tuple[str, str]:  # decision 84
    """Why connections of the user end ("" if they do not), and with which beginning of their login. Where there was no
    account, tokens of its name may have opened some."""
    before = before or User(user.name)
    if user.disabled:
        return "the user is disabled", ""
    if not before.tenants | {before.tenant} <= user.tenants | {user.tenant}:
        return "the user has left a tenant", ""
    if before.password_hash != user.password_hash or before.scram != user.scram:
        return "the password was changed", "password"
    return "", ""


def prepared_name(name: str) -> str:
    """A user's name in the form in which it is kept. Raises InvalidUser."""
    try:
        prepared = saslprep(name)
    except ForbiddenCharacter:
        prepared = ""
    check_user_name(prepared)
    return prepared


def _read_limits(tables: Iterable[Mapping[str, Any]] | None) -> tuple[Rule, ...] | None:
    """Raises InvalidRule, InvalidUser."""
    if tables is None:
        return None
    limits = tuple(read_rule({**table, "who": EVERYONE, "tenant": DEFAULT_TENANT}) for table in tables)
    if any(rule.kind == CLIENT for rule in limits):
        raise InvalidUser("client ids are the user's, not the key's")
    if len(limits) > MAX_LIMITS or not all(rule.allows for rule in limits):
        raise InvalidUser(f"a key is restricted by at most {MAX_LIMITS} rules, all of them allows")
    return limits
