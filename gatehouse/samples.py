"""What the hub counts of its doors, of admission and of what went through, as samples of `gatehouse.metrics`."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.trace import Trace
from gatehouse.gateways.circuits import Circuits
from gatehouse.gateways.connections.listener import Listener
from gatehouse.metrics import Sample


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
