"""Sessions that outlive connection and hub, against a real hub that is killed: with paho, and packet by packet.

Exactly once is counted: every value that was published comes once to whoever counts by packet id, as QoS 2 asks.
"""
from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Protocol
from urllib.request import urlopen

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gatehouse.gateways.mqtt.codec import packet_size
from gatehouse.gateways.mqtt.properties import SESSION_EXPIRY, Packet
from tests.gateways.mqtt.five import (
    Seen,
    ack_packet,
    connect_packet,
    packet,
    publish_packet,
    read_packets,
    subscribe_packet,
)
from tests.running_hub import RunningHub, free_port, gatehouse, sound_hub

WAIT_S = 60
COUNT = 200
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70


class Hub:
    """One hub on one folder and port, which is killed and started again."""

    def __init__(self, folder: Path, kernel: str = "") -> None:
        self.folder = folder
        self.kernel = kernel
        self.port = free_port()
        self.running = self._start()

    def _start(self) -> RunningHub:
        running = RunningHub(self.folder, f'[kernel]\n{self.kernel}\n'
                             f'[gateways.mqtt]\nlisten = ["127.0.0.1:{self.port}"]\n'
                             '[gateways.http]\nlisten = ["127.0.0.1:0"]\n')
        running.wait_ready()
        return running

    def kill(self) -> None:
        """`kill -9`, and a new one on what is left."""
        self.running.kill()
        self.running = self._start()


@pytest.fixture
def hub(tmp_path: Path):
    hub = Hub(tmp_path)
    yield hub
    said = hub.running.log()
    hub.running.kill()
    assert "Traceback" not in said, said


