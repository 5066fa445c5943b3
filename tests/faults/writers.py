"""Load through the doors. A writer lives through restarts: what it sent without an answer stays in its mind.

`run(ports, stop)` sends until told to stop or until the hub is gone, and returns. It raises only for what no hub may
do.
"""
from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import confluent_kafka

from tests.faults.mqtt_peer import PUBACK, MqttPeer, publish_packet
from tests.faults.oplog import Operation, OperationLog

TOPIC: Final = "plant"
MQTT_WINDOW: Final = 20
KAFKA_BURST: Final = 20
REFUSALS: Final = frozenset((408, 413, 429, 503, 507))
OUTCOME_UNKNOWN: Final = 504
ANSWER_S: Final = 30.0             # a hub that is alive has answered long before, if only that it does not know


class Writer(Protocol):
    name: str

    def run(self, ports: dict[str, int], stop: threading.Event) -> None: ...


class MqttWriter:
    """QoS 1, several in flight, clean sessions. What was not answered is sent again as another message."""

    def __init__(self, log: OperationLog, name: str, size: int) -> None:
        self.name = name
        self._log = log
        self._size = size
        self._number = 0

    def run(self, ports: dict[str, int], stop: threading.Event) -> None:
        flying: dict[int, Operation] = {}
        try:
            peer = MqttPeer(ports["mqtt"], self.name)
        except OSError:
            return
        try:
            while not stop.is_set():
                packets = []
                for packet_id in range(1, MQTT_WINDOW + 1):
                    if packet_id not in flying:
                        flying[packet_id] = self._send()
                        packets.append(publish_packet(f"{TOPIC}/{self.name}", flying[packet_id].value, packet_id))
                peer.send(b"".join(packets))
                for kind, body in peer.read_ready():
                    assert kind == PUBACK, kind
                    flying.pop(int.from_bytes(body[:2], "big")).acknowledge()
        except OSError:
            pass
        finally:
            peer.close()

    def _send(self) -> Operation:
        self._number += 1
        return self._log.send(self.name, self._number, self.name, self._size)


class HttpWriter:
    """One request at a time. With a key for idempotency the same message is sent until it is answered; else never
    again."""

    def __init__(self, log: OperationLog, name: str, size: int, *, idempotent: bool) -> None:
        self.name = name
        self._log = log
        self._size = size
        self._idempotent = idempotent
        self._number = 0
        self._open: Operation | None = None

    def run(self, ports: dict[str, int], stop: threading.Event) -> None:
        self._send_while(ports["http"], lambda: not stop.is_set())

    def settle(self, ports: dict[str, int]) -> None:
        """Send what has no answer until it has one."""
        while self._open is not None:
            self._send_while(ports["http"], lambda: self._open is not None)

    def _send_while(self, port: int, wanted: Callable[[], bool]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        try:
            while wanted():
                operation = self._open or self._next()
                self._open = operation if self._idempotent else None
                headers = {"Content-Type": "application/octet-stream"}
                if self._idempotent:
                    headers["Idempotency-Key"] = f"{self.name}-{operation.number}"
                connection.request("POST", f"/v1/publish/{TOPIC}/{self.name}", operation.value, headers)
                answer = connection.getresponse()
                self._settle(operation, answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def _next(self) -> Operation:
        self._number += 1
        return self._log.send(self.name, self._number, self.name, self._size)

    def _settle(self, operation: Operation, status: int, body: bytes) -> None:
        if status == 201:
            said: dict[str, Any] = json.loads(body)
            operation.acknowledge((said["partition"], said["offset"]))
            self._open = None
        elif status in REFUSALS:
            if not self._idempotent:       # with a key it is sent again under the same number, and may be taken then
                operation.refuse()
        else:
            assert status == OUTCOME_UNKNOWN, (status, body)


class TopicMaker:
    """Makes and deletes topics, one after the other; what it was told about them must be so after any restart."""

    def __init__(self) -> None:
        self._there: set[str] = set()
        self._gone: set[str] = set()
        self._number = 0

    def run(self, port: int, stop: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        try:
            while not stop.wait(0.01):
                self._number += 1
                name = f"topic-{self._number}"
                if self._ask(connection, "PUT", name) == 201:
                    self._there.add(name)
                if self._number % 3 == 0 and name in self._there:
                    self._there.discard(name)
                    if self._ask(connection, "DELETE", name) == 204:
                        self._gone.add(name)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, method: str, name: str) -> int:
        connection.request(method, f"/v1/topics/{name}", b"{}" if method == "PUT" else None,
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 201, 204, OUTCOME_UNKNOWN) or answer.status in REFUSALS, answer.status
        return answer.status

    def check(self, port: int) -> set[str]:
        """Every topic that there is."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        names: set[str] = set()
        cursor: str | None = ""
        try:
            while cursor is not None:
                connection.request("GET", f"/v1/topics?cursor={cursor}" if cursor else "/v1/topics")
                answer = json.loads(connection.getresponse().read())
                names |= {topic["name"] for topic in answer["topics"]}
                cursor = answer.get("cursor")
        finally:
            connection.close()
        assert self._there <= names, f"made and not there: {sorted(self._there - names)}"
        assert not self._gone & names, f"deleted and there: {sorted(self._gone & names)}"
        return names


class KafkaWriter:
    """An idempotent producer that is never told about restarts: it tries until everything is stored, once and in
    order."""

    def __init__(self, log: OperationLog, name: str, size: int, port: int) -> None:
        self.name = name
        self._log = log
        self._size = size
        self._number = 0
        self.faults: list[str] = []
        self._producer = confluent_kafka.Producer({
            "bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True, "linger.ms": 1,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
            "message.timeout.ms": 300_000, "error_cb": self._on_error, "log_level": 0,
            "socket.connection.setup.timeout.ms": 1_000})

    def run(self, ports: dict[str, int], stop: threading.Event) -> None:
        while not stop.is_set():
            while len(self._producer) < KAFKA_BURST:
                self._number += 1
                operation = self._log.send(self.name, self._number, self.name, self._size)
                self._producer.produce(TOPIC, operation.value, self.name, on_delivery=self._delivered(operation))
            self._producer.poll(0.02)

    def _delivered(self, operation: Operation) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                operation.acknowledge((message.partition(), message.offset()))
            else:
                self.faults.append(f"message {operation.number}: {error}")
        return delivered

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.faults.append(f"fatal: {error}")

    def finish(self, deadline_s: float) -> None:
        """Wait until everything is stored."""
        left = self._producer.flush(deadline_s)
        assert not left, f"{left} messages of {self.name} are not stored after {deadline_s} s"
        assert not self.faults, self.faults


def writers_of(log: OperationLog, kafka_port: int, size: int) -> tuple[list[Writer], KafkaWriter]:
    """One of each kind and more, all into one topic, each with a key of its own."""
    kafka = KafkaWriter(log, "kafka", size, kafka_port)
    return [MqttWriter(log, "mqtt-a", size), MqttWriter(log, "mqtt-b", size),
            HttpWriter(log, "http", size, idempotent=False),
            HttpWriter(log, "http-once-a", size, idempotent=True),
            HttpWriter(log, "http-once-b", size, idempotent=True), kafka], kafka
