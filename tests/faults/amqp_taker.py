"""A consumer of an AMQP queue that is bound to everything: it takes and acks, and its connection ends with each hub.

AMQP answers no ack, so what was acked may come again after a kill; what was stored after the binding must come at least
once.
"""
from __future__ import annotations

import threading
import time
from typing import Any, Final

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from tests.faults.oplog import ACKNOWLEDGED, OperationLog, identify
from tests.faults.writers import TOPIC

QUEUE: Final = "box"
PREFETCH: Final = 100
ACKED_TOGETHER: Final = 100
IDLE_S: Final = 0.1
ANSWER_S: Final = 30
GONE: Final = (AMQPError, AMQPConnectorException, OSError)


class AmqpTaker:
    def __init__(self, log: OperationLog, port: int) -> None:
        self._log = log
        self._port = port
        self.bound_s = 0.0                      # since then every message is in the queue too
        self.given: set[tuple[str, int]] = set()

    def _connect(self) -> Any:
        return pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", self._port, socket_timeout=ANSWER_S, stack_timeout=ANSWER_S,
            blocked_connection_timeout=ANSWER_S, heartbeat=0))

    def bind(self) -> None:
        """Before there is load; where the hub dies of it, the next one is asked."""
        if self.bound_s:
            return
        try:
            connection = self._connect()
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.queue_bind(QUEUE, "amq.topic", f"{TOPIC}.#")
            self.bound_s = time.monotonic()
            connection.close()
        except GONE:
            pass

    def run(self, stop: threading.Event) -> None:
        """Take until told to stop or the hub is gone."""
        if not self.bound_s:
            return
        try:
            connection = self._connect()
            self._take(connection, stop)
            connection.close()
        except GONE:
            pass

    def _take(self, connection: Any, stop: threading.Event) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        for method, _, body in channel.consume(QUEUE, inactivity_timeout=IDLE_S):
            if method is not None:
                self.given.add(identify(body))
                channel.basic_ack(method.delivery_tag)
            if stop.is_set():
                return

    def finish(self) -> None:
        """Take what is left; then nothing that was stored since the binding is missing."""
        self.bind()                             # every hub may have gone before it was asked
        connection = self._connect()
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(QUEUE)
            if method is None:
                break
            self.given.add(identify(body))
            if not method.delivery_tag % ACKED_TOGETHER:       # the get behind an ack waits for the disk, decision 339
                channel.basic_ack(method.delivery_tag, multiple=True)
        connection.close()
        missing = [name for name, operation in self._log.operations.items() if operation.state == ACKNOWLEDGED
                   and operation.sent_s > self.bound_s and name not in self.given]
        assert self.bound_s and not missing, f"never given over AMQP: {sorted(missing)[:5]}, {len(missing)} in all"
