"""What each packet is while its client is slowed down for a limit: see `gateways.slowing`. Pure."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt.codec import (
    packet_size,
)
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.slowing import COUNTS, GOES, LAST

PUBLISH: Final = 3
DISCONNECT: Final = 14


def sort_packet(data: bytes, pos: int, *, packet_bytes_max: int) -> tuple[int, int, int]:
    """(size, kind, stream) of the packet at a place. Messages of another QoS are another kind: what is answered
    together can be refused together."""
    try:
        size = packet_size(data, pos, packet_bytes_max)
    except ProtocolError:
        return len(data) - pos, LAST, 0
    sort = data[pos] >> 4
    if sort == PUBLISH:
        return size, COUNTS + (data[pos] >> 1 & 3), 0
    return size, LAST if sort == DISCONNECT else GOES, 0
