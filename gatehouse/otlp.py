"""Sends journeys of followed messages to an OpenTelemetry collector, as spans over OTLP/HTTP, by OpenTelemetry's SDK.

    events of a durable frame ──► a queue ──► a thread: spans, 512 at a time ──► the SDK's exporter
                                   └── full: counted and left out

The kernel's thread only puts events into a queue; a receiver that is slow or gone costs it nothing. What could not be
delivered is counted (`gatehouse_otlp_spans_lost_total`). Messages that are followed from the start have spans, named by
the messaging conventions: `send ADDRESS` as its producer, `process ADDRESS` as a consumer, from hand-out to ack.

The extra `otlp` (`pip install 'gatehouse[otlp]'`) brings the SDK; headers, certificates and time limits are its own
environment variables (`OTEL_EXPORTER_OTLP_*`).
"""
from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import Empty, Full, Queue
from threading import Thread
from typing import Any, Final, NamedTuple

from gatehouse import exits
from gatehouse.tracing.events import Event, Kind, span_of

log = logging.getLogger("gatehouse.otlp")

MAX_WAITING: Final = 10_000
"""Events that wait for the thread."""

MAX_OPEN: Final = 10_000
"""Hand-outs whose end has not been seen; of those beyond the oldest have no end. Of an event that tells of more
messages, the others have no spans: they are counted as lost."""

BATCH: Final = 512
LOOK_S: Final = 1.0
SYSTEM: Final = "gatehouse"
NS: Final = 1_000_000

ENDS: Final[dict[int, str]] = {
    Kind.ACKED: "", Kind.RELEASED: "released", Kind.LEASE_OVER: "lease over", Kind.GIVEN_UP: "given up"}
"""What ends a hand-out, and its error; "" where there is none."""


class SpanDraft(NamedTuple):
    """A span before the SDK has it. Times are in ms; `parent` is b"" where it begins its trace here."""

    name: str
    trace_id: bytes
    parent: bytes
    span_id: bytes
    start_ms: int
    end_ms: int
    is_producer: bool
    error: str
    attributes: dict[str, str | int]


class Drafting:
    """Makes spans of events: of what was stored, and of hand-outs, which wait for their ends. `ids` gives 8 bytes that
    nobody had before."""

    def __init__(self, ids: Callable[[], bytes]) -> None:
        self._ids = ids
        self._stored: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()      # and its span, by message id
        self._open: OrderedDict[tuple[int, str], Event] = OrderedDict()

    def of(self, event: Event) -> SpanDraft | None:
        """The span that this event ends, if it ends one."""
        if event.kind == Kind.STORED and event.trace_id:
            span_id = self._ids()
            self._stored[event.message_id] = event, span_id
            if len(self._stored) > MAX_OPEN:
                self._stored.popitem(last=False)
            parent = span_of(event.trace_id) if event.is_numbered else event.span_id
            return SpanDraft(f"send {event.address}", event.trace_id, parent, span_id, event.at_ms, event.at_ms,
                             True, "", attributes_of(event, event.address, "send"))
        stored = self._stored.get(event.message_id)
        if stored is None:
            return None
        if event.kind == Kind.HANDED_OUT:
            self._open[event.message_id, event.group] = event
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
            return None
        ends = ENDS.get(event.kind)
        if ends is None:
            return None
        begun = self._open.pop((event.message_id, event.group), event)
        address = stored[0].address
        return SpanDraft(f"process {address}", stored[0].trace_id, stored[1], self._ids(), begun.at_ms, event.at_ms,
                         False, ends and (event.reason or ends), attributes_of(begun, address, "process"))


def attributes_of(event: Event, address: str, operation: str) -> dict[str, str | int]:
    """By the messaging conventions of OpenTelemetry."""
    said: dict[str, str | int] = {
        "messaging.system": SYSTEM, "messaging.operation.type": operation, "messaging.operation.name": operation,
        "messaging.destination.name": address, "messaging.message.id": str(event.message_id),
        "messaging.message.conversation_id": event.correlation_id.decode(errors="replace"),
        "messaging.consumer.group.name": event.group, "network.protocol.name": event.door,
        "gatehouse.attempt": event.attempt}
    return {key: value for key, value in said.items() if value} | {
        "messaging.destination.partition.id": str(event.partition_id), "gatehouse.offset": event.offset}


