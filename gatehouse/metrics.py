"""Every metric of the hub in one table, and the page that Prometheus reads.

Nothing is counted here. Sources are functions that read plain integers which the parts keep anyway, when the page is
asked for; each gives (metric, label values, value) for metrics of the table. `docs/metrics.md` is made from the table.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

COUNTER: Final = "counter"
GAUGE: Final = "gauge"


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric. A counter's name on the page ends in `_total`."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[dict[str, Declared]] = {
    "gatehouse_info": Declared(GAUGE, "Always 1; the labels say which hub and version this is.", ("hub", "version")),
    "gatehouse_epoch": Declared(GAUGE, "Number of this start of the hub on its data directory."),
    "gatehouse_ready": Declared(GAUGE, "1 while the hub takes new work, 0 while it starts or stops."),
    "gatehouse_start_time_seconds": Declared(GAUGE, "When this process became ready, in seconds since 1970."),
    "gatehouse_loop_stall_recent_seconds": Declared(
        GAUGE, "Longest time of the last one to two minutes in which something kept the event loop from running."),
    "gatehouse_loop_stall_worst_seconds": Declared(GAUGE, "The same since the start."),
    "gatehouse_descriptors_limit": Declared(GAUGE, "Files and sockets that this process may have open."),
    "gatehouse_resident_bytes": Declared(GAUGE, "Memory of this process that is not swapped out, in bytes."),
    "gatehouse_congested": Declared(GAUGE, "1 while more is waiting for the disk than is good and publishers wait."),
    "gatehouse_flushes": Declared(COUNTER, "Times that everything waiting went to the log together."),
    "gatehouse_refused_flushes": Declared(COUNTER, "Flushes that the disk did not take; nothing of them was stored."),
    "gatehouse_appended_messages": Declared(COUNTER, "Messages that are stored."),
    "gatehouse_appended_bytes": Declared(COUNTER, "Bytes written to the log."),
    "gatehouse_log_bytes": Declared(GAUGE, "Size of the log, in bytes."),
    "gatehouse_log_segments": Declared(GAUGE, "Files of the log."),
    "gatehouse_kept_bytes": Declared(GAUGE, "Bytes kept beyond retention for what is still owed."),
    "gatehouse_dropped_segments": Declared(COUNTER, "Files of the log that retention deleted."),
    "gatehouse_damaged_ranges": Declared(COUNTER, "Ranges of the log that cannot be read."),
    "gatehouse_checkpoints": Declared(COUNTER, "Checkpoints of the index."),
    "gatehouse_postponed_checkpoints": Declared(
        COUNTER, "Checkpoints that did not fit on the disk and are tried again."),
    "gatehouse_cold_reads": Declared(COUNTER, "Reads that memory could not answer and the disk did."),
    "gatehouse_topics": Declared(GAUGE, "Topics that exist."),
    "gatehouse_scheduled": Declared(GAUGE, "Messages that wait for their time."),
    "gatehouse_scheduled_delivered": Declared(COUNTER, "Messages appended when they fell due."),
    "gatehouse_scheduled_late_seconds": Declared(
        GAUGE, "How long the next message that waits for its time has been due; 0 where none is."),
    "gatehouse_subscriptions": Declared(GAUGE, "Filters that live subscribers asked for."),
    "gatehouse_kernel_faults": Declared(COUNTER, "Mistakes of the kernel itself, each with a traceback in the log."),
    "gatehouse_catalogue_failures": Declared(COUNTER, "Times that the SQL catalogue could not be written."),
    "gatehouse_catalogue_failing": Declared(
        GAUGE, "1 while the SQL catalogue cannot be written and what it shows is old; messages are not affected."),
    "gatehouse_messages_in": Declared(COUNTER, "Messages that were let in, over all doors."),
    "gatehouse_bytes_in": Declared(COUNTER, "Their sizes, in bytes."),
    "gatehouse_events": Declared(
        COUNTER, "What happened to peers at a door, by the door's short name for it.", ("door", "event")),
    "gatehouse_connections": Declared(GAUGE, "Connections that are open.", ("door",)),
    "gatehouse_connections_accepted": Declared(COUNTER, "Connections that were let in.", ("door",)),
    "gatehouse_connections_refused": Declared(
        COUNTER, "Connections refused because no descriptor could be spent on them.", ("door",)),
    "gatehouse_connections_closed": Declared(
        COUNTER, "Connections that the hub ended, by why.", ("door", "reason")),
    "gatehouse_faults": Declared(COUNTER, "Mistakes of the hub itself, each with a traceback in the log.", ("door",)),
}

Sample = tuple[str, tuple[str, ...], float]
Source = Callable[[], Iterable[Sample]]


class Metrics(Collector):
    """The hub's metrics page."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, source: Source) -> None:
        """Ask this source too, whenever the page is rendered."""
        self._sources.append(source)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        """Families of the table in its order. KeyError for a sample that is not in the table: our own fault."""
        samples: dict[str, list[Sample]] = {name: [] for name in METRICS}
        for source in self._sources:
            for sample in source():
                samples[sample[0]].append(sample)
        for name, declared in METRICS.items():
            if samples[name]:
                family: GaugeMetricFamily | CounterMetricFamily
                if declared.kind == COUNTER:
                    family = CounterMetricFamily(name, declared.help, labels=declared.labels)
                else:
                    family = GaugeMetricFamily(name, declared.help, labels=declared.labels)
                for _, labels, value in samples[name]:
                    family.add_metric(labels, value)
                yield family
