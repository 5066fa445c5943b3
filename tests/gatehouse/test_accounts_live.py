"""Users and rights on a real hub: logins, a reload, a user disabled while connected; nothing secret in its log."""
from __future__ import annotations

import json
import signal
import socket
import time
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any

import pytest

from gatehouse import exits
from gatehouse.cli.main import run
from tests.running_hub import RunningHub, config_of

AUTH = "[auth]\nallow_anonymous = false\n"
RULES = '[[acl]]\nwho = "group:ops"\npattern = "plant/#"\n'


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Started after its first users were made."""
    monkeypatch.chdir(tmp_path)
    config = config_of(("http", "mqtt")) + AUTH + RULES
    (tmp_path / "gateways.toml").write_text(config)
    for name, password, more in (("root", "correct horse", ["--admin"]), ("ann", "battery staple", ["--group", "ops"])):
        (tmp_path / "password").write_text(password)
        assert run(["users", "create", name, *more, "--password-file", "password"]) == exits.OK
    running = RunningHub(tmp_path, config)
    running.wait_ready()
    yield running
    assert running.stop()[0] == exits.OK


def ask(hub: RunningHub, method: str, path: str, user: str = "", password: str = "", document: Any = None
        ) -> tuple[int, Any]:
    body = document if isinstance(document, bytes) else None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", body, method=method)
    request.add_header("Content-Type", "application/json")
    if user:
        request.add_header("Authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_logins_rights_and_a_reload(hub, tmp_path):
    assert ask(hub, "POST", "/v1/publish/plant/x", document=b"1")[0] == 401
    assert ask(hub, "POST", "/v1/publish/plant/x", "ann", "wrong-password", b"1")[0] == 401
    assert ask(hub, "POST", "/v1/publish/plant/x", "ann", "battery staple", b"1")[0] == 201
    assert ask(hub, "POST", "/v1/publish/office/x", "ann", "battery staple", b"1")[0] == 403
    assert ask(hub, "GET", "/v1/users", "ann", "battery staple")[0] == 403
    assert ask(hub, "GET", "/v1/topics/audit/messages", "ann", "battery staple")[0] in (403, 404)

    status, made = ask(hub, "POST", "/v1/users/ann/keys", "root", "correct horse", {"name": "k"})
    assert status == 201 and ask(hub, "POST", "/v1/publish/plant/x", "ann", made["key"], b"1")[0] == 201
    config = (tmp_path / "gateways.toml").read_text().replace("plant/#", "office/#")
    (tmp_path / "gateways.toml").write_text(config)
    hub.process.send_signal(signal.SIGHUP)
    assert "in effect" in hub.wait_log_line("reload: acl")
    assert ask(hub, "POST", "/v1/publish/plant/x", "ann", "battery staple", b"1")[0] == 403
    assert ask(hub, "POST", "/v1/publish/office/x", "ann", "battery staple", b"1")[0] == 201

    _, page = ask(hub, "GET", "/v1/topics/audit/messages?from=earliest", "root", "correct horse")
    audited = [json.loads(message["value"]) for message in page["messages"]]
    assert [(entry["by"], entry["door"], entry["action"]) for entry in audited] == [
        ("command line", None, "user.created"), ("command line", None, "user.created"),
        ("root", "http", "key.created"), ("SIGHUP", None, "configuration.reloaded")]
    assert audited[2]["peer"].startswith("127.0.0.1:") and "uid" in audited[0]["peer"]
    assert ask(hub, "GET", "/v1/topics/audit/messages", "ann", "battery staple")[0] == 403
    secrets = ("correct horse", "battery staple", "wrong-password", made["key"], made["key"][-20:])
    for secret in secrets:
        assert secret not in hub.log() and secret not in json.dumps(audited)


def test_a_disabled_user_is_disconnected(hub):
    with socket.create_connection(("127.0.0.1", hub.port("mqtt")), timeout=30) as peer:
        peer.sendall(connect_of(b"ann", b"battery staple"))
        assert peer.recv(4) == b"\x20\2\0\0"
        assert ask(hub, "PUT", "/v1/users/ann", "root", "correct horse", {"disabled": True})[0] == 200
        assert peer.recv(100) == b"", "closed by the hub"
    assert ask(hub, "POST", "/v1/publish/plant/x", "ann", "battery staple", b"1")[0] == 401


def test_a_user_that_has_expired_is_disconnected(hub):
    with socket.create_connection(("127.0.0.1", hub.port("mqtt")), timeout=30) as peer:
        peer.sendall(connect_of(b"ann", b"battery staple"))
        assert peer.recv(4) == b"\x20\2\0\0"
        status, shown = ask(hub, "PUT", "/v1/users/ann", "root", "correct horse", {"expires": 1})
        assert (status, shown["expires"]) == (200, 1)
        assert peer.recv(100) == b"", "closed by the hub"
    assert ask(hub, "POST", "/v1/publish/plant/x", "ann", "battery staple", b"1")[0] == 401
    assert "the user has expired" in hub.log()


def connect_of(user: bytes, password: bytes) -> bytes:
    body = b"\0\4MQTT\4\xc2\0\0\0\1c" + b"".join(len(one).to_bytes(2, "big") + one for one in (user, password))
    return bytes((0x10, len(body))) + body


def test_a_subscription_to_everything_sees_no_audit(hub):
    """The built-in rule takes `#` from nobody, since no wildcard matches the audit's addresses."""
    assert ask(hub, "POST", "/v1/acl", "root", "correct horse", {"who": "user:ann", "pattern": "#"})[0] == 201
    with socket.create_connection(("127.0.0.1", hub.port("mqtt")), timeout=30) as peer:
        peer.sendall(connect_of(b"ann", b"battery staple") + b"\x82\6\0\1\0\1#\0" + b"\x82\x0d\0\2\0\x08$audit/#\0")
        got = b""
        while len(got) < 14:
            got += peer.recv(100)
        assert got == b"\x20\2\0\0" + b"\x90\3\0\1\0" + b"\x90\3\0\2\x80"
        assert ask(hub, "POST", "/v1/users/ann/keys", "root", "correct horse", {"name": "k"})[0] == 201
        assert ask(hub, "POST", "/v1/publish/last/x", "root", "correct horse", b"1")[0] == 201
        assert peer.recv(100) == b"\x30\x09\0\6last/x1"


