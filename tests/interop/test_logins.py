"""Every way to log in, on every door, with the clients that people have; and what they see when it fails."""
from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from typing import Any

import paho.mqtt.client as paho
import pika
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from aiokafka.errors import AuthenticationFailedError
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError, SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokens
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from pika.credentials import ExternalCredentials, PlainCredentials
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker, ProbableAuthenticationError

from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub

WAIT_S = 60.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("logins")) as running:
        yield running
        code, said = running.hub.stop()
        assert code == 0 and "Traceback" not in said, said
        assert PASSWORD not in said and "wrong password 1" not in said, "a secret is in the log"


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[GuardedHub]:
    """Where clients try wrong passwords again and again: answers to this machine get slower and slower there. So each
    test has its own."""
    with guarded_hub(tmp_path) as running:
        yield running
        assert "wrong password 1" not in running.hub.log(), "a secret is in the log"


def client_tls(guarded: GuardedHub, user: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(guarded.authority.file))
    if user is not None:
        pair = guarded.certificate(user)
        context.load_cert_chain(pair.cert, pair.key)
    return context


# ---- MQTT

def mqtt_code(guarded: GuardedHub, user: str | None = None, password: str | None = None,
              tls: ssl.SSLContext | None = None) -> str:
    """What CONNACK says, in paho's words."""
    answers: Queue[Any] = Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311, reconnect_on_failure=False)
    client.on_connect = lambda _client, _data, _flags, code, _properties: answers.put(str(code))
    if user is not None:
        client.username_pw_set(user, password)
    if tls is not None:
        client.tls_set_context(tls)
    client.connect("127.0.0.1", guarded.ports("mqtt")[tls is not None])
    client.loop_start()
    try:
        return str(answers.get(timeout=WAIT_S))
    finally:
        client.disconnect()
        client.loop_stop()


def test_mqtt(guarded: GuardedHub) -> None:
    assert mqtt_code(guarded, "ada", PASSWORD) == "Success"
    assert mqtt_code(guarded, "ada", guarded.token("ada")) == "Success"
    assert mqtt_code(guarded, "", guarded.token("ada")) == "Success"
    assert mqtt_code(guarded, "eve", "wrong password 1") == "Bad user name or password"
    assert mqtt_code(guarded, "bob", guarded.token("ada")) == "Bad user name or password", "another's token"
    assert mqtt_code(guarded, "nobody", PASSWORD) == "Bad user name or password"
    assert mqtt_code(guarded) == "Not authorized"
    assert mqtt_code(guarded, tls=client_tls(guarded, "ada")) == "Success"
    assert mqtt_code(guarded, tls=client_tls(guarded)) == "Not authorized"
    assert mqtt_code(guarded, tls=client_tls(guarded, "stranger")) == "Not authorized"


# ---- AMQP

def amqp(guarded: GuardedHub, credentials: Any, tls: ssl.SSLContext | None = None, vhost: str = "/") -> str:
    """Log in, and how that ended."""
    options = pika.SSLOptions(tls, "localhost") if tls is not None else None
    try:
        pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", guarded.ports("amqp")[tls is not None], vhost, credentials, ssl_options=options)).close()
    except ConnectionClosedByBroker as error:
        return f"{error.reply_code}"
    except AMQPConnectionError as error:
        return type(error).__name__
    return "open"


def test_amqp(guarded: GuardedHub) -> None:
    assert amqp(guarded, PlainCredentials("ada", PASSWORD)) == "open"
    assert amqp(guarded, PlainCredentials("ada", guarded.token("ada"))) == "open"
    assert amqp(guarded, PlainCredentials("eve", "wrong password 1")) == ProbableAuthenticationError.__name__
    assert amqp(guarded, PlainCredentials("guest", "guest")) == ProbableAuthenticationError.__name__
    assert amqp(guarded, ExternalCredentials(), client_tls(guarded, "ada")) == "open"
    assert amqp(guarded, ExternalCredentials(), client_tls(guarded, "stranger")) == ProbableAuthenticationError.__name__
    assert amqp(guarded, PlainCredentials("ada", PASSWORD), vhost="other") in ("530", "ProbableAccessDeniedError")


# ---- HTTP

def curl(guarded: GuardedHub, path: str, *options: str, tls: bool = False) -> tuple[int, str]:
    scheme, port = ("https", guarded.ports("http")[1]) if tls else ("http", guarded.ports("http")[0])
    done = subprocess.run(["curl", "-s", "--cacert", str(guarded.authority.file), "-w", "%{stderr}%{http_code}",
                           *options, f"{scheme}://localhost:{port}{path}"], capture_output=True, text=True,
                          timeout=WAIT_S, check=True)
    return int(done.stderr), done.stdout


