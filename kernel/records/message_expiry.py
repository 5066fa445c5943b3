"""When a message is worth nothing any more: by its own word, or its topic's. Pure.

Sessions, leased groups and whoever asks for retained values get no expired messages; readers of offsets see them all,
with their `expires-at`.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.message import Headers
from gatehouse.kernel.state.topics import TopicSettings

EXPIRES_HEADER: Final = b"expires-at"
"""Name of the header that holds milliseconds since 1970 as decimal digits."""

MAX_DIGITS: Final = 19                 # of a 64-bit number; longer texts are no times
NEVER: Final = (1 << 63) - 1


def expires_at(headers: Headers, timestamp_ms: int, settings: TopicSettings | None) -> int:
    """The time in ms from which on a record counts as expired; NEVER where nothing ends it.

    Of several headers the first counts; one that is no number is a header like any other. A topic's `message_ttl_ms`
    counts from the record's timestamp. The earlier of the two holds.
    """
    ttl_ms = None if settings is None else settings.message_ttl_ms
    end = NEVER if ttl_ms is None else timestamp_ms + ttl_ms
    for name, value in headers:
        if name == EXPIRES_HEADER:
            if value is not None and len(value) <= MAX_DIGITS and value.isdigit():
                return min(end, int(value))
            break
    return end
