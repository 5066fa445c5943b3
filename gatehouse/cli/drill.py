"""`gatehouse drill`: has a hub be in trouble, and reports what a client saw of it before, meanwhile and afterwards.

A probe of its own publishes numbered messages at an even rate and reads them back all the time. At the end everything
that was acknowledged must have been read.
"""
from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import Counter
from collections.abc import Callable
from secrets import token_hex
from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.cli.hub_option import dialling, hub_options, refusal
from gatehouse.cli.tables import show, table
from gatehouse.exits import Refused
from gatehouse_client.errors import HubError
from gatehouse_client.sync import SyncClient

PHASES: Final = ("before", "meanwhile", "afterwards")
CALM_S: Final = 3.0                # before a drill and after it
BACK_S: Final = 60.0               # a killed hub is waited for: somebody has to start it again
DRAIN_S: Final = 30.0              # for what is on its way at the end
ANSWERED_S: Final = 1.0            # the hub answers that it will be killed, and is, within this time
AGAIN_S: Final = 0.1               # until a reader that was cut off reads again


class Probe:
    """Publishes to one topic and reads it; `dial` makes a client."""

    def __init__(self, dial: Callable[[], SyncClient], topic: str, every_s: float) -> None:
        self.phase = 0
        self.errors: Counter[str] = Counter()
        self.repeated = 0
        self._dial = dial
        self._topic = topic
        self._every_s = every_s
        self._run = token_hex(4)
        self._began: list[tuple[int, float]] = []                # (phase, when) by number
        self._acked_s: dict[int, float] = {}                     # how long each took, of those that were acknowledged
        self._read_s: dict[int, float] = {}                      # the same until it was read
        self._ends = threading.Event()
        self._read_all = threading.Event()
        self._client = dial()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._publish, self._read)]

    def start(self) -> None:
        """Begin to publish and to read."""
        self._client.publish(topic=self._topic, value=f"{self._run} -1")         # makes the topic
        for thread in self._threads:
            thread.start()

    def acknowledged_since(self, when_s: float) -> bool:
        """Whether a message was acknowledged that was published since then."""
        return any(number in self._acked_s for number, (_, began_s) in enumerate(list(self._began)) if began_s > when_s)

    def finish(self) -> None:
        """Publish no more, and read the rest."""
        self._ends.set()
        self._threads[0].join()
        deadline_s = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline_s and not self._is_whole():
            time.sleep(0.02)
        self._read_all.set()

    def _is_whole(self) -> bool:
        return len(self._acked_s) + sum(self.errors.values()) >= len(self._began) and not self.lost

    @property
    def lost(self) -> list[int]:
        """What was acknowledged and never read."""
        return sorted(self._acked_s.keys() - self._read_s.keys())

    def _publish(self) -> None:
        due_s = time.monotonic()
        while not self._ends.is_set():
            number = len(self._began)
            self._began.append((self.phase, time.monotonic()))
            outcome = self._client.submit(topic=self._topic, value=f"{self._run} {number}")
            outcome.add_done_callback(lambda done, number=number: self._on_done(number, done))     # type: ignore[misc]
            due_s = max(due_s + self._every_s, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _on_done(self, number: int, outcome: concurrent.futures.Future[Any]) -> None:
        error = outcome.exception()
        if error is None:
            self._acked_s[number] = time.monotonic() - self._began[number][1]
        else:
            self.errors[getattr(error, "code", "") or type(error).__name__] += 1

    def _read(self) -> None:
        while not self._read_all.is_set():
            try:
                with self._dial() as client:
                    for message in client.read(self._topic, "earliest", follow=True):
                        self._on_message(bytes(message.value or b"").decode())
                        if self._read_all.is_set():
                            return
            except (HubError, OSError):
                time.sleep(AGAIN_S)

    def _on_message(self, text: str) -> None:
        run, _, number = text.partition(" ")
        if run == self._run and int(number) >= 0:
            self.repeated += int(number) in self._read_s
            self._read_s.setdefault(int(number), time.monotonic() - self._began[int(number)][1])

    def describe(self) -> list[dict[str, Any]]:
        """What was seen, by phase."""
        return [self._describe_phase(phase) for phase in range(len(PHASES))]

    def _describe_phase(self, phase: int) -> dict[str, Any]:
        numbers = [number for number, (of, _) in enumerate(self._began) if of == phase]
        acked_ms = sorted(self._acked_s[number] * 1000 for number in numbers if number in self._acked_s)
        read_ms = sorted(self._read_s[number] * 1000 for number in numbers if number in self._read_s)
        return {"phase": PHASES[phase], "published": len(numbers), "acknowledged": len(acked_ms),
                "p50_ms": share_of(acked_ms, 0.5), "p99_ms": share_of(acked_ms, 0.99),
                "longest_ms": share_of(acked_ms, 1.0), "read": len(read_ms), "read_p99_ms": share_of(read_ms, 0.99)}


def share_of(sorted_ms: list[float], share: float) -> float | None:
    """The time within which this share of them is; None of none."""
    return round(sorted_ms[min(len(sorted_ms) - 1, int(len(sorted_ms) * share))], 2) if sorted_ms else None


@click.command()
@click.argument("drill", type=click.Choice(["held-disk", "full-memory", "killed-hub", "lost-link"]))
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=5.0, show_default=True,
              help="How long; of a killed hub it says nothing.")
