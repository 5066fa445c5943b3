"""The class tx: what one channel publishes and settles from tx.select on takes effect together, at tx.commit. Pure.

    publish, ack, nack, reject     checked as ever, and kept here
    tx.commit                      routed as things are then; all of it in one frame of the log, answered when durable
    tx.rollback, the end           nothing was published; what was settled awaits its acknowledgement again

A commit that the hub does not take closes the channel with 406, and nothing of it is done: no queue got a message, no
message is acknowledged. Dead letters of what was rejected are in the same frame: they are read before, and the
connection is not read meanwhile.
"""
# decision 189: one frame, though RabbitMQ promises that of one queue alone
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.amqp.errors import AmqpError, ChannelFault, ConnectionFault, precondition
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.properties import may_expire
from gatehouse.kernel.errors import KernelError, Stopping

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel, Origin, Run
    from gatehouse.gateways.amqp.publishing import Content, Sent
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Handle, Leased, Stored

TX_BYTES_MAX: Final = 64 << 20         # of what the channels of a connection have published and not committed
PUBLISH_BYTES: Final = 512             # that a publish is counted for beside its body and properties
READ_AT_ONCE: Final = 64               # of what is rejected: bounds what is read before its size is known
RESOURCE_ERROR: Final = 506
REJECT: Final = "reject"


class KeptPublish(NamedTuple):
    content: Content
    raw: bytes                         # flags and properties, as they are sent
    body: bytes
    sent: Sent                         # where it went when it came
    version: object                    # of what that was looked up in


class Settled(NamedTuple):
    how: str                           # see `Origin.settle`
    runs: list[Run[Origin]]


