"""Wrong logins by the hundred at a real hub, from many networks: every address of 127.0.0.0/8 is this machine's.

What counts is the order in which logins are answered, not how long this machine takes for them.
"""
from __future__ import annotations

import select
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub

WAIT_S = 120.0
NETWORKS = 400            # with two guesses each: to look at all of them takes both threads ten seconds and more
LET_IN = b"\x20\2\0\0"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path) as running:
        yield running


def connect(guarded: GuardedHub, user: str, password: str, source: str) -> socket.socket:
    """A client that has sent its CONNECT."""
    def text(value: str) -> bytes:
        return len(value).to_bytes(2, "big") + value.encode()

    body = b"\0\4MQTT\4\xc2\0\0" + text("") + text(user) + text(password)
    client = socket.create_connection(("127.0.0.1", guarded.ports("mqtt")[0]), WAIT_S, (source, 0))
    client.sendall(bytes((0x10, len(body))) + body)
    return client


def metric(guarded: GuardedHub, line: str) -> float:
    """The value of this sample; 0 where there is none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{guarded.ports('http')[0]}/metrics", timeout=WAIT_S) as page:
        samples = dict(one.rsplit(" ", 1) for one in page.read().decode().splitlines() if not one.startswith("#"))
    return float(samples.get(line, 0))


def answered(clients: list[socket.socket]) -> int:
    """How many of them have something to read."""
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLIN)
    return len(poll.poll(0))


def test_a_newcomer_comes_before_a_flood_and_who_hangs_up_is_not_checked(guarded: GuardedHub) -> None:
    flood = [connect(guarded, f"nobody{n}", "wrong password", f"127.1.{n % NETWORKS // 4}.{n % 4 + 1}")
             for n in range(2 * NETWORKS)]
    try:
        newcomer = connect(guarded, "ada", PASSWORD, "127.2.0.7")
        assert newcomer.recv(4) == LET_IN
        assert answered(flood) < NETWORKS, "most of those that came before it still wait"
    finally:
        for client in flood:
            client.close()
    end_s = time.monotonic() + WAIT_S
    while metric(guarded, "gatehouse_passwords_waiting"):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert metric(guarded, 'gatehouse_events_total{door="mqtt",event="login_gone"}') > NETWORKS / 2
    newcomer.close()
