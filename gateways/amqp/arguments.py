"""The optional arguments of queues, exchanges and consumers: what each may be, and RabbitMQ's refusals. Pure."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gatehouse.gateways.amqp.errors import ChannelFault, precondition
from gatehouse.gateways.amqp.tables import INTEGERS, TYPE_NAMES, Field, Table, described, plain, type_class

NUMBERS: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority",
                  "x-delivery-limit", "x-consumer-timeout")
TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type", "x-queue-mode",
                "x-queue-master-locator", "x-dead-letter-strategy")
FLAGS: Final = ("x-single-active-consumer",)
COMPARED: Final = (*NUMBERS, *TEXTS[:4], *FLAGS)
"""What must be the same when a queue is declared again."""

NOT_HONOURED: Final = {
    "x-priority": "consumers of a queue are served in turn, whatever their priority",
    "no_local": "a consumer is given what its own connection publishes, too, as in RabbitMQ",
    "x-delay": "the message is delivered at once, as in RabbitMQ without its plug-in; delays are for HTTP and MQTT",
    "reject-publish-dlx": "what a full queue refuses is refused, and is no dead letter"}
"""What clients ask for without effect, and what happens instead."""

OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES: Final = ("classic", "quorum")
UNLIMITED: Final = -1                  # RabbitMQ's word for no delivery limit
TIMES: Final = ("x-expires", "x-message-ttl", "x-consumer-timeout")
MAX_PRIORITY: Final = 255
MAX_EXPIRY_MS: Final = 0xFFFFFFFF      # RabbitMQ's: what a timer of its machine takes


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """A queue's arguments, read; None where it has none. Times in milliseconds."""

    priorities: int = 0                # the highest; 0: all messages are alike
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "drop-head"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None      # how long the queue may be unused
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    single_active: bool = False
    delivery_limit: int | None = None  # redeliveries; the next time that it comes back it is a dead letter
    consumer_timeout_ms: int | None = None


def read_queue_arguments(arguments: Table, where: str) -> QueueArguments:
    """`where`: `queue 'q' in vhost '/'`, for the refusal (ChannelFault 406)."""
    for name in NUMBERS:
        _check_number(name, arguments.get(name), where)
    for name in TEXTS:
        check_type(name, arguments.get(name), "S", where)
    for name in FLAGS:
        field = arguments.get(name)
        if field is not None and field.type != "t":
            raise _invalid(name, where, f"{{unacceptable_type,{TYPE_NAMES[field.type]}}}")
    overflow = _text(arguments, "x-overflow") or OVERFLOWS[0]
    kind = _text(arguments, "x-queue-type") or QUEUE_TYPES[0]
    if overflow not in OVERFLOWS:
        raise _invalid("x-overflow", where, "invalid_overflow")
    if kind not in QUEUE_TYPES:
        raise _invalid("x-queue-type", where, f"\"unsupported queue type '{kind}'\"")
    exchange, key = _text(arguments, "x-dead-letter-exchange"), _text(arguments, "x-dead-letter-routing-key")
    if key is not None and exchange is None:
        raise _invalid("x-dead-letter-routing-key", where, "routing_key_but_no_dlx_defined")
    single = arguments.get("x-single-active-consumer")
    return QueueArguments(
        priorities=_number(arguments, "x-max-priority") or 0, max_length=_number(arguments, "x-max-length"),
        max_bytes=_number(arguments, "x-max-length-bytes"), overflow=overflow,
        message_ttl_ms=_number(arguments, "x-message-ttl"), expires_ms=_number(arguments, "x-expires"),
        dead_letter_exchange=exchange, dead_letter_key=key, single_active=single is not None and bool(single.value),
        delivery_limit=_delivery_limit(arguments), consumer_timeout_ms=_number(arguments, "x-consumer-timeout"))


def check_same(names: Iterable[str], current: Table, received: Table, where: str) -> None:
    """Raises ChannelFault 406 for the first argument that differs."""
    for name in names:
        ours, theirs = current.get(name), received.get(name)
        if ours is None and theirs is None:
            continue
        if ours is not None and theirs is not None and type_class(ours) == type_class(theirs):
            check_field(name, plain(ours), plain(theirs), where)
        else:
            raise precondition(f"inequivalent arg '{name}' for {where}: received {described(theirs)} but current is "
                               f"{described(ours)}")


def check_field(name: str, current: object, received: object, where: str) -> None:
    """Compare a flag or a type, which is no argument, with what was declared before. Raises ChannelFault 406 where it
    differs."""
    if current != received:
        shown = [str(value).lower() if isinstance(value, bool) else value for value in (received, current)]
        raise precondition(f"inequivalent arg '{name}' for {where}: received '{shown[0]}' but current is '{shown[1]}'")


def check_priority(arguments: Table, where: str) -> bool:
    """Whether a consumer has a priority. Raises ChannelFault 406 for one that cannot be."""
    field = arguments.get("x-priority")
    if field is not None and field.type not in INTEGERS:
        raise _invalid("x-priority", where, f'"expected integer, got {TYPE_NAMES[field.type]}"')
    return field is not None and field.value != 0


def _check_number(name: str, field: Field | None, where: str) -> None:
    if field is None:
        return
    if field.type not in INTEGERS:
        raise _invalid(name, where, f'"expected integer, got {TYPE_NAMES[field.type]}"')
    value = field.value
    if name == "x-delivery-limit" and value == UNLIMITED:
        return
    if value < 0:
        raise _invalid(name, where, f"{{value_negative,{value}}}")
    if name == "x-expires" and value == 0:
        raise _invalid(name, where, "{value_zero,0}")
    if name == "x-max-priority" and value > MAX_PRIORITY:
        raise _invalid(name, where, f"{{max_value_exceeded,{value}}}")
    if name in TIMES and value > MAX_EXPIRY_MS:
        raise _invalid(name, where, f"{{value_too_large,{value}}}")


def check_type(name: str, field: Field | None, kind: str, where: str) -> None:
    """Raises ChannelFault 406 for an argument of another type."""
    if field is not None and field.type != kind:
        raise precondition(f"invalid type '{TYPE_NAMES[field.type]}' for arg '{name}' in {where}")


def _invalid(name: str, where: str, why: str) -> ChannelFault:
    return precondition(f"invalid arg '{name}' for {where}: {why}")


def _number(arguments: Table, name: str) -> int | None:
    field = arguments.get(name)
    return None if field is None else int(field.value)


def _delivery_limit(arguments: Table) -> int | None:
    limit = _number(arguments, "x-delivery-limit")
    return None if limit == UNLIMITED else limit


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    return None if field is None else str(field.value.decode(errors="replace"))
