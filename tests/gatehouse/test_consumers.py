"""Whether a consumer is behind, on the metrics page."""
from __future__ import annotations

from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.groups.lags import Lag
from gatehouse.metrics import HISTOGRAM, METRICS, SUM, Metrics
from gatehouse.samples import MOST, REST, consumer_samples
from tests.kernel.journeys.test_journeys import Taker
from tests.kernel.rig import Rig


def rows(hub: Rig) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for name, labels, value in consumer_samples(hub.kernel.lags, hub.world.loop.wall_ms):
        found.setdefault(name, {})[labels] = value
    return found


def test_a_leased_group_with_what_it_has_and_how_old_it_is():
    hub = Rig()
    hub.publish("orders/1", b"1", b"2", b"3", b"4")
    hub.world.advance(5_000)
    taker = Taker(hub)
    taker.pop(2)
    taker.group.release([taker.taken[0][:3]], 60_000)
    hub.run()
    labels = ("/", "work", "orders")
    seen = rows(hub)
    counts = {name: seen[f"gatehouse_group_{name}_messages"][labels] for name in ("lag", "ready", "leased", "waiting")}
    assert counts == {"lag": 4, "ready": 2, "leased": 1, "waiting": 1}
    assert 5 <= seen["gatehouse_group_oldest_seconds"][labels] < 7


def test_an_assigned_group_is_behind_by_what_it_has_not_committed():
    hub = Rig()
    (partition_id, _, _), *_ = hub.publish("orders/1", b"1", b"2", b"3")
    hub.kernel.groups.commit_offsets("readers", {partition_id: (1, b"")}, hub.witness)
    hub.run()
    assert rows(hub)["gatehouse_group_lag_messages"]["/", "readers", "orders"] == 2
    hub.kernel.groups.commit_offsets("readers", {partition_id: (3, b"")}, hub.witness)
    hub.run()
    seen = rows(hub)
    assert seen["gatehouse_group_lag_messages"]["/", "readers", "orders"] == 0
    assert seen["gatehouse_group_oldest_seconds"]["/", "readers", "orders"] == 0


def test_a_queue_in_use():
    hub = Rig()
    queue = hub.kernel.groups.declare_queue("bills", QueueSettings())
    hub.kernel.groups.queue_group(queue)
    hub.kernel.append([(hub.kernel.place_queue(queue), b"x", b"\0", 2, 0)], hub.witness)
    hub.run()
    assert rows(hub)["gatehouse_queue_lag_messages"]["/", "bills"] == 1


class Many:
    """More groups than have a row of their own."""

    def __init__(self, count: int) -> None:
        self.count = count

    def look(self) -> tuple[list[Lag], int]:
        return [Lag("/", f"g{number}", "t", number) for number in range(self.count)], 3

    def oldest_ms(self, lag: Lag) -> int:
        return 1_000


def test_names_are_bounded_and_the_rest_is_one_row():
    samples = list(consumer_samples(Many(10 * MOST), lambda: 61_000))
    lags = {labels: value for name, labels, value in samples if name == "gatehouse_group_lag_messages"}
    assert len(lags) == MOST + 1 and lags["/", f"g{10 * MOST - 1}", "t"] == 10 * MOST - 1
    assert lags[REST, REST, REST] == sum(range(9 * MOST))
    assert ("gatehouse_groups_left_out", (), 3) in samples
    assert ("gatehouse_group_oldest_seconds", ("/", "g499", "t"), 60.0) in samples


def test_without_names_there_are_sums_alone():
    samples = list(consumer_samples(Many(3), lambda: 61_000, by_name=False))
    assert {labels for _, labels, _ in samples} == {(), (REST, REST, REST), (REST, REST)}
    assert ("gatehouse_group_lag_messages", (REST, REST, REST), 3) in samples
    assert ("gatehouse_group_oldest_seconds", (REST, REST, REST), 60.0) in samples


def test_every_sample_is_declared_with_its_labels():
    hub = Rig()
    hub.publish("orders/1", b"1")
    Taker(hub)
    for name, labels, _ in consumer_samples(hub.kernel.lags, hub.world.loop.wall_ms):
        assert len(METRICS[name].labels) == len(labels), name


def test_how_long_messages_take_to_the_disk_is_a_histogram():
    hub = Rig()
    hub.publish("orders/1", b"1", b"2")
    bounds, count, total_ms = hub.kernel.durable_ms()
    assert (count, bounds[-1][1]) == (2, 2) and total_ms >= 0
    assert [below for _, below in bounds] == sorted(below for _, below in bounds)
    assert METRICS["gatehouse_durable_seconds"].kind == HISTOGRAM
    page = Metrics()
    page.add(lambda: [("gatehouse_durable_seconds", ("0.001",), 1), ("gatehouse_durable_seconds", ("+Inf",), 2),
                      ("gatehouse_durable_seconds", (SUM,), 0.5)])
    said = page.render().decode()
    assert 'gatehouse_durable_seconds_bucket{le="+Inf"} 2.0' in said and "gatehouse_durable_seconds_sum 0.5" in said
    assert "process_cpu_seconds_total" in said
