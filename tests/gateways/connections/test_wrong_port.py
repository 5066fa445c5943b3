"""What came to the wrong port is said in words."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gatehouse.gateways.connections.wrong_port import came_to, what_came
from tests.running_hub import DEADLINE_S, config_of, sound_hub

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
KAFKA = bytes.fromhex("00000023 0012 0003 00000001 0004 74657374".replace(" ", ""))
CONNECT = b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04test"


@pytest.mark.parametrize(("data", "what"), [
    (REQUEST, "an HTTP request"), (b"PRI * HTTP/2.0\r\n", "an HTTP request"),
    (b"\x16\x03\x01\x02\0", "a TLS handshake"),
    (b"AMQP\0\0\x09\x01", "an AMQP client"), (CONNECT, "an MQTT client"), (KAFKA, "a Kafka client"),
    (b"SSH-2.0-OpenSSH", "an SSH client"), (b"", ""), (b"\x10", ""), (b"\0" * 12, ""), (b"GE", ""), (b"\xff" * 40, "")])
def test_the_first_bytes_tell(data: bytes, what: str) -> None:
    assert what_came(data) == what
    assert came_to(data, "MQTT", "nobody knows") == (f"{what} came to the MQTT port" if what else "nobody knows")


HELLO = b"\x16\x03\x01\x02\0" + bytes(40)
CAME = {"http": (REQUEST, "an HTTP request"), "mqtt": (CONNECT, "an MQTT client"),
        "amqp": (b"AMQP\0\0\x09\x01", "an AMQP client"), "kafka": (KAFKA, "a Kafka client"),
        "tls": (HELLO, "a TLS handshake")}
NAMES = {"mqtt": "MQTT", "http": "HTTP", "amqp": "AMQP", "kafka": "Kafka"}


def test_every_door_says_in_the_log_what_of_every_other_came(tmp_path: Path) -> None:
    with sound_hub(tmp_path, config_of(tuple(NAMES))) as hub:
        for door, name in NAMES.items():
            for kind, (data, what) in CAME.items():
                if kind == door:
                    continue
                with socket.create_connection(("127.0.0.1", hub.port(door)), DEADLINE_S) as link:
                    link.sendall(data)
                    while link.recv(4096):
                        pass
                hub.wait_log_line(f"{what} came to the {name} port")
