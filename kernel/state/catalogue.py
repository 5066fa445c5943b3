"""The catalogue: definitions as SQL tables, for whoever wants to query them. SQLite in the data directory, or any URL.

    hub        one row: whose log, which format, how far the projection is complete
    topics     one row per topic
    groups     one row per group and partition: the committed offset

These are the *projection* (`PROJECTION`). They are derived from the log, and written by the checkpoints' thread alone,
with the log position in the same transaction. The hub never reads them but for that position, and may empty and refill
them at any time, so no other table may refer to them. What the log does not hold (users, API keys, rules, limits) is
*truth*. It has tables of its own beside them, in a `MetaData` of its own, which nothing here touches. Both are made and
changed by the migrations in `kernel/state/migrations`, which run when the catalogue is opened.

A database that fails is told once, counted, and tried again at a later checkpoint: messages do not wait for it. For
backups the truth of an SQLite database is copied out of it (`copy_truth`).
"""
from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from gatehouse.kernel.state.projection import Definition, Step
from gatehouse.kernel.state.state import Kind, decode_offset, decode_offset_key
from gatehouse.kernel.state.topics import decode_topic, topic_id_of

# --- the projection -----------------------------------------------------------------------------------------------

FORMAT: Final = 1
"""The format of the projection's rows: where the database has another, they are written anew."""

FILE: Final = "catalogue.sqlite"
"""Its name in a data directory."""

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Every migration, oldest first; a test compares them with the folder. Here, so that a start need not load Alembic."""

ROWS_AT_ONCE: Final = 500
BUSY_MS: Final = 2_000               # what another process that holds SQLite's lock is waited for

PROJECTION: Final = sa.MetaData()

hub = sa.Table(
    "hub", PROJECTION,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),          # always 1
    sa.Column("uuid", sa.Uuid, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False))

topics = sa.Table(
    "topics", PROJECTION,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("uuid", sa.Uuid, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.String(249), nullable=False, index=True),
    sa.Column("partitions", sa.Integer, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False))

groups = sa.Table(
    "groups", PROJECTION,
    sa.Column("group_hash", sa.String(32), primary_key=True),      # of the name, which may be longer than a key may be
    sa.Column("partition_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("committed_offset", sa.BigInteger, nullable=False))


class NewerSchema(Exception):
    """The tables were made by a newer Gatehouse."""


class InvalidUrl(ValueError):
    """No SQLAlchemy URL, or one whose driver is not installed."""


def default_url(folder: Path) -> str:
    """SQLite in the data directory."""
    return URL.create("sqlite", database=str(folder / FILE)).render_as_string()


class Catalogue:
    """The projection of one hub. `open` first; everything else on the checkpoints' thread.

    `on_failure` and `on_recovery` are told in a sentence when the database begins to fail and when it is well again.
    """

    def __init__(self, url: str, on_failure: Callable[[str], None], on_recovery: Callable[[str], None]) -> None:
        """Raises InvalidUrl."""
        self._on_failure = on_failure
        self._on_recovery = on_recovery
        self._engine = make_engine(url)
        self.file = sqlite_file(self._engine.url)
        self.shown = self._engine.url.render_as_string(hide_password=True)
        self._migrated = False
        self._epoch = 0                       # whose first step has been taken
        self.failures = 0
        self.failing = False
        self.fault = ""                       # why, while it does

    def open(self) -> None:
        """Migrate. Raises NewerSchema; a database that fails now is tried again at the next checkpoint."""
        with self._contained():
            self._migrate()

    def take(self, step: Step) -> None:  # decision 19
        """See `projection.Projection`."""
        with self._contained():
            try:
                self._migrate()
            except NewerSchema as error:      # another version took the database while this hub ran
                raise OSError(str(error)) from None
            with self._engine.begin() as connection:
                self._write(connection, step)
            self._epoch = step.epoch

    def close(self) -> None:
        self._engine.dispose()

    # ---- failing

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except NewerSchema:
            raise
        except Exception as error:            # whatever it is, it is no reason to stop taking messages
            self._failed(str(getattr(error, "orig", None) or error).strip().partition("\n")[0])
        else:
            if self.failing:
                self.failing, self.fault = False, ""
                self._on_recovery(f"the catalogue {self.shown} is written again")

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.fault = why
        self._engine.dispose()                # a connection in an unknown state is not used again
        self._migrated = False
        if not self.failing:
            self.failing = True
            self._on_failure(f"the catalogue {self.shown} cannot be written: {why}; messages are not affected, it is "
                             "tried again")

    # ---- the schema

    def _migrate(self) -> None:
        if self.file is not None and not self.file.exists():
            self._engine.dispose()            # deleted under us: go on with a new one, not in a file without a name
            self._migrated = False
        if self._migrated:
            return
        with self._engine.begin() as connection:
            revision = current_revision(connection)
            if revision == REVISIONS[-1]:
                self._migrated = True
                return
            if revision is not None and revision not in REVISIONS:
                raise NewerSchema(f"the catalogue {self.shown} has schema {revision}, this version knows up to "
                                  f"{REVISIONS[-1]}; use the version that wrote it or a newer one")
            upgrade(connection)
        self._migrated = True

    # ---- the projection

    def _write(self, connection: Connection, step: Step) -> None:
        row = connection.execute(sa.select(hub)).one_or_none()
        if row is not None and self._continues(row, step):
            self._replace(connection, step.changed)
        else:
            for table in (topics, groups):
                connection.execute(table.delete())
            self._replace(connection, step.whole())
        connection.execute(hub.delete())
        connection.execute(hub.insert().values(id=1, uuid=UUID(bytes=step.hub), format=FORMAT, position=step.end,
                                               epoch=step.epoch))

    def _continues(self, row: Any, step: Step) -> bool:
        """Whether the tables hold what is true at the step's start; behind, ahead or another hub's, they do not."""
        known_epoch = row.epoch == step.epoch if self._epoch == step.epoch else row.epoch < step.epoch
        return bool(row.uuid == UUID(bytes=step.hub) and row.format == FORMAT and row.position == step.start
                    and known_epoch)

    def _replace(self, connection: Connection, definitions: Iterable[Definition]) -> None:
        """Take the rows of these keys away and put their newest values in."""
        pending = iter(definitions)
        while some := list(islice(pending, ROWS_AT_ONCE)):
            topic_ids = [{"of_id": topic_id_of(definition.key)} for definition in some if definition.kind == Kind.TOPIC]
            offset_keys = [_offset_key(definition.key) for definition in some if definition.kind == Kind.OFFSET]
            topic_rows = [_topic_row(definition.value) for definition in some
                          if definition.kind == Kind.TOPIC and definition.value is not None]
            offset_rows = [_offset_row(definition.key, definition.value) for definition in some
                           if definition.kind == Kind.OFFSET and definition.value is not None]
            for statement, rows in ((_DELETE_TOPIC, topic_ids), (_DELETE_OFFSET, offset_keys),
                                    (topics.insert(), topic_rows), (groups.insert(), offset_rows)):
                if rows:
                    connection.execute(statement, rows)


_DELETE_TOPIC = topics.delete().where(topics.c.id == sa.bindparam("of_id"))
_DELETE_OFFSET = groups.delete().where(groups.c.group_hash == sa.bindparam("of_hash"),
                                       groups.c.partition_id == sa.bindparam("of_partition"))


def _text(value: str) -> str:
    """A text that every database takes: PostgreSQL has no NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _topic_row(value: bytes) -> dict[str, Any]:
    topic = decode_topic(value)
    return {"id": topic.id, "uuid": UUID(bytes=topic.uuid), "tenant": _text(topic.tenant), "name": topic.name,
            "partitions": topic.partitions, "settings": asdict(topic.settings), "created_ms": topic.created_ms}


