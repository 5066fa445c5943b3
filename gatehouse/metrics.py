"""Every metric of the hub in one table, and the page that Prometheus reads.

Nothing is counted here. Sources are functions that read plain integers which the parts keep anyway, when the page is
asked for; each gives (metric, label values, value) for metrics of the table. `docs/metrics.md` is made from the table.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

SUM: Final = "sum"
"""Stands where a bound stands in the last label of a histogram's samples: the sum of what was measured."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric. A counter's name on the page ends in `_total`; a histogram's samples have one label more, the upper
    bound of what they count, or SUM."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[dict[str, Declared]] = {
    "gatehouse_info": Declared(GAUGE, "Always 1; the labels say which hub and version this is.", ("hub", "version")),
    "gatehouse_clock_steps": Declared(COUNTER, "Times that the system's clock was set while the hub ran."),
    "gatehouse_epoch": Declared(GAUGE, "Number of this start of the hub on its data directory."),
    "gatehouse_ready": Declared(GAUGE, "1 while the hub takes new work, 0 while it starts or stops, or the disk keeps "
                                       "messages waiting for longer than `ready_flush_s`."),
    "gatehouse_reload_refused": Declared(GAUGE, "1 while the last reload was refused, whole or in part, and the hub "
                                                "goes on as it was."),
    "gatehouse_start_time_seconds": Declared(GAUGE, "When this process became ready, in seconds since 1970."),
    "gatehouse_loop_stall_recent_seconds": Declared(
        GAUGE, "Longest time of the last one to two minutes in which something kept the event loop from running."),
    "gatehouse_loop_stall_worst_seconds": Declared(GAUGE, "The same since the start."),
    "gatehouse_loop_longest_turn_seconds": Declared(
        GAUGE, "Longest time of the last one to two minutes that the kernel worked before anybody else was served: a "
               "flush with its answers, a slice of deliveries."),
    "gatehouse_loop_long_turns": Declared(
        COUNTER, "Turns of more than 10 ms. `kernel`: a flush with its answers, a slice of deliveries, an answer from "
                 "the disk. `loop`: whatever kept the event loop so long, where a look that is taken every 50 ms fell "
                 "into it.", ("of",)),
    "gatehouse_circuits": Declared(
        GAUGE, "Circuits by what they lead to and by their state: `closed`, `open` or `half-open`.", ("kind", "state")),
    "gatehouse_circuits_opened": Declared(
        COUNTER, "Times that such circuits have opened, of those that are there.", ("kind",)),
    "gatehouse_background_jobs": Declared(
        COUNTER, "Jobs of work that yields to live messages: `replay` (reads from the disk), `bulk` (Spark), `upkeep` "
                 "(checkpoints, retention, compaction, backups).", ("user",)),
    "gatehouse_background_waiting": Declared(GAUGE, "Such jobs that wait for their turn."),
    "gatehouse_background_rested_seconds": Declared(COUNTER, "How long such work has rested for live messages."),
    "gatehouse_background_share": Declared(
        GAUGE, "Of its time that such work may run beside live messages, 1 where nobody publishes."),
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
    "gatehouse_mended_headers": Declared(
        COUNTER, "Files of the log whose header was damaged and was written anew by this start; nothing is lost."),
    "gatehouse_set_aside_files": Declared(
        GAUGE, "What lies in the folder `damaged`, which starts could not use, until somebody deletes it."),
    "gatehouse_set_aside_bytes": Declared(GAUGE, "The size of that, in bytes."),
    "gatehouse_reserve_held": Declared(
        GAUGE, "0 while the disk is full and the hub lives from its reserve: no messages are taken."),
    "gatehouse_backups": Declared(GAUGE, "Backups that are being read; retention deletes nothing meanwhile."),
    "gatehouse_unflushed_seconds": Declared(
        GAUGE, "For how long the oldest that is on its way to the disk has waited; 0 where nothing is."),
    "gatehouse_pending_bytes": Declared(GAUGE, "Bytes taken from publishers that are not in the log yet."),
    "gatehouse_unindexed_bytes": Declared(
        GAUGE, "Index and state in memory that no checkpoint holds yet, in bytes, about; a start replays it."),
    "gatehouse_checkpoint_age_seconds": Declared(
        GAUGE, "How long ago the last checkpoint was taken; an idle hub needs none."),
    "gatehouse_checkpoints": Declared(COUNTER, "Checkpoints of the index."),
    "gatehouse_postponed_checkpoints": Declared(
        COUNTER, "Checkpoints that did not fit on the disk and are tried again."),
    "gatehouse_cold_reads": Declared(COUNTER, "Reads that memory could not answer and the disk did."),
    "gatehouse_unreadable_stretches": Declared(
        COUNTER, "Stretches of offsets at which a producer's batch has no record that makes sense; readers pass over "
                 "them, and each counts when one first does."),
    "gatehouse_topics": Declared(GAUGE, "Topics that exist."),
    "gatehouse_max_auto_topics": Declared(
        GAUGE, "Topics that may exist before users make no more, see `kernel.max_auto_topics`."),
    "gatehouse_scheduled": Declared(GAUGE, "Messages that wait for their time."),
    "gatehouse_scheduled_delivered": Declared(COUNTER, "Messages appended when they fell due."),
    "gatehouse_scheduled_late_seconds": Declared(
        GAUGE, "How long the next message that waits for its time has been due; 0 where none is."),
    "gatehouse_producer_transactions_open": Declared(GAUGE, "Transactions of Kafka producers that are open."),
    "gatehouse_producer_transactions_held_bytes": Declared(GAUGE, "Bytes of what they hold, opened."),
    "gatehouse_producer_transactions_oldest_seconds": Declared(
        GAUGE, "For how long the oldest of them has been open; 0 where none is."),
    "gatehouse_producer_transactions_committed": Declared(COUNTER, "Of them, committed since the start."),
    "gatehouse_producer_transactions_rolled_back": Declared(
        COUNTER, "Of them, rolled back since the start: by their producers, by newer ones, or after their time."),
    "gatehouse_transactions_open": Declared(GAUGE, "Transactions that nobody has decided about."),
    "gatehouse_transactions_open_bytes": Declared(GAUGE, "Bytes of their half messages."),
    "gatehouse_transactions_loading": Declared(
        GAUGE, "1 after a start until all of these are known: until then counts are too small, and lists wait."),
    "gatehouse_transactions_remembered": Declared(
        GAUGE, "Decisions that are remembered, so that they can be repeated."),
    "gatehouse_transaction_members": Declared(GAUGE, "Members of groups that can be asked about half messages."),
    "gatehouse_transactions_begun": Declared(COUNTER, "Transactions that began since the start."),
    "gatehouse_transactions_committed": Declared(COUNTER, "Transactions whose messages were appended."),
    "gatehouse_transactions_rolled_back": Declared(COUNTER, "Transactions that somebody rolled back."),
    "gatehouse_transactions_expired": Declared(
        COUNTER, "Transactions that were rolled back because nobody decided in time."),
    "gatehouse_transaction_checks": Declared(COUNTER, "Times that the sender of half messages was to be asked."),
    "gatehouse_transaction_checks_unheard": Declared(COUNTER, "Those of them that reached nobody."),
    "gatehouse_durable_seconds": Declared(
        HISTOGRAM, "How long messages took from their door to the disk, those of a flush counted with its oldest."),
    "gatehouse_delivered_seconds": Declared(
        HISTOGRAM, "How long messages took from the disk to the live subscribers of a door, those that are handed over "
                   "together counted with the oldest of them.", ("door",)),
    "gatehouse_group_lag_messages": Declared(
        GAUGE, "Messages of a topic that a group has not settled, or not read. With `hub.metrics_names` the 50 groups "
               "that are furthest behind have rows of their own; the others have one together.",
        ("tenant", "group", "topic")),
    "gatehouse_group_ready_messages": Declared(
        GAUGE, "Those of them that a leased group may hand out now.", ("tenant", "group", "topic")),
    "gatehouse_group_leased_messages": Declared(
        GAUGE, "Those that somebody has leased.", ("tenant", "group", "topic")),
    "gatehouse_group_waiting_messages": Declared(
        GAUGE, "Those that wait for their next try.", ("tenant", "group", "topic")),
    "gatehouse_group_oldest_seconds": Declared(
        GAUGE, "How long the oldest of them has been there; of 16 partitions at most.", ("tenant", "group", "topic")),
    "gatehouse_queue_lag_messages": Declared(
        GAUGE, "Messages in a queue that is in use, or was within the last minutes. The 50 longest have rows of their "
               "own.", ("tenant", "queue")),
    "gatehouse_queue_ready_messages": Declared(GAUGE, "Those of them that may be handed out now.", ("tenant", "queue")),
    "gatehouse_queue_leased_messages": Declared(GAUGE, "Those that somebody has leased.", ("tenant", "queue")),
    "gatehouse_queue_waiting_messages": Declared(
        GAUGE, "Those that wait for their next try.", ("tenant", "queue")),
    "gatehouse_queue_oldest_seconds": Declared(
        GAUGE, "How long the oldest of them has been there.", ("tenant", "queue")),
    "gatehouse_groups_left_out": Declared(
        GAUGE, "Groups that are in none of these rows, as there are more than one look takes."),
    "gatehouse_journey_events": Declared(COUNTER, "Events of messages' journeys that were recorded."),
    "gatehouse_journeys_asked_left_out": Declared(
        "counter", "Messages that were not followed though their senders asked for it: `tracing.asked_per_minute`."),
    "gatehouse_journey_events_left_out": Declared(
        COUNTER, "Those that were not: beyond a topic's budget of errors, or lost with a flush that was refused."),
    "gatehouse_journeys_followed": Declared(GAUGE, "Messages that are followed now."),
    "gatehouse_otlp_spans": Declared(COUNTER, "Spans that the OTLP receiver has taken."),
    "gatehouse_otlp_spans_lost": Declared(COUNTER, "Spans and events that it has not: it is slow, or gone."),
    "gatehouse_receipts": Declared(COUNTER, "Receipts that were sent to senders of messages."),
    "gatehouse_receipts_lost": Declared(
        COUNTER, "Receipts that their addresses did not take, and messages that nobody waits for since too many do."),
    "gatehouse_receipts_waiting": Declared(GAUGE, "Messages whose senders wait for a receipt."),
    "gatehouse_subscriptions": Declared(GAUGE, "Filters that live subscribers asked for."),
    "gatehouse_sessions": Declared(GAUGE, "Sessions that outlive their connections, connected ones included."),
    "gatehouse_sessions_connected": Declared(GAUGE, "Of these, those whose clients are connected."),
    "gatehouse_session_drops": Declared(
        COUNTER, "Messages that such sessions were not given, by reason: limit (more waited than may), expired, "
                 "denied, lost, age (they waited longer than they may).", ("reason",)),
    "gatehouse_wills": Declared(GAUGE, "Wills of clients that are connected, or broke off and wait for their delay."),
    "gatehouse_kernel_faults": Declared(COUNTER, "Mistakes of the kernel itself, each with a traceback in the log."),
    "gatehouse_catalogue_failures": Declared(COUNTER, "Times that the SQL catalogue could not be written."),
    "gatehouse_catalogue_failing": Declared(
        GAUGE, "1 while the SQL catalogue cannot be written and what it shows is old; messages are not affected."),
    "gatehouse_messages_in": Declared(COUNTER, "Messages that were let in.", ("door",)),
    "gatehouse_bytes_in": Declared(COUNTER, "Their sizes, in bytes.", ("door",)),
    "gatehouse_messages_out": Declared(
        COUNTER, "Messages given out; one that several readers get counts for each.", ("door",)),
    "gatehouse_bytes_out": Declared(COUNTER, "Their sizes as sent, in bytes.", ("door",)),
    "gatehouse_users": Declared(GAUGE, "Users that have an account."),
    "gatehouse_api_keys": Declared(GAUGE, "API keys that are not revoked."),
    "gatehouse_rules": Declared(GAUGE, "Rules of the rights, those of the configuration included."),
    "gatehouse_registrations": Declared(GAUGE, "Connections that have logged in."),
    "gatehouse_passwords_waiting": Declared(GAUGE, "Passwords that wait to be checked."),
    "gatehouse_throttled": Declared(
        GAUGE, "Users and addresses whose failed logins are remembered and slow the next ones."),
    "gatehouse_jwks_failures": Declared(COUNTER, "Times that the key set of the tokens' issuer could not be read."),
    "gatehouse_events": Declared(
        COUNTER, "What happened to peers at a door, by the door's short name for it.", ("door", "event")),
    "gatehouse_overload_level": Declared(
        GAUGE, "How much is left undone for overload: 0 nothing, 1 trace events, 2 bulk reads too, 3 QoS 0, 4 new "
               "connections, 5 publishing waits."),
    "gatehouse_shed": Declared(COUNTER, "What was left undone, or had to wait, for overload.", ("what",)),
    "gatehouse_memory_budget_bytes": Declared(GAUGE, "Memory that the hub may use, `hub.memory_bytes`."),
    "gatehouse_memory_held_bytes": Declared(GAUGE, "Memory that is held for clients, by who holds it.", ("holder",)),
    "gatehouse_unsent_bytes": Declared(
        GAUGE, "Bytes held in memory for clients that do not take them; at most `hub.unsent_bytes`, and 128 KiB "
               "and a message more for each of those clients."),
    "gatehouse_not_honoured": Declared(
        COUNTER, "Times that clients asked for what a door takes without effect; its README has a table of these.",
        ("door", "what")),
    "gatehouse_connections": Declared(GAUGE, "Connections that are open.", ("door",)),
    "gatehouse_connections_accepted": Declared(COUNTER, "Connections that were let in.", ("door",)),
    "gatehouse_connections_refused": Declared(
        COUNTER, "Connections refused because there was no place for them.", ("door",)),
    "gatehouse_connections_refused_by_address": Declared(
        COUNTER, "Those of them whose address had as many as one address may have.", ("door",)),
    "gatehouse_connections_closed": Declared(
        COUNTER, "Connections that the hub ended, by why.", ("door", "reason")),
    "gatehouse_tls_handshakes": Declared(
        COUNTER, "TLS handshakes that were done; those that failed are closed connections with a `tls_` reason.",
        ("door",)),
    "gatehouse_tls_certificate_ends_seconds": Declared(
        GAUGE, "When the first of the certificates that the door shows runs out, in seconds since 1970.", ("door",)),
    "gatehouse_faults": Declared(COUNTER, "Mistakes of the hub itself, each with a traceback in the log.", ("door",)),
    "gatehouse_relay_connected": Declared(GAUGE, "1 while the hub is connected to its meeting point."),
    "gatehouse_relay_connections": Declared(COUNTER, "Times that the meeting point let this hub in."),
    "gatehouse_relay_link_open": Declared(GAUGE, "1 while both hubs of a link have greeted.", ("link",)),
    "gatehouse_relay_link_sessions": Declared(COUNTER, "Times that they greeted: more than one is a reconnect.",
                                              ("link",)),
    "gatehouse_relay_link_lag_messages": Declared(
        GAUGE, "Offsets that the other hub does not have on its disk yet, those that do not match included.",
        ("link",)),
    "gatehouse_relay_link_lag_bytes": Declared(GAUGE, "Bytes on their way to it.", ("link",)),
    "gatehouse_relay_link_lag_seconds": Declared(
        GAUGE, "For how long the oldest of them are on their way, or the link is down while messages wait.", ("link",)),
    "gatehouse_relay_link_sent_messages": Declared(COUNTER, "Messages that went out, again ones included.", ("link",)),
    "gatehouse_relay_link_sent_bytes": Declared(COUNTER, "Their letters, in bytes.", ("link",)),
    "gatehouse_relay_link_received_messages": Declared(COUNTER, "Messages that came in and were stored.", ("link",)),
    "gatehouse_relay_link_received_bytes": Declared(COUNTER, "The letters that came in, in bytes.", ("link",)),
    "gatehouse_relay_link_repeated_messages": Declared(
        COUNTER, "Messages that came in and were here already.", ("link",)),
    "gatehouse_relay_link_lost_messages": Declared(
        COUNTER, "Offsets that retention had deleted before the other hub had them.", ("link",)),
    "gatehouse_relay_link_tampered": Declared(
        COUNTER, "Letters that were not what the other hub had sealed, or not the next ones.", ("link",)),
    "gatehouse_relay_link_spooled_messages": Declared(
        COUNTER, "Messages that went to the meeting point's spool while the other hub was away.", ("link",)),
    "gatehouse_relay_link_spool_taken_letters": Declared(
        COUNTER, "Letters that the meeting point had kept for this hub and that are dealt with.", ("link",)),
    "gatehouse_relay_link_spool_passed_over": Declared(
        COUNTER, "Those of them that were worth nothing, by why.", ("link", "reason")),
    "gatehouse_relay_link_refused": Declared(
        COUNTER, "Messages that were not taken here, by why; `relay_...`: letters that the meeting point bounced.",
        ("link", "reason")),
}

