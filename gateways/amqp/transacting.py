"""Half messages over AMQP 0-9-1, in its words: a header, three queues that are no queues, and a routing key.

    basic.publish with the header x-half = GROUP   is held; confirmed when it is durable and seen by nobody
        and x-half-id = NAME                       the same transaction, however often it is sent
        and x-half-check = {"after", "every", "times"}        when it is asked about
    basic.consume from $txn.half.GROUP             tells this connection of its own: {"id", "group", "delivery_tag"}, or
                                                   with "code" instead of the id where there is no room: a basic.nack
    basic.consume from $txn.check.GROUP            a member of the group: checks, shared with members of all doors
    basic.publish to the key $txn.decide           {"id", "decision": "commit" or "rollback"}; confirmed when durable,
    (default exchange)                             refused by basic.nack: unknown, decided otherwise
    basic.consume from $txn.decided                what came of this connection's own: {"id", "state"}, {"id", "code"}

A check that is not acknowledged counts against the prefetch, and nothing else: what is not decided is asked again. What
there is no room for is not kept: a notice is dropped and counted, a check comes again.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.amqp.errors import ChannelFault, ConnectionFault, not_placed, precondition, refused
from gatehouse.gateways.amqp.telling import NoticeConsumer, tell
from gatehouse.gateways.half_messages import CHECKS_AHEAD, Document, HalfClient, HalfListener, HalfWish, HalfWords
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import (
    InvalidFilter,
    KeptFull,
    KernelError,
    QueueFull,
    Stopping,
    StorageFull,
    TooManyTransactions,
)

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.mapping import HalfHeaders
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Handle, Stored

TXN: Final = "$txn."
WORDS: Final = HalfWords("$txn.half.", "$txn.check.", "$txn.decided")  # decision 46
DECIDE: Final = "$txn.decide"
RESOURCE_ERROR: Final = 506
NO_ROOM: Final = (QueueFull, TooManyTransactions)


def client_of(channel: Channel) -> HalfClient:
    """The connection of this channel: all of its channels are told."""
    return HalfClient(channel.connection.guard, WORDS, partial(tell, channel))


def hold(channel: Channel, half: HalfHeaders, messages: list[Message], tag: int) -> bool:
    """Hold a half message, which is several where CC or BCC name more queues; `channel.publishing` is told when it is
    durable, and calls the token. False where there is no room for it just now. Raises AmqpError."""
    client, group = client_of(channel), half.group
    about: Document = {"group": group, "name": half.name, "channel": channel.number, "delivery_tag": tag}

    def on_stored(answer: Stored) -> int:
        client.tell_held(group, about, answer)
        return tag

    try:
        size_bytes = sum([len(message[1] or b"") for message in messages])
        wish = HalfWish([HalfMessage(message) for message in messages], half.name, half.check, size_bytes)
        wait_ms = client.hold(group, lambda: wish, about, channel.publishing, on_stored)
    except NO_ROOM:
        return False
    except Denied:
        connection = channel.connection
        raise refused(f"access to the transactions of group '{group}' in vhost '{connection.vhost.name}' refused for "
                      f"user '{connection.rights.principal.name}'") from None
    except (Stopping, StorageFull, KeptFull) as error:               # as for any other message
        raise ConnectionFault(RESOURCE_ERROR, str(error)) from None
    except KernelError as error:
        raise not_placed(error) from None
    channel.connection.slow_down(wait_ms)
    return True


def decide(channel: Channel, tag: int, body: bytes) -> None:
    """Take a publish to `$txn.decide`. Nothing that comes behind it on its connection is confirmed before it."""
    def on_result(error: Exception | None) -> None:
        if not channel.closing:
            channel.publishing.confirm(tag, nack=error is not None)
        channel.connection.go_on()

    channel.connection.hold()
    client_of(channel).decide(body, on_result)


class CheckListener(NoticeConsumer):
    """A consumer of one of the names above."""

    def __init__(self, channel: Channel, name: str, tag: str, *, no_ack: bool, limit: int) -> None:
        """Raises ChannelFault 403, 404, 406."""
        super().__init__(channel, name, tag, no_ack=no_ack)
        connection = channel.connection
        check_listened(name)
        self._half = HalfListener(connection.services, WORDS, name, connection.vhost.name, connection.identity.name,
                                  self.send, credit=limit or CHECKS_AHEAD, is_acknowledged=not no_ack)
        if not self.allowed():
            raise refused(f"read access to queue '{name}' in vhost '{connection.vhost.name}' refused for user "
                          f"'{connection.rights.principal.name}'")

    def allowed(self) -> bool:
        return self._half.may_listen(self.channel.connection.rights.principal)

    def join(self) -> None:
        self._half.join()

    def leave(self) -> None:
        self._half.leave()

    def pump(self) -> None:
        self._half.pump()

    def settle(self, how: str, handles: list[Handle], *, at_once: bool = False) -> None:
        """Whatever became of them: there is room for as many checks again."""
        self._half.add_credit(len(handles))


def check_listened(name: str) -> None:
    """Whether this is one of the names above. Raises ChannelFault 404, 406."""
    try:
        WORDS.group_of(name)
    except InvalidFilter:
        raise ChannelFault(404, f"no queue '{name}': there are {WORDS.held}GROUP, {WORDS.check}GROUP and "
                                f"{WORDS.decided}") from None
    except KernelError as error:
        raise precondition(str(error)) from None
