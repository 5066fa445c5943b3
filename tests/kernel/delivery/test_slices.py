"""What goes to many subscribers takes many turns of the loop: nobody waits for all of it, and order is kept."""
from __future__ import annotations

from gatehouse.kernel.delivery.deliveries import MAX_WAITING, OPEN_HERE_BYTES, PORTION
from gatehouse.kernel.message import Delivery
from gatehouse.kernel.world import FakeLoop
from gatehouse.kernel.write.committer import SLICE_MS, Slices
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig

SUBSCRIBERS = 40


class Listener:
    """A subscriber that takes a millisecond for each call."""

    def __init__(self, loop: FakeLoop) -> None:
        self.values: list[bytes | None] = []
        self.calls = 0
        self._loop = loop

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        self._loop.worked_ms += 1
        self.calls += 1
        self.values += [message[1] for _, messages, _, _ in deliveries for message in messages]


def listeners(rig: Rig, count: int = SUBSCRIBERS, filter_text: str = "plant/#") -> list[Listener]:
    made = [Listener(rig.world.loop) for _ in range(count)]
    for listener in made:
        rig.kernel.subscribe(filter_text, listener)
    return made


def step(rig: Rig) -> bool:
    """One thing on the loop and on each worker; False where nothing is left to do."""
    return True in [rig.world.loop.step(), *[worker.step() for worker in rig.world.workers]]


def until_somebody_hears(rig: Rig, heard: list[Listener]) -> None:
    while not any(one.calls for one in heard):
        assert step(rig)


def turns_of(rig: Rig) -> list[int]:
    """Run until nothing is left to do; how long each turn of the loop took, in ms, where it took any time. What a
    worker has done is taken up in a turn of its own."""
    loop, took = rig.world.loop, []
    idle = False
    while not idle:
        idle = True
        for one in (loop, *rig.world.workers):
            before = loop.worked_ms
            idle &= not one.step()
            took.append(loop.worked_ms - before)
    return [ms for ms in took if ms]


def append(rig: Rig, *values: bytes, address: str = "plant/a") -> None:
    rig.kernel.append([(rig.kernel.place(address), value, b"\0", 2, 0) for value in values], None)


def test_a_flush_for_many_subscribers_takes_many_short_turns() -> None:
    rig = Rig()
    heard = listeners(rig)
    append(rig, *[b"%d" % number for number in range(100)])
    turns = turns_of(rig)
    assert sum(turns) == SUBSCRIBERS and max(turns) <= SLICE_MS
    assert all(one.values == [b"%d" % number for number in range(100)] and one.calls == 1 for one in heard)
    assert rig.kernel.deliveries.idle


def test_what_is_small_is_delivered_in_the_turn_of_its_flush() -> None:
    rig = Rig()
    heard = listeners(rig, SLICE_MS - 1)
    append(rig, b"1")
    assert len(turns_of(rig)) == 1 and all(one.calls == 1 for one in heard)


def test_a_turn_of_somebody_else_comes_between_two_slices() -> None:
    rig = Rig()
    heard = listeners(rig)
    append(rig, *[bytes(1)] * 64)
    until_somebody_hears(rig, heard)
    served: list[int] = []
    rig.world.loop.call_soon(lambda: served.append(sum(one.calls for one in heard)))
    turns_of(rig)
    assert served[0] <= 2 * SLICE_MS, "it did not wait for all of them"


def test_flushes_do_not_overtake_and_subscribers_are_told_of_several_at_once() -> None:
    rig = Rig()
    heard = listeners(rig)
    numbers = iter(range(1000))
    sent = []
    for _ in range(10):
        sent.append(b"%d" % next(numbers))
        append(rig, sent[-1], *[b"x"] * 64)
        for _ in range(3):               # the log is quicker than those who listen
            step(rig)
    turns = turns_of(rig)
    assert max(turns) <= SLICE_MS
    assert all([value for value in one.values if value != b"x"] == sent for one in heard)
    assert all(one.calls < len(sent) for one in heard), "what gathers meanwhile is handed over together"


def test_publishers_wait_while_flushes_wait_for_subscribers_and_go_on_afterwards() -> None:
    rig = Rig()
    listeners(rig, 10 * SUBSCRIBERS)
    relieved: list[bool] = []
    for number in range(MAX_WAITING + 4):
        append(rig, *[b"%d" % number] * 64)
        if rig.kernel.congested:
            break
        for _ in range(4):
            step(rig)
    assert rig.kernel.congested and not rig.kernel.deliveries.idle
    rig.kernel.on_relief(lambda: relieved.append(rig.kernel.congested))
    turns_of(rig)
    assert relieved == [False] and rig.kernel.deliveries.idle


def test_a_large_batch_of_a_producer_is_handed_over_in_portions() -> None:
    rig = Rig()
    topic = rig.kernel.create_topic("plant", partitions=1)
    heard = listeners(rig, 10)
    values = [b"%06d" % number + bytes(20) for number in range(OPEN_HERE_BYTES // 10)]
    rig.kernel.append_batch(topic.partition_id(0), batch_of([(b"a", value, ()) for value in values]), None)
    append(rig, b"behind")
    turns = turns_of(rig)
    assert max(turns) <= SLICE_MS + len(heard), "a last, small portion goes to some before the clock is read"
    for one in heard:
        assert [value for value in one.values if value != b"behind"] == values and b"behind" in one.values
        assert one.calls >= len(values) // PORTION


def test_who_leaves_in_between_hears_no_more_of_later_flushes_and_harms_nobody() -> None:
    rig = Rig()
    heard = listeners(rig)
    append(rig, *[b"1"] * 64)
    until_somebody_hears(rig, heard)
    leaving = [one for one in heard if not one.calls][::2]
    for one in leaving:
        rig.kernel.unsubscribe("plant/#", one)
    append(rig, b"2")
    turns_of(rig)
    assert all(b"2" not in one.values for one in leaving)
    assert all(one.values == [*[b"1"] * 64, b"2"] for one in heard if one not in leaving)


def test_a_failing_work_is_told_of_and_the_next_one_runs() -> None:
    loop, errors, done = FakeLoop(), [], []
    slices = Slices(loop, errors.append)

    def failing():
        yield
        raise ValueError("a mistake")

    slices.run(failing(), lambda: done.append(1))
    assert done == [1] and len(errors) == 1 and not slices.busy
    slices.run(iter((None,)), lambda: done.append(2))
    assert done == [1, 2]
