"""What MassTransit, EasyNetQ and NServiceBus declare, bind, publish and consume, as their sources have it: names with
colons, commas and spaces, exchanges bound to exchanges, queues that only delay. Cases as those of `cases`."""
from __future__ import annotations

from typing import Any, Final

from pika import spec

from tests.rabbitmq.steps import AWAITED, QUORUM, bind, consume, exchange, publish, qos, queue
from tests.rabbitmq.wire import Send, Step

CONFIRMS: Final = Send(spec.Confirm.Select())
ENDPOINT: Final = "Sales.Endpoint"
LEVELS: Final = 28
MASSTRANSIT: Final = "application/vnd.masstransit+json"
OF_EASYNETQ: Final = "Shop.Contracts.OrderPlaced, Shop.Contracts"


def link(destination: str, source: str, key: str = "") -> Send:
    return Send(spec.Exchange.Bind(destination=destination, source=source, routing_key=key))


def ack(tag: int = 1) -> Send:
    return Send(spec.Basic.Ack(delivery_tag=tag))


# ---- MassTransit: a fanout exchange for each message type, for each endpoint one of the name of its queue

def _endpoint(name: str, **arguments: Any) -> tuple[Step, ...]:
    return (exchange(name, "fanout"), queue(name, **arguments), bind(name, "", name))


def _envelope(**headers: Any) -> dict[str, Any]:
    return {"content_type": MASSTRANSIT, "delivery_mode": 2, "message_id": "9f7c0000-26a8-3c97-d5d9-08dd0a1b2c3d",
            "headers": {"Content-Type": MASSTRANSIT, "publishId": "1", **headers}}


BUS: Final = "host_Api_bus_ia8yyydnqyyfkyxjbdqcokm6qn"
MASSTRANSIT_CASES: Final[dict[str, tuple[Step, ...]]] = {
    "masstransit: an endpoint of a consumer": (
        qos(16), *_endpoint("submit-order"), exchange("Shop.Contracts:SubmitOrder", "fanout"),
        exchange("Shop.Contracts:Command", "fanout"),
        link("Shop.Contracts:Command", "Shop.Contracts:SubmitOrder"),
        link("submit-order", "Shop.Contracts:SubmitOrder"),
        consume("submit-order", tag="submit-order-ia8yyyd"), CONFIRMS,
        publish("", "Shop.Contracts:SubmitOrder", mandatory=False, **_envelope()), AWAITED, ack()),
    "masstransit: the endpoint of a bus": (
        exchange(BUS, "fanout", auto_delete=True, durable=False),
        queue(BUS, durable=False, auto_delete=True, x_expires=60_000), bind(BUS, "", BUS), qos(16), consume(BUS),
        CONFIRMS, publish("", BUS, mandatory=True, **_envelope(), reply_to=BUS), AWAITED, ack()),
    "masstransit: a fault goes to the error queue": (
        qos(16), *_endpoint("orders", **QUORUM), *_endpoint("orders_error", **QUORUM), consume("orders"), CONFIRMS,
        publish("", "orders", **_envelope()), AWAITED,
        publish("", "orders_error", mandatory=True, **_envelope(**{
            "MT-Reason": "fault", "MT-Fault-ExceptionType": "System.Exception", "MT-Fault-RetryCount": 3})), ack(),
        consume("orders_error", tag="e"), AWAITED, ack(2)),
    "masstransit: what nobody consumes is skipped": (
        *_endpoint("orders"), *_endpoint("orders_skipped"), qos(16), consume("orders"),
        publish("", "orders", **_envelope()), AWAITED, publish("", "orders_skipped", **_envelope()), ack()),
    "masstransit: a send to an endpoint that is not there": (
        CONFIRMS, exchange("nobody", "fanout"), publish("", "nobody", mandatory=True, **_envelope())),
}

# ---- EasyNetQ: a topic exchange for each message type, a queue for each subscription