class Exporting:
    """Sends journeys as spans to a collector, from a thread. `export` delivers drafts, or raises what says why not; it
    may block."""

    def __init__(self, export: Callable[[Sequence[SpanDraft]], None], ids: Callable[[], bytes]) -> None:
        self._export = export
        self._drafting = Drafting(ids)
        self._queue: Queue[Event | None] = Queue(MAX_WAITING)
        self._thread = Thread(target=self._run, name="otlp", daemon=True)
        self._reachable = True
        self.sent = 0
        self.lost = 0

    def start(self) -> None:
        """From here on."""
        self._thread.start()

    def stop(self) -> None:
        """What waits goes out if the receiver takes it within a second."""
        try:
            self._queue.put_nowait(None)
        except Full:
            return
        self._thread.join(LOOK_S)

    def take(self, event: Event) -> None:
        """On the kernel's thread; at once."""
        try:
            self._queue.put_nowait(event)
        except Full:
            self.lost += 1

    def _run(self) -> None:
        while True:
            drafts: list[SpanDraft] = []
            is_over = False
            try:
                event = self._queue.get()
                while not is_over:
                    is_over = event is None
                    drafts += [] if event is None else self._drafts_of(event)
                    if len(drafts) >= BATCH or is_over:
                        break
                    event = self._queue.get(timeout=LOOK_S)
            except Empty:
                pass
            for start in range(0, len(drafts), BATCH):
                self._deliver(drafts[start:start + BATCH])
            if is_over:
                return

    def _drafts_of(self, event: Event) -> list[SpanDraft]:
        """Of each message that an event tells of."""
        self.lost += max(0, event.rows - MAX_OPEN)
        drafts = [self._drafting.of(event.nth(at)) for at in range(min(max(1, event.rows), MAX_OPEN))]
        return [draft for draft in drafts if draft is not None]

    def _deliver(self, drafts: list[SpanDraft]) -> None:
        try:
            self._export(drafts)
        except Exception as error:               # whatever the SDK raises concerns spans, and no message
            self.lost += len(drafts)
            if self._reachable:
                log.warning("the OTLP receiver takes no spans, they are lost: %s", error)
            self._reachable = False
            return
        self.sent += len(drafts)
        if not self._reachable:
            log.warning("the OTLP receiver takes spans again")
        self._reachable = True

    def statistics(self) -> dict[str, int]:
        """Counters, by metric name without its prefix."""
        return {"otlp_spans_total": self.sent, "otlp_spans_lost_total": self.lost}


class NotDelivered(Exception):
    """The receiver did not take spans; the text is the SDK's."""


def exporter_to(endpoint: str, hub: str, version: str) -> Callable[[Sequence[SpanDraft]], None]:
    """Sends to an endpoint as the SDK does, or raises NotDelivered. Raises Refused where the SDK is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import SpanExportResult
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode
    except ImportError as error:
        raise exits.Refused(f"tracing.otlp_endpoint needs OpenTelemetry's SDK: pip install 'gatehouse[otlp]' ({error})",
                            exits.USAGE) from None
    exporter = OTLPSpanExporter(endpoint=endpoint)
    resource = Resource.create({"service.name": SYSTEM, "service.instance.id": hub, "service.version": version})
    scope = InstrumentationScope(SYSTEM, version)

    said: list[str] = []                         # by the SDK about these spans: a line for each try, and the last one

    def keep(record: logging.LogRecord) -> bool:
        said[:] = [record.getMessage()]
        return False

    logging.getLogger(OTLPSpanExporter.__module__).addFilter(keep)  # decision 328

    def context(trace_id: bytes, span_id: bytes, is_remote: bool) -> Any:
        return SpanContext(int.from_bytes(trace_id), int.from_bytes(span_id), is_remote, TraceFlags(TraceFlags.SAMPLED))

    def export(drafts: Sequence[SpanDraft]) -> None:
        said.clear()
        spans = [ReadableSpan(
            draft.name, context(draft.trace_id, draft.span_id, False),
            context(draft.trace_id, draft.parent, True) if draft.parent else None, resource, draft.attributes,
            kind=SpanKind.PRODUCER if draft.is_producer else SpanKind.CONSUMER,
            status=Status(StatusCode.ERROR, draft.error) if draft.error else Status(),
            start_time=draft.start_ms * NS, end_time=draft.end_ms * NS, instrumentation_scope=scope)
            for draft in drafts]
        if exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise NotDelivered(" ".join(said) or "the SDK does not say why")

    return export
