"""Which files one message goes through: how much a reader opens who follows it.

    python -m bench.trace_message [--list] [DOOR ...]

A hub on the plain files takes one publish and gives it to a subscriber, with a stock client, after another message has
warmed it up. Every call of a Python function of ours is noted meanwhile, on all threads.

    files    how many of our files were in it
    moves    how often the path went from one file to another

`--list` shows the files in the order in which they are first met.
"""
from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.servers import ROOT, free_ports
from gatehouse_client import SyncClient

QUIET_S: Final = 0.5
"""After each step: what a message leaves to later turns (answers, acknowledgements) belongs to it; a checkpoint, which
comes after two seconds, does not."""

HUB: Final = """
import atexit, json, mmap, sys, threading
flag, output, root = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1) + "/"
with open(flag, "r+b") as file:
    on = mmap.mmap(file.fileno(), 1)
seen = []
def note(frame, event, argument):
    if event == "call" and on[0]:
        name = frame.f_code.co_filename
        if name.startswith(root + "gatehouse/"):
            seen.append(name[len(root):])
atexit.register(lambda: open(output, "w").write(json.dumps(seen)))
threading.setprofile(note)
sys.setprofile(note)
from gatehouse.cli.main import main
main()
"""

Step = Callable[[], None]


def mqtt(port: int) -> tuple[Step, Step]:
    """(what publishes one message and waits until it has been delivered, what ends the client)."""
    import paho.mqtt.client as paho

    arrived: list[bytes] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
    client.on_message = lambda _client, _data, message: arrived.append(bytes(message.payload))
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.subscribe("plant/line1", 1)

    def publish() -> None:
        before = len(arrived)
        client.publish("plant/line1", b"21.5", 1).wait_for_publish(10)
        _wait(lambda: len(arrived) > before)

    def end() -> None:
        client.disconnect()
        client.loop_stop()

    return publish, end


def amqp(port: int) -> tuple[Step, Step]:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    arrived: list[bytes] = []

    def take(where: pika.channel.Channel, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
        arrived.append(body)
        where.basic_ack(method.delivery_tag)

    channel.basic_consume("q", take)

    def publish() -> None:
        before = len(arrived)
        channel.basic_publish("", "q", b"21.5")
        while len(arrived) == before:
            connection.process_data_events(0.1)

    return publish, connection.close


def kafka(port: int) -> tuple[Step, Step]:
    import confluent_kafka

    servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
    producer = confluent_kafka.Producer({**servers, "linger.ms": 0})
    consumer = confluent_kafka.Consumer({**servers, "group.id": "g", "enable.auto.commit": False})

    def produce() -> None:
        producer.produce("plant", b"21.5", b"k", 0)
        producer.flush(10)

    produce()
    consumer.assign([confluent_kafka.TopicPartition("plant", 0, 0)])
    _wait(lambda: consumer.poll(0.1) is not None)

    def publish() -> None:
        produce()
        _wait(lambda: consumer.poll(0.1) is not None)

    return publish, consumer.close


def http(port: int) -> tuple[Step, Step]:
    client = SyncClient(f"http://127.0.0.1:{port}")

    def publish() -> None:
        client.publish("plant/line1", b"21.5")
        assert list(client.read("plant"))

    return publish, client.close


DOORS: Final = {"mqtt": mqtt, "amqp": amqp, "kafka": kafka, "http": http}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the message did not arrive"
        time.sleep(0.01)


def trace(door: str) -> list[str]:
    """The file of every call, in order."""
    with TemporaryDirectory() as name:
        folder, (port,) = Path(name), free_ports(1)
        advertise = f'advertise = "127.0.0.1:{port}"\n' if door == "kafka" else ""
        (folder / "gateways.toml").write_text(f'[hub]\ndata_dir = "{folder / "data"}"\n[gateways.{door}]\n'
                                              f'listen = ["127.0.0.1:{port}"]\n{advertise}')
        (folder / "flag").write_bytes(b"\0")
        command = [sys.executable, "-c", HUB, str(folder / "flag"), str(folder / "calls"), str(ROOT), "serve",
                   "--config", str(folder / "gateways.toml")]
        hub = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert hub.stdout is not None
        while "gatehouse ready" not in (line := hub.stdout.readline()):
            assert line, "the hub ended"
        publish, end = DOORS[door](port)
        publish()
        time.sleep(QUIET_S)
        with (folder / "flag").open("r+b") as file, mmap.mmap(file.fileno(), 1) as flag:
            flag[0] = 1
            publish()
            time.sleep(QUIET_S)
            flag[0] = 0
        end()
        hub.terminate()
        hub.wait(30)
        calls: list[str] = json.loads((folder / "calls").read_text())
        return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", default=list(DOORS))
    parser.add_argument("--list", action="store_true", help="the files too")
    options = parser.parse_args()
    for door in options.doors:
        calls = trace(door)
        files = list(dict.fromkeys(calls))
        moves = sum(before != after for before, after in zip(calls, calls[1:], strict=False))
        print(f"{door}: {len(files)} files, {moves} moves between them, {len(calls)} calls")
        if options.list:
            print("".join(f"    {file}\n" for file in files), end="")


if __name__ == "__main__":
    main()
