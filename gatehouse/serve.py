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
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from gatehouse import __version__, exits
from gatehouse.config import LIVE_SETTINGS, Config, ConfigError, Door, changed_settings, load
from gatehouse.datadir import DataDir, open_data_dir
from gatehouse.exits import Refused
from gatehouse.metrics import Metrics, Sample
from gatehouse.runtime import HubLoop, Stall
from gatehouse.storage import Storage
from gateways.admission.admission import Admission
from gateways.admission.trace import Trace
from gateways.contract import GatewaySpec, Service, Services
from gateways.listener import Capacity, Listener, descriptor_capacity
from gateways.registry import GatewayClash, load_specs

log = logging.getLogger("gatehouse")

# A worker needs the interpreter lock for an instant after each fdatasync, and at Python's 5 ms a busy loop starves it
# for seconds. `python -m bench.switch_interval`: from 0.2 ms down the median wait is one burst of the loop's work.
SWITCH_INTERVAL_S: Final = 0.0002

# Young objects die young here: most collections would walk a burst of messages that is about to be let go of anyway.
GC_THRESHOLDS: Final = (50_000, 20, 50)

DRAIN_S: Final = 10.0            # what sessions get to answer and say goodbye


def read_specs() -> dict[str, GatewaySpec]:
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


@runtime_checkable
class Counted(Protocol):
    """A door that counts its connections as the shared listener does; a plugin's service need not."""

    counts: Counter[str]
    """accepted, refused, faults, and closed_REASON."""

    def __len__(self) -> int: ...

    def describe(self) -> list[dict[str, Any]]: ...


