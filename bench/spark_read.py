"""Spark reading the hub in bulk, beside Spark's own Kafka connector reading the hub's Kafka door and Apache Kafka.

    python -m bench.spark_read [--rows 10000000] [--rounds 3] [--master 'local[2]'] [--no-kafka] [--seconds 20]
    python -m bench.spark_read --live [--rows 2000000] [--seconds 10]      the last of it alone, some two minutes

The same batches (see `spark_topic`) are in all of them. A batch sums the lengths of all values; a stream writes all
values nowhere, in one micro-batch. Processor time is of all processors that take part: on a machine with other work it
says more than seconds. Every run is checked to have seen every row. The first round is not counted. Then the sink, with
rows made by Spark: their making is counted too. Last, what live MQTT publishers feel while Spark reads without a pause:
send to PUBACK at a fixed rate, alone, at a hub that Spark does not read (what the machine is short of), and at the one
that it reads. The p99 at the one that it reads is to be 1.5 times that at the other at most, and no turn of its loop
longer than 10 ms.
"""
from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession

from bench import spark_topic
from bench.apache_kafka import create_topic, start_kafka
from bench.cold_replay import long_turns
from bench.measure import LOAD, measure_rate, median_spread, table
from bench.servers import Server, start_hub, work_folder
from bench.spark_session import fetch_connector, start_session
from gatehouse.spark.fetching import ReadSpec, pages
from gatehouse.spark.hub import Hub, HubAddress
from gatehouse.spark.options import Subscription
from gatehouse.spark.plan import Range
from gatehouse.spark.positions import Positions

LIVE_RATE: Final = 10_000
SINK_ROWS: Final = 2_000_000


class Case:
    """One way to read the rows."""

    def __init__(self, name: str, server: Server, options: dict[str, str], format: str) -> None:
        self.name = name
        self.server = server
        self.options = options
        self.format = format


def hub_case(name: str, hub: Server, columns: str) -> Case:
    options = {"url": url_of(hub), "subscribe": spark_topic.TOPIC}
    return Case(name, hub, {**options, "columns": columns} if columns else options, "gatehouse")


def kafka_case(name: str, server: Server) -> Case:
    return Case(name, server, {"kafka.bootstrap.servers": f"127.0.0.1:{server.ports['kafka']}",
                               "subscribe": spark_topic.TOPIC}, "kafka")


def url_of(hub: Server) -> str:
    return f"http://127.0.0.1:{hub.ports['http']}"


def read_batch(session: SparkSession, case: Case, rows: int) -> None:
    frame = session.read.format(case.format).options(**case.options, startingOffsets="earliest").load()
    (seen,) = frame.selectExpr("count(*) n", "sum(length(value)) size").collect()
    if seen.n != rows:
        raise SystemExit(f"{case.name}: {seen.n} rows of {rows}")


def read_stream(session: SparkSession, case: Case, rows: int) -> None:
    frame: DataFrame = session.readStream.format(case.format).options(
        **case.options, startingOffsets="earliest").load().select("value")
    with tempfile.TemporaryDirectory(dir=case.server.folder) as checkpoint:
        query = (frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
                 .trigger(availableNow=True).start())
        query.awaitTermination()
        seen = sum(progress.numInputRows for progress in query.recentProgress)
    if seen != rows:
        raise SystemExit(f"{case.name}: {seen} rows of {rows}")


class Used(NamedTuple):
    """What one run took, in seconds."""

    seconds: float
    server_s: float          # of a processor
    spark_s: float           # of all processors: the JVM, its Python daemons and all their workers


def spark_cpu(python: bool) -> float:
    """Processor seconds of the JVM, and of Python's daemons and all workers that they ever had.

    Without Python where none is used: workers that have been idle for a minute are ended, and their times go away.
    """
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            words = child.cmdline()
            if "org.apache.spark.deploy.SparkSubmit" in words:
                total += sum(child.cpu_times()[:2])
            elif python and "pyspark.daemon" in words:
                total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue         # its daemon counts it from now on
    return total


def timed(server: Server, run: Callable[[], None], *, python: bool = True) -> Used:
    """Run it."""
    server_before, spark_before, began_s = server.cpu(), spark_cpu(python), time.perf_counter()
    run()
    seconds, used = time.perf_counter() - began_s, server.cpu().since(server_before)
    return Used(seconds, used.user_s + used.system_s, spark_cpu(python) - spark_before)


def compare(session: SparkSession, cases: list[Case], rows: int, rounds: int) -> list[list[str]]:
    """Rows of the table: medians over the rounds."""
    found: dict[str, list[Used]] = defaultdict(list)
    for _ in range(rounds + 1):
        for case in cases:
            for kind, read in (("batch", read_batch), ("stream", read_stream)):
                used = timed(case.server, lambda: read(session, case, rows), python=case.format != "kafka")  # noqa: B023
                found[f"{case.name}, {kind}"].append(used)
    lines = []
    for name, runs in found.items():
        seconds = median(run.seconds for run in runs[1:])
        lines.append([name, f"{rows / seconds:,.0f}", f"{seconds:.1f}", *per_row(runs[1:], rows)])
    return lines


def per_row(runs: list[Used], rows: int) -> list[str]:
    """µs a row of the server and of Spark."""
    return [f"{median(run.server_s for run in runs) / rows * 1e6:.2f}",
            f"{median(run.spark_s for run in runs) / rows * 1e6:.2f}"]