@click.option("--topic", default="gatehouse-drill", show_default=True, help="Where the probe publishes.")
@click.option("--every-ms", type=click.FloatRange(1, 10_000), default=20.0, show_default=True,
              help="Between two messages of the probe.")
@hub_options
def drill(drill: str, seconds: float, topic: str, every_ms: float, url: str, json_wanted: bool) -> int:
    """Have a hub be in trouble, and report what clients see.

    The hub must be told to allow it (hub.allow_drills). held-disk: nothing reaches the disk. full-memory: all of
    hub.memory_bytes is in use. killed-hub: kill -9; whatever starts it again is waited for, a minute at most.
    lost-link: the meeting point of links is out of reach; the hub itself goes on.

    A probe publishes and reads all the time. Exit code 1 where something was lost that had been acknowledged.
    """
    dial = dialling(url)
    probe = Probe(dial, topic, every_ms / 1000)
    try:
        probe.start()
        time.sleep(CALM_S)
        began_s = time.monotonic()
        probe.phase = 1
        with dial() as hub:
            hub.request("POST", "/v1/drills", {"drill": drill.replace("-", "_"), "seconds": seconds})
    except HubError as error:
        raise refusal(error) from None
    if drill == "killed-hub":
        time.sleep(ANSWERED_S)
        seconds = _back(probe, time.monotonic()) - began_s
    else:
        time.sleep(seconds)
    probe.phase = 2
    time.sleep(CALM_S)
    probe.finish()
    phases = probe.describe()
    report = {"drill": drill, "seconds": round(seconds, 1), "phases": phases, "errors": dict(probe.errors),
              "lost": len(probe.lost), "read_again": probe.repeated}
    columns = list(phases[0])
    lines = [f"{drill} for {seconds:.1f} s", table([name.replace("_", " ") for name in columns],
                                                   [["-" if row[name] is None else row[name] for name in columns]
                                                    for row in phases]),
             f"refused or not known: {sum(probe.errors.values())} {dict(probe.errors) or ''}".rstrip(),
             f"acknowledged and lost: {len(probe.lost)}"]
    show(report, "\n".join(lines), json_wanted)
    return exits.FAILED if probe.lost else exits.OK


def _back(probe: Probe, killed_s: float) -> float:
    """When a message was acknowledged again. Raises Refused."""
    while time.monotonic() < killed_s + BACK_S:
        if probe.acknowledged_since(killed_s):
            return time.monotonic()
        time.sleep(0.05)
    raise Refused(f"the hub did not come back within {BACK_S:.0f} s: who starts it again?", exits.FAILED)