class Hub:
    """A hub from start to stop. Runs on one event loop."""

    def __init__(self, config: Config, specs: dict[str, GatewaySpec], data_dir: DataDir,
                 end: Callable[[int], None] = os._exit) -> None:
        self.config = config
        self._specs = specs
        self._data_dir = data_dir
        self._end = end
        self._ready = False
        self._ready_s = 0.0
        self._stopping = asyncio.Event()
        self._listeners: list[tuple[str, Listener]] = []
        self._services: list[tuple[str, Service]] = []
        self.metrics = Metrics()
        self._storage: Storage | None = None
        self._stall = Stall(asyncio.get_running_loop())

    async def run(self) -> int:
        """Start, serve until told to stop, stop. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number, handler in ((signal.SIGTERM, self.stop), (signal.SIGINT, self.stop), (signal.SIGHUP, self.reload)):
            loop.add_signal_handler(number, handler)
        try:
            await self._start(HubLoop(loop))
            gc.collect()
            gc.freeze()    # what exists now stays; later collections need not look at it
            self._stall.start()
            self._ready, self._ready_s = True, time.time()
            print("gatehouse ready", flush=True)
            await self._stopping.wait()
            log.info("stopping: no new work, answering what is in flight")
        finally:
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
        """Read the configuration again: take over what can change now, name the rest. A faulty one changes nothing."""
        try:
            new = load(Path(self.config.source), os.environ, self._specs)
        except ConfigError as error:
            for line in error.lines:
                log.error("reload refused: %s", line)
            return
        changed = changed_settings(self.config, new)
        if self._storage is not None:
            self._storage.kernel.configure(new.kernel.for_kernel())
        for name in changed:
            if name in LIVE_SETTINGS:
                log.info("reload: %s changed and is in effect", name)
            else:
                log.warning("reload: %s changed; it takes effect when the hub is started again", name)
        if not changed:
            log.info("reload: nothing changed")
        self.config = dataclasses.replace(self.config, kernel=new.kernel)

    def fatal(self, message: str) -> None:
        """The kernel can promise nothing more: say so and be gone before anybody is told otherwise."""
        print(f"gatehouse: {message}; ending, the next start recovers what was acknowledged", file=sys.stderr,
              flush=True)
        self._end(exits.STORAGE)

    # --- start -------------------------------------------------------------------------------------------------------

    async def _start(self, hub_loop: HubLoop) -> None:
        storage = Storage(self.config, self._data_dir.folder, hub_loop, self.fatal)
        try:
            storage.open()
        except BaseException:
            storage.release()
            raise
        self._storage = storage
        kernel = storage.kernel
        admission = Admission(kernel, hub_loop.now_ms, allow_anonymous=self.config.auth.allow_anonymous)
        services = Services(
            hub_name=self.config.hub.name, kernel=kernel, admission=admission, now_ms=hub_loop.now_ms,
            specs=tuple(door.spec for door in self.config.doors),
            settings={door.spec.name: door.settings for door in self.config.doors},
            connections=self.describe_connections, render_metrics=self.metrics.render, ready=lambda: self._ready)
        for source in (self._hub_samples, storage.samples, partial(trace_samples, admission.trace), self._door_samples):
            self.metrics.add(source)
        capacity = Capacity(descriptor_capacity())
        for door in self.config.doors:
            for address in await self._open_door(door, services, capacity):
                print(f"{door.spec.name} listens on {address}", flush=True)

    async def _open_door(self, door: Door, services: Services, capacity: Capacity) -> list[str]:
        spec = door.spec
        addresses = [str(listen) for listen in door.listen]
        try:
            if spec.opened is not None:
                spec.opened(services)
            if spec.service is not None:
                service = spec.service(services, door.settings, addresses)
                opened = await service.start()
                self._services.append((spec.name, service))
                return opened
            listener = Listener(spec, services, door.settings, capacity=capacity)
            opened = await listener.start((listen.host, listen.port) for listen in door.listen)
            self._listeners.append((spec.name, listener))
            return opened
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise Refused(f"the {spec.name} door cannot listen on {', '.join(addresses)}: {reason}; change "
                             f"gateways.{spec.name}.listen or end what uses it", exits.CANNOT_LISTEN) from None

    # --- stop --------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Doors first, since they still need the kernel to answer; then the kernel, then its threads."""
        self._ready = False
        stopping = [listener.stop(DRAIN_S) for _, listener in self._listeners]
        stopping += [service.stop() for _, service in self._services]
        for result in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(result, BaseException):
                log.error("a door did not stop well", exc_info=result)
        if self._storage is not None:
            await self._storage.close()
        self._stall.stop()

    # --- what is shown -----------------------------------------------------------------------------------------------

    def describe_connections(self) -> list[dict[str, Any]]:
        """Every connection of every door that tells of them."""
        return [description for _, door in self._counted() for description in door.describe()]

    def _counted(self) -> Iterator[tuple[str, Counted]]:
        yield from self._listeners
        for name, service in self._services:
            if isinstance(service, Counted):
                yield name, service

    def _hub_samples(self) -> Iterator[Sample]:
        yield "gatehouse_info", (self.config.hub.name, __version__), 1
        yield "gatehouse_ready", (), int(self._ready)
        yield "gatehouse_start_time_seconds", (), self._ready_s
        yield "gatehouse_loop_stall_recent_seconds", (), self._stall.recent_ms / 1000
        yield "gatehouse_loop_stall_worst_seconds", (), self._stall.worst_ms / 1000
        yield "gatehouse_descriptors_limit", (), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield "gatehouse_resident_bytes", (), resident_bytes()

    def _door_samples(self) -> Iterator[Sample]:
        for name, door in self._counted():
            counts = door.counts
            yield "gatehouse_connections", (name,), len(door)
            yield "gatehouse_connections_accepted", (name,), counts["accepted"]
            yield "gatehouse_connections_refused", (name,), counts["refused"]
            yield "gatehouse_faults", (name,), counts["faults"]
            for reason, amount in counts.items():
                if reason.startswith("closed_"):
                    yield "gatehouse_connections_closed", (name, reason.removeprefix("closed_")), amount


async def run_hub(config: Config, specs: dict[str, GatewaySpec], data_dir: DataDir) -> int:
    """A hub from start to stop on the running loop. Returns the exit code; raises Refused where it cannot start."""
    return await Hub(config, specs, data_dir).run()


def trace_samples(trace: Trace) -> Iterator[Sample]:
    """What admission counted."""
    yield "gatehouse_messages_in", (), trace.messages_in
    yield "gatehouse_bytes_in", (), trace.bytes_in
    for labels, amount in trace.counts.items():
        yield "gatehouse_events", labels, amount


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed: 3.7 times the round trips of asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def serve(config_file: Path, data: Path | None) -> int:
    """Run a hub until it is told to stop. Returns the exit code; every failure to start is one line."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
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
    for notice in config.notices:
        log.warning("%s", notice)
    limit = raise_descriptor_limit()
    log.info("%d descriptors: room for %d connections", limit, descriptor_capacity())
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(run_hub(config, specs, data_dir))
    except Refused as error:
        return _refuse(str(error), error.exit_code)
    except OSError as error:
        return _refuse(f"the data directory {data_dir.folder} failed: {error}", exits.STORAGE)
    finally:
        data_dir.close()


def _refuse(text: str, exit_code: int) -> int:
    print(f"gatehouse: {text}", file=sys.stderr, flush=True)
    return exit_code
