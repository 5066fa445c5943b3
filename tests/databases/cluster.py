"""A PostgreSQL server of a test's own: in a temporary folder, on a Unix socket, as an unprivileged user."""
from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

USER: Final = "postgres"
"""Of the server's own superuser, and of Debian's account, which it runs as where the tests run as root."""

START_S: Final = 60


class Cluster:
    """A server that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._databases = 0

    def database(self) -> str:
        """The SQLAlchemy URL of a new, empty database."""
        self._databases += 1
        name = f"test{self._databases}"
        engine = sa.create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"create database {name}"))
        engine.dispose()
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@/{database}?host={self._folder}"


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Made and started, then stopped and removed. Its folder has a short name: a socket's has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if os.getuid() == 0:
            account = pwd.getpwnam(USER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        _run(folder, "initdb", "--pgdata", str(folder / "data"), "--username", USER, "--auth", "trust", "--no-sync")
        control = ("pg_ctl", "--pgdata", str(folder / "data"), "--wait", "--timeout", str(START_S))
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        _run(folder, *control, "--options", options, "--log", str(folder / "server.log"), "start")
        try:
            yield Cluster(folder)
        finally:
            _run(folder, *control, "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, program: str, *arguments: str) -> None:
    """One of the server's programs, as its user."""
    as_user: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run([_find(program), *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False, **as_user)
    log = folder / "server.log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")


def _find(program: str) -> str:
    """Debian keeps them out of PATH; the newest version there, else that of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda file: float(file.parts[-3]))
    where = str(found[-1]) if found else shutil.which(program)
    assert where, f"there is no {program}: install PostgreSQL"
    return where
