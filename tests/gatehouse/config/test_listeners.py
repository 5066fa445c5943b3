"""`listen` and `tls` in the configuration: what they mean, and what `gatehouse check` says of files and dates."""
from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gatehouse.cli.hub_option import default_url
from gatehouse.config.config import Config, ConfigError, load
from gatehouse.gateways.registry import load_specs
from tests.certificates import Authority

DAY = timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.server()
    return authority


def read(folder: Path, text: str, **environ: str) -> Config:
    (folder / "gateways.toml").write_text(text)
    return load(folder / "gateways.toml", environ, load_specs())


def problems(folder: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **environ)
    return [line.replace(f"{folder}/", "").removeprefix("gateways.toml: ") for line in caught.value.lines]


def test_texts_and_tables_mix_and_files_start_from_the_files_folder(tmp_path: Path, authority: Authority) -> None:
    door, = read(tmp_path, """
        [gateways.mqtt]
        listen = [{ address = "127.0.0.1:8883", tls = { cert = "server.pem", key = "server.key" } }, "127.0.0.1:1883"]
    """).doors
    encrypted, plain = door.listen
    assert encrypted.tls is not None and plain.tls is None
    assert (encrypted.tls.cert, encrypted.tls.client_ca) == (str(tmp_path / "server.pem"), None)
    assert [str(one) for one in door.listen] == ["127.0.0.1:8883", "127.0.0.1:1883"]


def test_a_doors_tls_is_for_all_its_listeners_but_those_with_their_own(tmp_path: Path, authority: Authority) -> None:
    authority.server(file="other")
    door, = read(tmp_path, """
        [gateways.mqtt]
        tls = { cert = "server.pem", key = "server.key" }
        listen = ["127.0.0.1:1", { address = "127.0.0.1:2", tls = { cert = "other.pem", key = "other.key" } },
                  { address = "127.0.0.1:3", tls = false }]
    """).doors
    assert [one.tls and Path(one.tls.cert).name for one in door.listen] == ["server.pem", "other.pem", None]


def test_the_environment_gives_tables_too(tmp_path: Path, authority: Authority) -> None:
    listen = [{"address": "127.0.0.1:1", "tls": {"cert": "server.pem", "key": "server.key"}}, "127.0.0.1:2"]
    text = "[gateways.mqtt]\n[gateways.amqp]\n"
    mqtt, amqp = read(tmp_path, text, GATEHOUSE__GATEWAYS__MQTT__LISTEN=json.dumps(listen),
                      GATEHOUSE__GATEWAYS__AMQP__TLS__CERT="server.pem",
                      GATEHOUSE__GATEWAYS__AMQP__TLS__KEY="server.key").doors
    assert [one.tls is not None for one in mqtt.listen] == [True, False]
    assert [one.tls is not None for one in amqp.listen] == [True]
    tls = json.dumps({"cert": "server.pem", "key": "server.key", "min_version": "1.3"})
    mqtt, _ = read(tmp_path, text, GATEHOUSE__GATEWAYS__MQTT__TLS=tls).doors
    assert mqtt.listen[0].tls is not None and mqtt.listen[0].tls.min_version == "1.3"


TABLE = 'cert = "server.pem", key = "server.key"'


@pytest.mark.parametrize(("tls", "line"), [
    ('{ cert = "none.pem", key = "server.key" }', "cert: cannot read none.pem: No such file or directory"),
    ('{ cert = "server.pem", key = "none.key" }', "key: cannot read none.key: No such file or directory"),
    ('{ cert = "server.pem", key = "other.key" }', "key: other.key is not the key of server.pem"),
    (f'{{ {TABLE}, client_ca = "none" }}', "client_ca: cannot read none: No such file or directory"),
    (f'{{ {TABLE}, min_version = "old" }}', "min_version: 'old' is none of 1.2, 1.3"),
    (f'{{ {TABLE}, client_required = "yes" }}', "client_required: must be true or false"),
    (f'{{ {TABLE}, certt = "x" }}', "certt: unknown setting; did you mean 'cert'?"),
])
def test_what_is_wrong_in_a_tls_table(tmp_path: Path, authority: Authority, tls: str, line: str) -> None:
    authority.server(file="other")
    assert problems(tmp_path, f"[gateways.mqtt]\ntls = {tls}") == [f"gateways.mqtt.tls.{line}"]
    text = f'[gateways.mqtt]\nlisten = ["127.0.0.1:1", {{ address = "127.0.0.1:2", tls = {tls} }}]'
    assert problems(tmp_path, text) == [f"gateways.mqtt.listen[1].tls.{line}"]


