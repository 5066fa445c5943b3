"""What comes after connection.close, the hub's or the client's: it is read and dropped until the client goes. Pure.

A socket that is closed with bytes unread is reset by the system, and a client that was still sending would lose the
connection.close that tells it why. So the client is listened to until it answers, goes, or falls silent, and not
longer than `LONGEST_MS`. Where the client itself asked to close, the specification has it hang up once it is answered:
it is given the time to do so (decision 286). Frames are not put together any more: the answer is looked for in the
bytes, since what a client sends after a frame error has no frames to speak of.
"""
from __future__ import annotations

import re
from typing import Final

SILENCE_MS: Final = 3_000              # a client that says nothing for so long is left; RabbitMQ waits as long
STOPPING_MS: Final = 500               # the same when the hub stops
LEAVING_MS: Final = 500                # and for one that was told that it may go
LONGEST_MS: Final = 30_000             # one that goes on sending is cut off then
GOODBYE: Final = re.compile(rb"\x01\0\0.{4}\0\x0a\0(?P<method>[\x32\x33])", re.DOTALL)
GOODBYE_BYTES: Final = 11              # how much of the frame that is: connection.close, or close-ok


class Closing:
    """One connection's."""

    def __init__(self, now_ms: int, silence_ms: int, *, by_client: bool = False) -> None:
        self.asked_too = False
        """Whether the answer was a connection.close of the client's own, which crossed ours."""

        self.by_client = by_client
        """Whether the client asked to close and was answered: only its hanging up is awaited."""

        self._silence_ms = silence_ms
        self._cut_ms = now_ms + LONGEST_MS
        self._heard_ms = now_ms
        self._tail = b""

    @property
    def ends_ms(self) -> int:
        """When the client has had its time, unless it says something."""
        return min(self._heard_ms + self._silence_ms, self._cut_ms)

    def is_answered(self, data: bytes, now_ms: int) -> bool:
        """Whether the client has agreed; `data` is what came next."""
        self._heard_ms = now_ms
        if self.by_client:
            return False
        data = self._tail + data
        match = GOODBYE.search(data)
        self._tail = data[1 - GOODBYE_BYTES:]
        self.asked_too = match is not None and match["method"] == b"\x32"
        return match is not None
