"""The modules that run once per message: what setup.py compiles into wheels, in these two lists.

Nearly all are ordinary Python that mypyc takes as it is. Native modules are Cython or C, where Python has no words for
what is to be done, and stand beside plain Python that does the same. setup.py refuses a name that does not exist, so
the lists stay true. The digest tells whether what was compiled, or tested, is still what the sources say.
"""
from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

# decision 58: plain Python, compiled as it is; decision 276: one library of many C files
HOT_MODULES: Final = (
    "gatehouse.log_thread",
    "gatehouse.gateways.runtime",
    "gatehouse.gateways.amqp.broker",
    "gatehouse.gateways.amqp.channel_requests",
    "gatehouse.gateways.amqp.channel",
    "gatehouse.gateways.amqp.codec",
    "gatehouse.gateways.amqp.definitions",
    "gatehouse.gateways.amqp.mapping",
    "gatehouse.gateways.amqp.methods",
    "gatehouse.gateways.amqp.publishing",
    "gatehouse.gateways.amqp.queues",
    "gatehouse.gateways.amqp.recalling",
    "gatehouse.gateways.amqp.rights",
    "gatehouse.gateways.amqp.session",
    "gatehouse.gateways.amqp.streams",
    "gatehouse.gateways.amqp.telling",
    "gatehouse.gateways.amqp.transacting",
    "gatehouse.gateways.door_side",
    "gatehouse.gateways.admission.guard",
    "gatehouse.gateways.admission.guarded_schedule",
    "gatehouse.gateways.admission.guarded_topics",
    "gatehouse.gateways.admission.guarded_transactions",
    "gatehouse.gateways.admission.limits.book",
    "gatehouse.gateways.admission.limits.bucket",
    "gatehouse.gateways.admission.limits.charging",
    "gatehouse.gateways.admission.limits.handing_out",
    "gatehouse.gateways.admission.limits.meter",
    "gatehouse.gateways.admission.limits.purse",
    "gatehouse.gateways.http.dispatch",
    "gatehouse.gateways.http.door",
    "gatehouse.gateways.http.exchange",
    "gatehouse.gateways.http.mapping",
    "gatehouse.gateways.http.page",
    "gatehouse.gateways.http.session",
    "gatehouse.gateways.http.transacting",
    "gatehouse.gateways.json_messages",
    "gatehouse.gateways.properties.values",
    "gatehouse.gateways.kafka.api.fetch",
    "gatehouse.gateways.kafka.api.produce",
    "gatehouse.gateways.kafka.codec",
    "gatehouse.gateways.kafka.fetch_session",
    "gatehouse.gateways.kafka.request",
    "gatehouse.gateways.kafka.session",
    "gatehouse.gateways.mqtt.backlog",
    "gatehouse.gateways.mqtt.codec",
    "gatehouse.gateways.mqtt.inbox",
    "gatehouse.gateways.mqtt.incoming",
    "gatehouse.gateways.mqtt.outbox",
    "gatehouse.gateways.mqtt.session",
    "gatehouse.gateways.slowing",
    "gatehouse.kernel.write.batches",
    "gatehouse.kernel.write.committer",
    "gatehouse.kernel.write.pending_frame",
    "gatehouse.kernel.halves.halves",
    "gatehouse.kernel.halves.half_records",
    "gatehouse.kernel.journeys.entering",
    "gatehouse.kernel.journeys.following",
    "gatehouse.kernel.journeys.held",
    "gatehouse.kernel.journeys.journeys",
    "gatehouse.kernel.journeys.trail",
    "gatehouse.kernel.state.partition_ids",
    "gatehouse.kernel.state.state",
    "gatehouse.kernel.groups.group",
    "gatehouse.kernel.groups.circuits",
    "gatehouse.kernel.groups.leasing",
    "gatehouse.kernel.groups.handing_out",
    "gatehouse.kernel.groups.cursor",
    "gatehouse.kernel.groups.queues",
    "gatehouse.kernel.message",
    "gatehouse.kernel.port",
    "gatehouse.kernel.addresses.murmur2",
    "gatehouse.kernel.addresses.filters",
    "gatehouse.kernel.records.batch",
    "gatehouse.kernel.records.headers",
    "gatehouse.kernel.scheduling.schedule_records",
    "gatehouse.kernel.shedding",
    "gatehouse.kernel.selectors.conditions",
    "gatehouse.kernel.selectors.like",
    "gatehouse.kernel.selectors.nodes",
    "gatehouse.kernel.selectors.selector",
    "gatehouse.kernel.selectors.tokens",
    "gatehouse.kernel.delivery.deliveries",
    "gatehouse.kernel.index.memtable",
    "gatehouse.kernel.addresses.address",
    "gatehouse.kernel.background",
    "gatehouse.kernel.index.index",
    "gatehouse.kernel.index.reader",
    "gatehouse.tracing.context",
    "gatehouse.tracing.events",
    "gatehouse.tracing.sampling",
    "gatehouse.relay.incoming",
    "gatehouse.relay.marking",
    "gatehouse.relay.origins",
    "gatehouse.relay.outgoing",
    "gatehouse.transactions.book",
    "gatehouse.transactions.coordinator",
    "gatehouse.transactions.deciding",
    "gatehouse.transactions.fresh",
    "gatehouse.transactions.holding",
    "gatehouse.transactions.id_set",
    "gatehouse.transactions.outcomes",
    "gatehouse.transactions.plan",
    "gatehouse.transactions.records",
    "gatehouse.transactions.due",
    "gatehouse.transactions.timers",
    "gatehouse.transactions.shared_records",
    "gatehouse.transactions.undecided",
)

