"""No byte and no number of a peer's makes an assertion of the kernel's fail: what makes no sense is refused, no more.

The doors' own garbage is beside this (`test_kafka_garbage` and its like), and `tests/fuzz` sends it to real hubs.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import When
from gatehouse.transactions.coordinator import Decision, Transactions
from tests.kernel.batches import batch_of
from tests.kernel.groups.test_groups import pop
from tests.kernel.hostile import ATTACKS, UNPACKED, Way
from tests.kernel.rig import Rig
from tests.simulation.transacting import SETTINGS

NUMBERS = st.sampled_from([0, 1, 2, 3, 7, (1 << 31) - 1, 1 << 53, (1 << 63) - 1, -1, -(1 << 63)])
BATCH = batch_of([(b"k", b"v", ()), (None, b"w", ())], producer_id=7, sequence=0)

flipped = st.builds(lambda at, bits: BATCH[:at % len(BATCH)] + bytes((BATCH[at % len(BATCH)] ^ bits,))
                    + BATCH[at % len(BATCH) + 1:], st.integers(0, len(BATCH)), st.integers(1, 255))
attacks = st.sampled_from(sorted(ATTACKS)).map(lambda name: ATTACKS[name][0](Way(*UNPACKED)))
batches = st.one_of(st.binary(max_size=100), flipped, attacks, st.just(BATCH), st.just(BATCH[:-3]), st.just(BATCH * 2))
steps = st.lists(st.tuples(st.sampled_from((
    "batch", "batches", "fetch", "time", "commit", "rewind", "handle", "decide", "schedule", "recall", "stamp",
    "publish", "wait")), batches, NUMBERS, NUMBERS), max_size=25)


class Peer:
    """What peers of any door may ask the kernel for, with whatever numbers and bytes they like."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.kernel = self.rig.kernel
        self.topic = self.kernel.create_topic("orders", partitions=2)
        self.rig.publish("orders/a", b"1", b"2", b"3")
        self.transactions = Transactions(self.kernel, SETTINGS)
        self.transactions.open()
        self.held = pop(self.rig, self.kernel.groups.group("billing", "orders"), 2)

    def act(self, what: str, data: bytes, one: int, other: int) -> None:
        acts: dict[str, Callable[[], Any]] = {
            "batch": lambda: self.kernel.append_batch(self.partition(one), data, self.rig.witness),
            "batches": lambda: self.kernel.append_batches([(self.partition(one), data)] * 2, self.rig.witness),
            "fetch": lambda: self.kernel.fetch([(self.partition(one), other, 1 << 20)], 1 << 20, lambda answers: None),
            "time": lambda: self.kernel.offset_for_time(self.partition(one), other, lambda offset, at: None),
            "commit": lambda: self.kernel.groups.commit_offsets("g", {self.partition(one): (abs(other) >> 1, data)},
                                                                self.rig.witness),
            "rewind": lambda: self.kernel.groups.rewind("billing", self.topic, {self.partition(one): other}),
            "handle": lambda: self.kernel.groups.group("billing", "orders").ack(
                [(self.held[0][0], other, one), *[message[:3] for message in self.held]]),
            "decide": lambda: self.transactions.decide(other, Decision.COMMIT, owner=self.rig.witness),
            "schedule": lambda: self.kernel.schedule([self.message(data, 0)], [When(one, "", other)], self.rig.witness),
            "recall": lambda: self.kernel.scheduling.recall(abs(other), "/", self.rig.witness, None),
            "stamp": lambda: self.kernel.append([self.message(data, abs(other) >> 3)], self.rig.witness),
            "publish": lambda: self.kernel.append([self.message(data, 0)] * (abs(one) % 5 + 1), self.rig.witness),
            "wait": lambda: self.rig.world.advance(abs(one) % 100_000),
        }
        with suppress(KernelError):
            acts[what]()

    def partition(self, number: int) -> int:
        return self.topic.partition_id(abs(number) % 2)

    def message(self, value: bytes, timestamp_ms: int) -> tuple[Any, bytes, bytes, int, int]:
        return self.kernel.place("orders/a"), value, b"\0", 2, timestamp_ms


@settings(max_examples=120, deadline=None)
@given(steps)
def test_garbage_is_refused_and_fails_no_assertion(taken: list[tuple[str, bytes, int, int]]) -> None:
    peer = Peer()
    for what, data, one, other in taken:
        peer.act(what, data, one, other)
        peer.rig.world.run()
        assert not any(isinstance(fault, AssertionError) for fault in peer.rig.errors), peer.rig.errors
    assert not peer.rig.fatal
    stored = [peer.kernel.bounds(partition_id)[1] for partition_id in peer.topic.partition_ids()]
    peer.rig.restart(lose_index=True)
    assert [peer.rig.kernel.bounds(partition_id)[1] for partition_id in peer.topic.partition_ids()] == stored
