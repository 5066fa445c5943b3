"""Streams and who may read them, against a hub with users: tickets, tenants, and what a removed user has left."""
from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any

import aiohttp
import pytest

from tests.faults.sse_reader import SseReader
from tests.interop.guarded_hub import PASSWORD, guarded_hub

WAIT_S = 60


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with guarded_hub(tmp_path_factory.mktemp("streams")) as guarded:
        yield guarded.ports("http")[0]


def ask(port: int, user: str, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    login = b64encode(f"{user}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                     None if document is None else json.dumps(document).encode(), method=method,
                                     headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def ticket(port: int, user: str) -> str:
    status, document = ask(port, user, "POST", "/v1/tickets")
    assert status == 201
    return str(document["ticket"])


def publish(port: int, user: str, address: str, value: str) -> None:
    assert ask(port, user, "POST", "/v1/publish", {"messages": [{"address": address, "value": value}]})[0] == 201


def test_a_ticket_reads_what_its_user_may(port):
    word = ticket(port, "ada")
    publish(port, "ada", "open/ticket/a", "1")
    reader = SseReader(port, f"/v1/events?filter=open/ticket/%23&from=earliest&ticket={word}")
    reader.read_until(1)
    reader.close()
    assert reader.messages[0]["value"] == "1"
    for target in (f"/v1/topics/shut/events?ticket={word}", f"/v1/events?filter=%23&ticket={word}"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{target}", timeout=WAIT_S)
        assert refused.value.code == 403


def test_tenants_do_not_hear_each_other(port):
    publish(port, "root", "both/a", "of the default tenant")
    publish(port, "tess", "both/a", "of red")
    for target in ("/v1/topics/both/events?from=earliest", "/v1/events?filter=both/%23&from=earliest"):
        reader = SseReader(port, f"{target}&ticket={ticket(port, 'tess')}")
        reader.read_until(1)
        publish(port, "root", "both/a", "more of the default tenant")
        publish(port, "tess", "both/a", "more of red")
        reader.read_until(2)
        reader.close()
        assert {message["value"] for message in reader.messages} <= {"of red", "more of red"}


def test_a_web_socket_refuses_what_its_user_may_not(port):
    async def test() -> None:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/v1/ws?ticket={ticket(port, 'ada')}"
            async with session.ws_connect(url) as socket:
                async def say(**frame: Any) -> dict[str, Any]:
                    await socket.send_str(json.dumps({"id": 1, **frame}))
                    return json.loads(await socket.receive_str(timeout=WAIT_S))

                stored = await say(type="publish", messages=[{"address": "open/b"}, {"address": "shut/b"}])
                assert [one.get("code", one["status"]) for one in stored["messages"]] == [201, "not_authorized"]
                for frame in ({"type": "subscribe", "subscription": "s", "topic": "shut"},
                              {"type": "subscribe", "subscription": "s", "filter": "#"},
                              {"type": "pop", "group": "others", "topic": "open"},
                              {"type": "ack", "group": "others", "receipt_handles": ["x"]},
                              {"type": "ack", "queue": "sealed", "receipt_handles": ["x"]}):
                    answer = await say(**frame)
                    assert answer["problem"]["code"] == "not_authorized", (frame, answer)
    asyncio.run(test())


def test_a_user_that_is_removed_is_heard_no_more_and_hears_nothing(port):
    word = ticket(port, "eve")
    assert ask(port, "root", "POST", "/v1/acl", {"who": "user:eve", "pattern": "eves/#"})[0] in (200, 201)
    reader = SseReader(port, f"/v1/topics/eves/events?ticket={word}")
    publish(port, "eve", "eves/a", "1")
    reader.read_until(1)
    assert ask(port, "root", "DELETE", "/v1/users/eve")[0] in (200, 204)
    with pytest.raises(ConnectionError):
        reader.read_until(2)
    reader.close()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/topics/eves/events?ticket={word}", timeout=WAIT_S)
    assert refused.value.code == 401
