"""The state records of transactions. Pure. Hot.

    key                              value
    BEGUN id u64                     transactions that began with one frame, and their half messages
    OPEN  id u64                     one that is undecided and has records of its own; its half messages are HALF pages
    ENDED decided_ms u64, id u64     those of a tenant that one frame decided, for as long as they are remembered

BEGUN and ENDED hold several: see `transactions.shared_records`. One transaction:

     0  state        u8
     1  unasked      u8     1: its last check reached nobody
     2  attempts     u16    checks that count
     4  messages     u32
     8  pages        u32    records of half messages
    12  first_ms     u32    check settings
    16  every_ms     u32
    20  max_checks   u16
    22  made         u16    checks that are listed
    24  size_bytes   u64    of values and headers
    32  begun_ms     i64
    40  next_ms      i64    when it is checked next, or expires
    48  decided_ms   i64
    56  lengths      u16 each: tenant, group, by, address, decided_by
    66  tenant, group, by, address, decided_by
        each check: at_ms i64, length u16, to

Numbers are big-endian.
"""
from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from gatehouse.transactions.settings import CheckSettings
from gatehouse.transactions.states import State

OPEN: Final = b"\1"
ENDED: Final = b"\2"
BEGUN: Final = b"\3"

HEAD: Final = struct.Struct(">BBHIIIIHHQqqq5H")
CHECK: Final = struct.Struct(">qH")
_ID = struct.Struct(">Q")


class CheckMade(NamedTuple):
    at_ms: int
    to: str                       # name of the member that was asked; "": nobody was there


class Transaction(NamedTuple):
    id: int                       # the message id of its first half message
    state: State
    tenant: str
    group: str                    # whose members are asked; "": nobody is, it has a time
    by: str                       # who began it
    address: str                  # of its first message
    begun_ms: int
    next_ms: int                  # of an open one: when it is checked next, or expires
    settings: CheckSettings
    messages: int
    pages: int
    size_bytes: int
    attempts: int = 0             # checks that count; who joins after a check that reached nobody is asked beside
    checks: tuple[CheckMade, ...] = ()
    decided_ms: int = 0
    decided_by: str = ""          # "": nobody; it expired

    def ended(self, state: State, when_ms: int, by: str) -> Transaction:
        """What becomes of it by a decision."""
        return Transaction._make((self.id, state, *self[2:7], 0, *self[8:14], when_ms, by))

    @property
    def wait_ms(self) -> int:
        """From the last check, or sign of life, to the next."""
        return self.settings.every_ms if self.attempts else self.settings.first_ms

    @property
    def unasked(self) -> bool:
        """The last check reached nobody."""
        return bool(self.checks) and not self.checks[-1].to


def open_key(transaction_id: int) -> bytes:
    return OPEN + _ID.pack(transaction_id)


@lru_cache(maxsize=4_096)
def _encode_texts(*texts: str) -> tuple[list[int], bytes]:
    """Their lengths, and all of them: those of one sender are the same again and again."""
    encoded = [text.encode() for text in texts]
    return [len(text) for text in encoded], b"".join(encoded)


def encode(transaction: Transaction) -> bytes:
    """All but its id, which is the key."""
    (_, state, tenant, group, by, address, begun_ms, next_ms, (first_ms, every_ms, max_checks), messages, pages,
     size_bytes, attempts, checks, decided_ms, decided_by) = transaction
    lengths, texts = _encode_texts(tenant, group, by, address, decided_by)
    unasked = len(checks) > 0 and not checks[-1].to
    value = HEAD.pack(state, unasked, attempts, messages, pages, first_ms, every_ms, max_checks, len(checks),
                       size_bytes, begun_ms, next_ms, decided_ms, *lengths) + texts
    if checks:
        value += b"".join([CHECK.pack(at_ms, len(to.encode())) + to.encode() for at_ms, to in checks])
    return value


def decode(transaction_id: int, value: bytes) -> Transaction:
    """The value of an OPEN record."""
    (state, _, attempts, messages, pages, first_ms, every_ms, max_checks, made, size_bytes, begun_ms, next_ms,
     decided_ms, *lengths) = HEAD.unpack_from(value)
    texts: list[str] = []
    at = HEAD.size
    for length in lengths:
        texts.append(value[at:at + length].decode())
        at += length
    tenant, group, by, address, decided_by = texts
    checks: list[CheckMade] = []
    for _ in range(made):
        at_ms, length = CHECK.unpack_from(value, at)
        at += CHECK.size
        checks.append(CheckMade(at_ms, value[at:at + length].decode()))
        at += length
    return Transaction(transaction_id, State(state), tenant, group, by, address, begun_ms, next_ms,
                       CheckSettings(first_ms, every_ms, max_checks), messages, pages, size_bytes, attempts,
                       tuple(checks), decided_ms, decided_by)


class Brief(NamedTuple):
    """What memory holds of an open transaction."""

    name: bytes                   # tenant and group
    tenant_length: int
    next_ms: int
    wait_ms: int
    size_bytes: int
    unasked: bool


def decode_brief(value: bytes) -> Brief:
    """What a start needs of an OPEN record: it reads a million of them."""
    (_, unasked, attempts, _, _, first_ms, every_ms, _, _, size_bytes, _, next_ms, _, tenant, group, _, _,
     _) = HEAD.unpack_from(value)
    return Brief(value[HEAD.size:HEAD.size + tenant + group], tenant, next_ms, every_ms if attempts else first_ms,
                 size_bytes, unasked != 0)