# decision 219: native where Python has no words for it, with plain Python beside it that does the same
NATIVE_MODULES: Final = (
    "gatehouse.gateways.connections.native_sockets",
    "gatehouse.gateways.mqtt.native_publishes",
    "gatehouse.kernel.log.native_writer",
    "gatehouse.kernel.write.native_body",
    "gatehouse.relay.native_marking",
)
"""Each is a file `NAME.pyx`, or `NAME.c` where it is written in C, with its types in `NAME.pyi`."""


def source_of(module: str, root: Path) -> Path | None:
    """The file of one of our modules, if there is such a module."""
    stem = root.joinpath(*module.split("."))
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if file.is_file():
            return file
    return None


def native_source_of(module: str, root: Path) -> Path | None:
    """The Cython or C file of a native module, if there is such a module."""
    stem = root.joinpath(*module.split("."))
    return next((file for file in (stem.with_suffix(".pyx"), stem.with_suffix(".c")) if file.is_file()), None)


def imported_modules(file: Path) -> frozenset[str]:
    """Every module name that a file could mean by its import statements, ours and others."""
    return _imported_by(file.read_bytes())


@cache
def _imported_by(source: bytes) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def sources_of(modules: Iterable[str], root: Path) -> list[Path]:
    """The files of these modules and of everything of ours that they import, sorted."""
    files: set[Path] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        file = source_of(module, root) if module.startswith("gatehouse.") else None
        if file is not None and file not in files:
            files.add(file)
            waiting.extend(imported_modules(file))
    return sorted(files)


def digest_of(files: Iterable[Path], root: Path) -> str:
    """Names and contents of files in 16 hex digits."""
    total = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        total.update(b"%s\0%d\0%s" % (file.relative_to(root).as_posix().encode(), len(content), content))
    return total.hexdigest()[:16]


def _compiling(root: Path) -> list[Path]:
    """Which modules are compiled, and how."""
    return [root / "gatehouse" / "hot.py", root / "setup.py"]


def hot_digest(root: Path) -> str:
    """Of the hot modules, all that they import, these lists, and how they are compiled, whatever for."""
    return digest_of([*_compiling(root), *sources_of(HOT_MODULES, root)], root)


def native_digest(root: Path) -> str:
    """Of the native modules, what they declare to each other, these lists, and how they are compiled: in seconds, where
    the hot ones take minutes."""
    native = [file for module in NATIVE_MODULES if (file := native_source_of(module, root)) is not None]
    shared = [file for source in native for kind in (".pxd", ".h") if (file := source.with_suffix(kind)).is_file()]
    return digest_of([*_compiling(root), *sorted((*native, *shared))], root)
