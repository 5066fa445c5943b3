"""TLS on all doors as clients use it: curl, openssl, paho, pika, confluent-kafka; certificates that log in; reloads."""
from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion

from gatehouse_client import SyncClient
from tests.certificates import Authority, Pair
from tests.running_hub import DOORS, RunningHub, free_port, gatehouse

WAIT_S = 60
RELOADED = re.compile("reload: gateways.kafka uses its TLS files|reload refused: .* gateways.kafka")

CURL_TO_AN_ALERT = (55, 56)
"""TLS 1.3: it comes after the client's own part, while curl sends its request or waits for the answer."""


class Stage:
    """A hub with every door on a plain and on a TLS listener, its authority, and another one that it does not know."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.authority.revoke()
        (folder / "foreign").mkdir()
        self.foreign = Authority(folder / "foreign", "Foreign Authority")
        self.server = self.authority.server()
        self.more = more
        self.kafka_ports = free_port(), free_port()
        self.hub = RunningHub(folder, self.config())

    def config(self, tls: str | None = None) -> str:
        tls = tls or self.server.toml(self.more)
        tables = ['[kernel]\nfsync = "never"\n']
        for door in ("mqtt", "http", "amqp"):
            tables.append(f'[gateways.{door}]\nlisten = ["127.0.0.1:0", {{ address = "127.0.0.1:0", tls = {tls} }}]\n')
        plain, encrypted = self.kafka_ports
        tables.append(f'[gateways.kafka]\nadvertise = "127.0.0.1:{plain}"\nlisten = ["127.0.0.1:{plain}", {{ address = '
                      f'"127.0.0.1:{encrypted}", advertise = "localhost:{encrypted}", tls = {tls} }}]\n')
        return "".join(tables)

    def ports(self, door: str) -> tuple[int, int]:
        """Of the plain listener, and of the one with TLS."""
        plain, encrypted = [int(line.rpartition(":")[2]) for line in self.hub.lines
                            if line.startswith(f"{door} listens on ")]
        return plain, encrypted

    def reload(self, tls: str | None = None) -> None:
        """Tell the hub to read its configuration again, and wait until it has."""
        before = len(RELOADED.findall(self.hub.log()))
        (self.folder / "gateways.toml").write_text(self.config(tls))
        self.hub.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + WAIT_S
        while len(RELOADED.findall(self.hub.log())) == before:
            assert time.monotonic() < deadline, self.hub.log()
            time.sleep(0.01)

    def curl(self, path: str, *options: str, ca: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["curl", "-sS", "--max-time", str(WAIT_S), "--cacert", str(ca or self.authority.file),
                               *options, f"https://localhost:{self.ports('http')[1]}{path}"],
                              capture_output=True, text=True)

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context

    def paho(self, pair: Pair | None = None) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
        client.tls_set_context(self.context(pair))
        client.connect_timeout = WAIT_S
        return client

    def pika(self, pair: Pair | None = None, **options: Any) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters(
            "localhost", self.ports("amqp")[1], ssl_options=pika.SSLOptions(self.context(pair), "localhost"),
            connection_attempts=1, socket_timeout=WAIT_S, stack_timeout=WAIT_S, **options))

    def kafka(self, pair: Pair | None = None) -> dict[str, Any]:
        options = {"bootstrap.servers": f"localhost:{self.kafka_ports[1]}", "security.protocol": "SSL",
                   "ssl.ca.location": str(self.authority.file), "partitioner": "murmur2_random"}
        if pair is not None:
            options |= {"ssl.certificate.location": str(pair.cert), "ssl.key.location": str(pair.key)}
        return options

    def metric(self, name: str, **labels: str) -> float:
        """A sample of the metrics page, 0 where it is not there."""
        page = subprocess.run(["curl", "-sS", f"http://127.0.0.1:{self.ports('http')[0]}/metrics"], capture_output=True,
                              text=True, check=True).stdout
        wanted = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
        return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + wanted)), 0.0)

    def wait_metric(self, at_least: float, name: str, **labels: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.metric(name, **labels) < at_least:
            assert time.monotonic() < deadline, (name, labels)
            time.sleep(0.02)


@contextmanager
def staged(folder: Path, more: str = "") -> Iterator[Stage]:
    """`more` is of the TLS listeners' tables."""
    stage = Stage(folder, more)
    try:
        stage.hub.wait_ready()
        yield stage
    finally:
        stage.hub.kill()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("tls")) as running:
        yield running


