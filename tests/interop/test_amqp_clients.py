"""Applications in Java with Spring, in Node and in Go against the hub, with nothing changed but the port; and what a
beginner's first programs with pika do.

What they need is fetched once by scripts/stock_clients.py.
"""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatehouse.kernel.settings import KernelSettings
from scripts.stock_clients import amqp091_go, amqplib, compile_java, spring_rabbit
from tests.running_hub import RunningHub, running_hub

HERE = Path(__file__).parent
HOUR_S = 240
SPRING_STEPS = ["RabbitAdmin", "RabbitTemplate", "confirms and returns", "SimpleMessageListenerContainer",
                "DirectMessageListenerContainer", "sendAndReceive", "listeners that fail", "transactions",
                "concurrent consumers"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    as_by_default = f"max_message_bytes = {KernelSettings().max_message_bytes}"
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "amqp", kernel=as_by_default) as hub:
        yield hub
        code, said = hub.stop()
        assert code == 0
        assert "Traceback" not in said, said


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HOUR_S, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def test_springs_defaults(hub: RunningHub, tmp_path: Path) -> None:
    jars = spring_rabbit()
    path = os.pathsep.join([str(tmp_path), *[str(jar) for jar in sorted(jars.glob("*.jar"))]])
    compile_java(jars, tmp_path, HERE / "SpringHour.java")
    told = run("java", "-cp", path, "SpringHour", str(hub.port("amqp")))
    assert [line.removeprefix("ok ") for line in told.splitlines() if line.startswith("ok ")] == SPRING_STEPS


def test_amqplib_of_node(hub: RunningHub) -> None:
    run("node", str(HERE / "amqplib_hour.js"), str(hub.port("amqp")), NODE_PATH=str(amqplib() / "node_modules"))


def test_rabbitmqs_client_for_go(hub: RunningHub) -> None:
    run(str(amqp091_go(HERE / "amqp091_hour.go")), str(hub.port("amqp")))


# ---- a beginner's programs: each a process of its own, as in the tutorials that everybody begins with

BEGIN = """\
import sys, time
import pika
connection = pika.BlockingConnection(pika.ConnectionParameters(host="127.0.0.1", port=int(sys.argv[1])))
channel = connection.channel()
"""
SEND = BEGIN + """\
channel.queue_declare(queue="greetings")
channel.basic_publish(exchange="", routing_key="greetings", body="hello")
connection.close()
"""
RECEIVE = BEGIN + """\
channel.queue_declare(queue="greetings")
def callback(ch, method, properties, body):
    print(body.decode(), flush=True)
    sys.exit(0)
channel.basic_consume(queue="greetings", on_message_callback=callback, auto_ack=True)
channel.start_consuming()
"""
NEW_TASK = BEGIN + """\
channel.queue_declare(queue="tasks", durable=True)
for task in sys.argv[2:]:
    channel.basic_publish(exchange="", routing_key="tasks", body=task,
                          properties=pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent))
connection.close()
"""
WORKER = BEGIN + """\
channel.queue_declare(queue="tasks", durable=True)
def callback(ch, method, properties, body):
    print(body.decode(), flush=True)
    if body == b"hang":
        time.sleep(600)
    ch.basic_ack(delivery_tag=method.delivery_tag)
channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="tasks", on_message_callback=callback)
print("waiting", flush=True)
channel.start_consuming()
"""
LISTEN = BEGIN + """\
kind, keys = sys.argv[2], sys.argv[3:]
exchange = "heard." + kind
channel.exchange_declare(exchange=exchange, exchange_type=kind)
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for key in keys:
    channel.queue_bind(exchange=exchange, queue=queue, routing_key=key)
def callback(ch, method, properties, body):
    print(method.routing_key, body.decode(), flush=True)
channel.basic_consume(queue=queue, on_message_callback=callback, auto_ack=True)
print("waiting", flush=True)
channel.start_consuming()
"""
EMIT = BEGIN + """\
kind, pairs = sys.argv[2], sys.argv[3:]
exchange = "heard." + kind
channel.exchange_declare(exchange=exchange, exchange_type=kind)
for pair in pairs:
    key, body = pair.split("=")
    channel.basic_publish(exchange=exchange, routing_key=key, body=body)
connection.close()
"""
RPC_SERVER = BEGIN + """\
channel.queue_declare(queue="doubled")
def answer(ch, method, props, body):
    ch.basic_publish(exchange="", routing_key=props.reply_to, body=str(2 * int(body)),
                     properties=pika.BasicProperties(correlation_id=props.correlation_id))
    ch.basic_ack(delivery_tag=method.delivery_tag)
channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="doubled", on_message_callback=answer)
print("waiting", flush=True)
channel.start_consuming()
"""
RPC_CLIENT = BEGIN + """\
queue = channel.queue_declare(queue="", exclusive=True).method.queue
answers = []
channel.basic_consume(queue=queue, auto_ack=True,
                      on_message_callback=lambda ch, method, props, body: answers.append((props.correlation_id, body)))
channel.basic_publish(exchange="", routing_key="doubled", body="21",
                      properties=pika.BasicProperties(reply_to=queue, correlation_id="first"))
while not answers:
    connection.process_data_events(time_limit=None)
assert answers == [("first", b"42")], answers
"""
CONFIRMS = BEGIN + """\
channel.confirm_delivery()
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for number in range(100):
    channel.basic_publish(exchange="", routing_key=queue, body=str(number), mandatory=True)
try:
    channel.basic_publish(exchange="", routing_key="nobody", body="lost", mandatory=True)
except pika.exceptions.UnroutableError:
    print("returned")
assert channel.queue_declare(queue=queue, passive=True).method.message_count == 100
"""


