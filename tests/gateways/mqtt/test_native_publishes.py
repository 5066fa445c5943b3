"""The native reader takes what is plain as the session would, and leaves everything else to it."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.door_side import PART_MESSAGES
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.codec import NEED_MORE, Meaning, decode_publishes, encode_pubacks
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.kernel.api import Message
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.shedding import Rung
from tests.gateways.limiting import drop_limit, set_limit
from tests.gateways.mqtt.five import connect_packet, publish_packet
from tests.gateways.mqtt.test_codec import publish
from tests.gateways.mqtt.test_gathered import ALL, IS_NATIVE, SMALL, Offering, connect
from tests.gateways.mqtt.test_window import acks

decode_read: Any = None
"""The native decoder; in a checkout, which has none, plain Python is compared with itself."""
try:
    from gatehouse.gateways.mqtt import native_publishes
    decode_read = native_publishes.decode_read
except ImportError:
    pass

PLACES = {b"t": 7, b"a/b": 8, b"\xc3\xa4": 9}
MEANINGS: dict[bytes, Meaning] = {b"\x02\x01\x01": (b"\x01x", 5), b"\x00": (b"never looked up", 1)}
LARGEST = 2000


def plain(data: bytes, five: bool, refused: int) -> tuple[list[Message], bytes] | None:
    """What `codec.decode_publishes` makes of a read that it uses up; None for any other."""
    messages: list[Message] = []
    packet_ids: list[bytes] = []
    exact: list[bytes] = []
    try:
        pos, why, size = decode_publishes(data, 0, LARGEST, PLACES, messages, packet_ids, {}, 1, exact,
                                          MEANINGS if five else None, refused)
    except ProtocolError:
        return None
    if pos < len(data) or why != NEED_MORE or exact or not messages:
        return None
    return messages, encode_pubacks(packet_ids) if packet_ids else b""


def native_read(data: bytes, five: bool, refused: int) -> tuple[list[Message], bytes] | None:
    if decode_read is None:
        return plain(data, five, refused)
    taken: tuple[list[Message], bytes] | None = decode_read(data, PLACES, MEANINGS if five else None, LARGEST, refused)
    return taken


packets = st.tuples(
    st.sampled_from([0x30, 0x31, 0x32, 0x33, 0x34, 0x3a, 0x3b, 0x36, 0x38, 0x40, 0xc0, 0xe0]),
    st.sampled_from([b"t", b"a/b", b"\xc3\xa4", b"", b"unknown"]), st.integers(0, 65535),
    st.sampled_from([b"\0", b"\x02\x01\x01", b"\x02\x01\x00", b"\x80\0", b"\xff\xff\xff\xff\x01", b""]),
    st.binary(max_size=200))


def packet(of: tuple[int, bytes, int, bytes, bytes], five: bool) -> bytes:
    first, topic, packet_id, given, value = of
    body = len(topic).to_bytes(2, "big") + topic + (packet_id.to_bytes(2, "big") if first & 6 else b"")
    body += (given if five else b"") + value
    size = len(body)
    return bytes([first]) + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + body


@settings(max_examples=600, deadline=None)
@given(st.lists(packets, max_size=6), st.booleans(), st.sampled_from([0, 1, 4, 6]), st.data())
def test_both_make_the_same_of_every_read(reads: list[Any], five: bool, refused: int, more: st.DataObject) -> None:
    data = bytearray(b"".join(packet(of, five) for of in reads))
    for _ in range(more.draw(st.integers(0, 2))):              # a byte is another, or the read ends early
        if data:
            at = more.draw(st.integers(0, len(data) - 1))
            if more.draw(st.booleans()):
                data[at] = more.draw(st.integers(0, 255))
            else:
                del data[at:]
    assert native_read(bytes(data), five, refused) == plain(bytes(data), five, refused)


@settings(max_examples=600, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_both_make_the_same_of_noise(data: bytes, five: bool) -> None:
    assert native_read(data, five, 0) == plain(data, five, 0)
    data = b"\x32" + data
    assert native_read(data, five, 0) == plain(data, five, 0)


def test_a_read_of_more_than_a_part_is_left_to_the_session() -> None:
    one = publish(b"t", b"x", 1)
    assert native_read(one * PART_MESSAGES, False, 0) == plain(one * PART_MESSAGES, False, 0)
    assert not IS_NATIVE or native_read(one * (PART_MESSAGES + 1), False, 0) is None


class Client:
    """One client, who has published once: what is plain is taken natively from then on."""

    def __init__(self, hub: FakeHub, name: str = "c", *, five: bool = False, **config: Any) -> None:
        session, self.link = hub.open(GATEWAY, MqttConfig(**config))
        self.hub = hub
        self.session = Offering(session, self.link)
        self.natively = 0
        self.send(connect_packet(name) if five else connect(name.encode()))
        self.send(publish_packet("t", b"first", 999) if five else publish(b"t", b"first", 999))
        hub.kernel.flush()
        self.link.take()
        self.natively = 0

    def send(self, data: bytes) -> None:
        """As the socket would."""
        before = Offering.natively
        self.session.handle_data(data)
        self.natively += Offering.natively - before

    def took(self, count: int) -> bool:
        """Whether so many reads were taken natively, where readers were built."""
        return self.natively == count * IS_NATIVE


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub(routes=ALL, settings=SMALL)


def test_what_is_plain_is_acknowledged_once_it_is_durable(hub: FakeHub) -> None:
    client = Client(hub)
    for packet_id in (1, 2, 3):
        client.send(publish(b"t", b"v%d" % packet_id, packet_id))
    assert client.took(3) and client.link.take() == b""
    hub.kernel.flush()
    assert client.link.take() == acks(1, 2, 3)
    client.send(publish(b"t", b"qos 0", 0) + publish(b"t", b"v4", 4))
    hub.kernel.flush()
    assert client.took(4) and client.link.take() == acks(4)


def test_acknowledgements_keep_the_order_of_publishes_however_they_are_taken(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    client.send(publish(b"new/topic", b"2", 2))                # the session's: it closes the reader
    client.send(publish(b"t", b"3", 3))
    client.send(b"\xc0\0")
    client.send(publish(b"t", b"4", 4))
    hub.kernel.flush()
    assert client.link.take().replace(b"\xd0\0", b"") == acks(1, 2, 3, 4)
    assert not IS_NATIVE or 1 <= client.natively < 4


def test_a_repeated_publish_under_way_is_one_message(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    again = bytearray(publish(b"t", b"1", 1))
    again[0] |= 8
    client.send(bytes(again))
    hub.kernel.flush()
    assert client.took(1) and client.link.take() == acks(1)


def test_a_full_disk_ends_the_connection_without_an_acknowledgement(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    client.send(publish(b"t", b"2", 2))
    hub.log.fault = LogFull("full")
    hub.kernel.flush()
    assert client.took(2) and client.link.closed and client.link.take() == b""


def test_what_is_too_large_is_refused_for_its_own_sender_alone(hub: FakeHub) -> None:
    wise, unwise = Client(hub, "wise"), Client(hub, "unwise")
    wise.send(publish(b"t", b"1", 1))
    unwise.send(publish(b"t", b"1", 1))
    unwise.send(publish(b"t", bytes(1500), 2))
    wise.send(publish(b"t", b"2", 2))
    hub.kernel.flush()
    assert wise.took(2) and wise.link.take() == acks(1, 2) and not wise.link.closed
    assert unwise.link.closed and unwise.link.take() in (b"", acks(1))


def test_rights_that_change_in_mid_stream_hold_for_what_comes_next(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    hub.services.admission.version = object()                  # as a rule that comes or goes makes it
    client.send(publish(b"t", b"2", 2))
    assert client.took(1)
    client.send(publish(b"t", b"3", 3))
    hub.kernel.flush()
    assert client.link.take() == acks(1, 2, 3)


def test_more_under_way_than_mqtt_5_allows_ends_the_connection(hub: FakeHub) -> None:
    client = Client(hub, five=True, receive_maximum=3)
    for packet_id in (1, 2, 3):
        client.send(publish_packet("t", b"x", packet_id))
    assert client.took(2) and not client.link.closed
    client.send(publish_packet("t", b"x", 4))
    assert client.link.closed


def test_a_hub_that_stops_acknowledges_what_was_taken(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    client.session.handle_stopping()
    assert not client.link.closed
    hub.kernel.flush()
    assert client.link.take() == acks(1) and client.link.closed


def test_a_client_that_publishes_natively_is_not_silent(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    reader: Any = client.link.reader
    assert reader is None or reader.idle_ms() < 60_000
    hub.kernel.flush()


def test_a_hub_with_too_much_to_do_has_the_session_judge_each_read(hub: FakeHub) -> None:
    """QoS 0 is dropped then: the reader leaves it to the session."""
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    hub.admission.shedding.level = Rung.QOS_0
    client.send(publish(b"t", b"lost", 0))
    client.send(publish(b"t", b"2", 2))
    assert client.took(1)
    hub.admission.shedding.level = 0
    hub.kernel.flush()
    assert client.link.take() == acks(1, 2)
    assert [record[3] for record in hub.kernel.records("all")][1:] == [b"1", b"2"]


def test_far_from_every_limit_reads_are_taken_natively_and_charged(hub: FakeHub) -> None:
    set_limit(hub, "hub", messages_per_s=100_000, bytes_per_s=10_000_000)
    set_limit(hub, "topic:*", id="2", messages_per_s=100_000)
    client = Client(hub)
    before = charged(hub, "1"), charged(hub, "2")
    for packet_id in (1, 2, 3, 4):
        client.send(publish(b"t", b"x", packet_id) + publish(b"t", b"y", 0))
    hub.kernel.flush()
    assert client.took(3), "a look settles what was set aside: the session weighs the first read, and sets aside anew"
    assert client.link.take() == acks(1, 2, 3, 4)
    assert (charged(hub, "1"), charged(hub, "2")) == (before[0] + 8, before[1] + 8)


def test_a_limit_that_comes_is_asked_with_the_next_read_and_one_that_is_near_by_the_session(hub: FakeHub) -> None:
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    assert client.took(1)
    set_limit(hub, "user:*", messages_per_s=4)
    for packet_id in range(2, 9):
        client.send(publish(b"t", b"x", packet_id))
    hub.kernel.flush()
    assert client.took(1) and client.link.take() == acks(1, 2, 3, 4, 5, 6), "four were there, one is owed"
    drop_limit(hub)
    hub.advance(2_000)
    hub.kernel.flush()
    assert client.link.take() == acks(7, 8)


def test_a_limit_of_somebody_else_costs_nothing_here(hub: FakeHub) -> None:
    set_limit(hub, "user:somebody", messages_per_s=1)
    client = Client(hub)
    client.send(publish(b"t", b"1", 1))
    client.send(publish(b"t", b"2", 2))
    hub.kernel.flush()
    assert client.took(2) and client.link.take() == acks(1, 2)


def charged(hub: FakeHub, id: str) -> int:
    """Messages that a limit has counted."""
    return sum(meter.messages_taken for meter in hub.admission.limits.most_used(id, 9))
