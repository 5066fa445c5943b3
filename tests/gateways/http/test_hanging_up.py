"""A client that is gone before its answer is whole: nobody's fault, and no news."""
from __future__ import annotations

import logging
from collections.abc import Callable

import aiohttp
import pytest

from gatehouse.kernel.backup.backups import BackupFile
from tests.gateways.http.kit import Client, run_door, until

SIZE_BYTES = 2000


class Backup:
    """`kernel.backup.backups.Backups` and the one backup that it has."""

    files = {"log": BackupFile("log", SIZE_BYTES, True, None, b"")}
    on_piece: Callable[[], None]

    def find(self, backup_id: str) -> Backup:
        return self

    def read(self, file: BackupFile, offset: int, size: int) -> bytes:
        return bytes(SIZE_BYTES // 2)

    def is_running(self, backup: Backup) -> bool:
        self.on_piece()                      # in the turn in which the piece is written
        return True

    def note_reader(self, backup: Backup) -> None: ...


def test_whoever_hangs_up_while_a_file_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    backup = Backup()

    async def test(client: Client) -> None:
        def hang_up() -> None:
            for one in list(client.service.connections):
                one.abort("")

        backup.on_piece = hang_up
        with pytest.raises(aiohttp.ClientError):
            await client.ask("GET", "/v1/backups/1/log")
        await until(lambda: not client.service.connections)
        assert client.service.counts["faults"] == 0

    run_door(test, services={"backups": backup})
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []
