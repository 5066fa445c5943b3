"""Where a message that came over a link was first stored, and by which hubs it came. Pure.

    private header   MARK "origin" → hub 16 | topic uuid 16 | partition u32 | offset u64 | id i64 | hub 16 * | tag 8
    public header    relay-origin  → HUB/ID, for whoever reads the message
    private header   MARK "clock" → clock u64 | hub 16 | tag 8     of a retained value, see `kernel.delivery.retained`

The private one is the relay's own. Its tag is made with a secret of the hub that stored it, so a client that writes
such a header is seen: loops are recognised by what hubs say alone. It is made of hubs, topic and partition, once for
many messages: no door shows a private header, so no client has a tag to write again. The hubs behind the id are those
that passed the message on, the last of them last.
"""
# decision 205: loops are recognised by a header that no client can make
from __future__ import annotations

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NamedTuple

from gatehouse.kernel.message import SHOWN_ORIGIN, Headers, Stamp
from gatehouse.kernel.records.batch import MARK, SMALL, read_headers, varint
from gatehouse.relay.positions import HUB_BYTES, HubPartition

ORIGIN_HEADER: Final = MARK + b"origin"
CLOCK_HEADER: Final = MARK + b"clock"
MAX_HUBS: Final = 16
"""That may pass a message on; it goes no further then."""

TAG_BYTES: Final = 8

_FRONT = struct.Struct(">16s16sIQq")
_PLACE = struct.Struct(">Qq")
_CLOCK = struct.Struct(">Q16s")
_ORIGIN_BYTES: Final = _FRONT.size - _PLACE.size
_SHOWN_START: Final = varint(len(SHOWN_ORIGIN)) + SHOWN_ORIGIN
_SAID_START: Final = varint(len(ORIGIN_HEADER)) + ORIGIN_HEADER + varint(_FRONT.size + TAG_BYTES)


Ending = tuple[bytes, bytes, bytes, bytes]
"""Both headers of messages of one partition of another hub as they stand in a record, behind the others: what stands
before the length of the public one; its value, before the id; what follows that; and the tag, behind offset and id."""


def ending_of(ending: Ending, offset: int, message_id: int) -> bytes:
    """Both headers of one message."""
    shown_start, shown_hub, said, tag = ending
    shown = shown_hub + b"%d" % message_id
    return b"".join((shown_start, SMALL[len(shown)], shown, said, _PLACE.pack(offset, message_id), tag))


class Came(NamedTuple):
    """Where one message comes from."""

    origin: HubPartition
    offset: int
    message_id: int
    through: tuple[bytes, ...] = ()

    def passed(self, hub: bytes) -> bool:
        """Whether it has been at this hub."""
        return hub == self.origin.hub or hub in self.through


def came_by(headers: Headers) -> Came | None:
    """What another hub says of a message, which it has checked; None where it came to that hub by a door."""
    value = _said(headers)
    return None if value is None else _decode(value)


def clock_said(headers: Headers) -> Stamp | None:
    """The stamp that another hub says of a retained value."""
    for name, value in headers:
        if name == CLOCK_HEADER and value is not None and len(value) == _CLOCK.size + TAG_BYTES:
            return Stamp(*_CLOCK.unpack_from(value))
    return None


def _said(headers: Headers) -> bytes | None:
    for name, value in headers:
        if name == ORIGIN_HEADER and value is not None and len(value) >= _FRONT.size + TAG_BYTES \
                and (len(value) - _FRONT.size - TAG_BYTES) % HUB_BYTES == 0:
            return value
    return None


def _decode(value: bytes) -> Came:
    hub, uuid, partition, offset, message_id = _FRONT.unpack_from(value)
    through = tuple(value[at:at + HUB_BYTES] for at in range(_FRONT.size, len(value) - TAG_BYTES, HUB_BYTES))
    return Came(HubPartition(hub, uuid, partition), offset, message_id, through)


class Marks:
    """The headers of one hub, which knows its own again."""

    def __init__(self, secret: bytes) -> None:
        key = blake2b(secret, digest_size=32, person=b"relay origin").digest()
        self._keyed = blake2b(digest_size=TAG_BYTES, key=key)

    def headers(self, came: Came) -> Headers:
        """Both headers."""
        said = _FRONT.pack(*came.origin, came.offset, came.message_id) + b"".join(came.through)
        shown = f"{came.origin.hub.hex()}/{came.message_id}".encode()
        return (SHOWN_ORIGIN, shown), (ORIGIN_HEADER, said + self._tag(said))

    def of(self, origin: HubPartition) -> Ending:
        """For what comes from there itself."""
        said = origin.encoded()
        return _SHOWN_START, origin.hub.hex().encode() + b"/", _SAID_START + said, self._tag(said)

    def clock(self, stamp: Stamp) -> tuple[bytes, bytes]:
        """The header of a retained value."""
        said = _CLOCK.pack(*stamp)
        return CLOCK_HEADER, said + self._clock_tag(stamp.hub)

    def stamp_in(self, headers: bytes) -> Stamp | None:
        """The stamp in encoded headers that are stored here; None where the value was written here."""
        if headers.find(CLOCK_HEADER) < 0:
            return None
        for name, value in read_headers(headers, 0)[0]:
            if name == CLOCK_HEADER and value is not None and len(value) == _CLOCK.size + TAG_BYTES:
                stamp = Stamp(*_CLOCK.unpack_from(value))
                if compare_digest(self._clock_tag(stamp.hub), value[_CLOCK.size:]):
                    return stamp
        return None

    def tag(self, said: bytes) -> bytes:
        """That this hub has said this to somebody."""
        tag = self._keyed.copy()
        tag.update(said)
        return tag.digest()

    def _clock_tag(self, hub: bytes) -> bytes:
        tag = self._keyed.copy()
        tag.update(CLOCK_HEADER + hub)
        return tag.digest()

    def came_by(self, headers: Headers) -> Came | None:
        """What the headers of a message say that is stored here; None where it came by a door, whatever it says."""
        value = _said(headers)
        if value is None or not compare_digest(self._tag(value[:-TAG_BYTES]), value[-TAG_BYTES:]):
            return None
        return _decode(value)

    def _tag(self, said: bytes) -> bytes:
        """Of the private header's value, without offset and id; those may be left out."""
        tag = self._keyed.copy()
        tag.update(said[:_ORIGIN_BYTES] + said[_FRONT.size:])
        return tag.digest()


def has_side(headers: Headers) -> bool:
    """Whether a door of the other hub keeps something of its own with the message, which does not cross."""
    return any(name.startswith(MARK) and name not in (ORIGIN_HEADER, CLOCK_HEADER) for name, _ in headers)


def without_origin(headers: Headers) -> Headers:
    """The headers without these two, and without what is private to a door of the other hub."""
    return tuple([header for header in headers
                  if header[0] != SHOWN_ORIGIN and not header[0].startswith(MARK)])
