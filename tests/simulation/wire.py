"""Connections of the simulator: a door's real session and a peer, joined by bytes that come in pieces or not at all."""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.contract import GatewaySpec, Services
from gatehouse.kernel.world import FakeTimer
from tests.simulation.hub import SimHub

if TYPE_CHECKING:
    from gatehouse.gateways.connections.native_sockets import Reader


class Peer(Protocol):
    """The other end of a connection: a client."""

    def on_data(self, data: bytes) -> None: ...

    def on_lost(self) -> None:
        """The connection is gone, whoever ended it, or the hub with it."""


def services_of(hub: SimHub) -> Services:
    """What the doors of one life of the hub are given."""
    now_ms = hub.world.loop.now_ms
    return Services("hub", hub.kernel, Admission(hub.kernel, now_ms), now_ms)


def _discard(data: bytes) -> None:
    """The connection is ending."""


class Wire:
    """`contract.Link`, and the network. `step` moves some bytes one way."""

    def __init__(self, hub: SimHub, services: Services, spec: GatewaySpec) -> None:
        assert spec.session is not None
        self.peer = "198.51.100.1:50000"
        self.certificate: str | None = None
        self.certificate_ends_ms = 0
        self.gone = False
        self._loop = hub.world.loop
        self._to_hub = bytearray()
        self._to_peer = bytearray()
        self._paused = False
        self._ending = False                       # the session wants no more; what it wrote still goes out
        self._timer: FakeTimer | None = None
        self.client: Peer | None = None
        self.open = True
        self._session = spec.session(self, services, spec.config())

    # ---- the session's side

    @property
    def unsent_bytes(self) -> int:
        return len(self._to_peer)

    @property
    def is_read(self) -> bool:
        return not self._paused

    def read_through(self, reader: Reader | None) -> bool:
        """There are no native sockets here."""
        return False

    @property
    def write(self) -> Callable[[bytes], None]:
        """As in the real connection, what is written after `close` goes nowhere."""
        return _discard if self._ending else self._to_peer.extend

    @property
    def write_many(self) -> Callable[[list[bytes]], None]:
        write = self.write
        return lambda parts: write(b"".join(parts))

    def close(self, reason: str = "") -> None:
        self._ending = True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def wake_at(self, when_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when_ms:
            self._timer = self._loop.call_at(max(when_ms, self._loop.now_ms() + 1), self._wake)

    def _wake(self) -> None:
        if self.open and not self._ending:
            self._session.handle_timer(self._loop.now_ms())

    # ---- the peer's side

    def send(self, data: bytes) -> None:
        self._to_hub += data

    def cut(self) -> None:
        """The network fails: what was under way is lost."""
        if self.open:
            self.open = False
            self._session.handle_closed()
            self._lost()

    def forget(self) -> None:
        """The hub is gone."""
        if self.open:
            self.open = False
            self._lost()

    def _lost(self) -> None:
        assert self.client is not None
        self.client.on_lost()

    # ---- the network

    def step(self, random: Random) -> bool:
        """Move a piece of what is under way; False if nothing can be moved."""
        if not self.open:
            return False
        if self._to_peer and (random.randrange(2) or self._ending or self._paused or not self._to_hub):
            data = self._take(self._to_peer, random)
            assert self.client is not None
            self.client.on_data(data)
            if not self._to_peer and not self._ending:
                self._session.handle_drained()
            return True
        if self._ending:
            self.cut()
            return True
        if self._to_hub and not self._paused:
            self._session.handle_data(self._take(self._to_hub, random))
            return True
        return False

    @staticmethod
    def _take(buffer: bytearray, random: Random) -> bytes:
        size = len(buffer) if random.randrange(3) else random.randrange(1, len(buffer) + 1)
        data = bytes(buffer[:size])
        del buffer[:size]
        return data
