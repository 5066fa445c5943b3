"""Devices with sessions that outlive connection and hub: what they send and get with QoS 2, over crashes.

A device keeps what QoS 2 asks of it (what it has sent and not seen completed, packet ids that it has received),
whatever happens to the hub. So every message comes

    once           to each device whose subscription was answered before it was sent: never twice, and in the end
    in order       as each sender sent them

and what was answered (SUBACK, PUBREC, PUBCOMP) is so after every crash.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import EXACTLY_ONCE, Stored
from gatehouse.kernel.sessions.session_records import decode_flight, partition_key
from gatehouse.kernel.sessions.session_values import NEVER, Outgoing, Released, Subscribed
from gatehouse.kernel.state.state import Kind
from tests.simulation.checker import Broken

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

TENANT: Final = "devices"
FILTERS: Final = ("s/#", "s/+/b")        # the second is matched by half of what the first is, and overlaps it
ROUNDS: Final = 200                      # of waking, reading and answering until everything has come


class Sent:
    """One message that a device has sent, until it is completed."""

    def __init__(self, value: bytes, address: str, packet_id: int) -> None:
        self.value = value
        self.address = address
        self.packet_id = packet_id
        self.is_received = False             # PUBREC has come


class Device:
    """A client as it sees itself."""

    def __init__(self, number: int) -> None:
        self.client_id = f"device-{number}"
        self.outbox: list[Sent] = []
        self.received: set[int] = set()      # packet ids, PUBREL of which has not come
        self.got: list[bytes] = []
        self.filters: set[str] = set()       # answered
        self.owed: list[bytes] = []
        self.session: Any = None
        self.is_open = False
        self.life = 0                        # counts its connections
        self.queue: list[Outgoing | Released] = []

    def cut(self) -> None:
        """The connection is gone."""
        self.session, self.is_open, self.queue = None, False, []
        self.life += 1

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            life, then = answer.token                       # type: ignore[misc]
            if answer.error is None and life == self.life:
                then()


class Connection:
    """One connection of a device; nothing that it is told counts once there is another."""

    def __init__(self, sleepers: Sleepers, device: Device) -> None:
        self._sleepers = sleepers
        self._device = device
        self._life = device.life

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        if self._life == self._device.life:
            self._sleepers.check_durable(self._device, messages)
            self._device.queue += messages

    def may_have(self, address: str) -> bool:
        return True

    def on_session_ended(self, reason: str) -> None:
        if self._life == self._device.life:
            self._device.cut()


class Sleepers:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._devices = [Device(number) for number in range(3)]
        self._count = 0

    @property
    def _kernel(self) -> Any:
        return self._simulation.hub.kernel

    def crashed(self) -> None:
        """Their connections are gone; what they know is not."""
        for device in self._devices:
            device.cut()

    # ---- steps

    def wake_device(self, who: int, window: int, *_: int) -> None:
        device = self._devices[who % len(self._devices)]
        if device.session is not None and window % 3:
            return
        device.cut()                                         # a second connection takes over
        token = (device.life, partial(self._opened, device))
        try:
            device.session = self._kernel.sessions.attach(
                TENANT, device.client_id, "user", Connection(self, device), clean=False, expiry_ms=NEVER,
                window=1 + window % 7, owner=device, token=token)
        except KernelError:
            return

    def _opened(self, device: Device) -> None:
        if device.filters and not device.session.present:
            raise Broken(f"{device.client_id} had a session, and has none")
        there = {subscribed.filter for subscribed in device.session.subscriptions()}
        if not device.filters <= there:
            raise Broken(f"{device.client_id} was told of {device.filters}, and has {there}")
        device.is_open = True
        device.session.hold(False)
        for sent in device.outbox:                           # again, in order
            self._push(device, sent)

    def check_durable(self, device: Device, messages: list[Outgoing | Released]) -> None:
        """What is handed out is in the log with its packet id."""
        stored = self._kernel._state.get(Kind.FLIGHT, partition_key(device.session.session.partition_id))
        flight = decode_flight(stored)[2] if stored is not None else {}
        for message in messages:
            if message.packet_id not in flight:
                raise Broken(f"{device.client_id} was handed {message} before that was durable")

    def sleep_device(self, who: int, *_: int) -> None:
        device = self._devices[who % len(self._devices)]
        if device.session is not None:
            device.session.sleep(NEVER)
            device.cut()

    def subscribe_device(self, who: int, which: int, *_: int) -> None:
        device = self._devices[who % len(self._devices)]
        filter_text = FILTERS[which % len(FILTERS)]
        if device.is_open:
            self._try(device, lambda: device.session.subscribe(Subscribed(filter_text, 2)))
            self._try(device, lambda: device.session.flush(device, (device.life, partial(device.filters.add,
                                                                                         filter_text))))

    def send_exact(self, who: int, where: int, *_: int) -> None:
        device = self._devices[who % len(self._devices)]
        if not device.is_open or len(device.outbox) > 5:
            return
        self._count += 1
        packet_id = next(number for number in range(1, 99) if number not in [sent.packet_id for sent in device.outbox])
        sent = Sent(b"%s %d" % (device.client_id.encode(), self._count), "s/a/b" if where % 2 else "s/c", packet_id)
        device.outbox.append(sent)
        for other in self._devices:
            if other.filters & ({*FILTERS} if where % 2 else {FILTERS[0]}):
                other.owed.append(sent.value)
        self._push(device, sent)

    def _push(self, device: Device, sent: Sent) -> None:
        if not device.is_open:
            return
        if sent.is_received:
            self._try(device, lambda: device.session.release([sent.packet_id], device,
                                                             (device.life, partial(self._completed, device, sent))))
            return
        token = (device.life, partial(self._received, device, sent))
        if sent.packet_id in device.session.received():
            self._try(device, lambda: device.session.flush(device, token))
            return

        def append() -> None:
            placement = self._kernel.place(sent.address, tenant=TENANT)
            self._kernel.append([(placement, sent.value, b"\0", EXACTLY_ONCE | 1, 0)], device, token)
            device.session.take_in(sent.packet_id)

        self._try(device, append)

    def _received(self, device: Device, sent: Sent) -> None:
        sent.is_received = True
        self._push(device, sent)

    @staticmethod
    def _completed(device: Device, sent: Sent) -> None:
        if sent in device.outbox:
            device.outbox.remove(sent)

    def read_device(self, who: int, count: int, *_: int) -> None:
        """The device reads what has come, and answers."""
        device = self._devices[who % len(self._devices)]
        for message in device.queue[:1 + count % 9]:
            if not device.is_open:
                return
            device.queue.pop(0)
            self._read(device, message)

    def _read(self, device: Device, message: Outgoing | Released) -> None:
        packet_id = message.packet_id
        if isinstance(message, Outgoing):
            assert message.qos == 2 and message.value is not None
            if packet_id not in device.received:
                device.received.add(packet_id)
                self._got(device, message.value)
            self._try(device, lambda: device.session.receive(
                [packet_id], device, (device.life, lambda: device.queue.append(Released(packet_id)))))
        else:
            device.received.discard(packet_id)
            self._try(device, lambda: device.session.acknowledge([packet_id]))

    @staticmethod
    def _got(device: Device, value: bytes) -> None:
        if value in device.got:
            raise Broken(f"doubled: {device.client_id} got {value!r} twice")
        sender, _, number = value.partition(b" ")
        before = [int(other.partition(b" ")[2]) for other in device.got if other.startswith(sender + b" ")]
        if before and before[-1] > int(number):
            raise Broken(f"disorder: {device.client_id} got {value!r} after {before[-1]}")
        device.got.append(value)

    @staticmethod
    def _try(device: Device, call: Callable[[], object]) -> None:
        """A refusal ends the connection, as the door's does."""
        if device.session is None:
            return
        try:
            call()
        except KernelError:
            session = device.session
            device.cut()
            session.sleep(NEVER)

    # ---- the end

    def drain(self) -> None:
        """Everybody wakes and reads until nothing comes any more: then nobody is owed anything."""
        for _ in range(ROUNDS):
            for number, device in enumerate(self._devices):
                if device.session is None:
                    self.wake_device(number, 0)
                self._simulation.hub.settle(Random(0))
                while device.queue and device.is_open:
                    self.read_device(number, 8)
                    self._simulation.hub.settle(Random(0))
            if not any(device.outbox or device.received or device.queue or not device.is_open
                       for device in self._devices):
                break
        for device in self._devices:
            missing = [value for value in device.owed if value not in device.got]
            if missing:
                raise Broken(f"lost: {device.client_id} never got {missing[:5]}")
            if device.outbox:
                raise Broken(f"{device.client_id} was never told of {[sent.value for sent in device.outbox]}")
