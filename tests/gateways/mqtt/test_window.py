"""Packet ids in flight: runs in order, any order, the end of the ring, what is not in flight."""
from __future__ import annotations

import random

import pytest

from gatehouse.gateways.mqtt.codec import encode_pubacks
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.outbox import INFLIGHT_LIMIT, RUN_MAX, Window


def acks(*packet_ids: int) -> bytes:
    return encode_pubacks([packet_id.to_bytes(2, "big") for packet_id in packet_ids])


def after(given: int, acknowledged: int, inflight_max: int = INFLIGHT_LIMIT) -> Window:
    """A window that has given out `given` ids and got `acknowledged` of them back, in order."""
    window = Window(inflight_max)
    while given:
        count = min(given, window.room())
        first = window.take(count)
        given -= count
        back = min(acknowledged, count)
        data = acks(*[(first + n - 1) % 65535 + 1 for n in range(back)]) if back else b""
        assert window.acknowledge(data, 0) == len(data)
        acknowledged -= back
    return window


def test_ids_begin_at_1_and_pass_65535_without_0() -> None:
    window = Window(INFLIGHT_LIMIT)
    assert window.take(65530) == 1
    data = acks(*range(1, 65531))
    assert window.acknowledge(data, 0) == len(data)
    assert window.take(10) == 65531
    assert window.take(1) == 6


def test_room_is_what_is_not_in_flight() -> None:
    window = Window(3)
    assert window.room() == 3
    window.take(2)
    assert (window.room(), window.in_flight()) == (1, 2)
    window.acknowledge(acks(1), 0)
    assert (window.room(), window.in_flight()) == (2, 1)


def test_an_id_is_not_given_again_while_it_is_in_flight() -> None:
    window = Window(3)
    window.take(3)
    window.acknowledge(acks(2, 3), 0)
    assert (window.room(), window.in_flight()) == (2, 1), "receive maximum is what is not acknowledged"
    for _ in range((INFLIGHT_LIMIT - 3) // 2):
        first = window.take(2)
        window.acknowledge(acks(first, first + 1), 0)
        assert 1 not in (first, first + 1)
    assert (window.room(), window.in_flight()) == (1, 1), "the ring ends before id 1, which is not free"
    window.acknowledge(acks(1), 0)
    assert window.in_flight() == 0
    assert window.room() == 3


def test_qos_2_is_in_flight_until_it_is_complete() -> None:
    window = Window(3)
    assert window.take(2, True) == 1
    assert not window.has_received(3)
    assert window.has_received(1) and window.has_received(1)
    assert (window.room(), window.in_flight()) == (1, 2)
    assert window.complete(1) and not window.complete(1)
    assert (window.room(), window.in_flight()) == (2, 1)


def test_qos_2_is_not_acknowledged_with_a_puback() -> None:
    window = Window(10)
    window.take(1)
    window.take(1, True)
    with pytest.raises(ProtocolError, match="4.3.3-1"):
        window.acknowledge(acks(2), 0)
    assert window.acknowledge(acks(1, 2), 0) == 4, "what came before it counts"
    assert window.in_flight() == 1


@pytest.mark.parametrize("count", [1, 2, RUN_MAX - 1, RUN_MAX, RUN_MAX + 1, 3 * RUN_MAX + 7])
@pytest.mark.parametrize("start", [0, 65535 - 700])
def test_any_order_frees_the_window(count: int, start: int) -> None:
    chance = random.Random(count)
    for order in ("same", "reversed", "shuffled", "swapped"):
        window = after(start, start)
        window.take(count)
        ids = [(start + n) % 65535 + 1 for n in range(count)]
        if order == "reversed":
            ids.reverse()
        elif order == "shuffled":
            chance.shuffle(ids)
        elif order == "swapped":
            for at in range(0, count - 1, 50):
                ids[at], ids[at + 1] = ids[at + 1], ids[at]
        data = acks(*ids)
        assert window.acknowledge(data, 0) == len(data)
        assert (window.in_flight(), window.room()) == (0, INFLIGHT_LIMIT), order


def test_what_is_not_in_flight_is_ignored() -> None:
    window = after(10, 5)
    window.acknowledge(acks(5, 1, 11, 65535, 40000), 0)
    assert window.in_flight() == 5
    window.acknowledge(acks(7, 7, 7), 0)
    assert window.in_flight() == 4


def test_a_cut_acknowledgement_and_other_packets_are_left() -> None:
    window = after(10, 0)
    data = acks(1, 2) + b"\x40\x02\0"
    assert window.acknowledge(data, 0) == 8
    data = acks(3) + b"\xc0\0" + acks(4)
    assert window.acknowledge(data, 0) == 4
    assert window.in_flight() == 7


def test_packet_id_0_breaks_the_protocol() -> None:
    with pytest.raises(ProtocolError, match="2.3.1-1"):
        Window(10).acknowledge(acks(0), 0)


def test_one_of_another_length_is_left_to_others() -> None:
    window = after(10, 0)
    assert window.acknowledge(acks(1) + b"\x40\x03\0\x02\0", 0) == 4
    assert window.in_flight() == 9
