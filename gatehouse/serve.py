"""`gatehouse serve`: puts the parts together, keeps them running, takes them apart in the right order.

    start   configuration, data directory, descriptors, kernel (recovers its log), doors, then `gatehouse ready`
    stop    SIGTERM or SIGINT: doors take nobody new and answer what is in flight, the kernel flushes, exit 0;
            the same signal again does not wait
    reload  SIGHUP: the configuration is read and checked again; what cannot change while running is said
    fail    the kernel's disk fails: one line, exit at once, so that nothing is promised that is not stored

Only what a program may read goes to standard output: one line per door, then `gatehouse ready`. The log of events is on
standard error.
"""
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from gatehouse import __version__, exits, logs
from gatehouse.accounts import AccountStorage
from gatehouse.config.config import LIVE_SETTINGS, Config, ConfigError, Door, changed_settings, load
from gatehouse.console import read_console
from gatehouse.datadir import DataDir, open_data_dir
from gatehouse.drills import HubDrills
from gatehouse.exits import Refused
from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.rule_set import RuleSet
from gatehouse.gateways.circuits import CATALOGUE, ISSUER
from gatehouse.gateways.connections.capacity import descriptor_capacity
from gatehouse.gateways.connections.listener import Listener
from gatehouse.gateways.connections.open_connections import OpenConnections
from gatehouse.gateways.contract import GatewaySpec, Listen, Services
from gatehouse.gateways.door_numbers import NoDoorNumber
from gatehouse.gateways.door_side import UnsentBudget
from gatehouse.gateways.registry import GatewayClash, Specs, load_specs
from gatehouse.gateways.runtime import HubLoop, Stall, broken_promise
from gatehouse.gateways.tls.certificates import find_revoked
from gatehouse.gateways.tls.tls import TlsFault
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.state.catalogue import default_url
from gatehouse.memory import GivingBack, MemoryBudget, resident_bytes
from gatehouse.metrics import Metrics, Sample
from gatehouse.notify import Watchdog, notify, reload_begins, watchdog_s
from gatehouse.overload import Overload
from gatehouse.relaying import Relaying
from gatehouse.samples import admission_samples, circuit_samples, consumer_samples, door_samples, trace_samples
from gatehouse.status import DoorCounts, HubStatus
from gatehouse.storage import Storage, open_storage

log = logging.getLogger("gatehouse")

# A worker needs the interpreter lock for an instant after each fdatasync, and at Python's 5 ms a busy loop starves it
# for seconds. `python -m bench.switch_interval`: from 0.2 ms down the median wait is one burst of the loop's work.
SWITCH_INTERVAL_S: Final = 0.0002

# Young objects die young here: most collections would walk a burst of messages that is about to be let go of anyway.
GC_THRESHOLDS: Final = (50_000, 20, 50)

ALLOW_ANONYMOUS: Final = "auth.allow_anonymous"

Refuse = Callable[[str], None]
"""Told, in words, what of a reload cannot be."""


def read_specs() -> Specs:
    """Every door that is installed. Raises Refused."""
    try:
        return load_specs()
    except (GatewayClash, ImportError) as error:
        raise Refused(f"a door does not load: {error}", exits.USAGE) from None


