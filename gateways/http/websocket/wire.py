"""Text frames of a WebSocket server as bytes (RFC 6455, 5.2; servers do not mask), whole messages in one frame.

Compressed as RFC 7692 says where that was agreed. Every message is compressed for itself: a compressor may begin anew
at any message (7.2.3.1), so a connection keeps no window, which would be a quarter of a megabyte each. Pure.
"""
from __future__ import annotations

import zlib
from struct import Struct
from typing import Final

FIN_TEXT: Final = 0x81
COMPRESSED: Final = 0x40             # RSV1 (RFC 7692, 7.2.3.1)
TAIL_BYTES: Final = 4                # 00 00 FF FF, which the receiver puts back (7.2.1)
MIN_COMPRESSED_BYTES: Final = 256    # smaller messages gain nothing
LEVEL: Final = 1                     # the fastest

_SHORT: Final = Struct("!BB")
_MIDDLE: Final = Struct("!BBH")
_LONG: Final = Struct("!BBQ")


def encode_text(payload: bytes, window_bits: int = 0) -> bytes:
    """One text message. `window_bits` as agreed for permessage-deflate, 0 where it was not."""
    first = FIN_TEXT
    if window_bits and len(payload) >= MIN_COMPRESSED_BYTES:
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -max(9, window_bits))
        payload = (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-TAIL_BYTES]
        first |= COMPRESSED
    size = len(payload)
    if size < 126:
        return _SHORT.pack(first, size) + payload
    if size < 65536:
        return _MIDDLE.pack(first, 126, size) + payload
    return _LONG.pack(first, 127, size) + payload
