"""Policies of a virtual host: settings for all queues and exchanges whose names match a pattern; and those patterns,
which are matched in bounded time. Pure.

Of those that match, the one with the highest priority counts, the first by name where several have it. What a queue's
own arguments say goes before its policy, but of two numbers the lower one counts, as in RabbitMQ. An operator policy
is one beside it that sets limits: of its number and the policy's the lower one counts.

A pattern is a regular expression that a user gives. Python's `re` goes back and tries again, and one such as `(a+)+$`
does that without end. So none is taken that repeats within a repetition, refers back, or repeats without bound more
than a few times: against a name of 255 bytes the rest is done in milliseconds.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.amqp.arguments import (
    MAX_EXPIRY_MS,
    OVERFLOWS,
    UNLIMITED,
    QueueArguments,
    max_age_ms,
    queue_type,
)

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.exchanges import Exchange
    from gatehouse.gateways.amqp.tables import Table
    from gatehouse.gateways.amqp.vhost import AmqpQueue

NUMBERS: Final = {"max-length": "maximum length", "max-length-bytes": "maximum length in bytes",
                  "message-ttl": "message TTL", "expires": "queue expiry", "delivery-limit": "delivery limit"}
TEXTS: Final = {"dead-letter-exchange": "dead letter exchange name",
                "dead-letter-routing-key": "dead letter routing key",
                "alternate-exchange": "alternate exchange name"}
NUMBER_MAX: Final = (1 << 63) - 1
TIMES: Final = ("message-ttl", "expires")
OF_OPERATORS: Final = ("expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit",
                       "max-in-memory-length", "max-in-memory-bytes", "ha-mode", "ha-params", "ha-sync-mode")
"""Settings that an operator policy may have, as in RabbitMQ 3.10."""

WITHOUT_EFFECT: Final = ("ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown",
                         "ha-promote-on-failure", "queue-mode", "queue-version", "queue-master-locator",
                         "dead-letter-strategy", "max-in-memory-length", "max-in-memory-bytes",
                         "queue-leader-locator", "stream-max-segment-size-bytes", "stream-filter-size-bytes",
                         "initial-cluster-size", "target-group-size")
"""Settings about copies of a queue on other nodes, about what of it is in memory, and about files of its own: there is
none of these here."""

APPLY_TO: Final = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")
NAME_BYTES_MAX: Final = 255
POLICIES_MAX: Final = 1_000            # of a virtual host

PATTERN_CHARS_MAX: Final = 1024
REPEATS_MAX: Final = 3                 # without bound; a name has at most 255 bytes
BOUNDED_MAX: Final = 32                # a repetition up to so many times counts as one with a bound

REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
REFERENCES: Final = frozenset(("GROUPREF", "GROUPREF_EXISTS"))


class NoPattern(ValueError):
    """No regular expression, or one that could take for ever."""


class InvalidPolicy(ValueError):
    """No policy, in RabbitMQ's words."""


class Policy(NamedTuple):
    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: dict[str, Any]
    compiled: re.Pattern[str]

    def document(self) -> dict[str, Any]:
        """As the management interface shows it, and as it is stored."""
        return {"name": self.name, "pattern": self.pattern, "apply-to": self.apply_to, "priority": self.priority,
                "definition": self.definition}


def read_policy(name: str, document: dict[str, Any], *, of_operators: bool = False) -> Policy:
    """Raises InvalidPolicy."""
    pattern, definition = document.get("pattern"), document.get("definition")
    apply_to, priority = document.get("apply-to", "all"), document.get("priority", 0)
    if not isinstance(pattern, str):
        raise InvalidPolicy("pattern should be binary")
    if not isinstance(definition, dict) or not definition:
        raise InvalidPolicy("no policy provided")
    if type(priority) is not int or not -(1 << 31) <= priority < 1 << 31:
        raise InvalidPolicy(f"priority should be a number, actually was {priority}")
    if apply_to not in APPLY_TO:
        raise InvalidPolicy(f"apply-to should be one of {', '.join(APPLY_TO)}")
    try:
        compiled = compile_pattern(pattern)
    except NoPattern as error:
        raise InvalidPolicy(f"pattern should be regular expression but is invalid: {error}") from None
    for key, value in definition.items():
        if of_operators and key not in OF_OPERATORS:
            raise InvalidPolicy(f"[{{{key},{json.dumps(value)}}}] are not recognised policy settings")
        _check(key, value)
    return Policy(name, pattern, apply_to, priority, definition, compiled)


