"""Every HTTP call there is, asked by nobody, with a wrong password and by a user without any right: 401, 403, nothing
told, nothing changed. A call that is new is walked too; what it needs beyond its path is declared here."""
from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Final

import pytest

from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.routes import build_table
from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.interop.test_rights import Amqp, http
from tests.running_hub import DEADLINE_S

SECRET: Final = "lab"
"""The name of everything that there is."""

HANDLES: Final = {"receipt_handles": ["x" * 48]}
BODIES: Final[dict[str, Any]] = {
    "POST /v1/topics/{topic}/messages": {"messages": [{"key": "k", "value": "v"}]},
    "POST /v1/publish": {"messages": [{"address": "lab/a", "value": "v"}, {"topic": "lab", "key": "k", "value": "v"}]},
    "POST /v1/batches/positions": {"topics": ["lab"]},
    "POST /v1/batches/fetch": {"ranges": [{"topic": "lab", "partition": 0, "offset": 0, "end": 10}]},
    "PUT /v1/groups/{group}/offsets": {"topic": "lab", "to": "earliest"},
    "POST /v1/dead-letters/redrive": {"group": "lab", "all": True},
    "POST /v1/transactions": {"group": "lab", "messages": [{"address": "lab/a", "value": "v"}]},
    "POST /v1/transactions/{id}/messages": {"messages": [{"address": "lab/a", "value": "v"}]},
    "POST /v1/transactions/{id}/commit": {}, "POST /v1/transactions/{id}/rollback": {},
    "PUT /v1/users/{name}": {"password": "another password"}, "POST /v1/users/{name}/keys": {"name": "k"},
    "POST /v1/acl": {"who": "user:bob", "pattern": "#"}, "PUT /v1/acl/{id}": {"who": "user:bob", "pattern": "#"},
    "POST /v1/acl/test": {"user": "root", "operation": "publish", "address": "lab/a"},
    **{f"POST /v1/{what}/{{{name}}}/{act}": HANDLES for what, name in (("groups", "group"), ("partitions", "partition"))
       for act in ("ack", "extend", "release")},
}
QUERIES: Final = {"/v1/groups/{group}/pop": "topic=lab", "/v1/events": "filter=lab/%23",
                  "GET /v1/topics/{topic}/batches": "partition=0&offset=0", "/v1/dead-letters": "group=lab",
                  "/v1/trace": "key=a", "/v1/trace/events": "user=root", "/v1/trace/{id}/why": "consumer=lab",
                  "/v1/transactions/checks": "group=lab", "/v1/transactions/checks/events": "group=lab"}
CAPTURES: Final = {"{id}": "7", "{name}": "root"}

LISTS: Final = ("/v1/topics", "/v1/groups", "/v1/queues", "/v1/scheduled", "/v1/transactions",
                "/v1/trace/events")
"""Answered with what the user may see: nothing."""

SPECIAL: Final = {
    "POST /v1/batches/fetch": 200,                                             # a refusal for each range
    "GET /v1/scheduled/{id}": 404, "DELETE /v1/scheduled/{id}": 404,           # what one may not see is not there
    "GET /v1/trace": 200, "GET /v1/trace/{id}": 404, "GET /v1/trace/{id}/why": 200,
    "GET /v1/transactions/{id}": 404, "POST /v1/transactions/{id}/messages": 404,
    "POST /v1/transactions/{id}/commit": 404, "POST /v1/transactions/{id}/rollback": 404,
    "POST /v1/transactions/{id}/check": 404,
    "GET /v1/ws": 426,                                                         # asks for rights frame by frame
    "POST /v1/tickets": 201, "GET /v1/status": 200,                            # for whoever has logged in
}
STREAMS: Final = ("GET /v1/status/events",)
"""Never end for who may ask."""

CALLS: Final[list[tuple[str, str, Declared]]] = [
    (method, endpoint.pattern, handler) for endpoint in build_table().endpoints
    for method, handler in endpoint.handlers.items() if isinstance(handler, Declared)]
