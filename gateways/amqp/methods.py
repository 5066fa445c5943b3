"""Every method of AMQP 0-9-1 but those of the hot path, as a table of names and types; decoded to dictionaries. Pure.

    method frame's payload   class (2) | method (2) | arguments in the order of the table

    o octet   h short (2)   l long (4)   q long long (8)   s short string   S long string   F field table
    b bit: consecutive ones share octets, the first in the lowest bit

Source: amqp0-9-1.extended.xml, whose last methods (exchange.bind, basic.nack, confirm, connection.blocked and
connection.update-secret) are RabbitMQ's extensions; access.request is of 0-8, and old clients ask it still. Names that
the specification calls `reserved` are `_`.
"""
from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from gatehouse.gateways.amqp.errors import AmqpError, SyntaxFault
from gatehouse.gateways.amqp.tables import Table, decode_table, encode_table

Arguments = dict[str, Any]


class Spec(NamedTuple):
    name: str
    fields: tuple[tuple[str, str], ...]        # (name, type)


def _spec(name: str, fields: str) -> Spec:
    return Spec(name, tuple((field.rpartition(":")[0], field.rpartition(":")[2]) for field in fields.split()))


# decision 63: a table of our own
METHODS: Final[dict[tuple[int, int], Spec]] = {
    (10, 10): _spec("connection.start", "major:o minor:o server_properties:F mechanisms:S locales:S"),
    (10, 11): _spec("connection.start-ok", "client_properties:F mechanism:s response:S locale:s"),
    (10, 20): _spec("connection.secure", "challenge:S"),
    (10, 21): _spec("connection.secure-ok", "response:S"),
    (10, 30): _spec("connection.tune", "channel_max:h frame_max:l heartbeat:h"),
    (10, 31): _spec("connection.tune-ok", "channel_max:h frame_max:l heartbeat:h"),
    (10, 40): _spec("connection.open", "virtual_host:s _:s insist:b"),
    (10, 41): _spec("connection.open-ok", "_:s"),
    (10, 50): _spec("connection.close", "code:h text:s class_id:h method_id:h"),
    (10, 51): _spec("connection.close-ok", ""),
    (10, 60): _spec("connection.blocked", "reason:s"),
    (10, 61): _spec("connection.unblocked", ""),
    (10, 70): _spec("connection.update-secret", "secret:S reason:s"),
    (10, 71): _spec("connection.update-secret-ok", ""),
    (20, 10): _spec("channel.open", "_:s"),
    (20, 11): _spec("channel.open-ok", "_:S"),
    (20, 20): _spec("channel.flow", "active:b"),
    (20, 21): _spec("channel.flow-ok", "active:b"),
    (20, 40): _spec("channel.close", "code:h text:s class_id:h method_id:h"),
    (20, 41): _spec("channel.close-ok", ""),
    (30, 10): _spec("access.request", "realm:s exclusive:b passive:b active:b write:b read:b"),
    (30, 11): _spec("access.request-ok", "ticket:h"),
    (40, 10): _spec("exchange.declare", "_:h exchange:s type:s passive:b durable:b auto_delete:b internal:b no_wait:b "
                                        "arguments:F"),
    (40, 11): _spec("exchange.declare-ok", ""),
    (40, 20): _spec("exchange.delete", "_:h exchange:s if_unused:b no_wait:b"),
    (40, 21): _spec("exchange.delete-ok", ""),
    (40, 30): _spec("exchange.bind", "_:h destination:s source:s routing_key:s no_wait:b arguments:F"),
    (40, 31): _spec("exchange.bind-ok", ""),
    (40, 40): _spec("exchange.unbind", "_:h destination:s source:s routing_key:s no_wait:b arguments:F"),
    (40, 51): _spec("exchange.unbind-ok", ""),
    (50, 10): _spec("queue.declare", "_:h queue:s passive:b durable:b exclusive:b auto_delete:b no_wait:b arguments:F"),
    (50, 11): _spec("queue.declare-ok", "queue:s message_count:l consumer_count:l"),
    (50, 20): _spec("queue.bind", "_:h queue:s exchange:s routing_key:s no_wait:b arguments:F"),
    (50, 21): _spec("queue.bind-ok", ""),
    (50, 30): _spec("queue.purge", "_:h queue:s no_wait:b"),
    (50, 31): _spec("queue.purge-ok", "message_count:l"),
    (50, 40): _spec("queue.delete", "_:h queue:s if_unused:b if_empty:b no_wait:b"),
    (50, 41): _spec("queue.delete-ok", "message_count:l"),
    (50, 50): _spec("queue.unbind", "_:h queue:s exchange:s routing_key:s arguments:F"),
    (50, 51): _spec("queue.unbind-ok", ""),
    (60, 10): _spec("basic.qos", "prefetch_size:l prefetch_count:h global:b"),
    (60, 11): _spec("basic.qos-ok", ""),
    (60, 20): _spec("basic.consume", "_:h queue:s consumer_tag:s no_local:b no_ack:b exclusive:b no_wait:b "
                                     "arguments:F"),
    (60, 21): _spec("basic.consume-ok", "consumer_tag:s"),
    (60, 30): _spec("basic.cancel", "consumer_tag:s no_wait:b"),
    (60, 31): _spec("basic.cancel-ok", "consumer_tag:s"),
    (60, 40): _spec("basic.publish", "_:h exchange:s routing_key:s mandatory:b immediate:b"),
    (60, 50): _spec("basic.return", "code:h text:s exchange:s routing_key:s"),
    (60, 60): _spec("basic.deliver", "consumer_tag:s delivery_tag:q redelivered:b exchange:s routing_key:s"),
    (60, 70): _spec("basic.get", "_:h queue:s no_ack:b"),
    (60, 71): _spec("basic.get-ok", "delivery_tag:q redelivered:b exchange:s routing_key:s message_count:l"),
    (60, 72): _spec("basic.get-empty", "_:s"),
    (60, 80): _spec("basic.ack", "delivery_tag:q multiple:b"),
    (60, 90): _spec("basic.reject", "delivery_tag:q requeue:b"),
    (60, 100): _spec("basic.recover-async", "requeue:b"),
    (60, 110): _spec("basic.recover", "requeue:b"),
    (60, 111): _spec("basic.recover-ok", ""),
    (60, 120): _spec("basic.nack", "delivery_tag:q multiple:b requeue:b"),
    (85, 10): _spec("confirm.select", "no_wait:b"),
    (85, 11): _spec("confirm.select-ok", ""),
    (90, 10): _spec("tx.select", ""),
    (90, 11): _spec("tx.select-ok", ""),
    (90, 20): _spec("tx.commit", ""),
    (90, 21): _spec("tx.commit-ok", ""),
    (90, 30): _spec("tx.rollback", ""),
    (90, 31): _spec("tx.rollback-ok", ""),
}
IDS: Final[dict[str, tuple[int, int]]] = {spec.name: ids for ids, spec in METHODS.items()}