class Tx:
    """One channel's; the kernel's `Owner` of its commits."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._publishes: list[KeptPublish] = []
        self._bytes = 0
        self._settled: list[Settled] = []
        self.held = 0
        """Deliveries that are settled here and not yet in truth: they count against the channel's prefetch."""

        self._committing = 0

    @property
    def is_answered(self) -> bool:
        """Whether every commit that was asked for has been answered."""
        return not self._committing

    # ---- what is kept

    def publish(self, content: Content, raw: bytes, body: bytes, sent: Sent) -> None:
        """Raises ChannelFault 406 where there is too much."""
        if sent.half is not None:
            raise precondition("a half message is a transaction of its own: not within one of the channel")
        if sent.delay_ms:
            raise precondition("a delayed message is not published within a transaction of the channel")
        if sent.repeat_key is not None:
            raise precondition("a message that may be repeated is not published within a transaction of the channel")
        size = PUBLISH_BYTES + len(raw) + len(body)
        channels = self._channel.connection.channels
        if channels.tx_bytes + size > TX_BYTES_MAX:
            raise _too_large()
        channels.keep_tx(size)
        self._bytes += size
        self._publishes.append(KeptPublish(content, raw, body, sent, self._channel.connection.sender.version))

    def settle(self, how: str, tag: int, multiple: bool) -> bool:
        """False where no such delivery awaits its acknowledgement."""
        runs = self._channel.unacked.take_runs(tag, multiple)
        self.held += sum([run.open for run in runs])
        if runs:
            self._settled.append(Settled(how, runs))
        return bool(runs)

    # ---- the end of it

    def rollback(self) -> None:
        """Forget what was published; what was settled is as it was."""
        self._drop_publishes()
        settled, self._settled = self._settled, []
        self._give_back(settled)
        self.held = 0

    def _drop_publishes(self) -> None:
        self._channel.connection.channels.keep_tx(-self._bytes)
        self._publishes, self._bytes = [], 0

    def _give_back(self, settled: list[Settled]) -> None:
        self._channel.unacked.put_back([run for _, runs in settled for run in runs])

    def commit(self) -> None:
        """Raises ChannelFault 406, with nothing done."""
        rejected = self._rejected()
        if rejected:
            self._read(rejected)
        else:
            self._commit({})

    def _rejected(self) -> list[tuple[Origin, list[Handle]]]:
        by_source: dict[Origin, list[Handle]] = {}
        for how, runs in self._settled:
            for run in runs if how == REJECT else ():
                by_source.setdefault(run.source, []).extend([handle for handle in run.handles if handle is not None])
        return list(by_source.items())

    def _read(self, rejected: list[tuple[Origin, list[Handle]]]) -> None:
        """Read what is rejected, a part at a time, and commit then. Nothing else of the connection has its turn."""
        parts = [(source, handles[at:at + READ_AT_ONCE]) for source, handles in rejected
                 for at in range(0, len(handles), READ_AT_ONCE)]
        read: dict[Origin, list[Leased]] = {}
        size_bytes = 0
        connection = self._channel.connection
        connection.hold()
        self._committing += 1

        def on_read(messages: list[Leased] | None) -> None:
            nonlocal size_bytes
            source, _ = parts.pop()
            read.setdefault(source, []).extend(messages or [])
            size_bytes += sum([len(message[6] or b"") + len(message[7]) for message in messages or ()])
            if messages is None or size_bytes > TX_BYTES_MAX:
                end(_not_read() if messages is None else _too_large())
            elif parts:
                go_on()
            else:
                end(None)

        def go_on() -> None:
            source, handles = parts[-1]
            source.read(handles, on_read)

        def end(error: ChannelFault | None) -> None:
            self._committing -= 1
            channel = self._channel
            if not channel.closing:
                try:
                    if error is not None:
                        raise error
                    self._commit(read)
                except ChannelFault as fault:
                    channel.fail(fault, "tx.commit")
                except AmqpError as fault:
                    connection.fail(fault)
            connection.go_on()

        go_on()

    def _commit(self, read: dict[Origin, list[Leased]]) -> None:
        """`read` has what is rejected. Raises AmqpError, with nothing done."""
        channel = self._channel
        connection = channel.connection
        sender = connection.sender
        sender.refresh()
        outcomes = [publish.sent if publish.version == sender.version and publish.sent.reply is None
                    and not may_expire(publish.raw)        # it is published now, and lives from now on
                    else channel.contents.look_up(publish.content, publish.raw, publish.body)
                    for publish in self._publishes]
        messages: list[Message] = [message for sent in outcomes if sent.message is not None
                                   for message in (sent.message, *sent.copies)]
        waiting = channel.reply_when_stored(encode_method("tx.commit-ok"))
        token = waiting, self._settled
        try:
            if messages:
                connection.append(messages, self, token)
            else:
                connection.broker.queues.note_stored(self, token)
        except Stopping as error:
            raise ConnectionFault(RESOURCE_ERROR, str(error)) from None
        except (KernelError, AmqpError) as error:
            channel.drop_reply(waiting)
            raise precondition(f"nothing of the transaction is done: {error}") from None
        self._committing += 1
        for publish, sent in zip(self._publishes, outcomes, strict=True):
            channel.contents.tell_fate(publish.content, publish.raw, publish.body, sent)
        settled, self._settled, self.held = self._settled, [], 0
        self._drop_publishes()
        self._carry_out(settled, read)

    def _carry_out(self, settled: list[Settled], read: dict[Origin, list[Leased]]) -> None:
        """In the frame that the publishes are in: nothing else has had its turn since."""
        by_source: dict[tuple[str, Origin], list[Handle]] = {}
        for how, runs in settled:
            for run in runs:
                handles = [handle for handle in run.handles if handle is not None]
                run.source.note_out(-len(handles))
                by_source.setdefault((how, run.source), []).extend(handles)
        for (how, source), handles in by_source.items():
            if how == REJECT:
                source.reject_read(handles, read[source])
            else:
                source.settle(how, handles, at_once=True)
        self._channel.wake()

    def on_stored(self, stored: list[Stored]) -> None:
        """A commit is durable; or the disk did not take it, and its messages are as they were."""
        channel = self._channel
        for answer in stored:
            token: Any = answer.token
            waiting, settled = token
            self._committing -= 1
            if answer.error is None:
                channel.release_replies(waiting)
                continue
            channel.drop_reply(waiting)
            for _, runs in settled:
                for run in runs:
                    run.source.note_out(run.open)
            self._give_back(settled)
            if channel.closing:
                channel.give_back()
            channel.fail(precondition(f"nothing of the transaction is done: {answer.error}"), "tx.commit")
        channel.connection.on_settled()


def _too_large() -> ChannelFault:
    return precondition(f"transactions of a connection of more than {TX_BYTES_MAX} bytes")


def _not_read() -> ChannelFault:
    return precondition("nothing of the transaction is done: what is rejected cannot be read")
