"""The kernel on a real disk: its log, its index, its catalogue, its threads; opened and closed in the right order.

The index can be rebuilt from the log: a damaged one is thrown away, never repaired. Damage of the log itself is told
and counted; the hub serves the rest.
"""
from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_bytes
from typing import Final
from uuid import uuid4

from gatehouse import exits
from gatehouse.config import Config
from gatehouse.exits import Refused
from gatehouse.metrics import Sample
from gatehouse.runtime import Completions, HubLoop, ThreadWorker
from gateways.envelope import SELECTOR_NAMES
from kernel.catalogue import Catalogue, InvalidUrl, NewerSchema, default_url
from kernel.disk import RealDisk
from kernel.kernel import Kernel
from kernel.log import Damage, LogFailed, LogFull
from kernel.segments import SegmentLog
from kernel.store import IndexStore, RocksStore, is_full

log = logging.getLogger("gatehouse")

CLOSE_S: Final = 60.0            # what the kernel gets to flush and checkpoint; a disk slower than that has failed

MAX_DAMAGED: Final = 10_000      # ranges that are told; a log with more of them is past caring which


class Storage:
    """The kernel and what it stands on."""

    def __init__(self, config: Config, folder: Path, hub_loop: HubLoop, fatal: Callable[[str], None]) -> None:
        settings = config.kernel.for_kernel()
        completions = Completions(hub_loop.aio)
        self._fatal = fatal
        self._folder = folder
        self._catalogue = open_catalogue(config.kernel.catalogue_url or default_url(folder))
        self._store = open_index(folder / "index")
        self._log = SegmentLog(RealDisk(folder), settings.segment_bytes)
        self._workers = [ThreadWorker(name, completions) for name in ("log", "reader", "checkpoint")]
        self._damaged: set[tuple[int, int]] = set()
        self._faults = 0
        log_worker, reader_worker, checkpoint_worker = self._workers
        self.kernel = Kernel(
            loop=hub_loop, log_worker=log_worker, reader_worker=reader_worker, checkpoint_worker=checkpoint_worker,
            log=self._log, store=self._store, routes=config.routes, settings=settings, fatal=fatal,
            on_damage=self._on_damage, on_error=self._on_error, projection=self._catalogue, new_hub=uuid4().bytes,
            new_secret=token_bytes(32), selector_names=SELECTOR_NAMES)

    def open(self) -> None:
        """Recover what is stored. Blocks. Raises Refused where the disk does not let it."""
        try:
            self.kernel.open()
        except (LogFailed, LogFull, OSError) as error:
            raise Refused(f"the data directory {self._folder} cannot be opened: {error}", exits.STORAGE) from None
        if self.kernel.recovered_frames:
            log.info("replayed %d frames of the log", self.kernel.recovered_frames)

    async def close(self) -> None:
        """Flush, leave a checkpoint, let go of the files."""
        closed = asyncio.Event()
        self.kernel.close(closed.set)
        try:
            await asyncio.wait_for(closed.wait(), CLOSE_S)
        except TimeoutError:
            self._fatal(f"the disk did not take the rest within {CLOSE_S:.0f} s")
        self.release()

    def release(self) -> None:
        """Let go of threads and files of a kernel that is closed, or never opened."""
        for worker in self._workers:
            worker.close()
        self._log.close()
        self._store.close()
        self._catalogue.close()

    def samples(self) -> Iterator[Sample]:
        """The kernel's counters for the metrics page."""
        for name, value in self.kernel.statistics().items():
            yield "gatehouse_" + name.removesuffix("_total"), (), value
        yield "gatehouse_scheduled_late_seconds", (), self.kernel.scheduling.late_ms() / 1000
        yield "gatehouse_congested", (), int(self.kernel.congested)
        yield "gatehouse_damaged_ranges", (), len(self._damaged)
        yield "gatehouse_kernel_faults", (), self._faults
        yield "gatehouse_catalogue_failures", (), self._catalogue.failures
        yield "gatehouse_catalogue_failing", (), int(self._catalogue.failing)

    def _on_damage(self, damage: Damage) -> None:
        """Told once, however often somebody reads there."""
        where = (damage.start, damage.end)
        if where in self._damaged or len(self._damaged) >= MAX_DAMAGED:
            return
        self._damaged.add(where)
        log.error("the log cannot be read from position %d to %d: %s; what was stored there is lost", damage.start,
                  damage.end, damage.reason)

    def _on_error(self, error: Exception) -> None:
        self._faults += 1
        log.error("a mistake of the hub, contained in the kernel", exc_info=error)


def open_catalogue(url: str) -> Catalogue:
    """The catalogue, migrated if its database answers. Raises Refused for a URL or schema that cannot be used."""
    try:
        catalogue = Catalogue(url, log.error, log.info)
    except InvalidUrl as error:
        raise Refused(f"kernel.catalogue_url cannot be used: {error}", exits.USAGE) from None
    try:
        catalogue.open()
    except NewerSchema as error:
        catalogue.close()
        raise Refused(str(error), exits.DATA_FORMAT) from None
    return catalogue


def open_index(folder: Path) -> IndexStore:
    """The store in this folder, or an empty one in its place where it cannot be opened."""
    try:
        return RocksStore(folder)
    except Exception as error:    # rocksdict raises plain Exception for everything
        if not folder.exists() or is_full(error):
            raise Refused(f"cannot open the index in {folder}: {error}", exits.STORAGE) from None
        log.warning("the index in %s cannot be opened (%s); it is rebuilt from the log", folder, error)
        shutil.rmtree(folder)
        return RocksStore(folder)