def _check(key: str, value: Any) -> None:
    """Raises InvalidPolicy for a setting that is none, or cannot be."""
    if key in NUMBERS:
        highest = MAX_EXPIRY_MS if key in TIMES else NUMBER_MAX
        if type(value) is not int or not _lowest(key) <= value <= highest:
            raise InvalidPolicy(f"{value!r} is not a valid {NUMBERS[key]}")
    elif key in TEXTS:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > NAME_BYTES_MAX:
            raise InvalidPolicy(f"{value!r} is not a valid {TEXTS[key]}")
    elif key == "max-age":
        if not isinstance(value, str) or max_age_ms(value) is None:
            raise InvalidPolicy(f"Invalid max-age {json.dumps(value)}")
    elif key == "overflow":
        if value not in OVERFLOWS:
            raise InvalidPolicy(f"{value!r} is not a valid overflow value")
    elif key not in WITHOUT_EFFECT:
        raise InvalidPolicy(f"[{{{key},{json.dumps(value)}}}] are not recognised policy settings")


def _lowest(key: str) -> int:
    return UNLIMITED if key == "delivery-limit" else int(key == "expires")


class Policies:
    """The policies of one virtual host, by name and in the order in which they count."""

    def __init__(self) -> None:
        self._by_name: dict[str, Policy] = {}
        self._in_order: list[Policy] = []

    def get(self, name: str) -> Policy | None:
        return self._by_name.get(name)

    def all(self) -> list[Policy]:
        """By name."""
        return sorted(self._by_name.values(), key=lambda policy: policy.name)

    def put(self, name: str, policy: Policy | None) -> None:
        """None: forget it. Raises InvalidPolicy where there are too many."""
        if policy is None:
            self._by_name.pop(name, None)
        elif name not in self._by_name and len(self._by_name) >= POLICIES_MAX:
            raise InvalidPolicy(f"a virtual host has at most {POLICIES_MAX} policies")
        else:
            self._by_name[name] = policy
        self._in_order = sorted(self._by_name.values(), key=lambda entry: (-entry.priority, entry.name))

    def of_queue(self, queue: AmqpQueue) -> Policy | None:
        """The policy of a queue."""
        return self._first(queue.name, ("all", "queues", _kind_of(queue))) if self._in_order else None

    def apply_to_exchange(self, exchange: Exchange) -> bool:
        """Give an exchange the policy that is its now. Whether its alternate exchange has changed by that."""
        exchange.policy = self._first(exchange.name, ("all", "exchanges")) if self._in_order else None
        before = exchange.alternate
        said = exchange.policy.definition.get("alternate-exchange") if exchange.policy is not None else None
        exchange.alternate = exchange.declared_alternate if exchange.declared_alternate is not None else said
        return exchange.alternate != before

    def _first(self, name: str, kinds: Iterable[str]) -> Policy | None:
        return next((policy for policy in self._in_order if policy.apply_to in kinds and policy.compiled.search(name)),
                    None)


def apply_to_queue(queue: AmqpQueue, policies: Policies, operator_policies: Policies) -> bool:
    """Give a queue the policies that are its now. Whether its settings have changed by that."""
    queue.policy, queue.operator_policy = policies.of_queue(queue), operator_policies.of_queue(queue)
    before = queue.settings
    queue.settings = merged(queue.declared, queue.arguments, effective(queue.policy, queue.operator_policy))
    return queue.settings != before


