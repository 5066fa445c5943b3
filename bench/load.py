"""Load over raw sockets for MQTT, AMQP and Kafka servers, ours and others: what the comparisons here are made with.

    load.py mqtt-pipe  --port 1883 [--n 300000] [--size 100] [--qos 0|1] [--sub-qos 0|1] [--window 1000]
    load.py mqtt-many  --port 1883 [--connections 500] [--n 100000]
    load.py mqtt-rate  --port 1883 [--rate 20000] [--seconds 10]
    load.py mqtt-idle  --port 1883 [--connections 5000] [--seconds 5] [--pid SERVER]
    load.py amqp-pipe  --port 5672 [--n 100000] [--size 100] [--window 2000] [--queue-type classic|quorum]
    load.py amqp-many  --port 5672 [--connections 100] [--n 50000] [--queue-type classic|quorum]
    load.py http-many  --port 8080 [--connections 32] [--n 20000] [--size 100]
    load.py kafka-pipe --port 9092 [--n 1000000] [--batch 1000] [--partitions 16] [--topic load] [--acks -1]
                       [--no-session]

`pipe`: one writer with a window of messages (Kafka: requests) in flight, one reader; `many`: one message in flight on
each connection; `rate`: a fixed rate and how late its messages are; `idle`: memory of connections that do
nothing. Each prints one line, `rate` and `many` two. Loopback only; everything is bounded in messages and time. Exit
code 1 where messages are missing or the server failed. Compare two servers in turn, in one run: absolute figures drift
with the machine. With `--login USER:PASSWORD` every connection logs in, with `--tls CA` it speaks TLS.
"""
from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path

if not __package__:    # run as a file: the folder above is where `bench` is found
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import load_amqp, load_http, load_kafka, load_mqtt
from bench.load_pair import AUTHORITY, LOGIN, LoadFailed, Read, Written

MODES = ("mqtt-pipe", "mqtt-many", "mqtt-rate", "mqtt-idle", "amqp-pipe", "amqp-many", "kafka-pipe",
         "http-many")
DEFAULT_N = {"mqtt-pipe": 300_000, "mqtt-many": 100_000, "amqp-pipe": 100_000, "amqp-many": 50_000,
             "kafka-pipe": 1_000_000, "http-many": 20_000}
MQTT_WINDOW, AMQP_WINDOW, KAFKA_WINDOW = 1_000, 2_000, 8


def tell_pipe(label: str, size: int, n: int, read: Read, written: Written) -> int:
    """Print the one line of a pipe; returns the exit code."""
    wrote_s, took_s = written.ended_s - written.began_s, max(read.ended_s - written.began_s, 1e-9)
    mb = size / 1e6
    print(f"{label} size {size}: produced {n / wrote_s:,.0f} msg/s ({n * mb / wrote_s:,.1f} MB/s), "
          f"end to end {read.messages / took_s:,.0f} msg/s ({read.messages * mb / took_s:,.1f} MB/s), "
          f"received {read.messages} of {n}")
    return 0 if read.messages >= n else 1


def tell_spread(label: str, late_ns: list[int]) -> None:
    """Print how late messages were."""
    ordered = sorted(late_ns) or [0]
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1e6 for part in (0.5, 0.99))
    print(f"{label}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {ordered[-1] / 1e6:.2f} ms over {len(late_ns):,}")


def mqtt_pipe(options: argparse.Namespace) -> int:
    sub_qos = options.qos if options.sub_qos is None else options.sub_qos
    window = options.window or MQTT_WINDOW
    read, written = load_mqtt.run_pipe(options.port, options.topic, options.size, options.qos, sub_qos, options.n,
                                       window, options.linger)
    label = f"mqtt-pipe qos{options.qos}/{sub_qos} window {window}"
    return tell_pipe(label, options.size, options.n, read, written)


def mqtt_many(options: argparse.Namespace) -> int:
    many = load_mqtt.run_many(options.port, options.connections, options.size, options.n)
    print(f"connects {many.connects_per_s:,.0f}/s")
    print(f"mqtt-many {options.connections} connections qos1: {many.messages / many.took_s:,.0f} msg/s, "
          f"mean {options.connections * many.took_s / many.messages * 1e3:.2f} ms")
    return 0


