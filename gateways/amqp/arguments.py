"""The optional arguments of queues, exchanges and consumers: what each may be, and RabbitMQ's refusals. Pure."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gatehouse.gateways.amqp.errors import ChannelFault, precondition
from gatehouse.gateways.amqp.tables import INTEGERS, TYPE_NAMES, Field, Table, described, plain, type_class

NUMBERS: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority",
                  "x-delivery-limit", "x-consumer-timeout", "x-max-in-memory-length", "x-max-in-memory-bytes",
                  "x-queue-version", "x-quorum-initial-group-size")
TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type", "x-queue-mode",
                "x-queue-master-locator", "x-queue-leader-locator", "x-dead-letter-strategy")
FLAGS: Final = ("x-single-active-consumer",)
COMPARED: Final = (*NUMBERS[:7], *TEXTS[:4], *FLAGS)
"""What must be the same when a queue is declared again."""

OF_STREAMS: Final = ("x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
                     "x-initial-cluster-size")
UNSUPPORTED: Final = {
    "classic": OF_STREAMS,
    "stream": ("x-expires", "x-message-ttl", "x-max-length", "x-max-priority", "x-delivery-limit", "x-consumer-timeout",
               "x-max-in-memory-length", "x-max-in-memory-bytes", "x-queue-version", "x-quorum-initial-group-size",
               "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-mode",
               "x-queue-master-locator", "x-dead-letter-strategy", "x-single-active-consumer"),
    "quorum": (*OF_STREAMS, "x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator")}
"""What queues of a type refuse. (Classic queues take those of quorum queues, too.)"""

OF_QUEUES: Final = frozenset((*NUMBERS, *TEXTS, *FLAGS, *OF_STREAMS))
OF_EXCHANGES: Final = frozenset(("alternate-exchange", "x-delayed-type", "hash-header", "hash-property"))
OF_CONSUMERS: Final = frozenset(("x-priority", "x-consumer-timeout"))
OF_STREAM_CONSUMERS: Final = frozenset(("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"))

OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES: Final = ("classic", "quorum", "stream")
INTERVALS_S: Final = {"Y": 31_557_600, "M": 2_629_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
STRATEGIES: Final = ("at-most-once", "at-least-once")
LOCATORS: Final = ("client-local", "balanced", "min-masters", "random", "least-leaders")
VERSIONS: Final = (1, 2)
UNLIMITED: Final = -1                  # RabbitMQ's word for no delivery limit
QUORUM_LIMIT: Final = 20               # deliveries that may come back to a quorum queue that says nothing: RabbitMQ 4's
TIMES: Final = ("x-expires", "x-message-ttl", "x-consumer-timeout")
MAX_PRIORITY: Final = 255
MAX_CONSUMER_PRIORITY: Final = 1 << 30           # further ones are as good as this
MAX_EXPIRY_MS: Final = 315_360_000_000           # ten years, as in RabbitMQ 4


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
    is_quorum: bool = False
    is_stream: bool = False
    max_age_ms: int | None = None      # of a stream's messages


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
    _check_choices(arguments, where)
    for name in UNSUPPORTED[kind]:
        if name in arguments:
            raise precondition(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    exchange, key = _text(arguments, "x-dead-letter-exchange"), _text(arguments, "x-dead-letter-routing-key")
    if key is not None and exchange is None:
        raise _invalid("x-dead-letter-routing-key", where, "routing_key_but_no_dlx_defined")
    single = arguments.get("x-single-active-consumer")
    return QueueArguments(
        priorities=_number(arguments, "x-max-priority") or 0, max_length=_number(arguments, "x-max-length"),
        max_bytes=_number(arguments, "x-max-length-bytes"), overflow=overflow,
        message_ttl_ms=_number(arguments, "x-message-ttl"), expires_ms=_number(arguments, "x-expires"),
        dead_letter_exchange=exchange, dead_letter_key=key, single_active=single is not None and bool(single.value),
        delivery_limit=_delivery_limit(arguments, kind), consumer_timeout_ms=_number(arguments, "x-consumer-timeout"),
        is_quorum=kind == "quorum", is_stream=kind == "stream", max_age_ms=_max_age_ms(arguments, where))


def _max_age_ms(arguments: Table, where: str) -> int | None:
    """`7D`: how long a stream keeps messages. Raises ChannelFault 406."""
    field = arguments.get("x-max-age")
    if field is None:
        return None
    if field.type != "S":
        raise _invalid("x-max-age", where, f"{{unacceptable_type,{TYPE_NAMES[field.type]}}}")
    age_ms = max_age_ms(str(field.value.decode(errors="replace")))
    if age_ms is None:
        raise _invalid("x-max-age", where, "invalid_max_age")
    return age_ms


def max_age_ms(said: str) -> int | None:
    """`7D` in ms; None for what is no age."""
    number = said[:-1]
    if said[-1:] not in INTERVALS_S or not number.isascii() or not number.isdigit() or not 0 < int(number[:9]) \
            or len(number) > 9:
        return None
    return int(number) * INTERVALS_S[said[-1]] * 1000


def unknown(arguments: Table, names: Iterable[str]) -> bool:
    """Whether there are arguments that nobody knows: RabbitMQ takes them, and so are they here, without effect."""
    return any(name.startswith("x-") and name not in names for name in arguments)


def _check_choices(arguments: Table, where: str) -> None:
    """What has no effect must be something that could have one."""
    strategy, version = _text(arguments, "x-dead-letter-strategy"), _number(arguments, "x-queue-version")
    if strategy is not None and strategy not in STRATEGIES:
        raise _invalid("x-dead-letter-strategy", where, "invalid_dlx_strategy")
    if version is not None and version not in VERSIONS:
        raise _invalid("x-queue-version", where, f"\"unsupported queue version '{version}'\"")
    if (_text(arguments, "x-queue-leader-locator") or LOCATORS[0]) not in LOCATORS:
        raise _invalid("x-queue-leader-locator", where, "invalid_queue_locator_arg")
    if _number(arguments, "x-quorum-initial-group-size") == 0:
        raise _invalid("x-quorum-initial-group-size", where, "{value_zero,0}")


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


def read_priority(arguments: Table, where: str) -> int:
    """A consumer's priority. Raises ChannelFault 406 for one that cannot be."""
    field = arguments.get("x-priority")
    if field is None:
        return 0
    if field.type not in INTEGERS:
        raise _invalid("x-priority", where, f'"expected integer, got {TYPE_NAMES[field.type]}"')
    return max(-MAX_CONSUMER_PRIORITY, min(int(field.value), MAX_CONSUMER_PRIORITY))


def read_consumer_timeout(arguments: Table, where: str) -> int | None:
    """How long a consumer may hold a delivery, in ms, where it says so itself. Raises ChannelFault 406."""
    _check_number("x-consumer-timeout", arguments.get("x-consumer-timeout"), where)
    return _number(arguments, "x-consumer-timeout")


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


def _delivery_limit(arguments: Table, kind: str) -> int | None:
    limit = _number(arguments, "x-delivery-limit")
    if limit is None:
        return QUORUM_LIMIT if kind == "quorum" else None
    return None if limit == UNLIMITED else limit


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    return None if field is None else str(field.value.decode(errors="replace"))