_METHOD: Final = struct.Struct(">HH")
_NUMBERS: Final = {"o": struct.Struct(">B"), "h": struct.Struct(">H"), "l": struct.Struct(">I"),
                   "q": struct.Struct(">Q")}
_DEFAULTS: Final[dict[str, Any]] = {"o": 0, "h": 0, "l": 0, "q": 0, "s": "", "S": b"", "b": False, "F": Table()}


def start_of(name: str) -> bytes:
    """How the payload of this method begins."""
    return _METHOD.pack(*IDS[name])


def decode_method(payload: bytes) -> tuple[str, Arguments]:
    """(name, arguments). Raises SyntaxFault, and ConnectionFault 503... for a method that does not exist."""
    if len(payload) < _METHOD.size:
        raise SyntaxFault("a method frame without a method")
    ids = _METHOD.unpack_from(payload)
    spec = METHODS.get(ids)
    if spec is None:
        raise UnknownMethod(*ids)
    arguments: Arguments = {}
    at, bit = _METHOD.size, 0
    for name, kind in spec.fields:
        if kind == "b":
            at += bit == 0
            if at > len(payload):
                raise SyntaxFault(f"{spec.name} is cut off")
            arguments[name] = bool(payload[at - 1] >> bit & 1)
            bit = (bit + 1) % 8
            continue
        bit = 0
        arguments[name], at = _read(kind, payload, at, spec.name)
    return spec.name, arguments


class UnknownMethod(SyntaxFault):
    def __init__(self, class_id: int, method_id: int) -> None:
        super().__init__(f"there is no method {class_id}.{method_id}")
        self.method = (class_id, method_id)


def _read(kind: str, payload: bytes, at: int, name: str) -> tuple[Any, int]:
    number = _NUMBERS.get(kind)
    if kind == "F":
        return decode_table(payload, at)
    if number is not None:
        if at + number.size > len(payload):
            raise SyntaxFault(f"{name} is cut off")
        return number.unpack_from(payload, at)[0], at + number.size
    size_of_size = 1 if kind == "s" else 4
    begin = at + size_of_size
    end = begin + int.from_bytes(payload[at:begin], "big")
    if end > len(payload) or begin > len(payload):
        raise SyntaxFault(f"{name} is cut off")
    if kind == "S":
        return payload[begin:end], end
    try:
        return payload[begin:end].decode(), end
    except UnicodeDecodeError:
        raise SyntaxFault(f"a name in {name} that is no UTF-8") from None


def encode_method(name: str, **arguments: Any) -> bytes:
    """The payload of a method frame; what is not given is zero, empty or false."""
    ids = IDS[name]
    parts = [_METHOD.pack(*ids)]
    bit = 0
    for field, kind in METHODS[ids].fields:
        value = arguments.get(field, _DEFAULTS[kind])
        if kind == "b":
            if bit == 0:
                parts.append(b"\0")
            parts[-1] = bytes((parts[-1][0] | value << bit,))
            bit = (bit + 1) % 8
            continue
        bit = 0
        parts.append(_written(kind, value))
    return b"".join(parts)


def _written(kind: str, value: Any) -> bytes:
    if kind == "F":
        return encode_table(value)
    if kind in _NUMBERS:
        return _NUMBERS[kind].pack(value)
    raw = value.encode() if isinstance(value, str) else value
    return (bytes((len(raw),)) if kind == "s" else len(raw).to_bytes(4, "big")) + raw


def of_publish(error: AmqpError) -> AmqpError:
    """The error, with the method of a publish."""
    error.method = IDS["basic.publish"]
    return error
