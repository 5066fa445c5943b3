"""Backups over plain HTTP, as a program without our client would read them, and the two commands from end to end."""
from __future__ import annotations

import http.client
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running_hub import DEADLINE_S, RunningHub, config_of, gatehouse, running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http") as hub:
        ask(hub, "POST", "/v1/publish/plant/line1", body=bytes(3_000_000))
        yield hub


def done(*arguments: object, code: int = 0) -> str:
    """What a command said that ended with this code."""
    ended = gatehouse(*map(str, arguments))
    assert ended.returncode == code, ended.stderr
    return ended.stdout or ended.stderr


def ask(hub: RunningHub, method: str, path: str, body: bytes | None = None, **headers: str
        ) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", hub.port("http"), timeout=DEADLINE_S)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, dict(answer.getheaders())


@pytest.fixture
def begun(hub: RunningHub) -> Iterator[dict[str, Any]]:
    status, body, _ = ask(hub, "POST", "/v1/backups")
    assert status == 201
    told = json.loads(body)
    yield told
    ask(hub, "DELETE", f"/v1/backups/{told['id']}")


def segment_of(told: dict[str, Any]) -> dict[str, Any]:
    return max(told["files"], key=lambda file: file["bytes"])


def test_files_and_ranges(hub: RunningHub, begun: dict[str, Any]) -> None:
    file = segment_of(begun)
    path = f"/v1/backups/{begun['id']}/{file['name']}"
    status, whole, headers = ask(hub, "GET", path)
    assert (status, len(whole), headers["Accept-Ranges"]) == (200, file["bytes"], "bytes")
    assert whole == (hub.folder / "data" / file["name"]).read_bytes()[:file["bytes"]]
    for asked, first, stop in (("bytes=0-0", 0, 1), ("bytes=100-", 100, file["bytes"]),
                               ("bytes=-7", file["bytes"] - 7, file["bytes"]),
                               ("bytes=5-99999999999", 5, file["bytes"])):
        status, piece, headers = ask(hub, "GET", path, Range=asked)
        assert (status, piece) == (206, whole[first:stop])
        assert headers["Content-Range"] == f"bytes {first}-{stop - 1}/{file['bytes']}"
    assert ask(hub, "HEAD", path)[2]["Content-Length"] == str(file["bytes"])


def test_what_is_written_meanwhile_is_not_of_it(hub: RunningHub, begun: dict[str, Any]) -> None:
    ask(hub, "POST", "/v1/publish/plant/line1", body=bytes(50_000))
    file = segment_of(begun)
    assert len(ask(hub, "GET", f"/v1/backups/{begun['id']}/{file['name']}")[1]) == file["bytes"]


@pytest.mark.parametrize(("asked", "status", "code"), [
    ("bytes=9999999999-", 416, "range_not_satisfiable"), ("bytes=5-2", 400, "invalid_header"),
    ("bytes=0-1,4-5", 400, "invalid_header"), ("lines=1-2", 400, "invalid_header"), ("bytes=", 400, "invalid_header")])
def test_ranges_that_cannot_be(hub: RunningHub, begun: dict[str, Any], asked: str, status: int, code: str) -> None:
    path = f"/v1/backups/{begun['id']}/{segment_of(begun)['name']}"
    answer = ask(hub, "GET", path, Range=asked)
    assert (answer[0], json.loads(answer[1])["code"]) == (status, code)


@pytest.mark.parametrize("name", ["gateways.toml", "..%2F..%2Fgateways.toml", "log%2F..%2F..%2Fhub.log", "lock", "log/",
                                  "index%2FCURRENT", "%00", "/etc/passwd"])
def test_nothing_but_its_files_is_given(hub: RunningHub, begun: dict[str, Any], name: str) -> None:
    assert ask(hub, "GET", f"/v1/backups/{begun['id']}/{name}")[0] in (400, 404)


def test_a_backup_that_is_not_there(hub: RunningHub) -> None:
    for method, path in (("GET", "/v1/backups/none/log"), ("DELETE", "/v1/backups/none")):
        status, body, _ = ask(hub, method, path)
        assert (status, json.loads(body)["code"]) == (404, "unknown_backup")


