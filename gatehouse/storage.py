"""The kernel on a real disk: its log, its index, its catalogue, its threads; opened and closed in the right order.

The index can be rebuilt from the log: a damaged one is set aside, never repaired. Damage of the log itself is told and
counted; the hub serves the rest.
"""
from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from prometheus_client.samples import Exemplar

from gatehouse import __version__, exits
from gatehouse.backup.manifest import INCLUDED
from gatehouse.config.check_back import settings_of
from gatehouse.config.config import Config
from gatehouse.config.tracing import journeys_of
from gatehouse.damaged import count_damaged, set_index_aside
from gatehouse.datadir import FORMAT
from gatehouse.exits import Refused
from gatehouse.gateways.circuits import CATALOGUE_CIRCUIT
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES
from gatehouse.gateways.runtime import Completions, HubLoop, ThreadWorker
from gatehouse.kernel.circuit_breaker import CircuitBreaker
from gatehouse.kernel.ids import ForeignShard
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.disk_guard import NoReserve, Reserve, ReserveFile
from gatehouse.kernel.log.log import Damage, LogFailed, LogFull
from gatehouse.kernel.log.segments import RealDisk, SegmentLog
from gatehouse.kernel.log.set_aside import Note
from gatehouse.kernel.ports import Notices
from gatehouse.kernel.state.catalogue import FILE, Catalogue, InvalidUrl, NewerSchema, copy_truth, default_url
from gatehouse.kernel.state.store import RocksStore, StoreDamaged, is_full
from gatehouse.kernel.write.committer import DURABLE_MS
from gatehouse.log_thread import begin_log_thread
from gatehouse.metrics import SUM, Sample
from gatehouse.otlp import Exporting, exporter_to
from gatehouse.transactions.coordinator import Transactions

if TYPE_CHECKING:
    from gatehouse.kernel.circuit_breaker import CircuitBreaker
    from gatehouse.kernel.state.catalogue import Catalogue
    from gatehouse.kernel.state.projection import Step

log = logging.getLogger("gatehouse")

RESERVE: Final = "reserve"
EMERGENCY_RESERVE: Final = "reserve-emergency"
TRACE_BYTES: Final = 24          # of a trace id and a span id
SPAN_BYTES: Final = 8
LAST_PART: Final = 8             # one in so many of `reserve_bytes`: some ten thousand rollbacks

CLOSE_S: Final = 60.0            # what the kernel gets to flush and checkpoint; a disk slower than that has failed

MAX_DAMAGED: Final = 10_000      # ranges that are told; a log with more of them is past caring which


