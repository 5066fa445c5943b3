"""How doors spell an address, and back: what a door declares in `GatewaySpec.spelling`, and what all doors share. Pure.

    address    plant/line1/temp           a%2Fb/v1.2             what is special
    MQTT       plant/line1/temp           a%2Fb/v1.2             nothing: a topic name is an address
    AMQP       plant.line1.temp           a/b.v1%2E2             on the exchange `amq.topic`: the address whole
    AMQP       plant, line1.temp          a/b, v1%2E2            the exchange that the first level names, and the rest
    Kafka      plant, line1/temp          unrouted, a%2Fb/v1.2   topic and key, as the routes say
    HTTP       plant/line1/temp           a%2Fb/v1.2             a path, after `/v1/publish/`

Rules that every door keeps (each in its `addresses.py`):
- The number of levels never changes, and every address can be turned back from each door.
- In a level, a `/` (and `+`, `#`, NUL) is %2F (%2B, %23, %00) in the address and MQTT, and itself in AMQP and HTTP.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gatehouse.kernel.addresses.address import KEY_ESCAPES, escape, is_address

QUEUE_LEVEL: Final = "$queue"
REPLY_NAME: Final = "amq.reply-to."
"""The beginning of the name of no queue, which AMQP's workers answer to as if it were one: the rest is the address that
wants the answer. No client can declare a queue whose name begins with `amq.`. decision 240"""


class Place(NamedTuple):
    """Where a message is found: what a door's spelling is asked to write."""

    address: str
    topic: str | None
    """None: it is stored in no topic."""

    key: bytes | None
    needs_header: bool
    """Topic and key cannot say the address; it travels in the `address` header."""


class Record(NamedTuple):
    """What clients name who know topics and keys, and no addresses."""

    topic: str
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Spelling:
    """How clients of a door write an address, for people: `gatehouse explain DOOR:TEXT` reads it and shows it."""

    title: str
    """The protocol's name."""

    read: Callable[[str], str | Record]
    """The address of a text; or the record, where clients name topic and key themselves. Raises InvalidAddress."""

    show: Callable[[Place], list[str]]
    """One line for each way in which clients name this place; no line: they cannot."""

    document: Callable[[Place], Any]
    """What `show` says, for programs: JSON's types."""


def describe_record(topic: str, key: bytes | None) -> str:
    """Topic and key for people."""
    return f"topic {topic}, no key" if key is None else f"topic {topic}, key '{key.decode(errors='replace')}'"


def reply_address(name: str) -> str | None:
    """The address in a name that AMQP's workers answer to; None for the name of a queue."""
    address = name.removeprefix(REPLY_NAME)
    return address if address != name and is_address(address) and not address.startswith("$") else None


def queue_address(name: str) -> str:
    """The address of a queue on every door: what rights to it are looked up by."""
    return f"{QUEUE_LEVEL}/{escape(name, KEY_ESCAPES)}"
