"""How far what travels has come, as state records. Pure.

    ARRIVED   hub 16 | topic uuid 16 | partition u32   →  next u64 | lost u64 | wall ms i64 | topic text | link text
                                                          | last offset u64 | mark 8 | others u64 | before text
    SENT      hub 16 | topic uuid 16 | partition u32   →  next u64 | began u64 | topic text
    SPOOLED   hub 16 | topic uuid 16 | partition u32   →  next u64 | spool 8

ARRIVED is about the hub where a message was first stored, whatever link it comes by, and is written in the frame of the
messages themselves, with which message came last (`histories.py`). `others`: up to where it came by another way than
this link; where that hub is at the other end, by the link `before`, which may still be to bring some of it. SENT is
what another hub has said that it has of ours, and where the link began: retention keeps what is behind it. Records of
older versions end before what came later.
SPOOLED is what a meeting point keeps for it meanwhile, as long as that is the same spool.
"""
from __future__ import annotations

import struct
from typing import Final, NamedTuple

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.relay.fields import Fields, i64, text, u64
from gatehouse.relay.histories import MARK_BYTES, NO_MARK, Last

_NAME = struct.Struct(">16s16sI")
HUB_BYTES: Final = 16


class HubPartition(NamedTuple):
    """A partition of some hub."""

    hub: bytes
    uuid: bytes
    partition: int

    def encoded(self) -> bytes:
        return _NAME.pack(*self)


class Arrived(NamedTuple):
    """How far a partition of another hub has arrived here."""

    next: int
    lost: int = 0
    at_ms: int = 0
    topic: str = ""
    link: str = ""
    last: Last | None = None
    others: int = 0
    """What lies before this came by another way, or in another history of the hub that passes it on."""

    before: str = ""
    """The link by which it came or is to come, where now it comes from the hub that stored it first."""


class Sent(NamedTuple):
    """How far a partition of ours has come to another hub."""

    next: int
    began: int | None = None
    """Where it began there; None: nobody noted that."""

    topic: str = ""


def decode_origin(key: bytes) -> HubPartition:
    return HubPartition(*_NAME.unpack(key))


def decode_arrived(value: bytes) -> Arrived:
    fields = Fields(value)
    arrived = Arrived(fields.u64(), fields.u64(), fields.i64(), fields.text(), fields.text())
    if not fields.left:
        return arrived
    last = Last(fields.u64(), fields.take(MARK_BYTES))
    return arrived._replace(last=None if last.mark == NO_MARK else last, others=fields.u64() if fields.left else 0,
                            before=fields.text() if fields.left else "")


def arrived_record(origin: HubPartition, arrived: Arrived) -> StateRecord:
    value = u64(arrived.next) + u64(arrived.lost) + i64(arrived.at_ms) + text(arrived.topic) + text(arrived.link)
    if arrived.last is not None or arrived.others:
        last = arrived.last or Last(0, NO_MARK)
        value += u64(last.offset) + last.mark
    if arrived.others:
        value += u64(arrived.others)
        if arrived.before:
            value += text(arrived.before)
    return StateRecord(Kind.ARRIVED, origin.encoded(), value)


def decode_sent(value: bytes) -> Sent:
    fields = Fields(value)
    next_offset = fields.u64()
    return Sent(next_offset, fields.u64(), fields.text()) if fields.left else Sent(next_offset)


def sent_record(peer: bytes, uuid: bytes, partition: int, sent: Sent | None) -> StateRecord:
    value = None if sent is None else u64(sent.next) + (
        b"" if sent.began is None else u64(sent.began) + text(sent.topic))
    return StateRecord(Kind.SENT, _NAME.pack(peer, uuid, partition), value)


def decode_spooled(value: bytes, spool: bytes) -> int | None:
    """Up to where this spool has a partition."""
    fields = Fields(value)
    next_offset = fields.u64()
    return next_offset if fields.rest() == spool else None


def spooled_record(peer: bytes, uuid: bytes, partition: int, next_offset: int, spool: bytes) -> StateRecord:
    return StateRecord(Kind.SPOOLED, _NAME.pack(peer, uuid, partition), u64(next_offset) + spool)