class Storage(Notices):
    """The kernel, what it stands on, and the transactions that stand on it."""

    def __init__(self, config: Config, folder: Path, hub_loop: HubLoop, fatal: Callable[[str], None]) -> None:
        settings = config.kernel.for_kernel()
        completions = Completions(hub_loop.aio, hub_loop.turns)
        self._fatal = fatal
        self._is_open = False
        self.folder = folder
        self.catalogue_circuit = CircuitBreaker(CATALOGUE_CIRCUIT)
        self._catalogue = open_catalogue(config.kernel.catalogue_url or default_url(folder))
        try:
            self._store = open_index(folder / "index", self._on_index_damage)
        except BaseException:
            self._catalogue.close()
            raise
        self._log = SegmentLog(RealDisk(folder), settings.segment_bytes, tell_note)
        log_worker, frame_writer = begin_log_thread(hub_loop, completions, self._log)
        reader_worker, checkpoint_worker, validation_worker, self.beside = [
            ThreadWorker(name, completions) for name in ("reader", "checkpoint", "validation", "beside")]
        self.log_worker = log_worker
        self._workers = log_worker, reader_worker, checkpoint_worker, validation_worker, self.beside
        self._damaged: list[tuple[int, int]] = []          # the threads that read add to it
        self._faults = 0
        self.kernel = Kernel(
            loop=hub_loop, log_worker=log_worker, reader_worker=reader_worker, checkpoint_worker=checkpoint_worker,
            validation_worker=validation_worker, log=self._log, store=self._store, routes=config.routes,
            settings=settings, fatal=fatal, on_damage=self._on_damage, on_error=self._on_error,
            notices=self, projection=CircuitCatalogue(self._catalogue, self.catalogue_circuit, hub_loop.now_ms),
            new_hub=uuid4().bytes, new_secret=token_bytes(32),
            selector_names=SELECTOR_NAMES, reserve=reserve_of(config, folder),
            emergency_reserve=emergency_reserve_of(config, folder),
            journeys=journeys_of(config.tracing, config.topic_rates), new_trace=partial(token_bytes, TRACE_BYTES),
            frame_writer=frame_writer)
        self._otlp = otlp_of(config, self.kernel)
        self.transactions = Transactions(self.kernel, settings_of(config.transactions, config.topic_checks))
        own = self._catalogue.file
        self.backups = self.kernel.backups(self._log, partial(beside_the_log, own), {
            "name": config.hub.name, "version": __version__, "format": FORMAT,
            "catalogue": where_catalogue_is(own, folder, self._catalogue.shown)})

    def open(self) -> None:
        """Recover what is stored. Blocks. Raises Refused where the disk does not let it, StoreDamaged."""
        try:
            self.kernel.open()
            self.transactions.open()
            if self._otlp is not None:
                self._otlp.start()
            self._is_open = True
        except LogFull as error:
            raise NoRoom(f"the data directory {self.folder} is full: {error}") from None
        except (LogFailed, ForeignShard, OSError) as error:
            raise Refused(f"the data directory {self.folder} cannot be opened: {error}", exits.STORAGE) from None
        if self.kernel.recovered_frames:
            log.info("replayed %d frames of the log", self.kernel.recovered_frames)
        self.kernel.makers.look(self.kernel.settings)

    async def close(self) -> None:
        """Flush, leave a checkpoint, let go of the files."""
        closed = asyncio.Event()
        self.transactions.stop()
        self.kernel.close(closed.set)
        try:
            await asyncio.wait_for(closed.wait(), CLOSE_S)
        except TimeoutError:
            self._fatal(f"the disk did not take the rest within {CLOSE_S:.0f} s")
        if self._otlp is not None:
            self._otlp.stop()
        self.release()

    def release(self) -> None:
        """Let go of threads and files of a kernel that is closed, or never opened."""
        for worker in self._workers:
            worker.close()
        self._log.close()
        self._store.close()
        self._catalogue.close()

    @property
    def damaged_ranges(self) -> int:
        """Ranges of the log that were found unreadable since the start."""
        return len(self._damaged)

    @property
    def mended_headers(self) -> int:
        """Headers of the log's files that this start has written anew."""
        return self._log.aside.mended

    def exemplars(self) -> Iterator[tuple[str, str, Exemplar]]:
        """A histogram, the upper bound of one of its buckets, and a message that is counted in it."""
        journeys = self.kernel.journeys
        for at, example in journeys.examples.items() if journeys is not None else ():
            bound = f"{DURABLE_MS[at] / 1000:g}" if at < len(DURABLE_MS) else "+Inf"
            yield "gatehouse_durable_seconds", bound, Exemplar(
                {"trace_id": example.trace_id.hex()}, example.took_ms / 1000, example.at_ms / 1000)

    def samples(self) -> Iterator[Sample]:
        """The kernel's counters for the metrics page."""
        for name, value in (self.kernel.statistics() | self.transactions.statistics()).items():
            yield "gatehouse_" + name.removesuffix("_total"), (), value
        for name, value in self._otlp.statistics().items() if self._otlp is not None else ():
            yield "gatehouse_" + name.removesuffix("_total"), (), value
        for reason, count in self.kernel.sessions.dropped.items():
            yield "gatehouse_session_drops", (reason,), count
        bounds, count, total_ms = self.kernel.durable_ms()
        for bound_ms, below in bounds:
            yield "gatehouse_durable_seconds", (f"{bound_ms / 1000:g}",), below
        yield "gatehouse_durable_seconds", ("+Inf",), count
        yield "gatehouse_durable_seconds", (SUM,), total_ms / 1000
        for door, bounds, count, total_ms in self.kernel.delivered_ms():
            for bound_ms, below in bounds:
                yield "gatehouse_delivered_seconds", (door, f"{bound_ms / 1000:g}"), below
            yield "gatehouse_delivered_seconds", (door, "+Inf"), count
            yield "gatehouse_delivered_seconds", (door, SUM), total_ms / 1000
        background = self.kernel.background
        for user, jobs in background.jobs.items():
            yield "gatehouse_background_jobs", (user,), jobs
        yield "gatehouse_background_waiting", (), background.waiting
        yield "gatehouse_background_rested_seconds", (), background.rested_ms / 1000
        yield "gatehouse_background_share", (), background.share if background.yields() else 1
        yield "gatehouse_scheduled_late_seconds", (), self.kernel.scheduling.late_ms() / 1000
        yield "gatehouse_producer_transactions_oldest_seconds", (), self.kernel.producing.oldest_ms() / 1000
        age_ms = self.kernel.checkpoint_age_ms()
        if age_ms is not None:
            yield "gatehouse_checkpoint_age_seconds", (), age_ms / 1000
        yield "gatehouse_congested", (), int(self.kernel.congested)
        yield "gatehouse_reserve_held", (), int(not self.kernel.is_short)
        yield "gatehouse_damaged_ranges", (), self.damaged_ranges
        yield "gatehouse_mended_headers", (), self.mended_headers
        set_aside = count_damaged(self.folder)
        yield "gatehouse_set_aside_files", (), set_aside.files
        yield "gatehouse_set_aside_bytes", (), set_aside.bytes
        yield "gatehouse_kernel_faults", (), self._faults
        yield "gatehouse_catalogue_failures", (), self._catalogue.failures
        yield "gatehouse_backups", (), len(self.backups)
        yield "gatehouse_catalogue_failing", (), int(self._catalogue.failing)

    def on_topics_short(self) -> None:
        """Told at the start, and whenever it becomes so."""
        log.warning("a tenth or less is left of the topics that users may make: there are %d of max_auto_topics, %d",
                    self.kernel.statistics()["topics"], self.kernel.settings.max_auto_topics)

    def _on_damage(self, damage: Damage) -> None:
        """Told once, however often somebody reads there, or in a part of it."""
        if len(self._damaged) >= MAX_DAMAGED \
                or any(start <= damage.start and damage.end <= end for start, end in self._damaged):
            return
        self._damaged.append((damage.start, damage.end))
        log.error("the log cannot be read from position %d to %d: %s; what was stored there is lost", damage.start,
                  damage.end, damage.reason)

    def _on_index_damage(self, reason: str) -> None:
        """Any thread. What it says can be no answer any more, and where it is silent nothing can be concluded. A start
        that meets this goes on with a new index."""
        if self._is_open:
            self._fatal(f"the index in {self.folder / 'index'} is damaged ({reason})")

    def on_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """Told once a partition: it is no damage of ours, and whoever wrote one such batch has perhaps written many."""
        place = self.kernel.topic_of(partition_id)
        where = f"partition {place[1]} of topic {place[0].name!r}" if place is not None else f"partition {partition_id}"
        log.warning("a producer's batch in %s has no record that makes sense at offset %d and claims %d there: readers "
                    "of records pass over what is like this, and the log itself is whole", where, offset, count)

    def on_refusing(self, refusing: bool) -> None:
        """Told in the log."""
        if refusing:
            log.error("the disk of %s is full: messages are refused until retention or somebody else has made room",
                      self.folder)
        else:
            log.info("there is room on the disk of %s again: messages are taken", self.folder)

    def on_step(self, by_ms: int) -> None:
        """Told in the log."""
        log.warning("the system's clock was set %s by %.3f s; what was promised for a duration is not moved by it",
                    "ahead" if by_ms > 0 else "back", abs(by_ms) / 1000)

    def on_reserve_failure(self, error: BaseException) -> None:
        """Told in the log."""
        log.error("the reserve in %s cannot be held: %s", self.folder, error)

    def _on_error(self, error: Exception) -> None:
        self._faults += 1
        log.error("a mistake of the hub, contained in the kernel", exc_info=error)


