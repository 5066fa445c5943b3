"""The MQTT door beside amqtt's broker, which is Python, too: why it is not the door (decision 281).

    python -m bench.against_amqtt [--rounds 1] [--n 20000]

Pipes of QoS 0 and 1, and connections with one message in flight. amqtt stores nothing; the hub stores every QoS 1
message before its PUBACK. scripts/stock_clients.py fetches amqtt.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from bench.against_mosquitto import Measure, compare, row
from bench.measure import LOAD, measure_many, measure_pipe, table
from bench.servers import Server, free_ports, start_hub, wait_for_port, work_folder
from scripts.stock_clients import amqtt

CONNECTIONS: Final = 100
BROKER: Final = """\
import asyncio, sys
from amqtt.broker import Broker

async def main():
    await Broker({"listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:" + sys.argv[1]}},
                  "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}}).start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start_amqtt(folder: Path) -> Server:
    """Raises ServerFailed."""
    folder.mkdir()
    port, = free_ports(1)
    with (folder / "amqtt.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-c", BROKER, str(port)], stdout=log, stderr=log,
                                 env={**os.environ, "PYTHONPATH": str(amqtt())})
    wait_for_port(port, child, "amqtt", 10)
    return Server("amqtt", child, folder, {"mqtt": port})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.against_amqtt", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--n", type=int, default=20_000, help="messages of each run")
    options = parser.parse_args()
    measures: list[tuple[str, Measure]] = [
        *((f"QoS {qos} pipe", partial(measure_pipe, LOAD, door="mqtt", mode="mqtt-pipe", qos=qos, n=options.n))
          for qos in (0, 1)),
        (f"{CONNECTIONS} connections, QoS 1, one in flight",
         lambda server: measure_many(LOAD, server, CONNECTIONS, options.n))]
    with work_folder() as folder:
        servers = [start_hub(folder / "hub", doors=("mqtt",)), start_amqtt(folder / "amqtt")]
        try:
            rows = [row(name, "", *compare(servers, options.rounds, measure)) for name, measure in measures]
        finally:
            for server in servers:
                server.stop()
    print(table(["100-byte messages", "hub msg/s", "amqtt msg/s", "ratio", "aim", "hub user + system µs",
                 "amqtt user + system µs"], rows))


if __name__ == "__main__":
    main()
