"""Changes of topics, groups and webhooks that are made only to what was seen, on a real hub."""
from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.running_hub import DEADLINE_S, RunningHub, config_of

THINGS: dict[str, tuple[Any, Any, str]] = {
    "topics": ({"partitions": 1}, {"partitions": 2}, "bounds"),
    "groups": ({"max_attempts": 3}, {"max_attempts": 4}, "topics"),
    "webhooks": ({"url": "http://127.0.0.1:9/a", "topic": "plant"}, {"url": "http://127.0.0.1:9/b", "topic": "plant"},
                 "state")}
"""What is made, what it becomes, and what is shown of it that is no setting."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    allow = 'webhook_allow = ["http://127.0.0.1"]\n'
    running = RunningHub(tmp_path_factory.mktemp("hub"), config_of(("http",)) + allow)
    try:
        running.wait_ready()
        yield running
        code, said = running.stop()
        assert code == 0 and "Traceback" not in said, said
    finally:
        running.kill()


def ask(hub: RunningHub, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
    """Status, JSON and tag of one request."""
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}",
                                     None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method=method)
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null"), answer.headers.get("ETag", "")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"{}").get("code"), ""


@pytest.mark.parametrize("kind", sorted(THINGS))
def test_what_was_seen_is_changed_and_nothing_else(hub: RunningHub, kind: str) -> None:
    first, second, state = THINGS[kind]
    path = f"/v1/{kind}/plant"
    assert ask(hub, "PUT", path, first, If_None_Match="*")[0] == 201
    assert ask(hub, "PUT", path, second, If_None_Match="*")[:2] == (412, "precondition_failed")
    _, shown, seen = ask(hub, "GET", path)
    assert state in shown and seen.startswith('"') and "." in seen
    assert ask(hub, "GET", path, If_None_Match=seen)[0] in (200, 304), "200 where its state has changed meanwhile"
    assert ask(hub, "PUT", path, second, If_Match=f"W/{seen}")[:2] == (412, "precondition_failed")
    assert ask(hub, "PUT", path, second, If_Match='"other", ' + seen)[0] == 200
    for method in ("PUT", "DELETE"):
        assert ask(hub, method, path, second if method == "PUT" else None, If_Match=seen)[0] == 412
    _, shown, seen = ask(hub, "GET", path)
    assert all(shown[name] == value for name, value in second.items())
    assert ask(hub, "DELETE", path, If_Match=seen)[0] == 204
    assert ask(hub, "DELETE", path, If_Match="*")[:2] == (412, "precondition_failed"), "there is nothing to change"
    assert ask(hub, "GET", path)[0] == 404


@pytest.mark.parametrize("kind", sorted(THINGS))
def test_of_many_that_saw_the_same_one_wins(hub: RunningHub, kind: str) -> None:
    first, second, _ = THINGS[kind]
    path = f"/v1/{kind}/contested"
    assert ask(hub, "PUT", path, first)[0] == 201
    seen = ask(hub, "GET", path)[2]
    with ThreadPoolExecutor(8) as many:
        answers = [answer.result()[0] for answer in [
            many.submit(ask, hub, "PUT", path, second, If_Match=seen) for _ in range(16)]]
    assert sorted(answers) == [200] + [412] * 15
    assert ask(hub, "DELETE", path)[0] == 204


def test_a_message_more_changes_the_tag_and_not_the_settings(hub: RunningHub) -> None:
    assert ask(hub, "PUT", "/v1/topics/busy", {"partitions": 1})[0] == 201
    seen = ask(hub, "GET", "/v1/topics/busy")[2]
    assert ask(hub, "POST", "/v1/publish/busy/a", "x")[0] == 201
    status, shown, now = ask(hub, "GET", "/v1/topics/busy", If_None_Match=seen)
    assert status == 200 and shown["bounds"][0]["high_watermark"] == 1 and now != seen
    assert ask(hub, "PATCH", "/v1/topics/busy", {"retention_ms": 1000}, If_Match=seen)[0] == 200
    assert ask(hub, "PATCH", "/v1/topics/busy", {"retention_ms": 2000}, If_Match=now)[0] == 412


def test_the_tag_of_a_large_answer_is_good_for_a_change_whatever_its_reader_accepts(hub: RunningHub) -> None:
    assert ask(hub, "PUT", "/v1/topics/wide", {"partitions": 64})[0] == 201
    for retention_ms, accepted in enumerate(("gzip, deflate", "zstd", "identity"), 1000):
        _, shown, seen = ask(hub, "GET", "/v1/topics/wide", Accept_Encoding=accepted)
        assert len(shown["bounds"]) == 64
        assert ask(hub, "PATCH", "/v1/topics/wide", {"retention_ms": retention_ms}, If_Match=seen)[0] == 200
