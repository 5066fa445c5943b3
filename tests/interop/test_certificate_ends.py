"""A certificate that runs out while its connections are open, on every door, with stock clients."""
from __future__ import annotations

import http.client
import subprocess
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pika
import pytest
from confluent_kafka import KafkaException, Producer

from gatehouse.gateways.tls.certificates import validity
from tests.certificates import Pair
from tests.interop.test_tls import WAIT_S, Stage, staged
from tests.running_hub import gatehouse


def test_connections_end_with_the_certificate_that_opened_them(tmp_path: Path) -> None:
    """On every door, in its words. On a slow machine a certificate may end before everybody has come: then one of a
    longer life is tried."""
    made = gatehouse("users", "create", "sensor-7", "--admin", "--no-password", "--data", str(tmp_path / "data"))
    assert made.returncode == 0, made.stderr
    with staged(tmp_path, f'client_ca = "{tmp_path}/Test-Authority.pem", client_required = true') as stage:
        assert any(seen_the_end(stage, life_s) for life_s in (5, 20, 60)), "nobody could connect within 60 s"


def seen_the_end(stage: Stage, life_s: int) -> bool:
    """False where it came before everybody had."""
    pair = stage.authority.issue("sensor-7", ends=timedelta(seconds=life_s), file=f"of-{life_s}-s")
    ends_s = validity(pair.cert)[1].timestamp()
    with ExitStack() as opened:
        try:
            brief = Brief(stage, pair, opened)
        except (OSError, KafkaException, pika.exceptions.AMQPError):
            assert time.time() >= ends_s
            return False
        if time.time() >= ends_s:
            return False
        brief.see_the_end()
        return True


class Brief:
    """Clients with a certificate that soon runs out. Raises what they raise."""

    def __init__(self, stage: Stage, pair: Pair, opened: ExitStack) -> None:
        self.stage = stage
        self.gone = threading.Event()
        there = threading.Event()
        client = stage.paho(pair)
        client.on_connect = lambda *_: there.set()
        client.on_disconnect = lambda *_: self.gone.set()
        client.connect("localhost", stage.ports("mqtt")[1])
        client.loop_start()
        opened.callback(client.loop_stop)
        if not there.wait(WAIT_S):
            raise ConnectionError
        self.amqp = stage.pika(pair, credentials=pika.credentials.ExternalCredentials())
        self.http = http.client.HTTPSConnection("localhost", stage.ports("http")[1], context=stage.context(pair),
                                                timeout=WAIT_S)
        opened.callback(self.http.close)
        if self.ask() != 200:
            raise ConnectionError
        self.stream = opened.enter_context(subprocess.Popen(
            ["curl", "-sSN", "--cacert", str(stage.authority.file), "--cert", str(pair.cert), "--key", str(pair.key),
             f"https://localhost:{stage.ports('http')[1]}/v1/topics/none/events"], stdout=subprocess.PIPE))
        opened.callback(self.stream.kill)
        if self.stream.stdout is None or not self.stream.stdout.readline():
            raise ConnectionError
        self.kafka = Producer({**stage.kafka(pair), "log_level": 0})
        self.kafka.list_topics(timeout=WAIT_S)

    def ask(self) -> int:
        self.http.request("GET", "/v1/topics")
        answer = self.http.getresponse()
        answer.read()
        return answer.status

    def see_the_end(self) -> None:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="has expired") as told:
            while True:
                self.amqp.process_data_events(0.1)
        assert told.value.reply_code == 320
        assert self.ask() == 401, "the connection is there, and opens nothing any more"
        assert self.gone.wait(WAIT_S) and self.stream.wait(WAIT_S) == 0
        for door in ("mqtt", "kafka"):
            self.stage.wait_metric(1, "gatehouse_connections_closed_total", door=door, reason="principal_ended")