RESPONSES: Final = "easynetq.response.3c9d7f1a-6c0b-4c3e-9e0e-6d3f1f0a7b11"
EASYNETQ_CASES: Final[dict[str, tuple[Step, ...]]] = {
    "easynetq: a subscription": (
        qos(50), exchange(OF_EASYNETQ, "topic"), queue(f"{OF_EASYNETQ}_billing"),
        bind(OF_EASYNETQ, "#", f"{OF_EASYNETQ}_billing"), consume(f"{OF_EASYNETQ}_billing"), CONFIRMS,
        publish("", OF_EASYNETQ, type=OF_EASYNETQ, delivery_mode=2, correlation_id="c1"), AWAITED, ack()),
    "easynetq: a subscription with a topic": (
        qos(50), exchange(OF_EASYNETQ, "topic"), queue(f"{OF_EASYNETQ}_eu", x_max_priority=10, x_expires=600_000),
        bind(OF_EASYNETQ, "eu.*", f"{OF_EASYNETQ}_eu"), consume(f"{OF_EASYNETQ}_eu"),
        publish("us.1", OF_EASYNETQ, mandatory=True, type=OF_EASYNETQ), publish("eu.1", OF_EASYNETQ, priority=3),
        AWAITED),
    "easynetq: a request": (
        exchange("easy_net_q_rpc"), queue("Shop.Ask, Shop"), bind("easy_net_q_rpc", "Shop.Ask, Shop", "Shop.Ask, Shop"),
        queue(RESPONSES, durable=False, exclusive=True, auto_delete=True), bind("easy_net_q_rpc", RESPONSES, RESPONSES),
        qos(50), consume("Shop.Ask, Shop"), consume(RESPONSES, tag="r"),
        publish("Shop.Ask, Shop", "easy_net_q_rpc", reply_to=RESPONSES, correlation_id="c2", expiration="10000"),
        AWAITED, publish(RESPONSES, "easy_net_q_rpc", correlation_id="c2"), ack(), AWAITED, ack(2)),
    "easynetq: errors": (
        exchange("ErrorExchange_#"), queue("EasyNetQ_Default_Error_Queue"),
        bind("ErrorExchange_#", "#", "EasyNetQ_Default_Error_Queue"),
        publish("#", "ErrorExchange_#", mandatory=True, content_type="application/json", delivery_mode=2)),
    "easynetq: a message for later, by a queue that delays": (
        exchange(OF_EASYNETQ, "topic"), queue("done"), bind(OF_EASYNETQ, "#", "done"),
        exchange(f"{OF_EASYNETQ}_00_00_00_200", "topic"),
        queue(f"{OF_EASYNETQ}_00_00_00_200", x_dead_letter_exchange=OF_EASYNETQ, x_dead_letter_routing_key="#",
              x_message_ttl=200),
        bind(f"{OF_EASYNETQ}_00_00_00_200", "#", f"{OF_EASYNETQ}_00_00_00_200"), qos(50), consume("done"),
        publish("a", f"{OF_EASYNETQ}_00_00_00_200"), AWAITED, ack()),
}


# ---- NServiceBus: quorum queues, exchanges of event types bound to the endpoint's, and 28 levels that delay

def _level(number: int) -> str:
    return f"nsb.v2.delay-level-{number:02d}"


def _delays() -> tuple[Step, ...]:
    """The levels from the longest on; what is left of a delay after one goes to the next."""
    made: list[Step] = []
    key = "1.#"
    for number in range(LEVELS - 1, -1, -1):
        after = _level(number - 1) if number else "nsb.v2.delay-delivery"
        made += [exchange(_level(number), "topic"),
                 queue(_level(number), **QUORUM, **{"x-dead-letter-strategy": "at-least-once"},
                       x_overflow="reject-publish", x_message_ttl=1000 << number, x_dead_letter_exchange=after),
                 bind(_level(number), key, _level(number))]
        key = f"*.{key}"
    key = "0.#"
    for number in range(LEVELS - 1, 0, -1):
        made.append(link(_level(number - 1), _level(number), key))
        key = f"*.{key}"
    return (*made, exchange("nsb.v2.delay-delivery", "topic"), link("nsb.v2.delay-delivery", _level(0), key))


def _delayed(seconds: int) -> str:
    return ".".join(f"{seconds:0{LEVELS}b}") + f".{ENDPOINT}"


NSERVICEBUS: Final[tuple[Step, ...]] = (
    exchange(ENDPOINT, "fanout"), queue(ENDPOINT, **QUORUM), bind(ENDPOINT, "", ENDPOINT))
HEADERS: Final = {"NServiceBus.MessageIntent": "Publish",
                  "NServiceBus.EnclosedMessageTypes": "Sales.OrderPlaced, Sales",
                  "NServiceBus.Transport.RabbitMQ.ConfirmationId": "1", "NServiceBus.NonDurableMessage": "False"}
NSERVICEBUS_CASES: Final[dict[str, tuple[Step, ...]]] = {
    "nservicebus: whether there are streams": (
        queue("nsb.v2.verify-stream-flag-enabled", x_queue_type="stream"),
        Send(spec.Queue.Delete(queue="nsb.v2.verify-stream-flag-enabled"))),
    "nservicebus: an endpoint and its events": (
        *NSERVICEBUS, queue("error", **QUORUM), queue("audit", **QUORUM), exchange("Sales:OrderPlaced", "fanout"),
        exchange("NServiceBus:IEvent", "fanout"), link("NServiceBus:IEvent", "Sales:OrderPlaced"),
        link(ENDPOINT, "Sales:OrderPlaced"), qos(30), consume(ENDPOINT, tag=f"{ENDPOINT} - host"), CONFIRMS,
        publish("", "Sales:OrderPlaced", type="Sales.OrderPlaced", delivery_mode=2, message_id="m1", headers=HEADERS),
        AWAITED, publish("error", headers=HEADERS, mandatory=True), ack()),
    "nservicebus: a message for later, over two levels": (
        *NSERVICEBUS, *_delays(), link(ENDPOINT, "nsb.v2.delay-delivery", f"#.{ENDPOINT}"), qos(30), consume(ENDPOINT),
        CONFIRMS, publish(_delayed(3), _level(1), mandatory=True, delivery_mode=2, headers={
            **HEADERS, "NServiceBus.Transport.RabbitMQ.DelayInSeconds": 3}), AWAITED, ack()),
    "nservicebus: a message that expires": (
        *NSERVICEBUS, publish("", ENDPOINT, expiration="60000", mandatory=True, headers=HEADERS)),
}

FRAMEWORKS: Final = {**MASSTRANSIT_CASES, **EASYNETQ_CASES, **NSERVICEBUS_CASES}
