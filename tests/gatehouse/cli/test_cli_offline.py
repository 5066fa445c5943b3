"""The commands that need no hub: check and explain."""
from __future__ import annotations

import json

import pytest

from gatehouse import exits
from gatehouse.cli.main import run

ROUTED = """
[gateways.mqtt]
listen = ["127.0.0.1:0"]

[[routes]]
filter = "fleet/{vehicle}/gps/#"
topic  = "positions"
key    = "{address}"
partition_key  = "{vehicle}"
"""


@pytest.fixture
def call(capsys, tmp_path):
    """Exit code, standard output and standard error of one command on a configuration."""
    def call(config: str, *arguments: str) -> tuple[int, str, str]:
        (tmp_path / "gateways.toml").write_text(config)
        code = run([*arguments, "--config", str(tmp_path / "gateways.toml")])
        captured = capsys.readouterr()
        return code, captured.out.replace(str(tmp_path), ""), captured.err.replace(str(tmp_path), "")
    return call


def test_check(call):
    assert call(ROUTED, "check") == (0, "/gateways.toml is valid\n", "")
    assert json.loads(call(ROUTED, "check", "--json")[1]) == {
        "valid": True, "doors": {"mqtt": ["127.0.0.1:0"]}, "notices": []}


def test_check_tells_all_that_is_wrong(call):
    wrong = '[kernal]\n[[routes]]\nfilter = "a/+/b"\ntopic = "t"\nkey = "k"\n'
    code, out, err = call(wrong, "check")
    assert (code, err) == (exits.USAGE, "")
    first, second = out.splitlines()
    assert first == "/gateways.toml: kernal: unknown section; did you mean 'kernel'?"
    assert second.startswith("/gateways.toml: routes[0].key: 'k' cannot be turned back into an address")
    assert json.loads(call(wrong, "check", "--json")[1])["valid"] is False


def test_check_notes_what_is_valid_and_strange(call):
    assert call("", "check") == (0, "note: no [gateways.NAME] table: no door opens\n/gateways.toml is valid\n", "")


def test_explain(call):
    code, out, err = call(ROUTED, "explain", "mqtt:fleet/7/gps/fix")
    assert (code, err) == (0, "")
    assert "topic positions, key 'fleet/7/gps/fix'" in out
    told = json.loads(call(ROUTED, "explain", "mqtt:fleet/7/gps/fix", "--json")[1])
    assert (told["topic"], told["key"], told["route"]) == ("positions", "fleet/7/gps/fix", 0)


@pytest.mark.parametrize(("where", "said"), [
    ("plant", "'plant' is not DOOR:ADDRESS"),
    ("smtp:plant", "there is no door 'smtp' to explain"),
    ("kafka:a b:c", "'a b' is no topic name"),
    ("mqtt:a/#", ""),
])
def test_explain_refuses_in_one_line(call, where, said):
    code, out, err = call(ROUTED, "explain", where)
    assert (code, out, err.count("\n")) == (exits.USAGE, "", 1)
    assert said in err


def test_explain_with_a_wrong_configuration(call):
    code, _, err = call("[kernal]", "explain", "mqtt:a")
    assert code == exits.USAGE
    assert err == ("gatehouse: /gateways.toml: kernal: unknown section; did you mean 'kernel'? "
                   "(`gatehouse check` shows all)\n")