def raise_descriptor_limit() -> int:
    """Let this process have as many descriptors as the system allows it; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems refuse "unlimited"; what we have then is what we have.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Hub:
    """A hub from start to stop. Runs on one event loop."""

    def __init__(self, config: Config, specs: dict[str, GatewaySpec], data_dir: DataDir,
                 end: Callable[[int], None] = os._exit, asked_early: Sequence[int] = ()) -> None:
        self.config = config
        self._specs = specs
        self._data_dir = data_dir
        self._end = end
        self._asked_early = asked_early      # signals to reload that came before there was a loop
        self._ready = False
        self._ready_s = 0.0
        self._stopping = asyncio.Event()
        self._listeners: list[tuple[str, Listener]] = []
        self.metrics = Metrics()
        self._storage: Storage | None = None
        self._accounts: AccountStorage | None = None
        self._shared: Services | None = None
        self._reload_asked = self._reload_refused = False
        self._reloading: asyncio.Future[None] | None = None      # kept, or nobody would
        self._loop = HubLoop(asyncio.get_running_loop())
        self._stall = Stall(asyncio.get_running_loop())
        self._watchdog = Watchdog(asyncio.get_running_loop(), watchdog_s())
        self._status: HubStatus | None = None
        self._relaying: Relaying | None = None
        self._overload: Overload | None = None
        self._listening: dict[str, list[str]] = {}

    async def run(self) -> int:
        """Start, serve until told to stop, stop. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number, handler in ((signal.SIGTERM, self.stop), (signal.SIGINT, self.stop), (signal.SIGHUP, self.reload)):
            loop.add_signal_handler(number, handler)
        loop.set_exception_handler(self._on_fault)
        self._reload_asked = bool(self._asked_early)
        try:
            await self._start(self._loop)
            gc.collect()
            gc.freeze()    # what exists now stays; later collections need not look at it
            self._stall.start()
            if self._overload is not None:
                self._overload.start()
            self._ready, self._ready_s = True, time.time()
            print("gatehouse ready", flush=True)
            notify("READY=1")
            self._watchdog.start()
            if self._reload_asked:
                self.reload()
            await self._stopping.wait()
            log.info("stopping: no new work, answering what is in flight")
        finally:
            notify("STOPPING=1")
            self._watchdog.stop()
            await self._stop()
        log.info("stopped")
        return exits.OK

    def stop(self) -> None:
        """Begin to stop; asked again, end at once."""
        if self._stopping.is_set():
            log.warning("asked twice to stop: ending without waiting")
            self._end(exits.INTERRUPTED)
        self._stopping.set()

    def reload(self) -> None:
        """Read the configuration again: take over what can change now, name the rest. A faulty one changes nothing.

        Reloads come one after the other; one that is asked for while another waits for its turn is that one, and one
        that is asked for during the start comes after it.
        """
        self._reload_asked = True
        if self._ready and (self._reloading is None or self._reloading.done()):
            self._reloading = asyncio.ensure_future(self._reload())
            self._reloading.add_done_callback(tell_fault)

    async def _reload(self) -> None:
        while self._reload_asked and not self._stopping.is_set():
            self._reload_asked = self._reload_refused = False
            notify(reload_begins())
            try:
                await self._reload_once()
            finally:
                if not self._stopping.is_set():
                    notify("READY=1")

    async def _reload_once(self) -> None:
        try:
            new, rules = await self._read_again()
        except ConfigError as error:
            for line in error.lines:
                self._refuse(line)
            return
        if not self._stopping.is_set():
            self._take_over(new, rules)
            await self._relisten(new)

    def _refuse(self, line: str) -> None:
        """Something that a reload asked for cannot be; the hub goes on as it was."""
        self._reload_refused = True
        log.error("reload refused: %s", line)

    async def _read_again(self) -> tuple[Config, RuleSet | None]:
        """The configuration, and its rules if they are others, compiled: both on another thread, since ten thousand
        rules take half a second. Raises ConfigError."""
        loop = asyncio.get_running_loop()
        new = await loop.run_in_executor(None, load, Path(self.config.source), os.environ, self._specs)
        if self._shared is None or new.rights.rules == self.config.rights.rules:
            return new, None
        return new, await loop.run_in_executor(None, self._shared.admission.compiling(new.rights.rules))

    def _take_over(self, new: Config, rules: RuleSet | None) -> None:
        changed = changed_settings(self.config, new)
        if self._storage is not None:
            self._storage.kernel.configure(new.kernel.for_kernel())
        if self._shared is not None:
            self._shared.read_certificates_by(new.auth.certificate_user)
            admission = self._shared.admission
            admission.configure(new.rights.rules, new.rights.groups, new.rights.jwt, rules, new.rights.limits)
            if not new.auth.allow_anonymous:             # and the other way once it is known where the doors listen
                admission.let_anonymous_in(False)
            admission.audit("SIGHUP", "configuration.reloaded", {"changed": changed})
        for name in changed:
            if name in self._relistened or name == ALLOW_ANONYMOUS and new.auth.allow_anonymous:
                continue    # said below, once it is done
            if name in LIVE_SETTINGS:
                log.info("reload: %s changed and is in effect", name)
            else:
                log.warning("reload: %s changed; it takes effect when the hub is started again", name)
        if not changed:
            log.info("reload: no setting changed")
        anonymous = self.config.auth.allow_anonymous and new.auth.allow_anonymous
        auth = dataclasses.replace(new.auth, allow_anonymous=anonymous)
        self.config = dataclasses.replace(self.config, kernel=new.kernel, auth=auth, rights=new.rights)
        self._keep_issuer_circuits()

    def _keep_issuer_circuits(self) -> None:
        """They are there as long as tokens are taken."""
        if self._shared is not None:
            admission = self._shared.admission
            self._shared.circuits.keep_targets(
                ISSUER, None if self.config.rights.jwt is None else admission.issuer_circuits,
                admission.on_issuer_circuit)

    @property
    def _relistened(self) -> set[str]:
        return {f"gateways.{name}.listen" for name, _ in self._listeners}

    async def _relisten(self, new: Config) -> None:
        doors = await relisten(dict(self._listeners), self.config.doors, new.doors, self._refuse)
        self.config = dataclasses.replace(self.config, doors=doors)
        self._listening |= {name: listener.addresses() for name, listener in self._listeners}
        if new.auth.allow_anonymous and not self.config.auth.allow_anonymous:
            self._open_to_anonymous()
        if self._shared is not None:
            warn_of_no_administrator(self._shared.admission, self.config)
        await self._end_revoked()
        for notice in new.notices:
            log.warning("%s", notice)

    async def _end_revoked(self) -> None:  # decision 100
        """Whoever came with a certificate that a list takes back by now."""
        tables = {listen.tls for door in self.config.doors for listen in door.listen if listen.tls is not None}
        files = {table.client_crl for table in tables if table.client_crl is not None}
        if not files or self._shared is None:
            return
        loop, connections = asyncio.get_running_loop(), self._shared.connections
        revoked = await loop.run_in_executor(None, find_revoked, files, connections.certificates())
        if revoked:
            log.info("reload: %d connections end, whose certificates were revoked", len(revoked))
            connections.end(revoked, "the client's certificate was revoked")

    def _open_to_anonymous(self) -> None:
        """Only where every door listens on loopback now: one that could not change its addresses goes on as it was."""
        public = [listen for door in self.config.doors for listen in door.listen if not listen.loopback]
        if public:
            self._refuse(f"{ALLOW_ANONYMOUS} stays false while {public[0]} can be reached from outside")
            return
        self.config = dataclasses.replace(self.config, auth=dataclasses.replace(self.config.auth, allow_anonymous=True))
        if self._shared is not None:
            self._shared.admission.let_anonymous_in(True)
        log.info("reload: %s changed and is in effect", ALLOW_ANONYMOUS)

    def fatal(self, message: str, exit_code: int = exits.STORAGE) -> None:
        """The kernel can promise nothing more: say so and be gone before anybody is told otherwise."""
        print(f"gatehouse: {message}; ending, the next start recovers what was acknowledged", file=sys.stderr,
              flush=True)
        self._end(exit_code)

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody caught: it is logged. Where it shows that the kernel's memory is not what it must be, nothing of
        it can be believed any more; the log can."""
        loop.default_exception_handler(context)
        promise = broken_promise(context.get("exception"))
        if promise is not None:            # decision 156
            self.fatal(f"what must hold does not: {promise}", exits.OWN_FAULT)

    # --- start -------------------------------------------------------------------------------------------------------

    async def _start(self, hub_loop: HubLoop) -> None:
        storage = open_storage(self.config, self._data_dir.folder, hub_loop, self.fatal)
        self._storage = storage
        kernel = storage.kernel
        admission = self._open_accounts(kernel, hub_loop)
        self._status = HubStatus(self.config.hub.name, storage, admission.trace, self._stall, self._describe_doors,
                                 lambda: not self._unready())
        giving_back = GivingBack(asyncio.get_running_loop())
        holders = kernel.held_bytes()
        services = Services(
            hub_name=self.config.hub.name, kernel=kernel, admission=admission, now_ms=hub_loop.now_ms,
            wall_ms=hub_loop.wall_ms,
            specs=tuple(door.spec for door in self.config.doors),
            settings={door.spec.name: door.settings for door in self.config.doors},
            transactions=storage.transactions, beside=storage.beside,
            connections=OpenConnections(kernel.epoch, kernel.shard),
            unsent=UnsentBudget(self.config.hub.unsent_bytes, giving_back.soon),
            holders=holders,
            render_metrics=self.metrics.render, render_openmetrics=self.metrics.render_openmetrics,
            unready=self._unready, status=self._status,
            console=read_console(), backups=storage.backups,
            certificate_user=self.config.auth.certificate_user,
            accounts=self._accounts.administration(admission) if self._accounts is not None else None)
        self._shared = services
        services.circuits.keep(CATALOGUE, storage.catalogue_circuit, turned_by_itself)
        self._keep_issuer_circuits()
        kernel.groups.follow_circuits(services.circuits)
        self._status.show_circuits(services.circuits.describe_all)
        self.metrics.add(partial(circuit_samples, services.circuits))
        holders["unsent"] = lambda: services.unsent.used_bytes
        holders["received"] = services.connections.held_bytes
        holders["gathered"] = services.gathered_bytes
        holders["half_messages"] = lambda: storage.transactions.held_bytes
        hub = self.config.hub
        self._overload = Overload(
            asyncio.get_running_loop(), kernel.shedding, admission,
            MemoryBudget(hub.memory_bytes, giving_back.soon, holders), kernel.unflushed_ms, hub.overload_late_s,
            2 * hub.ready_flush_s)
        self._status.show_overload(self._overload.describe)
        self.metrics.add(self._overload.samples)
        if self._accounts is not None:
            self._accounts.audit_notes(admission)
        if self.config.relay.wanted:
            services.links = self._relaying = Relaying(self.config.relay, kernel, admission, hub_loop,
                                                       self.config.hub.name)
            self.metrics.add(self._relaying.samples)
            if self.config.relay.section.url:
                self._relaying.keep_circuits(services.circuits)
        if hub.allow_drills:
            cut = self._relaying.cut if self._relaying is not None and self.config.relay.section.url else None
            services.drills = HubDrills(asyncio.get_running_loop(), storage.log_worker, self._overload.budget, cut=cut)
        for source in (self._hub_samples, storage.samples, partial(consumer_samples, kernel.lags, hub_loop.wall_ms,
                                                                    self.config.hub.metrics_names),
                       partial(trace_samples, admission.trace), self._door_samples,
                       services.not_honoured.samples):
            self.metrics.add(source)
        self.metrics.add_exemplars(storage.exemplars)
        for door in self.config.doors:     # decision 333: before the first `await`, behind which what is due happens
            self._prepare_door(door.spec, services)
        for door in self.config.doors:
            self._listening[door.spec.name] = await self._open_door(door, services)
            for address in self._listening[door.spec.name]:
                print(f"{door.spec.name} listens on {address}", flush=True)
        self._status.start()
        if self._relaying is not None:
            self._relaying.start()

    def _open_accounts(self, kernel: Kernel, hub_loop: HubLoop) -> Admission:
        """Users and rights, read whole. Raises Refused."""
        config = self.config
        self._accounts = storage = AccountStorage(
            config.kernel.catalogue_url or default_url(self._data_dir.folder), hub_loop, kernel.secret)
        storage.read()
        admission = Admission(kernel, hub_loop.now_ms, allow_anonymous=config.auth.allow_anonymous,
                              accounts=storage.accounts, outside=storage.outside, routes=config.routes,
                              wall_ms=hub_loop.wall_ms)
        admission.configure(config.rights.rules, config.rights.groups, config.rights.jwt, limits=config.rights.limits)
        warn_of_no_administrator(admission, config)
        self.metrics.add(partial(admission_samples, admission))
        return admission

    @staticmethod
    def _prepare_door(spec: GatewaySpec, services: Services) -> None:
        """What it does whether anybody connects or not begins. Raises Refused."""
        try:
            services.door_numbers.open(spec)
        except NoDoorNumber as error:
            raise Refused(f"the {spec.name} door cannot be opened: {error}", exits.USAGE) from None
        if spec.opened is not None:
            spec.opened(services)

    async def _open_door(self, door: Door, services: Services) -> list[str]:
        spec = door.spec
        addresses = [str(listen) for listen in door.listen]
        try:
            listener = Listener(spec, services, door.settings, capacity=services.capacity)
            opened = await listener.start(door.listen)
            self._listeners.append((spec.name, listener))
            services.listeners[spec.name] = listener
            return opened
        except TlsFault as fault:
            raise Refused(f"gateways.{spec.name}.tls.{fault.setting}: {fault}", exits.USAGE) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise Refused(f"the {spec.name} door cannot listen on {', '.join(addresses)}: {reason}; change "
                             f"gateways.{spec.name}.listen or end what uses it", exits.CANNOT_LISTEN) from None

    # --- stop --------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Doors first, since they still need the kernel to answer; then the kernel, then its threads."""
        self._ready = False
        if self._overload is not None:
            self._overload.stop()
        if self._relaying is not None:
            await self._relaying.stop()
        stopping = [listener.stop(listener.settings.drain_s) for _, listener in self._listeners]
        for result in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(result, BaseException):
                log.error("a door did not stop well", exc_info=result)
        if self._shared is not None:
            self._shared.admission.close()
        if self._accounts is not None:
            self._accounts.release()
        if self._storage is not None:
            await self._storage.close()
        self._stall.stop()
        if self._status is not None:
            self._status.stop()

    def _unready(self) -> str:
        """See `Services.unready`."""
        if not self._ready or self._storage is None:
            return "the hub starts or stops"
        waited_s = self._storage.kernel.unflushed_ms() / 1000
        if waited_s < self.config.hub.ready_flush_s:
            return ""
        return f"the disk has kept messages waiting for {waited_s:.1f} s; they are neither lost nor refused"

    # --- what is shown -----------------------------------------------------------------------------------------------

    def _describe_doors(self) -> DoorCounts:
        for name, door in self._listeners:
            yield name, self._listening.get(name, []), len(door), door.counts

    def _hub_samples(self) -> Iterator[Sample]:
        yield "gatehouse_info", (self.config.hub.name, __version__), 1
        yield "gatehouse_ready", (), int(not self._unready())
        unflushed_ms = 0 if self._storage is None else self._storage.kernel.unflushed_ms()
        yield "gatehouse_unflushed_seconds", (), unflushed_ms / 1000
        yield "gatehouse_reload_refused", (), int(self._reload_refused)
        yield "gatehouse_start_time_seconds", (), self._ready_s
        yield "gatehouse_loop_stall_recent_seconds", (), self._stall.recent_ms / 1000
        yield "gatehouse_loop_stall_worst_seconds", (), self._stall.worst_ms / 1000
        yield "gatehouse_loop_longest_turn_seconds", (), self._loop.turns.recent_s
        yield "gatehouse_loop_long_turns", ("kernel",), self._loop.turns.long
        yield "gatehouse_loop_long_turns", ("loop",), self._stall.long
        yield "gatehouse_descriptors_limit", (), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield "gatehouse_resident_bytes", (), resident_bytes()

    def _door_samples(self) -> Iterator[Sample]:
        if self._shared is not None:
            yield "gatehouse_unsent_bytes", (), self._shared.unsent.used_bytes
        yield from door_samples(self._listeners)


