"""`gatehouse users` and `acl` on a data directory on which no hub runs: how the first user is made."""
from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gatehouse import exits
from gatehouse.cli.account_access import OnHub
from gatehouse.cli.hub_option import configured_url
from gatehouse.cli.main import run
from gatehouse_client.errors import HubError
from tests.running_hub import free_port

CONFIG = """
[auth]
allow_anonymous = false
[gateways.mqtt]
[[acl]]
who = "group:ops"
operations = ["consume"]
pattern = "plant/#"
[[user_groups]]
name = "ops"
users = ["eve"]
[[routes]]
filter = "fleet/{vehicle}/gps/#"
topic = "positions"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "gateways.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    for name in ("GATEHOUSE_URL", "GATEHOUSE_USER", "GATEHOUSE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def told(capsys, monkeypatch, folder):
    """Runs a command with standard input; (exit code, output, error)."""
    def run_it(*words: str, stdin: str = ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = run(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err
    return run_it


def test_the_configuration_may_be_named_in_the_environment(told, folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GATEHOUSE_CONFIG", str(folder / "gateways.toml"))
    assert told("users", "create", "ann", "--no-password")[0] == exits.OK
    assert told("acl", "add", "allow", "user:ann", "publish", "plant/#")[:2] == (exits.OK, "added rule 1\n")
    assert "catalogue.sqlite" in {path.name for path in (folder / "data").iterdir()}
    assert not list(elsewhere.iterdir())


def test_the_hub_of_a_configuration_that_the_environment_names(tmp_path, monkeypatch):
    (tmp_path / "other.toml").write_text('[gateways.http]\nlisten = ["127.0.0.1:18080"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GATEHOUSE_CONFIG", raising=False)
    assert configured_url() == "http://127.0.0.1:8080"
    monkeypatch.setenv("GATEHOUSE_CONFIG", "other.toml")
    assert configured_url() == "http://127.0.0.1:18080"


def test_the_first_user(told, folder):
    code, out, err = told("users", "create", "root", "--admin", "--json", stdin="correct horse\n")
    assert (code, err) == (exits.OK, "")
    made = json.loads(out)
    assert (made["name"], made["groups"], made["has_password"], made["disabled"]) == ("root", ["admins"], True, False)
    assert b"correct horse" not in (folder / "data" / "catalogue.sqlite").read_bytes()
    assert told("users", "create", "root", stdin="another one\n") == (
        exits.FAILED, "", "gatehouse: there is a user 'root' already\n")
    assert told("acl", "test", "root", "administer", "--hub")[:2] == (
        exits.OK, "allowed: the group admins may do everything, whatever the rules say\n")


def test_a_user_through_its_life(told, folder):
    (folder / "secret").write_text("from a file\nnot this")
    assert told("users", "create", "ann", "--group", "ops", "--also-tenant", "blue", "--messages-per-s", "5",
                "--password-file", "secret")[0] == exits.OK
    assert told("users", "create", "bot", "--no-password")[0] == exits.OK
    assert "ann" in told("users", "list")[1] and "bot" in told("users", "list")[1]
    assert told("users", "group", "add", "ann", "night", "day")[0] == exits.OK
    assert told("users", "group", "remove", "ann", "day")[0] == exits.OK
    assert told("users", "quota", "ann", "--bytes-per-s", "1000")[0] == exits.OK
    assert told("users", "disable", "ann")[0] == exits.OK
    shown = json.loads(told("users", "show", "ann", "--json")[1])
    assert (shown["groups"], shown["tenants"], shown["disabled"]) == (["night", "ops"], ["blue"], True)
    assert (shown["messages_per_s"], shown["bytes_per_s"]) == (5, 1000)
    assert told("acl", "test", "ann", "consume", "plant/x")[:2] == (exits.FAILED, "denied: the user is disabled\n")
    assert told("users", "enable", "ann")[0] == exits.OK
    assert told("users", "passwd", "ann", stdin="a new password\n")[0] == exits.OK
    assert told("users", "passwd", "ann", stdin="short\n") == (
        exits.FAILED, "", "gatehouse: a password has at least 8 characters\n")
    assert told("users", "passwd", "ann", "--password-file", "none")[::2] == (
        exits.USAGE, "gatehouse: cannot read the password: No such file or directory\n")
    assert told("users", "delete", "ann")[0] == exits.OK
    assert told("users", "show", "ann") == (exits.FAILED, "", "gatehouse: there is no user 'ann'\n")
    assert told("users", "disable", "ann")[0] == exits.FAILED and told("users", "delete", "ann")[0] == exits.FAILED


def test_keys(told):
    told("users", "create", "bot", "--no-password")
    made = json.loads(told("users", "key", "create", "bot", "ingest", "--expires-in", "30", "--only",
                           "publish address plant/#", "--json")[1])
    assert made["key"].startswith("gh_") and made["restriction"][0]["pattern"] == "plant/#"
    listed = told("users", "key", "list", "bot")[1]
    assert made["id"] in listed and made["key"] not in listed
    assert told("users", "key", "revoke", "bot", made["id"])[0] == exits.OK
    assert told("users", "key", "revoke", "bot", made["id"])[0] == exits.FAILED
    assert told("users", "key", "create", "bot", "x", "--only", "publish")[0] == exits.USAGE
    assert told("users", "key", "create", "bot", "x", "--only", "fly address x")[0] == exits.FAILED


def test_rules(told):
    assert told("acl", "add", "allow", "user:ann", "publish,create", "home/{user}/#")[:2] == (
        exits.OK, "added rule 1\n")
    assert told("acl", "add", "deny", "everyone", "all", "secret*", "--topic", "--tenant", "*")[0] == exits.OK
    assert told("acl", "add", "allow", "group:relays", "relay", "--hub")[0] == exits.OK
    rules = [json.loads(line) for line in told("acl", "list", "--json")[1].splitlines()]
    assert [(rule["id"], rule["kind"], rule["from_file"]) for rule in rules] == [
        ("file-1", "address", True), ("1", "address", False), ("2", "topic", False), ("3", "hub", False)]
    assert told("acl", "test", "ann", "publish", "home/ann/door")[0] == exits.OK
    assert told("acl", "test", "ann", "publish", "home/bob/door")[:2] == (exits.FAILED, "denied: no rule allows it\n")
    assert told("acl", "test", "eve", "consume", "plant/+/x")[:2] == (
        exits.OK, "allowed by the rule: allow group:ops: consume on address plant/# (file-1)\n")
    denied = told("acl", "test", "eve", "consume", "secrets", "--topic")
    assert denied[1].startswith("denied by the rule: deny everyone")
    assert told("acl", "remove", "1")[0] == exits.OK
    assert told("acl", "remove", "1") == (exits.FAILED, "", "gatehouse: there is no rule '1'\n")
    assert told("acl", "remove", "file-1")[2] == (
        "gatehouse: the rule file-1 stands in the configuration file and is changed there\n")
    assert told("acl", "add", "allow", "ann", "publish", "x")[0] == exits.FAILED
    assert told("acl", "test", "ann", "publish")[0] == exits.USAGE


def test_until_when_a_user_is_let_in(told):
    made = told("users", "create", "ann", "--no-password", "--expires", "2001-09-09T03:46:40+02:00", "--json")[1]
    assert json.loads(made)["expires"] == 1_000_000_000_000
    assert "2001-09-09T01:46:40+00:00" in told("users", "list")[1]
    assert told("acl", "test", "ann", "consume", "plant/x")[:2] == (exits.FAILED, "denied: the user has expired\n")
    assert json.loads(told("users", "alter", "ann", "--expires", "2100-01-01T00:00:00Z", "--json")[1])["expires"] > 4e12
    assert json.loads(told("users", "alter", "ann", "--expires", "never", "--json")[1])["expires"] is None
    assert told("acl", "test", "ann", "consume", "plant/x")[1].startswith("denied: no rule")


@pytest.mark.parametrize("when", ["tomorrow", "2030-01-31", "2030-01-31T18:00:00", "1893456000000", "0", ""])
def test_what_is_no_time_to_expire(told, when):
    code, _, err = told("users", "create", "ann", "--no-password", "--expires", when)
    assert code == exits.USAGE and "neither a time with its zone" in err
    assert told("users", "alter", "ann")[0] == exits.USAGE


def test_a_configuration_that_is_wrong(told, folder):
    (folder / "gateways.toml").write_text("[[acl]]\nwho = 'ann'\npattern = 'x'\n")
    code, _, err = told("users", "list")
    assert code == exits.USAGE and "acl[0]: who is user:NAME, group:NAME or everyone" in err


@pytest.mark.parametrize(("text", "line"), [
    ("[auth.jwt]\njwks = 'x'", "auth.jwt.issuer: is missing and has no default"),
    ("[auth.jwt]\njwks='x'\nissuer='i'\naudience='a'\nalgorithms=['none']", "auth.jwt: algorithms holds 'none'"),
    ("[auth]\njwt = 7", "auth.jwt: must be a table: [auth.jwt]"),
    ("[acl]\nx=1", "acl: must be a list of tables: [[acl]]"),
    ("[[acl]]\nwho='everyone'\npattern='a+'", "acl[0]: 'a+' is no pattern of addresses"),
    ("[[acl]]\nwho='everyone'\npattern='a'\nwhat=1", "acl[0].what: unknown setting"),
    ("[[user_groups]]\nname='x'\nusers=['anonymous']", "user_groups[0]: 'anonymous' is who comes without credentials")])
def test_a_wrong_line_is_named(told, folder, text, line):
    (folder / "gateways.toml").write_text(text)
    code, out, _ = told("check")
    assert code == exits.USAGE and line in out


def test_a_password_is_never_an_argument():
    from gatehouse.cli.main import cli
    from gatehouse.reference import every_command
    for words, command in every_command(cli):
        assert not {"--password", "-p"} & {name for parameter in command.params for name in parameter.opts}, words


def test_the_data_directory_is_locked_meanwhile(told, folder):
    from gatehouse.datadir import open_data_dir
    (folder / "gateways.toml").write_text(f'{CONFIG}\n[gateways.http]\nlisten = ["127.0.0.1:{free_port()}"]\n')
    data_dir = open_data_dir(Path(folder / "data"))
    try:
        code, _, err = told("users", "list")       # "a hub runs": it is asked, and does not answer
        assert code == exits.FAILED and "gatehouse serve" in err
    finally:
        data_dir.close()


def test_a_hub_is_asked_to_make_a_user_and_never_to_change_one():
    asked = []

    def request(method, path, document, **options):
        asked.append((method, path, options))
        raise HubError("it is there already", "precondition_failed", 412)

    with pytest.raises(exits.Refused, match="there is a user '\u2168' already"):
        OnHub(request).create_user("\u2168", {})
    assert asked == [("PUT", "/v1/users/%E2%85%A8", {"headers": {"If-None-Match": "*"}, "repeatable": False})]


def test_limits(told, folder):
    assert told("limits", "set", "user:ann", "--messages-per-s", "50", "--messages-burst", "100")[:2] == (
        exits.OK, "set limit 1\n")
    assert told("limits", "set", "topic:plant", "--out", "--bytes-per-s", "0.5", "--observe")[1] == "set limit 2\n"
    assert told("limits", "set", "user:ann", "--messages-per-s", "60", "--json")[0] == exits.OK, "the same, changed"
    listed = [json.loads(line) for line in told("limits", "list", "--json")[1].splitlines()]
    assert [(limit["id"], limit["of"], limit["direction"]) for limit in listed] == [
        ("1", "user:ann", "in"), ("2", "topic:plant", "out")]
    shown = json.loads(told("limits", "show", "1", "--json")[1])
    assert shown["messages_per_s"] == 60 and "messages_burst" not in shown
    assert "user:ann" in told("limits", "list")[1] and "user:ann" in told("limits", "show", "1")[1]
    assert told("limits", "set", "user:ann")[0] == exits.FAILED
    assert told("limits", "set", "nobody", "--messages-per-s", "1")[0] == exits.FAILED
    assert told("limits", "delete", "1")[0] == exits.OK
    assert told("limits", "delete", "1") == (exits.FAILED, "", "gatehouse: there is no limit '1'\n")
    (folder / "gateways.toml").write_text('[[limits]]\nof = "hub"\nmessages_per_s = 5\n')
    assert json.loads(told("limits", "list", "--json")[1].splitlines()[0])["from_file"]
    assert told("limits", "delete", "file-1")[0] == exits.FAILED
    (folder / "gateways.toml").write_text('[[limits]]\nof = "hub"\n')
    assert told("limits", "list")[0] == exits.USAGE
