"""A link between two hubs through a meeting point, all on this machine, beside one door alone.

    python -m bench.relay [--n 300000] [--bytes 100 1000] [--rounds 4]

    one door    Kafka: a producer's messages, all acknowledged (`acks=all`, fdatasync)
    backlog     the same messages lie in A, and the link is resumed: until B has them all on its disk
    latency     single messages published to A over HTTP every 20 ms, until a long poll of B has each
    fairness    the same beside a backlog of another topic that goes over the link, in turn with it alone: what else the
                machine does meets both (aim: p99 at most doubled)

Processor time is that of both hubs and the meeting point together, for each message.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from bench.servers import ROOT, Server, ServerFailed, free_ports, start_hub, work_folder

DEADLINE_S: Final = 600.0
REST_S: Final = 60.0                   # a backlog of which nothing more comes for so long has come to a stop
ASK_S: Final = 30.0                    # for an answer of a hub
EVERY_S: Final = 0.02                  # between single messages
LOOK_S: Final = 0.1                    # between two looks at what is stored: each takes a hub some ms
LOOK_EACH: Final = 10                  # of so many single messages
DOORS: Final = ("http", "kafka")


def ask(hub: Server, method: str, path: str, document: Any = None, body: bytes | None = None) -> Any:
    data = body if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.ports['http']}{path}", data=data, method=method)
    if document is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=ASK_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def start_relay(folder: Path, port: int, hubs: list[Server]) -> Server:
    """The meeting point between these."""
    folder.mkdir()
    tables = [f'[relay]\nname = "127.0.0.1"\nlisten = "127.0.0.1:{port}"\n']
    tables += [f'[[hubs]]\nname = "{number}"\nkeys = ["{ask(hub, "GET", "/v1/relay")["key"]}"]\n'
               for number, hub in enumerate(hubs)]
    tables.append('[[links]]\nhubs = ["0", "1"]\ntopics = ["*"]\n')
    (folder / "relay.toml").write_text("".join(tables))
    with (folder / "relay.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-m", "gatehouse.cli", "relay", "serve", "--config",
                                  str(folder / "relay.toml")], cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
    assert child.stdout is not None
    with child.stdout as output:
        for line in output:
            if line == b"gatehouse relay ready\n":
                return Server("relay", child, folder, {"relay": port})
    raise ServerFailed("the meeting point did not start")


def start_all(folder: Path) -> tuple[Server, Server, Server]:
    """A, B and the meeting point, joined."""
    port, = free_ports(1)
    link = f'[relay]\nurl = "ws://127.0.0.1:{port}/v1/relay"\n[[relay.links]]\nname = "link"\n'
    started: list[Server] = []
    try:
        for name, says in (("a", 'send = ["#"]\n'), ("b", 'receive = ["#"]\n')):
            started.append(start_hub(folder / name, doors=DOORS, more=link + says))
        a, b = started
        started.append(relay := start_relay(folder / "relay", port, [a, b]))
        ask(b, "POST", "/v1/relay/join", ask(a, "POST", "/v1/relay/links/link/invite", {}))
        until(lambda: ask(a, "GET", "/v1/relay/links/link")["state"] == "open")
    except BaseException:
        for server in started:
            server.stop()
        raise
    return a, b, relay


def until(true: Any) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > end_s:
            raise ServerFailed("the link does not come to its end")
        time.sleep(0.02)


def stored(hub: Server, topic: str) -> int:
    """How many messages of a topic a hub has on its disk."""
    try:
        bounds = ask(hub, "GET", f"/v1/topics/{topic}")["bounds"]
    except urllib.error.HTTPError:
        return 0
    return sum(bound["high_watermark"] for bound in bounds)


def until_stored(servers: tuple[Server, Server, Server], topic: str, count: int) -> None:
    """Wait until B has so many messages of a topic. Raises ServerFailed, with what both hubs say of the link, where
    nothing more comes; and where A has others than these."""
    a, b, _ = servers
    if stored(a, topic) != count:
        raise ServerFailed(f"A has {stored(a, topic)} messages of {topic}, and not {count}")
    before, since_s = -1, time.monotonic()
    while (now := stored(b, topic)) != count:
        if now != before:
            before, since_s = now, time.monotonic()
        elif time.monotonic() > since_s + REST_S:
            said = [json.dumps(ask(hub, "GET", "/v1/relay")) for hub in (a, b)]
            said += [log.read_text(errors="replace")[-2_000:] for server in servers
                     for log in server.folder.glob("*.log")]
            raise ServerFailed(f"B has {now} of {count} messages:\n" + "\n".join(said))
        time.sleep(LOOK_S)


def produce(hub: Server, topic: str, count: int, size: int) -> float:
    """Seconds until all of them are acknowledged. Raises ServerFailed where some are not."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{hub.ports['kafka']}", "linger.ms": 5, "acks": "all",
                         "queue.buffering.max.messages": count + 1, "queue.buffering.max.kbytes": 2_000_000})
    value = bytes(size)
    began_s = time.monotonic()
    for number in range(count):
        producer.produce(topic, value, b"key %d" % (number % 1000))
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(DEADLINE_S):
        raise ServerFailed(f"{left} messages were not acknowledged")
    return time.monotonic() - began_s


def cpu_s(*servers: Server) -> float:
    return sum(server.cpu().user_s + server.cpu().system_s for server in servers)