async def run_hub(config: Config, specs: dict[str, GatewaySpec], data_dir: DataDir, asked_early: Sequence[int]) -> int:
    """A hub from start to stop on the running loop. Returns the exit code; raises Refused where it cannot start."""
    return await Hub(config, specs, data_dir, asked_early=asked_early).run()


def turned_by_itself() -> None:
    """Who writes the catalogue asks its circuit at the next checkpoint."""


def tell_fault(reloading: asyncio.Future[None]) -> None:
    """A reload that ended in a mistake of ours is not silent."""
    if not reloading.cancelled() and (error := reloading.exception()) is not None:
        log.error("a mistake of the hub in a reload", exc_info=error)


def warn_of_no_administrator(admission: Admission, config: Config) -> None:
    """A hub that nobody can administer, as far as can be known: an issuer's tokens may name administrators."""
    if config.rights.jwt is not None or admission.somebody_administers:
        return
    if not admission.accounts.users and not config.auth.allow_anonymous:
        log.warning("auth.allow_anonymous is false and there is no user: nobody can log in; stop the hub and make "
                    "the first one with `gatehouse users create NAME --admin`")
    else:
        log.warning("nobody may administer this hub: make an administrator with `gatehouse users create NAME --admin`, "
                    "or mend its rules with `gatehouse acl`, while it is stopped, or mend those of the configuration")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: 3.7 times the round trips of asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def serve(config_file: Path, data: Path | None) -> int:
    """Run a hub until it is told to stop. Returns the exit code; every failure to start is one line."""
    logs.begin()
    # From the lock on `gatehouse reload` finds this process; until the loop has a handler, its signal would end it.
    asked_early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _frame: asked_early.append(number))
    try:
        specs = read_specs()
        config = load(config_file, os.environ, specs)
        data_dir = open_data_dir(data or config.data_dir)
    except ConfigError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
        return exits.USAGE
    except Refused as error:
        return _refuse(str(error), error.exit_code)
    logs.configure(config.hub.log_level, config.hub.log_format)
    for notice in config.notices:
        log.warning("%s", notice)
    limit = raise_descriptor_limit()
    log.info("%d descriptors: room for %d connections", limit, descriptor_capacity())
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(run_hub(config, specs, data_dir, asked_early))
    except Refused as error:
        return _refuse(str(error), error.exit_code)
    except OSError as error:
        return _refuse(f"the data directory {data_dir.folder} failed: {error}", exits.STORAGE)
    finally:
        data_dir.close()


