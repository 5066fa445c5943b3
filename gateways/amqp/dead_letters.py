"""What becomes of a message that a queue gives up, as RabbitMQ's dead-letter exchanges have it. Pure.

It is published again to the queue's dead-letter exchange with `x-death`, an array with one entry per queue and reason,
the latest first, and with the first and the last death in headers of their own. A queue that the message would enter
again without anybody having rejected it is left out: nothing loops by itself. Its expiration is taken off and kept in
`x-death`. An exchange of type `x-delayed-message` lets it wait for its `x-delay`, as any message.
"""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.exchanges import DELAY, DELAYED, delay_in, waited
from gatehouse.gateways.amqp.tables import Field, Table, text

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost

DEATHS: Final = "x-death"
OF_DEATHS: Final = (DEATHS, "x-first-death-", "x-last-death-")
OVERFLOW: Final = "overflow"
REASONS: Final = {"expired": "expired", "rejected": "rejected", OVERFLOW: "maxlen", "attempts": "delivery_limit"}
"""The kernel's reasons in RabbitMQ's words."""


class DeadLetter(NamedTuple):
    """A message on its way to queues."""

    exchange: str                  # that it is published to; "": the default one, or none that is there
    queues: list[AmqpQueue]
    names: bytes                   # exchange and routing key
    raw: bytes                     # flags and properties
    priority: int
    blind: list[str]               # keys that it goes by, too, and nobody sees
    delay_ms: int                  # it waits so long before it goes there


def dead_letter(vhost: VirtualHost, queue: str, target: str, side: bytes, reason: str, now_ms: int, *,
                is_own: bool, blind: list[str]) -> DeadLetter:
    """`target`: what `encode_target` made; `side`: the AMQP side of the message; `reason`: the kernel's; `is_own`: what
    it says of earlier deaths is the hub's word, and no client's (RabbitMQ 4 does not believe those either); `blind`:
    the keys that were its BCC."""
    read = json.loads(target)
    exchange: str = read["exchange"]
    split = codec.names_end(side)
    old_exchange, old_key = mapping.read_names(side)
    raw = side[split:]
    message_properties = properties.read(raw)
    headers: Table = dict(message_properties.get("headers", {}))
    key: str = old_key if read["key"] is None else read["key"]
    death = REASONS[reason]
    if not is_own:  # decision 191
        headers = {name: field for name, field in headers.items() if not name.startswith(OF_DEATHS)}
    deaths = _with_death(headers, queue, death, old_exchange, mapping.keys_of(old_key, headers),
                         message_properties.get("expiration"), now_ms)
    if read["key"] is None:
        keys = [*mapping.keys_of(key, headers), *blind]
    else:                                      # the only one from here on
        keys, blind = [key], []
        headers.pop(mapping.CC, None)
    is_there = not exchange or exchange in vhost.exchanges
    queues = vhost.route(exchange, keys, headers, message_properties) if is_there else []
    if death != "rejected":
        queues = [candidate for candidate in queues if not _is_cycle(candidate.name, deaths)]
    delay_ms = 0
    if is_there and exchange and vhost.exchanges[exchange].type == DELAYED:
        delay_ms = delay_in(headers)
        if delay_ms:
            headers[DELAY] = waited(delay_ms)
    return DeadLetter(exchange if is_there else "", queues, mapping.names_of(exchange, key),
                      properties.replaced(raw, headers, without="expiration"), message_properties.get("priority", 0),
                      blind, delay_ms)


def encode_target(exchange: str | None, key: str | None) -> str:
    """The place where dead letters go, as the kernel keeps it. Key None: dead letters keep their routing key."""
    return "" if exchange is None else json.dumps({"exchange": exchange, "key": key})


def _with_death(headers: Table, queue: str, reason: str, exchange: str, keys: list[str], expiration: str | None,
                now_ms: int) -> list[Table]:
    """Write this death into the headers. Returns all deaths, the latest first."""
    field = headers.get(DEATHS)
    deaths: list[Table] = [entry.value for entry in field.value if entry.type == "F"] if field is not None \
        and field.type == "A" else []
    same = next((death for death in deaths if _says(death, "queue", queue) and _says(death, "reason", reason)), None)
    if same is None:
        latest: Table = {"count": Field("l", 1), "reason": text(reason), "queue": text(queue),
                         "time": Field("T", now_ms // 1000), "exchange": text(exchange),
                         "routing-keys": Field("A", [text(key) for key in keys])}
        if expiration is not None:
            latest["original-expiration"] = text(expiration)
    else:
        deaths.remove(same)
        count = same.get("count")
        latest = {**same, "count": Field("l", (count.value if count is not None and count.type == "l" else 0) + 1)}
    deaths.insert(0, latest)
    headers[DEATHS] = Field("A", [Field("F", death) for death in deaths])
    for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
        headers.setdefault(f"x-first-death-{name}", text(value))
        headers[f"x-last-death-{name}"] = text(value)
    return deaths


def _is_cycle(queue: str, deaths: list[Table]) -> bool:
    """Whether the message has died in this queue before, and nobody has rejected it since."""
    for death in deaths:
        if _says(death, "reason", "rejected"):
            return False
        if _says(death, "queue", queue):
            return True
    return False


def _says(death: Table, name: str, value: str) -> bool:
    return death.get(name) == text(value)
