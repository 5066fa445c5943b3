"""Who may administer a hub, and whether anybody is left who may. Pure.

Whoever is in the group `admins` may do everything, and no rule takes that away, as Kafka's `super.users` and RabbitMQ's
`administrator` stand above what is granted and denied. Others may administer by a rule on the hub, which a deny takes
away; and `anonymous` may on a hub that nobody has closed yet.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatehouse.gateways.admission.accounts import ADMINS, Accounts, User
from gatehouse.gateways.admission.principal import ANONYMOUS, DEFAULT_TENANT
from gatehouse.gateways.admission.rules import EVERY_TENANT, EVERYONE, Rule


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