Sample = tuple[str, tuple[str, ...], float]
Source = Callable[[], Iterable[Sample]]
Exemplars = Callable[[], Iterable[tuple[str, str, Exemplar]]]
"""(histogram, upper bound of a bucket, a message that is counted there)"""


class Metrics(Collector):
    """The hub's metrics page."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._exemplars: list[Exemplars] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, source: Source) -> None:
        """Ask this source too, whenever the page is rendered."""
        self._sources.append(source)

    def add_exemplars(self, source: Exemplars) -> None:
        """This source knows messages that stand for buckets of histograms."""
        self._exemplars.append(source)

    def render_openmetrics(self) -> bytes:
        """The page in the format of OpenMetrics, which has exemplars."""
        page: bytes = generate_openmetrics(self._registry)  # type: ignore[no-untyped-call]
        return page

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
                if declared.kind == HISTOGRAM:
                    exemplars = [exemplar for source in self._exemplars for exemplar in source() if exemplar[0] == name]
                    yield _histogram(name, declared, samples[name], {bound: of for _, bound, of in exemplars})
                    continue
                family: GaugeMetricFamily | CounterMetricFamily
                if declared.kind == COUNTER:
                    family = CounterMetricFamily(name, declared.help, labels=declared.labels)
                else:
                    family = GaugeMetricFamily(name, declared.help, labels=declared.labels)
                for _, labels, value in samples[name]:
                    family.add_metric(labels, value)
                yield family


def _histogram(name: str, declared: Declared, samples: list[Sample], exemplars: Mapping[str, Exemplar]
               ) -> HistogramMetricFamily:
    """One family of samples, whose last label is a bound or SUM."""
    family = HistogramMetricFamily(name, declared.help, labels=declared.labels)
    series: dict[tuple[str, ...], dict[str, float]] = {}
    for _, labels, value in samples:
        series.setdefault(labels[:-1], {})[labels[-1]] = value
    for labels, values in series.items():
        total = values.pop(SUM, 0.0)
        family.add_metric(labels, [
            (bound, count, exemplars[bound]) if bound in exemplars else (bound, count)
            for bound, count in values.items()], total)
    return family
