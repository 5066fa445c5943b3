"""Doors from outside are given their numbers by the hub, which keeps them."""
from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.gateways.contract import CONTRACT, GatewaySpec
from gatehouse.gateways.door_numbers import FIXED, GIVEN, OWN, DoorNumbers, NoDoorNumber
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.registry import BUILT_IN, built_in
from gatehouse.kernel.message import DOOR_MASK, EXACTLY_ONCE, RETAIN, TRANSIENT
from tests.kernel.rig import Rig


def door(name: str) -> GatewaySpec:
    return GatewaySpec(name=name, contract=CONTRACT, config=dict, default_listen=(), session=cast(Any, print))


def test_numbers_are_what_the_mask_lets_through_and_leave_room_for_the_hub_s_own() -> None:
    numbers = {*FIXED, *GIVEN}
    assert numbers == {byte for byte in range(256) if byte & DOOR_MASK == byte} and len(GIVEN) == 24
    assert not DOOR_MASK & (TRANSIENT | RETAIN | EXACTLY_ONCE)
    assert {built_in(name).door: name for name in BUILT_IN} == OWN and set(OWN) <= set(FIXED)


def test_a_name_keeps_its_number_over_restarts_whoever_is_opened_first() -> None:
    rig = Rig()
    numbers = DoorNumbers(rig.kernel, [GATEWAY])
    for name in ("stomp", "coap"):
        numbers.open(door(name))
    assert (numbers.of("stomp"), numbers.of("coap"), numbers.of("mqtt")) == (8, 9, 1)
    rig.run()
    rig.restart()
    again = DoorNumbers(rig.kernel)
    again.open(door("nats"))
    again.open(door("coap"))
    assert (again.of("nats"), again.of("coap")) == (10, 9)
    assert again.names == OWN | {8: "stomp", 9: "coap", 10: "nats"}, "what came by a closed door has its name still"


def test_a_number_is_given_once_and_where_there_are_none_left_that_is_said() -> None:
    hub = FakeHub()
    numbers = hub.services.door_numbers
    for n in range(len(GIVEN)):
        numbers.open(door(f"door{n:02}"))
    assert [numbers.of(f"door{n:02}") for n in range(len(GIVEN))] == list(GIVEN)
    numbers.open(door("door07"))
    with pytest.raises(NoDoorNumber, match="24 doors from outside apart, and this hub has had as many: door00, door01"):
        numbers.open(door("one_more"))