def _refuse(text: str, exit_code: int) -> int:
    print(f"gatehouse: {text}", file=sys.stderr, flush=True)
    return exit_code


async def relisten(open_doors: Mapping[str, Listener], old: Iterable[Door], new: Iterable[Door],
                   refuse: Refuse) -> tuple[Door, ...]:
    """Bring every open door to its new listeners; returns the doors as they listen now.

    Certificates, authorities and TLS tables count for whoever connects next; addresses are opened and given up. Who is
    connected stays connected. A door whose change fails goes on as it was, and its caller is told.
    """
    wanted = {door.spec.name: door.listen for door in new}
    return tuple([dataclasses.replace(door, listen=await _relisten(open_doors.get(door.spec.name), door,
                                                                   wanted.get(door.spec.name, door.listen), refuse))
                  for door in old])


async def _relisten(running: Listener | None, door: Door, listens: tuple[Listen, ...], refuse: Refuse
                    ) -> tuple[Listen, ...]:
    name = f"gateways.{door.spec.name}"
    if listens == door.listen and not any(listen.tls for listen in listens):
        return door.listen
    if running is None:
        return door.listen
    try:
        opened, given_up = await running.relisten(listens)
    except TlsFault as fault:
        refuse(f"{name}.tls.{fault.setting}: {fault}; it goes on with what it had")
        return door.listen
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        addresses = ", ".join(str(listen) for listen in listens)
        refuse(f"{name} cannot listen on {addresses}: {reason}; it goes on as it was")
        return door.listen
    for what, changed in (("listens on", opened), ("no longer listens on", given_up)):
        if changed:
            log.info("reload: %s %s %s", name, what, ", ".join(changed))
    if any(listen.tls for listen in listens):
        log.info("reload: %s uses its TLS files as they are now for new connections", name)
    elif not (opened or given_up):
        log.info("reload: %s.listen changed and is in effect for new connections", name)
    return listens
