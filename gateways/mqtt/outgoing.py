"""What the PUBLISH packets to one MQTT 5 client say beyond topic and payload: properties, subscription identifiers,
topic aliases, and what the client has said of itself in CONNECT. And which messages are the client's own, for a filter
with no-local.
"""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt import properties
from gatehouse.gateways.mqtt.properties import encode_property, with_length
from gatehouse.gateways.mqtt.subscriptions import NO_FILTERS

if TYPE_CHECKING:
    from gatehouse.gateways.mqtt.clients import Clients
    from gatehouse.gateways.mqtt.subscriptions import Subscriptions
    from gatehouse.kernel.api import Message


# --- properties and topic aliases ---------------------------------------------------------------------------------

NO_TOPIC: Final = b"\0\0"
NO_PROPERTIES: Final = b"\0"
ALIAS_WORTH_BYTES: Final = 8           # topic names that are shorter are written out: an alias takes three bytes


class Outgoing:
    """Says how one MQTT 5 client is sent messages. The limits are the client's own: 0 for no limit of a packet's
    size."""

    def __init__(self, clients: Clients, receive_maximum: int, packet_bytes_max: int, alias_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self.packet_bytes_max = packet_bytes_max or 1 << 30
        self.subscriptions: Subscriptions | None = None
        self._clients = clients
        self._alias_maximum = alias_maximum
        self._aliases: dict[str, int] = {}             # of addresses that the client was sent under their alias
        self._naming: tuple[str, int] = ("", 0)        # the one that the next packet gives an alias

    def sends_by(self, subscriptions: Subscriptions) -> None:
        """The client has filters: they say how it is sent what."""
        self.subscriptions = subscriptions

    def properties_of(self, message: Message, address: str, was_sent: bool = False) -> bytes | None:
        """The properties of a message of an address; None where it is worth nothing any more, and was not sent
        before."""
        headers = message[2]
        if headers == b"\0" and not message[4]:
            return b""
        return self._clients.properties_of(message, self._clients.wall_ms(), was_sent, address)

    def hands_on_retain(self, address: str, but: frozenset[str]) -> bool:
        """Whether a filter asks for RETAIN as it was published; `but`: those that do not want the message."""
        subscriptions = self.subscriptions
        return (subscriptions is not None and not subscriptions.is_plain
                and subscriptions.heard(address, but).as_published)

    def of_own(self, address: str) -> tuple[frozenset[str], int]:
        """The filters that leave out what the client has published itself, and the highest QoS of the others that match
        an address; -1: there are none."""
        if self.subscriptions is None:
            return NO_FILTERS, 0
        heard = self.subscriptions.heard(address)
        return heard.no_local, heard.own_qos

    def topic_and_tail(self, topic: bytes, address: str, shown: bytes, qos: int, but: frozenset[str], *,
                       aliased: bool = True) -> tuple[bytes, bytes]:
        """How the topic is written, whose field is `topic`, and all properties with their length. `has_named` is to be
        called when a packet with them was sent. `but`: filters that do not want the message. `aliased`: under an alias,
        where there may be one."""
        subscriptions = self.subscriptions
        if subscriptions is not None and not subscriptions.is_plain:
            shown += subscriptions.heard(address, but).identifiers
        self._naming = ("", 0)
        if self._alias_maximum and aliased:
            topic, alias = self.named(topic, address, qos)
            shown += alias
        return topic, with_length(shown) if shown else NO_PROPERTIES

    def named(self, topic: bytes, address: str, qos: int) -> tuple[bytes, bytes]:
        """How the topic is written, whose field is `topic`, and the property of its alias; b"" for none. With QoS 2 it
        is written out beside the alias: MQTT.js forgets until PUBREL what an alias stood for."""
        if not self._alias_maximum or len(topic) < ALIAS_WORTH_BYTES:
            return topic, b""
        alias = self._aliases.get(address, 0)
        if alias:
            self._naming = ("", 0)
            return topic if qos > 1 else NO_TOPIC, encode_property(properties.ALIAS, alias)
        if qos > 1 or len(self._aliases) >= self._alias_maximum:
            return topic, b""
        self._naming = (address, len(self._aliases) + 1)
        return topic, encode_property(properties.ALIAS, self._naming[1])

    def has_named(self, address: str) -> None:
        """The client was sent the packet that gives this address its alias, if it has got one."""
        name, alias = self._naming
        if alias and name == address:
            self._aliases[address] = alias
        self._naming = ("", 0)

    def retained_tail(self, message: Message, address: str, topic_filter: str) -> bytes | None:
        """The properties of a retained value, which is given for one filter; None where it has expired."""
        return self.shared_tail(message, address, self.identifier_of(topic_filter))

    def identifier_of(self, topic_filter: str) -> int:
        """The subscription identifier of a filter; 0 for none."""
        subscriptions = self.subscriptions
        subscription = None if subscriptions is None else subscriptions.by_filter.get(topic_filter)
        return 0 if subscription is None else subscription.identifier

    def shared_tail(self, message: Message, address: str, identifier: int) -> bytes | None:
        """The properties of a message that comes for one filter, with its identifier; None where it has expired."""
        shown = self.properties_of(message, address)
        if shown is None:
            return None
        return with_length(shown + encode_property(properties.SUBSCRIPTION_ID, identifier) if identifier else shown)


# --- the client's own messages ------------------------------------------------------------------------------------

REMEMBERED_MAX: Final = 131_072        # offsets; a flush is delivered before the next ones are answered


class OwnMessages:  # decision 172
    """What a client with a no-local filter has published itself, by offset, until it was delivered to others.

    Answers come before the deliveries of the same flush: so a delivery finds whether it is the client's own.
    """

    def __init__(self) -> None:
        self._offsets: set[tuple[int, int]] = set()
        self._order: deque[tuple[int, int]] = deque()

    def note(self, positions: list[tuple[int, int, int]]) -> None:
        """These (partition id, offset, message id) are the client's own."""
        for partition_id, offset, _ in positions:
            self._offsets.add((partition_id, offset))
            self._order.append((partition_id, offset))
        while len(self._order) > REMEMBERED_MAX:
            self._offsets.discard(self._order.popleft())

    def holds(self, partition_id: int, offset: int) -> bool:
        """Whether the client has published what stands there."""
        return (partition_id, offset) in self._offsets