def measure_backlog(servers: tuple[Server, Server, Server], count: int, size: int) -> None:
    a, b, _ = servers
    topic = f"bulk{size}"
    ask(a, "POST", "/v1/relay/links/link/pause", {})
    before_s = cpu_s(a)
    alone_s = produce(a, topic, count, size)
    alone_cpu_s = cpu_s(a) - before_s
    before_s = cpu_s(*servers)
    began_s = time.monotonic()
    ask(a, "POST", "/v1/relay/links/link/resume", {})
    until_stored(servers, topic, count)
    link_s = time.monotonic() - began_s
    link_cpu_s = cpu_s(*servers) - before_s
    for name, took_s, used_s in (("one door (Kafka)", alone_s, alone_cpu_s), ("through the link", link_s, link_cpu_s)):
        print(f"| {size} bytes, {name} | {count / took_s:,.0f} | {count * size / took_s / 1e6:.1f} | "
              f"{used_s / count * 1e6:.1f} |", flush=True)
    print(f"| {size} bytes, ratio | {alone_s / link_s:.2f} | | |", flush=True)


def latency(servers: tuple[Server, Server, Server], goes_on: Callable[[int], bool]) -> tuple[list[float], list[float]]:
    """Seconds of each message, and of its POST alone."""
    a, b, _ = servers
    sent: dict[str, float] = {}
    waits: list[float] = []
    before = stored(b, "slow")
    ask(a, "POST", "/v1/publish/slow/x", body=b"first")
    until(lambda: stored(b, "slow") == before + 1)
    cursor = ask(b, "GET", "/v1/topics/slow/messages?from=latest&wait=0")["cursor"]
    done = threading.Event()

    def read() -> None:
        nonlocal cursor
        while not done.is_set() or len(waits) < len(sent):
            page = ask(b, "GET", f"/v1/topics/slow/messages?cursor={cursor}&wait=1")
            now_s = time.monotonic()
            waits.extend(now_s - sent[message["value"]] for message in page["messages"] if message["value"] in sent)
            cursor = page["cursor"]

    reader = threading.Thread(target=read)
    reader.start()
    posts: list[float] = []
    number = 0
    while goes_on(number):
        number += 1
        sent[str(number)] = began_s = time.monotonic()
        ask(a, "POST", "/v1/publish/slow/x", body=b"%d" % number)
        posts.append(time.monotonic() - began_s)
        time.sleep(max(EVERY_S - posts[-1], 0))
    done.set()
    reader.join()
    return waits, posts


class Times(NamedTuple):
    """Of single messages, in seconds."""

    waits: list[float]
    posts: list[float]

    def show(self) -> str:
        return (f"{len(self.waits)} messages, p50 {median(self.waits) * 1000:.1f} ms, p90 "
                f"{centile_ms(self.waits, 90):.1f}, p99 {centile_ms(self.waits, 99):.1f}, longest "
                f"{max(self.waits) * 1000:.1f}; their POST alone p50 "
                f"{median(self.posts) * 1000:.1f} ms, p99 {centile_ms(self.posts, 99):.1f}")


def centile_ms(waits: list[float], of: int) -> float:
    return quantiles(waits, n=100)[of - 1] * 1000


def measure_latency(servers: tuple[Server, Server, Server], seconds: float) -> Times:
    return Times(*latency(servers, lambda number: number < seconds / EVERY_S))


def measure_beside(servers: tuple[Server, Server, Server], count: int) -> Times:
    """Single messages while a backlog goes over the link."""
    a, b, _ = servers
    ask(a, "POST", "/v1/relay/links/link/pause", {})
    there = stored(b, "heavy")
    produce(a, "heavy", count, 1000)
    ask(a, "POST", "/v1/relay/links/link/resume", {})
    until(lambda: stored(b, "heavy") > there)
    return Times(*latency(servers, lambda number: number % LOOK_EACH > 0 or stored(b, "heavy") < there + count))


def measure_fairness(servers: tuple[Server, Server, Server], seconds: float, count: int, rounds: int) -> None:
    alone, beside = Times([], []), Times([], [])
    for _ in range(rounds):
        for times, more in ((alone, measure_latency(servers, seconds)), (beside, measure_beside(servers, count))):
            times.waits.extend(more.waits)
            times.posts.extend(more.posts)
            print("alone: " if times is alone else "beside:", more.show(), flush=True)
    print(f"\nalone: {alone.show()}\nbeside a backlog of 1,000-byte messages: {beside.show()}")
    for name, of in (("p50", 50), ("p90", 90), ("p99", 99)):
        print(f"{name} {centile_ms(beside.waits, of) / centile_ms(alone.waits, of):.2f} times", end="; ")
    print("aim: p99 at most 2")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--latency-s", type=float, default=5.0, help="of each round, of latency alone")
    parser.add_argument("--heavy", type=int, default=600_000, help="messages of the backlog beside, in each round: "
                        "fewer are over before there are enough single ones for a p99")
    parser.add_argument("--rounds", type=int, default=4, help="of latency alone and beside a backlog; 0: neither")
    parser.add_argument("--folder", type=Path, help="where the hubs' data lies, instead of build/: a folder in memory "
                        "shows what the hubs and the processors do, where others use the disk")
    options = parser.parse_args()
    with work_folder(options.folder) as folder:
        servers = start_all(folder)
        try:
            print("| messages of | msg/s | MB/s | processor µs a message |\n| --- | ---: | ---: | ---: |")
            for size in options.bytes:
                measure_backlog(servers, options.n, size)
            if options.rounds:
                measure_fairness(servers, options.latency_s, options.heavy, options.rounds)
        finally:
            for server in servers:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
