"""Settings of the Kafka door: the table `[gateways.kafka]`, beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field

from gatehouse.gateways.connections.capacity import PER_ADDRESS
from gatehouse.gateways.kafka.login import MECHANISMS


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Every setting has a default; bounds are checked when the configuration is read."""

    advertise: str = field(default="127.0.0.1:9092", metadata={
        "help": "HOST:PORT that clients are sent to: they connect to this name, whatever they connected to first. A "
                "listener may say another for those who came by it."})
    sasl_mechanisms: tuple[str, ...] = field(default=MECHANISMS, metadata={
        "choices": MECHANISMS, "help": "SASL mechanisms that clients may log in with. PLAIN and OAUTHBEARER show their "
                                       "secret to whoever reads the network: leave them out where there is no TLS."})
    login_timeout_ms: int = field(default=10_000, metadata={
        "min": 100, "max": 600_000,
        "help": "A connection that has not logged in after this time, in ms, is closed; so is a login that takes "
                "longer, and, where no login is needed, a connection without a first request."})
    idle_timeout_ms: int = field(default=600_000, metadata={
        "min": 0, "max": 1 << 53,
        "help": "A client that asks for nothing and waits for nothing for so long, in ms, is disconnected, as by "
                "Kafka's `connections.max.idle.ms`; it connects again when it needs to. 0: never."})
    max_session_ms: int = field(default=0, metadata={
        "min": 0, "max": 1 << 53,
        "help": "Longest time, in ms, after which a client that logged in by SASL must log in again (KIP-368); 0: as "
                "long as its credentials are good."})
    max_request_bytes: int = field(default=32 << 20, metadata={
        "min": 65_536, "max": 1 << 30,
        "help": "Largest request, in bytes; a larger one closes its connection. A produce request holds many batches."})
    max_in_flight: int = field(default=64, metadata={
        "min": 1, "max": 10_000,
        "help": "Requests of one connection that may wait for their answers; above, the connection is not read."})
    fetch_max_bytes: int = field(default=16 << 20, metadata={
        "min": 65_536, "max": 1 << 30,
        "help": "Most record bytes of one fetch answer, whatever the client asks for; one batch always fits."})
    fetch_max_wait_ms: int = field(default=30_000, metadata={
        "min": 0, "max": 600_000,
        "help": "Longest time, in ms, that a fetch waits for new records, whatever the client asks for."})
    fetch_max_partitions: int = field(default=50_000, metadata={
        "min": 1, "max": 1_000_000, "help": "Most partitions that one fetch may list; more closes its connection."})
    group_min_session_timeout_ms: int = field(default=1_000, metadata={                # decision 284
        "min": 1, "max": 86_400_000,
        "help": "Shortest time, in ms, after which a member of a consumer group may ask to count as gone when it is "
                "silent."})
    group_max_session_timeout_ms: int = field(default=1_800_000, metadata={
        "min": 1, "max": 86_400_000, "help": "Longest such time, in ms."})
    group_initial_rebalance_delay_ms: int = field(default=500, metadata={
        "min": 0, "max": 600_000,
        "help": "How long, in ms, the first member of an empty consumer group waits for others before partitions are "
                "assigned: with more time fewer of them begin twice."})
    group_consumer_session_timeout_ms: int = field(default=45_000, metadata={
        "min": 1, "max": 86_400_000,
        "help": "After how long, in ms, a silent member of a group of the new protocol (`group.protocol=consumer`) "
                "counts as gone; there the hub says, not the member."})
    group_consumer_heartbeat_interval_ms: int = field(default=3_000, metadata={
        "min": 1, "max": 86_400_000,
        "help": "How often, in ms, such a member is to say that it is there, and so at most how long until it hears of "
                "a change. While it waits for others it asks sooner."})
    group_share_session_timeout_ms: int = field(default=45_000, metadata={
        "min": 1, "max": 86_400_000, "help": "After how long, in ms, a silent member of a share group counts as gone."})
    group_share_heartbeat_interval_ms: int = field(default=5_000, metadata={
        "min": 1, "max": 86_400_000,
        "help": "How often, in ms, such a member is to say that it is there, and so at most how long until it hears of "
                "new topics and partitions."})
    group_max_size: int = field(default=1_000, metadata={
        "min": 1, "max": 100_000, "help": "Most members of one consumer group, or share group."})
    max_partitions: int = field(default=20_000, metadata={
        "min": 1, "max": 1_000_000, "help": "Most partitions that a client may give a topic when it creates one."})
    max_connections_per_address: int = field(default=0, metadata=PER_ADDRESS)
