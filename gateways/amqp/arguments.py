"""The optional arguments of queues, exchanges and consumers: what each may be, and RabbitMQ's refusals. Pure."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gatehouse.gateways.amqp.errors import ChannelFault, precondition
from gatehouse.gateways.amqp.tables import INTEGERS, TYPE_NAMES, Field, Table, described, plain, type_class

NUMBERS: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length",
                  "x-max-in-memory-bytes", "x-max-priority", "x-queue-version", "x-consumer-timeout",
                  "x-delivery-limit", "x-quorum-initial-group-size", "x-stream-max-segment-size-bytes",
                  "x-stream-filter-size-bytes", "x-initial-cluster-size")
TEXTS: Final = ("x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow", "x-queue-mode",
                "x-queue-leader-locator", "x-max-age")

OF_ALL: Final = ("x-queue-type", "x-max-length-bytes", "x-queue-leader-locator")
OF_STREAMS: Final = ("x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
                     "x-initial-cluster-size")
OF_OTHERS: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-dead-letter-exchange",
                    "x-dead-letter-routing-key", "x-overflow", "x-single-active-consumer", "x-delivery-limit",
                    "x-consumer-timeout")
TAKEN: Final = {
    "classic": (*OF_ALL, *OF_OTHERS, "x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"),
    "quorum": (*OF_ALL, *OF_OTHERS, "x-dead-letter-strategy", "x-max-in-memory-length", "x-max-in-memory-bytes",
               "x-quorum-initial-group-size"),
    "stream": (*OF_ALL, *OF_STREAMS)}
"""What queues of a type take, and what must be the same when one is declared again; the rest is refused, as by
RabbitMQ. (Classic queues take two of quorum queues, too: a delivery limit and a consumer timeout.)"""

OF_QUEUES: Final = frozenset(name for names in TAKEN.values() for name in names)
OF_EXCHANGES: Final = frozenset(("alternate-exchange", "x-delayed-type", "hash-header", "hash-property"))
OF_CONSUMERS: Final = frozenset(("x-priority", "x-consumer-timeout"))
OF_STREAM_CONSUMERS: Final = frozenset(("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"))

OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_TYPES: Final = ("classic", "quorum", "stream")
INTERVALS_S: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
STRATEGIES: Final = ("at-most-once", "at-least-once")
LOCATORS: Final = ("client-local", "balanced", "min-masters", "random", "least-leaders")
MODES: Final = ("default", "lazy")
CHOICES: Final = {"x-dead-letter-strategy": (STRATEGIES, "invalid_dlx_strategy"),
                  "x-overflow": (OVERFLOWS, "invalid_overflow"),
                  "x-queue-leader-locator": (LOCATORS, "invalid_queue_locator_arg"),
                  "x-queue-mode": (MODES, "\"unsupported queue mode '{}'\"")}
"""What a text may say, and RabbitMQ's word for what it may not."""

VERSIONS: Final = (1, 2)
UNSAID: Final = ("", "undefined")      # queue types that stand for none, as in RabbitMQ 4
UNLIMITED: Final = -1                  # RabbitMQ's word for no delivery limit
QUORUM_LIMIT: Final = 20               # deliveries that may come back to a quorum queue that says nothing: RabbitMQ 4's
NOT_ZERO: Final = ("x-expires", "x-quorum-initial-group-size", "x-initial-cluster-size")
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

    @property
    def drops_head(self) -> bool:
        """Whether what comes may push out what is there."""
        return self.overflow == "drop-head" and (self.max_length, self.max_bytes) != (None, None)


