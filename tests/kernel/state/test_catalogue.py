"""The SQL catalogue: it shows what the log holds, whatever happens to its database."""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlalchemy as sa

from gatehouse.kernel.state import catalogue as sql
from gatehouse.kernel.state.catalogue import Catalogue, InvalidUrl, NewerSchema
from gatehouse.kernel.state.projection import Step
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.rig import Rig


class Shelf:
    """A rig with its catalogue in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "catalogue.sqlite"
        self.failures: list[str] = []
        self.recoveries: list[str] = []
        self.steps: list[Step] = []
        self.catalogue = self.open()
        self.rig = Rig(folder, projection=self)

    def open(self) -> Catalogue:
        catalogue = Catalogue(sql.default_url(self.file.parent), self.failures.append, self.recoveries.append)
        catalogue.open()
        return catalogue

    def take(self, step: Step) -> None:
        self.steps.append(step)
        self.catalogue.take(step)

    def checkpoint(self) -> None:
        self.rig.world.advance(5_000)
        self.rig.run()

    def restart(self, **how: bool) -> None:
        """Kill -9 and a new start."""
        self.catalogue.close()
        self.catalogue = self.open()
        self.rig.restart(**how)

    def commit(self, group: str, topic: str, offset: int) -> None:
        found = self.rig.kernel.topic(topic)
        assert found is not None
        self.rig.kernel.groups.commit_offsets(group, {found.partition_id(0): (offset, b"")}, None)
        self.rig.run()

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.file)) as database:
            return database.execute(statement).fetchall()

    def topics(self) -> list[str]:
        return [str(name) for name, in self.rows("SELECT name FROM topics ORDER BY name")]

    def offsets(self) -> list[tuple[object, ...]]:
        return self.rows("SELECT group_name, committed_offset FROM groups ORDER BY group_name")

    def count_whole(self) -> list[Step]:
        """From now on, the steps whose whole was asked for."""
        asked: list[Step] = []

        def take(step: Step) -> None:
            def whole():
                asked.append(step)
                return step.whole()
            self.catalogue.take(step._replace(whole=whole))

        self.take = take  # type: ignore[method-assign]
        return asked


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_definitions_are_rows_after_a_checkpoint(shelf: Shelf) -> None:
    topic = shelf.rig.kernel.create_topic("orders", partitions=3, settings=TopicSettings(retention_ms=1000),
                                          tenant="acme")
    shelf.rig.publish("plant/line1", b"x")
    shelf.commit("readers", "plant", 1)
    assert shelf.topics() == [], "nothing is written but at checkpoints"
    shelf.checkpoint()
    assert shelf.rows("SELECT * FROM topics WHERE name = 'orders'") == [
        (topic.id, topic.uuid.hex(), "acme", "orders", 3, json.dumps(asdict(topic.settings)),
         topic.created_ms)]
    plant = shelf.rig.kernel.topic("plant")
    assert plant is not None
    assert shelf.rows("SELECT * FROM groups") == [(sql.group_hash("readers"), plant.partition_id(0), "readers", 1)]
    assert shelf.rows("SELECT id, uuid, format, position, epoch FROM hub") == [
        (1, b"a hub of the rig".hex(), sql.FORMAT, shelf.rig.log.end(), 1)]


def test_changes_and_deletions_follow(shelf: Shelf) -> None:
    asked = shelf.count_whole()
    for name in ("a", "b"):
        shelf.rig.publish(f"{name}/k", b"x")
        shelf.commit("g" + name, name, 1)
    shelf.checkpoint()
    assert len(asked) == 1, "an empty database is given everything"
    shelf.rig.kernel.change_topic("b", partitions=9)
    shelf.rig.kernel.delete_topic("a")
    shelf.commit("gb", "b", 7)
    shelf.checkpoint()
    assert shelf.rows("SELECT name, partitions FROM topics") == [("b", 9)]
    assert shelf.offsets() == [("gb", 7)]
    assert len(asked) == 1, "the rest is told as changes"


def test_nothing_is_written_per_message(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    steps = len(shelf.steps)
    for _ in range(50):
        shelf.rig.publish("t/k", b"x")
    assert len(shelf.steps) == steps
    shelf.checkpoint()
    assert len(shelf.steps) == steps + 1
    assert shelf.steps[-1].changed == []


def test_an_orderly_start_goes_on_from_where_the_catalogue_is(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    shelf.restart()
    asked = shelf.count_whole()
    shelf.rig.publish("u/k", b"x")
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u"]
    assert not asked


def test_a_crash_before_any_checkpoint_loses_nothing(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.restart()
    shelf.checkpoint()
    assert shelf.topics() == ["t"]


def test_a_crash_between_index_and_sql(shelf: Shelf) -> None:
    """The index has the checkpoint, the database has not: it is behind and is given everything."""
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    shelf.take = shelf.steps.append  # type: ignore[method-assign]
    shelf.rig.publish("u/k", b"x")
    shelf.commit("g", "u", 1)
    shelf.checkpoint()
    assert shelf.topics() == ["t"]
    del shelf.take  # type: ignore[method-assign]
    shelf.restart()
    shelf.checkpoint()
    assert (shelf.topics(), shelf.offsets()) == (["t", "u"], [("g", 1)])


def test_a_rolled_back_transaction_leaves_the_old_rows_and_the_old_position(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    before = shelf.rows("SELECT position FROM hub")
    with failing_at_the_end(shelf.catalogue):
        shelf.rig.publish("u/k", b"x")
        shelf.checkpoint()
    assert (shelf.topics(), shelf.rows("SELECT position FROM hub")) == (["t"], before)
    shelf.rig.publish("v/k", b"x")
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u", "v"]


@contextmanager
def failing_at_the_end(catalogue: Catalogue) -> Iterator[None]:
    """The last statement of every transaction fails."""
    def on_execute(connection, cursor, statement, parameters, context, many) -> None:
        if statement.startswith("INSERT INTO hub"):
            raise sqlite3.OperationalError("disk I/O error")

    sa.event.listen(catalogue._engine, "before_cursor_execute", on_execute)
    yield
    sa.event.remove(catalogue._engine, "before_cursor_execute", on_execute)


def test_deleting_the_database_loses_nothing(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    for file in shelf.file.parent.glob("catalogue.sqlite*"):
        file.unlink()
    shelf.rig.publish("u/k", b"x")
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u"], "while the hub runs"
    shelf.catalogue.close()
    for file in shelf.file.parent.glob("catalogue.sqlite*"):
        file.unlink()
    shelf.restart()
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u"], "while it is stopped"
    assert not shelf.failures


def test_losing_the_index_loses_nothing(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    shelf.rig.kernel.delete_topic("t")
    shelf.rig.publish("u/k", b"x")
    shelf.restart(lose_index=True)
    shelf.checkpoint()
    assert shelf.topics() == ["u"]


@pytest.mark.parametrize("change", ["position = position + 1000000", "position = 0", "epoch = 99", "format = 0",
                                    "uuid = '00000000000000000000000000000000'"])
def test_a_database_that_is_not_where_the_log_is_is_filled_anew(shelf: Shelf, change: str) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    with closing(sqlite3.connect(shelf.file)) as database, database:
        database.execute(f"UPDATE hub SET {change}")
        database.execute("UPDATE topics SET name = 'ghost'")
    shelf.restart()
    shelf.rig.publish("u/k", b"x")
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u"]


def test_replay_never_reads_it(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    with closing(sqlite3.connect(shelf.file)) as database, database:
        database.execute("UPDATE topics SET name = 'ghost', partitions = 99")
    shelf.restart()
    assert [topic.name for topic in shelf.rig.kernel.topics()] == ["t"]


def test_a_failing_database_does_not_stop_messages(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    with closing(sqlite3.connect(shelf.file)) as database:
        database.execute("DROP TABLE topics")
    for _ in range(3):
        shelf.rig.publish("u/k", b"x")
        shelf.checkpoint()
    assert shelf.rig.values("u") == [b"x"] * 3
    assert len(shelf.failures) == 1, "told once"
    assert "no such table: topics; messages are not affected" in shelf.failures[0]
    assert shelf.catalogue.failures >= 3 and shelf.catalogue.failing
    for file in shelf.file.parent.glob("catalogue.sqlite*"):
        file.unlink()
    shelf.rig.publish("u/k", b"x")
    shelf.checkpoint()
    assert shelf.topics() == ["t", "u"]
    assert len(shelf.recoveries) == 1 and not shelf.catalogue.failing


def test_a_damaged_file_does_not_stop_a_start(tmp_path: Path) -> None:
    (tmp_path / "catalogue.sqlite").write_bytes(b"rubbish" * 1000)
    shelf = Shelf(tmp_path)
    assert "file is not a database" in shelf.failures[0]
    shelf.rig.publish("t/k", b"x")
    assert shelf.rig.values("t") == [b"x"]
    shelf.file.unlink()
    shelf.checkpoint()
    assert shelf.topics() == ["t"]


@pytest.mark.parametrize("revision", sql.REVISIONS[:-1])
def test_an_older_schema_is_upgraded_and_filled(shelf: Shelf, revision: str) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.commit("g", "t", 1)
    shelf.checkpoint()
    shelf.catalogue.close()
    shelf.file.unlink()
    engine = sql.make_engine(sql.default_url(shelf.file.parent))
    with engine.begin() as connection:
        sql.upgrade(connection, revision)
    engine.dispose()
    assert shelf.rows("SELECT version_num FROM alembic_version") == [(revision,)]
    shelf.restart()
    assert shelf.rows("SELECT version_num FROM alembic_version") == [(sql.REVISIONS[-1],)]
    shelf.checkpoint()
    assert (shelf.topics(), shelf.offsets()) == (["t"], [("g", 1)])


def test_a_migration_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    engine = sql.make_engine(sql.default_url(tmp_path))
    with pytest.raises(RuntimeError), engine.begin() as connection:
        sql.upgrade(connection, "0001")
        raise RuntimeError("kill -9")
    with engine.begin() as connection:
        assert sql.current_revision(connection) is None
        assert not sa.inspect(connection).has_table("topics")
    engine.dispose()


def test_a_newer_schema_is_refused(shelf: Shelf) -> None:
    with closing(sqlite3.connect(shelf.file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    shelf.catalogue.close()
    with pytest.raises(NewerSchema, match="has schema 9999, this version knows up to 0007; use the version"):
        shelf.open()


def test_the_migrations_make_the_tables_that_the_code_knows(tmp_path: Path) -> None:
    """Every revision is listed, and columns, keys and indexes agree."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from gatehouse.gateways.admission.account_store import TRUTH

    versions = Path(sql.__file__).parent / "migrations" / "versions"
    assert tuple(sorted(file.name[1:5] for file in versions.glob("v*.py"))) == sql.REVISIONS
    engine = sql.make_engine(sql.default_url(tmp_path))
    with engine.begin() as connection:
        sql.upgrade(connection)
        assert sql.current_revision(connection) == sql.REVISIONS[-1]
        assert compare_metadata(MigrationContext.configure(connection), [sql.PROJECTION, TRUTH]) == []
    engine.dispose()


def test_readers_do_not_hold_up_the_writer(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.checkpoint()
    with closing(sqlite3.connect(shelf.file)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM topics").fetchone() == (1,)
        shelf.rig.publish("u/k", b"x")
        shelf.checkpoint()
        assert reader.execute("SELECT count(*) FROM topics").fetchone() == (1,)
    assert shelf.topics() == ["t", "u"]
    assert not shelf.failures


def test_names_that_databases_do_not_take(shelf: Shelf) -> None:
    shelf.rig.publish("t/k", b"x")
    shelf.commit("a\0b", "t", 1)
    shelf.commit("g" * 60_000, "t", 2)
    shelf.checkpoint()
    assert shelf.offsets() == [("a\N{REPLACEMENT CHARACTER}b", 1), ("g" * 60_000, 2)]


@pytest.mark.parametrize("url", ["nonsense", "nosuch://host/db", "postgresql+nosuchdriver://host/db"])
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(InvalidUrl):
        Catalogue(url, print, print)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(InvalidUrl) as refused:
        Catalogue("sqlite://user:secret@host/file", print, print)
    assert "secret" not in str(refused.value) and "user" in str(refused.value)
