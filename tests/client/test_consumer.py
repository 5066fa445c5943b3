"""The consumer: what it acks, gives back, keeps alive, and how it stops. The hub is a list."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from gatehouse_client.consumer import Consumer, Reject, RetryLater
from gatehouse_client.errors import Conflict, HubError, LeaseLost, NotAuthorized, NotFound, OutcomeUnknown, Unavailable
from gatehouse_client.groups import Group, LeasedQueue
from gatehouse_client.message import Message
from gatehouse_client.settling import Settling

ETERNAL_S = 3600.0


def message(number: int) -> Message:
    return Message(str(number), "t", 0, number, None, str(number).encode(), (), "t", 0, "http",
                   receipt_handle=f"h{number}", attempt=1)


class FakeGroup(Group):
    """Hands out `count` messages once; remembers what it was told. `faults` are raised by the next calls of a name."""

    def __init__(self, count: int) -> None:
        self.name = "g"
        self.ready = [message(number) for number in range(count)]
        self.told: dict[str, list[Any]] = {"ack": [], "extend": [], "release": [], "reject": [], "pop": []}
        self.faults: dict[str, list[HubError]] = {}
        self.lost: set[str] = set()
        self.settings: dict[str, Any] | None = {"ordered": False}
        self.changed = asyncio.Event()

    def fail(self, call: str, *errors: HubError) -> None:
        self.faults[call] = list(errors)

    def _tell(self, call: str, *what: Any) -> None:
        self.changed.set()
        if self.faults.get(call):
            raise self.faults[call].pop(0)
        self.told[call] += what

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def pop(self, max: int, invisible_s: float, wait_s: float) -> list[Message]:
        self._tell("pop", max)
        if not self.ready:
            await asyncio.sleep(ETERNAL_S)
        taken, self.ready = self.ready[:max], self.ready[max:]
        return taken

    async def ack(self, handles: list[str]) -> list[HubError | None]:
        self._tell("ack", *handles)
        return self._results(handles)

    async def extend(self, handles: list[str], invisible_s: float) -> list[HubError | None]:
        self._tell("extend", *handles)
        return self._results(handles)

    async def release(self, handles: list[str], delay_s: float | None) -> list[HubError | None]:
        self._tell("release", *((handle, delay_s) for handle in handles))
        return self._results(handles)

    async def reject(self, handles: list[str]) -> list[HubError | None]:
        self._tell("reject", *handles)
        return self._results(handles)

    async def describe(self) -> dict[str, Any]:
        if self.settings is None:
            raise NotFound("no such group")
        return self.settings

    async def define(self, **settings: Any) -> dict[str, Any]:
        self.settings = settings
        return settings

    def _results(self, handles: list[str]) -> list[HubError | None]:
        return [LeaseLost("too late") if handle in self.lost else None for handle in handles]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()
    asyncio.run(bounded())


def consumer(group: FakeGroup, handler: Callable[[Any], Any], **options: Any) -> Consumer:
    return Consumer(group, handler, **options)


def handles(count: int) -> list[str]:
    return [f"h{number}" for number in range(count)]


def test_every_message_is_acked_and_no_more_run_at_once_than_allowed():
    async def test() -> None:
        group, running, most = FakeGroup(100), 0, 0

        async def handler(one: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        async with consumer(group, handler, concurrency=7) as running_consumer:
            await group.until(lambda: len(group.told["ack"]) == 100)
        assert sorted(group.told["ack"]) == sorted(handles(100))
        assert most == 7
        assert max(group.told["pop"]) == 7
        assert running_consumer.counts == {"running": 0, "acked": 100, "released": 0, "rejected": 0, "lost": 0}
        assert not group.told["release"]
    run(test)


def test_how_a_handler_ends_decides_what_becomes_of_its_message():
    async def test() -> None:
        group = FakeGroup(4)

        async def handler(one: Message) -> None:
            match one.text:
                case "1":
                    raise ValueError("broken")
                case "2":
                    raise RetryLater(5)
                case "3":
                    raise Reject("never")

        async with consumer(group, handler) as running:
            await group.until(lambda: sum(running.counts.values()) == 4 and not running.counts["running"])
        assert (group.told["ack"], group.told["reject"]) == (["h0"], ["h3"])
        assert sorted(group.told["release"]) == [("h1", None), ("h2", 5.0)]
        assert running.counts == {"running": 0, "acked": 1, "released": 2, "rejected": 1, "lost": 0}
    run(test)


def test_leases_of_what_runs_are_renewed_until_it_is_settled():
    async def test() -> None:
        group, go_on = FakeGroup(2), asyncio.Event()
        group.fail("extend", Unavailable("away"))

        async def handler(one: Message) -> None:
            if one.text == "1":
                await go_on.wait()

        async with consumer(group, handler, invisible_s=0.03):
            await group.until(lambda: group.told["extend"].count("h1") >= 3)
            go_on.set()
            await group.until(lambda: "h1" in group.told["ack"])
        assert group.told["extend"].count("h0") <= 1
    run(test)


def test_a_lease_that_was_lost_is_counted_and_not_renewed_again():
    async def test() -> None:
        group, go_on = FakeGroup(1), asyncio.Event()
        group.lost = {"h0"}
        async with consumer(group, lambda _: None, invisible_s=0.02) as quick:
            await group.until(lambda: quick.counts["lost"] == 1)
        assert quick.counts["acked"] == 0

        group = FakeGroup(0)
        group.lost = {"h0"}
        settling = Settling(group, 0.02, go_on.set)
        settling.hold("h0")
        settling.hold("h1")
        await group.until(lambda: group.told["extend"].count("h1") >= 3)
        assert group.told["extend"].count("h0") == 1
        settling.close()
    run(test)


def test_stopping_waits_for_what_runs():
    async def test() -> None:
        group, begun, go_on = FakeGroup(50), asyncio.Event(), asyncio.Event()

        async def handler(one: Message) -> None:
            begun.set()
            await go_on.wait()

        running = consumer(group, handler, concurrency=3)
        await running.start()
        await begun.wait()
        stopping = asyncio.create_task(running.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert len(group.told["ack"]) == 3
        assert len(group.ready) == 47
    run(test)


def test_what_does_not_end_in_time_is_given_back():
    async def test() -> None:
        group, begun = FakeGroup(1), asyncio.Event()

        async def handler(one: Message) -> None:
            begun.set()
            await asyncio.sleep(ETERNAL_S)

        running = consumer(group, handler)
        await running.start()
        await begun.wait()
        await running.stop(timeout_s=0.01)
        assert (group.told["release"], group.told["ack"]) == ([("h0", 0.0)], [])
    run(test)


def test_a_hub_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    async def test() -> None:
        group = FakeGroup(3)
        group.fail("pop", Unavailable("away"), OutcomeUnknown("lost"), NotFound("no topic yet", "unknown_topic"))
        group.fail("ack", OutcomeUnknown("lost"), Unavailable("away"))
        async with consumer(group, lambda _: None) as running:
            await group.until(lambda: running.counts["acked"] == 3)
        assert sorted(group.told["ack"]) == handles(3)
    no_pauses(monkeypatch)
    run(test)


def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    monkeypatch.setattr("gatehouse_client.retry.Retry.pause_s", lambda *_: 0.0)


def test_what_the_hub_refuses_for_good_ends_the_consumer():
    async def test() -> None:
        group = FakeGroup(0)
        group.fail("pop", NotAuthorized("not yours"))
        with pytest.raises(NotAuthorized):
            await consumer(group, lambda _: None).run()
        group = FakeGroup(1)
        group.fail("ack", NotFound("the group was deleted"))
        async with consumer(group, lambda _: None) as running:
            await group.until(lambda: running.counts["lost"] == 1)
    run(test)


def test_batches():
    async def test() -> None:
        group, sizes = FakeGroup(25), []

        async def handler(messages: list[Message]) -> None:
            sizes.append(len(messages))
            if messages[0].text == "10":
                raise ValueError("the second batch")

        async with consumer(group, handler, batch=10, concurrency=2):
            await group.until(lambda: len(group.told["ack"]) + len(group.told["release"]) == 25)
        assert sizes == [10, 10, 5]
        assert group.told["pop"][0] == 20
        assert [handle for handle, _ in group.told["release"]] == handles(20)[10:]
    run(test)


def test_a_plain_function_runs_in_threads_side_by_side():
    async def test() -> None:
        group, together = FakeGroup(4), threading.Barrier(4)
        async with consumer(group, lambda _: together.wait(60), concurrency=4):
            await group.until(lambda: len(group.told["ack"]) == 4)
    run(test)


def test_an_ordered_consumer_wants_an_ordered_group():
    async def test() -> None:
        group = FakeGroup(1)
        with pytest.raises(Conflict, match="is not ordered"):
            await consumer(group, lambda _: None, ordered=True).start()
        group.settings = None
        async with consumer(group, lambda _: None, ordered=True):
            await group.until(lambda: bool(group.told["ack"]))
        assert group.settings == {"ordered": True}
    run(test)


def test_a_queue_has_no_order_of_keys():
    with pytest.raises(ValueError, match="only a group"):
        Consumer(LeasedQueue(cast(Any, None), "queues", "q"), print, ordered=True)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"batch": 0}, {"invisible_s": 0}])
def test_options_that_cannot_be(options):
    with pytest.raises(ValueError, match="at least 1"):
        Consumer(cast(Group, None), print, **options)
