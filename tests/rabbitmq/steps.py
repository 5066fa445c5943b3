"""The steps of cases in few words: declare, bind, publish, consume."""
from __future__ import annotations

from typing import Any, Final

from pika import spec

from tests.rabbitmq.wire import Await, Send

Basic, Exchange, Queue = spec.Basic, spec.Exchange, spec.Queue


def queue(name: str = "q", *, on: int = 0, durable: bool = True, exclusive: bool = False, auto_delete: bool = False,
          passive: bool = False, channel: int = 1, **arguments: Any) -> Send:
    """queue.declare; arguments have `_` for `-`."""
    return Send(Queue.Declare(queue=name, durable=durable, exclusive=exclusive, auto_delete=auto_delete,
                              passive=passive, arguments=table(arguments)), connection=on, channel=channel)


def exchange(name: str = "x", kind: str = "direct", *, durable: bool = True, auto_delete: bool = False,
             internal: bool = False, passive: bool = False, **arguments: Any) -> Send:
    """exchange.declare; arguments have `_` for `-`."""
    return Send(Exchange.Declare(exchange=name, type=kind, durable=durable, auto_delete=auto_delete,
                                 internal=internal, passive=passive, arguments=table(arguments)))


def table(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in arguments.items()}


def bind(source: str = "x", key: str = "k", to: str = "q", **arguments: Any) -> Send:
    return Send(Queue.Bind(queue=to, exchange=source, routing_key=key, arguments=table(arguments)))


def publish(key: str = "q", source: str = "", body: bytes = b"m", *, mandatory: bool = False, immediate: bool = False,
            channel: int = 1, **properties: Any) -> Send:
    return Send(Basic.Publish(exchange=source, routing_key=key, mandatory=mandatory, immediate=immediate), body,
                spec.BasicProperties(**properties), channel)


def consume(name: str = "q", *, tag: str = "t", no_ack: bool = False, exclusive: bool = False, on: int = 0,
            channel: int = 1, **arguments: Any) -> Send:
    return Send(Basic.Consume(queue=name, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive,
                              arguments=table(arguments)), connection=on, channel=channel)


def get(name: str = "q", *, no_ack: bool = False, on: int = 0) -> Send:
    return Send(Basic.Get(queue=name, no_ack=no_ack), connection=on)


def qos(count: int, *, size: int = 0, of_all: bool = False) -> Send:
    return Send(Basic.Qos(prefetch_count=count, prefetch_size=size, global_qos=of_all))


AWAITED: Final = Await()               # a delivery
STREAM: Final = {"x_queue_type": "stream"}
QUORUM: Final = {"x_queue_type": "quorum"}