def test_what_is_no_tls_table(tmp_path: Path, authority: Authority) -> None:
    wrong = 'gateways.mqtt.tls: must be a table: { cert = "FILE", key = "FILE" }'
    assert problems(tmp_path, "[gateways.mqtt]\ntls = true") == [wrong]
    assert problems(tmp_path, "[gateways.mqtt]", GATEHOUSE__GATEWAYS__MQTT__TLS="{") == [
        f"environment GATEHOUSE__GATEWAYS__MQTT__TLS: {wrong}"]
    assert problems(tmp_path, f"[gateways.mqtt]\ntls = {{ {TABLE}, client_required = true }}") == [
        "gateways.mqtt.tls: client_required needs client_ca: the authorities whose certificates are believed"]
    assert problems(tmp_path, f"[gateways.mqtt]\ntls = {{ {TABLE}, client_crl = 'x.crl' }}") == [
        "gateways.mqtt.tls: client_crl needs client_ca: the authorities whose certificates are believed"]


@pytest.mark.parametrize(("begins", "ends", "text"), [
    (-DAY, 10 * DAY, "expires on"), (-2 * DAY, -DAY, "expired on"), (DAY, 2 * DAY, "is valid from"),
    (-DAY, 100 * DAY, None),
])
def test_dates_are_told_and_refuse_nothing(tmp_path: Path, begins: timedelta, ends: timedelta,
                                           text: str | None) -> None:
    Authority(tmp_path).issue("hub", begins=begins, ends=ends, file="server")
    config = read(tmp_path, f"[gateways.mqtt]\ntls = {{ {TABLE} }}\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]")
    told = [notice for notice in config.notices if "certificate" in notice]
    assert len(told) == (text is not None), told
    assert text is None or text in told[0]


@pytest.mark.parametrize(("listen", "line"), [
    (f'{{ address = "127.0.0.1:1", tls = {{ {TABLE} }} }}, "127.0.0.1:2"',
     "listen: clients with and without TLS would be sent to the same address; give each listener its own advertise"),
    ('{ address = "127.0.0.1:1", advertise = "hub" }',
     "listen[0].advertise: 'hub' is not HOST:PORT with a port from 0 to 65535"),
    ('{ address = "127.0.0.1:1", advertise = "0.0.0.0:1" }',
     "listen[0].advertise: '0.0.0.0:1' names no host that a client can connect to; give one"),
])
def test_where_clients_are_sent_by_listener(tmp_path: Path, authority: Authority, listen: str, line: str) -> None:
    assert problems(tmp_path, f"[gateways.kafka]\nlisten = [{listen}]") == [f"gateways.kafka.{line}"]


def test_a_listener_that_says_where_is_not_held_to_what_the_door_says(tmp_path: Path, authority: Authority) -> None:
    read(tmp_path, f"""
        [auth]
        allow_anonymous = false
        [gateways.kafka]
        listen = ["127.0.0.1:9092", {{ address = "0.0.0.0:9093", advertise = "hub.example:9093", tls = {{ {TABLE} }} }}]
    """)
    assert problems(tmp_path, '[gateways.mqtt]\nlisten = [{ address = "127.0.0.1:1", advertise = "h:1" }]') == [
        "gateways.mqtt.listen[0].advertise: this door sends nobody anywhere; take it out"]


def test_a_rule_for_names_that_is_none(tmp_path: Path) -> None:
    line, = problems(tmp_path, '[auth]\ncertificate_user = "dn"')
    assert line.startswith("auth: 'dn' is none of cn, san_dns")


@pytest.mark.parametrize(("table", "url"), [
    ('listen = ["0.0.0.0:8080"]', "http://127.0.0.1:8080"),
    ('listen = [{ address = "hub.example:8443", tls = { cert = "c", key = "k" } }]', "https://hub.example:8443"),
    ('listen = [{ address = "hub.example:8443", tls = { cert = "c", key = "k" } }, "127.0.0.1:8081"]',
     "http://127.0.0.1:8081"),
    ('tls = { cert = "c", key = "k" }\nlisten = ["hub.example:8443", { address = "[::1]:8080", tls = false }]',
     "http://[::1]:8080"),
    ('tls = { cert = "c", key = "k" }\nlisten = ["hub.example:8443"]', "https://hub.example:8443"),
    ("listen = [1]", "http://127.0.0.1:8080"),
])
def test_which_listener_a_command_asks(tmp_path: Path, table: str, url: str) -> None:
    (tmp_path / "gateways.toml").write_text(f"[gateways.http]\n{table}")
    assert default_url(tmp_path / "gateways.toml") == url
