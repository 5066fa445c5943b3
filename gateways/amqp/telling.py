"""Names that are consumed from and are no queues: a connection is told there, in JSON, of what it asked for. Pure.

What there is no room for is not kept: a notice is dropped and counted.
"""
from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.channel import Origin
from gatehouse.gateways.amqp.methods import encode_method

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.kernel.message import Handle, Leased

JSON_PROPERTIES: Final = b"\x80\0\x10application/json"          # flags: a content type alone


class NoticeConsumer(Origin):
    """A consumer of such a name."""

    def __init__(self, channel: Channel, name: str, tag: str, *, no_ack: bool) -> None:
        super().__init__(channel)
        self.name = name
        self.tag = tag
        self._raw_tag = codec.short_string(tag)
        self._side = b"\0" + codec.short_string(name) + JSON_PROPERTIES
        self._no_ack = no_ack

    @abstractmethod
    def allowed(self) -> bool:
        """Whether the client may still listen."""

    def join(self) -> None:
        """It listens from now on."""

    def leave(self) -> None:
        """It listens no more."""

    def pump(self) -> None:
        """There may be room for what waits."""

    def on_gone(self) -> None:
        """The right to it was taken away."""
        self.leave()
        self.channel.listeners.pop(self.tag, None)
        if self.channel.connection.wants_cancels:
            self.channel.reply(encode_method("basic.cancel", consumer_tag=self.tag, no_wait=True))

    def send(self, document: dict[str, Any]) -> bool:
        """False where the socket has no room for it."""
        channel = self.channel
        if not channel.may_deliver():
            return False
        message: Leased = (None, 0, 1, 0, 0, None, orjson.dumps(document), b"", codec.DOOR)
        if self._no_ack:
            tag = channel.unacked.give_tags(1)
        else:
            tag = channel.unacked.add(self, [message[:3]])
            self.out += 1
        frames = codec.encode_deliveries(channel.raw, self._raw_tag, tag, channel.connection.body_max, [message],
                                         lambda _: self._side)
        channel.connection.write(frames)
        return True

    def settle(self, how: str, handles: list[Handle], *, at_once: bool = False) -> None:
        """It was told, whatever it does about it."""


def tell(channel: Channel, name: str, document: dict[str, Any]) -> bool:
    """Tell all of a connection's channels that listen under a name. False: there was no room with one of them."""
    sent = [listener.send(document) for each in channel.connection.channels for listener in each.listeners.values()
            if listener.name == name]
    return all(sent)
