"""The MQTT door with paho, a stock client, against a real hub with its log on disk."""
from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.running_hub import RunningHub, running_hub

WAIT_S = 60


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("mqtt"), "mqtt") as running:
        yield running


class Client:
    """A paho client with its network thread, whose call-backs become queues and events."""

    def __init__(self, hub: RunningHub, client_id: str = "", **options: Any) -> None:
        self.messages: Queue[paho.MQTTMessage] = Queue()
        self.connected: Queue[tuple[Any, Any]] = Queue()
        self.disconnected = threading.Event()
        self.granted: Queue[list[int]] = Queue()
        self.unsubscribed = threading.Event()
        options.setdefault("protocol", MQTTProtocolVersion.MQTTv311)
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, reconnect_on_failure=False, **options)
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = lambda client, data, flags, code, properties: self.connected.put((code, flags))
        self.paho.on_disconnect = lambda *_: self.disconnected.set()
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.granted.put(
            [code.value for code in codes])
        self.paho.on_unsubscribe = lambda *_: self.unsubscribed.set()
        self.port = hub.port("mqtt")

    def start(self) -> Client:
        self.paho.connect("127.0.0.1", self.port, keepalive=30)
        self.paho.loop_start()
        return self

    def __enter__(self) -> Client:
        self.start()
        code, _ = self.connected.get(timeout=WAIT_S)
        assert not code.is_failure, code
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        self.paho.subscribe(list(filters))
        return self.granted.get(timeout=WAIT_S)

    def receive(self, count: int) -> list[tuple[str, bytes, int]]:
        got = [self.messages.get(timeout=WAIT_S) for _ in range(count)]
        return [(message.topic, bytes(message.payload), message.qos) for message in got]

    def drop(self) -> None:
        """Lose the connection without a word."""
        sock = self.paho.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)


def test_a_message_crosses_with_both_levels_of_qos(hub: RunningHub) -> None:
    with Client(hub) as sender, Client(hub) as receiver:
        assert receiver.subscribe(("plant/+/temp", 1), ("other/#", 2)) == [1, 2]
        for topic, qos in (("plant/1/temp", 0), ("plant/2/temp", 1), ("plant/2/temp/x", 1), ("other", 1)):
            sender.paho.publish(topic, topic.encode(), qos).wait_for_publish(WAIT_S)
        assert receiver.receive(3) == [("plant/1/temp", b"plant/1/temp", 0), ("plant/2/temp", b"plant/2/temp", 1),
                                       ("other", b"other", 1)]


def test_ten_thousand_messages_of_every_size_arrive_once_and_in_order(hub: RunningHub) -> None:
    sender = Client(hub)
    sender.paho.max_inflight_messages_set(1000)
    with sender, Client(hub) as receiver:
        assert receiver.subscribe(("order/#", 1)) == [1]
        sent = [b"%d:" % n + b"x" * (n * 7 % 900) for n in range(10_000)]
        infos = [sender.paho.publish("order/one", payload, qos=1) for payload in sent]
        for info in infos:
            info.wait_for_publish(WAIT_S)
        assert [payload for _, payload, _ in receiver.receive(10_000)] == sent


def test_a_message_of_megabytes(hub: RunningHub) -> None:
    with Client(hub) as sender, Client(hub) as receiver:
        receiver.subscribe(("large", 1))
        payload = bytes(range(256)) * 8192
        sender.paho.publish("large", payload, qos=1).wait_for_publish(WAIT_S)
        assert receiver.receive(1) == [("large", payload, 1)]


def test_what_a_client_has_left_no_longer_comes(hub: RunningHub) -> None:
    with Client(hub) as sender, Client(hub) as receiver:
        receiver.subscribe(("leave/a", 1), ("leave/b", 1))
        receiver.paho.unsubscribe("leave/a")
        assert receiver.unsubscribed.wait(WAIT_S)
        for topic in ("leave/a", "leave/b"):
            sender.paho.publish(topic, b"x", qos=1).wait_for_publish(WAIT_S)
        assert receiver.receive(1) == [("leave/b", b"x", 1)]


def test_the_will_of_a_client_that_is_lost(hub: RunningHub) -> None:
    with Client(hub) as watcher:
        watcher.subscribe(("status/#", 1))
        doomed = Client(hub, "doomed")
        doomed.paho.will_set("status/doomed", b"gone", qos=1)
        with doomed:
            doomed.drop()
            assert watcher.receive(1) == [("status/doomed", b"gone", 1)]


def test_a_second_client_with_the_same_id_takes_over(hub: RunningHub) -> None:
    with Client(hub, "twin") as first, Client(hub, "twin") as second:
        assert first.disconnected.wait(WAIT_S)
        second.subscribe(("twin", 0))
        second.paho.publish("twin", b"me", qos=0)
        assert second.receive(1) == [("twin", b"me", 0)]


