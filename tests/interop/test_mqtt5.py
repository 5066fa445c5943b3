"""The MQTT door with paho as an MQTT 5 client, and QoS 2, against a real hub with its log on disk."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.running_hub import RunningHub, running_hub

WAIT_S = 60


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("mqtt5"), "mqtt") as running:
        yield running


class Client:
    """A paho client with its network thread, whose call-backs become queues."""

    def __init__(self, hub: RunningHub, client_id: str, protocol: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv5,
                 connect_properties: Properties | None = None) -> None:
        self.messages: Queue[paho.MQTTMessage] = Queue()
        self.connected: Queue[tuple[Any, Any, Any]] = Queue()
        self.published: Queue[tuple[int, int]] = Queue()
        self.granted: Queue[list[int]] = Queue()
        self.ended: Queue[int] = Queue()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=protocol, reconnect_on_failure=False)
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = lambda client, data, flags, code, properties: self.connected.put(
            (code, flags, properties))
        self.paho.on_publish = lambda client, data, mid, code, properties: self.published.put((mid, code.value))
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.granted.put(
            [code.value for code in codes])
        self.paho.on_disconnect = lambda client, data, flags, code, properties: self.ended.put(code.value)
        self.port = hub.port("mqtt")
        self.connect_properties = connect_properties
        self.connack: Properties | None = None
        self.lock = threading.Lock()

    def __enter__(self) -> Client:
        more = {"properties": self.connect_properties} if self.connect_properties is not None else {}
        self.paho.connect("127.0.0.1", self.port, keepalive=30, **more)
        self.paho.loop_start()
        code, _, self.connack = self.connected.get(timeout=WAIT_S)
        assert not code.is_failure, code
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, *filters: tuple[str, Any]) -> list[int]:
        self.paho.subscribe(list(filters))
        return self.granted.get(timeout=WAIT_S)

    def publish(self, topic: str, payload: bytes, qos: int, **said: Any) -> int:
        """Returns the reason code."""
        with self.lock:
            info = self.paho.publish(topic, payload, qos, **said)
            mid, code = self.published.get(timeout=WAIT_S)
            assert mid == info.mid
            return code

    def receive(self, count: int) -> list[paho.MQTTMessage]:
        return [self.messages.get(timeout=WAIT_S) for _ in range(count)]


def test_an_mqtt_5_client_is_told_limits_and_reasons(hub: RunningHub) -> None:
    with Client(hub, "limits") as client:
        assert client.connack is not None
        assert client.connack.ReceiveMaximum == 8192 and client.connack.TopicAliasMaximum == 64
        assert client.subscribe(("$hub/#", SubscribeOptions(1)), ("fine/#", SubscribeOptions(2))) == [0x87, 2]
        assert client.publish("$SYS/x", b"", 1) == 0x87
        assert client.publish("fine/x", b"", 1) == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_cross_from_one_client_to_another(hub: RunningHub, qos: int) -> None:
    with Client(hub, "from") as sender, Client(hub, "to") as receiver:
        receiver.subscribe(("cross/#", SubscribeOptions(2)))
        said = Properties(PacketTypes.PUBLISH)
        said.ContentType = "text/plain"
        said.CorrelationData = b"\0\1"
        said.ResponseTopic = "answers/here"
        said.PayloadFormatIndicator = 1
        said.MessageExpiryInterval = 3600
        said.UserProperty = [("a", "1"), ("b", "2"), ("a", "1")]
        sender.publish("cross/x", b"hello", qos, properties=said)
        [message] = receiver.receive(1)
        seen = message.properties
        assert (message.topic, message.payload, message.qos) == ("cross/x", b"hello", qos)
        assert seen is not None
        assert (seen.ContentType, seen.CorrelationData, seen.ResponseTopic, seen.PayloadFormatIndicator) == (
            "text/plain", b"\0\1", "answers/here", 1)
        assert 3500 < seen.MessageExpiryInterval <= 3600
        assert seen.UserProperty == [("a", "1"), ("b", "2"), ("a", "1")]


def test_a_request_is_answered(hub: RunningHub) -> None:
    asks = Properties(PacketTypes.CONNECT)
    asks.RequestResponseInformation = 1
    with Client(hub, "worker") as worker, Client(hub, "asker", connect_properties=asks) as asker:
        assert asker.connack is not None
        answers = asker.connack.ResponseInformation + "/1"
        asker.subscribe((answers, SubscribeOptions(1)))
        worker.subscribe(("work", SubscribeOptions(1)))
        said = Properties(PacketTypes.PUBLISH)
        said.ResponseTopic, said.CorrelationData = answers, b"17"
        asker.publish("work", b"6*7", 1, properties=said)
        [request] = worker.receive(1)
        reply = Properties(PacketTypes.PUBLISH)
        assert request.properties is not None
        reply.CorrelationData = request.properties.CorrelationData
        worker.publish(request.properties.ResponseTopic, b"42", 1, properties=reply)
        [answer] = asker.receive(1)
        assert answer.properties is not None
        assert (answer.payload, answer.properties.CorrelationData) == (b"42", b"17")


@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv31, MQTTProtocolVersion.MQTTv311,
                                      MQTTProtocolVersion.MQTTv5])
def test_qos_2_arrives_once_and_in_order(hub: RunningHub, protocol: MQTTProtocolVersion) -> None:
    five = protocol is MQTTProtocolVersion.MQTTv5
    topic = f"exact/{int(protocol)}"
    sender = Client(hub, "exact-s", protocol)
    sender.paho.max_inflight_messages_set(100)
    with sender, Client(hub, "exact-r", protocol) as receiver:
        assert receiver.subscribe((topic, SubscribeOptions(2) if five else 2)) == [2]
        payloads = [b"%d" % n for n in range(2000)]
        infos = [sender.paho.publish(topic, payload, 2) for payload in payloads]
        for info in infos:
            info.wait_for_publish(WAIT_S)
        got = receiver.receive(len(payloads))
        assert [bytes(message.payload) for message in got] == payloads
        assert {message.qos for message in got} == {2}
        sender.paho.publish(topic, b"last", 1).wait_for_publish(WAIT_S)
        assert [bytes(message.payload) for message in receiver.receive(1)] == [b"last"], "nothing came twice"


def test_who_is_taken_over_is_told(hub: RunningHub) -> None:
    with Client(hub, "same") as first, Client(hub, "same"):
        assert first.ended.get(timeout=WAIT_S) == 0x8E
