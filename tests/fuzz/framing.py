"""Takes what a client sends apart at its frames, and writes a changed frame with true lengths and checksums again.

Bytes that are changed at random mostly die at the first length or CRC. A mutation that keeps these right gets to what
lies behind them. `split` gives the frames of a stream, `body_of` and `with_body` the part of a frame behind its length.
What cannot be taken apart is one frame without a body. Pure.
"""
from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard
from crc32c import crc32c

from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress

AMQP_PREFACE: Final = b"AMQP"
AMQP_PREFACE_BYTES: Final = 8
AMQP_FRAME_OVERHEAD: Final = 8               # type, channel, size, end
BATCH_HEADER_BYTES: Final = 61
BATCH_LENGTH_AT: Final = 8
BATCH_MAGIC_AT: Final = 16
BATCH_CRC_AT: Final = 17
BATCH_ATTRIBUTES_AT: Final = 21
BATCH_LENGTH_COVERS_FROM: Final = 12
OPENED_MAX: Final = 1 << 20
CODEC_MASK: Final = 0x07

_CONTENT_LENGTH = re.compile(rb"(?im)^(content-length:[ ]*)\d+")


class Framing(NamedTuple):
    """How one protocol cuts its stream."""

    split: Callable[[bytes], list[bytes]]
    body_of: Callable[[bytes], bytes]
    with_body: Callable[[bytes, bytes], bytes]


# ---- MQTT: type and flags, remaining length in 1 to 4 bytes, body

def _mqtt_head(data: bytes) -> tuple[int, int] | None:
    """Where the body begins, and its length."""
    length = shift = 0
    for at in range(1, min(5, len(data))):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if not data[at] & 0x80:
            return at + 1, length
    return None


def split_mqtt(data: bytes) -> list[bytes]:
    frames = []
    while (head := _mqtt_head(data)) is not None and sum(head) <= len(data):
        frames.append(data[:sum(head)])
        data = data[sum(head):]
    return [*frames, data] if data else frames


def mqtt_body(frame: bytes) -> bytes:
    head = _mqtt_head(frame)
    return b"" if head is None else frame[head[0]:]


def with_mqtt_body(frame: bytes, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        digits.append(digit | 0x80 if length else digit)
        if not length or len(digits) == 4:
            return frame[:1] + bytes(digits) + body


# ---- AMQP: type, channel, size, payload, 0xCE

def split_amqp(data: bytes) -> list[bytes]:
    frames = []
    if data.startswith(AMQP_PREFACE):
        frames, data = [data[:AMQP_PREFACE_BYTES]], data[AMQP_PREFACE_BYTES:]
    while len(data) >= AMQP_FRAME_OVERHEAD:
        size = AMQP_FRAME_OVERHEAD + struct.unpack_from(">I", data, 3)[0]
        if size > len(data):
            break
        frames.append(data[:size])
        data = data[size:]
    return [*frames, data] if data else frames


def amqp_body(frame: bytes) -> bytes:
    return b"" if frame.startswith(AMQP_PREFACE) else frame[7:-1]


def with_amqp_body(frame: bytes, body: bytes) -> bytes:
    return frame if frame.startswith(AMQP_PREFACE) else frame[:3] + struct.pack(">I", len(body)) + body + b"\xce"


# ---- Kafka: size, request; within it record batches with lengths and CRCs of their own

def split_kafka(data: bytes) -> list[bytes]:
    frames = []
    while len(data) >= 4:
        size = 4 + struct.unpack_from(">I", data)[0]
        if size > len(data):
            break
        frames.append(data[:size])
        data = data[size:]
    return [*frames, data] if data else frames


def kafka_body(frame: bytes) -> bytes:
    return frame[4:]


def with_kafka_body(frame: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + with_true_checksums(body)


def batch_at(body: bytes) -> int | None:
    """Where the first record batch of a request begins."""
    at = body.find(b"\x02", BATCH_MAGIC_AT)
    while at >= 0:
        start = at - BATCH_MAGIC_AT
        length = struct.unpack_from(">i", body, start + BATCH_LENGTH_AT)[0]
        least, most = BATCH_HEADER_BYTES - BATCH_LENGTH_COVERS_FROM, len(body) - start - BATCH_LENGTH_COVERS_FROM
        if least <= length <= most:
            return start
        at = body.find(b"\x02", at + 1)
    return None


def batch_of(body: bytes) -> bytes:
    """The first record batch of a request; b"" where there is none."""
    start = batch_at(body)
    if start is None:
        return b""
    length = struct.unpack_from(">i", body, start + BATCH_LENGTH_AT)[0]
    return body[start:start + BATCH_LENGTH_COVERS_FROM + length]


def with_true_checksums(body: bytes) -> bytes:
    """A request whose first record batch has the CRC of what is in it now."""
    start, batch = batch_at(body), batch_of(body)
    if start is None:
        return body
    crc = struct.pack(">I", crc32c(batch[BATCH_ATTRIBUTES_AT:]))
    at = start + BATCH_CRC_AT
    return body[:at] + crc + body[at + 4:]


def with_records(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A request whose first batch has other records: opened, changed, packed by the same codec, lengths and CRC true.

    The length field before the batch (bytes of records, as Produce has it) is put right where it was right before.
    """
    start, batch = batch_at(body), batch_of(body)
    if start is None:
        return body
    codec = struct.unpack_from(">h", batch, BATCH_ATTRIBUTES_AT)[0] & CODEC_MASK
    try:
        records = change(decompress(codec, batch[BATCH_HEADER_BYTES:], OPENED_MAX))
    except CorruptBatch:
        return body
    packed = batch[:BATCH_HEADER_BYTES] + pack(codec, records)
    length = struct.pack(">i", len(packed) - BATCH_LENGTH_COVERS_FROM)
    packed = packed[:BATCH_LENGTH_AT] + length + packed[BATCH_LENGTH_COVERS_FROM:]
    before = body[:start]
    if start >= 4 and struct.unpack_from(">i", body, start - 4)[0] == len(batch):
        before = body[:start - 4] + struct.pack(">i", len(packed))
    return with_true_checksums(before + packed + body[start + len(batch):])


def pack(codec: int, records: bytes) -> bytes:
    """Records behind a batch's header, compressed by Kafka's number of a codec."""
    packers: dict[int, Callable[[bytes], bytes]] = {
        NONE: bytes, GZIP: gzip.compress, SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
        LZ4: lz4.frame.compress, ZSTD: zstandard.compress}
    return packers.get(codec, bytes)(records)


# ---- HTTP: a request's head and its body

def split_http(data: bytes) -> list[bytes]:
    return [data]


def http_body(frame: bytes) -> bytes:
    return frame.partition(b"\r\n\r\n")[2]


def with_http_body(frame: bytes, body: bytes) -> bytes:
    head, end, _ = frame.partition(b"\r\n\r\n")
    return _CONTENT_LENGTH.sub(rb"\g<1>%d" % len(body), head) + end + body


FRAMINGS: Final = {
    "mqtt": Framing(split_mqtt, mqtt_body, with_mqtt_body),
    "amqp": Framing(split_amqp, amqp_body, with_amqp_body),
    "kafka": Framing(split_kafka, kafka_body, with_kafka_body),
    "http": Framing(split_http, http_body, with_http_body)}
