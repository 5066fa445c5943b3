"""An answer that is written piece by piece, while its client takes it."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.exchange import LAST_CHUNK, chunk_of, encode_head

if TYPE_CHECKING:
    from gatehouse.gateways.http.exchange import Call
    from gatehouse.gateways.http.session import HttpSession


class Stream:
    """An answer whose size nobody knows, or that is too large to be held: `write` it and let the client take it by
    `drained`. With a `length` in bytes it is sent as it is, otherwise in chunks where the client knows them.

    Its request is the only one that is under way on its connection.
    """

    __slots__ = ("headers", "length", "call", "status", "_chunked")

    def __init__(self, call: Call, headers: dict[str, str], status: int = 200, length: int | None = None
                 ) -> None:
        self.call = call
        self.headers = headers
        self.status = status
        self.length = length
        self._chunked = length is None and not call.http_10

    @property
    def chunked(self) -> bool:
        """Whether what is written raw has to be a chunk."""
        return self._chunked

    @property
    def closes(self) -> bool:
        """Whether the connection ends behind it, as its size says nobody (RFC 9112, 6.3)."""
        return not self.call.keeps or self.length is None and not self._chunked

    def start(self) -> None:
        """Send the head."""
        self.call.begin_stream()
        headers = dict(self.headers)
        if self.length is not None:
            headers["Content-Length"] = str(self.length)
        elif self._chunked:
            headers["Transfer-Encoding"] = "chunked"
        session = self.call.session
        session.write(encode_head(self.status, headers, session.date(), closes=self.closes,
                                  http_10=self.call.http_10))

    def write(self, data: bytes) -> None:
        """Send a piece."""
        if data:
            self.call.session.write(chunk_of(data) if self._chunked else data)

    async def drained(self) -> None:
        """Returns once the client has taken most of what was written. Raises ConnectionError where it has gone."""
        await drained(self.call.session)

    def finish(self) -> None:
        """Everything was sent."""
        if self._chunked:
            self.call.session.write(LAST_CHUNK)


async def drained(session: HttpSession) -> None:
    """Returns once the client has taken most of what was written. Raises ConnectionError where it has gone."""
    reply: Reply[None] = Reply()
    session.when_drained(partial(reply.set_result, None))
    await reply
    if session.closed:
        raise ConnectionResetError("the client has gone")