def test_as_many_as_may_be(hub: RunningHub) -> None:
    ids = []
    while (answer := ask(hub, "POST", "/v1/backups"))[0] == 201:
        ids.append(json.loads(answer[1])["id"])
        assert len(ids) < 10
    assert json.loads(answer[1])["code"] == "too_many_backups"
    assert [ask(hub, "DELETE", f"/v1/backups/{one}")[0] for one in ids] == [204] * len(ids)


def test_a_catalogue_in_another_file_is_in_it_and_people_are_told_where_it_belongs(tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.sqlite"
    with running_hub(tmp_path, "http", kernel=f'catalogue_url = "{elsewhere}"') as hub:
        told = done("backup", tmp_path / "copy", "--url", f"http://127.0.0.1:{hub.port('http')}")
    assert f"Users, rights and webhooks are included from {tmp_path}/elsewhere.sqlite" in told
    assert (tmp_path / "copy" / "manifest.json").read_text().count('"catalogue.sqlite"') == 1


def test_a_hub_that_does_not_run_is_copied_from_its_folder(tmp_path: Path) -> None:
    with running_hub(tmp_path, "http") as hub:
        ask(hub, "POST", "/v1/publish/plant/line1", body=b"one")
        refused = done("backup", tmp_path / "copy", "--data", tmp_path / "data", code=5)
        assert "another hub" in refused
    told = done("backup", tmp_path / "copy", "--data", tmp_path / "data", "--config",
                tmp_path / "gateways.toml", "--json")
    assert json.loads(told)["hub"] == "gatehouse"
    out = done("restore", tmp_path / "copy", "--data", tmp_path / "again", "--json")
    assert json.loads(out)["topics"] == 1


def test_users_come_back_and_only_administrators_take_backups(tmp_path: Path) -> None:
    (tmp_path / "gateways.toml").write_text("[auth]\nallow_anonymous = false\n")
    for name, more in (("ada", ["--admin"]), ("bob", [])):
        (tmp_path / "password").write_text(f"secret of {name}\n")
        done("users", "create", name, *more, "--password-file", tmp_path / "password", "--data",
             tmp_path / "data", "--config", tmp_path / "gateways.toml")
    (tmp_path / "password").write_text("secret of ada\n")
    config = config_of(("http",)) + "[auth]\nallow_anonymous = false\n"
    hub = RunningHub(tmp_path, config)
    try:
        hub.wait_ready()
        for login, status in ((None, 401), ("bob:secret of bob", 403), ("ada:wrong", 401), ("ada:secret of ada", 201)):
            assert ask(hub, "POST", "/v1/backups", **basic(login))[0] == status
        done("backup", tmp_path / "copy", "--url", f"http://127.0.0.1:{hub.port('http')}", "--user", "ada",
             "--hub-password-file", tmp_path / "password")
        end_s = time.monotonic() + DEADLINE_S
        while (begun := audited(hub)) < 2:                   # written behind the answers
            assert time.monotonic() < end_s, begun
        assert begun == 2
    finally:
        hub.kill()
    again = tmp_path / "again"
    again.mkdir()
    done("restore", tmp_path / "copy", "--data", again / "data")
    hub = RunningHub(again, config)
    try:
        hub.wait_ready()
        for login, status in ((None, 401), ("bob:secret of bob", 403), ("ada:secret of ada", 201)):
            assert ask(hub, "POST", "/v1/backups", **basic(login))[0] == status
    finally:
        hub.kill()


def audited(hub: RunningHub) -> int:
    """How many backups the audit topic tells of."""
    path = "/v1/topics/audit/messages?from=earliest"
    return ask(hub, "GET", path, **basic("ada:secret of ada"))[1].count(b"backup.begun")


def basic(login: str | None) -> dict[str, str]:
    return {} if login is None else {"Authorization": "Basic " + b64encode(login.encode()).decode()}
