"""A virtual host's durable definitions as the keys and values of records. Pure.

    exchange   key  vhost NUL "x" NUL name                                            value  type and flags, arguments
    binding    key  vhost NUL "b" NUL hash of all                                     value  all of it
"""
from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateways.amqp.exchanges import Binding, Destination, Exchange
from gateways.amqp.tables import Field, Table, decode_table, encode_table, text

EXCHANGE_MARK: Final = "x"
BINDING_MARK: Final = "b"
HASH_BYTES: Final = 20


def exchange_key(vhost: str, name: str) -> bytes:
    return "\0".join((vhost, EXCHANGE_MARK, name)).encode()


def encode_exchange(exchange: Exchange) -> bytes:
    return encode_table({"name": text(exchange.name), "type": text(exchange.type),
                         "auto_delete": Field("t", exchange.auto_delete), "internal": Field("t", exchange.internal),
                         "arguments": Field("F", exchange.arguments)})


def decode_exchange(value: bytes) -> Exchange:
    table, _ = decode_table(value, 0)
    return Exchange(_text(table, "name"), _text(table, "type"), durable=True, auto_delete=table["auto_delete"].value,
                    internal=table["internal"].value, arguments=table["arguments"].value)


def binding_key(vhost: str, binding: Binding) -> bytes:
    """Short, whatever the arguments are."""
    mark = "\0".join((vhost, BINDING_MARK, "")).encode()
    return mark + blake2b(encode_binding(binding), digest_size=HASH_BYTES).digest()


def encode_binding(binding: Binding) -> bytes:
    return encode_table({"source": text(binding.source), "kind": text(binding.destination.kind),
                         "name": text(binding.destination.name), "key": text(binding.routing_key)}) + binding.arguments


def decode_binding(value: bytes) -> tuple[Binding, Table]:
    """The binding and its arguments."""
    table, at = decode_table(value, 0)
    arguments, _ = decode_table(value, at)
    destination = Destination(_text(table, "kind"), _text(table, "name"))
    return Binding(_text(table, "source"), destination, _text(table, "key"), value[at:]), arguments


def vhost_and_mark(key: bytes) -> tuple[str, str]:
    vhost, mark, _ = key.split(b"\0", 2)
    return vhost.decode(), mark.decode()


def _text(table: Table, name: str) -> str:
    return str(table[name].value.decode())
