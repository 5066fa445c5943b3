"""Record batches as aiokafka's producer makes them, an implementation that is not ours."""
from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c


def batch(*values: bytes, codec: int = 0, timestamp_ms: int = 1_000, producer_id: int = -1, producer_epoch: int = -1,
          base_sequence: int = -1, transactional: bool = False, headers: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """One record per value, a millisecond apart."""
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), producer_id, producer_epoch, base_sequence,
                                        1 << 20)
    for i, value in enumerate(values):
        assert builder.append(i, timestamp_ms + i, None, value, list(headers)) is not None
    return bytes(builder.build())


def changed(data: bytes, at: int, shape: str, value: int) -> bytes:
    """The batch with one field of its header changed and its CRC right again."""
    out = bytearray(data)
    struct.pack_into(shape, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)
