"""What MirrorMaker 2 and RabbitMQ's Shovel do with the work of `bench.relay`: a backlog from one broker to another.

    python -m bench.relay_peers [--n 300000] [--bytes 100 1000] [--only mirrormaker shovel]

    MirrorMaker 2   between two Apache Kafka of one node each, once it has mirrored a tenth of it: Java is warm
    Shovel          between two RabbitMQ, durable queues, persistent messages, `on-confirm`, 1,000 in flight

Time counts from the first message that is there until all are: what either needs to begin is left out. Processor time
is that of all processes of the way, for each message. Messages have 1,000 keys, and no headers.
"""
from __future__ import annotations

import argparse
import base64
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.apache_kafka import create_topic, start_kafka
from bench.rabbitmq import RabbitServer, start_rabbitmq
from bench.relay import cpu_s, produce
from bench.servers import Server, ServerFailed, work_folder
from scripts.stock_clients import CONNECT_VERSION, connectors, java_client, mirror_settings

DEADLINE_S: Final = 600.0
LOOK_S: Final = 0.02
PARTITIONS: Final = 4
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
MIRROR: Final = """\
near->far.emit.heartbeats.enabled=false
far->near.emit.heartbeats.enabled=false
tasks.max=4
refresh.topics.interval.seconds=1
sync.topic.acls.enabled=false
"""


def take(there: Callable[[], int], count: int, before: int = 0) -> float:
    """Seconds from the first of so many messages to the last, scaled to all of them."""
    end_s = time.monotonic() + DEADLINE_S
    first_s, first = 0.0, 0
    while (now := there() - before) < count:
        if now and not first_s:
            first_s, first = time.monotonic(), now
        if time.monotonic() > end_s:
            raise ServerFailed(f"only {now} of {count} messages came")
        time.sleep(LOOK_S)
    if not first_s:
        raise ServerFailed("it was over before anybody looked: take more messages")
    return (time.monotonic() - first_s) * count / (count - first)


def show(name: str, count: int, size: int, took_s: float, used_s: float) -> None:
    print(f"| {name}, {size} bytes | {count / took_s:,.0f} | {count * size / took_s / 1e6:.1f} | "
          f"{used_s / count * 1e6:.1f} |", flush=True)


# ---- MirrorMaker 2 ---------------------------------------------------------------------------------------------------

def mirrormaker(folder: Path, count: int, sizes: list[int]) -> None:
    near, far = start_kafka(folder / "near"), start_kafka(folder / "far")
    servers = [near, far]
    try:
        for size in sizes:
            create_topic(near, f"bulk{size}", PARTITIONS)
        file = folder / "mirror.properties"
        file.write_text(mirror_settings(f"127.0.0.1:{near.ports['kafka']}", f"127.0.0.1:{far.ports['kafka']}",
                                        "bulk.*", MIRROR))
        with (folder / "mirror.log").open("ab") as log:
            jars = f"{java_client(CONNECT_VERSION)}/*:{connectors()}/*"
            child = subprocess.Popen(["java", "-Xms1g", "-Xmx1g", "-cp", jars,
                                      "org.apache.kafka.connect.mirror.MirrorMaker", str(file)], stdout=log, stderr=log)
        servers.append(Server("MirrorMaker 2", child, folder, {}))
        reader = Consumer({"bootstrap.servers": f"127.0.0.1:{far.ports['kafka']}", "group.id": "look", "log_level": 0})

        def there(topic: str) -> int:
            name = f"near.{topic}"
            if name not in reader.list_topics(timeout=DEADLINE_S).topics:
                return 0
            try:
                return sum(reader.get_watermark_offsets(TopicPartition(name, partition), timeout=DEADLINE_S)[1]
                           for partition in range(PARTITIONS))
            except KafkaException:                             # it is being made
                return 0

        def has(count: int, topic: str) -> bool:
            return there(topic) >= count

        for size in sizes:
            topic = f"bulk{size}"
            produce(near, topic, PARTITIONS, size)             # it begins with this, and Java is warm
            wait(partial(has, PARTITIONS, topic))
            produce(near, topic, count // 10, size)
            wait(partial(has, PARTITIONS + count // 10, topic))
            child.send_signal(signal.SIGSTOP)                  # so that a backlog lies there
            produce(near, topic, count, size)
            used_s = cpu_s(*servers)
            child.send_signal(signal.SIGCONT)
            took_s = take(partial(there, topic), count, PARTITIONS + count // 10)
            show("MirrorMaker 2", count, size, took_s, cpu_s(*servers) - used_s)
        reader.close()
    finally:
        for server in reversed(servers):
            server.stop()


def wait(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > end_s:
            raise ServerFailed("the messages do not come")
        time.sleep(LOOK_S)


# ---- Shovel ----------------------------------------------------------------------------------------------------------

def shovel(folder: Path, count: int, sizes: list[int]) -> None:
    near = start_rabbitmq(folder / "near-rabbit", PLUGINS)
    servers: list[RabbitServer] = [near]
    try:
        servers.append(far := start_rabbitmq(folder / "far-rabbit"))
        with channel_of(far) as there, channel_of(near) as here:
            for size in sizes:
                queue = f"bulk{size}"
                for channel in (here, there):
                    channel.queue_declare(queue, durable=True)
                body, persistent = bytes(size), pika.BasicProperties(delivery_mode=2)
                for _ in range(count):
                    here.basic_publish("", queue, body, persistent)
                wait(partial(holds, here, queue, count))
                used_s = cpu_s(*servers)
                put(near, f"/api/parameters/shovel/%2f/{queue}", {"value": {
                    "src-uri": f"amqp://127.0.0.1:{near.ports['amqp']}", "src-queue": queue, "ack-mode": "on-confirm",
                    "dest-uri": f"amqp://127.0.0.1:{far.ports['amqp']}", "dest-queue": queue, "prefetch-count": 1000}})
                took_s = take(partial(depth, there, queue), count)
                show("Shovel", count, size, took_s, cpu_s(*servers) - used_s)
    finally:
        for server in servers:
            server.stop()


class channel_of:
    """A channel of a broker, for as long as it is needed."""

    def __init__(self, server: Server) -> None:
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.ports["amqp"]))

    def __enter__(self) -> Any:
        return self._connection.channel()

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def depth(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def holds(channel: Any, queue: str, count: int) -> bool:
    return depth(channel, queue) == count


def put(server: Server, path: str, document: Any) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.ports['management']}{path}",
                                     data=json.dumps(document).encode(), method="PUT")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request, timeout=DEADLINE_S).close()


PEERS: Final[dict[str, Callable[[Path, int, list[int]], None]]] = {"mirrormaker": mirrormaker, "shovel": shovel}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--only", nargs="+", choices=list(PEERS), default=list(PEERS))
    options = parser.parse_args()
    print("| messages by | msg/s | MB/s | processor µs a message |\n| --- | ---: | ---: | ---: |")
    with work_folder() as folder:
        for name in options.only:
            PEERS[name](folder, options.n, options.bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
