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

from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.consuming import Origin
from gatehouse.gateways.amqp.errors import ChannelFault, ConnectionFault, not_placed, precondition, refused
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.checks import (
    InvalidDecision,
    describe_check,
    describe_decided,
    describe_refused,
    read_check_settings,
    read_decision,
)
from gatehouse.kernel.errors import KeptFull, KernelError, QueueFull, Stopping, StorageFull, TooManyTransactions
from gatehouse.kernel.groups.settings import check_name
from gatehouse.transactions.coordinator import Decision, Half

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.mapping import HalfHeaders
    from gatehouse.kernel.message import Handle, Leased, Message, Stored
    from gatehouse.transactions.coordinator import Check, Membership

TXN: Final = "$txn."
HELD: Final = "$txn.half."
CHECK: Final = "$txn.check."  # decision 46
DECIDED: Final = "$txn.decided"
DECIDE: Final = "$txn.decide"
CHECKS_AHEAD: Final = 100              # that a member without a prefetch may have and not have acknowledged
RESOURCE_ERROR: Final = 506
NO_ROOM: Final = (QueueFull, TooManyTransactions)
JSON_PROPERTIES: Final = b"\x80\0\x10application/json"          # flags: a content type alone


# ---- half messages

class HeldHalf:
    """The token of a half message that is on its way."""

    def __init__(self, channel: Channel, half: HalfHeaders, tag: int) -> None:
        self._channel = channel
        self._half = half
        self._tag = tag

    def told(self, answer: Stored) -> int:
        """Tell whoever listens on this connection the half message's id, or why it has none. Returns its delivery
        tag."""
        if answer.error is None:
            self._tell({"id": str(answer.positions[0][2])})
        else:
            self.refuse(answer.error)
        return self._tag

    def refuse(self, error: Exception) -> None:
        """Tell whoever listens that the half message is not held: the same one may be sent again."""
        code = getattr(error, "code", "internal_error")
        self._channel.connection.count(f"half_{code}")
        self._tell({"code": code, "detail": str(error)})

    def _tell(self, outcome: dict[str, str]) -> None:
        group, name, _ = self._half
        _tell(self._channel, HELD + group, {**outcome, "group": group, "name": name, "channel": self._channel.number,
                                            "delivery_tag": self._tag})


def hold(channel: Channel, half: HalfHeaders, message: Message, tag: int) -> bool:
    """Hold a half message; `channel.publishing` is told when it is durable. False where there is no room for it just
    now. Raises AmqpError."""
    connection, group = channel.connection, half.group
    held, halves = HeldHalf(channel, half, tag), [Half(message)]
    try:
        check_name(group, "group")
        connection.rights.require_transact(group)
        settings = None
        if half.check is not None:
            settings = read_check_settings(half.check, connection.transactions.checks_for(halves, group))
        connection.transactions.begin(halves, group=group, tenant=connection.vhost.name,
                                      by=connection.rights.principal.name, settings=settings,
                                      owner=channel.publishing, token=held, name=half.name)
    except NO_ROOM as error:
        held.refuse(error)
        return False
    except (Stopping, StorageFull, KeptFull) as error:               # as for any other message
        raise ConnectionFault(RESOURCE_ERROR, str(error)) from None
    except KernelError as error:
        raise not_placed(error) from None
    connection.charge([message])
    return True


# ---- decisions

class _Decision:
    """One that is under way; an `Owner`. Nothing that comes behind it on its connection is confirmed before it."""

    def __init__(self, channel: Channel, tag: int, transaction_id: int, decision: Decision) -> None:
        self._channel = channel
        self._tag = tag
        self._id = transaction_id
        self._decision = decision

    def on_stored(self, stored: list[Stored]) -> None:
        channel, (answer,) = self._channel, stored
        if answer.error is None:
            _tell(channel, DECIDED, describe_decided(self._id, self._decision, answer.append_ms))
        else:
            _refuse(channel, self._id, answer.error)
        if not channel.closing:
            channel.publishing.confirm(self._tag, nack=answer.error is not None)
        channel.connection.go_on()


def decide(channel: Channel, tag: int, body: bytes) -> None:
    """Take a publish to `$txn.decide`."""
    connection = channel.connection
    try:
        transaction_id, decision = read_decision(body)
    except InvalidDecision as error:
        _refuse(channel, error.given, error)
        channel.publishing.confirm(tag, nack=True)
        return
    if decision is None:
        channel.publishing.confirm(tag)
        return
    connection.hold()
    asked = _Decision(channel, tag, transaction_id, decision)
    connection.transactions.decide(transaction_id, decision, tenant=connection.vhost.name,
                                   by=connection.rights.principal.name, guard=connection.rights.require_seen,
                                   owner=asked, token=tag)


