"""Answers to queues come over a link: what asks names an address, and what comes to that goes into the queue. Pure.

    stored      reply-to: $queue/NAME           a queue of this hub, which the other hub does not know
    goes out    reply-to: REPLIES/TAG/NAME      REPLIES is the link's setting: an address that comes back over it
    comes in    at REPLIES/TAG/NAME             into the queue NAME, if the tag is that of the name

The tag is made with the secret of the hub. So the other network puts answers into queues that have asked it, and
nothing into any other.
"""
# decision 295: a queue is answered across a link by an address that only who was asked knows
from __future__ import annotations

from hmac import compare_digest
from typing import Final

from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.message import Headers
from gatehouse.relay.origins import Marks

REPLY_TO: Final = b"reply-to"
_QUEUE: Final = QUEUE_PREFIX.encode()
DIRECT: Final = b"amq.rabbitmq.reply-to"
"""RabbitMQ's direct reply-to is no queue: it is answered on its own hub alone."""


class Replies:
    """How queues that ask over one link are answered; `under`: where answers come back, "": they do not."""

    def __init__(self, under: str, link: str, marks: Marks) -> None:
        self._under = f"{under}/" if under else ""
        self._link = link.encode()
        self._marks = marks

    def asks(self, body: bytes) -> bool:
        """Whether records of this piece may ask for answers to queues."""
        return bool(self._under) and body.find(_QUEUE) >= 0

    def to_address(self, headers: Headers) -> Headers:
        """The headers of what goes out; the same object where they name no queue."""
        for at, (name, value) in enumerate(headers):
            if name == REPLY_TO and value is not None and value.startswith(_QUEUE):
                queue = value[len(_QUEUE):]
                if queue.startswith(DIRECT):
                    return headers
                address = self._under.encode() + self._tag(queue) + b"/" + queue
                return (*headers[:at], (name, address), *headers[at + 1:])
        return headers

    def queue_at(self, address: str) -> str | None:
        """The address of the queue that what comes in is an answer to."""
        if not self._under or not address.startswith(self._under):
            return None
        tag, _, name = address[len(self._under):].partition("/")
        queue = name.encode()
        if not queue or not compare_digest(tag.encode(), self._tag(queue)):
            return None
        return QUEUE_PREFIX + name

    def _tag(self, queue: bytes) -> bytes:
        return self._marks.tag(b"reply to " + self._link + b"\0" + queue).hex().encode()
