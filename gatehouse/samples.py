"""What the hub counts of its doors, of admission, of what went through, and of groups and queues, as samples of
`gatehouse.metrics`."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.trace import Trace
from gatehouse.gateways.circuits import Circuits
from gatehouse.gateways.connections.listener import Listener
from gatehouse.kernel.groups.lags import Lag, Lags
from gatehouse.metrics import Sample

MOST: Final = 50
REST: Final = "(others)"
"""Not a name that anything has: names of groups may hold it, and of topics none does."""


def door_samples(doors: Iterable[tuple[str, Listener]]) -> Iterator[Sample]:
    """Connections of each door, by its name."""
    for name, door in doors:
        counts = door.counts
        yield "gatehouse_connections", (name,), len(door)
        yield "gatehouse_connections_accepted", (name,), counts["accepted"]
        yield "gatehouse_connections_refused", (name,), counts["refused"]
        yield "gatehouse_connections_refused_by_address", (name,), counts["refused_by_address"]
        yield "gatehouse_faults", (name,), counts["faults"]
        yield "gatehouse_tls_handshakes", (name,), counts["tls_handshakes"]
        ends_s = door.certificate_ends_s()
        if ends_s is not None:
            yield "gatehouse_tls_certificate_ends_seconds", (name,), ends_s
        for reason, amount in counts.items():
            if reason.startswith("closed_"):
                yield "gatehouse_connections_closed", (name, reason.removeprefix("closed_")), amount


def trace_samples(trace: Trace) -> Iterator[Sample]:
    """What went through the doors, and what admission counted."""
    for door, flow in trace.flows.items():
        yield "gatehouse_messages_in", (door,), flow.messages_in
        yield "gatehouse_bytes_in", (door,), flow.bytes_in
        yield "gatehouse_messages_out", (door,), flow.messages_out
        yield "gatehouse_bytes_out", (door,), flow.bytes_out
    for labels, amount in trace.counts.items():
        yield "gatehouse_events", labels, amount


def circuit_samples(circuits: Circuits) -> Iterator[Sample]:
    """What the hub depends on, and whether it is asked."""
    for kind, state, count in circuits.counts():
        yield "gatehouse_circuits", (kind, state), count
    for kind, opened in circuits.opened():
        yield "gatehouse_circuits_opened", (kind,), opened


def admission_samples(admission: Admission) -> Iterator[Sample]:
    """Users, rights and logins."""
    for name, value in admission.statistics().items():
        yield "gatehouse_" + name, (), value


def consumer_samples(lags: Lags, wall_ms: Callable[[], int], by_name: bool = True) -> Iterator[Sample]:
    """Of every group and queue: is a consumer behind, and by how much. Names are bounded: those that are furthest
    behind have rows of their own, the others one together; and one row has all where nobody is to read names."""
    each, left_out = lags.look()
    yield "gatehouse_groups_left_out", (), left_out
    for kind in ("group", "queue"):
        rows = [lag for lag in each if bool(lag.group) == (kind == "group")]
        rows.sort(key=lambda lag: (-lag.lag, lag.tenant, lag.group, lag.of))
        rest_labels = (REST, REST, REST) if kind == "group" else (REST, REST)
        ages_s = [_age_s(lags.oldest_ms(lag), wall_ms()) for lag in rows[:MOST]]
        if not by_name:
            yield f"gatehouse_{kind}_oldest_seconds", rest_labels, max(ages_s, default=0)
            yield from _counts(kind, rest_labels, _sum(rows))
            continue
        for lag, age_s in zip(rows, ages_s, strict=False):
            labels = (lag.tenant, lag.group, lag.of) if lag.group else (lag.tenant, lag.of)
            yield f"gatehouse_{kind}_oldest_seconds", labels, age_s
            yield from _counts(kind, labels, lag)
        if len(rows) > MOST:
            yield from _counts(kind, rest_labels, _sum(rows[MOST:]))


def _age_s(oldest_ms: int, now_ms: int) -> float:
    return max(0, now_ms - oldest_ms) / 1000 if oldest_ms else 0


def _counts(kind: str, labels: tuple[str, ...], lag: Lag) -> Iterator[Sample]:
    yield f"gatehouse_{kind}_lag_messages", labels, lag.lag
    for name in ("ready", "leased", "waiting"):
        yield f"gatehouse_{kind}_{name}_messages", labels, getattr(lag, name)


def _sum(rows: list[Lag]) -> Lag:
    return Lag(REST, REST, REST, sum(lag.lag for lag in rows), sum(lag.ready for lag in rows),
               sum(lag.leased for lag in rows), sum(lag.waiting for lag in rows))
