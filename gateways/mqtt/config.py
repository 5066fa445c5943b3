"""The settings of the MQTT door, `[gateways.mqtt]` beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gatehouse.gateways.connections.capacity import PER_ADDRESS
from gatehouse.gateways.mqtt.outbox import INFLIGHT_LIMIT

NOT_HONOURED: Final = {
    "clean_session_0": "its session ends with its connection; CONNACK says that there is none (session present 0)"}
"""What clients ask for without effect, and what happens instead."""


@dataclass(frozen=True, slots=True)
class MqttConfig:
    max_inflight: int = field(default=32_768, metadata={
        "help": "QoS 1 messages sent to one client and not acknowledged by it; more wait", "min": 1,
        "max": INFLIGHT_LIMIT})
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
        "help": "a member of a shared group that has not acknowledged a message after this time is disconnected, and "
                "the message goes to another; 0: never", "min": 0, "max": 7 * 24 * 3_600_000})
    max_subscriptions: int = field(default=1_000, metadata={
        "help": "filters of one client; further ones are refused with 0x80", "min": 1})
    max_connections_per_address: int = field(default=0, metadata=PER_ADDRESS)
