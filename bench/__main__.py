"""`make bench`: runs the measurements one after another, each as a process of its own, and prints its command first.

    python -m bench [--all] [--load PATH] [NAME...]

The quick set takes about ten minutes on two cores; `--all` (`make bench-all`) about an hour and 25 GB of disk. NAME
picks measurements by their module. What is printed is what README.md beside this file holds.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.measure import LOAD_HELP
from bench.servers import ROOT

RUN_S: Final = 3600.0
TAKES_LOAD: Final = ("against_mosquitto", "against_kafka", "against_rabbitmq", "cold_replay", "tls")

QUICK: Final = (
    "against_mosquitto --rounds 3 --n 300000",
    "against_kafka --rounds 3 --n 1000000 --partitions 16 10000",
    "kafka_tools --rounds 1 --n 1000000",
    "kafka_groups",
    "against_rabbitmq --rounds 3",
    "few_connections --rounds 3",
    "fan_out",
    "kernel_append --partitions 16",
    "kernel_append --partitions 10000",
    "many_partitions",
    "pop_ack --n 200000",
    "assigned_groups",
    "queues --partitions 20000 --backlog 200000",
    "retained --n 100000",
    "sessions",
    "mqtt_masses",
    "mqtt_parts",
    "mqtt_masses --users 4",
    "mqtt_sessions --passing 1000000",
    "delays --n 200000 --over-s 40 --load 10000",
    "transactions --n 50000 --open 200000 --seconds 5",
    "recovery --gb 1",
    "tail_lag --seconds 30",
    "cold_replay --rounds 3",
    "switch_interval",
    "tls --rounds 1",
    "guard --rounds 1",
    "limits --rounds 1",
    "limits_hold",
    "limits_hold --dimensions",
    "tracing_doors --rounds 1 --n 20000",
    "journey_lookups",
    "http_streams --seconds 4",
    "decisions",
    "http_posts",
    "http_calls --rounds 1",
    "relay --n 1000000",
    "relay_links",
    "relay_peers --n 100000",
    "spark_read --rows 4000000 --rounds 1",
    "spark_read --live",
    "spark_analytics",
)
ALL: Final = (
    "against_mosquitto --rounds 7",
    "against_kafka --rounds 5 --partitions 1 16 1000 10000 --flush-at 16 10000",
    "kafka_tools --flush",
    "kafka_groups",
    "against_rabbitmq --rounds 7",
    "rabbitmq_shapes",
    "few_connections --rounds 3",
    "fan_out --rounds 5",
    "beside_large",
    "kernel_append --partitions 16",
    "kernel_append --partitions 10000",
    "many_partitions",
    "pop_ack",
    "assigned_groups",
    "queues",
    "retained",
    "sessions",
    "mqtt_masses --rounds 3",
    "mqtt_parts",
    "mqtt_masses --rounds 3 --users 4",
    "mqtt_sessions --rounds 3",
    "against_amqtt",
    "recovery --gb 1 10",
    "recovery --gb 1 --batch 10",
    "resident --seconds 3600 --every 120",
    "tail_lag --seconds 60",
    "cold_replay --rounds 7",
    "switch_interval",
    "tls",
    "guard --rounds 5",
    "limits --rounds 5",
    "tracing_doors --rounds 5",
    "journey_lookups --messages 3400000 --hour",
    "http_streams",
    "decisions",
    "http_posts --seconds 10 --rounds 5",
    "http_calls --seconds 10 --rounds 5",
    "relay --n 1000000 --rounds 6",
    "relay --n 10000000 --bytes 100 --rounds 0",
    "relay_links",
    "relay_links --mesh",
    "relay_peers",
    "delays",
    "transactions",
    "spark_read",
    "spark_analytics --readings 200",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="everything, in more rounds")
    parser.add_argument("--load", type=Path, help=LOAD_HELP)
    parser.add_argument("names", nargs="*", help="only these, such as against_kafka")
    options = parser.parse_args()
    commands = [command.split() for command in (ALL if options.all else QUICK)]
    known = dict.fromkeys(command.split()[0] for command in ALL)
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    failed = 0
    for name, *arguments in commands:
        if options.names and name not in options.names:
            continue
        if options.load and name in TAKES_LOAD:
            arguments += ["--load", str(options.load.resolve())]
        print(f"\n$ python -m bench.{' '.join([name, *arguments])}", flush=True)
        print(f"(load average before: {os.getloadavg()[0]:.1f})\n", flush=True)
        done = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], cwd=ROOT, check=False, timeout=RUN_S)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
