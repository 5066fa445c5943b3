"""What a configuration says of users, rights and limits: `[auth.jwt]`, `[[acl]]`, `[[user_groups]]`, `[[limits]]`.

Rules, groups and limits of the file are put in place at start and at a reload, are shown as `from_file`, and can be
changed nowhere else.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from gatehouse.config.settings import ConfigPlace, Problems, read_section
from gatehouse.gateways.admission.accounts import check_group_name, check_user_name
from gatehouse.gateways.admission.errors import InvalidLimit, InvalidUser
from gatehouse.gateways.admission.limits.limit import Limit, read_limit
from gatehouse.gateways.admission.rules import InvalidRule, Rule, read_rule
from gatehouse.gateways.admission.tokens import JwtSettings

Entry = TypeVar("Entry")

TABLE_LISTS: Final = ("acl", "user_groups", "limits")
"""Sections that are lists of tables."""


@dataclass(frozen=True, slots=True)
class AclSettings:
    """[[acl]]"""

    who: str = field(metadata={"help": "Whom the rule speaks of: `user:NAME`, `group:NAME` or `everyone`."})
    pattern: str | None = field(default=None, metadata={
        "help": "Where: addresses with `+` and `#`, or a topic's or group's name, or a client id, `*` at its end for "
                "whatever follows; `{user}` and `{client_id}` stand for whoever asks. The hub has none."})
    operations: list[str] | None = field(default=None, metadata={
        "help": "What: `publish`, `consume`, `create`, `alter`, `transact`, `administer`, `relay`, `connect`, as far "
                "as the kind knows it; left out, all of them."})
    effect: str = field(default="allow", metadata={
        "choices": ("allow", "deny"), "help": "A deny wins over every allow."})
    kind: str = field(default="address", metadata={
        "choices": ("address", "topic", "group", "hub", "client"), "help": "What the pattern is about."})
    tenant: str = field(default="/", metadata={"help": "The tenant that it holds in; `*`: every one."})


@dataclass(frozen=True, slots=True)
class UserGroupSettings:
    """[[user_groups]]"""

    name: str = field(metadata={"help": "The group. Who is in `admins` may do everything."})
    users: tuple[str, ...] = field(metadata={"help": "Users in it, beside those that are put in it elsewhere."})


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """[[limits]]"""

    of: str = field(metadata={"help": "Of what: `hub`, `door:NAME`, `tenant:NAME`, `group:NAME` (users), `user:NAME`, "
                                      "`client:ID`, `user-client:USER/ID`, `address:FILTER`, `topic:NAME`, "
                                      "`consumers:NAME`; `*` in place of a name: each has this limit by itself."})
    direction: str = field(default="in", metadata={"choices": ("in", "out"), "help": "What is published, or given."})
    messages_per_s: float | None = field(default=None, metadata={
        "min": 0, "max": 1e18, "help": "Messages a second; 0: none at all."})
    bytes_per_s: float | None = field(default=None, metadata={
        "min": 0, "max": 1e18, "help": "Bytes of messages a second; 0: none at all."})
    operations_per_s: float | None = field(default=None, metadata={
        "min": 0, "max": 1e18, "help": "Operations a second: a publish, or what of them one read brought, and what was "
                                       "refused; 0: none at all."})
    messages_burst: int | None = field(default=None, metadata={
        "min": 1, "max": 10 ** 18, "help": "Messages at once; left out: those of one second."})
    bytes_burst: int | None = field(default=None, metadata={
        "min": 1, "max": 10 ** 18, "help": "Bytes at once; left out: those of one second."})
    operations_burst: int | None = field(default=None, metadata={
        "min": 1, "max": 10 ** 18, "help": "Operations at once; left out: those of one second."})
    connections: int | None = field(default=None, metadata={
        "min": 0, "max": 10 ** 18,
        "help": "Connections that may be open at once, of the hub, a door, a tenant or a user; calls of HTTP are "
                "none."})
    stored_messages: int | None = field(default=None, metadata={
        "min": 0, "max": 10 ** 18, "help": "Messages that may be stored at once, in all topics of a tenant or in one."})
    stored_bytes: int | None = field(default=None, metadata={
        "min": 0, "max": 10 ** 18, "help": "Bytes of the log that they may have."})
    tenant: str = field(default="/", metadata={
        "help": "The tenant of a client, an address, a topic or a group of consumers; `*`: each by itself."})
    observe: bool = field(default=False, metadata={
        "help": "Whether it only counts what would be too much."})
    yields: bool = field(default=False, metadata={
        "help": "Whether it holds only for those of whom no limit speaks that names user and client id more closely."})


@dataclass(frozen=True, slots=True)
class RightsConfig:
    """What a configuration says of tokens, rules, groups of users and limits."""

    jwt: JwtSettings | None = None
    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()

    def flat(self) -> dict[str, Any]:
        """By names, for what a reload says."""
        return {"auth.jwt": self.jwt, "acl": self.rules, "user_groups": self.groups,
                "limits": self.limits}


LIVE_RIGHTS: Final = frozenset(RightsConfig().flat())


def read_rights(tables: dict[str, Any], place: ConfigPlace, problems: Problems) -> RightsConfig:
    """Takes its tables out of `tables`."""
    auth = tables.get("auth")
    jwt = auth.pop("jwt", None) if isinstance(auth, dict) else None
    return RightsConfig(_read_jwt(jwt, place, problems), _read_rules(tables.pop("acl", []), place, problems),
                        _read_groups(tables.pop("user_groups", []), place, problems),
                        _read_limits(tables.pop("limits", []), place, problems))


def _read_jwt(table: Any, place: ConfigPlace, problems: Problems) -> JwtSettings | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        problems.add(place.source, "auth.jwt", "must be a table: [auth.jwt]")
        return None
    settings: JwtSettings | None = read_section(JwtSettings, table, "auth.jwt", place, problems)
    if settings is None or "://" in settings.jwks:
        return settings
    return dataclasses.replace(settings, jwks=str(place.folder / settings.jwks))


def _read_rules(entries: Any, place: ConfigPlace, problems: Problems) -> tuple[Rule, ...]:
    return _read_each(AclSettings, entries, "acl", read_rule, place, problems)


def _read_limits(entries: Any, place: ConfigPlace, problems: Problems) -> tuple[Limit, ...]:
    return _read_each(LimitSettings, entries, "limits", read_limit, place, problems)


def _read_each(settings_type: type, entries: Any, name: str, read: Callable[[dict[str, Any], str], Entry],
               place: ConfigPlace, problems: Problems) -> tuple[Entry, ...]:
    """Each table as what `read` makes of it and of its id."""
    made = []
    for number, settings in _read_list(settings_type, entries, name, place, problems):
        table = {name: value for name, value in dataclasses.asdict(settings).items() if value is not None}
        try:
            made.append(read(table, f"file-{number + 1}"))
        except (InvalidRule, InvalidLimit) as error:
            problems.add(place.source, f"{name}[{number}]", str(error))
    return tuple(made)


def _read_groups(entries: Any, place: ConfigPlace, problems: Problems) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for number, settings in _read_list(UserGroupSettings, entries, "user_groups", place, problems):
        try:
            check_group_name(settings.name)
            for name in settings.users:
                check_user_name(name)
        except InvalidUser as error:
            problems.add(place.source, f"user_groups[{number}]", str(error))
        groups[settings.name] = groups.get(settings.name, ()) + settings.users
    return groups


def _read_list(section: type, entries: Any, name: str, place: ConfigPlace, problems: Problems) -> list[tuple[int, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.add(place.source, name, f"must be a list of tables: [[{name}]]")
        return []
    sections = [(number, read_section(section, entry, f"{name}[{number}]", place, problems))
                for number, entry in enumerate(entries)]
    return [(number, settings) for number, settings in sections if settings is not None]
