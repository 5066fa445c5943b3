"""The commands that ask a hub, against a stand-in that remembers what it was asked; and how every command fails."""
from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
import pytest

from gatehouse import exits
from gatehouse.cli.hub_option import default_url
from gatehouse.cli.main import cli, run
from gatehouse.cli.state import describe_status
from gatehouse.reference import commands_of, every_command

STORED = {"id": "77", "topic": "plant", "partition": 1, "offset": 5, "address": "plant/a", "timestamp": 1}
MESSAGES = [
    {"id": "1", "topic": "plant", "partition": 0, "offset": 0, "key": "a/temp", "value": "21",
     "address": "plant/a/temp"},
    {"id": "2", "topic": "plant", "partition": 0, "offset": 1, "key": "b/temp", "value": "22",
     "address": "plant/b/temp"},
    {"id": "3", "topic": "plant", "partition": 0, "offset": 2, "key": "b/rpm", "value_base64": "/w==",
     "address": "plant/b/rpm"},
]
RATES = {"messages_in": 4.5, "bytes_in": 90.0, "messages_out": 0.0, "bytes_out": 0.0}
STATUS = {
    "hub": "hub-1", "version": "0.1.0", "now": 1_700_000_065_000, "started": 1_700_000_000_000, "epoch": 3,
    "you": {"user": "anonymous", "tenant": "/", "anonymous": True, "administrator": True},
    "doors": [{"door": "mqtt", "listen": ["127.0.0.1:1883"], "connections": 2, "accepted": 9, "refused": 0, "faults": 0,
               "messages_in": 7, "bytes_in": 140, "messages_out": 1, "bytes_out": 20, "rates": RATES}],
    "log": {"bytes": 3 << 20, "segments": 1, "kept_bytes": 0, "retention_bytes": 10 << 30, "kept_limit_bytes": 10 << 30,
            "dropped_segments": 0, "damaged_ranges": 0, "disk_free_bytes": 1 << 30, "disk_bytes": 2 << 30,
            "full": True},
    "pending": {"bytes": 0, "congested": False},
    "checkpoint": {"age_ms": None, "taken": 0, "postponed": 0, "unindexed_bytes": 0},
    "loop": {"stall_recent_ms": 1.5, "stall_worst_ms": 9.0}, "memory_bytes": 80 << 20, "topics": 5, "subscriptions": 0,
    "scheduled": 0, "groups": {"active": 1, "ready": 2, "leased": 3, "waiting": 4},
}
SUMMARY = ("hub", "version", "now", "started", "you")