class Paho:
    """A paho client whose session outlives its connection."""

    def __init__(self, hub: Hub, client_id: str, protocol: MQTTProtocolVersion, keeps: bool = True) -> None:
        self.hub = hub
        self.values: Queue[tuple[bytes, int]] = Queue()
        self.present: Queue[bool] = Queue()
        self.granted: Queue[None] = Queue()
        self.published: Queue[int] = Queue()
        is_five = protocol == MQTTProtocolVersion.MQTTv5
        more = {} if is_five else {"clean_session": not keeps}
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=protocol, **more)
        self.paho.reconnect_delay_set(1, 1)
        self.paho.on_message = lambda client, data, message: self.values.put((message.payload, message.qos))
        self.paho.on_connect = lambda client, data, flags, code, properties: self.present.put(flags.session_present)
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.granted.put(None)
        self.paho.on_publish = lambda client, data, mid, code, properties: self.published.put(mid)
        self.connect_more = {}
        if is_five:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3_600 if keeps else 0
            self.connect_more = {"clean_start": not keeps, "properties": properties}

    def connect(self) -> bool:
        """Whether a session was present."""
        self.paho.connect("127.0.0.1", self.hub.port, keepalive=30, **self.connect_more)
        self.paho.loop_start()
        return self.present.get(timeout=WAIT_S)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.paho.subscribe(topic_filter, qos)
        self.granted.get(timeout=WAIT_S)

    def publish(self, topic: str, values: list[bytes], qos: int) -> None:
        for value in values:
            self.paho.publish(topic, value, qos)
        for _ in values:
            self.published.get(timeout=WAIT_S)

    def take(self, count: int) -> list[tuple[bytes, int]]:
        return [self.values.get(timeout=WAIT_S) for _ in range(count)]

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_a_sleeper_gets_what_it_missed_over_a_kill_of_the_hub(hub: Hub, protocol: MQTTProtocolVersion, qos: int
                                                              ) -> None:
    sleeper = Paho(hub, "sleeper", protocol)
    assert not sleeper.connect()
    sleeper.subscribe("plant/+/cmd", qos)
    sleeper.leave()
    sender = Paho(hub, "sender", protocol, keeps=False)
    sender.connect()
    values = [b"%d" % at for at in range(COUNT)]
    sender.publish("plant/1/cmd", values[:COUNT // 2], qos)
    hub.kill()
    sender.present.get(timeout=WAIT_S)               # paho comes back by itself
    sender.publish("plant/1/cmd", values[COUNT // 2:], qos)
    sender.leave()
    hub.kill()
    sleeper = Paho(hub, "sleeper", protocol)
    assert sleeper.connect()
    assert sleeper.take(COUNT) == [(value, qos) for value in values]
    with pytest.raises(Empty):
        sleeper.values.get(timeout=0.3)
    sleeper.leave()
    sleeper = Paho(hub, "sleeper", protocol)
    assert sleeper.connect()
    with pytest.raises(Empty):
        sleeper.values.get(timeout=0.3)
    sleeper.leave()


def test_exactly_once_while_the_hub_is_killed_again_and_again(hub: Hub) -> None:
    """Both clients come back by themselves, and go on where they were. (What is published while there is no connection
    paho sends before what it repeats, so the order is its own.)"""
    receiver, sender = (Paho(hub, name, MQTTProtocolVersion.MQTTv311) for name in ("receiver", "sender"))
    receiver.connect()
    receiver.subscribe("plant/#", 2)
    sender.connect()
    values = [b"%d" % at for at in range(COUNT)]
    for part in range(4):
        for value in values[part * COUNT // 4:(part + 1) * COUNT // 4]:
            sender.paho.publish("plant/1", value, 2)
        if part < 3:
            time.sleep(0.02 * part)                  # different moments of what is under way
            hub.kill()
    assert sorted(receiver.take(COUNT)) == sorted((value, 2) for value in values)
    with pytest.raises(Empty):
        receiver.values.get(timeout=0.3)
    sender.leave()
    receiver.leave()


class Reachable(Protocol):
    """A hub, as far as a client has to know."""

    port: int


class SimpleHub:
    def __init__(self, port: int) -> None:
        self.port = port


class Raw:
    """An MQTT 5 client that says one packet at a time."""

    def __init__(self, hub: Reachable, client_id: str, more: Sequence[tuple[int, int]] = (), **said: object) -> None:
        self.socket = socket.create_connection(("127.0.0.1", hub.port), timeout=WAIT_S)
        self._data = b""
        self.send(connect_packet(client_id, clean=False, properties=[(SESSION_EXPIRY, 3_600), *more], **said))
        self.connack = self.take()
        assert self.connack.kind is Packet.CONNACK and not self.connack.reason

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self) -> Seen:
        """The next packet."""
        while True:
            size = packet_size(self._data, 0, 1 << 28) if self._data else 0
            if size and size <= len(self._data):
                whole, self._data = self._data[:size], self._data[size:]
                return read_packets(whole)[0]
            data = self.socket.recv(65_536)
            assert data, "the hub has closed"
            self._data += data

    def expect(self, kind: Packet, packet_id: int) -> Seen:
        seen = self.take()
        assert (seen.kind, seen.packet_id) == (kind, packet_id), seen
        return seen


CutOff = Callable[[Hub, Raw], None]


def kill_hub(hub: Hub, client: Raw) -> None:
    hub.kill()
    client.socket.close()


def cut_client(hub: Hub, client: Raw) -> None:
    client.socket.close()


@pytest.mark.parametrize("cut", [kill_hub, cut_client])
@pytest.mark.parametrize("after", ["publish", "pubrec", "pubrel", "pubcomp"])
def test_qos_2_in_with_an_end_at_each_packet(hub: Hub, cut: CutOff, after: str) -> None:
    """The client repeats what was not answered; the message is stored once."""
    watcher = Raw(hub, "watcher")
    watcher.send(subscribe_packet(1, ("plant/#", 2)))
    watcher.expect(Packet.SUBACK, 1)
    client = Raw(hub, "c")
    client.send(publish_packet("plant/1", b"once", 7, qos=2))
    if after != "publish":
        client.expect(Packet.PUBREC, 7)
    if after in ("pubrel", "pubcomp"):
        client.send(ack_packet(PUBREL, 7))
    if after == "pubcomp":
        client.expect(Packet.PUBCOMP, 7)
    cut(hub, client)
    client = Raw(hub, "c")
    assert client.connack.session_present
    if after == "publish":
        client.send(publish_packet("plant/1", b"once", 7, qos=2, dup=True))
        client.expect(Packet.PUBREC, 7)
    if after != "pubcomp":
        client.send(ack_packet(PUBREL, 7))
        client.expect(Packet.PUBCOMP, 7)
    client.send(publish_packet("plant/1", b"last", 8, qos=2))
    client.expect(Packet.PUBREC, 8)
    watcher.socket.close()
    watcher = Raw(hub, "watcher")
    assert [watcher.take().value for _ in range(2)] == [b"once", b"last"]


def answer_until(client: Raw, packet_id: int, after: str) -> None:
    """Answer a QoS 2 PUBLISH with this id up to and with the packet `after`, or the hub's answer to that."""
    if after != "publish":
        client.send(ack_packet(PUBREC, packet_id))
        client.expect(Packet.PUBREL, packet_id)
    if after == "pubcomp":
        client.send(ack_packet(PUBCOMP, packet_id))
        time.sleep(0.5)                              # nobody is told that it is durable, which takes 20 ms


@pytest.mark.parametrize("cut", [kill_hub, cut_client])
@pytest.mark.parametrize("after", ["publish", "pubrec", "pubrel", "pubcomp"])
def test_qos_2_out_with_an_end_at_each_packet(hub: Hub, cut: CutOff, after: str) -> None:
    """The hub repeats what was not answered: PUBLISH with DUP before PUBREC, PUBREL after it, nothing after PUBCOMP."""
    client = Raw(hub, "c")
    client.send(subscribe_packet(1, ("plant/#", 2)))
    client.expect(Packet.SUBACK, 1)
    sender = Raw(hub, "sender")
    sender.send(publish_packet("plant/1", b"once", 7, qos=2))
    sender.expect(Packet.PUBREC, 7)
    message = client.take()
    assert (message.value, message.qos) == (b"once", 2)
    answer_until(client, message.packet_id, after)
    cut(hub, client)
    client = Raw(hub, "c")
    assert client.connack.session_present
    if after == "publish":
        again = client.take()
        assert (again.value, again.packet_id, again.first & 8) == (b"once", message.packet_id, 8)
        client.send(ack_packet(PUBREC, message.packet_id))
    if after != "pubcomp":
        client.expect(Packet.PUBREL, message.packet_id)
        client.send(ack_packet(PUBCOMP, message.packet_id))
    sender = Raw(hub, "sender")
    sender.send(publish_packet("plant/1", b"last", 8, qos=2))
    last = client.take()
    while last.kind is Packet.PUBREL:                # that of 7, which this sender never releases
        last = client.take()
    assert last.value == b"last"


def test_the_wills_of_clients_of_a_killed_hub_are_published(hub: Hub) -> None:
    watcher = Raw(hub, "watcher")
    watcher.send(subscribe_packet(1, ("wills/#", 1)))
    watcher.expect(Packet.SUBACK, 1)
    clients = [Raw(hub, f"c{at}", will=(f"wills/{at}", b"gone", 1, False, [])) for at in range(20)]
    said_goodbye = clients.pop()
    said_goodbye.send(packet(0xE0, b""))
    assert said_goodbye.socket.recv(1) == b""
    clients[0].send(publish_packet("other", b"", 1))
    clients[0].expect(Packet.PUBACK, 1)              # what was before it is durable, the goodbye too
    hub.kill()
    watcher = Raw(hub, "watcher")
    topics = {watcher.take().topic for _ in clients}
    assert topics == {f"wills/{at}" for at in range(19)}
    watcher.send(b"\xc0\0")
    assert watcher.take().first == 0xD0, "and no more of them"


def test_sessions_by_command_and_over_http(tmp_path: Path) -> None:
    config = f'[gateways.mqtt]\nlisten = ["127.0.0.1:{free_port()}"]\n[gateways.http]\nlisten = ["127.0.0.1:0"]\n'
    with sound_hub(tmp_path, config) as running:
        hub = SimpleHub(running.port("mqtt"))
        sleeper = Raw(hub, "meter/17")
        sleeper.send(subscribe_packet(1, ("plant/#", 1)))
        sleeper.expect(Packet.SUBACK, 1)
        sleeper.send(packet(0xE0, b""))
        assert sleeper.socket.recv(1) == b""
        sender = Raw(hub, "sender")
        sender.send(publish_packet("plant/1", b"a", 1))
        sender.expect(Packet.PUBACK, 1)
        url = f"http://127.0.0.1:{running.port('http')}"
        listed = gatehouse("sessions", "list", "--json", "--url", url)
        assert [json.loads(line)["client_id"] for line in listed.stdout.splitlines()] == ["meter/17", "sender"]
        shown = json.loads(gatehouse("sessions", "show", "meter/17", "--json", "--url", url).stdout)
        assert (shown["waiting"], shown["connected"], shown["dropped"]["limit"]) == (1, False, 0)
        told = gatehouse("sessions", "show", "meter/17", "--url", url).stdout
        assert "plant/#" in told and "dropped limit" in told
        assert gatehouse("sessions", "delete", "meter/17", "--url", url).returncode == 0
        assert gatehouse("sessions", "show", "meter/17", "--url", url).returncode != 0
        assert gatehouse("sessions", "delete", "sender", "--url", url).returncode == 0
        goodbye = sender.take()
        assert (goodbye.kind, goodbye.reason) == (Packet.DISCONNECT, 0x98)


def test_a_history_goes_on_after_a_kill_of_the_hub_in_the_middle_of_it(hub: Hub) -> None:
    """History first, then what was published meanwhile; what was in flight may come twice with QoS 1, nothing else."""
    sender = Paho(hub, "sender", MQTTProtocolVersion.MQTTv5, keeps=False)
    sender.connect()
    values = [b"%d" % at for at in range(COUNT)]
    sender.publish("plant/1", values, 1)
    device = Paho(hub, "device", MQTTProtocolVersion.MQTTv5)
    device.paho.manual_ack_set(True)
    seen: Queue[paho.MQTTMessage] = Queue()
    device.paho.on_message = lambda client, data, message: seen.put(message)
    device.connect_more["properties"].ReceiveMaximum = 10
    device.connect()
    properties = Properties(PacketTypes.SUBSCRIBE)
    properties.UserProperty = [("from", "earliest")]
    device.paho.subscribe("plant/#", options=SubscribeOptions(qos=1), properties=properties)
    device.granted.get(timeout=WAIT_S)
    got: list[bytes] = []

    def take(count: int) -> None:
        for _ in range(count):
            message = seen.get(timeout=WAIT_S)
            if message.payload not in got:
                got.append(message.payload)
            device.paho.ack(message.mid, message.qos)

    take(COUNT // 2)
    hub.kill()
    sender.present.get(timeout=WAIT_S)
    assert device.present.get(timeout=WAIT_S), "the session was there"
    values += [b"new 1", b"new 2"]
    sender.publish("plant/1", values[COUNT:], 1)
    while len(got) < len(values):
        take(1)
    assert got == values
    with pytest.raises(Empty):
        while True:                                      # what was acknowledged and not noted yet
            assert seen.get(timeout=0.3).payload in values[:COUNT]
    sender.leave()
    device.leave()


def test_a_client_of_3_1_1_asks_for_a_history_by_its_filter(hub: Hub) -> None:
    sender = Paho(hub, "sender", MQTTProtocolVersion.MQTTv311, keeps=False)
    sender.connect()
    sender.publish("plant/1", [b"a", b"b"], 2)
    device = Paho(hub, "device", MQTTProtocolVersion.MQTTv311)
    device.connect()
    device.subscribe("$from/earliest/plant/#", 1)
    assert device.take(2) == [(b"a", 1), (b"b", 1)]
    sender.publish("plant/1", [b"c"], 1)
    assert device.take(1) == [(b"c", 1)]
    sender.leave()
    device.leave()


def test_a_delayed_message_is_recalled_by_its_key_after_a_kill(hub: Hub) -> None:
    device = Paho(hub, "device", MQTTProtocolVersion.MQTTv311)
    device.connect()
    device.subscribe("plant/#", 1)
    device.publish("$delayed/600/$key/k1/plant/1", [b"recalled"], 1)
    device.publish("$delayed/2/$key/k2/plant/1", [b"stays"], 1)
    hub.kill()
    device.present.get(timeout=WAIT_S)
    device.publish("$recall", [b"k1"], 1)
    assert device.take(1) == [(b"stays", 1)]
    with urlopen(f"http://127.0.0.1:{hub.running.port('http')}/v1/scheduled", timeout=WAIT_S) as waiting:
        assert json.load(waiting)["scheduled"] == []
    device.leave()


@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_qos_0_is_kept_for_who_sleeps_over_a_kill_where_the_hub_is_set_so(tmp_path: Path,
                                                                          protocol: MQTTProtocolVersion) -> None:
    hub = Hub(tmp_path, "session_keeps_transient = true")
    sleeper = Paho(hub, "sleeper", protocol)
    sleeper.connect()
    sleeper.subscribe("plant/#", 1)
    sleeper.leave()
    publisher = Paho(hub, "publisher", protocol, keeps=False)
    publisher.connect()
    publisher.publish("plant/1", [b"a"], 0)
    publisher.publish("plant/1", [b"b"], 1)          # on the disk behind it
    publisher.leave()
    hub.kill()
    sleeper = Paho(hub, "sleeper", protocol)
    assert sleeper.connect()
    assert sleeper.take(2) == [(b"a", 0), (b"b", 1)]
    sleeper.leave()
    code, said = hub.running.stop()
    assert code == 0 and "Traceback" not in said


@pytest.mark.parametrize("after", ["publish", "pubrec", "pubrel", "pubcomp"])
def test_a_qos_2_delivery_of_a_group_with_a_kill_at_each_packet(hub: Hub, after: str) -> None:
    """It is completed by the session that comes back, and no other member of the group is handed it."""
    client = Raw(hub, "c")
    client.send(subscribe_packet(1, ("$share/crew/jobs/+", 2)))
    client.expect(Packet.SUBACK, 1)
    sender = Raw(hub, "sender")
    sender.send(publish_packet("jobs/1", b"once", 7, qos=2))
    sender.expect(Packet.PUBREC, 7)
    job = client.take()
    assert (job.value, job.qos) == (b"once", 2)
    answer_until(client, job.packet_id, after)
    kill_hub(hub, client)
    other = Raw(hub, "other")
    other.send(subscribe_packet(1, ("$share/crew/jobs/+", 2)))
    other.expect(Packet.SUBACK, 1)
    client = Raw(hub, "c")
    assert client.connack.session_present
    client.send(packet(0xA2, b"\0\2\0" + b"\0\x12$share/crew/jobs/+"))
    seen = client.take()
    if after == "publish":
        assert (seen.value, seen.packet_id, seen.first & 8) == (b"once", job.packet_id, 8)
        client.send(ack_packet(PUBREC, job.packet_id))
        client.expect(Packet.UNSUBACK, 2)
    if after != "pubcomp":
        assert after == "publish" or (seen.kind, seen.packet_id) == (Packet.PUBREL, job.packet_id)
        seen = client.take()
        client.send(ack_packet(PUBCOMP, job.packet_id))
    assert after == "publish" or seen.kind is Packet.UNSUBACK
    sender = Raw(hub, "sender")
    sender.send(publish_packet("jobs/1", b"last", 8, qos=2))
    assert other.take().value == b"last"


def test_retained_values_in_flight_come_again_over_a_kill_of_the_hub(hub: Hub) -> None:
    sender = Raw(hub, "sender")
    for at in range(3):
        sender.send(publish_packet(f"plant/{at}", b"%d" % at, at + 1, retain=True, qos=2))
        sender.take()
    client = Raw(hub, "c", more=[(0x21, 2)])
    client.send(subscribe_packet(1, ("plant/#", 2)))
    client.expect(Packet.SUBACK, 1)
    first = [client.take() for _ in range(2)]
    kill_hub(hub, client)
    client = Raw(hub, "c")
    again = [client.take() for _ in range(3)]
    assert [(seen.value, seen.packet_id) for seen in again[:2]] == [(seen.value, seen.packet_id) for seen in first]
    assert [(seen.value, seen.retain, bool(seen.first & 8)) for seen in again] == [
        (b"0", True, True), (b"1", True, True), (b"2", True, False)]