GUARDED: Final = [(method, pattern) for method, pattern, handler in CALLS if not handler.public]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("walk")) as running:
        assert http(running, "PUT", f"/v1/topics/{SECRET}", user="root")[0] == 201
        assert http(running, "PUT", f"/v1/groups/{SECRET}", b"{}", user="root")[0] == 201
        assert http(running, "POST", "/v1/publish/lab/a", b"hush", user="root")[0] == 201
        with Amqp(running, "root") as root:
            root.channel.queue_declare(SECRET, durable=True)
        yield running


def target(method: str, pattern: str) -> str:
    path = "/".join(CAPTURES.get(part, SECRET if part.startswith("{") else part) for part in pattern.split("/"))
    query = QUERIES.get(f"{method} {pattern}") or QUERIES.get(pattern)
    return f"{path}?{query}" if query else path


class Answer:
    """Status, headers and body."""

    def __init__(self, guarded: GuardedHub, method: str, pattern: str, user: str = "", password: str = PASSWORD
                 ) -> None:
        headers = {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()} if user else {}
        document = BODIES.get(f"{method} {pattern}")
        body = None if document is None else json.dumps(document).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = HTTPConnection("127.0.0.1", guarded.ports("http")[0], timeout=DEADLINE_S)
        connection.request(method, target(method, pattern), body, headers)
        answer = connection.getresponse()
        self.status = answer.status
        self.challenge = answer.getheader("WWW-Authenticate", "")
        self.body = answer.read()
        connection.close()

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


def state(guarded: GuardedHub) -> list[Any]:
    """What an administrator sees of everything."""
    paths = ("/v1/topics", f"/v1/topics/{SECRET}", "/v1/groups", "/v1/queues", f"/v1/queues/{SECRET}", "/v1/users",
             "/v1/acl", "/v1/scheduled", f"/v1/topics/{SECRET}/messages")
    return [json.loads(http(guarded, "GET", path, user="root")[1]) for path in paths]


@pytest.mark.parametrize(("method", "pattern"), GUARDED)
def test_a_call_without_a_login_and_without_a_right(guarded: GuardedHub, method: str, pattern: str) -> None:
    call = f"{method} {pattern}"
    nobody = Answer(guarded, method, pattern)
    assert (nobody.status, nobody.code) == (401, "not_authenticated")
    assert nobody.challenge.startswith("Basic realm=") and SECRET.encode() not in nobody.body
    if call in STREAMS:
        return
    user = Answer(guarded, method, pattern, "bob")
    assert b"hush" not in user.body
    if method == "GET" and pattern in LISTS:
        (rows,) = [value for value in json.loads(user.body).values() if isinstance(value, list)]
        assert (user.status, rows) == (200, [])
    elif call in SPECIAL:
        assert user.status == SPECIAL[call], user.body
    else:
        assert (user.status, user.code) == (403, "not_authorized"), user.body


def test_a_wrong_password_is_told_no_more_than_none(guarded: GuardedHub) -> None:
    """For a few calls, since wrong passwords are answered late."""
    for method, pattern in GUARDED[:3]:
        wrong = Answer(guarded, method, pattern, "root", "not the password")
        unknown = Answer(guarded, method, pattern, "no such user", "not the password")
        assert (wrong.status, wrong.body) == (unknown.status, unknown.body) and wrong.status == 401


def test_the_walk_changes_nothing(guarded: GuardedHub) -> None:
    before = state(guarded)
    for method, pattern in GUARDED:
        if f"{method} {pattern}" not in STREAMS:
            Answer(guarded, method, pattern, "bob")
            Answer(guarded, method, pattern)
    assert state(guarded) == before


def test_what_is_public_tells_nothing(guarded: GuardedHub) -> None:
    for method, pattern, handler in CALLS:
        if handler.public and "{" not in pattern:
            answer = Answer(guarded, method, pattern)
            assert b"hush" not in answer.body and b'"lab"' not in answer.body, pattern
