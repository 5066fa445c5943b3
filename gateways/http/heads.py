"""The head of a request that is read as a whole: where the request ends, and what its fields say. Pure.

    POST /v1/publish/plant HTTP/1.1 CRLF        the request line
    Host: hub CRLF Content-Length: 4 CRLF CRLF  the fields, with the empty line: the same bytes in most requests of one
    21.5                                        client, so that what they say need not be found out each time

Only what nobody can read in two ways is read (RFC 9112): HTTP/1.1, CRLF, ASCII, every field once, a length in digits
and no other framing. Everything else is left to the server library, which understands it or refuses it.
"""
from __future__ import annotations

import re
from typing import Final

from gatehouse.gateways.http.mapping import SAID_FROM_NOW, Publication, read_headers
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.records.record import encode_headers

MAX_HEAD_BYTES: Final = 4096
"""A longer head is the library's."""

MAX_LENGTH_DIGITS: Final = 15

REQUEST_LINE: Final = re.compile(rb"([A-Z]{3,7}) (/[!-~]*) HTTP/1\.1")
_BLOCK: Final = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~]*\r\n)+\r\n")
_FIELD: Final = re.compile(rb"([^:\r\n]+):([^\r]*)\r\n")

_FRAMING: Final = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer", b"proxy-connection"))
"""Header fields that say where a request ends, or which protocol follows it."""

_UNUSUAL: Final = frozenset((b"origin", b"sec-fetch-site", b"if-match", b"prefer", b"x-repeat")) | SAID_FROM_NOW
"""With them a call is answered in another way, or the same bytes say something else a second later."""


_EVENTS: Final = b"application/cloudevents"


class Fields:
    """What the fields of a request say."""

    __slots__ = ("length", "host", "authorization", "media", "publication", "record_headers")

    def __init__(self, length: int, host: str, authorization: str | None, media: str, publication: Publication | None
                 ) -> None:
        self.length = length
        """The size of the body, in bytes."""

        self.host = host
        self.authorization = authorization
        self.media = media
        """The media type of the body, without parameters; "" where none is said."""

        self.publication = publication
        """What they make of a message that is the body and for now; None where the call is not begun directly."""

        self.record_headers = b"" if publication is None else encode_headers(publication.headers)


def read_fields(block: bytes) -> Fields | None:  # decision 73
    """The fields of a request. None where it takes more than this to say where the request ends."""
    if not _BLOCK.fullmatch(block):
        return None
    pairs = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(block)]
    fields = dict(pairs)
    if len(fields) != len(pairs) or b"host" not in fields or not _FRAMING.isdisjoint(fields) \
            or fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length = fields.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
        return None
    authorization = fields.get(b"authorization")
    media = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
    publication = None
    if _UNUSUAL.isdisjoint(fields) and b"*/*" in fields.get(b"accept", b"*/*") and not media.startswith(_EVENTS):
        publication = _read_publication(pairs)
    return Fields(int(length), fields[b"host"].decode("ascii"),
                  None if authorization is None else authorization.decode("ascii"), media.decode("ascii"), publication)


def _read_publication(pairs: list[tuple[bytes, bytes]]) -> Publication | None:
    """What they make of a message; None where it is an event, for later or by key, or is to be refused."""
    try:
        publication = read_headers(pairs, 0)
    except Refusal:
        return None
    unusual = publication.later or publication.key is not None or bool(publication.event)
    return None if unusual else publication
