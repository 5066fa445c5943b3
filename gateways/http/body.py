"""Request bodies: whole, and bounded in size, in time, and in bytes held for all clients together."""
from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.http_writer import HttpVersion11

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.encoding import decode
from gatehouse.gateways.http.problems import Refusal

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Bodies:
    """Reads bodies for all requests of the door."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self.buffered_bytes = 0      # of bodies that are not whole yet

    async def read(self, request: web.Request) -> bytes:
        """The request's body as sent (no content coding is undone).

        Refuses `body_too_large` before reading where the length is known, `body_too_slow`, `busy`, `malformed_request`.
        """
        content = request.content
        if content.is_eof():         # it came with the header: the common case, and no await
            body = content.read_nowait()
            if len(body) > self._config.max_body_bytes:
                raise self._too_large()
            return body
        declared = request.content_length
        if declared is not None and declared > self._config.max_body_bytes:
            raise self._too_large()
        await self._answer_expectation(request)
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                return await self._collect(content)
        except TimeoutError:
            raise Refusal("body_too_slow", f"the body did not arrive within {self._config.body_timeout_s:g} s",
                          headers={"Connection": "close"}) from None
        except web.RequestPayloadError as error:
            raise Refusal("malformed_request", f"the body cannot be read: {error}") from None

    async def read_document(self, request: web.Request) -> bytes:
        """The body of a request that is a document, its content coding undone. Refuses what `read` and
        `encoding.decode` refuse."""
        return decode(await self.read(request), request.headers.get("Content-Encoding", ""),
                      self._config.max_body_bytes)

    async def _collect(self, content: StreamReader) -> bytes:
        held = 0
        parts: list[bytes] = []
        try:
            while chunk := await content.readany():
                parts.append(chunk)
                held += len(chunk)
                self.buffered_bytes += len(chunk)
                if held > self._config.max_body_bytes:
                    raise self._too_large()
                if self.buffered_bytes > self._config.max_buffered_bytes:
                    raise Refusal("busy", "too many bodies are being received", headers={"Retry-After": "1"})
            return b"".join(parts)
        finally:
            self.buffered_bytes -= held

    @staticmethod
    async def _answer_expectation(request: web.Request) -> None:
        """RFC 9110, 10.1.1: a client that expects 100 sends its body only after it."""
        expect = request.headers.get("Expect")
        if expect is None or request.version < HttpVersion11:
            return
        if expect.lower() != "100-continue":
            raise Refusal("expectation_failed", f"nothing is known about Expect: {expect}")
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0    # the final answer has not begun

    def _too_large(self) -> Refusal:
        limit = self._config.max_body_bytes
        return Refusal("body_too_large", f"a body has at most {limit} bytes", max_body_bytes=limit)