def tell_note(note: Note) -> None:
    """What a start did with the log's files that is no loss."""
    log.log(logging.WARNING if note.is_warning else logging.INFO, "%s", note.text)


def where_catalogue_is(file: Path | None, folder: Path, shown: str) -> str:
    """What a backup says of the catalogue: that it is in it, where its SQLite file was, or where its database is."""
    return shown if file is None else INCLUDED if file == folder / FILE else f"{INCLUDED} from {file.absolute()}"


def beside_the_log(catalogue: Path | None) -> dict[str, bytes]:
    """What a backup has beside the log, by file name."""
    return {} if catalogue is None or not catalogue.exists() else {FILE: copy_truth(catalogue)}


class NoRoom(Refused):
    """The disk is too full to start."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; make room, or have a larger `kernel.reserve_bytes` the next time", exits.STORAGE)


def open_storage(config: Config, folder: Path, hub_loop: HubLoop, fatal: Callable[[str], None]) -> Storage:
    """Open what is stored; from the reserve, where the disk is full; with a new index, where it is damaged. Blocks.
    Raises Refused."""
    try:
        return _opened(config, folder, hub_loop, fatal)
    except StoreDamaged as error:
        replace_index(folder, error)
        del error
        gc.collect()                 # what still looks at the old one keeps it locked, by its name
    except NoRoom:
        given_up = [reserve.give_up() for reserve in (reserve_of(config, folder), emergency_reserve_of(config, folder))]
        if True not in given_up:
            raise
        log.warning("the disk of %s is full: the reserve is given up to start", folder)
    return _opened(config, folder, hub_loop, fatal)


def _opened(config: Config, folder: Path, hub_loop: HubLoop, fatal: Callable[[str], None]) -> Storage:
    storage = Storage(config, folder, hub_loop, fatal)
    try:
        storage.open()
    except BaseException:
        storage.release()
        raise
    return storage


def reserve_of(config: Config, folder: Path) -> Reserve:
    """What is held for the day on which the disk is full."""
    size_bytes = config.kernel.reserve_bytes
    return ReserveFile(folder / RESERVE, size_bytes - size_bytes // LAST_PART) if size_bytes else NoReserve()


def emergency_reserve_of(config: Config, folder: Path) -> Reserve:
    """What of it is held for what frees more than it takes."""
    size_bytes = config.kernel.reserve_bytes // LAST_PART
    return ReserveFile(folder / EMERGENCY_RESERVE, size_bytes) if size_bytes else NoReserve()


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


def open_index(folder: Path, on_damage: Callable[[str], None]) -> RocksStore:
    """The store in this folder, or an empty one in its place where it cannot be opened."""
    try:
        return RocksStore(folder, on_damage)
    except Exception as error:    # rocksdict raises plain Exception for everything
        if is_full(error):
            raise NoRoom(f"the index in {folder} cannot be opened: {error}") from None
        if not folder.exists():
            raise Refused(f"cannot open the index in {folder}: {error}", exits.STORAGE) from None
        replace_index(folder.parent, error)
        return RocksStore(folder, on_damage)


def replace_index(data: Path, error: Exception) -> None:
    """Set aside an index that cannot be read. Raises Refused."""
    try:
        new = set_index_aside(data)
    except OSError as fault:
        raise Refused(f"the index in {data / 'index'} cannot be opened ({error}), nor set aside ({fault})",
                      exits.STORAGE) from None
    log.warning("the index in %s cannot be opened (%s); it is %s now, and it is rebuilt from the log", data / "index",
                error, new)


def otlp_of(config: Config, kernel: Kernel) -> Exporting | None:
    """Whoever sends spans, if the configuration says where to. Raises Refused."""
    endpoint = config.tracing.otlp_endpoint
    if not endpoint or kernel.journeys is None:
        return None
    exporting = Exporting(exporter_to(endpoint, config.hub.name, __version__), partial(token_bytes, SPAN_BYTES))
    kernel.journeys.tell_of_each(exporting.take)
    return exporting


class CircuitCatalogue:  # decision 256
    """The catalogue behind a circuit, on the checkpoints' thread: a database that is down or slow is not asked at every
    checkpoint. What it was not given it is given whole, once it is asked again: it knows how far it is complete. A
    `kernel.state.projection.Projection`."""

    def __init__(self, catalogue: Catalogue, circuit: CircuitBreaker, now_ms: Callable[[], int]) -> None:
        self.circuit = circuit
        self._catalogue = catalogue
        self._now_ms = now_ms

    def take(self, step: Step) -> None:
        """Write the step, unless the circuit is open."""
        began_ms = self._now_ms()
        if not self.circuit.may_pass(began_ms):
            return
        self._catalogue.take(step)
        now_ms = self._now_ms()
        self.circuit.note(not self._catalogue.failing, now_ms, now_ms - began_ms, self._catalogue.fault)