def wire_bytes(hub: Server) -> float:
    """What the bulk fetch sends per row."""
    address = HubAddress(url_of(hub))
    asking = Hub(address)
    (topic,) = Positions(asking, Subscription(topics=(spark_topic.TOPIC,))).bounds().values()
    asking.close()
    ranges = [Range(topic.name, topic.uuid, partition, 0, min(topic.ends[partition], 50_000))
              for partition in topic.partitions]
    pieces = [found for _, found in pages(ReadSpec(address, ()), ranges)]
    bodies = {id(one.body): len(one.body) for one in pieces}
    return sum(bodies.values()) / sum(int(one.count.sum()) for one in pieces)


def write_rows(session: SparkSession, hub: Server, number: int) -> None:
    frame = session.range(SINK_ROWS).selectExpr("concat('line', id % 1000, '/temp') key",
                                                "rpad(cast(id as string), 100, 'x') value")
    frame.write.format("gatehouse").options(url=url_of(hub), topic=f"written-{number}").mode("append").save()


def live(session: SparkSession, hub: Server, other: Server, case: Case, rows: int, seconds: float) -> list[list[str]]:
    """Send to PUBACK: alone, at another hub beside Spark, which tells what the machine is short of, and at this one."""
    p99: list[float] = []

    def measured(at: Server) -> list[str]:
        before = long_turns(at)
        spread = median_spread([measure_rate(LOAD, at, LIVE_RATE, seconds)["PUBACK"] for _ in range(3)])
        p99.append(spread.p99)
        against = f"{spread.p99 / p99[1]:.1f} x" if len(p99) == 3 else ""
        return [f"{spread.p50:.2f}", f"{spread.p99:.2f}", f"{spread.longest:.1f}", against,
                str(long_turns(at) - before)]

    alone = measured(hub)
    ended = threading.Event()

    def keep_reading() -> None:
        while not ended.is_set():
            read_batch(session, case, rows)

    thread = threading.Thread(target=keep_reading)
    thread.start()
    lines = [["alone", *alone], ["while Spark reads another hub", *measured(other)],
             ["while Spark reads this hub", *measured(hub)]]
    ended.set()
    thread.join()
    return lines


def measure(session: SparkSession, folder: Path, options: Any) -> None:
    rows: int = options.rows
    hub = start_hub(folder / "hub")
    kafka = None
    try:
        spark_topic.fill(hub.ports["kafka"], rows)
        cases = [hub_case("hub, value", hub, "value"), hub_case("hub, all 15 columns", hub, ""),
                 kafka_case("Kafka connector, hub's Kafka door", hub)]
        if not options.no_kafka:
            kafka = start_kafka(folder / "kafka")
            create_topic(kafka, spark_topic.TOPIC, spark_topic.PARTITIONS)
            spark_topic.fill(kafka.ports["kafka"], rows)
            cases.append(kafka_case("Kafka connector, Apache Kafka", kafka))
        lines = compare(session, cases, rows, options.rounds)
        head = [f"{rows:,} rows, {options.master}", "rows/s", "seconds", "server µs a row", "Spark µs a row"]
        print(table(head, lines))
        print(f"\nbytes on the wire, a row: {wire_bytes(hub):.1f}\n")
        if kafka is not None:
            kafka.stop()
            kafka = None
        runs = [timed(hub, lambda: write_rows(session, hub, number))  # noqa: B023
                for number in range(options.rounds + 1)][1:]
        rate = SINK_ROWS / median(run.seconds for run in runs)
        print(table(["sink", "rows/s", "hub µs a row", "Spark µs a row"],
                    [["100-byte values, keys", f"{rate:,.0f}", *per_row(runs, SINK_ROWS)]]))
        if options.seconds:
            tell_live(session, folder, hub, cases[0], options)
    finally:
        hub.stop()
        if kafka is not None:
            kafka.stop()


def tell_live(session: SparkSession, folder: Path, hub: Server, case: Case, options: Any) -> None:
    """What live publishers feel while Spark reads."""
    other = start_hub(folder / "other")
    try:
        lines = live(session, hub, other, case, options.rows, options.seconds)
    finally:
        other.stop()
    print("\n" + table([f"{LIVE_RATE:,} MQTT publishes a second, to PUBACK", "p50 ms", "p99 ms", "longest ms",
                        "p99 against another hub's (aim: 1.5 x)", "turns over 10 ms"], lines))


def measure_live(session: SparkSession, folder: Path, options: Any) -> None:
    """That alone."""
    hub = start_hub(folder / "hub")
    try:
        spark_topic.fill(hub.ports["kafka"], options.rows)
        case = hub_case("hub, value", hub, "value")
        read_batch(session, case, options.rows)
        tell_live(session, folder, hub, case, options)
    finally:
        hub.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seconds", type=float, default=20, help="of each live measurement; 0: none")
    parser.add_argument("--no-kafka", action="store_true", help="without Apache Kafka")
    parser.add_argument("--live", action="store_true", help="what live publishers feel, alone")
    options = parser.parse_args()
    session = start_session(options.master, [] if options.live else fetch_connector())
    try:
        with work_folder() as folder:
            (measure_live if options.live else measure)(session, folder, options)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
