"""What the PUBLISH packets of one MQTT 5 client say beyond topic and payload: properties and topic aliases. Pure.

    read(packet)    one PUBLISH, read by itself: any of them, at about 10 us
    meanings        what properties meant that came before, by their bytes: the codec looks them up for whole bursts

Properties that depend on the time of day (an expiry), or concern this packet alone (an alias, a delay), are never in
`meanings`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gatehouse.gateways.mqtt import mapping, properties, reasons
from gatehouse.gateways.mqtt.codec import (
    DOOR,
    Meaning,
    behind_id,
    end_of_properties,
    packet_id_of,
    publish_topic,
)
from gatehouse.gateways.mqtt.errors import InvalidDelivery, InvalidPayload, InvalidPublish, ProtocolError, ReservedTopic
from gatehouse.gateways.mqtt.properties import NONE, Packet, Properties, decode_properties, stored_headers
from gatehouse.gateways.mqtt.reading import variable
from gatehouse.gateways.mqtt.recalling import is_recall_key
from gatehouse.gateways.properties.envelope import Kind
from gatehouse.gateways.properties.values import NUMBER, normalize
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import RETAIN, When

KNOWN_MAX: Final = 256                 # different sets of properties that are remembered for one client
KNOWN_BYTES_MAX: Final = 1024          # of each
DELAY: Final = "delay"                 # user properties: seconds from now,
DELIVER_AT: Final = "deliver-at"       # or a time
RECALL_KEY: Final = "recall-key"       # what it can be recalled by
RECEIPT: Final = "receipt"             # whose address is judged for each message: it may be another user's tomorrow


class Publish:
    """One PUBLISH."""

    __slots__ = ("address", "attributes", "meaning", "packet_id", "qos", "raw", "receipt", "refusal", "value",
                 "when")

    def __init__(self, first: int, raw: bytes, packet_id: bytes, value: bytes, meaning: Meaning) -> None:
        self.raw = raw                 # its topic name, by name or alias
        self.address = ""              # the same, where it is to be stored as any other
        self.qos = first >> 1 & 3
        self.packet_id = packet_id     # two bytes; none with QoS 0
        self.value = value
        self.meaning = meaning
        self.attributes = DOOR | mapping.QOS_ATTRIBUTES[self.qos] | (RETAIN if first & 1 else 0)
        self.when: When | None = None  # it is to be delivered then
        self.refusal: InvalidPublish | None = None
        self.receipt: str | None = None         # where its sender wants to be told what became of it

    @property
    def is_alone(self) -> bool:
        """Whether it is no message to be stored with the others."""
        return not self.address or self.when is not None or self.refusal is not None

    def message(self, place: int) -> Message:
        """The message, to be stored at a place."""
        return place, self.value, self.meaning[0], self.attributes, self.meaning[1]


class Incoming:
    """Reads the PUBLISH packets of one MQTT 5 client. `now_ms`: wall time."""

    def __init__(self, now_ms: Callable[[], int], receive_maximum: int, alias_maximum: int, *, tells: bool,
                 checks_format: bool) -> None:
        self.meanings: dict[bytes, Meaning] = {}    # decision 169
        self.receive_maximum = receive_maximum
        self.tells = tells                     # reason strings and user properties may be sent with any packet
        self._now_ms = now_ms
        self._alias_maximum = alias_maximum
        self._aliases: dict[int, bytes] = {}
        self._checks_format = checks_format

    def read(self, packet: bytes) -> Publish:
        """A whole PUBLISH with a sound head. Raises ProtocolError."""
        at = behind_id(packet, 0)
        end = end_of_properties(packet, at, len(packet))
        _, start = variable(packet, at, end)
        given = NONE if start == end else decode_properties(packet, start, end, Packet.PUBLISH)
        if properties.SUBSCRIPTION_ID in given.values:
            raise ProtocolError("[MQTT5-3.3.4-6] a subscription identifier from a client")
        meaning = stored_headers(given, self._now_ms())
        raw = self._topic(publish_topic(packet, 0), given)
        publish = Publish(packet[0], raw, packet_id_of(packet, 0), packet[end:], meaning)
        self._judge(publish, given)
        publish.receipt = given.user_value(RECEIPT)
        if not publish.is_alone and self._may_remember(given) and end - at <= KNOWN_BYTES_MAX:
            if len(self.meanings) >= KNOWN_MAX:
                self.meanings.clear()
            self.meanings[packet[at:end]] = meaning
        return publish

    def _topic(self, raw: bytes, given: Properties) -> bytes:
        alias: Any = given.values.get(properties.ALIAS)
        if alias is None:
            if not raw:
                raise ProtocolError("a PUBLISH without a topic name and without a topic alias (3.3.2.1)")
            return raw
        if not 0 < alias <= self._alias_maximum:
            raise ProtocolError(f"[MQTT5-3.3.2-{9 if alias else 8}] topic alias {alias}; the largest is "
                                f"{self._alias_maximum}", reasons.BAD_ALIAS)
        if raw:
            mapping.decode_topic(raw)
            self._aliases[alias] = raw
            return raw
        named = self._aliases.get(alias)
        if named is None:
            raise ProtocolError(f"topic alias {alias} stands for no topic (3.3.2.3.4)")
        return named

    def _judge(self, publish: Publish, given: Properties) -> None:
        if self._checks_format and given.number(properties.FORMAT):
            try:
                publish.value.decode()
            except UnicodeDecodeError:
                publish.refusal = InvalidPayload("a payload that is no UTF-8, as its format indicator says it is")
        if publish.raw.startswith(mapping.CARRIED_OUT):
            return
        address = mapping.decode_topic(publish.raw)
        if address.startswith(mapping.RESERVED) and not address.startswith(mapping.QUEUE):
            publish.refusal = ReservedTopic("topics that begin with $ are the hub's")
            return
        publish.address = address
        delay, at = given.user_value(DELAY), given.user_value(DELIVER_AT)
        if delay is not None or at is not None:
            publish.when = _when(delay, at, given.user_value(RECALL_KEY) or "")
            if publish.when is None:
                publish.refusal = InvalidDelivery("the user property delay is seconds, deliver-at a time")

    def _may_remember(self, given: Properties) -> bool:
        values = given.values
        return not (properties.ALIAS in values or properties.EXPIRY in values
                    or self._checks_format and values.get(properties.FORMAT) or given.user_value(RECEIPT) is not None)


def _when(delay: str | None, at: str | None, key: str) -> When | None:
    """None: it says no time, or has a key that can be none."""
    if key and not is_recall_key(key):
        return None
    if at is not None:
        due = normalize(Kind.TIME, at.encode())
        return None if due is None else When(due_ms=int(due), name=key)
    if delay is None or NUMBER.fullmatch(delay) is None:
        return None
    return When(delay_ms=round(float(delay) * 1000), name=key)