def test_a_client_that_asks_for_a_lasting_session_finds_it(hub: RunningHub) -> None:
    with Client(hub, "lasting", clean_session=False) as client:
        client.subscribe(("lasting", 1))
    again = Client(hub, "lasting", clean_session=False).start()
    code, flags = again.connected.get(timeout=WAIT_S)
    assert not code.is_failure and flags.session_present
    again.__exit__()


def test_a_wrong_password_is_refused(hub: RunningHub) -> None:
    client = Client(hub)
    client.paho.username_pw_set("someone", "something")
    client.start()
    code, _ = client.connected.get(timeout=WAIT_S)
    assert code.is_failure
    client.__exit__()


def test_reserved_filters_are_refused_and_a_reserved_topic_is_ignored(hub: RunningHub) -> None:
    with Client(hub) as client:
        assert client.subscribe(("$hub/#", 0), ("$share/g", 1), ("fine", 1)) == [0x80, 0x80, 1]
        client.paho.publish("$SYS/broker", b"x", qos=1).wait_for_publish(WAIT_S)
        client.paho.publish("fine", b"y", qos=1).wait_for_publish(WAIT_S)
        assert client.receive(1) == [("fine", b"y", 1)]


def test_members_of_a_shared_subscription_share_and_take_over_what_one_leaves(hub: RunningHub) -> None:
    with Client(hub) as sender, Client(hub) as one:
        assert one.subscribe(("$share/workers/jobs/#", 1)) == [1]
        two = Client(hub, manual_ack=True)
        with two:
            assert two.subscribe(("$share/workers/jobs/#", 1)) == [1]
            for n in range(20):
                sender.paho.publish(f"jobs/{n % 3}", b"%d" % n, qos=1).wait_for_publish(WAIT_S)
            held = [two.messages.get(timeout=WAIT_S).payload for _ in range(5)]
        got: set[bytes] = set()
        while len(got) < 20:
            message = one.messages.get(timeout=WAIT_S)
            assert message.topic == f"jobs/{int(message.payload) % 3}"
            assert message.payload not in got
            got.add(bytes(message.payload))
        assert set(held) <= got


def test_a_shared_subscription_with_wildcards_keeps_what_nobody_is_there_to_take(hub: RunningHub) -> None:
    with Client(hub) as sender:
        with Client(hub) as gone:
            assert gone.subscribe(("$share/crew/yard/+/temp", 1)) == [1]
        for place in ("a", "b"):
            sender.paho.publish(f"yard/{place}/temp", place.encode(), qos=1).wait_for_publish(WAIT_S)
            sender.paho.publish(f"yard/{place}/power", b"no", qos=1).wait_for_publish(WAIT_S)
        with Client(hub) as back:
            back.subscribe(("$share/crew/yard/+/temp", 1))
            assert sorted(back.receive(2)) == [("yard/a/temp", b"a", 1), ("yard/b/temp", b"b", 1)]


def test_a_hundred_subscribers_each_get_everything(hub: RunningHub) -> None:
    receivers = [Client(hub).start() for _ in range(100)]
    for n, receiver in enumerate(receivers):
        receiver.connected.get(timeout=WAIT_S)
        receiver.subscribe(("fan/out", n % 2))
    with Client(hub) as sender:
        for n in range(50):
            sender.paho.publish("fan/out", b"%d" % n, qos=1)
        for receiver in receivers:
            assert [payload for _, payload, _ in receiver.receive(50)] == [b"%d" % n for n in range(50)]
    for receiver in receivers:
        receiver.__exit__()


def test_peers_that_break_off_hurt_nobody(hub: RunningHub) -> None:
    with Client(hub) as steady:
        steady.subscribe(("steady", 1))
        for garbage in (b"", b"\x10", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00",
                        b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c\x30"):
            sock = socket.create_connection(("127.0.0.1", hub.port("mqtt")), WAIT_S)
            sock.sendall(garbage)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        steady.paho.publish("steady", b"still", qos=1).wait_for_publish(WAIT_S)
        assert steady.receive(1) == [("steady", b"still", 1)]


def test_stopping_acknowledges_what_was_taken_and_leaves_no_error(tmp_path: Path) -> None:
    with running_hub(tmp_path, "mqtt") as hub:
        with Client(hub) as sender:
            infos = [sender.paho.publish("t", b"%d" % n, qos=1) for n in range(200)]
            infos[0].wait_for_publish(WAIT_S)
            assert hub.stop()[0] == 0
            assert sender.disconnected.wait(WAIT_S)
        log = (tmp_path / "hub.log").read_text()
        assert "Traceback" not in log and "mistake" not in log
        assert hub.process.returncode == 0
