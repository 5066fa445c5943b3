"""Users, API keys, rules and limits as they are in memory: everything that a login or a decision looks at. Pure.

The database holds the same (`account_store`); it is read whole at the start and written before memory changes, so that
no login and no decision waits for it. Secrets are hashes here already, and are in no `repr`.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.gateways.admission.errors import InvalidUser
from gatehouse.gateways.admission.limits.limit import Limit, Quota
from gatehouse.gateways.admission.principal import ANONYMOUS, DEFAULT_TENANT
from gatehouse.gateways.admission.rules import MAX_TENANT_CHARACTERS, Rule

ADMINS: Final = "admins"
"""The group that may do everything."""

MAX_NAME_CHARACTERS: Final = 255
MAX_GROUPS: Final = 1000             # of one user
MAX_TENANTS: Final = 1000


@dataclass(frozen=True, slots=True)
class ScramSecret:
    """What the server keeps of a password for SCRAM (RFC 5802, 2.2); the password does not follow from it."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """One user. Changed by putting another in its place."""

    name: str
    tenant: str = DEFAULT_TENANT
    tenants: frozenset[str] = frozenset()
    """Further tenants; `tenant` is where the user works unless it asks for another."""

    groups: frozenset[str] = frozenset()
    disabled: bool = False
    quota: Quota = Quota()
    password_hash: str = field(default="", repr=False)
    """argon2's text; empty: no password opens this account."""

    scram: Mapping[str, ScramSecret] = field(default_factory=dict, repr=False)
    expires_ms: int = 0
    """When the user is no longer let in, in ms since 1970; 0: never."""

    created_ms: int = 0

    def may_log_in(self, now_ms: int) -> bool:
        return not self.disabled and not 0 < self.expires_ms <= now_ms

    def as_dict(self, file_groups: Iterable[str] = ()) -> dict[str, Any]:
        """The fields of the user that may be shown."""
        return {"name": self.name, "tenant": self.tenant, "tenants": sorted(self.tenants),
                "groups": sorted(self.groups), "groups_from_file": sorted(file_groups), "disabled": self.disabled,
                "expires": self.expires_ms or None, "has_password": bool(self.password_hash),
                "messages_per_s": self.quota.messages_per_s, "bytes_per_s": self.quota.bytes_per_s,
                "created": self.created_ms}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key: a long random secret that stands for its user."""

    id: str
    user: str
    name: str
    secret_hash: str = field(repr=False)
    expires_ms: int = 0
    """When the key is no longer good, in ms since 1970; 0: never."""

    restriction: tuple[Rule, ...] | None = None
    """Rules that allow, of which one must allow what the user may; None: the key may do everything that the user
    may."""

    created_ms: int = 0

    def as_dict(self) -> dict[str, Any]:
        restriction = None if self.restriction is None else [_shown_limit(rule) for rule in self.restriction]
        return {"id": self.id, "name": self.name, "created": self.created_ms,
                "expires": self.expires_ms or None, "restriction": restriction}


def _shown_limit(rule: Rule) -> dict[str, Any]:
    shown = rule.as_dict()
    return {name: shown[name] for name in ("operations", "kind", "pattern")}


def check_user_name(name: str) -> None:
    """Raises InvalidUser for what is no name of a user."""
    _check_text(name, "a user's name", MAX_NAME_CHARACTERS)
    if name == ANONYMOUS:
        raise InvalidUser(f"{ANONYMOUS!r} is who comes without credentials")


def check_group_name(name: str) -> None:
    """Raises InvalidUser for what is no name of a group of users."""
    _check_text(name, "a group's name", MAX_NAME_CHARACTERS)


def check_tenant_name(name: str) -> None:
    """Raises InvalidUser for what is no name of a tenant."""
    _check_text(name, "a tenant's name", MAX_TENANT_CHARACTERS)
    if name == "*":
        raise InvalidUser("'*' is every tenant in a rule, and no tenant's name")


def _check_text(text: str, what: str, size_max: int) -> None:
    if not text or len(text) > size_max or not text.isprintable():
        raise InvalidUser(f"{what} has 1 to {size_max} characters, all printable")


class Accounts:
    """Everything that is known of users, keys, rules and limits."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.keys: dict[str, ApiKey] = {}
        self.rules: dict[str, Rule] = {}
        self.limits: dict[str, Limit] = {}
        self.file_rules: tuple[Rule, ...] = ()
        self.file_limits: tuple[Limit, ...] = ()
        self._file_groups: dict[str, frozenset[str]] = {}        # of each user

    def load(self, users: Iterable[User], keys: Iterable[ApiKey], rules: Iterable[Rule], limits: Iterable[Limit] = ()
             ) -> None:
        """Take over the users, keys, rules and limits that the database holds."""
        self.users = {user.name: user for user in users}
        self.keys = {key.id: key for key in keys}
        self.rules = {rule.id: rule for rule in rules}
        self.limits = {limit.id: limit for limit in limits}

    def configure(self, rules: Iterable[Rule], groups: Mapping[str, Iterable[str]], limits: Iterable[Limit] = ()
                  ) -> bool:
        """Take over what the configuration holds: rules, the users of each group, and limits. Returns whether rules or
        groups have changed."""
        self.file_limits = tuple(limits)
        before = self.file_rules, self._file_groups
        self.file_rules = tuple(rules)
        of: dict[str, set[str]] = {}
        for group, names in groups.items():
            for name in names:
                of.setdefault(name, set()).add(group)
        self._file_groups = {name: frozenset(memberships) for name, memberships in of.items()}
        return before != (self.file_rules, self._file_groups)

    def every_rule(self) -> list[Rule]:
        """All rules, those of the configuration file first."""
        return [*self.file_rules, *self.rules.values()]

    def every_limit(self) -> list[Limit]:
        """All limits but the quotas of users, those of the configuration file first."""
        return [*self.file_limits, *self.limits.values()]

    def file_groups_of(self, name: str) -> frozenset[str]:
        return self._file_groups.get(name, frozenset())

    def groups_of(self, name: str) -> frozenset[str]:
        """All groups of a user, who need not have an account."""
        user = self.users.get(name)
        of_file = self.file_groups_of(name)
        return of_file if user is None else user.groups | of_file

    def is_administrator(self, name: str) -> bool:
        """Whether there is such a user, who may do everything and is not disabled."""
        user = self.users.get(name)
        return user is not None and not user.disabled and ADMINS in self.groups_of(name)

    def keys_of(self, name: str) -> list[ApiKey]:
        """A user's API keys. Asked on the thread that makes changes, too, while the hub's own makes others."""
        return [key for key in list(self.keys.values()) if key.user == name]
