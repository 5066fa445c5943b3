"""State records that hold several transactions: those that began, or were decided, with one frame. Pure. Hot.

    BEGUN    0  begun_ms  i64
             8  count     u32
            12  templates u32
            16  of each transaction, in columns: number of its template u32, messages u32
                of each template: length u32, the template
                the half messages of all of them, in order, as a HALF page

    ENDED    0  count          u32
             4  templates      u32
             8  tenant length  u16
            10  of each, in columns, by id: id u64, begun_ms i64, size_bytes u64, messages u32,
                number of its template u32, address length u32
                tenant
                of each template: length u32, the template
                addresses

What many of them have in common stands there once: a *template* is a transaction as in `transactions.records` with
nothing of its own. Ids of those that began together follow each other, as those of their messages do. Numbers are
big-endian.
"""
from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gatehouse.kernel.halves.half_records import column
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.records import BEGUN, ENDED, Transaction, decode, encode

_ID = struct.Struct(">Q")
_ENDED = struct.Struct(">QQ")
_BEGUN_HEAD = struct.Struct(">qII")
_ENDED_HEAD = struct.Struct(">IIH")
_LENGTH = struct.Struct(">I")

# ---- began

Beginning = tuple[bytes, int]
"""A transaction among others that began with it: its template, how many messages."""


def begun_key(first_id: int) -> bytes:
    return BEGUN + _ID.pack(first_id)


def encode_begun(begun_ms: int, beginnings: list[Beginning], page: bytes) -> bytes:
    """A BEGUN record; `page` holds the half messages."""
    numbers: dict[bytes, int] = {}
    templates = [numbers.setdefault(template, len(numbers)) for template, _ in beginnings]
    messages = [count for _, count in beginnings]
    return b"".join((_BEGUN_HEAD.pack(begun_ms, len(beginnings), len(numbers)), column("I", templates),
                     column("I", messages), _encode_templates(numbers), page))


def decode_begun(value: bytes) -> tuple[int, list[Beginning], bytes]:
    """What `encode_begun` was given."""
    begun_ms, count, template_count = _BEGUN_HEAD.unpack_from(value)
    columns = struct.unpack_from(f">{2 * count}I", value, _BEGUN_HEAD.size)
    templates, at = _decode_templates(value, _BEGUN_HEAD.size + 8 * count, template_count)
    beginnings = [(templates[template], messages) for template,
                  messages in zip(columns[:count], columns[count:], strict=True)]
    return begun_ms, beginnings, value[at:]


def _encode_templates(templates: Iterable[bytes]) -> bytes:
    return b"".join([_LENGTH.pack(len(template)) + template for template in templates])


def _decode_templates(value: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """And where they end."""
    templates: list[bytes] = []
    for _ in range(count):
        length, = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        templates.append(value[at:at + length])
        at += length
    return templates, at


# ---- decided

Ending = tuple[int, int, int, int, str, bytes]
"""A transaction among others that were decided with it: id, begun_ms, messages, size_bytes, address, template."""


class Ended(NamedTuple):
    """Transactions that were decided with one frame. They are forgotten together, too."""

    decided_ms: int
    tenant: str
    ids: array[int]               # ascending

    @property
    def key(self) -> bytes:
        return ENDED + _ENDED.pack(self.decided_ms, self.ids[0])


def ending_of(transaction: Transaction) -> Ending:
    """One that had records of its own."""
    template = encode(transaction._replace(begun_ms=0, messages=0, pages=0, size_bytes=0, address=""))
    return (transaction.id, transaction.begun_ms, transaction.messages, transaction.size_bytes, transaction.address,
            template)


def encode_ended(decided_ms: int, tenant: str, endings: list[Ending]) -> tuple[Ended, StateRecord]:
    """An ENDED record, and what memory holds of it."""
    endings.sort()
    ids: list[int] = []
    begun: list[int] = []
    sizes: list[int] = []
    messages: list[int] = []
    templates: list[int] = []
    addresses: list[bytes] = []
    numbers: dict[bytes, int] = {}
    for transaction_id, begun_ms, count, size_bytes, address, template in endings:
        ids.append(transaction_id)
        begun.append(begun_ms)
        sizes.append(size_bytes)
        messages.append(count)
        templates.append(numbers.setdefault(template, len(numbers)))
        addresses.append(address.encode())
    assert ids and len(ids) == len(set(ids)), "a transaction is decided once"
    ended = Ended(decided_ms, tenant, array("Q", ids))
    texts = tenant.encode()
    value = b"".join((_ENDED_HEAD.pack(len(endings), len(numbers), len(texts)), column("Q", ids), column("q", begun),
                      column("Q", sizes), column("I", messages), column("I", templates),
                      column("I", [len(address) for address in addresses]), texts, _encode_templates(numbers),
                      *addresses))
    return ended, StateRecord(Kind.TRANSACTION, ended.key, value)


@lru_cache(maxsize=1_024)
def _columns(count: int) -> struct.Struct:
    return struct.Struct(f">{count}Q{count}q{count}Q{3 * count}I")


def decode_ended(key: bytes, value: bytes) -> Ended:
    """What memory holds of an ENDED record."""
    decided_ms, _ = _ENDED.unpack_from(key, len(ENDED))
    count, _, length = _ENDED_HEAD.unpack_from(value)
    ids = array("Q", value[_ENDED_HEAD.size:_ENDED_HEAD.size + 8 * count])
    if sys.byteorder == "little":
        ids.byteswap()
    at = _ENDED_HEAD.size + _columns(count).size
    return Ended(decided_ms, value[at:at + length].decode(), ids)


def decode_ending(value: bytes, transaction_id: int) -> Transaction:
    """One of those in an ENDED record."""
    count, template_count, length = _ENDED_HEAD.unpack_from(value)
    columns = _columns(count)
    numbers = columns.unpack_from(value, _ENDED_HEAD.size)
    at = bisect_left(numbers, transaction_id, 0, count)
    assert numbers[at] == transaction_id, "it was decided with these"
    begun_ms, size_bytes, messages, template, _ = numbers[count + at::count]
    templates, addresses_at = _decode_templates(value, _ENDED_HEAD.size + columns.size + length, template_count)
    lengths = numbers[5 * count:]
    addresses_at += sum(lengths[:at])
    address = value[addresses_at:addresses_at + lengths[at]].decode()
    return decode(transaction_id, templates[template])._replace(begun_ms=begun_ms, messages=messages,
                                                                size_bytes=size_bytes,
                                                        address=address)
