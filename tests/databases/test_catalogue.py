"""The catalogue on PostgreSQL: users and rights are kept there, topics and offsets copied there."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from gatehouse_client import HubError, SyncClient
from tests.running_hub import COMMAND_LINE, DEADLINE_S, ROOT, RunningHub, config_of

PASSWORD = "correct horse battery"
COMMAND_S = 120


class Site:
    """A data directory whose catalogue is on a server."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.database = database
        self.config = config_of(("http",), f'checkpoint_ms = 100\ncatalogue_url = "{database}"') + \
            "[auth]\nallow_anonymous = false\n"
        (folder / "gateways.toml").write_text(self.config)
        (folder / "password").write_text(PASSWORD)

    @contextmanager
    def hub(self) -> Iterator[RunningHub]:
        """Killed at the end."""
        hub = RunningHub(self.folder, self.config)
        try:
            hub.wait_ready()
            yield hub
            assert "Traceback" not in hub.log(), hub.log()
        finally:
            hub.kill()

    def call(self, *arguments: str, hub: RunningHub | None = None) -> str:
        """A command asked of the hub, or done on the data directory where none runs."""
        where = ["--config", str(self.folder / "gateways.toml")]
        if hub is not None:
            where += ["--url", f"http://127.0.0.1:{hub.port('http')}"]
        done = subprocess.run(
            [sys.executable, "-c", COMMAND_LINE, *arguments, *where], cwd=ROOT, capture_output=True, text=True,
            timeout=COMMAND_S, check=False,
            env={**os.environ, "GATEHOUSE_USER": "root", "GATEHOUSE_PASSWORD": PASSWORD})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make_users(self) -> None:
        for name, more in (("root", ["--admin"]), ("ann", ["--group", "operators"])):
            self.call("users", "create", name, *more, "--password-file", str(self.folder / "password"))
        self.call("acl", "add", "allow", "group:operators", "publish", "plant/#")

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        engine = sa.create_engine(self.database)
        with engine.begin() as connection:
            found = [tuple(row) for row in connection.execute(sa.text(statement))]
        engine.dispose()
        return found

    def wait_rows(self, statement: str, wanted: list[tuple[object, ...]]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.rows(statement)) != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


@pytest.fixture
def site(tmp_path: Path, database: str) -> Site:
    return Site(tmp_path, database)


def client(hub: RunningHub, user: str, password: str = PASSWORD) -> SyncClient:
    return SyncClient(f"http://127.0.0.1:{hub.port('http')}", user=user, password=password)


def publish(hub: RunningHub, user: str, address: str, password: str = PASSWORD) -> str:
    """What came of it: `stored`, or the code of the refusal."""
    with client(hub, user, password) as mine:
        try:
            mine.publish(address, "x")
        except HubError as error:
            return error.code
        return "stored"


def test_users_and_rights_are_kept_there(site: Site) -> None:
    with site.hub():
        pass                                            # made its tables
    site.make_users()
    assert site.rows("select name from users order by name") == [("ann",), ("root",)]
    for _ in range(2):                                  # and again after it was killed
        with site.hub() as hub:
            assert publish(hub, "ann", "plant/1") == "stored"
            assert publish(hub, "ann", "office/1") == "not_authorized"
            assert publish(hub, "ann", "plant/1", "wrong password") == "not_authenticated"
    assert not (site.folder / "data" / "catalogue.sqlite").exists()


def test_they_change_while_it_runs(site: Site) -> None:
    site.make_users()
    with site.hub() as hub:
        site.call("users", "create", "bob", "--group", "operators", "--password-file", str(site.folder / "password"),
                  hub=hub)
        assert publish(hub, "bob", "plant/1") == "stored"
        site.call("acl", "add", "deny", "user:bob", "publish", "plant/#", hub=hub)
        assert publish(hub, "bob", "plant/1") == "not_authorized"
        site.call("users", "delete", "bob", hub=hub)
        assert publish(hub, "bob", "plant/1") == "not_authenticated"
    with site.hub() as hub:
        assert publish(hub, "bob", "plant/1") == "not_authenticated"
        assert publish(hub, "ann", "plant/1") == "stored"


def test_topics_and_offsets_are_copied_there(site: Site) -> None:
    site.make_users()
    with site.hub() as hub, client(hub, "root") as root:
        root.define_topic("plant", partitions=2)
        site.wait_rows("select name, partitions from topics where name = 'plant'", [("plant", 2)])
        root.delete_topic("plant")
        site.wait_rows("select name, partitions from topics where name = 'plant'", [])
        assert root.status()