def effective(policy: Policy | None, operator_policy: Policy | None) -> dict[str, Any]:
    """What both say together."""
    said = {} if policy is None else dict(policy.definition)
    for key, value in ({} if operator_policy is None else operator_policy.definition).items():
        given = said.get(key)
        if key in NUMBERS and given is not None and value != UNLIMITED:
            said[key] = value if given == UNLIMITED else min(given, value)
        elif given is None or key not in NUMBERS:
            said[key] = value
    return said


def _kind_of(queue: AmqpQueue) -> str:
    kind = queue_type(queue.arguments)
    return "streams" if kind == "stream" else f"{kind}_queues"


def merged(declared: QueueArguments, arguments: Table, said: dict[str, Any]) -> QueueArguments:
    """What counts for a queue of which its policies say this."""
    if not said:
        return declared
    if declared.is_stream:
        age_ms = max_age_ms(said["max-age"]) if "max-age" in said else None
        return replace(declared, max_bytes=_lower(declared.max_bytes, said.get("max-length-bytes")),
                       max_age_ms=declared.max_age_ms if declared.max_age_ms is not None else age_ms)
    exchange = declared.dead_letter_exchange
    if exchange is None:
        exchange = said.get("dead-letter-exchange")
    key = declared.dead_letter_key
    if key is None and exchange is not None:
        key = said.get("dead-letter-routing-key")
    return replace(
        declared, max_length=_lower(declared.max_length, said.get("max-length")),
        max_bytes=_lower(declared.max_bytes, said.get("max-length-bytes")),
        message_ttl_ms=_lower(declared.message_ttl_ms, said.get("message-ttl")),
        expires_ms=_lower(declared.expires_ms, said.get("expires")),
        delivery_limit=_delivery_limit(declared, arguments, said),
        overflow=declared.overflow if "x-overflow" in arguments else said.get("overflow", declared.overflow),
        dead_letter_exchange=exchange, dead_letter_key=key)


def _delivery_limit(declared: QueueArguments, arguments: Table, said: dict[str, Any]) -> int | None:
    """A policy goes before the limit of quorum queues that say nothing. -1 is no limit."""
    given = said.get("delivery-limit")
    if given is None or "x-delivery-limit" in arguments and (given == UNLIMITED or declared.delivery_limit is None):
        return declared.delivery_limit
    if "x-delivery-limit" not in arguments:
        return None if given == UNLIMITED else int(given)
    return _lower(declared.delivery_limit, given)


def _lower(argument: int | None, said: int | None) -> int | None:
    given = [value for value in (argument, said) if value is not None]
    return min(given) if given else None


def compile_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Raises NoPattern."""
    if len(text) > PATTERN_CHARS_MAX:
        raise NoPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    try:
        parsed = parser.parse(text, flags)
        if _unbounded(parsed, False) > REPEATS_MAX:
            raise NoPattern(f"a pattern repeats without bound at most {REPEATS_MAX} times")
        return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoPattern(str(error)) from None


def _unbounded(items: Any, inside: bool) -> int:
    """Repetitions without bound among the parts of a pattern. Raises NoPattern."""
    count = 0
    for operation, argument in items:
        name = str(operation)
        if name in REFERENCES:
            raise NoPattern("a pattern does not refer back")
        if name in REPEATS:
            _, highest, repeated = argument
            if inside and highest != 1:
                raise NoPattern("a pattern does not repeat within a repetition")
            is_unbounded = highest is constants.MAXREPEAT or highest > BOUNDED_MAX
            count += is_unbounded + _unbounded(repeated, inside or highest != 1)
        else:
            for part in _parts(argument):
                count += _unbounded(part, inside)
    return count


def _parts(argument: Any) -> Iterator[Any]:
    """Patterns within what an operation is said with."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for entry in argument:
            yield from _parts(entry)
