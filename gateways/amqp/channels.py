"""The channels of one connection: opened, fed, refused, closed; what one turn of reading asked is done together.

A refused channel (channel.close) is not listened to until the client has agreed (channel.close-ok) or closes it itself.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.channel import Channel
from gatehouse.gateways.amqp.errors import AmqpError, ChannelFault, ConnectionFault
from gatehouse.gateways.amqp.methods import IDS, decode_method, encode_method, start_of

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.session import AmqpSession

CHANNEL_ERROR: Final = 504
NOT_ALLOWED: Final = 530
FRAME_ERROR: Final = 501
RESOURCE_ERROR: Final = 506
CONTENT_BYTES_MAX: Final = 64 << 20    # of contents that have begun on all channels of a connection
OPEN: Final = start_of("channel.open")
CLOSE: Final = start_of("channel.close")
CLOSE_OK: Final = start_of("channel.close-ok")


class Channels:
    def __init__(self, connection: AmqpSession) -> None:
        self.channel_max = 0
        self.open: dict[bytes, Channel] = {}
        """The channels that the hub listens to, by their number in two bytes."""

        self.tx_bytes = 0
        """Of publishes that wait for a commit, on all of them."""

        self._connection = connection
        self._content_bytes = 0                            # of contents that have begun and are not whole
        self._by_number: dict[int, Channel] = {}           # and those that were refused
        self._unfinished: dict[Channel, None] = {}

    def limit(self, channel_max: int) -> None:
        """How many channels there may be, as it was agreed."""
        self.channel_max = channel_max

    def keep_tx(self, size_bytes: int) -> None:
        """So much more of publishes waits for a commit; less where it is negative."""
        self.tx_bytes += size_bytes

    def has_tx(self, raw: bytes) -> bool:
        """Whether the channel of this number in two bytes has transactions."""
        channel = self.open.get(raw)
        return channel is not None and channel.tx is not None

    def __iter__(self) -> Iterator[Channel]:
        return iter([*self._by_number.values()])

    # ---- frames

    def take_frame(self, kind: int, number: int, payload: bytes) -> None:
        """One whole frame. Raises AmqpError for what ends the connection."""
        channel = self._by_number.get(number)
        if channel is None:
            self._open(kind, number, payload)
        elif channel.closing:
            if kind == codec.METHOD and payload[:4] in (CLOSE, CLOSE_OK):
                self._drop(channel)
                if payload[:4] == CLOSE:
                    channel.reply(encode_method("channel.close-ok"))
        else:
            try:
                self._take(channel, kind, payload)
            except ChannelFault as error:
                self.refuse(channel, error)

    def _take(self, channel: Channel, kind: int, payload: bytes) -> None:
        if kind == codec.METHOD:
            self._take_method(channel, payload)
        elif kind == codec.HEADER:
            channel.publishing.take_header(payload)
        elif kind == codec.BODY:
            channel.publishing.take_body(payload)
        else:
            raise ConnectionFault(FRAME_ERROR, f"a frame of the unknown type {kind}")
        if channel.publishing.pending:
            self._unfinished[channel] = None

    def _take_method(self, channel: Channel, payload: bytes) -> None:
        name, arguments = decode_method(payload)
        try:
            if name == "channel.close":
                self.finish_turn()
                self._connection.guard.settle()
                channel.hold_answers()
                channel.end()
                self._drop(channel)
                channel.reply(encode_method("channel.close-ok"))
            elif name == "channel.open":
                raise ConnectionFault(CHANNEL_ERROR, "second 'channel.open' seen")
            else:
                channel.take_method(name, arguments, payload)
        except AmqpError as error:
            error.method = error.method if any(error.method) else IDS[name]
            raise

    def take_acks(self, channel: Channel, tags: list[int]) -> None:
        """A burst of acknowledgements, negative tags standing for all before them too."""
        try:
            channel.ack_many(tags)
        except ChannelFault as error:
            error.method = IDS["basic.ack"]
            self.refuse(channel, error)

    # ---- what is put together

    def reserve(self, size: int) -> None:
        """A content of this size is on its way. Raises ConnectionFault 506 where too much is."""
        self._content_bytes += size
        if self._content_bytes > max(CONTENT_BYTES_MAX, self._connection.message_bytes_max):
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {CONTENT_BYTES_MAX} bytes begun at once")

    def note_part(self, size: int) -> None:  # decision 231
        """A part of a content has come, and waits for the rest. Raises ConnectionFault 506 where the connections of
        this door have too much of that together."""
        broker = self._connection.broker
        broker.note_begun(size)
        if broker.begun_bytes > broker.begun_bytes_max:
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {broker.begun_bytes_max} bytes begun at once "
                                                  "by all connections")

    def release(self, size: int, parts: int) -> None:
        """A content of this size, for which `reserve` was called, is whole or was dropped; `parts`: what had come."""
        self._content_bytes -= size
        self._connection.broker.note_begun(-parts)

    # ---- the end of a turn

    def note_unfinished(self, channel: Channel) -> None:
        """Remember a channel that has something to append or settle at the end of the turn."""
        self._unfinished[channel] = None

    def finish_turn(self) -> None:
        """Append and settle what the frames so far asked for. Raises AmqpError for what ends the connection."""
        while self._unfinished:
            channel = next(iter(self._unfinished))         # in the order they began: Spring publishes by many channels
            del self._unfinished[channel]
            try:
                channel.finish_turn()
            except ChannelFault as error:
                self.refuse(channel, error)

    def hold_answers(self) -> bool:
        """As each channel does. Whether any answer waits."""
        waiting = [channel.hold_answers() for channel in self]         # each of them, whatever the first says
        return any(waiting)

    # ---- opening and closing

    def _open(self, kind: int, number: int, payload: bytes) -> None:
        if kind != codec.METHOD or payload[:4] != OPEN:
            if payload[:4] == CLOSE_OK:
                return
            fault = ConnectionFault(CHANNEL_ERROR, "expected 'channel.open'")
            if kind == codec.METHOD:
                fault.method = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
            raise fault
        if len(self._by_number) >= self.channel_max:  # decision 325
            raise ConnectionFault(NOT_ALLOWED, f"number of channels opened ({len(self._by_number)}) has reached the "
                                               f"negotiated channel_max ({self.channel_max})")
        channel = self._by_number[number] = Channel(number, self._connection)
        self.open[channel.raw] = channel
        channel.reply(encode_method("channel.open-ok"))

    def refuse(self, channel: Channel, error: ChannelFault) -> None:
        """The channel is closed; what it had asked for before stands."""
        if self.open.get(channel.raw) is not channel:      # there may be another of its number by now
            return
        del self.open[channel.raw]
        self._unfinished[channel] = None
        self.finish_turn()
        self._connection.guard.settle()        # what is refused of that is told before another has its number
        self._connection.count(f"channel_{error.code}")
        channel.refuse(error)

    def _drop(self, channel: Channel) -> None:
        del self._by_number[channel.number]
        self.open.pop(channel.raw, None)

    def wake(self) -> None:
        """Deliver more on every channel: the client takes more."""
        for channel in self:
            channel.wake()

    def check_rights(self) -> None:
        """Consumers whose right has gone end."""
        for channel in self:
            channel.check_rights()

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {"subscriptions": sum([len(channel.consumers) for channel in self]),
                "channels": [channel.describe() for channel in self]}

    def end(self) -> None:
        """The connection has ended. Idempotent."""
        ended, self._by_number, self.open, self._unfinished = self._by_number, {}, {}, {}
        for channel in ended.values():
            channel.end()