def test_damage_is_shown_where_there_is_some() -> None:
    told = {"url": "http://127.0.0.1:8080", "ready": True, **STATUS}
    assert "damage" not in describe_status(told)
    log = {**STATUS["log"], "damaged_ranges": 2, "mended_headers": 0, "set_aside_files": 3, "set_aside_bytes": 9}
    line, = [line for line in describe_status({**told, "log": log}).splitlines() if line.startswith("damage")]
    assert "2 ranges of the log cannot be read, 3 in the folder `damaged`" in line and "headers" not in line


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Tests print nothing."""

    def answer(self, status: int, value: Any) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, body, dict(self.headers)))
        good = 201, {"messages": [{**STORED, "status": 201}]}
        status, value = self.server.refusals.get(len(self.server.asked), good)
        self.answer(status, value)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.asked.append((parts.path, query, dict(self.headers)))
        match parts.path:
            case "/v1/topics":
                self.answer(200, {"topics": [{"name": "plant", "partitions": 4}, {"name": "a", "partitions": 12}]})
            case "/v1/topics/plant":
                self.answer(200, {"name": "plant", "partitions": 4})
            case "/v1/topics/plant/messages":
                start = int(query.get("cursor", "0"))
                if self.server.skipping and start == 0:
                    self.answer(200, {"messages": [], "skipped": 9, "cursor": "00"})
                    self.server.skipping = False
                else:
                    self.answer(200, {"messages": MESSAGES[start:start + 2], "cursor": str(start + 2)})
            case "/v1/status":
                known = STATUS if self.server.administrator else {name: STATUS[name] for name in SUMMARY}
                self.answer(200, {**known, "ready": self.server.ready})
            case _:
                self.answer(404, {"detail": "there is no topic 'nothing'", "code": "unknown_topic"})


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.refusals, server.ready, server.skipping = [], {}, True, False
    server.administrator = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("GATEHOUSE_URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def call(capsys):
    """Exit code, standard output and standard error of one command."""
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err
    return call


def sent(hub) -> list[dict[str, Any]]:
    """The messages of every publish; each has a key of its own, so that none is stored twice."""
    keys = [headers["Idempotency-Key"] for _, _, headers in hub.asked]
    assert len(set(keys)) == len(keys)
    assert {path for path, _, _ in hub.asked} == {"/v1/publish"}
    return [message for _, body, _ in hub.asked for message in json.loads(body)["messages"]]


def test_publish_one(hub, call):
    before_ms = time.time_ns() // 1_000_000
    assert call("publish", "plant/a b", "21.5", "--header", "Unit=C", "--header", "Unit=F", "--expires-in", "2") == (
        0, "stored: topic plant, partition 1, offset 5, id 77\n", "")
    (message,) = sent(hub)
    assert before_ms + 2000 <= message.pop("expires_at") <= time.time_ns() // 1_000_000 + 2000
    assert message == {"address": "plant/a b", "value": "21.5", "headers": [["Unit", "C"], ["Unit", "F"]]}


def test_publish_with_a_key(hub, call):
    assert call("publish", "plant", "21.5", "--key", "a/b")[0] == 0
    assert sent(hub) == [{"topic": "plant", "key": "a/b", "value": "21.5"}]


def test_publish_for_programs(hub, call):
    code, out, _ = call("publish", "plant/a", "21.5", "--json")
    assert (code, json.loads(out)) == (0, STORED)


def test_publish_a_file(hub, call, tmp_path):
    (tmp_path / "body").write_bytes(b"\xff\n\x00")
    assert call("publish", "plant/a", "--file", str(tmp_path / "body"))[0] == 0
    assert [b64decode(message["value_base64"]) for message in sent(hub)] == [b"\xff\n\x00"]


class Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)

    def isatty(self) -> bool:
        return False


def test_publish_lines_of_standard_input(hub, call, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"one\ntwo\r\n\nlast"))
    assert call("publish", "plant/a") == (0, "published 4 messages to plant/a\n", "")
    assert [message["value"] for message in sent(hub)] == ["one", "two", "", "last"]


def test_publish_lines_stops_at_a_refusal_and_says_how_far_it_came(hub, call, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"one\ntwo\nthree\n"))
    hub.refusals[2] = (507, {"detail": "the disk is full", "code": "storage_full"})
    assert call("publish", "plant/a") == (
        exits.FAILED, "", "gatehouse: the hub refused: the disk is full (storage_full); 1 published before it\n")
    assert len(hub.asked) == 2


@pytest.mark.parametrize(("arguments", "said"), [
    (("--header", "novalue"), "'novalue' is not NAME=VALUE"),
    (("--header", "=novalue"), "'=novalue' is not NAME=VALUE"),
    (("--file", "pyproject.toml"), "give either BODY or --file"),
])
def test_publish_refuses_what_cannot_be_sent(call, arguments, said):
    assert call("publish", "plant/a", "x", *arguments) == (
        exits.USAGE, "", f"gatehouse: {said} (see `gatehouse publish --help`)\n")


def test_consume_reads_to_the_end(hub, call):
    code, out, _ = call("consume", "plant")
    assert (code, out) == (0, "0/0  plant/a/temp  21\n0/1  plant/b/temp  22\n0/2  plant/b/rpm  (base64) /w==\n")
    assert [query for _, query, _ in hub.asked] == [{"from": "earliest"}, {"cursor": "2"}, {"cursor": "4"}]


def test_consume_from_an_offset_for_programs_and_no_more_than_asked(hub, call):
    code, out, _ = call("consume", "plant", "--from", "0", "--partition", "0", "--max", "1", "--json")
    assert (code, json.loads(out)) == (0, MESSAGES[0])
    assert hub.asked[0][1] == {"from": "0", "partition": "0"}


def test_tail_waits_and_filters(hub, call):
    code, out, _ = call("tail", "plant", "--from", "2024-01-01T00:00:00Z", "--filter", "plant/+/temp", "--max", "2")
    assert (code, out) == (0, "0/0  plant/a/temp  21\n0/1  plant/b/temp  22\n")
    assert hub.asked[0][1] == {"from": "2024-01-01T00:00:00Z", "wait": "20", "filter": "plant/+/temp"}


def test_consume_goes_on_behind_pages_on_which_nothing_matched(hub, call):
    hub.skipping = True
    code, out, _ = call("consume", "plant", "--filter", "temp > 20")
    assert (code, out.count("\n")) == (0, len(MESSAGES))


def test_a_filter_that_is_none(call):
    code, _, err = call("tail", "plant", "--filter", "a/b#")
    assert code == exits.USAGE
    assert err.startswith("gatehouse: 'a/b#' is no filter: ")


def test_a_group_keeps_its_own_place(call):
    for arguments in (("consume", "plant", "--group", "g", "--from", "latest"),
                      ("consume", "plant", "--group", "g", "--partition", "0"),
                      ("tail", "plant", "--group", "g", "--filter", "a/b")):
        code, _, err = call(*arguments)
        assert (code, err.count("\n")) == (exits.USAGE, 1)
        assert "a group keeps its own place and filter" in err


def test_a_redrive_names_ids_or_all(call):
    for arguments in ((), ("--all", "7")):
        assert call("dead-letters", "redrive", "g", *arguments) == (
            exits.USAGE, "", "gatehouse: give either IDS or --all (see `gatehouse dead-letters redrive --help`)\n")


def test_topics(hub, call):
    assert call("topics") == (0, "name   partitions\nplant           4\na              12\n", "")
    code, out, _ = call("topics", "--json")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["plant", "a"]
    assert call("topics", "plant") == (0, "name        plant\npartitions  4\n", "")


def test_a_refusal_is_one_line(hub, call):
    assert call("topics", "nothing") == (
        exits.FAILED, "", "gatehouse: the hub refused: there is no topic 'nothing' (unknown_topic)\n")


def test_what_the_hub_has_not_built_has_its_own_exit_code(hub, call):
    hub.refusals[1] = (501, {"detail": "retained values are not built yet", "code": "not_built"})
    assert call("publish", "a", "x", "--retain")[0] == exits.NOT_BUILT


def test_status(hub, call):
    code, out, _ = call("status")
    assert code == 0
    told = dict(line.split("  ", 1) for line in out.splitlines() if "  " in line)
    shown = ("hub", "ready", "disk", "up", "last checkpoint", "groups in use")
    assert {name: told[name].strip() for name in shown} == {
        "hub": "hub-1", "ready": "yes", "disk": "1,024.0 MiB free of 2,048.0 MiB, full: messages are refused",
        "up": "1 min 5 s", "last checkpoint": "none since the start",
        "groups in use": "1: 2 messages ready, 3 leased, 4 waiting"}
    assert out.splitlines()[-1].split() == ["mqtt", "2", "7", "1", "0", "0", "4.5", "0.0"]
    assert json.loads(call("status", "--json")[1])["doors"][0]["connections"] == 2


def test_status_for_somebody_who_is_no_administrator(hub, call):
    hub.administrator = False
    code, out, _ = call("status")
    assert (code, out.splitlines()[-1].split()) == (0, ["asking", "as", "anonymous"])


def test_status_of_a_hub_that_is_not_ready(hub, call):
    hub.ready = False
    assert call("status")[0] == exits.FAILED


def test_no_hub(call, monkeypatch):
    code, out, err = call("topics", "--url", "http://127.0.0.1:1")
    assert (code, out) == (exits.FAILED, "")
    assert err == ("gatehouse: no hub answers at http://127.0.0.1:1 (Connection refused); start one with `gatehouse "
                   "serve`, or name it with --url\n")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:port", "::"])
def test_no_address_of_a_hub(call, url):
    code, _, err = call("topics", "--url", url)
    assert code == exits.FAILED
    assert "is no address of a hub; give one like http://127.0.0.1:8080" in err


def test_wrong_usage_is_one_line(call):
    code, out, err = call("pubish")
    assert (code, out, err.count("\n")) == (exits.USAGE, "", 1)
    assert err.startswith("gatehouse: No such command 'pubish'")


@pytest.mark.parametrize(("text", "url"), [
    ('[gateways.http]\nlisten = ["127.0.0.1:9"]', "http://127.0.0.1:9"),
    ('[gateways.http]\nlisten = [":9"]', "http://127.0.0.1:9"),
    ('[gateways.http]\nlisten = ["[::1]:9"]', "http://[::1]:9"),
    ('[gateways.http]\nlisten = [9]', "http://127.0.0.1:8080"),
    ("not toml", "http://127.0.0.1:8080"),
])
def test_the_hub_of_the_configuration_here(tmp_path, text, url):
    (tmp_path / "gateways.toml").write_text(text)
    assert default_url(tmp_path / "gateways.toml") == url
    assert default_url(tmp_path / "none.toml") == "http://127.0.0.1:8080"


@pytest.mark.parametrize(("environment", "words", "login"), [
    ({}, [], None), ({"GATEHOUSE_USER": "ann", "GATEHOUSE_PASSWORD": "pä:ss"}, [], "ann:pä:ss"),
    ({"GATEHOUSE_PASSWORD": "x"}, ["--user", "bob"], "bob:x"),
    ({"GATEHOUSE_USER": "ann"}, ["--hub-password-file", "password"], "ann:of a file"),
    ({"GATEHOUSE_TOKEN": "gh_key"}, [], ":gh_key")])
def test_who_asks(hub, call, monkeypatch, tmp_path, environment, words, login):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("of a file\nand no more")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for command in (["topics"], ["publish", "plant/x", "1"]):
        call(*command, *words)
        authorization = hub.asked[-1][2].get("Authorization")
        assert authorization == (None if login is None else "Basic " + b64encode(login.encode()).decode())


def test_no_command_is_cut_short_where_commands_are_listed():
    groups = [cli, *(command for _, command in every_command(cli) if isinstance(command, click.Group))]
    cut = {name: command.help for commands in map(commands_of, groups) for name, command in commands.items()
           if command.get_short_help_str(74 - max(map(len, commands))).endswith("...")}
    assert not cut


def test_a_command_waits_for_no_module_of_another():
    asked = ("import sys; from gatehouse.cli.main import run; run(['check', '--help']); "
             "print(*sorted(name for name in sys.modules if name.startswith(('gatehouse.cli.', 'aiohttp'))))")
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "gatehouse.cli.main gatehouse.cli.tables"
