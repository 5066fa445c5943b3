"""One limit over four doors, as stock clients meet it: paho, pika, librdkafka and HTTP."""
from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from confluent_kafka import Consumer, Producer

from tests.running_hub import DEADLINE_S, RunningHub

RATE = 100
RUN_S = 7.0


class Hub:
    """What a test asks of a hub over HTTP."""

    def __init__(self, hub: RunningHub) -> None:
        self.hub = hub

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """(status, headers, JSON) of an answer."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = headers or ({} if data is None or data is body else {"Content-Type": "application/json"})
        request = urllib.request.Request(f"http://127.0.0.1:{self.hub.port('http')}{path}", data, headers,
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                content = answer.read()
                return answer.status, answer.headers, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            return error.code, error.headers, json.loads(error.read())

    def limit(self, of: str, **amounts: Any) -> None:
        assert self.ask("POST", "/v1/limits", {"of": of, **amounts})[0] == 201

    def unlimit(self, id: str = "1") -> None:
        """What waits need not be waited for."""
        assert self.ask("DELETE", f"/v1/limits/{id}")[0] == 204

    def stored(self, topic: str) -> int:
        """How many messages a topic holds."""
        bounds = self.ask("GET", f"/v1/topics/{topic}")[2]["bounds"]
        return sum(one["high_watermark"] - one["log_start_offset"] for one in bounds)

    def taken(self, id: str = "1") -> int:
        """How many messages were charged to a limit."""
        return sum(one["messages"] for one in self.ask("GET", f"/v1/limits/{id}")[2]["used"])

    @contextmanager
    def mqtt(self, client_id: str, version: int = mqtt.MQTTv311) -> Iterator[mqtt.Client]:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
        client.max_queued_messages_set(0)
        client.max_inflight_messages_set(1000)
        client.connect("127.0.0.1", self.hub.port("mqtt"))
        client.loop_start()
        try:
            yield client
        finally:
            client.loop_stop()

    @contextmanager
    def amqp(self) -> Iterator[Any]:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.hub.port("amqp"),
                                                                       blocked_connection_timeout=DEADLINE_S))
        channel = connection.channel()
        channel.exchange_declare("load", "topic")
        try:
            yield channel
        finally:
            if connection.is_open:
                connection.close()

    def kafka(self, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.hub.port('kafka')}", **settings}


@pytest.fixture
def asked(hub: RunningHub) -> Hub:
    return Hub(hub)


def run_for(seconds: float, *works: Callable[[Callable[[], bool]], None]) -> float:
    """Run these at once until the time is over; how long it was from the first begin to the last end."""
    begin_s = time.monotonic()
    over = threading.Event()
    faults: list[BaseException] = []

    def guarded(work: Callable[[Callable[[], bool]], None]) -> None:
        try:
            work(over.is_set)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not faults, faults
    return time.monotonic() - begin_s


def test_one_user_on_four_doors_at_once_is_held_to_one_limit_of_what_comes_in(asked: Hub) -> None:
    assert asked.ask("PUT", "/v1/topics/load", {"partitions": 1})[0] == 201
    asked.limit("user:anonymous", messages_per_s=RATE)
    refused: list[int] = []
    throttled: list[float] = []
    answered = threading.Event()
    with asked.mqtt("load") as client, asked.amqp() as channel:
        client.on_publish = lambda *_: answered.set()
        producer = Producer(asked.kafka(**{"linger.ms": 5, "queue.buffering.max.messages": 1000,
                                           "batch.num.messages": 20, "max.in.flight.requests.per.connection": 1,
                                           "throttle_cb": lambda event: throttled.append(event.throttle_time)}))

        def by_mqtt(is_over: Callable[[], bool]) -> None:
            for _ in range(3000):
                client.publish("load/mqtt", b"x", qos=1)
            while not is_over():
                time.sleep(0.05)

        def by_amqp(is_over: Callable[[], bool]) -> None:
            for _ in range(1500):
                channel.basic_publish("load", "amqp", b"x")
            while not is_over():
                channel.connection.process_data_events(0.05)

        def by_http(is_over: Callable[[], bool]) -> None:
            while not is_over():
                status, headers, _ = asked.ask("POST", "/v1/publish/load/http", b"x")
                if status == 429:
                    refused.append(int(headers["Retry-After"]))
                    time.sleep(0.1)
                else:
                    assert status == 201

        def by_kafka(is_over: Callable[[], bool]) -> None:
            while not is_over():
                for _ in range(20):
                    try:
                        producer.produce("load", b"x", b"kafka")
                    except BufferError:
                        break
                producer.poll(0.05)

        begin = asked.taken()
        elapsed_s = run_for(RUN_S, by_mqtt, by_amqp, by_http, by_kafka)
        taken = asked.taken() - begin
        asked.unlimit()
        assert taken <= (RATE * elapsed_s + RATE) * 1.05 + 100, "a second's burst, and one batch of Kafka's beyond"
        assert taken >= RATE * RUN_S * 0.5
        assert refused and min(refused) >= 1 and throttled and answered.is_set() and client.is_connected()
        assert channel.connection.is_open
        producer.purge()
    assert asked.stored("load") >= taken


def test_one_user_on_four_doors_at_once_is_held_to_one_limit_of_what_goes_out(asked: Hub) -> None:
    assert asked.ask("PUT", "/v1/topics/load", {"partitions": 1})[0] == 201
    for _ in range(100):                                             # a batch is fetched whole: these are small
        assert asked.ask("POST", "/v1/topics/load/messages", {"messages": [
            {"key": "a", "value": str(number)} for number in range(20)]})[0] == 201
    with asked.mqtt("reader") as client, asked.amqp() as channel:
        got: list[bytes] = []
        subscribed = threading.Event()
        client.on_message = lambda *heard: got.append(heard[2].payload)
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe("live/#", qos=1)
        assert subscribed.wait(DEADLINE_S)
        channel.queue_declare("work")
        for _ in range(500):
            channel.basic_publish("", "work", b"x")
        asked.limit("user:anonymous", direction="out", messages_per_s=RATE)
        by_amqp_count: list[int] = []

        def by_mqtt(is_over: Callable[[], bool]) -> None:
            while not is_over():
                assert asked.ask("POST", "/v1/publish/live/a", b"x")[0] == 201

        def by_amqp(is_over: Callable[[], bool]) -> None:
            channel.basic_consume("work", lambda *_: by_amqp_count.append(1), auto_ack=True)
            while not is_over():
                channel.connection.process_data_events(0.05)

        def by_http(is_over: Callable[[], bool]) -> None:
            while not is_over():
                assert asked.ask("GET", "/v1/topics/load/messages?from=earliest&max=20")[0] in (200, 429)

        def by_kafka(is_over: Callable[[], bool]) -> None:
            consumer = Consumer(asked.kafka(**{"group.id": "g", "auto.offset.reset": "earliest",
                                               "fetch.message.max.bytes": 2000}))
            consumer.subscribe(["load"])
            while not is_over():
                consumer.consume(100, 0.1)
            consumer.close()

        elapsed_s = run_for(RUN_S, by_mqtt, by_amqp, by_http, by_kafka)
        taken = asked.taken()
        asked.unlimit()
        assert taken <= (RATE * elapsed_s + RATE) * 1.05 + 200, "a second's burst, and a fetch and a page beyond"
        assert taken >= RATE * RUN_S * 0.5 and got and by_amqp_count


def test_a_topic_that_fails_says_so_on_each_door_in_its_words(asked: Hub) -> None:
    assert asked.ask("PUT", "/v1/topics/load", {"partitions": 1, "at_limit": "fail"})[0] == 201
    asked.limit("topic:load", messages_per_s=1)
    codes: list[int] = []
    throttled: list[float] = []
    with asked.mqtt("fast", mqtt.MQTTv5) as client, asked.amqp() as channel:
        client.on_publish = lambda *answer: codes.append(answer[3].value)
        end_s = time.monotonic() + DEADLINE_S
        while 0x97 not in codes and time.monotonic() < end_s:
            client.publish("load/a", b"x", qos=1).wait_for_publish(1)
        assert 0x97 in codes and client.is_connected()

        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.NackError):
            while time.monotonic() < end_s:
                channel.basic_publish("load", "a", b"x")
        assert channel.is_open

        status = 201
        while status == 201 and time.monotonic() < end_s:
            status, headers, problem = asked.ask("POST", "/v1/publish/load/a", b"x")
        assert (status, problem["code"]) == (429, "over_quota") and int(headers["Retry-After"]) >= 1

        producer = Producer(asked.kafka(throttle_cb=lambda event: throttled.append(event.throttle_time)))
        while not throttled and time.monotonic() < end_s:
            producer.produce("load", b"x", b"a")
            producer.poll(0.1)
        assert throttled
        assert producer.flush(DEADLINE_S) == 0, "slowed, and stored"


def test_a_topic_that_holds_as_much_as_it_may_says_so_on_each_door_until_there_is_room(asked: Hub) -> None:
    assert asked.ask("PUT", "/v1/topics/load", {"partitions": 1})[0] == 201
    asked.limit("topic:load", stored_messages=5)
    codes: list[int] = []
    delivered: list[Any] = []
    end_s = time.monotonic() + DEADLINE_S
    with asked.mqtt("five", mqtt.MQTTv5) as client, asked.amqp() as channel:
        client.on_publish = lambda *answer: codes.append(answer[3].value)
        while 0x97 not in codes and time.monotonic() < end_s:
            client.publish("load/a", b"x", qos=1).wait_for_publish(1)
        assert 0x97 in codes and client.is_connected() and asked.stored("load") == 5

        status, headers, problem = asked.ask("POST", "/v1/publish/load/a", b"x")
        assert (status, problem["code"]) == (429, "over_quota") and int(headers["Retry-After"]) >= 1
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("load", "a", b"x")
        producer = Producer(asked.kafka())
        producer.produce("load", b"kafka", b"a", on_delivery=lambda *outcome: delivered.append(outcome[0]))
        producer.poll(1)
        assert not delivered and asked.stored("load") == 5
        assert asked.ask("PUT", "/v1/limits/1", {"of": "topic:load", "stored_messages": 1000})[0] == 200
        assert producer.flush(DEADLINE_S) == 0 and delivered == [None], "producers repeat it"
        channel.basic_publish("load", "a", b"x")
        assert asked.ask("POST", "/v1/publish/load/a", b"x")[0] == 201
        assert asked.stored("load") == 8
