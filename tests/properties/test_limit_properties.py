"""Light partitions with limits beside a plain list: what is there, what gave way, what was refused."""
from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gatehouse.kernel.errors import QueueFull
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.message import Leased
from tests.kernel.groups.test_groups import pop
from tests.kernel.rig import Rig

LONG_MS = 7 * 24 * 3_600_000
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=6)


class LimitMachine(RuleBasedStateMachine):
    """Values are told apart by their first bytes; the model holds them in the order of their offsets."""

    @initialize(max_length=st.sampled_from([0, 0, 1, 6]), max_bytes=st.sampled_from([0, 60, 60]),
                overflow=st.sampled_from(["drop-head", "reject"]), bound=st.booleans())
    def begin(self, max_length: int, max_bytes: int, overflow: str, bound: bool) -> None:
        self.rig = Rig()
        self.settings = QueueSettings(max_length=max_length, max_bytes=max_bytes, overflow=overflow)
        self.queue = self.rig.kernel.groups.declare_queue("work", self.settings)
        self.bound = bound
        if bound:
            self.rig.kernel.create_topic("orders", partitions=1)
            self.rig.kernel.groups.bind("orders/#", self.queue)
        self.rig.run()
        self.count = 0
        self.ready: list[bytes] = []
        self.leased: dict[bytes, Leased] = {}
        self.pending: list[bytes] = []

    # ---- the model

    def has_room(self, values: list[bytes]) -> bool:
        held = self.ready + self.pending + values
        return not (self.settings.max_length and len(held) > self.settings.max_length
                    or self.settings.max_bytes and sum(map(len, held)) > self.settings.max_bytes)

    def entered(self) -> None:
        """What is pending is there; the oldest that are too much give way, message by message."""
        self.ready = sorted(self.ready + self.pending)
        self.pending = []
        while self.settings.overflow == "drop-head" and not self.has_room([]) and self.ready:
            self.ready.pop(0)

    # ---- what happens

    @rule(of=sizes)
    def offer(self, of: list[int]) -> None:
        values = []
        for size in of:
            values.append(b"%06d" % self.count + b"x" * size)
            self.count += 1
        kernel = self.rig.kernel
        placement = kernel.place("orders/a") if self.bound else kernel.place_queue(self.queue)
        fits = self.settings.overflow == "drop-head" or self.has_room(values)
        try:
            kernel.append([(placement, value, b"\0", 3, 0) for value in values], self.rig.witness)
            assert fits
            self.pending += values
        except QueueFull as refused:
            assert not fits
            assert self.has_room(values[:refused.index]) and not self.has_room(values[:refused.index + 1])

    @rule()
    def flush(self) -> None:
        self.rig.run()
        self.entered()

    @precondition(lambda self: not self.pending)
    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        found = pop(self.rig, self.rig.kernel.groups.queue_group(self.queue), count, LONG_MS)
        assert [message[6] for message in found] == self.ready[:count]
        del self.ready[:count]
        self.leased.update({message[6] or b"": message for message in found})

    @precondition(lambda self: not self.pending and self.leased)
    @rule(which=st.integers(0, 100), verb=st.sampled_from(["ack", "release"]))
    def end(self, which: int, verb: str) -> None:
        value = sorted(self.leased)[which % len(self.leased)]
        handle = self.leased.pop(value)[:3]
        group = self.rig.kernel.groups.queue_group(self.queue)
        done = group.ack([handle]) if verb == "ack" else group.release([handle], 0, self.rig.witness)
        assert done == [None]
        if verb == "release":
            self.ready.append(value)
        self.flush()

    @rule()
    def purge(self) -> None:
        assert self.rig.kernel.groups.purge(self.queue) == len(self.ready) + len(self.pending)
        self.ready, self.pending = [], []
        self.rig.run()

    @precondition(lambda self: not self.pending)
    @rule(lose_index=st.booleans())
    def restart(self, lose_index: bool) -> None:
        handles = [message[:3] for message in self.leased.values()]
        self.rig.kernel.groups.queue_group(self.queue).ack(handles)
        self.leased.clear()
        self.rig.run()
        self.rig.restart(lose_index=lose_index)
        self.rig.run()

    @invariant()
    def the_counts_agree(self) -> None:
        counts = self.rig.kernel.groups.queue_group(self.queue).counts()
        assert (counts.ready, counts.leased) == (len(self.ready), len(self.leased))


TestLimits = LimitMachine.TestCase
TestLimits.settings = settings(max_examples=60, stateful_step_count=40, deadline=None,
                               suppress_health_check=[HealthCheck.too_slow])
