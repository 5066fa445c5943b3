"""Random lives of sessions against a plain model: connect, sleep, take over, expire, kill, with messages in between.

The model knows of each session what it is owed, in order. What the log holds decides what a kill in the middle of a
flush has left of a publish; an acknowledgement that was not durable may bring its message again, with DUP.

GATEHOUSE_SESSIONS says how many sessions there are in all; `make soak` takes ten thousand.
"""
from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gatehouse.kernel.log.segments import RealDisk
from gatehouse.kernel.sessions.session_values import NEVER, Outgoing
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import MQTT, QOS_BITS, Client

SESSIONS_OF_A_LIFE = 20
LIVES = -(-int(os.environ.get("GATEHOUSE_SESSIONS", "240")) // SESSIONS_OF_A_LIFE)
FILTERS = ("plant/#", "plant/+/temp", "plant/1/temp", "#", "fleet/1", "+/1/#")
ADDRESSES = ("plant/1/temp", "plant/2/temp", "plant/1", "fleet/1", "fleet/2/temp")
MATCHES = {(filter_text, address) for filter_text in FILTERS for address in ADDRESSES
           if {"plant/#": address.startswith("plant"), "plant/+/temp": address in ADDRESSES[:2],
               "plant/1/temp": address == "plant/1/temp", "#": True, "fleet/1": address == "fleet/1",
               "+/1/#": address.split("/")[1] == "1"}[filter_text]}


@dataclass
class Expected:
    """What one session is owed, by the model."""

    filters: dict[str, int] = field(default_factory=dict)
    owed: list[tuple[bytes, int]] = field(default_factory=list)      # value, QoS; in order
    doubtful: list[tuple[bytes, int]] = field(default_factory=list)  # acknowledged, and perhaps not durable
    until_ms: int | None = None                                      # None: connected


class Life:
    """One hub with some clients."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(folder, KernelSettings(segment_bytes=1 << 18, default_partitions=1, checkpoint_ms=200))
        self.clients = [Client(self.rig, f"c{at}") for at in range(self.chance.randint(2, 7))]
        self.expected: dict[str, Expected] = {}
        self.count = 0
        self.sessions = 0                # that there have been

    def step(self) -> None:
        self.chance.choice((self.connect, self.connect, self.sleep, self.publish, self.publish, self.publish,
                            self.publish, self.subscribe, self.subscribe, self.unsubscribe, self.acknowledge,
                            self.acknowledge, self.acknowledge, self.wait, self.kill, self.kill_amid))()
        for client in self.clients:
            if client.session is not None:
                self.check(client)

    def connect(self) -> None:
        client = self.chance.choice(self.clients)
        clean = self.chance.random() < 0.15
        expiry_ms = self.chance.choice((NEVER, 20_000, 200_000))
        present = client.connect(clean=clean, expiry_ms=expiry_ms, window=self.chance.choice((1, 3, 50)))
        known = self.expected.get(client.client_id)
        assert present == (known is not None and not clean)
        if not present:
            self.sessions += 1
            self.expected[client.client_id] = Expected()
        self.expected[client.client_id].until_ms = None
        if present:
            described = self.rig.kernel.sessions.describe("/", client.client_id)
            assert known is not None and described is not None
            again = described.in_flight + described.waiting - len(known.owed)
            assert 0 <= again <= len(known.doubtful), "the last of what was acknowledged, at most"
            known.owed = known.doubtful[len(known.doubtful) - again:] + known.owed
        self.expected[client.client_id].doubtful.clear()

    def check(self, client: Client) -> None:
        """What was handed to a client is what comes next of what it is owed."""
        self.rig.run()
        known = self.expected[client.client_id]
        handed = [(message.value, message.qos) for message in client.inbox if isinstance(message, Outgoing)]
        owed = known.owed[:len(handed)]
        assert handed == owed, client.client_id
        assert len(handed) >= min(len(known.owed), 1), "whoever is owed something, and has acknowledged all, gets some"

    def sleep(self) -> None:
        client = self.chance.choice(self.clients)
        if client.session is None:
            return
        expiry_ms = self.chance.choice((0, NEVER, NEVER, 20_000, 200_000))
        client.sleep(expiry_ms)
        client.inbox = []
        if expiry_ms == 0:
            del self.expected[client.client_id]
        else:
            self.expected[client.client_id].until_ms = 1 << 62 if expiry_ms == NEVER else self.now_ms() + expiry_ms

    def now_ms(self) -> int:
        return self.rig.world.loop.now_ms()

    def _next(self) -> tuple[str, bytes, int]:
        self.count += 1
        return self.chance.choice(ADDRESSES), b"%d" % self.count, self.chance.choice((0, 1, 1, 2))

    def publish(self) -> None:
        address, value, qos = self._next()
        self.rig.publish(address, value, attributes=MQTT | QOS_BITS[qos])
        self.owe(address, value, qos)

    def owe(self, address: str, value: bytes, qos: int) -> None:
        for known in self.expected.values():
            granted = [granted for filter_text, granted in known.filters.items() if (filter_text, address) in MATCHES]
            if qos and any(granted):
                known.owed.append((value, min(qos, max(granted))))

    def subscribe(self) -> None:
        client = self.chance.choice(self.clients)
        if client.session is not None:
            filter_text, qos = self.chance.choice(FILTERS), self.chance.choice((0, 1, 2))
            client.subscribe(filter_text, qos)
            known = self.expected[client.client_id]
            known.filters[filter_text] = qos

    def unsubscribe(self) -> None:
        client = self.chance.choice(self.clients)
        if client.session is not None:
            filter_text = self.chance.choice(FILTERS)
            known = self.expected[client.client_id]
            assert client.session.unsubscribe(filter_text) == (filter_text in known.filters)
            known.filters.pop(filter_text, None)
            self.rig.run()

    def acknowledge(self) -> None:
        client = self.chance.choice(self.clients)
        if client.session is None or not client.inbox:
            return
        count = self.chance.randint(1, len(client.inbox))
        done, client.inbox = client.inbox[:count], client.inbox[count:]
        client.acknowledge(done)
        known = self.expected[client.client_id]
        known.doubtful += known.owed[:count]
        del known.owed[:count]

    def wait(self) -> None:
        self.rig.world.advance(self.chance.choice((100, 5_000, 60_000)))
        for known in self.expected.values():
            if known.until_ms is None:                   # what a kill has taken is not written any more
                known.doubtful.clear()
        self.expire()

    def expire(self) -> None:
        self.expected = {name: known for name, known in self.expected.items()
                         if known.until_ms is None or known.until_ms > self.now_ms()}

    def kill(self) -> None:
        self.rig.restart(lose_index=self.chance.random() < 0.2)
        expiries = {session.client_id: session.expiry_ms for session in self.rig.kernel.sessions.page("/", "", 99)}
        for client in self.clients:
            client.session, client.inbox = None, []
            known = self.expected.get(client.client_id)
            if known is not None and known.until_ms is None:
                expiry_ms = expiries[client.client_id]
                known.until_ms = 1 << 62 if expiry_ms == NEVER else self.now_ms() + expiry_ms
        self.expire()
        self.rig.run()

    def kill_amid(self) -> None:
        """A kill at any step of a flush."""
        address, value, qos = self._next()
        rig = self.rig
        rig.kernel.append([(rig.kernel.place(address), value, b"\0", MQTT | QOS_BITS[qos], 0)], None)
        for _ in range(self.chance.randint(0, 12)):
            if not rig.world.loop.step():
                rig.world._step_workers()
        self.kill()
        if any(record[3] == value for topic in rig.kernel.topics() for record in rig.read(topic.name)):
            self.owe(address, value, qos)


@pytest.mark.parametrize("seed", range(LIVES))
def test_random_lives(seed: int, tmp_path: Path) -> None:
    life = Life(seed, tmp_path)
    assert isinstance(life.rig.disk, RealDisk)
    while life.sessions < SESSIONS_OF_A_LIFE:
        life.step()
