"""What a limit holds: far more than it allows is offered by four doors at once, while somebody else publishes calmly.

    python -m bench.limits_hold [--seconds 60] [--rate 2000] [--short] [--rounds 1]
    python -m bench.limits_hold --dimensions [--seconds 10]

The topic `load` has the limit; pipes of MQTT and Kafka offer as much as they can, AMQP and HTTP two and a half times
the limit each. Told are how much was taken in a second (aim: within 5 % of the limit over 10 s), how the hub's memory
grew (aim: not), the p99 of a client that publishes to another topic with QoS 1, alone, beside the same load on another
hub, which is what the machine is short of, and beside it on this one (aim: twice as much at most), and turns of the
hub's loop that took more than 10 ms (aim: none). With `--dimensions` each kind of limit has
a hub of its own, in and out, and told is how much was charged to it.
"""
from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench.cold_replay import long_turns
from bench.guard import DOORS, Options
from bench.measure import LOAD, MeasureFailed, run_load
from bench.servers import ROOT, Server, start_hub, work_folder

PIPES: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2, "topic": "load/a"}), ("kafka", "kafka-pipe", {"topic": "load"}))
PACED: Final = ("amqp", "http")
TIMES: Final = 2.5                       # the limit, from each of these
DIMENSIONS: Final = (("in", ("hub", "tenant:/", "user:anonymous", "topic:load", "address:load/#")),
                     ("out", ("hub", "tenant:/", "user:anonymous", "topic:load", "address:load/#")))
SETTLE_S: Final = 5.0
CALM_S: Final = 0.005
MANY: Final = 100_000_000


def ask(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def taken(server: Server) -> tuple[float, int]:
    """When, and how many messages were charged to the limit until then."""
    document: dict[str, Any] = json.loads(ask(server, "/v1/limits/file-1"))
    return time.monotonic(), sum(used["messages"] for used in document["used"])


def publish_calmly(server: Server, seconds: float) -> float:
    """The p99 in ms of a QoS 1 publish and its acknowledgement, one in flight."""
    with socket.create_connection(("127.0.0.1", server.ports["mqtt"])) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(b"\x10\x10\0\4MQTT\4\2\0\0\0\4calm")
        wire.recv(4)
        took_ms: list[float] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            wire.sendall(b"\x32\x0b\0\6calm/a\0\1x")
            wire.recv(4)
            took_ms.append((time.monotonic() - began_s) * 1000)
            time.sleep(CALM_S)
    return quantiles(took_ms, n=100)[98]


def pipe(server: Server, door: str, mode: str, options: Options) -> None:
    """Publish until the hub is gone."""
    try:
        run_load(LOAD, server, door, mode, **{**options, "n": MANY})
    except (FileNotFoundError, MeasureFailed):       # the hub, whose processor time is asked for, has ended
        return


def offer(server: Server, rate: int, seconds: float) -> list[subprocess.Popen[str]]:
    """Load on all four doors from here on, for as long as the hub is there; AMQP and HTTP for so long."""
    for one in PIPES:
        threading.Thread(target=pipe, args=(server, *one), daemon=True).start()
    return [subprocess.Popen([sys.executable, "-m", "bench.offered", door, "--port", str(server.ports[door]),
                              "--rate", str(int(rate * TIMES)), "--seconds", str(seconds)],
                             cwd=ROOT, stdout=subprocess.PIPE, text=True) for door in PACED]


def limited(folder: Path, of: str, rate: int, direction: str = "in") -> Server:
    """A hub with one limit. Raises ServerFailed."""
    return start_hub(folder, doors=DOORS, more=f'[[limits]]\nof = "{of}"\ndirection = "{direction}"\n'
                                               f'messages_per_s = {rate}\n')


def beside_another(folder: Path, server: Server, rate: int, seconds: float) -> float:
    """The p99 of who publishes calmly while another hub is offered as much."""
    other = limited(folder / "other", "topic:load", rate)
    try:
        paced = offer(other, rate, SETTLE_S + seconds)
        time.sleep(SETTLE_S)
        return publish_calmly(server, seconds)
    finally:
        for door in paced:
            door.kill()
            door.wait()
        other.stop()


def hold(folder: Path, rate: int, seconds: float) -> None:
    """One line about the topic's limit."""
    folder.mkdir()
    server = limited(folder / "hub", "topic:load", rate)
    try:
        alone_ms = publish_calmly(server, seconds)
        another_ms = beside_another(folder, server, rate, seconds)
        turns_alone = long_turns(server)
        paced = offer(server, rate, SETTLE_S + seconds + 2)
        time.sleep(SETTLE_S)
        memory_bytes, (began_s, before), turns = server.resident_bytes(), taken(server), long_turns(server)
        beside_ms = publish_calmly(server, seconds)
        ended_s, after = taken(server)
        print(f"limit {rate:,}/s, taken {(after - before) / (ended_s - began_s):,.0f}/s; memory "
              f"{memory_bytes >> 20} -> {server.resident_bytes() >> 20} MiB; another's p99 {alone_ms:.1f} ms alone, "
              f"{another_ms:.1f} beside another hub, {beside_ms:.1f} beside; turns over 10 ms: {turns_alone} alone, "
              f"{long_turns(server) - turns} beside", flush=True)
        print("; ".join(f"{door.communicate()[0].strip()}" for door in paced), flush=True)
    finally:
        server.stop()


def dimension(folder: Path, direction: str, of: str, rate: int, seconds: float) -> None:
    """One line about one kind of limit. Beside the pipes' own readers nobody is given anything."""
    server = limited(folder / f"{direction}-{of.partition(':')[0]}", of, rate, direction)
    try:
        paced = offer(server, rate, SETTLE_S + seconds + 2)
        time.sleep(SETTLE_S)
        began_s, before = taken(server)
        time.sleep(seconds)
        ended_s, after = taken(server)
        each_s = (after - before) / (ended_s - began_s)
        print(f"{direction:3} {of:16} {each_s:8,.0f}/s of {rate:,}: {each_s / rate - 1:+.1%}", flush=True)
    finally:
        for door in paced:
            door.kill()
            door.wait()
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None, help="60; of each dimension 10")
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--short", action="store_true", help="six seconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dimensions", action="store_true")
    options = parser.parse_args()
    seconds = options.seconds or (6.0 if options.short else 10.0 if options.dimensions else 60.0)
    with work_folder() as folder:
        if not options.dimensions:
            for number in range(options.rounds):
                hold(folder / str(number), options.rate, seconds)
            return
        for direction, kinds in DIMENSIONS:
            for of in kinds:
                dimension(folder, direction, of, options.rate, seconds)


if __name__ == "__main__":
    main()
