"""The shop by AMQP 0-9-1, with pika."""
from __future__ import annotations

import json
from collections import deque
from typing import Any, Final, Self

import pika
import pika.exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from gatehouse.demo.orders.ledger import Outcome
from gatehouse.demo.orders.link import ANSWER_S, GROUP, TOPIC, Ask, LinkLost, OrderPlace, check_decided, decision_of

HELD: Final = f"$txn.half.{GROUP}"
DECIDED: Final = "$txn.decided"
CHECKS: Final = f"$txn.check.{GROUP}"
EXCHANGE: Final = "amq.topic"
LOST: Final = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)


class AmqpLink:
    """The shop's way to the hub by AMQP. Use it as `with`."""

    def __init__(self, place: OrderPlace) -> None:
        self._inboxes: dict[str, deque[Any]] = {name: deque() for name in (HELD, DECIDED, CHECKS)}
        try:
            self._connection = pika.BlockingConnection(pika.ConnectionParameters(
                place.host, place.port, socket_timeout=ANSWER_S, blocked_connection_timeout=ANSWER_S))
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
            self._consume(HELD)
            self._consume(DECIDED)
        except LOST as error:
            raise LinkLost(repr(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._connection.close()
        except LOST:
            return                       # it has ended already

    def hold(self, number: int, value: bytes) -> str:
        self._publish(EXCHANGE, f"{TOPIC}.{number}", value, {"x-half": GROUP})
        return str(self._take(HELD)["id"])

    def decide(self, transaction_id: str, outcome: Outcome) -> None:
        try:
            self._publish("", "$txn.decide", json.dumps(decision_of(transaction_id, outcome)).encode())
        except pika.exceptions.NackError:
            pass                         # what is wrong with it is told there, too
        check_decided(self._take(DECIDED))

    def answer(self, ask: Ask) -> None:
        self._consume(CHECKS)
        while True:
            check = self._take(CHECKS, None)
            self.decide(check["id"], ask(check["id"]))

    def _consume(self, name: str) -> None:
        self._channel.basic_consume(
            name, lambda channel, method, properties, body: self._inboxes[name].append(json.loads(body)), auto_ack=True)

    def _publish(self, exchange: str, key: str, body: bytes, headers: dict[str, Any] | None = None) -> None:
        """Returns when it is confirmed. Raises NackError, LinkLost."""
        try:
            self._channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers, delivery_mode=2))
        except pika.exceptions.NackError:
            if exchange:
                raise LinkLost("not stored") from None
            raise
        except LOST as error:
            raise LinkLost(repr(error)) from error

    def _take(self, name: str, timeout_s: float | None = ANSWER_S) -> Any:
        """What comes next there. Deliveries of a confirmed publish come before its confirm."""
        inbox = self._inboxes[name]
        try:
            if not inbox:
                self._connection.process_data_events(0)
            while not inbox and timeout_s is None:
                self._connection.process_data_events(1.0)
            if not inbox:
                self._connection.process_data_events(timeout_s or 0)
        except LOST as error:
            raise LinkLost(repr(error)) from error
        if not inbox:
            raise LinkLost(f"nothing comes from {name}")
        return inbox.popleft()
