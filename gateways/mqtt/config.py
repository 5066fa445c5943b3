"""The settings of the MQTT door, `[gateways.mqtt]` beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gatehouse.gateways.connections.capacity import PER_ADDRESS
from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.mqtt.connecting import METHODS
from gatehouse.gateways.mqtt.outbox import INFLIGHT_LIMIT

LINGER_MS: Final = 5000
"""How long a client is read on, and not listened to, once it was told why its connection ends."""


@dataclass(frozen=True, slots=True)
class MqttConfig:
    max_inflight: int = field(default=32_768, metadata={
        "help": "messages of QoS 1 and 2 sent to one client and not acknowledged by it; more wait. An MQTT 5 client "
                "may ask for fewer (receive maximum)", "min": 1, "max": INFLIGHT_LIMIT})
    receive_maximum: int = field(default=8_192, metadata={
        "help": "PUBLISH packets of QoS 1 and 2 that an MQTT 5 client may have sent and not seen done; beyond, it is "
                "disconnected with reason 0x93", "min": 1, "max": 65_535})
    max_topic_aliases: int = field(default=64, metadata={
        "help": "topic aliases that an MQTT 5 client may give; 0: none", "min": 0, "max": 65_535})
    max_given_aliases: int = field(default=64, metadata={
        "help": "topic aliases that the hub gives an MQTT 5 client which takes some; 0: none", "min": 0,
        "max": 65_535})
    max_packet_bytes: int = field(default=0, metadata={
        "help": "the largest packet that is taken, told to MQTT 5 clients; 0: what `max_message_bytes` needs", "min": 0,
        "max": 268_435_460})
    max_qos: int = field(default=2, metadata={
        "help": "the highest QoS; an MQTT 5 client that publishes with a higher one is disconnected with reason 0x9B",
        "min": 0, "max": 2})
    retain_available: bool = field(default=True, metadata={
        "help": "whether RETAIN may be set; where not, an MQTT 5 client that does is disconnected with reason 0x9A"})
    wildcards_available: bool = field(default=True, metadata={
        "help": "whether filters may have wildcards; where not, they are refused with 0xA2"})
    identifiers_available: bool = field(default=True, metadata={
        "help": "whether MQTT 5 subscriptions may have identifiers; where not, they are refused with 0xA1"})
    shared_available: bool = field(default=True, metadata={
        "help": "whether there are shared subscriptions; where not, they are refused with 0x9E"})
    max_session_expiry_s: int = field(default=0, metadata={
        "help": "the longest time that a session waits for its client, in seconds: of an MQTT 5 client that asks for "
                "more, which is told, and of every 3.1.1 client without clean session; 0: as long as clients want, "
                "those of 3.1.1 for ever", "min": 0, "max": 4_294_967_294})
    max_keep_alive_s: int = field(default=0, metadata={
        "help": "the longest keep alive of an MQTT 5 client; one that wants a longer one, or none, is told this one; "
                "0: what clients want", "min": 0, "max": 65_535})
    response_prefix: str = field(default="reply/{client_id}", metadata={
        "help": "what an MQTT 5 client is told that asks where responses to it may go (response information), with its "
                "client id for {client_id}; empty: nothing"})
    server_reference: str = field(default="", metadata={
        "help": "another server, as HOST:PORT or what clients are used to (4.11): MQTT 5 clients are told of it, with "
                "reason 0x9C, when this hub stops; empty: none"})
    auth_methods: tuple[str, ...] = field(default=METHODS, metadata={
        "choices": METHODS,
        "help": "methods of enhanced authentication that MQTT 5 clients may log in with; others are refused with 0x8C"})
    check_payload_format: bool = field(default=False, metadata={
        "help": "whether a payload that is said to be UTF-8 and is not is refused with reason 0x99"})
    keep_alive_factor: float = field(default=1.5, metadata={
        "help": "a client that is silent for this many times its keep alive is disconnected [MQTT-3.1.2-24]",
        "min": 1.0, "max": 10.0})
    connect_timeout_ms: int = field(default=10_000, metadata={
        "help": "a connection that has sent no CONNECT after this time is closed", "min": 100})
    max_unsent_bytes: int = field(default=256 << 10, metadata={
        "help": "bytes sent to one client and not yet taken by it; beyond, and where `hub.unsent_bytes` are nearly "
                "used up, messages to it wait", "min": 128 << 10})
    max_waiting_bytes: int = field(default=4 << 20, metadata={
        "help": "bytes of messages waiting in memory for one slow client; beyond, and where `hub.unsent_bytes` are "
                "nearly used up, they are read from the log again when their turn comes", "min": 0})
    max_waiting_ranges: int = field(default=10_000, metadata={
        "help": "stretches of the log that one slow client is still owed; beyond, QoS 0 messages to it are dropped "
                "and counted, and for QoS 1 it is disconnected", "min": 1})
    on_denied: str = field(default="acknowledge", metadata={
        "choices": ("acknowledge", "disconnect"),
        "help": "what a publish is answered with that the client has no right to, or that no topic takes: acknowledge "
                "drops and counts it, as mosquitto does, since MQTT 3.1.1 has no word for no; disconnect lets the "
                "client notice"})
    ack_timeout_ms: int = field(default=1_800_000, metadata={
        "help": "a member of a shared group that has not answered a message of QoS 2 after this time is disconnected, "
                "and the message is a dead letter; 0: never. One of QoS 1 goes to another member after the group's "
                "invisible time", "min": 0, "max": 7 * 24 * 3_600_000})
    sys_interval_s: int = field(default=10, metadata={
        "help": "seconds between two looks at the figures that `$SYS/broker/...` tells whoever may consume them; 0: "
                "there are none", "min": 0, "max": 86_400})
    max_subscriptions: int = field(default=1_000, metadata={
        "help": "filters of one client; further ones are refused with 0x80, and with 0x97 in MQTT 5", "min": 1})
    max_connections_per_address: int = field(default=0, metadata=PER_ADDRESS)


def connection_settings(config: MqttConfig) -> ConnectionSettings:
    """The bounds of connections."""
    return ConnectionSettings(linger_ms=LINGER_MS)
