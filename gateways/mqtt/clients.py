"""What this door's sessions share: who is connected under which client id, and packets encoded for many at once."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt.backlog import CatchingUp
from gatehouse.gateways.mqtt.codec import DOOR, encode_qos0
from gatehouse.gateways.mqtt.mapping import topic_field
from gatehouse.gateways.mqtt.properties import is_timed, shown_properties
from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.message import DOOR_MASK

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.mqtt.session import MqttSession
    from gatehouse.kernel.api import Message

TOPICS_MAX: Final = 65536          # topic names kept in encoded form
ENCODED_MAX: Final = 512           # runs of messages kept in encoded form while they are handed out: two portions
ENCODED_BYTES_MAX: Final = 1 << 20
PROPERTIES_MAX: Final = 1024       # different headers that are kept as properties
PROPERTY_BYTES_MAX: Final = 1024   # of each


SHOWN_CHARACTERS: Final = 80       # of a client id, in the log


class ClientIdRefused(Exception):
    """The client id is somebody else's; the text says whose."""


class TopicFields(dict[str, bytes]):
    """`mapping.topic_field` of addresses, remembered."""

    def __missing__(self, address: str) -> bytes:
        if len(self) >= TOPICS_MAX:
            self.clear()
        field = self[address] = topic_field(address)
        return field


class Clients:
    """Who is connected, by tenant and client id, and what is encoded once for many. One per hub, found through
    `Services.shared`."""

    def __init__(self, services: Services) -> None:
        self._by_id: dict[tuple[str, str], MqttSession] = {}
        self.topic_fields: dict[str, bytes] = TopicFields()
        self._encoded: dict[int, tuple[list[Message], bytes]] = {}
        self._encoded_bytes = 0
        self._properties: dict[tuple[bytes, int], bytes] = {}
        self._unaltered: Final = not services.kernel.follows_all
        self.wall_ms = services.wall_ms
        self.unsent = services.unsent
        self.catching_up = CatchingUp(services.kernel.slices())
        self._assigned = 0

    @classmethod
    def of(cls, services: Services) -> Clients:
        return services.share("mqtt", lambda: cls(services))

    # --- client ids --------------------------------------------------------------------------------------------------

    def connect(self, tenant: str, client_id: str, session: MqttSession) -> MqttSession | None:  # decision 87
        """Enter a session; returns the one that held the client id until now, which must be ended [MQTT-3.1.4-2].

        Raises ClientIdRefused where that is another user's: who knows an id must not be able to throw its owner out.
        """
        before = self._by_id.get((tenant, client_id))
        if before is not None and before.user != session.user:
            raise ClientIdRefused(f"the client id {client_id[:SHOWN_CHARACTERS]!r} is another user's")
        self._by_id[tenant, client_id] = session
        return before

    def leave(self, tenant: str, client_id: str, session: MqttSession) -> None:
        if self._by_id.get((tenant, client_id)) is session:
            del self._by_id[tenant, client_id]

    def assign_id(self, epoch: int) -> str:
        """A client id for a client that gave none [MQTT-3.1.3-6], not given before by any start of this hub."""
        self._assigned += 1
        return f"gatehouse-{epoch}-{self._assigned}"

    def __len__(self) -> int:
        return len(self._by_id)

    # --- encoding ----------------------------------------------------------------------------------------------------

    def properties_of(self, message: Message, now_ms: int, was_sent: bool = False, address: str = "") -> bytes | None:
        """`shown_properties`, remembered where they do not change with the time of day (`now_ms`) or the address."""
        _, _, headers, attributes, timestamp_ms = message
        if is_timed(headers) or headers.find(ADDRESS_HEADER) >= 0:
            return shown_properties(headers, attributes, timestamp_ms, now_ms, was_sent, unaltered=self._unaltered,
                                    address=address)
        key = (headers, -1 if attributes & DOOR_MASK == DOOR else timestamp_ms)
        shown = self._properties.get(key)
        if shown is None:
            if len(self._properties) >= PROPERTIES_MAX:
                self._properties.clear()
            shown = shown_properties(headers, attributes, timestamp_ms, now_ms, unaltered=self._unaltered)
            if shown is not None and len(headers) <= PROPERTY_BYTES_MAX:
                self._properties[key] = shown
        return shown

    def has_expired(self, message: Message, now_ms: int) -> bool:
        """Whether a message that waited is worth nothing any more; for 3.1.1, which does not write its properties."""
        return is_timed(message[2]) and self.properties_of(message, now_ms) is None

    def encode_shared(self, topic: bytes, messages: list[Message], *, dressed: bool = False) -> bytes:
        """A whole run with QoS 0, encoded once for all who get it in this flush; `dressed`: for MQTT 5, where `topic`
        has the properties behind it, which are the same for all.

        The kernel hands the same list to every subscriber, so its identity is the key; the list is kept beside the
        bytes so that the identity stays true.
        """
        key = -id(messages) if dressed else id(messages)
        cached = self._encoded.get(key)
        if cached is not None and cached[0] is messages:
            return cached[1]
        encoded = encode_qos0(topic, messages, 0, len(messages))
        if len(self._encoded) >= ENCODED_MAX or self._encoded_bytes + len(encoded) > ENCODED_BYTES_MAX:
            self._encoded.clear()
            self._encoded_bytes = 0
        if len(encoded) <= ENCODED_BYTES_MAX:
            self._encoded[key] = (messages, encoded)
            self._encoded_bytes += len(encoded)
        return encoded
