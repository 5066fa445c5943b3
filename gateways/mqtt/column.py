"""Which properties of a message MQTT carries, and where: a column for 3.1.1, which has none, and one for 5.

An address is spelled as it is: a topic name is an address. Pure.
"""
from __future__ import annotations

from typing import Any, Final

from gatehouse.gateways.addresses import Spelling
from gatehouse.gateways.properties.envelope import Column, Shape, header_cell, property_cell
from gatehouse.kernel.addresses.address import check_address

MAX_MQTT_BYTES: Final = 65535         # MQTT 5, 1.5.4 and 1.5.6: strings and binary data


def is_mqtt_text(text: str) -> bool:
    """Whether a user property can have this name or value (MQTT 5, 1.5.4)."""
    return "\0" not in text and len(text.encode()) <= MAX_MQTT_BYTES


def show_user_property(name: str, value: bytes | None) -> tuple[str, Any] | None:
    """A user property has a name and a text."""
    try:
        shown = None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
    return None if shown is None or not is_mqtt_text(shown) or not is_mqtt_text(name) else (name, shown)


MQTT3: Final = Column("mqtt3", "MQTT 3.1.1", {
    "durability": (property_cell("qos", Shape.LEVEL),),
    "retain": (property_cell("retain", Shape.FLAG),),
}, header_limits="none are carried", show_header=None)

MQTT5: Final = Column("mqtt5", "MQTT 5", {
    "id": (header_cell("id", max_bytes=MAX_MQTT_BYTES),),
    "key": (header_cell("key", max_bytes=MAX_MQTT_BYTES),),
    "content-type": (property_cell("content_type", max_bytes=MAX_MQTT_BYTES),),
    "content-encoding": (header_cell("content-encoding", max_bytes=MAX_MQTT_BYTES),),
    "utf8": (property_cell("payload_format_indicator", Shape.FLAG),),
    "correlation-id": (property_cell("correlation_data", Shape.BYTES, MAX_MQTT_BYTES),),
    "reply-to": (property_cell("response_topic", Shape.ADDRESS, MAX_MQTT_BYTES),),
    "expires-at": (property_cell("message_expiry_interval", Shape.SECONDS_LEFT),),
    "timestamp": (header_cell("ts"),),
    "priority": (header_cell("priority"),),
    "durability": (property_cell("qos", Shape.LEVEL),),
    "deliver-at": (header_cell("deliver-at"), header_cell("delay", Shape.SECONDS_FROM_NOW, read_only=True)),
    "retain": (property_cell("retain", Shape.FLAG),),
    "traceparent": (header_cell("traceparent"),),
    "x-trace": (header_cell("x-trace"),),
    "receipt": (header_cell("receipt"),),
    "receipt-group": (header_cell("receipt-group"),),
}, header_limits="names and values are UTF-8 text without NUL, up to 65535 bytes; no null values",
    show_header=show_user_property, is_text=is_mqtt_text)


def address_of_mqtt(name: str) -> str:
    """Raises InvalidAddress for what is no topic name [MQTT-4.7.3-1, 4.7.3-2, 3.3.2-2]."""
    check_address(name)
    return name


SPELLING: Final = Spelling("MQTT", address_of_mqtt, lambda place: [place.address],
                           lambda place: {"topic_name": place.address})
