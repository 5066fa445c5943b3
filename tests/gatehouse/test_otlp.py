"""Spans of followed messages: what they are called, that a receiver gets them, that one that is gone costs nothing."""
from __future__ import annotations

import gzip
import json
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gatehouse.otlp import MAX_WAITING, Drafting, Exporting, SpanDraft
from gatehouse.tracing.events import Event, Kind
from tests.running_hub import DEADLINE_S, RunningHub, config_of, sound_hub

TRACE = bytes(range(16))
SPAN = bytes(range(8))
STORED = Event(Kind.STORED, 7, 1_000, 4, 2, address="orders/7", door="mqtt", trace_id=TRACE, span_id=SPAN,
               correlation_id=b"c-1")


def drafting() -> Drafting:
    numbers = count(1)
    return Drafting(lambda: next(numbers).to_bytes(8))


def test_a_message_is_sent_and_processed_by_the_words_of_the_conventions() -> None:
    spans = drafting()
    sent = spans.of(STORED)
    assert sent is not None
    assert (sent.name, sent.trace_id, sent.parent, sent.is_producer) == ("send orders/7", TRACE, SPAN, True)
    assert sent.attributes == {
        "messaging.system": "gatehouse", "messaging.operation.type": "send", "messaging.operation.name": "send",
        "messaging.destination.name": "orders/7", "messaging.message.id": "7", "network.protocol.name": "mqtt",
        "messaging.message.conversation_id": "c-1", "messaging.destination.partition.id": "4", "gatehouse.offset": 2}
    handed = Event(Kind.HANDED_OUT, 7, 2_000, 4, 2, attempt=1, group="billing", door="amqp")
    assert spans.of(handed) is None
    released = spans.of(Event(Kind.RELEASED, 7, 2_500, 4, 2, attempt=1, group="billing"))
    assert released is not None
    assert (released.name, released.parent, released.start_ms, released.end_ms, released.error) == (
        "process orders/7", sent.span_id, 2_000, 2_500, "released")
    assert released.attributes["messaging.consumer.group.name"] == "billing"
    spans.of(handed._replace(at_ms=3_000, attempt=2))
    acked = spans.of(Event(Kind.ACKED, 7, 3_100, 4, 2, attempt=2, group="billing"))
    assert acked is not None and (acked.start_ms, acked.error, acked.attributes["gatehouse.attempt"]) == (3_000, "", 2)
    assert spans.of(Event(Kind.ACKED, 8, 3_100, 4, 2, group="billing")) is None


def test_a_receiver_that_does_not_answer_costs_the_kernel_nothing_and_what_is_lost_is_counted() -> None:
    entered, goes_on = threading.Event(), threading.Event()

    def export(drafts: Sequence[SpanDraft]) -> None:
        entered.set()
        goes_on.wait(DEADLINE_S)
        raise OSError("gone")

    numbers = count(1)
    exporting = Exporting(export, lambda: next(numbers).to_bytes(8))
    for _ in range(513):
        exporting.take(STORED)
    exporting.start()
    assert entered.wait(DEADLINE_S)
    for _ in range(MAX_WAITING + 10):
        exporting.take(STORED)
    assert exporting.lost >= 9
    goes_on.set()
    exporting.stop()


@contextmanager
def receiver() -> Iterator[tuple[str, Queue[Any]]]:
    """A collector's end of OTLP/HTTP, and the spans that it gets."""
    spans: Queue[Any] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            said = ExportTraceServiceRequest.FromString(
                gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            for resource in said.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        spans.put(span)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def publish(hub: RunningHub) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{hub.port('http')}/v1/publish", json.dumps({"messages": [{
            "address": "plant/1", "value": "x", "traceparent": f"00-{TRACE.hex()}-{SPAN.hex()}-01"}]}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert answer.status == 201


def test_a_collector_gets_the_spans_of_a_message(tmp_path: Path) -> None:
    with receiver() as (endpoint, spans):
        config = config_of(("http",)) + f'[tracing]\notlp_endpoint = "{endpoint}"\n[tracing.topics.plant]\n'
        with sound_hub(tmp_path, config) as hub:
            publish(hub)
            span = spans.get(timeout=DEADLINE_S)
            assert (span.name, span.trace_id, span.parent_span_id) == ("send plant/1", TRACE, SPAN)
            assert {one.key: one.value.string_value for one in span.attributes}["messaging.system"] == "gatehouse"


@contextmanager
def bad_receiver(status: int) -> Iterator[tuple[str, threading.Event]]:
    """A collector's end that answers with an error; with the status 0 it never answers. And whether it was asked."""
    asked, is_over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.set()
            if not status:
                is_over.wait(DEADLINE_S)
                return
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", asked
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [500, 0])
def test_publishing_goes_on_and_stops_beside_a_collector_that_fails_or_hangs(tmp_path: Path, status: int) -> None:
    with bad_receiver(status) as (endpoint, asked):
        config = f'[tracing]\notlp_endpoint = "{endpoint}"\n[tracing.topics.plant]\n'
        hub = RunningHub(tmp_path, config_of(("http",)) + config)
        try:
            hub.wait_ready()
            publish(hub)
            assert asked.wait(DEADLINE_S)
            publish(hub)
            if status:
                assert "500" in hub.wait_log_line("takes no spans")
            code, said = hub.stop()
        finally:
            hub.kill()
        assert code == 0 and "Traceback" not in said
        assert said.count("500") <= 1 and "opentelemetry" not in said, "the hub has one line for it"