def check_queue_arguments(arguments: Table, where: str) -> None:  # decision 245
    """What a client declares. `where`: `queue 'q' in vhost '/'`, for the refusal (ChannelFault 406)."""
    check_type("x-dead-letter-exchange", arguments.get("x-dead-letter-exchange"), "S", where)
    kind_field = arguments.get("x-queue-type")
    if kind_field is not None:
        _check_text("x-queue-type", kind_field, where)
    kind = queue_type(arguments)
    if kind not in QUEUE_TYPES:
        raise _invalid("x-queue-type", where, f"\"unsupported queue type '{kind}'\"")
    taken = TAKEN[kind]
    for name in NUMBERS:
        if name in taken:
            _check_number(name, arguments.get(name), where)
    for name in TEXTS:
        field = arguments.get(name)
        if field is not None and name in taken:
            _check_text(name, field, where)
    single = arguments.get("x-single-active-consumer")
    if single is not None and "x-single-active-consumer" in taken and single.type != "t":
        raise _invalid("x-single-active-consumer", where, f"{{unacceptable_type,{TYPE_NAMES[single.type]}}}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments \
            and "x-dead-letter-routing-key" in taken:
        raise _invalid("x-dead-letter-routing-key", where, "routing_key_but_no_dlx_defined")
    for name in arguments:
        if name in OF_QUEUES and name not in taken:
            raise precondition(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")


def queue_type(arguments: Table) -> str:
    """`classic`, where nothing is said."""
    said = _text(arguments, "x-queue-type")
    return QUEUE_TYPES[0] if said is None or said in UNSAID else said


def read_queue_arguments(arguments: Table) -> QueueArguments:
    """Arguments that were checked when the queue was declared. What no queue can have is as if it were not there: an
    older hub took some without looking at them."""
    kind = queue_type(arguments)
    single = arguments.get("x-single-active-consumer")
    age = _text(arguments, "x-max-age")
    return QueueArguments(
        priorities=_number(arguments, "x-max-priority") or 0, max_length=_number(arguments, "x-max-length"),
        max_bytes=_number(arguments, "x-max-length-bytes"), overflow=_text(arguments, "x-overflow") or OVERFLOWS[0],
        message_ttl_ms=_number(arguments, "x-message-ttl"), expires_ms=_number(arguments, "x-expires"),
        dead_letter_exchange=_text(arguments, "x-dead-letter-exchange"),
        dead_letter_key=_text(arguments, "x-dead-letter-routing-key"),
        single_active=single is not None and bool(single.value),
        delivery_limit=_delivery_limit(arguments, kind), consumer_timeout_ms=_number(arguments, "x-consumer-timeout"),
        is_quorum=kind == "quorum", is_stream=kind == "stream", max_age_ms=None if age is None else max_age_ms(age))


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


def _check_text(name: str, field: Field, where: str) -> None:
    if field.type != "S":
        raise _invalid(name, where, f"{{unacceptable_type,{TYPE_NAMES[field.type]}}}")
    said = str(field.value.decode(errors="replace"))
    choice = CHOICES.get(name)
    if choice is not None and said not in choice[0]:
        raise _invalid(name, where, choice[1].format(said))
    if name == "x-max-age" and max_age_ms(said) is None:
        raise _invalid(name, where, "invalid_max_age")


def check_same(names: Iterable[str], current: Table, received: Table, where: str) -> None:
    """Raises ChannelFault 406 for the first argument that differs."""
    for name in names:
        ours, theirs = current.get(name), received.get(name)
        if ours is None and theirs is None or name == "x-queue-type" and queue_type(current) == queue_type(received):
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


def check_consumer_arguments(arguments: Table, where: str, kind: str) -> None:
    """What a consumer of a queue of this type may say. Raises ChannelFault 406 for what those of others say."""
    taken = OF_STREAM_CONSUMERS if kind == "stream" else OF_CONSUMERS
    for name in arguments:
        if name not in taken and (name in OF_CONSUMERS or name in OF_STREAM_CONSUMERS):
            raise precondition(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")


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
    if name == "x-queue-version" and value not in VERSIONS:
        raise _invalid(name, where, f"\"unsupported queue version '{value}'\"")
    if value < 0:
        raise _invalid(name, where, f"{{value_negative,{value}}}")
    if name in NOT_ZERO and value == 0:
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
    if field is None or field.type not in INTEGERS or field.value < 0 and name != "x-delivery-limit":
        return None
    return int(field.value)


def _delivery_limit(arguments: Table, kind: str) -> int | None:
    limit = _number(arguments, "x-delivery-limit")
    if limit is None:
        return QUORUM_LIMIT if kind == "quorum" else None
    return None if limit < 0 else limit


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    return None if field is None or field.type != "S" else str(field.value.decode(errors="replace"))
