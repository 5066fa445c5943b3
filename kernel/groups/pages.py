"""Pages of a cursor as they are stored: 256 offsets each, under (partition id, page, group). Hot, and pure.

    flags        u8      1: a mask follows, 2: the end of a span
    mask         32 B    little-endian bits of settled offsets above the committed one
    span         u64     the first page that is behind it: everything from this page until there is settled
    runs, each:
      first      u8      within the page
      last       u8
      state      u8      see below
      attempt    u16     how often it was leased so far
      time_ms    i64     of LEASED_UNTIL and WAITING

A lease that its holder's end ends is over after a start of the hub, since no connection lives as long: it is read back
as ready again. The committed travels as the group's committed offset, and beside it, where others commit metadata, the
epoch of the cursor (u64, nothing for 0).
"""
from __future__ import annotations

import struct
from typing import Final

PAGE_SHIFT: Final = 8
PAGE_OFFSETS: Final = 1 << PAGE_SHIFT
PAGE_MASK: Final = PAGE_OFFSETS - 1

LEASED_BY_HOLDER: Final = 1
LEASED_UNTIL: Final = 2
WAITING: Final = 3
READY_AGAIN: Final = 4
MAX_ATTEMPT: Final = 0xFFFF

_HAS_MASK: Final = 1
_HAS_SPAN: Final = 2
_RUN = struct.Struct("<BBBHq")
_KEY = struct.Struct(">QQ")
_EPOCH = struct.Struct(">Q")
_SPAN = struct.Struct(">Q")

Run = tuple[int, int, int, int, int]
"""First and last offset within the page, state, attempt, time (ms)."""


def page_key(partition_id: int, page: int, group: bytes) -> bytes:
    return _KEY.pack(partition_id, page) + group


def decode_page_key(key: bytes) -> tuple[int, int, str]:
    """Partition id, page, group."""
    partition_id, page = _KEY.unpack_from(key)
    return partition_id, page, key[_KEY.size:].decode()


def encode_epoch(epoch: int) -> bytes:
    return _EPOCH.pack(epoch) if epoch else b""


def decode_epoch(metadata: bytes) -> int:
    """0 where there is none: offsets that were committed before the group leased messages."""
    return int(_EPOCH.unpack(metadata)[0]) if len(metadata) == _EPOCH.size else 0


def encode_span(behind: int) -> bytes:
    """The page that a span of settled pages begins with; `behind` is the first page that is not in it."""
    return bytes((_HAS_SPAN,)) + _SPAN.pack(behind)


def encode_page(mask: int, runs: list[Run]) -> bytes | None:
    """A page with these bits settled; None where there is nothing to say."""
    if not runs and not mask:
        return None
    assert 0 <= mask < 1 << PAGE_OFFSETS, "a bit for each offset of the page"
    body = b"".join([_RUN.pack(*run) for run in runs])
    return b"\x01" + mask.to_bytes(32, "little") + body if mask else b"\0" + body


def decode_page(value: bytes) -> tuple[int, int, list[Run]]:
    """Mask, the page behind a span that begins here (0: none does), runs."""
    at = 1
    mask = behind = 0
    if value[0] & _HAS_MASK:
        mask = int.from_bytes(value[1:33], "little")
        at = 33
    if value[0] & _HAS_SPAN:
        behind = int(_SPAN.unpack_from(value, at)[0])
        at += _SPAN.size
    return mask, behind, list(_RUN.iter_unpack(value[at:]))
