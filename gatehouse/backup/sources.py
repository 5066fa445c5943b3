"""Where a backup comes from: a hub that runs, asked over HTTP, or a data directory on which none does."""
from __future__ import annotations

import http
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gatehouse import __version__, exits
from gatehouse.backup.manifest import CATALOGUE, is_inside
from gatehouse.exits import Refused

if TYPE_CHECKING:
    from gatehouse_client.sync import SyncClient

PIECE_BYTES: Final = 8 << 20
BEGINNING_S: Final = 60.0
"""Beyond what any call may take: a backup begins with a checkpoint, which a disk that is busy draws out."""


class Part(NamedTuple):
    """One file of a backup, as its source has it."""

    name: str
    bytes: int
    sealed: bool


class Plan(NamedTuple):
    """A backup that has begun."""

    id: str
    about: dict[str, Any]      # the manifest's fields but `files`
    parts: list[Part]


class Source(Protocol):
    plan: Plan

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of a file; all that are asked for, up to PIECE_BYTES. Raises Refused, OSError, HubError."""


class HubSource:
    """A running hub."""

    def __init__(self, hub: SyncClient) -> None:
        from gatehouse_client.retry import Retry
        self._hub = hub
        self._retry = Retry()
        answer = hub.wait(hub.client.door.ask("POST", "/v1/backups", wait_s=BEGINNING_S)).document()
        try:
            parts = [Part(file["name"], int(file["bytes"]), bool(file["sealed"])) for file in answer["files"]]
            about = {name: answer[name] for name in ("name", "hub", "lineage", "version", "format", "epoch", "created",
                                                     "catalogue")}
            self.plan = Plan(answer["id"], about | {"next_id": int(answer["next_id"])}, parts)
        except (KeyError, TypeError, ValueError):
            raise Refused("the hub's answer is no backup; is it of this version?", exits.FAILED) from None
        if not all(is_inside(part.name) for part in parts):
            raise Refused("the hub names a file outside its data directory", exits.FAILED)

    def read(self, name: str, offset: int, size: int) -> bytes:
        size = min(size, PIECE_BYTES)
        answer = self._hub.wait(self._hub.client.door.ask(
            "GET", f"/v1/backups/{self.plan.id}/{name}", repeatable=True, retry=self._retry,
            headers={"Range": f"bytes={offset}-{offset + size - 1}"}))
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT or len(answer.body) != size:
            raise Refused(f"the hub gave other bytes of {name} than it was asked for", exits.FAILED)
        return answer.body

    def end(self) -> None:
        self._hub.wait(self._hub.client.door.ask("DELETE", f"/v1/backups/{self.plan.id}"))


class FolderSource:
    """A data directory that is ours while we read it."""

    def __init__(self, folder: Path, name: str, catalogue: str, file: Path | None) -> None:
        from gatehouse.datadir import FORMAT
        from gatehouse.kernel.log.segments import RealDisk, SegmentLog
        from gatehouse.kernel.recovery.resuming import lineage_of, look_through
        from gatehouse.kernel.state.catalogue import copy_truth
        self._log = SegmentLog(RealDisk(folder))
        contents = look_through(self._log, lambda damage: None)
        if not contents.hub:
            raise Refused(f"{folder} holds no log of a hub: there is nothing to back up", exits.USAGE)
        self._bases: dict[str, int] = {}
        parts = []
        for chain in (self._log.kept_segments(), self._log.segments()):
            for segment in chain:
                stored = self._log.file_of(segment.base)
                self._bases[stored] = segment.base
                parts.append(Part(stored, segment.size_bytes, segment is not chain[-1]))
        self._catalogue = b""
        if file is not None and file.exists():
            self._catalogue = copy_truth(file)
            parts.append(Part(CATALOGUE, len(self._catalogue), False))
        self.plan = Plan(token_hex(8), {
            "name": name, "hub": contents.hub.hex(), "lineage": lineage_of(contents.secret), "version": __version__,
            "format": FORMAT, "epoch": contents.epoch, "next_id": contents.next_id,
            "created": time.time_ns() // 1_000_000, "catalogue": catalogue}, parts)

    def read(self, name: str, offset: int, size: int) -> bytes:
        size = min(size, PIECE_BYTES)
        if name == CATALOGUE:
            return self._catalogue[offset:offset + size]
        try:
            return self._log.copy(self._bases[name], offset, size)
        except OSError as error:
            raise Refused(f"{name} cannot be read: {error.strerror}", exits.STORAGE) from None

    def end(self) -> None:
        self._log.close()


@contextmanager
def running_hub(url: str) -> Iterator[HubSource]:
    """The hub at `url`; its backup has ended at the end of the block. Raises Refused."""
    from gatehouse.cli.hub_option import asking
    from gatehouse_client.errors import HubError
    with asking(url) as hub:
        source = HubSource(hub)
        try:
            yield source
        finally:
            try:
                source.end()
            except HubError:           # it ends by itself, and what made us end is the better message
                pass


@contextmanager
def stopped_hub(folder: Path, name: str, catalogue: str, file: Path | None) -> Iterator[FolderSource]:
    """The data directory of a hub of that name that does not run. `catalogue` is what the manifest says of it, `file`
    what is to be copied of it. Raises Refused."""
    from gatehouse.datadir import open_data_dir
    from gatehouse.kernel.log.log import LogFailed
    if not (folder / "format").exists():
        raise Refused(f"{folder} is no data directory of a hub", exits.USAGE)
    data_dir = open_data_dir(folder)
    try:
        source = FolderSource(folder, name, catalogue, file)
        try:
            yield source
        finally:
            source.end()
    except LogFailed as error:
        raise Refused(f"the data directory {folder} cannot be read: {error}", exits.STORAGE) from None
    finally:
        data_dir.close()
