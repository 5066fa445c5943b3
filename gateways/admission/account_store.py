"""Users, API keys, rules and limits in SQL: the truth, in the catalogue's database, beside the projection that may be
emptied.

    users           one row per user, with its groups, quota and password hashes
    api_keys        one row per key, with the hash of its secret
    acl             one row per rule
    limits          one row per limit
    audit_waiting   what was changed while no hub ran, until one has told its audit topic

Every call is one transaction and blocks: a worker's thread, or a command line, makes it. A change reads the row that
it changes in its own transaction. Within `transaction` several calls are one.
"""
from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from gatehouse.gateways.admission.accounts import ApiKey, ScramSecret, User
from gatehouse.gateways.admission.errors import UnknownKey, UnknownLimit, UnknownRule, UnknownUser, UserExists
from gatehouse.gateways.admission.limits.limit import Limit, Quota, read_limit
from gatehouse.gateways.admission.rules import Rule, read_rule
from gatehouse.kernel.state.catalogue import settle

TRUTH: Final = sa.MetaData()

users = sa.Table(
    "users", TRUTH,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("tenant", sa.String(255), nullable=False),
    sa.Column("tenants", sa.JSON, nullable=False),
    sa.Column("user_groups", sa.JSON, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("messages_per_s", sa.Float, nullable=False),
    sa.Column("bytes_per_s", sa.Float, nullable=False),
    sa.Column("password_hash", sa.Text, nullable=False),
    sa.Column("scram", sa.JSON, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False))

api_keys = sa.Table(
    "api_keys", TRUTH,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("user_name", sa.String(255), nullable=False, index=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("restriction", sa.JSON(none_as_null=True), nullable=True),
    sa.Column("created_ms", sa.BigInteger, nullable=False))

acl = sa.Table(
    "acl", TRUTH,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("effect", sa.String(5), nullable=False),
    sa.Column("who", sa.String(261), nullable=False),
    sa.Column("operations", sa.JSON, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("pattern", sa.Text, nullable=False),
    sa.Column("tenant", sa.String(255), nullable=False))

limits = sa.Table(
    "limits", TRUTH,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("limit_of", sa.Text, nullable=False),
    sa.Column("direction", sa.String(3), nullable=False),
    sa.Column("tenant", sa.String(255), nullable=False),
    sa.Column("amounts", sa.JSON, nullable=False))

audit_waiting = sa.Table(
    "audit_waiting", TRUTH,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("message", sa.Text, nullable=False))


class AccountStore:
    """The tables of one database that has been migrated. Errors of SQLAlchemy go through."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None       # of `transaction`

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is done within happens as a whole, or not."""
        with self._engine.begin() as self._connection:
            try:
                yield
            finally:
                self._connection = None
        settle(self._engine)

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with self._engine.begin() as connection:
            yield connection
        settle(self._engine)

    def close(self) -> None:
        self._engine.dispose()

    def read(self) -> tuple[list[User], list[ApiKey], list[Rule], list[Limit]]:
        """Everything. Raises ValueError where the database is damaged."""
        with self._begin() as connection:
            _require_sound(connection)
            return ([_user(row) for row in connection.execute(sa.select(users))],
                    [_key(row) for row in connection.execute(sa.select(api_keys).order_by(api_keys.c.created_ms))],
                    [_rule(row) for row in connection.execute(sa.select(acl).order_by(acl.c.id))],
                    [_limit(row) for row in connection.execute(sa.select(limits).order_by(limits.c.id))])

    # ---- users

    def add_user(self, user: User) -> User:
        """Raises UserExists."""
        with self._begin() as connection:
            if _find_user(connection, user.name) is not None:
                raise UserExists(f"there is a user {user.name!r} already")
            connection.execute(users.insert().values(_user_row(user)))
        return user

    def change_user(self, name: str, change: Callable[[User], User]) -> User:
        """The user as changed. Raises UnknownUser and what `change` raises."""
        with self._begin() as connection:
            changed = change(_require_user(connection, name))
            connection.execute(users.update().where(users.c.name == name).values(_user_row(changed)))
        return changed

    def delete_user(self, name: str) -> None:
        """A user goes, with its keys. Raises UnknownUser."""
        with self._begin() as connection:
            _require_user(connection, name)
            connection.execute(api_keys.delete().where(api_keys.c.user_name == name))
            connection.execute(users.delete().where(users.c.name == name))

    # ---- keys

    def add_key(self, key: ApiKey) -> ApiKey:
        """Raises UnknownUser."""
        restriction = None if key.restriction is None else [_rule_row(rule) for rule in key.restriction]
        with self._begin() as connection:
            _require_user(connection, key.user)
            connection.execute(api_keys.insert().values(
                id=key.id, user_name=key.user, name=key.name, secret_hash=key.secret_hash, expires_ms=key.expires_ms,
                restriction=restriction, created_ms=key.created_ms))
        return key

    def delete_key(self, user: str, id: str) -> None:
        """Raises UnknownKey."""
        with self._begin() as connection:
            gone = connection.execute(api_keys.delete().where(api_keys.c.id == id, api_keys.c.user_name == user))
            if not gone.rowcount:
                raise UnknownKey(f"the user {user!r} has no API key {id[:40]!r}")

    # ---- rules

    def add_rule(self, rule: Rule) -> Rule:
        """The rule with its id."""
        with self._begin() as connection:
            added = connection.execute(acl.insert().values(_rule_row(rule)).returning(acl.c.id)).scalar_one()
        return read_rule(_rule_row(rule), str(added))

    def replace_rule(self, rule: Rule) -> Rule:
        """The rule of the same id becomes this one. Raises UnknownRule."""
        with self._begin() as connection:
            changed = connection.execute(acl.update().where(acl.c.id == _number(rule.id)).values(_rule_row(rule)))
            if not changed.rowcount:
                raise UnknownRule(f"there is no rule {rule.id[:40]!r}")
        return rule

    def delete_rule(self, id: str) -> None:
        """Raises UnknownRule."""
        with self._begin() as connection:
            if not connection.execute(acl.delete().where(acl.c.id == _number(id))).rowcount:
                raise UnknownRule(f"there is no rule {id[:40]!r}")

    # ---- limits

    def add_limit(self, limit: Limit) -> Limit:
        """The limit with its id."""
        with self._begin() as connection:
            added = connection.execute(limits.insert().values(_limit_row(limit)).returning(limits.c.id)).scalar_one()
        return replace(limit, id=str(added))

    def replace_limit(self, limit: Limit) -> Limit:
        """The limit of the same id becomes this one. Raises UnknownLimit."""
        with self._begin() as connection:
            changed = connection.execute(limits.update().where(limits.c.id == _number_of_limit(limit.id)).values(
                _limit_row(limit)))
            if not changed.rowcount:
                raise UnknownLimit(f"there is no limit {limit.id[:40]!r}")
        return limit

    def delete_limit(self, id: str) -> None:
        """Raises UnknownLimit."""
        with self._begin() as connection:
            if not connection.execute(limits.delete().where(limits.c.id == _number_of_limit(id))).rowcount:
                raise UnknownLimit(f"there is no limit {id[:40]!r}")

    # ---- what an audit topic is still to be told

    def note(self, message: str) -> None:
        """Keep an audit message for the next hub that starts."""
        with self._begin() as connection:
            connection.execute(audit_waiting.insert().values(message=message))

    def notes(self) -> list[tuple[int, str]]:
        """(id, message), in the order in which they were kept."""
        with self._begin() as connection:
            return [(row.id, row.message) for row in connection.execute(
                sa.select(audit_waiting).order_by(audit_waiting.c.id))]

    def forget_note(self, id: int) -> None:
        with self._begin() as connection:
            connection.execute(audit_waiting.delete().where(audit_waiting.c.id == id))


def _require_sound(connection: Connection) -> None:
    """SQLite tells only who asks: with one wrong bit in a page a table may look empty, and deny rules be gone."""
    if connection.dialect.name == "sqlite":
        report = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if report != "ok":
            raise ValueError(f"the database is damaged ({' '.join(str(report).split())})")


def _number(id: str) -> int:
    if not id.isascii() or not id.isdigit() or len(id) > 9:
        raise UnknownRule(f"there is no rule {id[:40]!r}")
    return int(id)


def _number_of_limit(id: str) -> int:
    if not id.isascii() or not id.isdigit() or len(id) > 9:
        raise UnknownLimit(f"there is no limit {id[:40]!r}")
    return int(id)


def _find_user(connection: Connection, name: str) -> User | None:
    row = connection.execute(sa.select(users).where(users.c.name == name).with_for_update()).one_or_none()
    return None if row is None else _user(row)


def _require_user(connection: Connection, name: str) -> User:
    user = _find_user(connection, name)
    if user is None:
        raise UnknownUser(f"there is no user {name[:255]!r}")
    return user


# --- rows ------------------------------------------------------------------------------------------------------------

def _user_row(user: User) -> dict[str, Any]:
    scram = {mechanism: [b64encode(secret.salt).decode(), secret.iterations, b64encode(secret.stored_key).decode(),
                         b64encode(secret.server_key).decode()] for mechanism, secret in user.scram.items()}
    return {"name": user.name, "tenant": user.tenant, "tenants": sorted(user.tenants),
            "user_groups": sorted(user.groups), "disabled": user.disabled, "messages_per_s": user.quota.messages_per_s,
            "bytes_per_s": user.quota.bytes_per_s, "password_hash": user.password_hash, "scram": scram,
            "expires_ms": user.expires_ms, "created_ms": user.created_ms}


def _user(row: Any) -> User:
    scram = {mechanism: ScramSecret(b64decode(salt), iterations, b64decode(stored_key), b64decode(server_key))
             for mechanism, (salt, iterations, stored_key, server_key) in row.scram.items()}
    return User(row.name, row.tenant, frozenset(row.tenants), frozenset(row.user_groups), row.disabled,
                Quota(row.messages_per_s, row.bytes_per_s), row.password_hash, scram, row.expires_ms,
                row.created_ms)


def _key(row: Any) -> ApiKey:
    restriction = None if row.restriction is None else tuple(read_rule(table) for table in row.restriction)
    return ApiKey(row.id, row.user_name, row.name, row.secret_hash, row.expires_ms, restriction, row.created_ms)


def _rule_row(rule: Rule) -> dict[str, Any]:
    shown = rule.as_dict()
    return {name: shown[name] for name in ("effect", "who", "operations", "kind", "pattern", "tenant")}


def _rule(row: Any) -> Rule:
    return read_rule({name: getattr(row, name) for name in ("effect", "who", "operations", "kind", "pattern", "tenant")
                      if name != "pattern" or row.pattern}, str(row.id))


def _limit_row(limit: Limit) -> dict[str, Any]:
    return {"limit_of": limit.of, "direction": limit.direction, "tenant": limit.tenant, "amounts": limit.amounts()}


def _limit(row: Any) -> Limit:
    return read_limit({"of": row.limit_of, "direction": row.direction, "tenant": row.tenant, **row.amounts},
                      str(row.id))