def test_wrong_passwords_are_slowed_and_others_are_not(hub):
    took = []
    for _ in range(4):
        begin = time.monotonic()
        assert ask(hub, "GET", "/v1/topics", "root", "wrong")[0] == 401
        took.append(time.monotonic() - begin)
    assert all(took_s >= 0.099 * 2 ** number for number, took_s in enumerate(took)), took
    assert ask(hub, "GET", "/v1/topics", "ann", "battery staple")[0] == 200


def test_nobody_can_log_in_yet_is_said(tmp_path):
    running = RunningHub(tmp_path, config_of(("mqtt",)) + AUTH)
    running.wait_ready()
    assert "`gatehouse users create NAME --admin`" in running.log()
    assert running.stop()[0] == exits.OK


def test_a_command_without_a_login_says_what_to_do(hub, capsys, monkeypatch):
    monkeypatch.delenv("GATEHOUSE_USER", raising=False)
    url = ["--url", f"http://127.0.0.1:{hub.port('http')}"]
    assert run(["users", "list", *url]) == exits.FAILED
    said = capsys.readouterr().err
    assert "GATEHOUSE_USER" in said and "`gatehouse users create NAME --admin`" in said
    monkeypatch.setenv("GATEHOUSE_PASSWORD", "wrong password")
    assert run(["users", "list", *url, "--user", "ann"]) == exits.FAILED
    assert "GATEHOUSE_USER" not in capsys.readouterr().err, "who has said it is not told how"


def test_a_hub_that_cannot_read_its_users_does_not_start(tmp_path):
    kernel = f'fsync = "never"\ncatalogue_url = "sqlite:///{tmp_path}/nowhere/catalogue.sqlite"'
    running = RunningHub(tmp_path, config_of(("mqtt",), kernel))
    code, log = running.ended()
    assert code == exits.STORAGE and "users and rights cannot be read" in log


def test_anonymous_beyond_loopback_is_refused_with_users_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateways.toml").write_text('[gateways.mqtt]\nlisten = ["0.0.0.0:0"]\n')
    assert run(["check"]) == exits.USAGE
    assert "allow_anonymous" in capsys.readouterr().out


MQTT_CONNECT = b"\x10\x0d\0\4MQTT\4\2\0\0\0\1a"
ACCEPTED, NOT_AUTHORIZED = b"\x20\2\0\0", b"\x20\2\0\5"


def connected(hub: RunningHub) -> tuple[socket.socket, bytes]:
    peer = socket.create_connection(("127.0.0.1", hub.port("mqtt")), timeout=30)
    peer.sendall(MQTT_CONNECT)
    return peer, peer.recv(4)


def reloaded(hub: RunningHub, config: str, word: str) -> str:
    (hub.folder / "gateways.toml").write_text(config)
    hub.process.send_signal(signal.SIGHUP)
    return hub.wait_log_line(word)


