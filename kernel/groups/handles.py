"""Receipt handles as text: which lease of which message of which group, signed so that nobody makes one up.

    partition_id u64 | offset u64 | attempt u16 | epoch u64 | mac 10 B        in URL-safe base64: 48 characters

The MAC covers tenant and group too. The key lies in the log: a handle is good for as long as its lease is, however
often the hub starts in between. The epoch is the cursor's: after a rewind attempts are counted anew, and a handle from
before it must not end somebody else's lease.
"""
from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from gatehouse.kernel.errors import UnknownReceipt
from gatehouse.kernel.message import Handle

_HANDLE = struct.Struct(">QQHQ")
_MAC_BYTES: Final = 10
HANDLE_CHARACTERS: Final = 48


class Handles:
    """Makes and reads the handles of one group."""

    def __init__(self, secret: bytes, tenant: str, group: str) -> None:
        self._key = blake2b(tenant.encode() + b"\0" + group.encode(), key=secret, digest_size=32).digest()

    def encode(self, handle: Handle) -> str:  # decision 31
        """The text of a handle."""
        cursor, offset, attempt = handle
        named = _HANDLE.pack(cursor.partition_id, offset, min(attempt, 0xFFFF), cursor.epoch)
        return urlsafe_b64encode(named + self._mac(named)).decode()

    def decode(self, text: str) -> tuple[int, int, int, int]:
        """Partition id, offset, attempt, epoch. Raises UnknownReceipt."""
        try:
            raw = urlsafe_b64decode(text) if len(text) == HANDLE_CHARACTERS else b""
        except ValueError:
            raw = b""
        named = raw[:_HANDLE.size]
        if len(raw) != _HANDLE.size + _MAC_BYTES or not compare_digest(self._mac(named), raw[_HANDLE.size:]):
            raise UnknownReceipt("this is no receipt handle of this group")
        partition_id, offset, attempt, epoch = _HANDLE.unpack(named)
        return partition_id, offset, attempt, epoch

    def _mac(self, named: bytes) -> bytes:
        return blake2b(named, key=self._key, digest_size=_MAC_BYTES).digest()