def mqtt_rate(options: argparse.Namespace) -> int:
    acknowledged, delivered = load_mqtt.run_rate(options.port, options.topic, options.size, options.rate,
                                                 options.seconds)
    label = f"mqtt-rate {options.rate}/s size {options.size} publish to"
    tell_spread(f"{label} PUBACK", acknowledged)
    tell_spread(f"{label} delivery", delivered)
    return 0 if len(delivered) >= int(options.rate * options.seconds) else 1


def mqtt_idle(options: argparse.Namespace) -> int:
    connects_per_s, kib_each = load_mqtt.run_idle(options.port, options.connections, options.seconds, options.pid)
    memory = f", {kib_each:.1f} KiB resident each" if options.pid else ""
    print(f"mqtt-idle {options.connections} connections, {connects_per_s:,.0f} connects/s{memory}")
    return 0


def amqp_pipe(options: argparse.Namespace) -> int:
    run = load_amqp.Run(options.port, options.topic, options.queue_type, options.size, options.n,
                        options.window or AMQP_WINDOW)
    read, written = load_amqp.run_pipe(run)
    return tell_pipe(f"amqp-pipe {run.queue_type} window {run.window}", run.size, run.n, read, written)


def amqp_many(options: argparse.Namespace) -> int:
    run = load_amqp.Run(options.port, options.topic, options.queue_type, options.size, options.n, 1)
    messages, took_s = load_amqp.run_many(run, options.connections)
    print(f"amqp-many {options.connections} connections {run.queue_type}: {messages / took_s:,.0f} msg/s, "
          f"mean {options.connections * took_s / messages * 1e3:.2f} ms")
    return 0


def kafka_pipe(options: argparse.Namespace) -> int:
    run = load_kafka.Run(options.port, options.topic, options.partitions, options.batch, options.size, options.n,
                         options.acks, options.window or KAFKA_WINDOW, not options.no_session)
    read, written = load_kafka.run_pipe(run)
    label = f"kafka-pipe batch {run.batch} partitions {run.partitions} acks {run.acks}"
    return tell_pipe(label, run.size, run.batches * run.batch, read, written)


def http_many(options: argparse.Namespace) -> int:
    messages, took_s = load_http.run_many(options.port, options.connections, options.size, options.n)
    print(f"http-many {options.connections} connections: {messages / took_s:,.0f} msg/s, "
          f"mean {options.connections * took_s / messages * 1e3:.2f} ms")
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--n", type=int, help="messages")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message's value")
    parser.add_argument("--qos", type=int, choices=(0, 1), default=0)
    parser.add_argument("--sub-qos", type=int, choices=(0, 1), help="the reader's; as --qos unless given")
    parser.add_argument("--window", type=int, help="messages (MQTT, AMQP) or requests (Kafka) without an answer")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--topic", default="load", help="of AMQP the queue")
    parser.add_argument("--queue-type", choices=("classic", "quorum"), default="classic")
    parser.add_argument("--batch", type=int, default=1000, help="records of a Kafka batch")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--no-session", action="store_true", help="Kafka: list all partitions in each fetch")
    parser.add_argument("--acks", type=int, choices=(-1, 0, 1), default=-1)
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--linger", type=float, default=4, help="seconds an MQTT writer stays after its last message")
    parser.add_argument("--login", metavar="USER:PASSWORD", help="log in; else nobody does")
    parser.add_argument("--tls", metavar="CA", help="speak TLS with a server whose certificate this file stands for")
    parser.add_argument("--pid", type=int, help="process whose memory is read")
    options = parser.parse_args(arguments)
    options.n = options.n or DEFAULT_N.get(options.mode, 0)
    return options


def main() -> int:
    options = parse(sys.argv[1:])
    if options.login:
        os.environ[LOGIN] = options.login
    if options.tls:
        os.environ[AUTHORITY] = options.tls
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        run = {"mqtt-pipe": mqtt_pipe, "mqtt-many": mqtt_many, "mqtt-rate": mqtt_rate, "mqtt-idle": mqtt_idle,
               "amqp-pipe": amqp_pipe, "amqp-many": amqp_many, "kafka-pipe": kafka_pipe,
               "http-many": http_many}[options.mode]
        return run(options)
    except (LoadFailed, OSError) as failure:
        print(f"{options.mode} failed: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