def test_anonymous_access_is_closed_and_opened_by_a_reload(tmp_path):
    """Closed at once, for who is connected too; opened only while nobody comes from outside."""
    config = config_of(("http", "mqtt"))
    hub = RunningHub(tmp_path, config)
    hub.wait_ready()
    try:
        peer, answer = connected(hub)
        assert answer == ACCEPTED
        assert "in effect" in reloaded(hub, config + AUTH, "reload: auth.allow_anonymous")
        assert peer.recv(10) == b"", "closed by the hub"
        assert connected(hub)[1] == NOT_AUTHORIZED
        assert ask(hub, "GET", "/v1/topics")[0] == 401
        assert "nobody can log in" in hub.log()
        public = config.replace('[gateways.mqtt]\nlisten = ["127.0.0.1:0"]', '[gateways.mqtt]\nlisten = ["0.0.0.0:0"]')
        assert "no longer listens" in reloaded(hub, public + AUTH, "no longer listens")
        assert "while auth.allow_anonymous is true" in reloaded(hub, public, "reload refused")
        assert ask(hub, "GET", "/v1/topics")[0] == 401
        hub.process.send_signal(signal.SIGHUP)
        (tmp_path / "gateways.toml").write_text(config)
        for _ in range(50):                  # however many are asked for
            hub.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while ask(hub, "GET", "/v1/topics")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ask(hub, "GET", "/v1/topics")[0] == 200
    finally:
        code, said = hub.stop()
    assert code == exits.OK and "Traceback" not in said


def test_a_reload_of_ten_thousand_rules(hub, tmp_path):
    """They are read and compiled on another thread, and the rules of before hold until then."""
    config = (tmp_path / "gateways.toml").read_text()
    many = "".join(f'[[acl]]\nwho = "everyone"\npattern = "of/{n}/+/{{user}}/#"\n' for n in range(10_000))
    assert "in effect" in reloaded(hub, config + many + '[[acl]]\nwho = "user:ann"\npattern = "new"\n', "reload: acl")
    assert ask(hub, "POST", "/v1/publish/new", "ann", "battery staple", b"1")[0] == 201
    assert ask(hub, "POST", "/v1/publish/of/9999/x/ann/y", "ann", "battery staple", b"1")[0] == 201
    assert ask(hub, "POST", "/v1/publish/of/9999/x/bob/y", "ann", "battery staple", b"1")[0] == 403
    status, rule = ask(hub, "POST", "/v1/acl", "root", "correct horse", {"who": "everyone", "effect": "deny",
                                                                         "pattern": "of/9999/#"})
    assert status == 201
    assert ask(hub, "POST", "/v1/publish/of/9999/x/ann/y", "ann", "battery staple", b"1")[0] == 403, "at once"
    assert ask(hub, "DELETE", f"/v1/acl/{rule['id']}", "root", "correct horse")[0] == 204
    assert ask(hub, "POST", "/v1/publish/of/9999/x/ann/y", "ann", "battery staple", b"1")[0] == 201
    assert "in effect" in reloaded(hub, config, "reload: acl")


def audit_of(hub: RunningHub) -> list[dict[str, Any]]:
    """All that was audited before: what is published now is stored behind it."""
    assert ask(hub, "POST", "/v1/publish/behind/it", "root", "correct horse", b"1")[0] == 201
    _, page = ask(hub, "GET", "/v1/topics/audit/messages?from=earliest", "root", "correct horse")
    return [json.loads(message["value"]) for message in page["messages"]]


def test_what_was_changed_while_no_hub_ran_is_audited_by_the_next_one_once(hub, tmp_path):
    """With the time at which it happened, in its order, and with no secret; a refused change leaves no note."""
    before = len(audit_of(hub))
    assert hub.stop()[0] == exits.OK
    began_ms = time.time_ns() // 1_000_000
    for arguments in (["acl", "add", "deny", "everyone", "consume", "x/#"],
                      ["users", "create", "bob", "--group", "ops"], ["users", "key", "create", "bob", "k"],
                      ["users", "delete", "ann"]):
        if arguments[1] == "create":
            arguments += ["--password-file", "password"]
        assert run(arguments) == exits.OK, arguments
    assert run(["users", "delete", "ann"]) == exits.FAILED
    assert run(["users", "delete", "root"]) == exits.FAILED
    ended_ms = time.time_ns() // 1_000_000
    for _ in range(2):
        again = RunningHub(tmp_path, (tmp_path / "gateways.toml").read_text())
        again.wait_ready()
        try:
            told = audit_of(again)[before:]
        finally:
            again.kill()
        assert [entry["action"] for entry in told] == ["rule.added", "user.created", "key.created", "user.deleted"]
        assert all(entry["by"] == "command line" and began_ms <= entry["at"] <= ended_ms for entry in told)
        assert "battery staple" not in json.dumps(told) and told[3]["details"] == {"user": "ann"}
