"""Settings of the HTTP door: the table `[gateways.http]` of `gateways.toml`, beside `listen`."""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Bounds in bytes, seconds or counts; the bounds on what peers can make the hub hold are all here."""

    max_body_bytes: int = field(default=8_388_608, metadata={
        "min": 1024, "max": 1_073_741_824,
        "help": "Largest request body in bytes; a larger one is refused with 413 before it is read. A message is also "
                "held to its topic's limit."})
    max_buffered_bytes: int = field(default=268_435_456, metadata={
        "min": 1024,
        "help": "Bytes of all request bodies being received at one time; a request beyond it is answered 503."})
    body_timeout_s: float = field(default=60.0, metadata={
        "min": 0.1, "max": 3600.0,
        "help": "Seconds in which a request's body must have arrived; later it is answered 408."})
    request_deadline_s: float = field(default=10.0, metadata={
        "min": 0.1, "max": 3600.0,
        "help": "Seconds after which a write that is not yet durable is answered 504, outcome unknown."})
    idle_timeout_s: float = field(default=75.0, metadata={
        "min": 1.0, "max": 86400.0,
        "help": "Seconds without a whole request header after which a connection is closed."})
    stall_timeout_s: float = field(default=60.0, metadata={
        "min": 1.0, "max": 3600.0,
        "help": "Seconds after which a client that takes nothing of its answer is cut off."})
    stop_timeout_s: float = field(default=10.0, metadata={
        "min": 0.0, "max": 600.0,
        "help": "Seconds that requests in flight are given to end when the hub stops."})
    max_connections: int = field(default=10_000, metadata={
        "min": 1, "max": 1_000_000,
        "help": "Connections open at one time; one more is answered 503 and closed."})
    max_wait_s: float = field(default=30.0, metadata={
        "min": 0.0, "max": 3600.0,
        "help": "Longest `wait` of a long poll, in seconds; a longer one is refused with 400."})
    max_page_messages: int = field(default=1_000, metadata={
        "min": 1, "max": 100_000,
        "help": "Largest `max` of a page of messages."})
    max_page_bytes: int = field(default=1_048_576, metadata={
        "min": 1024, "max": 67_108_864,
        "help": "Bytes that one page of messages, or one answer of `batches`, reads from the log; a larger message is "
                "still given."})
    max_bulk_bytes: int = field(default=2_097_152, metadata={
        "min": 1024, "max": 67_108_864,
        "help": "Bytes that one answer of `batches/fetch` reads from the log, for readers in bulk; a larger batch is "
                "still given."})
    max_request_messages: int = field(default=10_000, metadata={
        "min": 1, "max": 1_000_000,
        "help": "Most messages in one JSON body."})
    cors_origins: tuple[str, ...] = field(default=(), metadata={
        "help": "Origins whose web pages may use this door (`https://app.example`), or `*` for all. Pages of any other "
                "origin than the door's own are refused with 403."})
