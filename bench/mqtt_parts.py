"""What an idle MQTT connection is made of: Python's memory, and the objects that its collector looks at.

    python -m bench.mqtt_parts [--connections 500]

A hub in the process, without sockets: what a connection takes of the system, and of the event loop, is not in it, and
the link of a test is. Both numbers are the same on every machine, busy or not.
"""
from __future__ import annotations

import argparse
import gc
import tracemalloc

from bench.measure import table
from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.config import MqttConfig

Opened = tuple[Session, FakeLink]


def open_idle(hub: FakeHub, config: MqttConfig, number: int, keeps: bool) -> Opened:
    """A client of 3.1.1, let in; `keeps`: without clean session."""
    session, link = hub.open(GATEWAY, config)
    client_id = b"idle-%06d" % number
    body = b"\0\4MQTT\4" + (b"\0" if keeps else b"\2") + b"\0\0" + len(client_id).to_bytes(2, "big") + client_id
    session.handle_data(b"\x10" + bytes((len(body),)) + body)
    return session, link


def measure(count: int, keeps: bool) -> tuple[float, float]:
    """(bytes, tracked objects) of each of so many connections, behind as many that are not counted."""
    hub, config = FakeHub(), MqttConfig()
    opened = [open_idle(hub, config, number, keeps) for number in range(count)]
    hub.kernel.flush()
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    opened += [open_idle(hub, config, count + number, keeps) for number in range(count)]
    hub.kernel.flush()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / count, (len(gc.get_objects()) - objects) / count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mqtt_parts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    options = parser.parse_args()
    rows = []
    for name, keeps in (("an idle connection", False), ("with a session that outlives it", True)):
        size, objects = measure(options.connections, keeps)
        rows.append([name, f"{size:,.0f}", f"{objects:.1f}"])
    print(table(["", "bytes", "objects"], rows))


if __name__ == "__main__":
    main()