def test_http(guarded: GuardedHub) -> None:
    pair, stranger = guarded.certificate("ada"), guarded.certificate("stranger")
    for options, tls, status in (
            (("-u", f"ada:{PASSWORD}"), False, 200), (("-u", "eve:wrong password 1"), False, 401), ((), False, 401),
            (("--oauth2-bearer", guarded.token("ada")), False, 200),
            (("--oauth2-bearer", guarded.token("ada", -60)), False, 401),
            (("--oauth2-bearer", guarded.token("ada", nbf=2_000_000_000)), False, 401),
            (("--oauth2-bearer", guarded.token("ada", aud="another")), False, 401),
            (("-u", f"ada:{guarded.token('ada')}"), False, 200),
            (("--cert", str(pair.cert), "--key", str(pair.key)), True, 200),
            (("--cert", str(stranger.cert), "--key", str(stranger.key)), True, 401), ((), True, 401)):
        found, body = curl(guarded, "/v1/topics", *options, tls=tls)
        assert found == status, (options, body)
        assert status == 200 or json.loads(body)["code"] == "not_authenticated"


# ---- Kafka

def kafka_address(guarded: GuardedHub) -> str:
    return f"127.0.0.1:{guarded.ports('kafka')[0]}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(guarded: GuardedHub, mechanism: str) -> None:
    told = kcat(guarded, mechanism, "ada", PASSWORD)
    assert "Metadata for all topics" in told, told


def test_kcat_with_a_wrong_password(attacked: GuardedHub) -> None:
    """It says so at once and goes on trying."""
    command = kcat_command(attacked, "PLAIN", "eve", "wrong password 1")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as trying:
        assert trying.stderr is not None
        try:
            assert any("authentication fail" in line.lower() for line in trying.stderr)
        finally:
            trying.kill()


