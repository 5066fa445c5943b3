"""Reason codes of MQTT 5 (2.4), and which of them says what the hub's own errors say. Pure.

3.1 and 3.1.1 have five return codes of CONNACK and 0x80 of SUBACK; everything else ends their connections without a
word.
"""
from __future__ import annotations

from typing import Final

SUCCESS: Final = 0x00
WITH_WILL: Final = 0x04                # DISCONNECT of a client: publish the will all the same
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
RE_AUTHENTICATE: Final = 0x19
FAILURE: Final = 0x80                  # and every code from here on
MALFORMED: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION: Final = 0x83
BAD_VERSION: Final = 0x84
BAD_CLIENT_ID: Final = 0x85
BAD_LOGIN: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
UNAVAILABLE: Final = 0x88
BUSY: Final = 0x89
SHUTTING_DOWN: Final = 0x8B
BAD_METHOD: Final = 0x8C
KEEP_ALIVE: Final = 0x8D
TAKEN_OVER: Final = 0x8E
BAD_FILTER: Final = 0x8F
BAD_TOPIC: Final = 0x90
ID_IN_USE: Final = 0x91
ID_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM: Final = 0x93
BAD_ALIAS: Final = 0x94
TOO_LARGE: Final = 0x95
RATE: Final = 0x96
QUOTA: Final = 0x97
ADMINISTRATIVE: Final = 0x98
BAD_FORMAT: Final = 0x99
NO_RETAIN: Final = 0x9A
NO_QOS: Final = 0x9B
ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
NO_SHARED: Final = 0x9E
CONNECTION_RATE: Final = 0x9F
CONNECT_TIME: Final = 0xA0
NO_IDS: Final = 0xA1
NO_WILDCARDS: Final = 0xA2

OF_CODE: Final[dict[str, int]] = {
    "already_decided": FAILURE,
    "already_delivered": FAILURE,
    "create_denied": NOT_AUTHORIZED,
    "denied": NOT_AUTHORIZED,
    "idempotency_conflict": FAILURE,
    "internal_error": IMPLEMENTATION,
    "invalid_address": BAD_TOPIC,
    "invalid_check_back": BAD_TOPIC,
    "invalid_delay": BAD_TOPIC,
    "invalid_delivery": IMPLEMENTATION,
    "invalid_recall": IMPLEMENTATION,
    "invalid_selector": IMPLEMENTATION,
    "invalid_filter": BAD_FILTER,
    "invalid_group": BAD_TOPIC,
    "invalid_half_name": BAD_TOPIC,
    "invalid_payload": BAD_FORMAT,
    "invalid_schedule": IMPLEMENTATION,
    "invalid_topic": BAD_TOPIC,
    "kept_full": QUOTA,
    "message_too_large": TOO_LARGE,
    "not_authenticated": NOT_AUTHORIZED,
    "not_authorized": NOT_AUTHORIZED,
    "over_quota": QUOTA,
    "queue_full": QUOTA,
    "receipt_denied": NOT_AUTHORIZED,
    "reserved": NOT_AUTHORIZED,
    "session_deleted": ADMINISTRATIVE,
    "session_refused": BAD_CLIENT_ID,
    "stopping": SHUTTING_DOWN,
    "storage_full": QUOTA,
    "storage_failed": IMPLEMENTATION,
    "too_many": QUOTA,
    "too_many_received": RECEIVE_MAXIMUM,
    "too_many_scheduled": QUOTA,
    "too_many_sessions": QUOTA,
    "too_many_subscriptions": QUOTA,
    "too_many_topics": QUOTA,
    "unknown_queue": NO_MATCHING_SUBSCRIBERS,
    "unknown_scheduled": FAILURE,
    "unknown_topic": NO_MATCHING_SUBSCRIBERS,
    "unroutable": NO_MATCHING_SUBSCRIBERS,
    # what ends a connection
    "ack_timeout": ADMINISTRATIVE,
    "connect_timeout": FAILURE,
    "keep_alive_timeout": KEEP_ALIVE,
    "malformed_packet": MALFORMED,
    "not_supported": IMPLEMENTATION,
    "packet_too_large": TOO_LARGE,
    "principal_ended": ADMINISTRATIVE,
    "protocol_error": PROTOCOL_ERROR,
    "slow_consumer": QUOTA,
    "taken_over": TAKEN_OVER,
    "too_many_refused": RATE,
}
"""By the code of an error, or of the end of a connection. A publish that nothing takes is no error (0x10)."""


def reason_of(code: str) -> int:
    """The reason code of an error's code; 0x80 where there is none of its own."""
    return OF_CODE.get(code, FAILURE)
