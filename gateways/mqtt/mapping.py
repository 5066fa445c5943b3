"""MQTT topic names and filters against addresses, and messages against packets. Pure.

A topic name is the address: the levels are the same, written the same way. What MQTT 3.1.1 cannot say of a message (its
key apart from its topic, content type, headers, times) does not cross to its subscribers; the README lists it. MQTT 5
says it in properties (`properties`).
"""
from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gatehouse.gateways.mqtt import properties
from gatehouse.gateways.mqtt.codec import DOOR
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.packets import Will
from gatehouse.gateways.mqtt.properties import stored_headers
from gatehouse.gateways.mqtt.reading import decode_text
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import EXACTLY_ONCE, RETAIN, TRANSIENT, Record
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.sessions.session_values import Will as KeptWill

QUEUE: Final = "$queue/"       # an address of a queue: where answers to AMQP's clients go
RESERVED: Final = "$"          # a first level that begins so belongs to the hub
DELAYED: Final = "$delayed/"   # `$delayed/SECONDS/ADDRESS`: to be delivered later
KEYED: Final = "$key/"         # `$delayed/SECONDS/$key/KEY/ADDRESS`: one that can be recalled by its key
RECALL: Final = "$recall"      # what recalls it, see `recalling`
HALF: Final = "$half/"         # `$half/GROUP/ADDRESS`: a half message, see `transacting`
NAMED: Final = "$id/"          # `$half/GROUP/$id/NAME/ADDRESS`: one that has a name
CHECKED: Final = "$check/"     # `$half/GROUP/$check/AFTER,EVERY,TIMES/ADDRESS`: one that says when it is asked about
FROM: Final = "$from/"         # `$from/TIME/FILTER`: history first, for clients without user properties
SYSTEM: Final = "$SYS/"        # figures of the hub, see `system`
TXN: Final = "$txn/"           # what else is said about transactions:
DECIDE: Final = "$txn/decide"
DECIDED: Final = "$txn/decided"
HELD: Final = "$txn/half/"
CHECK: Final = "$txn/check/"  # decision 46
CARRIED_OUT: Final = (DELAYED.encode(), HALF.encode(), DECIDE.encode(), RECALL.encode())
"""Topics that say what is to be done with a publish."""

_DELAYED: Final = re.compile(r"\$delayed/([0-9]{1,10}(?:\.[0-9]{1,3})?)/(.+)", re.ASCII | re.DOTALL)
QOS_ATTRIBUTES: Final = (TRANSIENT, 0, EXACTLY_ONCE)


def decode_topic(raw: bytes) -> str:
    """A PUBLISH's topic name as an address. Raises ProtocolError."""
    if not raw:
        raise ProtocolError("[MQTT-4.7.3-1] an empty topic name")
    topic = decode_text(raw)
    if "+" in topic or "#" in topic:
        raise ProtocolError("[MQTT-3.3.2-2] a topic name with a wildcard")
    return topic


def split_delayed(topic: str) -> tuple[int, str] | None:
    """Delay in ms and address of a topic name that begins with `$delayed/`; None where it is not written so."""
    match = _DELAYED.fullmatch(topic)
    return None if match is None else (round(float(match[1]) * 1000), match[2])


def split_key(address: str) -> tuple[str, str]:
    """Key and address behind `$delayed/SECONDS/`: "" and the address where there is no key."""
    if not address.startswith(KEYED):
        return "", address
    key, _, address = address.removeprefix(KEYED).partition("/")
    return key, address


def decode_filter(raw: bytes) -> str:
    """A topic filter. Raises ProtocolError."""
    if not raw:
        raise ProtocolError("[MQTT-4.7.3-1] an empty topic filter")
    topic_filter = decode_text(raw)
    if "#" in topic_filter[:-1] or topic_filter.endswith("#") and topic_filter[-2:] not in ("#", "/#"):
        raise ProtocolError("[MQTT-4.7.1-2] '#' that is not the last level of its filter")
    if "+" in topic_filter and any("+" in level and level != "+" for level in topic_filter.split("/")):
        raise ProtocolError("[MQTT-4.7.1-3] '+' that is not a level by itself")
    return topic_filter


def split_from(topic_filter: str) -> tuple[str, str]:
    """Where the history of a filter begins, and the filter itself, of one that begins with `$from/`; "" and the filter
    of another."""
    if not topic_filter.startswith(FROM):
        return "", topic_filter
    begin, _, wanted = topic_filter.removeprefix(FROM).partition("/")
    return begin, wanted


def topic_field(address: str) -> bytes:
    """The topic of a PUBLISH to subscribers: its size in two bytes, and the name."""
    name = address.encode()
    return len(name).to_bytes(2, "big") + name


def will_message(will: Will, place: int, now_ms: int) -> Message:
    """`now_ms`: wall time."""
    attributes = DOOR | QOS_ATTRIBUTES[will.qos] | (RETAIN if will.retain else 0)
    headers, timestamp_ms = stored_headers(will.properties, now_ms)
    return place, will.payload, headers, attributes, timestamp_ms


def kept_will(will: Will, tenant: str, client_id: str, user: str, expiry_ms: int) -> KeptWill:
    """What the kernel keeps of a will. It is due after its delay, or with the end of its session [MQTT5-3.1.3-9], which
    is that of the connection where `expiry_ms` is 0."""
    given = will.properties
    if properties.EXPIRY in given.values:                      # it counts from when the will is published
        timeless = replace(given, values={name: value for name, value in given.values.items()
                                          if name != properties.EXPIRY})
        will = will._replace(properties=timeless)
    _, value, headers, attributes, timestamp_ms = will_message(will, 0, 0)
    delay_ms = given.number(properties.WILL_DELAY) * 1000
    return KeptWill(tenant, client_id, user, decode_topic(will.topic), value or b"", headers, attributes,
                    delay_ms if expiry_ms else 0,
                    given.number(properties.EXPIRY) * 1000, timestamp_ms)


def stored_message(record: Record) -> Message:
    """A record read back from the log, as if it had just been delivered."""
    return 0, record[3], encode_headers(record[4]), record[5], record[1]


def qos_of(attributes: int, granted: int) -> int:
    """The lower of what a message was published with and what was granted."""
    if attributes & TRANSIENT or not granted:
        return 0
    return 2 if granted == 2 and attributes & EXACTLY_ONCE else 1