def group_hash(name: str) -> str:
    """What a group's rows are found by: 32 hexadecimal digits of BLAKE2b."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def _offset_key(key: bytes) -> dict[str, Any]:
    partition_id, name = decode_offset_key(key)
    return {"of_hash": group_hash(name), "of_partition": partition_id}


def _offset_row(key: bytes, value: bytes) -> dict[str, Any]:
    partition_id, name = decode_offset_key(key)
    return {"group_hash": group_hash(name), "partition_id": partition_id, "group_name": _text(name),
            "committed_offset": decode_offset(value)[0]}


# --- the database -------------------------------------------------------------------------------------------------

def make_engine(url: str, *, durable: bool = False) -> Engine:
    """An engine with one connection; `durable`: for truth, which no power cut may take. Raises InvalidUrl."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed, durable)
        return sa.create_engine(parsed, pool_size=1, max_overflow=0, pool_pre_ping=True)
    except (ArgumentError, ImportError, NoSuchModuleError) as error:
        raise InvalidUrl(f"no database can be reached by it: {error}") from None


def sqlite_file(url: URL) -> Path | None:
    """The file of an SQLite database; None for one in memory and for servers."""
    name = url.database
    return Path(name) if url.get_backend_name() == "sqlite" and name not in (None, "", ":memory:") else None


def _sqlite_engine(url: URL, durable: bool) -> Engine:
    """Transactions begin where they are asked to, DDL included, which Python's driver does not do by itself."""
    engine = sa.create_engine(url, poolclass=sa.pool.StaticPool,
                              connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        # A power cut may take the newest of the projection: it is derived.
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def settle(engine: Engine) -> None:
    """Move what was committed out of SQLite's write-ahead log into the database, as far as nobody is in the way: of a
    damaged log SQLite reads the sound beginning and says nothing, of a damaged database it can be asked."""
    if engine.url.get_backend_name() == "sqlite":
        raw = engine.raw_connection()
        try:
            with contextlib.suppress(sqlite3.Error):
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            raw.close()


def current_revision(connection: Connection) -> str | None:
    """The migration that the database is at; None for one without our tables."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the migrations that are missing, in the connection's transaction."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Half a second of imports that most starts do not need.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gatehouse.kernel.state:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


# --- a copy of the truth ------------------------------------------------------------------------------------------

# The truth of a catalogue in SQLite as a small database of its own: users, rights and whatever else the log does not
# hold. The projection's tables are in it too, and empty: a start fills them from the log.
#
# Everything is read in one transaction, so the copy is one moment's, and nobody who writes waits for it.

_SCHEMA: Final = ("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' "
                  "ESCAPE '!' ORDER BY type != 'table'")


def copy_truth(file: Path) -> bytes:
    """The copy as the bytes of a database file. Raises sqlite3.Error."""
    projected = set(PROJECTION.tables)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        copy.execute("ATTACH DATABASE ? AS source", (f"{file.absolute().as_uri()}?mode=rw",))
        copy.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        copy.execute("BEGIN")
        for kind, name, sql in copy.execute(_SCHEMA.replace("sqlite_master", "source.sqlite_master")).fetchall():
            copy.execute(sql)
            if kind == "table" and name not in projected:
                quoted = '"' + name.replace('"', '""') + '"'
                copy.execute(f"INSERT INTO main.{quoted} SELECT * FROM source.{quoted}")
        copy.execute("COMMIT")
        return copy.serialize()
