"""What a client is owed and cannot be read: it is counted, and what is behind it comes."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.guard import ReadBack
from gatehouse.gateways.door_side import HeardAddress
from gatehouse.gateways.mqtt.backlog import Found, Range
from gatehouse.kernel.message import Fetched, FirstLevel, Place


@pytest.mark.parametrize(("start", "next_offset", "lost"),
                         [(0, -1, 0), (0, 5, 0), (0, 12, 2), (0, 100, 5), (13, 12, 3)])
def test_what_cannot_be_read_is_lost_as_what_retention_took(start: int, next_offset: int, lost: int) -> None:
    answer = Fetched(1, None, start, 100, [])
    answer.next_offset = next_offset
    address = HeardAddress(Place("/", "t/k", "t", 0, 1, b"k"), FirstLevel())
    assert Found(ReadBack(answer, [])).lost_of(Range(address, 10, 5, 1, False)) == lost
