"""Direct reply-to, RabbitMQ's: answers to requests that pass no queue.

    basic.consume from amq.rabbitmq.reply-to   without acknowledgements; one of a channel
    basic.publish with that as its reply_to    the responder is told amq.rabbitmq.reply-to.NAME, which nobody guesses
    basic.publish to that name                 (default exchange) goes to the channel that asked, if it is there still

An answer is not stored: it is handed over, or it is gone. A requester that does not take what is sent to it loses those
for which there is no room. So such a publish is confirmed at once, and returned if it is mandatory and nobody is there.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.amqp import codec

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.kernel.message import Leased

REPLY_TO: Final = codec.REPLY_TO.decode()
NAMED: Final = REPLY_TO + "."
LOST: Final = "direct_reply_lost"      # how the metrics call an answer for which there was no room


def is_reply_name(name: str) -> bool:
    """Whether this is direct reply-to's, and no queue."""
    return name.startswith(REPLY_TO)


class ReplyConsumer:
    """One channel's, which gets the answers to its requests."""

    def __init__(self, channel: Channel, tag: str, name: str) -> None:
        self.tag = tag
        self.name = name
        self._channel = channel
        self._raw_tag = codec.short_string(tag)

    def deliver(self, names: bytes, raw: bytes, body: bytes) -> None:
        """`names`: exchange and routing key; `raw`: flags and properties."""
        channel = self._channel
        connection = channel.connection
        if not channel.may_deliver():
            connection.count(LOST)
            return
        answer: Leased = (None, 0, 1, 0, 0, None, body, b"", codec.DOOR)
        side = names + raw
        tag = channel.unacked.give_tags(1)
        frames = codec.encode_deliveries(channel.raw, self._raw_tag, tag, connection.body_max, [answer], lambda _: side)
        connection.write(frames)
        connection.handed_out(1, len(frames))


class DirectReplies:
    """Who waits for answers, of the whole hub."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], ReplyConsumer] = {}       # by virtual host and name

    def add(self, vhost: str, consumer: ReplyConsumer) -> None:
        self._by_name[vhost, consumer.name] = consumer

    def remove(self, vhost: str, consumer: ReplyConsumer) -> None:
        self._by_name.pop((vhost, consumer.name), None)

    def find(self, vhost: str, name: str) -> ReplyConsumer | None:
        return self._by_name.get((vhost, name))
