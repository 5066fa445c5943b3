"""The settings of the AMQP door, `[gateways.amqp]` beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field

from gatehouse.gateways.amqp.arguments import MAX_EXPIRY_MS
from gatehouse.gateways.connections.capacity import PER_ADDRESS
from gatehouse.gateways.connections.settings import ConnectionSettings

FRAME_MIN_SIZE = 4096          # 0-9-1, 1.2, "Constants": frame-min-size
LARGE_BYTES = 16 << 20         # of one message, unless `kernel.max_message_bytes` says more
BUSY_S = 120                   # for which a client may take nothing, where heartbeats are more frequent


@dataclass(frozen=True, slots=True)
class AmqpConfig:
    channel_max: int = field(default=2047, metadata={
        "help": "channels that one connection may open; a client may ask for fewer", "min": 1, "max": 65_535})
    frame_max: int = field(default=131_072, metadata={
        "help": "largest frame in bytes, both ways; a client may ask for less", "min": FRAME_MIN_SIZE, "max": 1 << 24})
    heartbeat_s: int = field(default=60, metadata={
        "help": "seconds between heartbeats that are proposed to clients; silence for twice as long ends a "
                "connection", "min": 0, "max": 65_535})
    handshake_timeout_ms: int = field(default=10_000, metadata={
        "help": "a connection that is not open after this time is closed", "min": 100})
    max_unsent_bytes: int = field(default=1 << 20, metadata={
        "help": "bytes sent to one client and not yet taken by it; beyond, its consumers wait", "min": 1 << 20})
    consumer_timeout_ms: int = field(default=1_800_000, metadata={
        "help": "a channel that has not acknowledged a delivery after this time is closed with 406, and its messages "
                "go to others; the argument x-consumer-timeout of a queue goes before it; 0: never", "min": 0,
        "max": MAX_EXPIRY_MS})
    blocked_after_ms: int = field(default=1_000, metadata={
        "help": "a publisher that is not read for so long is told so by connection.blocked", "min": 1})
    max_connections_per_address: int = field(default=0, metadata=PER_ADDRESS)


def connection_settings(config: AmqpConfig) -> ConnectionSettings:
    """The bounds of connections. Many clients read nothing while they publish, so deliveries that they have not taken
    are no reason not to read them: else both sides would wait. Beyond their limit deliveries wait in the queue. And
    many take nothing while they are busy with a message: that may last as long as their silence may."""
    return ConnectionSettings(write_timeout_ms=max(BUSY_S, 2 * config.heartbeat_s) * 1000,
                              read_on_bytes=config.max_unsent_bytes + LARGE_BYTES)