class Program:
    """One of them, running; it says when it waits for messages."""

    def __init__(self, hub: RunningHub, source: str, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-u", "-c", source, str(hub.port("amqp")), *arguments],
                                         stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> int:
        """Its exit code."""
        return self._process.wait(HOUR_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(HOUR_S)


@contextmanager
def program(hub: RunningHub, source: str, *arguments: str, waits: bool = True) -> Iterator[Program]:
    running = Program(hub, source, *arguments)
    try:
        assert not waits or running.line() == "waiting"
        yield running
    finally:
        running.kill()


def once(hub: RunningHub, source: str, *arguments: str) -> str:
    return run(sys.executable, "-c", source, str(hub.port("amqp")), *arguments)


def test_hello(hub: RunningHub) -> None:
    once(hub, SEND)
    with program(hub, RECEIVE, waits=False) as receiver:
        assert receiver.line() == "hello" and receiver.end() == 0


def test_work_queues(hub: RunningHub) -> None:
    with program(hub, WORKER) as first:
        once(hub, NEW_TASK, "hang")
        assert first.line() == "hang"
        with program(hub, WORKER) as second:
            once(hub, NEW_TASK, "1", "2", "3")
            assert [second.line() for _ in range(3)] == ["1", "2", "3"], "the first has one in hand, and wants no more"
            first.kill()
            assert second.line() == "hang", "what a worker had in hand goes to another"


def test_publish_subscribe(hub: RunningHub) -> None:
    with program(hub, LISTEN, "fanout", "") as first, program(hub, LISTEN, "fanout", "") as second:
        once(hub, EMIT, "fanout", "=all of you")
        assert first.line() == second.line() == "all of you"


def test_routing_and_topics(hub: RunningHub) -> None:
    with program(hub, LISTEN, "direct", "warning", "error") as some, program(hub, LISTEN, "direct", "info") as other:
        once(hub, EMIT, "direct", "info=1", "debug=2", "error=3", "warning=4")
        assert [some.line(), some.line(), other.line()] == ["error 3", "warning 4", "info 1"]
    with program(hub, LISTEN, "topic", "*.orange.*") as orange, program(hub, LISTEN, "topic", "lazy.#") as lazy:
        once(hub, EMIT, "topic", "quick.orange.fox=1", "lazy.brown.fox=2", "orange=3", "lazy.orange.male.rabbit=4")
        assert [orange.line(), lazy.line(), lazy.line()] == [
            "quick.orange.fox 1", "lazy.brown.fox 2", "lazy.orange.male.rabbit 4"]


def test_remote_calls_and_confirms(hub: RunningHub) -> None:
    with program(hub, RPC_SERVER):
        once(hub, RPC_CLIENT)
    assert once(hub, CONFIRMS) == "returned\n"
