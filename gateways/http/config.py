"""Settings of the HTTP door: the table `[gateways.http]` of `gateways.toml`, beside `listen`."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gatehouse.gateways.connections.capacity import PER_ADDRESS
from gatehouse.gateways.http.webhooks.guard import TargetGuard

ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@]+/?")
"""The pattern of an origin as browsers name it (RFC 6454, 6.2), also with the slash that people put behind it."""


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
    max_connections_per_address: int = field(default=0, metadata=PER_ADDRESS)
    max_wait_s: float = field(default=30.0, metadata={
        "min": 0.0, "max": 3600.0,
        "help": "Longest `wait` of a long poll, in seconds; a longer one is refused with 400."})
    stream_unsent_bytes: int = field(default=65_536, metadata={
        "min": 4096, "max": 67_108_864,
        "help": "Bytes that wait for one reader of a stream (Server-Sent Events, WebSocket); a slower one is fed from "
                "the log once it has taken them."})
    stream_retry_ms: int = field(default=2_000, metadata={
        "min": 10, "max": 600_000,
        "help": "Milliseconds after which a browser whose stream of events broke off comes again."})
    ticket_s: float = field(default=60.0, metadata={
        "min": 1.0, "max": 3600.0,
        "help": "Seconds in which a ticket opens streams (`POST /v1/tickets`)."})
    heartbeat_s: float = field(default=15.0, metadata={
        "min": 0.1, "max": 3600.0,
        "help": "Seconds between signs of life on a stream on which nothing happens."})
    compress_above_bytes: int = field(default=2_048, metadata={
        "min": 64,
        "help": "Bytes from which on an answer in JSON or text is compressed for who asks for it (zstd, gzip)."})
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
    webhook_allow: tuple[str, ...] = field(default=(), metadata={
        "help": "What webhooks may post to besides public addresses over https: host names (`*.internal` for all below "
                "one), addresses, networks; `http://` before one allows plain http there."})
    webhook_failures: int = field(default=5, metadata={
        "min": 0, "max": 1_000,
        "help": "POSTs of one webhook that fail in a row, after which its circuit opens: until it closes, one POST at "
                "a time asks whether the receiver is back. It opens also where half of the last 20 failed. 0: never."})
    webhook_open_s: float = field(default=60.0, metadata={
        "min": 0.1, "max": 3600.0,
        "help": "Seconds after which an open circuit is tried the first time; twice as long after each try that fails, "
                "up to an hour."})
    webhook_slow_s: float = field(default=8.0, metadata={
        "min": 0.0, "max": 3600.0,
        "help": "A POST that was answered counts for the circuit as one that failed, if it took longer than so many "
                "seconds; the message is delivered all the same. 0: none does."})
    allowed_hosts: tuple[str, ...] = field(default=(), metadata={
        "help": "Names that requests may ask this door by (`hub.example`), beside addresses, names without a dot "
                "and this machine's own name; any other is answered 421. Left out, names are looked at while anonymous "
                "access is allowed, and not otherwise. `*`: every name, which gives a hub without users to any page."})
    cors_origins: tuple[str, ...] = field(default=(), metadata={
        "help": "Origins whose web pages may use this door (`https://app.example`), or `*` for all. Pages of any other "
                "origin than the door's own are refused with 403."})
    cors_credentials: bool = field(default=False, metadata={
        "help": "Whether those pages may let the browser send what it keeps for this hub (a login, a client "
                "certificate). Not together with `*`."})
    cors_exposed_headers: tuple[str, ...] = field(default=(), metadata={
        "help": "Headers of answers that those pages may read, beside the hub's own."})
    cors_max_age_s: int = field(default=600, metadata={
        "min": 0, "max": 86400,
        "help": "Seconds for which a browser may remember what it was allowed before it asks again."})

    def __post_init__(self) -> None:
        if self.cors_credentials and "*" in self.cors_origins:
            raise ValueError("cors_credentials needs cors_origins that are named: any page could act as its reader")
        for origin in self.cors_origins:
            if origin != "*" and ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"cors_origins holds {origin[:100]!r}, which no page comes from: an origin is "
                                 "https://HOST or https://HOST:PORT")
        TargetGuard(self.webhook_allow)
