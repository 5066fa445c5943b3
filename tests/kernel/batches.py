"""Record batches as Kafka producers send them, made by hand: uncompressed, of any keys."""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from crc32c import crc32c

from gatehouse.kernel.message import Headers
from gatehouse.kernel.records.batch import encode_headers, encode_key, varint

_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE = struct.Struct(">qiibI")


def encode_record(index: int, key: bytes | None, value: bytes | None, headers: Headers = (), delta_ms: int = 0,
                  attributes: int = 0) -> bytes:
    body = bytes((attributes,)) + varint(delta_ms) + varint(index) + encode_key(key) + encode_key(value) + \
        encode_headers(headers)
    return varint(len(body)) + body


def wrap(records: bytes, count: int, *, codec: int = 0, base_ms: int = 1000, max_ms: int = 1000, producer_id: int = -1,
         epoch: int = -1, sequence: int = -1) -> bytes:
    """A header around records that are encoded, and perhaps compressed, already."""
    tail = _AFTER_CRC.pack(codec, count - 1, base_ms, max_ms, producer_id, epoch, sequence, count) + records
    return _BEFORE.pack(0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def batch_of(messages: Sequence[tuple[bytes | None, bytes | None, Headers]], producer_id: int = -1,
             sequence: int = -1, codec: int = 0, pack: Callable[[bytes], bytes] = bytes) -> bytes:
    """(key, value, headers) of each record."""
    records = b"".join(encode_record(i, *message) for i, message in enumerate(messages))
    return wrap(pack(records), len(messages), codec=codec, producer_id=producer_id,
                epoch=0 if producer_id >= 0 else -1, sequence=sequence)
