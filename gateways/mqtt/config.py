"""The settings of the MQTT door, `[gateways.mqtt]` beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field

from gateways.mqtt.window import INFLIGHT_LIMIT


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
    max_unsent_bytes: int = field(default=8 << 20, metadata={
        "help": "bytes sent to one client and not yet taken by it; beyond, messages to it wait", "min": 1 << 20})
    max_waiting_bytes: int = field(default=4 << 20, metadata={
        "help": "bytes of messages waiting in memory for one slow client; beyond, they are read from the log "
                "again when their turn comes", "min": 0})
    max_waiting_ranges: int = field(default=10_000, metadata={
        "help": "stretches of the log that one slow client is still owed; beyond, QoS 0 messages to it are dropped "
                "and counted, and for QoS 1 it is disconnected", "min": 1})
    on_denied: str = field(default="acknowledge", metadata={
        "choices": ("acknowledge", "disconnect"),
        "help": "what a publish is answered with that the client has no right to, or that no topic takes: acknowledge "
                "drops and counts it, as mosquitto does, since MQTT 3.1.1 has no word for no; disconnect lets the "
                "client notice"})
    max_subscriptions: int = field(default=1_000, metadata={
        "help": "filters of one client; further ones are refused with 0x80", "min": 1})