def test_one_message_over_tls_on_every_door(stage: Stage) -> None:
    """HTTP in; out over MQTT live, AMQP from a queue, Kafka from the log."""
    received: Queue[bytes] = Queue()
    subscribed = threading.Event()
    client = stage.paho()
    client.on_message = lambda _, __, message: received.put(message.payload)
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("localhost", stage.ports("mqtt")[1])
    client.subscribe("doors/#", 1)
    client.loop_start()
    assert subscribed.wait(WAIT_S)
    with stage.pika() as connection:
        channel = connection.channel()
        channel.queue_declare("tls-work", durable=True)
        channel.queue_bind("tls-work", "amq.topic", "doors.#")
        answer = stage.curl("/v1/publish/doors/line1/temp", "-d", "21.5", "-H", "Content-Type: text/plain")
        assert json.loads(answer.stdout)["topic"] == "doors", answer.stderr
        assert received.get(timeout=WAIT_S) == b"21.5"
        deadline = time.monotonic() + WAIT_S
        while (got := channel.basic_get("tls-work", auto_ack=True))[0] is None:
            assert time.monotonic() < deadline
        assert got[2] == b"21.5"
    client.disconnect()
    client.loop_stop()
    consumer = Consumer({**stage.kafka(), "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("doors", number, 0) for number in range(4)])
    message = consumer.poll(WAIT_S)
    assert message is not None and message.error() is None, message and message.error()
    assert (message.key(), message.value()) == (b"line1/temp", b"21.5")
    consumer.close()


def test_kafka_clients_stay_with_the_listener_they_came_by(stage: Stage) -> None:
    plain, encrypted = stage.kafka_ports
    for port, options in ((encrypted, stage.kafka()), (plain, {"bootstrap.servers": f"127.0.0.1:{plain}"})):
        producer = Producer(options)
        broker, = producer.list_topics(timeout=WAIT_S).brokers.values()
        assert broker.port == port
        errors: list[Any] = []
        producer.produce("stay", b"x", on_delivery=lambda error, _, errors=errors: errors.append(error))
        assert producer.flush(WAIT_S) == 0 and errors == [None]


def test_what_curl_and_openssl_see(stage: Stage) -> None:
    seen = stage.curl("/healthz", "-v")
    assert "SSL connection using TLSv1.3" in seen.stderr
    assert "ALPN: server accepted http/1.1" in seen.stderr or "ALPN, server accepted to use http/1.1" in seen.stderr
    for version, fine in (("-tls1_2", True), ("-tls1_3", True), ("-tls1_1", False)):
        talk = subprocess.run(["openssl", "s_client", "-connect", f"localhost:{stage.ports('mqtt')[1]}", "-CAfile",
                               str(stage.authority.file), "-verify_return_error", version],
                              input="", capture_output=True, text=True, timeout=WAIT_S)
        assert (talk.returncode == 0) is fine, talk.stdout + talk.stderr
        assert ("Verify return code: 0 (ok)" if fine else "alert protocol version") in talk.stdout + talk.stderr
        assert "Compression: NONE" in talk.stdout


@pytest.mark.parametrize("door,hello", [("http", b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"),
                                        ("amqp", b"AMQP\0\0\x09\x01")])
def test_amqp_clients_get_no_tickets(stage: Stage, door: str, hello: bytes) -> None:
    """They come before the door's first answer: the Java client's NIO reads zeros where one was."""
    with socket.create_connection(("localhost", stage.ports(door)[1]), timeout=WAIT_S) as plain, \
            stage.context().wrap_socket(plain, server_hostname="localhost") as wrapped:
        wrapped.sendall(hello)
        assert wrapped.recv(1)
        assert wrapped.version() == "TLSv1.3"
        assert wrapped.session is not None and wrapped.session.has_ticket is (door != "amqp")


def test_a_client_that_trusts_another_authority_goes_and_is_counted(stage: Stage) -> None:
    before = stage.metric("gatehouse_connections_closed_total", door="http", reason="tls_refused_by_peer")
    refused = stage.curl("/healthz", ca=stage.foreign.file)
    assert refused.returncode == 60, refused
    stage.wait_metric(before + 1, "gatehouse_connections_closed_total", door="http", reason="tls_refused_by_peer")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A hub that does not wait for a handshake as long as one may take."""
    with staged(tmp_path_factory.mktemp("hasty"), "handshake_timeout_s = 0.5") as stage:
        yield stage


@pytest.mark.parametrize("door", ["mqtt", "http", "amqp", "kafka"])
def test_plain_bytes_and_silence_at_a_tls_port(stage: Stage, hasty: Stage, door: str) -> None:
    for place, sent, reason in ((stage, b"GET / HTTP/1.1\r\n\r\n" * 3, "tls_not_spoken"),
                                (hasty, b"\x16\x03\x01", "tls_timeout")):
        port = place.ports(door)[1] if door != "kafka" else place.kafka_ports[1]
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock:
            sock.sendall(sent)
            mine = sock.getsockname()[1]
            try:
                while sock.recv(100):
                    pass
            except ConnectionResetError:
                pass
        place.wait_metric(1, "gatehouse_connections_closed_total", door=door, reason=reason)
        assert place.hub.log().count(f"{door} 127.0.0.1:{mine} ") <= 1
        assert "Traceback" not in place.hub.log()


@pytest.mark.parametrize("door", ["mqtt", "http", "amqp", "kafka"])
def test_tls_at_a_plain_port(stage: Stage, door: str) -> None:
    port = stage.ports(door)[0] if door != "kafka" else stage.kafka_ports[0]
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock, pytest.raises((ssl.SSLError, OSError)):
        stage.context().wrap_socket(sock, server_hostname="localhost")
    assert "Traceback" not in stage.hub.log()


def peer_of(sock: Any) -> str:
    """What the hub calls the other side."""
    return "127.0.0.1:{1}".format(*sock.getsockname())


def test_who_is_connected_and_closing_one(stage: Stage) -> None:
    """Seen by the command line and closed by it, in the protocol's words."""
    there, closed = threading.Event(), threading.Event()
    client = stage.paho()
    client.on_connect = lambda *_: there.set()
    client.on_disconnect = lambda *_: closed.set()
    client.connect("localhost", stage.ports("mqtt")[1])
    client.loop_start()
    assert there.wait(WAIT_S)
    connection = stage.pika()
    mine = {peer_of(client.socket()), peer_of(connection._impl._transport._sock)}
    url = f"http://127.0.0.1:{stage.ports('http')[0]}"
    listed = gatehouse("connections", "list", "--json", "--url", url)
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    by_door = {one["door"]: one for one in found if one["peer"] in mine}
    assert set(by_door) == {"mqtt", "amqp"} and {one["tls"] for one in by_door.values()} == {"TLSv1.3"}
    assert by_door["amqp"]["user"] == "anonymous"
    shown = json.loads(gatehouse("connections", "show", by_door["amqp"]["id"], "--json", "--url", url).stdout)
    assert shown["details"]["state"] == "open"
    for one in by_door.values():
        assert gatehouse("connections", "close", one["id"], "--url", url).returncode == 0
    assert closed.wait(WAIT_S)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="closed by an administrator") as told:
        while True:
            connection.process_data_events(0.1)
    assert told.value.reply_code == 320
    gone = gatehouse("connections", "close", by_door["mqtt"]["id"], "--url", url)
    assert gone.returncode == 1 and "no connection" in gone.stderr
    client.loop_stop()


def test_the_command_line_and_the_python_client_speak_tls(stage: Stage) -> None:
    url = f"https://localhost:{stage.ports('http')[1]}"
    good = gatehouse("status", "--url", url, "--tls-ca", str(stage.authority.file))
    assert good.returncode == 0 and "ready" in good.stdout, good.stderr
    for options, said in (([], "self-signed certificate in certificate chain|unable to get local issuer"),
                          (["--tls-ca", str(stage.server.key)], "cannot use the files of --tls-ca"),
                          (["--tls-ca", str(stage.folder / "none")], "No such file")):
        bad = gatehouse("status", "--url", url, *options)
        assert bad.returncode != 0 and re.search(said, bad.stderr) and bad.stderr.count("\n") == 1, bad.stderr
    with SyncClient(url, tls=stage.context()) as client:
        assert client.publish("plant/py", b"x").topic == "plant"


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A hub that wants certificates, and whose one user is `sensor-7`."""
    folder = tmp_path_factory.mktemp("mutual")
    made = gatehouse("users", "create", "sensor-7", "--admin", "--no-password", "--data", str(folder / "data"))
    assert made.returncode == 0, made.stderr
    with staged(folder, f'client_ca = "{folder}/Test-Authority.pem", client_required = true') as stage:
        yield stage


def test_a_certificate_is_a_login_on_every_door(mutual: Stage) -> None:
    stage, pair = mutual, mutual.authority.issue("sensor-7")
    client = stage.paho(pair)
    client.connect("localhost", stage.ports("mqtt")[1])
    client.loop_start()
    client.publish("plant/by-certificate", b"21", 1).wait_for_publish(WAIT_S)
    producer = Producer(stage.kafka(pair))
    assert "plant" in producer.list_topics(timeout=WAIT_S).topics
    with stage.pika(pair, credentials=pika.credentials.ExternalCredentials()):
        wanted = dict.fromkeys(("mqtt", "http", "amqp", "kafka"), ("sensor-7", "sensor-7"))
        deadline, doors = time.monotonic() + WAIT_S, {}
        while doors != wanted:               # librdkafka has several connections, and not at every moment one
            assert time.monotonic() < deadline, doors
            producer.produce("plant", b"x")
            producer.poll(0.1)
            listed = stage.curl("/v1/connections", "--cert", str(pair.cert), "--key", str(pair.key))
            doors |= {one["door"]: (one["user"], one["certificate"])
                      for one in json.loads(listed.stdout)["connections"] if one["user"]}
    client.disconnect()
    client.loop_stop()


def test_a_certificate_of_nobody(mutual: Stage) -> None:
    """Its authority is believed, but it names no user: each door says so in its own words."""
    stage, pair = mutual, mutual.authority.issue("stranger")
    refused: Queue[Any] = Queue()
    client = stage.paho(pair)
    client.on_connect = lambda _, __, ___, code, ____: refused.put(code)
    client.connect("localhost", stage.ports("mqtt")[1])
    client.loop_start()
    assert refused.get(timeout=WAIT_S).is_failure
    client.loop_stop()
    with pytest.raises(pika.exceptions.AMQPError, match="ACCESS_REFUSED"):
        stage.pika(pair, credentials=pika.credentials.ExternalCredentials())
    answer = stage.curl("/v1/topics", "--cert", str(pair.cert), "--key", str(pair.key), "-w", "%{http_code}")
    assert answer.stdout.endswith("401"), answer


@pytest.mark.parametrize(("kind", "reason"), [("foreign", "tls_bad_certificate"), ("expired", "tls_bad_certificate"),
                                              ("none", "tls_no_certificate")])
def test_a_certificate_that_is_no_good_gets_nowhere(mutual: Stage, kind: str, reason: str) -> None:
    stage = mutual
    pair = {"foreign": lambda: stage.foreign.issue("sensor-7"), "none": lambda: None,
            "expired": lambda: stage.authority.issue("sensor-7", begins=timedelta(days=-2), ends=timedelta(days=-1),
                                                     file="expired")}[kind]()
    options = ["--cert", str(pair.cert), "--key", str(pair.key)] if pair else []
    assert stage.curl("/healthz", *options).returncode in CURL_TO_AN_ALERT
    with pytest.raises(OSError):
        client = stage.paho(pair)
        client.connect("localhost", stage.ports("mqtt")[1])
        while client.loop(0.1) == paho.MQTT_ERR_SUCCESS:
            pass
        raise ConnectionError    # TLS 1.3: the alert comes after the client's own part
    with pytest.raises((ConnectionError, pika.exceptions.AMQPError)):
        stage.pika(pair)
    producer = Producer({**stage.kafka(pair), "log_level": 0})        # goes on trying while it is there
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.1)
    for door in ("mqtt", "http", "amqp", "kafka"):
        stage.wait_metric(1, "gatehouse_connections_closed_total", door=door, reason=reason)
    assert "Traceback" not in stage.hub.log() and (kind != "expired" or stage.hub.wait_log_line(
        "certificate has expired"))


def test_a_renewed_certificate_and_another_authority_under_load(tmp_path: Path) -> None:
    """Nobody who is connected notices; who comes next sees the new ones; a bad file changes nothing and is named."""
    with staged(tmp_path) as stage:
        lost: list[object] = []
        acknowledged: Queue[int] = Queue()
        client = stage.paho()
        client.max_inflight_messages_set(1000)
        client.on_disconnect = lambda *args: lost.append(args)
        client.on_publish = lambda *args: acknowledged.put(args[2])
        client.connect("localhost", stage.ports("mqtt")[1])
        client.loop_start()
        stopping = threading.Event()
        sent = 0

        def load() -> None:
            nonlocal sent
            while not stopping.is_set():
                client.publish("load/a", b"x" * 500, 1).wait_for_publish(WAIT_S)
                sent += 1
        thread = threading.Thread(target=load)
        thread.start()
        for number in range(5):
            (tmp_path / f"next{number}").mkdir()
            renewed = Authority(tmp_path / f"next{number}", f"Authority {number}")
            stage.server = renewed.server()
            stage.reload()
            assert stage.curl("/readyz", ca=renewed.file).returncode == 0
            assert stage.curl("/readyz").returncode == 60, "the old authority no longer stands for it"
        stage.server.key.write_text("no key")
        stage.reload()
        assert "reload refused: " in stage.hub.log() and "are no certificate and key in PEM" in stage.hub.log()
        assert stage.curl("/readyz", ca=renewed.file).returncode == 0
        before = sent
        deadline = time.monotonic() + WAIT_S
        while sent < before + 10:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stopping.set()
        thread.join(WAIT_S)
        client.disconnect()
        client.loop_stop()
        assert len(lost) == 1, "the only end was the client's own"
        assert acknowledged.qsize() == sent


def test_when_a_certificate_in_use_runs_out_is_a_metric(tmp_path: Path) -> None:
    """One that was renewed and not read again is what an operator forgets: the old one counts until the reload."""
    def days(stage: Stage) -> set[int]:
        ends = [stage.metric("gatehouse_tls_certificate_ends_seconds", door=door) for door in DOORS]
        return {round((end - time.time()) / 86_400) for end in ends}

    with staged(tmp_path) as stage:
        assert days(stage) == {365}
        stage.server = stage.authority.server(ends=timedelta(days=90))
        assert days(stage) == {365}
        stage.reload()
        assert days(stage) == {90}


def test_a_listener_that_comes_and_goes(tmp_path: Path) -> None:
    """By `gatehouse reload`: TLS is opened beside plain, then plain is given up; who is connected stays."""
    authority = Authority(tmp_path)
    given_up, port, table = free_port(), free_port(), authority.server().toml()
    hub = RunningHub(tmp_path, f'[gateways.mqtt]\nlisten = ["127.0.0.1:{given_up}"]\n')

    def reload(text: str, said: str) -> None:
        (tmp_path / "gateways.toml").write_text(text)
        assert gatehouse("reload", "--config", str(tmp_path / "gateways.toml")).returncode == 0
        hub.wait_log_line(said)
    try:
        hub.wait_ready()
        with socket.create_connection(("127.0.0.1", given_up), timeout=WAIT_S) as before:
            before.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
            assert before.recv(4) == b"\x20\x02\x00\x00"
            tls = f'{{ address = "127.0.0.1:{port}", tls = {table} }}'
            reload(f'[gateways.mqtt]\nlisten = ["127.0.0.1:{given_up}", {tls}]\n', f"mqtt listens on 127.0.0.1:{port}")
            reload(f"[gateways.mqtt]\nlisten = [{tls}]\n", f"no longer listens on 127.0.0.1:{given_up}")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", given_up))
            context = ssl.create_default_context(cafile=str(authority.file))
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock:
                context.wrap_socket(sock, server_hostname="localhost").close()
            before.sendall(b"\xc0\x00")
            assert before.recv(2) == b"\xd0\x00"
    finally:
        hub.kill()


def test_a_certificate_that_is_revoked(tmp_path: Path) -> None:
    """Refused on every door from the next handshake on, and connections that it has opened end; others go on."""
    clients_of = f'client_ca = "{tmp_path}/Test-Authority.pem", client_crl = "{tmp_path}/revoked.crl"'
    with staged(tmp_path, clients_of) as stage:
        good, stolen = stage.authority.issue("good"), stage.authority.issue("stolen")
        gone: dict[str, threading.Event] = {}
        clients = []
        for pair in (good, stolen):
            user = f"http://127.0.0.1:{stage.ports('http')[0]}/v1/users/{pair.cert.stem}"
            subprocess.run(["curl", "-fsS", "-X", "PUT", user, "-H", "Content-Type: application/json", "-d",
                            '{"groups": ["admins"]}'], capture_output=True, check=True)
            client, gone[pair.cert.stem], there = stage.paho(pair), threading.Event(), threading.Event()
            client.on_connect = lambda *_, there=there: there.set()
            client.on_disconnect = lambda *_, gone=gone[pair.cert.stem]: gone.set()
            client.connect("localhost", stage.ports("mqtt")[1])
            client.loop_start()
            assert there.wait(WAIT_S)
            clients.append(client)
        waiting = subprocess.Popen(["curl", "-sSN", "--max-time", "200", "--cacert", str(stage.authority.file),
                                    "--cert", str(stolen.cert), "--key", str(stolen.key),
                                    f"https://localhost:{stage.ports('http')[1]}/v1/topics/none/events"],
                                   stdout=subprocess.PIPE)
        assert waiting.stdout is not None and waiting.stdout.readline(), "the stream has begun"
        stage.authority.revoke(stolen)
        stage.reload()
        assert gone["stolen"].wait(WAIT_S) and not gone["good"].is_set()
        assert waiting.wait(WAIT_S) is not None
        waiting.stdout.close()
        assert "2 connections end, whose certificates were revoked" in stage.hub.wait_log_line("were revoked")
        for pair, codes in ((good, (0,)), (stolen, CURL_TO_AN_ALERT)):
            assert stage.curl("/readyz", "--cert", str(pair.cert), "--key", str(pair.key)).returncode in codes
        assert stage.curl("/readyz").returncode == 0, "none is asked for"
        with pytest.raises((ConnectionError, pika.exceptions.AMQPError)):
            stage.pika(stolen)
        with pytest.raises(KafkaException):
            Producer({**stage.kafka(stolen), "log_level": 0}).list_topics(timeout=1)
        stage.wait_metric(1, "gatehouse_connections_closed_total", door="http", reason="tls_bad_certificate")
        stage.hub.wait_log_line("certificate revoked")
        for client in clients:
            client.disconnect()
            client.loop_stop()
        stage.authority.revoke(ends=timedelta(days=-1))
        stage.reload()
        assert "its clients' certificates are refused" in stage.hub.wait_log_line("was good until")
        assert stage.curl("/readyz", "--cert", str(good.cert), "--key", str(good.key)).returncode in CURL_TO_AN_ALERT
        stage.authority.revoke(stolen)
        stage.reload()
        (tmp_path / "revoked.crl").write_bytes(stage.authority.file.read_bytes())
        (tmp_path / "gateways.toml").write_text(stage.config())
        stage.hub.process.send_signal(signal.SIGHUP)
        assert "client_crl: " in stage.hub.wait_log_line("something else than revocation lists")
        assert stage.curl("/readyz", "--cert", str(good.cert), "--key", str(good.key)).returncode == 0
        refused = stage.curl("/readyz", "--cert", str(stolen.cert), "--key", str(stolen.key))
        assert refused.returncode in CURL_TO_AN_ALERT
