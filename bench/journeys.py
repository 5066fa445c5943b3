"""What journeys cost: processor time of a message with tracing off, at 1 % and at 100 %, in one run.

    python -m bench.journeys

A kernel in a world of one thread, with its log in memory: bursts of 100 messages are appended, taken by a leased group
and acked. What is shown is the processor's time per message and its ratio to `off`; and what an event takes in the log.
"""
from __future__ import annotations

import time
from typing import Any

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import JourneySettings
from tests.kernel.rig import Rig

BURSTS, BURST, ROUNDS = 100, 100, 7
CASES: dict[str, JourneySettings | None] = {
    "off": None, "0 %": JourneySettings(rate=0.0),
    "1 %": JourneySettings(rate=0.01, followed_per_second=1_000_000),
    "100 %": JourneySettings(rate=1.0, followed_per_second=1_000_000)}


class Case:
    """A kernel with a topic, a group over it, and a member that acks."""

    def __init__(self, journeys: JourneySettings | None, *, rejects: bool = False, **more: Any) -> None:
        self.hub = Rig(routes=Routes((), ROUTES), journeys=journeys, **more)
        self.rejects = rejects
        self.hub.kernel.create_topic("orders", partitions=4)
        topic = self.hub.kernel.topic("orders")
        assert topic is not None
        self.group = self.hub.kernel.groups.over("work", topic)
        self.placement = self.hub.kernel.place("orders/7")
        self.headers = encode_headers([(b"content-type", b"text/plain")])
        self.member = self.group.join(self, 1_000)

    def on_leased(self, messages: list[Leased]) -> None:
        handles = [message[:3] for message in messages]
        if self.rejects:
            self.group.reject(handles)
        else:
            self.group.ack(handles, lazily=True)
        self.member.add_credit(len(messages))

    def on_gone(self) -> None:
        """Not here."""

    def publish(self, count: int = BURST) -> list[tuple[int, int, int]]:
        """A burst; where each went."""
        append: Any = self.hub.kernel.append
        append([(self.placement, b"x" * 100, self.headers, 2, 0) for _ in range(count)], self.hub.witness,
               positions=True)
        self.hub.world.run()
        return self.hub.witness.stored.pop().positions

    def publish_alone(self, first: int, count: int = BURST) -> list[tuple[int, int, int]]:
        """A burst of messages each of which has a correlation id, so that each is told of alone."""
        append: Any = self.hub.kernel.append
        append([(self.placement, b"x" * 100, encode_headers([(b"correlation-id", b"%d" % number)]), 2, 0)
                for number in range(first, first + count)], self.hub.witness, positions=True)
        self.hub.world.run()
        return self.hub.witness.stored.pop().positions

    def run(self) -> float:
        """Processor time of a message, in microseconds."""
        append: Any = self.hub.kernel.append
        begun = time.process_time()
        for _ in range(BURSTS):
            append([(self.placement, b"x" * 100, self.headers, 2, 0) for _ in range(BURST)], None)
            self.hub.world.run()
            self.hub.world.advance(1)
        self.hub.world.advance(1_000)
        return (time.process_time() - begun) / (BURSTS * BURST) * 1e6


def main() -> None:
    """Rounds of all cases in turn; the fastest of each counts."""
    cases = {name: Case(settings) for name, settings in CASES.items()}
    fastest = dict.fromkeys(cases, 1e9)
    for _ in range(ROUNDS):
        for name, case in cases.items():
            fastest[name] = min(fastest[name], case.run())
    for name, took in fastest.items():
        print(f"{name:>6}  {took:6.2f} us a message  {took / fastest['off']:5.2f} of off")
    everything, nothing = cases["100 %"].hub.kernel, cases["0 %"].hub.kernel
    events = everything.statistics()["journey_events_total"]
    more = everything.statistics()["log_bytes"] - nothing.statistics()["log_bytes"]
    print(f"{events} events, {more / events:.0f} bytes of log each, with the trace header of their messages")


if __name__ == "__main__":
    main()
