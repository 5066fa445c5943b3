"""Terms of a session's filter, beyond its options: what of it is wanted, and what is still owed of before it was there.

    TERMS   key     partition id u64 | filter
            value   since u64 | partitions u32, each: partition id u64 | next offset u64 | stop u64 | selector

The history of a filter is what topics hold from where its client asked for up to where messages begin to wait for the
session: fixed when the filter comes, partition by partition. A door reads it and says how far it is; what is newer
(`since`, in the session's own partition) is handed out behind it. Pure.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from gatehouse.kernel.message import Headers
from gatehouse.kernel.selectors.selector import Selector
from gatehouse.kernel.sessions.session_values import Owed

_HEAD: Final = struct.Struct(">QI")
_OWED: Final = struct.Struct(">QQQ")

class Terms:
    """One filter's."""

    __slots__ = ("owed", "selector", "since", "waits")

    def __init__(self, selector: Selector | None, since: int, owed: Owed) -> None:
        self.selector = selector
        self.since = since
        self.owed = owed
        self.waits = bool(owed)              # what is newer waits until the history has been sent

    @property
    def text(self) -> str:
        return "" if self.selector is None else self.selector.text

    def is_wanted(self, headers: Headers, key: bytes | None, address: str, timestamp_ms: int, value: bytes | None
                  ) -> bool:
        """Whether the selector takes a message."""
        return self.selector is None or self.selector.matches(headers, key, address, "", timestamp_ms, value)

    def move(self, reached: dict[int, int]) -> None:
        """The history is done with before these offsets; a partition that is done with altogether is forgotten."""
        for partition_id, offset in reached.items():
            _, stop = self.owed.get(partition_id, (0, 0))
            if offset < stop:
                self.owed[partition_id] = offset, stop
            else:
                self.owed.pop(partition_id, None)


def encode_terms(terms: Terms | None) -> bytes | None:
    """None where there is nothing to say."""
    if terms is None or not terms.owed and terms.selector is None:
        return None
    return _HEAD.pack(terms.since, len(terms.owed)) + b"".join(
        [_OWED.pack(partition_id, begin, stop) for partition_id, (begin, stop) in terms.owed.items()]) \
        + terms.text.encode()


def decode_terms(value: bytes, parse: Callable[[str], Selector | None]) -> Terms:
    since, count = _HEAD.unpack_from(value)
    stop = _HEAD.size + count * _OWED.size
    owed = {partition_id: (begin, end) for partition_id, begin, end in _OWED.iter_unpack(value[_HEAD.size:stop])}
    return Terms(parse(value[stop:].decode()), since, owed)
