"""Which files one message goes through: how much a reader opens who follows it.

    python -m bench.trace_message [--list] [DOOR ...]

A hub on the plain files takes one publish and gives it to a subscriber, with a stock client, after another message has
warmed it up. Every call of a Python function of ours is noted meanwhile, on all threads.

    files    how many of our files were in it
    moves    how often the path went from one file to another
    besides  files that were only met in what a hub does by itself

Before the publish the same hub is left alone for some seconds. What begins in that time begins without any message (it
looks at its memory, at the load, at its own delays), so it is not counted when it begins again beside one; what a
client begins is (a long poll that goes on).

`--list` shows the files in the order in which they are first met, and then what began by itself.
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
from typing import Final, NamedTuple

from bench.servers import ROOT, free_ports
from gatehouse_client import SyncClient

QUIET_S: Final = 0.5
"""After each step: what a message leaves to later turns (answers, acknowledgements) belongs to it; a checkpoint, which
comes after two seconds, does not."""

ALONE_S: Final = 5.0
"""What a hub does by itself comes more often than that, the checkpoint of the message before included."""

HUB: Final = """
import atexit, json, mmap, sys, threading
flag, output, root = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1) + "/"
with open(flag, "r+b") as file:
    on = mmap.mmap(file.fileno(), 1)
alone, seen = set(), []
runs = root + "gatehouse/gateways/runtime.py"        # what runs everything else; a connection is a client's
def begun_by(frame):                  # the function of ours that the loop or a thread has called
    outer = inner = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(("/asyncio/runners.py", "/asyncio/events.py", "/threading.py")):
            break
        if name.startswith(root + "gatehouse/"):
            outer = f"{name[len(root):]} {frame.f_code.co_qualname}"
            if name != runs or frame.f_code.co_qualname.startswith("Connection."):
                inner = outer
        frame = frame.f_back
    return inner or outer
def note(frame, event, argument):
    if event == "call" and on[0]:
        name = frame.f_code.co_filename
        if name.startswith(root + "gatehouse/"):
            begun = begun_by(frame)
            if on[0] == 2:
                seen.append((name[len(root):], begun))
            elif not begun.startswith(runs[len(root):] + " Connection."):
                alone.add(begun)
atexit.register(lambda: open(output, "w").write(json.dumps([seen, sorted(alone)])))
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


class Trace(NamedTuple):
    """What a message went through."""

    calls: list[str]
    """The file of every call, in order."""

    besides: list[str]
    """The same of what the hub did by itself meanwhile."""

    alone: list[str]
    """Functions that began while there was no message."""


def trace(door: str) -> Trace:
    """One message through a door."""
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
            time.sleep(ALONE_S)
            flag[0] = 2
            publish()
            time.sleep(QUIET_S)
            flag[0] = 0
        end()
        hub.terminate()
        hub.wait(30)
        seen, alone = json.loads((folder / "calls").read_text())
        return Trace([file for file, begun in seen if begun not in alone],
                     [file for file, begun in seen if begun in alone], alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", default=list(DOORS))
    parser.add_argument("--list", action="store_true", help="the files too")
    options = parser.parse_args()
    for door in options.doors:
        calls, besides, alone = trace(door)
        files = list(dict.fromkeys(calls))
        moves = sum(before != after for before, after in zip(calls, calls[1:], strict=False))
        print(f"{door}: {len(files)} files, {moves} moves between them, {len(calls)} calls; "
              f"besides {len(set(besides) - set(files))} files")
        if options.list:
            print("".join(f"    {file}\n" for file in files), end="")
            print("".join(f"    by itself: {begun}\n" for begun in alone), end="")


if __name__ == "__main__":
    main()
