"""A virtual host's durable definitions as the names and values of records. Pure.

    exchange   x NAME               type, flags, arguments
    binding    b HASH OF ALL OF IT  all of it
    policy     p NAME               JSON
    operator   o NAME               the same of an operator policy
    stream     s NAME               whether its topic is its own, arguments
"""
from __future__ import annotations

import json
from hashlib import blake2b
from typing import Final

from gatehouse.gateways.amqp.exchanges import Binding, Destination, Exchange
from gatehouse.gateways.amqp.policies import Policy, read_policy
from gatehouse.gateways.amqp.tables import Field, Table, decode_table, encode_table, text
from gatehouse.gateways.amqp.vhost import AmqpQueue, StreamPlace, VirtualHost

EXCHANGE_MARK: Final = "x "
BINDING_MARK: Final = "b "
POLICY_MARK: Final = "p "
OPERATOR_MARK: Final = "o "
STREAM_MARK: Final = "s "
HASH_BYTES: Final = 20


def exchange_record(name: str) -> str:
    return EXCHANGE_MARK + name


def encode_exchange(exchange: Exchange) -> bytes:
    return encode_table({"name": text(exchange.name), "type": text(exchange.type),
                         "auto_delete": Field("t", exchange.auto_delete), "internal": Field("t", exchange.internal),
                         "arguments": Field("F", exchange.arguments)})


def decode_exchange(value: bytes) -> Exchange:
    table, _ = decode_table(value, 0)
    return Exchange(_text(table, "name"), _text(table, "type"), durable=True, auto_delete=table["auto_delete"].value,
                    internal=table["internal"].value, arguments=table["arguments"].value)


def stream_record(name: str) -> str:
    return STREAM_MARK + name


def encode_stream(queue: AmqpQueue) -> bytes:
    assert queue.stream is not None, "a stream is declared before it is written down"
    return encode_table({"name": text(queue.name), "is_made": Field("t", queue.stream.is_made),
                         "arguments": Field("F", queue.arguments)})


def decode_stream(value: bytes, vhost: VirtualHost) -> AmqpQueue:
    table, _ = decode_table(value, 0)
    name = _text(table, "name")
    queue = AmqpQueue(vhost, name, durable=True, auto_delete=False, owner=None, arguments=table["arguments"].value)
    queue.stream = StreamPlace(name, 0, table["is_made"].value)
    return queue


def policy_record(name: str, *, of_operators: bool) -> str:
    return (OPERATOR_MARK if of_operators else POLICY_MARK) + name


def encode_policy(policy: Policy) -> bytes:
    return json.dumps(policy.document()).encode()


def decode_policy(value: bytes) -> Policy:
    document = json.loads(value)
    return read_policy(document["name"], document)


def binding_record(binding: Binding) -> str:
    """The record name of a binding: short, whatever its arguments are."""
    return BINDING_MARK + blake2b(encode_binding(binding), digest_size=HASH_BYTES).hexdigest()


def encode_binding(binding: Binding) -> bytes:
    return encode_table({"source": text(binding.source), "kind": text(binding.destination.kind),
                         "name": text(binding.destination.name), "key": text(binding.routing_key)}) + binding.arguments


def decode_binding(value: bytes) -> tuple[Binding, Table]:
    """The binding and its arguments."""
    table, at = decode_table(value, 0)
    arguments, _ = decode_table(value, at)
    destination = Destination(_text(table, "kind"), _text(table, "name"))
    return Binding(_text(table, "source"), destination, _text(table, "key"), value[at:]), arguments


def _text(table: Table, name: str) -> str:
    return str(table[name].value.decode())
