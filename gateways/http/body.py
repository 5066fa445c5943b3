"""Request bodies: whole, and bounded in size, in time, and in bytes held for all clients together; and the JSON objects
that most of them are.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.declaring import D, shaped, whole_numbers
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Reply
from gatehouse.gateways.http.representation import decode

if TYPE_CHECKING:
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.request import Call


class Bodies:
    """Reads bodies for all requests of the door."""

    def __init__(self, config: HttpConfig, ask_again: Callable[[Call], Awaitable[None]]) -> None:
        self._config = config
        self._ask_again = ask_again
        self.buffered_bytes = 0      # of bodies that are not whole yet

    def has_whole(self, call: Call) -> bool:
        """Whether the body came with the head: the common case, and no wait. Refuses `body_too_large`."""
        if call.received_bytes > self._config.max_body_bytes and call.complete:
            raise self._too_large()
        return call.complete

    async def read(self, call: Call) -> bytes:
        """The request's body as sent (no content coding is undone).

        Refuses `body_too_large` before reading where the length is known, `body_too_slow`, `busy`, `malformed_request`.
        Raises NotAuthenticated where who asked is let in no more when it has come.
        """
        if self.has_whole(call):
            return call.take_body()
        if call.length > self._config.max_body_bytes:
            raise self._too_large()
        _answer_expectation(call)
        await asyncio.sleep(0)       # from here on within a task, which a time-out needs
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                await self._collect(call)
        except TimeoutError:
            raise Refusal("body_too_slow", f"the body did not arrive within {self._config.body_timeout_s:g} s",
                          headers={"Connection": "close"}) from None
        await self._ask_again(call)
        return call.take_body()

    async def read_document(self, call: Call) -> bytes:
        """The body of a request that is a document, its content coding undone. Refuses what `read` and
        `representation.decode` refuse."""
        return decode(await self.read(call), call.headers.get("content-encoding", ""),
                      self._config.max_body_bytes)

    async def _collect(self, call: Call) -> None:
        held = 0
        try:
            while True:
                self.buffered_bytes += call.received_bytes - held
                held = call.received_bytes
                if held > self._config.max_body_bytes:
                    raise self._too_large()
                if self.buffered_bytes > self._config.max_buffered_bytes:
                    raise Refusal("busy", "too many bodies are being received", headers={"Retry-After": "1"})
                if call.fault is not None:
                    raise call.fault
                if call.complete:
                    return
                more: Reply[None] = Reply()
                call.when_more(partial(more.set_result, None))
                await more
        finally:
            self.buffered_bytes -= held

    def _too_large(self) -> Refusal:
        limit = self._config.max_body_bytes
        return Refusal("body_too_large", f"a body has at most {limit} bytes", max_body_bytes=limit)


def _answer_expectation(call: Call) -> None:
    """RFC 9110, 10.1.1: a client that expects 100 sends its body only after it."""
    expect = call.headers.get("expect")
    if expect is None or call.http_10:
        return
    if expect.lower() != "100-continue":
        raise Refusal("expectation_failed", f"nothing is known about Expect: {expect}")
    call.session.ask_for_body()


# --- documents ----------------------------------------------------------------------------------------------------

async def read(door: Door, call: Call, shape: type[D]) -> D:
    """The document in the body; an empty body is one without fields. Refuses `invalid_body`,
    `unsupported_media_type`."""
    return shaped(await read_object(door, call), shape)


async def read_object(door: Door, call: Call) -> dict[str, Any]:
    """The object in the body; an empty body is an empty one. Refuses `invalid_body`, `unsupported_media_type`."""
    body = await door.bodies.read_document(call)
    if body and call.media != "application/json":
        raise Refusal("unsupported_media_type", "this call takes application/json",
                      headers={"Accept": "application/json"})
    try:
        document = whole_numbers(orjson.loads(body)) if body else {}
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal("invalid_body", "the body is an object")
    return document
