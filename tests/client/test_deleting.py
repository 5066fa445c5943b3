"""What was deleted by a request whose answer was lost is deleted, and not missing."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gatehouse_client import Client, Retry
from gatehouse_client.errors import NotFound, OutcomeUnknown

GONE = b"HTTP/1.1 204 No Content\r\n\r\n"
THERE = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'
PROBLEM = b'{"code": "unknown_topic", "detail": "there is no topic \'t\'"}'
MISSING = (b"HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s"
           % (len(PROBLEM), PROBLEM))
LOST = b""
"""The connection ends instead of an answer."""


def run(answers: list[bytes], test: Callable[[Client], Awaitable[None]], retries: int = 3) -> list[bytes]:
    """Run a test against a hub that gives these answers; the methods that it was asked with."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked.append(head.split(b" ", 1)[0])
                answer = answers.pop(0)
                if answer == LOST:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = Client(f"http://127.0.0.1:{port}", retry=Retry(retries=retries, backoff_s=0.01))
        try:
            await asyncio.wait_for(test(client), 60)
        finally:
            await client.close()
            server.close()

    asyncio.run(main())
    assert not answers
    return asked


async def delete(client: Client) -> None:
    await client.delete_topic("t")


async def delete_on_a_connection_that_is_open(client: Client) -> None:
    await client.request("GET", "/v1/topics/t")
    await client.delete_topic("t")


def test_the_answer_is_lost_on_a_new_connection() -> None:
    assert run([LOST, MISSING], delete) == [b"DELETE", b"DELETE"]


def test_the_answer_is_lost_on_a_connection_that_was_open() -> None:
    """Where the library below would repeat it, and not say so."""
    assert run([THERE, LOST, MISSING], delete_on_a_connection_that_is_open) == [b"GET", b"DELETE", b"DELETE"]


def test_what_was_not_there_before_the_first_request_is_missing() -> None:
    with pytest.raises(NotFound):
        run([MISSING], delete)
    assert run([LOST, GONE], delete) == [b"DELETE", b"DELETE"]


def test_where_nothing_is_repeated_the_outcome_is_unknown() -> None:
    for answers, test in (([LOST], delete), ([THERE, LOST], delete_on_a_connection_that_is_open)):
        with pytest.raises(OutcomeUnknown):
            run(answers, test, retries=0)
