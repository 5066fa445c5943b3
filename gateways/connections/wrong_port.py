"""What came to a port that is another protocol's, in words: the first bytes of each protocol tell it. Pure."""
from __future__ import annotations

from typing import Final

HTTP_WORDS: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"CONNECT ",
                     b"PRI * HTTP")
MQTT_CONNECT: Final = 0x10
MQTT_NAMES: Final = (b"\0\x04MQTT", b"\0\x06MQIsdp")
KAFKA_FIRST: Final = (3, 17, 18)      # what a Kafka client begins with: Metadata, SaslHandshake, ApiVersions


def what_came(data: bytes) -> str:
    """What these first bytes of a connection are; "" where they are none of what is known here."""
    if data.startswith(HTTP_WORDS):
        return "an HTTP request"
    if data[:2] == b"\x16\x03":
        return "a TLS handshake"
    if data.startswith(b"AMQP"):
        return "an AMQP client"
    if data[:1] == bytes((MQTT_CONNECT,)) and any(name in data[1:12] for name in MQTT_NAMES):
        return "an MQTT client"
    if data.startswith(b"SSH-"):
        return "an SSH client"
    if len(data) >= 8 and data[:2] == b"\0\0" and int.from_bytes(data[4:6]) in KAFKA_FIRST and data[6] == 0:
        return "a Kafka client"
    return ""


def came_to(data: bytes, door: str, otherwise: str) -> str:
    """The reason of a connection's end: what came to the port of this door, or `otherwise` where nobody knows."""
    what = what_came(data)
    return f"{what} came to the {door} port" if what else otherwise
