"""How long messages took from the disk to the live subscribers of a door."""
from __future__ import annotations

from gatehouse.kernel.delivery.deliveries import BOUNDS_MS, Latencies
from tests.kernel.rig import Rig


def test_what_took_so_long_is_counted_in_its_bucket_and_all_behind() -> None:
    latencies = Latencies()
    latencies.note("mqtt", 3, 2)
    latencies.note("mqtt", 1, 70_000)
    latencies.note("amqp", 1, -5)
    (mqtt, bounds, count, total_ms), (amqp, *_) = latencies.by_door()
    assert (mqtt, amqp) == ("mqtt", "amqp")
    assert [bound for bound, _ in bounds] == list(BOUNDS_MS)
    assert [below for _, below in bounds] == [0] + [3] * (len(BOUNDS_MS) - 1)
    assert (count, total_ms) == (4, 70_006)


def test_the_time_counts_from_when_the_flush_was_durable() -> None:
    rig = Rig()

    class Slow:
        """A door that is slow to take what it hears."""

        def on_delivery(self, deliveries):
            at = rig.world.loop.now_ms() + 30
            rig.world.loop.now_ms = lambda: at                                     # type: ignore[method-assign]
            rig.kernel.deliveries.note_delivered("mqtt", sum(len(messages) for _, messages, _, _ in deliveries))

    rig.kernel.subscribe("plant/#", Slow())
    rig.publish("plant/1", b"a", b"b")
    (door, _, count, total_ms), = rig.kernel.delivered_ms()
    assert (door, count, total_ms) == ("mqtt", 2, 60)
