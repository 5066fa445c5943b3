"""pika, paho, curl and the Python client as members of one leased group, while the hub is killed and started again.

What is claimed: every message whose publishing was confirmed is handled by somebody, no message comes again whose ack
was answered, and in the end the hub's counts say that nothing is left. What a member has received and not yet looked at
does not come again: members look at what comes in its order, so that only what stands behind a message that was
published after the ack was answered has been sent after it.
"""
from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pika.exceptions
from paho.mqtt.enums import CallbackAPIVersion

from gatehouse_client import SyncClient
from gatehouse_client.retry import Retry
from tests.running_hub import RunningHub, config_of, free_port

DOORS = ("mqtt", "http", "amqp")
MESSAGES = 750                                  # of each life of the hub, or as many as the disk takes in
LIFE_S = 30.0
KILLS = 3
MEMBERS = 4
WAIT_S = 100.0
ENOUGH = 10                                     # messages that each member handles at least
SHARE = "$share/team/orders/#"


class Book:
    """Who has handled what, and which acks were answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[str, int] = {}        # and how many messages were published by then
        self._newest: dict[str, int] = {}          # of what a member has looked at
        self.published = 0
        self.handled: dict[str, set[str]] = {}
        self.by_member: Counter[str] = Counter()
        self.returned: list[str] = []              # came again after their ack was answered
        self.over = threading.Event()

    def note(self, member: str, message: str) -> None:
        with self._lock:
            newest = self._newest.get(member, -1)
            if newest >= self._answered.get(message, self.published):
                self.returned.append(f"{message} to {member}")
            self._newest[member] = max(newest, int(message))
            self.handled.setdefault(message, set()).add(member)
            self.by_member[member] += 1

    def note_answered(self, messages: list[str]) -> None:
        with self._lock:
            self._answered.update(dict.fromkeys(messages, self.published))

    def note_publishing(self) -> str:
        """The next message."""
        with self._lock:
            self.published += 1
            return str(self.published - 1)

    def is_enough(self) -> bool:
        """Whether every member has handled some."""
        return len(self.by_member) == MEMBERS and min(self.by_member.values()) > ENOUGH

    def again_and_again(self, turn: Callable[[], None], *errors: type[Exception]) -> threading.Thread:
        """A member's thread: `turn` until all is over; errors of a hub that is down are waited out."""
        def run() -> None:
            while not self.over.is_set():
                try:
                    turn()
                except errors:
                    self.over.wait(0.05)
        thread = threading.Thread(target=run)
        thread.start()
        return thread


def pika_turn(book: Book, port: int) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", port, blocked_connection_timeout=10, socket_timeout=10)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        for method, _, body in channel.consume(SHARE, inactivity_timeout=0.2):
            if book.over.is_set():
                return
            if method is not None:
                assert method.exchange == "orders", method
                book.note("pika", body.decode())
                channel.basic_ack(method.delivery_tag)


def start_paho(book: Book, port: int) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, "worker", manual_ack=True)
    client.reconnect_delay_set(1, 1)

    def on_message(_: paho.Client, __: Any, message: paho.MQTTMessage) -> None:
        assert message.topic.startswith("orders/"), message.topic
        book.note("paho", message.payload.decode())
        client.ack(message.mid, message.qos)

    client.on_connect = lambda *_: client.subscribe(SHARE, qos=1)
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def curl(url: str, body: str = "") -> Any:
    done = subprocess.run(["curl", "-sf", "-m", "10", "-X", "POST", "-H", "Content-Type: application/json", "-d", body,
                           url], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConnectionError(done.stderr)
    return json.loads(done.stdout)


def curl_turn(book: Book, port: int) -> None:
    base = f"http://127.0.0.1:{port}/v1/groups/team"
    messages = curl(f"{base}/pop?topic=orders&max=10&invisible=3&wait=0.2")["messages"]
    for message in messages:
        book.note("curl", message["value"])
    if messages:
        answer = curl(f"{base}/ack", json.dumps({"receipt_handles": [one["receipt_handle"] for one in messages]}))
        book.note_answered([message["value"] for message, result in zip(messages, answer["results"], strict=True)
                            if result["status"] == 200])


def test_four_clients_share_one_group_while_the_hub_is_killed(tmp_path: Path) -> None:
    config = config_of(DOORS, "")
    for _ in DOORS:
        config = config.replace("127.0.0.1:0", f"127.0.0.1:{free_port()}", 1)
    hub = RunningHub(tmp_path, config)
    hub.wait_ready()
    ports = {door: hub.port(door) for door in DOORS}
    book = Book()
    threads: list[threading.Thread] = []
    patient = Retry(retries=1_000, backoff_s=0.05, max_backoff_s=0.2)
    try:
        with SyncClient(f"http://127.0.0.1:{ports['http']}", retry=patient) as client:
            client.define_topic("orders", partitions=4)
            client.group("team").define(start="earliest", max_attempts=0)
            worker = start_paho(book, ports["mqtt"])
            threads.append(book.again_and_again(lambda: pika_turn(book, ports["amqp"]),
                                                pika.exceptions.AMQPError, OSError))
            threads.append(book.again_and_again(lambda: curl_turn(book, ports["http"]), ConnectionError))
            with client.consumer("team", "orders", lambda message: book.note("client", message.text),
                                 concurrency=4, invisible_s=3):
                for life in range(KILLS + 1):
                    if life:
                        hub.kill()
                        hub = RunningHub(tmp_path, config)
                        hub.wait_ready()
                    end_s = time.monotonic() + LIFE_S
                    for number in range(MESSAGES):
                        client.publish(f"orders/{number % 50}", book.note_publishing())
                        if time.monotonic() > end_s:
                            break
                deadline = time.monotonic() + WAIT_S
                while time.monotonic() < deadline and not book.is_enough():      # one may have been away until now
                    client.publish("orders/more", book.note_publishing())
                while time.monotonic() < deadline and not is_done(client):
                    time.sleep(0.1)
            assert is_done(client), client.group("team").describe()
            worker.loop_stop()
            book.over.set()
            for thread in threads:
                thread.join()
            assert book.returned == []
            assert set(book.handled) == {str(number) for number in range(book.published)}
            assert book.is_enough(), book.by_member
    finally:
        book.over.set()
        hub.kill()
        for thread in threads:
            thread.join()


def is_done(client: SyncClient) -> bool:
    """Whether nothing is ready, leased or waiting, and every offset is settled."""
    found = client.group("team").describe()
    return all(topic["ready"] == topic["leased"] == topic["waiting"] == 0 for topic in found["topics"])
