"""The shop by MQTT 3.1.1, with paho."""
from __future__ import annotations

import json
import queue
from typing import Any, Final, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from gatehouse.demo.orders.ledger import Outcome
from gatehouse.demo.orders.link import ANSWER_S, GROUP, TOPIC, Ask, LinkLost, OrderPlace, check_decided, decision_of

HELD: Final = f"$txn/half/{GROUP}"
DECIDED: Final = "$txn/decided"
CHECKS: Final = f"$txn/check/{GROUP}"


class MqttLink:
    """The shop's way to the hub by MQTT. Use it as `with`. Paho could connect again by itself, and would send
    again; the shop makes a new link."""

    def __init__(self, place: OrderPlace) -> None:
        self._inboxes: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in (HELD, DECIDED, CHECKS)}
        self._subscribed: queue.Queue[Any] = queue.Queue()
        self._acknowledged: queue.Queue[Any] = queue.Queue()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311, reconnect_on_failure=False)
        self._client.on_message = lambda client, mine, message: self._inboxes[message.topic].put(
            json.loads(message.payload))
        self._client.on_subscribe = lambda client, mine, mid, codes, properties: self._subscribed.put(codes)
        self._client.on_publish = lambda client, mine, mid, code, properties: self._acknowledged.put(mid)
        self._client.on_disconnect = lambda *_: self._end()
        try:
            self._client.connect(place.host, place.port)
        except OSError as error:
            raise LinkLost(str(error)) from error

    def __enter__(self) -> Self:
        self._client.loop_start()
        try:
            self._subscribe(HELD, DECIDED)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def hold(self, number: int, value: bytes) -> str:
        sent = self._publish(f"$half/{GROUP}/{TOPIC}/{number}", value)
        while True:
            held = self._take(HELD)
            if held["packet_id"] == sent:
                return str(held["id"])

    def decide(self, transaction_id: str, outcome: Outcome) -> None:
        self._publish("$txn/decide", json.dumps(decision_of(transaction_id, outcome)).encode())
        while True:
            answer = self._take(DECIDED)
            if answer["id"] == transaction_id:
                return check_decided(answer)

    def answer(self, ask: Ask) -> None:
        self._subscribe(CHECKS)
        while True:
            check = self._take(CHECKS, None)
            self.decide(check["id"], ask(check["id"]))

    def _subscribe(self, *filters: str) -> None:
        self._client.subscribe([(topic_filter, 1) for topic_filter in filters])
        codes = self._get(self._subscribed, ANSWER_S)
        if any(code.is_failure for code in codes):
            raise LinkLost(f"not allowed to subscribe to {filters}")

    def _publish(self, topic: str, payload: bytes) -> int:
        """The packet id, once it is acknowledged."""
        sent = self._client.publish(topic, payload, 1)
        while self._get(self._acknowledged, ANSWER_S) != sent.mid:
            pass                         # of one before, which was not waited for
        return sent.mid

    def _take(self, topic: str, timeout_s: float | None = ANSWER_S) -> Any:
        return self._get(self._inboxes[topic], timeout_s)

    def _get(self, inbox: queue.Queue[Any], timeout_s: float | None) -> Any:
        try:
            answer = inbox.get(timeout=timeout_s)
        except queue.Empty:
            raise LinkLost("no answer") from None
        if answer is None:
            inbox.put(None)
            raise LinkLost("the connection has ended")
        return answer

    def _end(self) -> None:
        for inbox in (*self._inboxes.values(), self._subscribed, self._acknowledged):
            inbox.put(None)
