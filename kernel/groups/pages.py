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

from gatehouse.kernel.groups.cursor import PAGE_MASK, PAGE_SHIFT, Cursor, Lease

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


def encode_page(cursor: Cursor, page: int) -> bytes | None:  # decision 21
    """None where the committed says it all."""
    start = max(page << PAGE_SHIFT, cursor.committed)
    stop = min((page + 1) << PAGE_SHIFT, cursor.next)
    behind = cursor.span_from(page) if cursor.spans else 0
    if behind:
        return bytes((_HAS_SPAN,)) + _SPAN.pack(behind)
    mask = cursor.settled.get(page, 0) if stop > start else 0
    runs = _runs(cursor, start, stop)
    if not runs and not mask:
        return None
    return b"\x01" + mask.to_bytes(32, "little") + runs if mask else b"\0" + runs


def _runs(cursor: Cursor, start: int, stop: int) -> bytes:
    out = cursor.out
    tries = cursor.tries
    waiting = cursor.waiting
    if not out and not tries:
        return b""
    runs: list[bytes] = []
    first = -1
    state = 0
    attempt = 0
    time_ms = 0
    last_lease: Lease | None = None
    for offset in range(start, stop):
        lease = out.get(offset)
        if lease is not None and lease is last_lease:
            continue
        new_state = 0
        new_attempt = 0
        new_time = 0
        if lease is not None:
            new_state = LEASED_UNTIL if lease.until_ms else LEASED_BY_HOLDER
            new_attempt = min(lease.attempt, MAX_ATTEMPT)
            new_time = lease.until_ms
        elif tries and offset in tries:
            new_attempt = min(tries[offset], MAX_ATTEMPT)
            new_time = waiting.get(offset, 0)
            new_state = WAITING if new_time else READY_AGAIN
        last_lease = lease
        if new_state == state and new_attempt == attempt and new_time == time_ms:
            continue
        if state:
            runs.append(_RUN.pack(first & PAGE_MASK, (offset - 1) & PAGE_MASK, state, attempt, time_ms))
        first = offset
        state = new_state
        attempt = new_attempt
        time_ms = new_time
    if state:
        runs.append(_RUN.pack(first & PAGE_MASK, (stop - 1) & PAGE_MASK, state, attempt, time_ms))
    return b"".join(runs)


def load_page(cursor: Cursor, page: int, value: bytes, end: int) -> list[tuple[Lease, list[int]]]:
    """Take a stored page into a cursor whose committed is set; returns the leases that run on, with their offsets.

    `end` is the partition's next offset: a record can be older than a topic that was made anew.
    """
    base = page << PAGE_SHIFT
    at = 1
    cursor.stored.add(page)
    if value[0] & _HAS_MASK:
        mask = int.from_bytes(value[1:33], "little")
        at = 33
        if cursor.committed > base:
            mask &= -1 << min(cursor.committed - base, PAGE_MASK + 1)
        if mask:
            cursor.settled[page] = mask
            cursor.beyond += mask.bit_count()
            cursor.next = max(cursor.next, min(end, base + mask.bit_length()))
    if value[0] & _HAS_SPAN:
        behind = int(_SPAN.unpack_from(value, at)[0])
        at += _SPAN.size
        first = max(page, -(-cursor.committed >> PAGE_SHIFT))
        if first < behind and behind << PAGE_SHIFT <= end:
            cursor.add_span(first, behind)
            cursor.next = max(cursor.next, behind << PAGE_SHIFT)
    running: list[tuple[Lease, list[int]]] = []
    for first, last, state, attempt, time_ms in _RUN.iter_unpack(value[at:]):
        offsets = [offset for offset in range(base + first, base + last + 1)
                   if cursor.committed <= offset < end and not cursor.is_settled(offset)]
        if not offsets:
            continue
        cursor.next = max(cursor.next, offsets[-1] + 1)
        if state == LEASED_UNTIL:
            lease = Lease(None, time_ms, attempt)
            lease.left = len(offsets)
            cursor.out.update(dict.fromkeys(offsets, lease))
            running.append((lease, offsets))
            continue
        for offset in offsets:
            cursor.tries[offset] = attempt
            if state == WAITING:
                cursor.waiting[offset] = time_ms
        if state != WAITING:
            cursor.load_again(offsets)
    return running


def fill_gaps(cursor: Cursor) -> None:
    """After every page: offsets below `next` of which nothing is known were in hand when the hub ended: ready again."""
    if cursor.next == cursor.committed:
        return
    leases = cursor.out
    tries = cursor.tries
    cursor.load_again([offset for offset in cursor.unsettled(cursor.committed, cursor.next)
                     if offset not in leases and offset not in tries])
