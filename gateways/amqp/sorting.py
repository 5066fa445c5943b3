"""What each frame is while its client is slowed down for a limit: see `gateways.slowing`. Pure.

A message is a method, a header and bodies, on one channel one after the other: header and bodies go where their method
went. Acknowledgements and what is asked about consumers pass it, unless the channel has transactions: there they belong
to the commit that comes behind.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.gateways.amqp.codec import FRAME_OVERHEAD, HEARTBEAT, METHOD
from gatehouse.gateways.amqp.methods import start_of
from gatehouse.gateways.slowing import BEHIND, COUNTS, GOES, LAST

PUBLISH: Final = start_of("basic.publish")
CLOSE: Final = start_of("connection.close")
PASSING: Final = frozenset(map(start_of, (
    "basic.ack", "basic.nack", "basic.reject", "basic.qos", "basic.consume", "basic.cancel", "basic.get",
    "basic.recover", "channel.flow-ok", "channel.close-ok")))


def sort_frame(data: bytes, pos: int, *, frame_max: int, has_tx: Callable[[bytes], bool]) -> tuple[int, int, int]:
    """(size, kind, stream) of the frame at a place; the stream is its channel."""
    if pos + 7 > len(data):
        return 0, GOES, 0
    size = int.from_bytes(data[pos + 3:pos + 7], "big") + FRAME_OVERHEAD
    if size > frame_max:
        return len(data) - pos, LAST, 0
    channel, method = data[pos + 1:pos + 3], data[pos + 7:pos + 11]
    number = channel[0] << 8 | channel[1]
    if data[pos] == METHOD and method == PUBLISH:
        return size, COUNTS, number
    if number == 0:
        return size, LAST if data[pos] == METHOD and method == CLOSE else GOES, 0
    if data[pos] == HEARTBEAT or data[pos] == METHOD and method in PASSING and not has_tx(channel):
        return size, GOES, number
    return size, BEHIND, number