def kcat(guarded: GuardedHub, mechanism: str, user: str, password: str) -> str:
    done = subprocess.run(kcat_command(guarded, mechanism, user, password), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def kcat_command(guarded: GuardedHub, mechanism: str, user: str, password: str) -> list[str]:
    return ["kcat", "-b", kafka_address(guarded), "-L", "-m", f"{WAIT_S:.0f}", "-X", "security.protocol=SASL_PLAINTEXT",
            "-X", f"sasl.mechanism={mechanism}", "-X", f"sasl.username={user}", "-X", f"sasl.password={password}"]


def librdkafka(guarded: GuardedHub, mechanism: str, **more: Any) -> list[str]:
    """The topics that are seen. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": kafka_address(guarded), "security.protocol": "SASL_PLAINTEXT",
                         "sasl.mechanism": mechanism, **more})
    return sorted(admin.list_topics(timeout=WAIT_S).topics)


def librdkafka_error(guarded: GuardedHub, mechanism: str, **more: Any) -> str:
    """What it says to the application, which is nobody's answer: it would go on trying."""
    errors: Queue[str] = Queue()
    admin = AdminClient({"bootstrap.servers": kafka_address(guarded), "security.protocol": "SASL_PLAINTEXT",
                         "sasl.mechanism": mechanism, "error_cb": lambda error: errors.put(error.name()), **more})
    end_s = time.monotonic() + WAIT_S
    while errors.empty():
        assert time.monotonic() < end_s, "it was told nothing"
        admin.poll(0.1)
    return errors.get()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(guarded: GuardedHub, mechanism: str) -> None:
    assert isinstance(librdkafka(guarded, mechanism, **{"sasl.username": "ada", "sasl.password": PASSWORD}), list)


def test_librdkafka_with_a_wrong_password(attacked: GuardedHub) -> None:
    login = {"sasl.username": "eve", "sasl.password": "wrong password 1"}
    assert librdkafka_error(attacked, "SCRAM-SHA-256", **login) == "_AUTHENTICATION"


def test_who_has_the_right_password_gets_in_while_others_guess_it_from_the_same_address(attacked: GuardedHub) -> None:
    """A client that is told once that its password is wrong gives up for ever: aiokafka and Java's do."""
    wrong = {"bootstrap.servers": kafka_address(attacked), "security.protocol": "SASL_PLAINTEXT",
             "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ada", "sasl.password": "wrong password 1",
             "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}
    told: list[str] = []
    guessing = [AdminClient({**wrong, "error_cb": lambda error: told.append(error.name())}) for _ in range(2)]
    end_s = time.monotonic() + WAIT_S
    while told.count("_AUTHENTICATION") < 5:             # from then on the answers to guesses take seconds
        assert time.monotonic() < end_s, told
        for client in guessing:
            client.poll(0.05)
    asyncio.run(aio(attacked, sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="ada", sasl_plain_password=PASSWORD))


def test_librdkafka_with_tokens(guarded: GuardedHub) -> None:
    assert isinstance(librdkafka(guarded, "OAUTHBEARER",
                                 oauth_cb=lambda _: (guarded.token("ada"), 2_000_000_000.0)), list)


def test_librdkafka_with_an_expired_token(attacked: GuardedHub) -> None:
    token = attacked.token("ada", -60)
    assert librdkafka_error(attacked, "OAUTHBEARER", oauth_cb=lambda _: (token, 2_000_000_000.0)) == "_AUTHENTICATION"


class OfPython(PythonTokens):  # type: ignore[misc]
    def __init__(self, make: Callable[[], str]) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return self._make()


class OfAio(AioTokens):  # type: ignore[misc]
    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make

    async def token(self) -> str:
        return self._make()


def kafka_python(guarded: GuardedHub, wait_s: float = WAIT_S, **login: Any) -> None:
    """Raises KafkaError; as its client tries a login that fails again and again, after `wait_s`."""
    producer = KafkaProducer(bootstrap_servers=kafka_address(guarded), security_protocol="SASL_PLAINTEXT",
                             max_block_ms=int(wait_s * 1000), bootstrap_timeout_ms=int(wait_s * 1000), **login)
    producer.send("open", b"x").get(wait_s)
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(guarded: GuardedHub, mechanism: str) -> None:
    kafka_python(guarded, sasl_mechanism=mechanism, sasl_plain_username="ada", sasl_plain_password=PASSWORD)


def test_kafka_python_with_a_wrong_password(attacked: GuardedHub) -> None:
    with pytest.raises(KafkaError):
        kafka_python(attacked, 3, sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="eve",
                     sasl_plain_password="wrong password 1")


def test_kafka_python_with_tokens(guarded: GuardedHub) -> None:
    kafka_python(guarded, sasl_mechanism="OAUTHBEARER",
                 sasl_oauth_token_provider=OfPython(lambda: guarded.token("ada")))


async def aio(guarded: GuardedHub, **login: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka_address(guarded), security_protocol="SASL_PLAINTEXT", **login)
    try:
        await producer.start()
        await producer.send_and_wait("open", b"x")
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(guarded: GuardedHub, mechanism: str) -> None:
    asyncio.run(aio(guarded, sasl_mechanism=mechanism, sasl_plain_username="ada", sasl_plain_password=PASSWORD))


def test_aiokafka_with_a_wrong_password(attacked: GuardedHub) -> None:
    with pytest.raises(Exception) as failed:  # noqa: PT011  (the client wraps what it was told)
        asyncio.run(aio(attacked, sasl_mechanism="PLAIN", sasl_plain_username="eve",
                        sasl_plain_password="wrong password 1"))
    assert isinstance(failed.value, (AuthenticationFailedError, SaslAuthenticationFailedError)) \
        or "bootstrap" in str(failed.value)


def test_aiokafka_with_tokens(guarded: GuardedHub) -> None:
    asyncio.run(aio(guarded, sasl_mechanism="OAUTHBEARER",
                    sasl_oauth_token_provider=OfAio(lambda: guarded.token("ada"))))


def test_kafka_by_certificate(guarded: GuardedHub) -> None:
    port, pair = guarded.ports("kafka")[1], guarded.certificate("ada")
    producer = KafkaProducer(bootstrap_servers=f"localhost:{port}", security_protocol="SSL",
                             ssl_cafile=str(guarded.authority.file), ssl_certfile=str(pair.cert),
                             ssl_keyfile=str(pair.key))
    producer.send("open", b"by certificate").get(WAIT_S)
    producer.close()


# ---- API keys, and tokens that run out

def test_an_api_key_is_a_login_on_every_door_until_it_is_revoked(guarded: GuardedHub) -> None:
    root = ("-u", f"root:{PASSWORD}", "-H", "Content-Type: application/json")
    status, body = curl(guarded, "/v1/users/ada/keys", *root, "-d", '{"name": "gadget"}')
    assert status == 201, body
    made = json.loads(body)
    key = next(value for value in made.values() if isinstance(value, str) and value.startswith("gh_"))
    assert mqtt_code(guarded, "ada", key) == "Success"
    assert amqp(guarded, PlainCredentials("ada", key)) == "open"
    assert isinstance(librdkafka(guarded, "PLAIN", **{"sasl.username": "ada", "sasl.password": key}), list)
    kafka_python(guarded, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=OfPython(lambda: key))
    assert curl(guarded, "/v1/topics", "--oauth2-bearer", key)[0] == 200
    assert curl(guarded, f"/v1/users/ada/keys/{made['id']}", "-X", "DELETE", *root)[0] == 204
    assert curl(guarded, "/v1/topics", "--oauth2-bearer", key)[0] == 401
    assert mqtt_code(guarded, "ada", key) == "Bad user name or password"


def test_a_token_that_runs_out_ends_what_was_opened_with_it(guarded: GuardedHub) -> None:
    """On a slow machine it may run out before everybody has come: then one of a longer life is tried."""
    assert any(seen_the_end_of_a_token(guarded, life_s) for life_s in (5, 25)), "nobody could log in within 25 s"


def seen_the_end_of_a_token(guarded: GuardedHub, life_s: int) -> bool:
    """False where it came before everybody had."""
    ends_s = int(time.time()) + life_s                        # or a second later
    token = guarded.token("ada", life_s)
    there, gone = threading.Event(), threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311, reconnect_on_failure=False)
    client.on_connect = lambda *_: there.set()
    client.on_disconnect = lambda *_: gone.set()
    client.username_pw_set("ada", token)
    client.connect("127.0.0.1", guarded.ports("mqtt")[0])
    client.loop_start()
    try:
        assert there.wait(WAIT_S)
        try:
            connection = pika.BlockingConnection(pika.ConnectionParameters(
                "127.0.0.1", guarded.ports("amqp")[0], credentials=PlainCredentials("ada", token)))
        except AMQPConnectionError:
            assert time.time() >= ends_s
            return False
        if time.time() >= ends_s:
            return False
        answers: Queue[tuple[int, str]] = Queue()
        poll = threading.Thread(target=lambda: answers.put(curl(
            guarded, "/v1/topics/open/messages?from=latest&wait=30", "--oauth2-bearer", token)))
        poll.start()
        with pytest.raises(ConnectionClosedByBroker) as closed:
            end_s = time.monotonic() + WAIT_S
            while time.monotonic() < end_s:
                connection.process_data_events(0.1)
        assert closed.value.reply_code == 320
        assert gone.wait(WAIT_S)
        status, body = answers.get(timeout=WAIT_S)
        assert (status, json.loads(body)["code"]) == (401, "not_authenticated")
        poll.join()
        return True
    finally:
        client.loop_stop()


# ---- many at once

def test_wrong_logins_by_the_dozen_stall_nobody(attacked: GuardedHub) -> None:
    """Passwords are hashed by another thread: who is connected is served meanwhile. What the hashes cost is counted in
    time of processors, which does not say how busy they are with others."""
    def hashing_s() -> float:
        return sum(thread.user_time for thread in hub.threads() if thread.id != hub.pid)       # that one has the loop

    hub = psutil.Process(attacked.hub.process.pid)
    before_s = hashing_s()
    threads = [threading.Thread(target=curl, args=(attacked, "/v1/topics", "-u", f"user{n}:wrong password 1"))
               for n in range(24)]
    served = HTTPConnection("127.0.0.1", attacked.ports("http")[0], timeout=WAIT_S)
    for thread in threads:
        thread.start()
        served.request("GET", "/healthz")
        answer = served.getresponse()
        assert (answer.status, answer.read() != b"") == (200, True)
    served.close()
    for thread in threads:
        thread.join()
    assert hashing_s() - before_s > 0.05, "24 passwords cost several times as much wherever they are hashed"


HALF_OPEN = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
opened = []
for door in sys.argv[1:]:
    port, data = door.split(":")
    for _ in range(334):
        opened.append(socket.create_connection(("127.0.0.1", int(port))))
        opened[-1].sendall(bytes.fromhex(data))
print(len(opened), flush=True)
sys.stdin.read()
"""
"""In a process of its own: paho waits by `select`, which takes no descriptor above 1,023."""


def test_a_thousand_half_open_logins_leave_room_for_others(guarded: GuardedHub) -> None:
    beginnings = {"mqtt": b"\x10\x20\0\4MQTT", "amqp": b"AMQP\0\0\x09\x01",
                  "kafka": b"\0\0\0\x18\0\x11\0\1\0\0\0\1\0"}
    doors = [f"{guarded.ports(door)[0]}:{data.hex()}" for door, data in beginnings.items()]
    with subprocess.Popen([sys.executable, "-c", HALF_OPEN, *doors], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as opener:
        assert opener.stdin is not None and opener.stdout is not None
        assert int(opener.stdout.readline()) == 1002
        assert mqtt_code(guarded, "ada", PASSWORD) == "Success"
        assert amqp(guarded, PlainCredentials("ada", PASSWORD)) == "open"
        kafka_python(guarded, sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="ada", sasl_plain_password=PASSWORD)
        opener.stdin.close()
