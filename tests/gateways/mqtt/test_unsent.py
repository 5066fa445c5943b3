"""Subscribers that stall cost no more than one budget together, and lose nothing that QoS 1 promises."""
from __future__ import annotations

from gatehouse.gateways.door_side import UnsentBudget
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt.backlog import FETCH_BYTES, LEAST_RANGES
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.outbox import LARGE_BYTES
from gatehouse.kernel.settings import KernelSettings
from tests.gateways.mqtt.test_outbox import received, send, subscriber
from tests.gateways.mqtt.test_window import acks

KIB = 1 << 10
CONFIG = MqttConfig()


def small_hub(limit_bytes: int, settings: KernelSettings | None = None) -> tuple[FakeHub, UnsentBudget]:
    hub = FakeHub(settings=settings)
    hub.services.unsent.limit_bytes = limit_bytes
    return hub, hub.services.unsent


def test_a_burst_fills_a_stalled_connection_no_further_than_its_bound() -> None:
    hub = FakeHub()
    _, link = subscriber(hub, "t", 1, CONFIG)
    link.stalled = True
    send(hub, *[bytes(100)] * 10_000)
    assert CONFIG.max_unsent_bytes <= link.unsent_bytes < CONFIG.max_unsent_bytes + 200


def test_what_waits_for_stalled_subscribers_is_charged_to_one_budget_and_bounded_by_it() -> None:
    hub, budget = small_hub(200 * KIB)
    clients = [subscriber(hub, "t", 1, CONFIG, f"c{n}") for n in range(20)]
    for _, link in clients:
        link.stalled = True
    sent = []
    for start in range(0, 6_000, 500):
        values = [b"%05d" % number + bytes(95) for number in range(start, start + 500)]
        sent += values
        send(hub, *values)
    assert 0 < budget.used_bytes <= budget.limit_bytes
    waiting = [session.describe()["waiting_bytes"] for session, _ in clients]
    assert max(waiting) <= budget.limit_bytes // 4
    assert all(session.describe()["waiting_ranges"] for session, _ in clients), "the rest is in the log alone"
    for session, link in clients:
        got = []
        while True:
            link.drain(session)
            packets = received(link)
            if not packets:
                break
            got += [value for value, _ in packets]
            session.handle_data(acks(*[packet_id for _, packet_id in packets]))
        assert got == sent, "everything, once, in order"
    assert budget.used_bytes == 0


def test_the_budget_gets_back_what_waited_for_a_client_that_goes() -> None:
    hub, budget = small_hub(1 << 20)
    session, link = subscriber(hub, "t", 1, CONFIG)
    link.stalled = True
    for _ in range(20):
        send(hub, *[bytes(1000)] * 100)
    assert budget.used_bytes
    hub.cut(session)
    assert budget.used_bytes == 0


def test_the_budget_gets_back_what_waited_for_a_client_that_is_given_up() -> None:
    hub, budget = small_hub(1 << 20)
    _, link = subscriber(hub, "#", 1, MqttConfig(max_unsent_bytes=100, max_waiting_ranges=3))
    link.stalled = True
    for number in range(1_100):
        send(hub, bytes(1000), topic=b"t%d" % number)
    assert link.closed and link.reason.startswith("slow_consumer")
    assert budget.used_bytes == 0


def test_with_nothing_left_of_the_budget_fewer_stretches_are_remembered() -> None:
    hub, budget = small_hub(1 << 20, KernelSettings(default_partitions=1, auto_topics_per_minute=10_000))
    session, link = subscriber(hub, "#", 0, CONFIG)
    link.stalled = True
    budget.charge(budget.limit_bytes)
    send(hub, *[bytes(100)] * 10_000, qos=0)                   # the socket is full
    for number in range(LEAST_RANGES + 500):
        send(hub, b"x", topic=b"t%d" % number, qos=0)
    assert session.describe()["waiting_ranges"] == LEAST_RANGES
    dropped = hub.admission.trace.counts["mqtt", "dropped_slow"]
    assert dropped >= 500, "QoS 0 is dropped, and counted"


def test_a_slow_reader_of_the_log_holds_no_more_than_a_piece_of_it() -> None:
    hub, budget = small_hub(1 << 20)
    session, link = subscriber(hub, "t", 1, CONFIG)
    link.stalled = True
    for _ in range(40):
        send(hub, *[bytes(1000)] * 100)
    while session.describe()["waiting_ranges"]:
        link.drain(session)
        link.stalled = True
        assert link.take(), "it is sent something each time"
        session.handle_data(acks(*range(1, 5000)))
        assert session.describe()["waiting_bytes"] <= FETCH_BYTES + 100 * 1000
        assert budget.used_bytes <= budget.limit_bytes


def test_a_large_value_is_the_same_bytes_for_every_subscriber() -> None:
    hub = FakeHub()
    written: list[list[bytes]] = []
    for number in range(3):
        _, link = subscriber(hub, "t", 1, CONFIG, f"c{number}")
        link.write_many = lambda parts: written.append(list(parts))  # type: ignore[method-assign]
    send(hub, bytes(LARGE_BYTES))
    values = {id(part) for parts in written for part in parts if len(part) == LARGE_BYTES}
    assert len(written) == 3 and len(values) == 1


def test_a_run_is_encoded_once_for_all_who_get_it_with_qos_0() -> None:
    hub = FakeHub()
    written: list[bytes] = []
    for number in range(3):
        _, link = subscriber(hub, "t", 0, CONFIG, f"c{number}")
        link.write = written.append  # type: ignore[method-assign]
    send(hub, b"1", b"2", qos=0)
    assert len(written) == 3 and len({id(data) for data in written}) == 1