def _refuse(channel: Channel, transaction_id: int | str | None, error: Exception) -> None:
    document = describe_refused(transaction_id, error)
    channel.connection.count(f"decision_{document['code']}")
    _tell(channel, DECIDED, document)


def _tell(channel: Channel, name: str, document: dict[str, Any]) -> None:
    """Whoever on this connection listens to it."""
    for open_channel in channel.connection.channels:
        for listener in open_channel.listeners.values():
            if listener.name == name and not listener.send(document):
                channel.connection.count("notice_dropped")


# ---- being told

class CheckListener(Origin):
    """A consumer of one of the names above; of checks, a `Member`."""

    def __init__(self, channel: Channel, name: str, tag: str, *, no_ack: bool, limit: int) -> None:
        """Raises ChannelFault 403, 404."""
        super().__init__(channel)
        self.name = name
        self.tag = tag
        self._group = check_listened(name)
        if not self.allowed():
            raise refused(f"read access to queue '{name}' in vhost '{channel.connection.vhost.name}' refused for user "
                          f"'{channel.connection.rights.principal.name}'")
        raw, raw_name = tag.encode(), name.encode()
        self._raw_tag = bytes((len(raw),)) + raw
        self._side = b"\0" + bytes((len(raw_name),)) + raw_name + JSON_PROPERTIES
        self._no_ack = no_ack
        self._limit = limit or CHECKS_AHEAD
        self._waiting: list[Check] = []
        self._membership: Membership | None = None

    def allowed(self) -> bool:
        """Whether the client may still listen."""
        return not self._group or self.channel.connection.rights.may_transact(self._group)

    def join(self) -> None:
        """Be told from now on."""
        if self.name.startswith(CHECK):
            connection = self.channel.connection
            self._membership = connection.transactions.join(
                self._group, connection.vhost.name, self, name=connection.identity.name, credit=self._limit)

    def leave(self) -> None:
        """Be told nothing more; what was asked is asked of others in time."""
        if self._membership is not None:
            self._membership.leave()
            self._membership = None
        self._waiting = []

    def on_gone(self) -> None:
        """The right to it was taken away."""
        self.leave()
        self.channel.listeners.pop(self.tag, None)
        if self.channel.connection.wants_cancels:
            self.channel.reply(encode_method("basic.cancel", consumer_tag=self.tag, no_wait=True))

    def on_checks(self, checks: list[Check]) -> None:
        """Sent as far as the socket has room; the rest waits for `pump`."""
        self._waiting += checks
        self.pump()

    def pump(self) -> None:
        """Send checks that wait."""
        names = self.channel.connection.door_names
        while self._waiting and self.send(describe_check(self._waiting[0], names)):
            self._waiting.pop(0)
            if self._no_ack:
                self._give_credit(1)

    def send(self, document: dict[str, Any]) -> bool:
        """False where the socket has no room for it."""
        channel = self.channel
        if not channel.may_deliver():
            return False
        message: Leased = (None, 0, 1, 0, 0, None, orjson.dumps(document), b"", codec.DOOR)
        if self._no_ack:
            tag = channel.unacked.next_tag
            channel.unacked.next_tag += 1
        else:
            tag = channel.unacked.add(self, [message[:3]])
            self.out += 1
        frames = codec.encode_deliveries(channel.raw, self._raw_tag, tag, channel.connection.body_max, [message],
                                         lambda _: self._side)
        channel.connection.write(frames)
        return True

    def settle(self, how: str, handles: list[Handle]) -> None:
        """Whatever became of them: there is room for as many checks again."""
        self._give_credit(len(handles))

    def _give_credit(self, count: int) -> None:
        if self._membership is not None:
            self._membership.add_credit(count)


def check_listened(name: str) -> str:
    """The group of one of the names above, "" where it has none. Raises ChannelFault 404 for any other."""
    if name == DECIDED:
        return ""
    for prefix in (CHECK, HELD):
        if name.startswith(prefix):
            group = name.removeprefix(prefix)
            try:
                check_name(group, "group")
            except KernelError as error:
                raise precondition(str(error)) from None
            return group
    raise ChannelFault(404, f"no queue '{name}': there are {CHECK}GROUP, {HELD}GROUP and {DECIDED}")
