"""Java's client and KafkaJS over TLS: logins by password, by SCRAM and by certificate, and those that are no good. What
librdkafka, kafka-python and aiokafka do is in test_logins.py and test_tls.py."""
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.stock_clients import java_client, kafkajs
from tests.certificates import Authority, Pair
from tests.interop.guarded_hub import PASSWORD, GuardedHub
from tests.interop.test_kafka_first_hour import WAIT_S
from tests.waiting import until

VERSION: Final = "4.2.0"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REFUSED: Final = "Authentication failed: unknown user or wrong password"
REASON: Final = "tls_bad_certificate"

Client = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    guarded = GuardedHub(tmp_path_factory.mktemp("secure"))
    try:
        guarded.hub.wait_ready()
        made = subprocess.run(["curl", "-sS", "-u", f"root:{PASSWORD}", "-X", "PUT", "-H",
                               "Content-Type: application/json", "-d", "{}",
                               f"http://127.0.0.1:{guarded.ports('http')[0]}/v1/topics/open"], check=True,
                              capture_output=True, text=True, timeout=WAIT_S)
        assert '"open"' in made.stdout, made
        yield guarded
    finally:
        guarded.hub.kill()


def java(hub: GuardedHub, folder: Path, authority: Authority, pair: Pair | None = None, mechanism: str = "",
         password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    settings = {"security.protocol": "SASL_SSL" if mechanism else "SSL", "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.file), "default.api.timeout.ms": str(WAIT_S * 1_000)}
    if pair is not None:
        store = folder / "store.pem"
        store.write_text(pair.key.read_text() + pair.cert.read_text())
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    if mechanism:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config":
                     f'org.apache.kafka.common.security.{module} required username="ada" password="{password}";'}
    file = folder / "client.properties"
    file.write_text("".join([f"{name}={value}\n" for name, value in settings.items()]))
    return subprocess.run(["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{java_client(VERSION)}/*",
                           "org.apache.kafka.tools.TopicCommand", "--list", "--command-config", str(file),
                           "--bootstrap-server", f"localhost:{hub.ports('kafka')[1]}"],
                          capture_output=True, text=True, timeout=WAIT_S, check=False)


def node(hub: GuardedHub, folder: Path, authority: Authority, pair: Pair | None = None, mechanism: str = "",
         password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"ssl": {"ca": str(authority.file)}}
    if pair is not None:
        options["ssl"] |= {"cert": str(pair.cert), "key": str(pair.key)}
    if mechanism:
        options["sasl"] = {"mechanism": mechanism.lower(), "username": "ada", "password": password}
    return subprocess.run(["node", str(Path(__file__).with_name("kafkajs_login.js")),
                           f"localhost:{hub.ports('kafka')[1]}", json.dumps(options)],
                          env={**os.environ, "NODE_PATH": str(kafkajs() / "node_modules")},
                          capture_output=True, text=True, timeout=WAIT_S, check=False)


both = pytest.mark.parametrize("client", [java, node])


@both
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_is_right_or_wrong(hub: GuardedHub, tmp_path: Path, client: Client, mechanism: str) -> None:
    done = client(hub, tmp_path, hub.authority, mechanism=mechanism)
    assert (done.returncode, done.stdout.split()) == (0, ["open"]), done.stderr
    done = client(hub, tmp_path, hub.authority, mechanism=mechanism, password="guessed")
    assert done.returncode == 1 and REFUSED in done.stdout + done.stderr, done


@both
def test_a_certificate_is_a_login(hub: GuardedHub, tmp_path: Path, client: Client) -> None:
    done = client(hub, tmp_path, hub.authority, hub.certificate("ada"))
    assert (done.returncode, done.stdout.split()) == (0, ["open"]), done.stderr


@both
def test_an_authority_that_the_other_side_does_not_know(hub: GuardedHub, tmp_path: Path, client: Client) -> None:
    foreign = Authority(tmp_path, "Foreign Authority")
    done = client(hub, tmp_path, foreign, hub.certificate("ada"))
    assert (done.returncode, done.stdout.count("open")) == (1, 0), done
    before = hub.hub.log().count(REASON)
    done = client(hub, tmp_path, hub.authority, foreign.issue("ada"))
    assert (done.returncode, done.stdout.count("open")) == (1, 0), done
    until(lambda: hub.hub.log().count(REASON) > before, REASON)
