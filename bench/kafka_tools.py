"""The Kafka door beside Apache Kafka 4 by Kafka's own tools: kafka-producer-perf-test, kafka-consumer-perf-test.

    python -m bench.kafka_tools [--n 2000000] [--partitions 16] [--rounds 3] [--flush]

Per round and server: produce as fast as the tool can, with its default batches; consume what was produced; produce
again at half of the hub's and of Kafka's lower peak, for the latency that then is. Kafka acknowledges what is in the
page cache; this hub what is on disk; `--flush` measures a Kafka that forces every batch to disk, too. A first round
that warms up both is not counted. The tools run in a JVM on the same processors.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from statistics import median
from typing import Final, NamedTuple

from bench.apache_kafka import VERSION, create_topic, start_kafka
from bench.measure import MeasureFailed, number, table
from bench.servers import Server, start_hub, work_folder
from scripts.stock_clients import java_client

RUN_S: Final = 300.0
SIZE: Final = 100
WARM_UP: Final = 200_000
LATENCY_S: Final = 5
PRODUCED: Final = re.compile(r"\d+ records sent, ([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th", re.DOTALL)


class Produced(NamedTuple):
    """What the producer's tool said in its last line."""

    per_s: float
    p50_ms: float
    p99_ms: float


def run_tool(tool: str, *arguments: str) -> str:
    """What a tool printed. Raises MeasureFailed."""
    command = ["java", "-Xmx512m", "-cp", f"{java_client(VERSION)}/*", f"org.apache.kafka.tools.{tool}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise MeasureFailed(f"{tool}: {done.stderr[-500:]}")
    return done.stdout


def produce(server: Server, topic: str, n: int, per_s: int) -> Produced:
    """`per_s` -1: as fast as it can."""
    said = run_tool("ProducerPerformance", "--topic", topic, "--num-records", str(n), "--record-size", str(SIZE),
                    "--throughput", str(per_s), "--producer-props",
                    f"bootstrap.servers=127.0.0.1:{server.ports['kafka']}", "acks=all")
    found = PRODUCED.search(said.strip().splitlines()[-1])
    if found is None:
        raise MeasureFailed(f"cannot read {said!r}")
    return Produced(*(float(group) for group in found.groups()))


def consume(server: Server, topic: str, n: int) -> float:
    """Messages a second, without the time to join the group."""
    said = run_tool("ConsumerPerformance", "--bootstrap-server", f"127.0.0.1:{server.ports['kafka']}", "--topic", topic,
                    "--messages", str(n), "--hide-header", "--timeout", "30000")
    fields = [field.strip() for field in said.strip().splitlines()[-1].split(",")]
    if len(fields) != 10 or number(fields[4]) < n:
        raise MeasureFailed(f"cannot read {said!r}")
    return number(fields[9])


class Found:
    """One server's rounds."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.produced: list[Produced] = []
        self.consumed: list[float] = []
        self.at_half: list[Produced] = []

    def row(self) -> list[str]:
        half = Produced(*[median(column) for column in zip(*self.at_half, strict=True)])
        return [self.server.name, f"{median(one.per_s for one in self.produced):,.0f}", f"{median(self.consumed):,.0f}",
                f"{half.per_s:,.0f}", f"{half.p50_ms:.0f}", f"{half.p99_ms:.0f}"]


def measure(servers: list[Server], options: argparse.Namespace) -> list[Found]:
    found = [Found(server) for server in servers]
    for server in servers:
        create_topic(server, "warm-up", options.partitions)
        produce(server, "warm-up", WARM_UP, -1)
        consume(server, "warm-up", WARM_UP)
    for turn in range(options.rounds):
        topic = f"run-{turn}"
        for one in found:
            create_topic(one.server, topic, options.partitions)
            one.produced.append(produce(one.server, topic, options.n, -1))
            one.consumed.append(consume(one.server, topic, options.n))
            print(f"{one.server.name}: produced {one.produced[-1].per_s:,.0f}, "
                  f"consumed {one.consumed[-1]:,.0f} a second", file=sys.stderr, flush=True)
        half = int(min(one.produced[-1].per_s for one in found[:2]) / 2)
        for one in found:
            one.at_half.append(produce(one.server, topic, half * LATENCY_S, half))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2_000_000, help="messages of a run")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flush", action="store_true", help="a Kafka that forces every batch to disk, too")
    options = parser.parse_args()
    with work_folder() as folder:
        servers: list[Server] = []
        try:
            servers.append(start_hub(folder / "hub", doors=("kafka",)))
            servers.append(start_kafka(folder / "kafka"))
            if options.flush:
                servers.append(start_kafka(folder / "kafka-flush", flush=True))
            rows = [one.row() for one in measure(servers, options)]
            print(table([f"{SIZE}-byte messages, {options.partitions} partitions", "produced/s", "consumed/s",
                         "at half of the peak/s", "p50, ms", "p99, ms"], rows), flush=True)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main()
