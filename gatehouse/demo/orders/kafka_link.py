"""The shop by Kafka, with librdkafka. The hub has the topics `txn-decide`, `txn-half.shop` and `txn-check.shop`."""
from __future__ import annotations

import json
import time
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from gatehouse.demo.orders.ledger import Outcome
from gatehouse.demo.orders.link import ANSWER_S, GROUP, TOPIC, Ask, DecisionRefused, LinkLost, OrderPlace, decision_of

HELD: Final = f"txn-half.{GROUP}"
CHECKS: Final = f"txn-check.{GROUP}"
DECIDE: Final = "txn-decide"


class KafkaLink:
    """The shop's way to the hub by Kafka. Use it as `with`. librdkafka connects again by itself, and sends again
    what was not answered."""

    def __init__(self, place: OrderPlace) -> None:
        self._where = {"bootstrap.servers": f"{place.host}:{place.port}", "reconnect.backoff.max.ms": 500,
                       "log_level": 0}
        self._producer = Producer(self._where | {"message.timeout.ms": int(ANSWER_S * 1000), "linger.ms": 0})
        self._held = self._reader(HELD)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def hold(self, number: int, value: bytes) -> str:
        self._produce(TOPIC, value, str(number), {"half": GROUP.encode()})
        end_s = time.monotonic() + ANSWER_S
        while time.monotonic() < end_s:
            held = _take(self._held)
            if held is not None and held["keys"] == [str(number)]:
                return str(held["id"])
        raise LinkLost("nobody says which transaction it is")

    def decide(self, transaction_id: str, outcome: Outcome) -> None:
        self._produce(DECIDE, json.dumps(decision_of(transaction_id, outcome)).encode())

    def answer(self, ask: Ask) -> None:
        checks = self._reader(CHECKS)
        try:
            while True:
                check = _take(checks)
                if check is not None:
                    self.decide(check["id"], ask(check["id"]))
        finally:
            checks.close()

    def _produce(self, topic: str, value: bytes, key: str | None = None,
                 headers: dict[str, str | bytes | None] | None = None) -> None:
        """Returns when it is answered. Raises LinkLost, DecisionRefused."""
        errors: list[KafkaError | None] = []
        self._producer.produce(topic, value, key, headers=headers or {},
                               on_delivery=lambda error, message: errors.append(error))
        self._producer.flush()
        (error,) = errors
        if error is None:
            return
        if topic == DECIDE and error.code() == KafkaError.INVALID_RECORD:
            raise DecisionRefused(str(error))
        raise LinkLost(str(error))

    def _reader(self, topic: str) -> Consumer:
        """A consumer of what comes to the topic from now on."""
        consumer = Consumer(self._where | {"group.id": GROUP, "enable.auto.commit": False})
        try:
            end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_S)[1]
            consumer.assign([TopicPartition(topic, 0, end)])
        except KafkaException as error:
            consumer.close()
            raise LinkLost(str(error)) from error
        return consumer


def _take(consumer: Consumer) -> Any:
    """The next record as JSON, or None where none came for a while."""
    record = consumer.poll(0.5)
    if record is None or record.error() is not None:
        return None
    return json.loads(record.value() or b"")
