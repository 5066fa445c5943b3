"""What a client asks on a channel by methods that are answered: to be given messages, how many, one by one, again; for
confirms and transactions. What it defines is in `definitions`.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.amqp.arguments import (
    OF_CONSUMERS,
    OF_STREAM_CONSUMERS,
    check_consumer_arguments,
    queue_type,
    read_consumer_timeout,
    read_priority,
    unknown,
)
from gatehouse.gateways.amqp.asked import UNKNOWN
from gatehouse.gateways.amqp.channel import Consumer, Got
from gatehouse.gateways.amqp.definitions import Definitions
from gatehouse.gateways.amqp.direct_reply import NAMED, REPLY_TO, ReplyConsumer
from gatehouse.gateways.amqp.errors import ChannelFault, ConnectionFault, precondition, refused
from gatehouse.gateways.amqp.methods import Arguments, encode_method
from gatehouse.gateways.amqp.recalling import TOLD, DelayListener
from gatehouse.gateways.amqp.streams import StreamConsumer, read_filter, read_start
from gatehouse.gateways.amqp.transacting import TXN, CheckListener
from gatehouse.gateways.amqp.tx import Tx
from gatehouse.kernel.groups.sharing import SHARE

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.tables import Table
    from gatehouse.gateways.amqp.telling import NoticeConsumer
    from gatehouse.gateways.amqp.vhost import AmqpQueue

NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
CONSUMERS_MAX: Final = 10_000          # of one channel


class ChannelRequests:
    """What a client asks on one channel by methods that are answered."""

    def __init__(self, channel: Channel) -> None:
        self.consumer_limit = 0
        """Deliveries without acknowledgement of each consumer to come; 0: no limit."""

        self._channel = channel
        self._connection = channel.connection
        self._definitions = Definitions(channel)
        self.methods: dict[str, Callable[[Arguments], None]] = {
            "channel.flow": self._flow, "access.request": self._give_ticket, "basic.qos": self._qos,
            "basic.consume": self._consume, "basic.cancel": self._cancel, "basic.get": self._get,
            "basic.recover": self._recover, "basic.recover-async": self._recover_async,
            "confirm.select": self._select_confirms, "tx.select": self._select_tx, "tx.commit": self._commit,
            "tx.rollback": self._roll_back, **self._definitions.methods}

    # ---- consuming

    def _flow(self, arguments: Arguments) -> None:
        if not arguments["active"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "active=false")
        self._channel.reply(encode_method("channel.flow-ok", active=True))

    def _give_ticket(self, _: Arguments) -> None:
        """0-8's way to ask for rights: granted, and worth nothing, as in RabbitMQ."""
        self._channel.reply(encode_method("access.request-ok", ticket=1))

    def _qos(self, arguments: Arguments) -> None:
        if arguments["prefetch_size"]:
            raise ConnectionFault(NOT_IMPLEMENTED, f"prefetch_size!=0 ({arguments['prefetch_size']})")
        if arguments["global"]:
            self._channel.limit(arguments["prefetch_count"])
        else:
            self.consumer_limit = arguments["prefetch_count"]
        self._channel.reply(encode_method("basic.qos-ok"))

    def _consume(self, arguments: Arguments) -> None:
        listens = arguments["queue"].startswith(TXN) or arguments["queue"] == TOLD
        answers = arguments["queue"] == REPLY_TO
        queue = None if listens or answers else self.source(arguments["queue"])
        tag = arguments["consumer_tag"] or self._connection.broker.new_name("amq.ctag-")
        channel = self._channel
        reply_consumer = channel.reply_consumer
        if tag in channel.consumers or tag in channel.listeners or reply_consumer and reply_consumer.tag == tag:
            raise ConnectionFault(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if len(channel.consumers) + len(channel.listeners) >= CONSUMERS_MAX:
            raise ConnectionFault(NOT_ALLOWED, f"more than {CONSUMERS_MAX} consumers on a channel")
        if answers:
            self._await_replies(arguments, tag)
            return
        if queue is None:
            self._listen(arguments, tag)
            return
        table: Table = arguments["arguments"]
        check_consumer_arguments(table, queue.where, queue_type(queue.arguments))
        priority, timeout_ms = read_priority(table, queue.where), read_consumer_timeout(table, queue.where)
        if unknown(table, OF_CONSUMERS | OF_STREAM_CONSUMERS if queue.settings.is_stream else OF_CONSUMERS):
            self._connection.note_not_honoured(UNKNOWN)
        if arguments["no_local"]:
            self._connection.note_not_honoured("no_local")
        if queue.settings.is_stream:
            self._read_stream(arguments, queue, tag)
            return
        others = queue.consumers
        if arguments["exclusive"] and (others or queue.settings.single_active) or others and others[0].exclusive:
            raise refused(f"{queue.where} in exclusive use")
        consumer = Consumer(channel, queue, tag, no_ack=arguments["no_ack"], exclusive=arguments["exclusive"],
                            limit=self.consumer_limit, priority=priority, timeout_ms=timeout_ms)
        self._begin(consumer, arguments["no_wait"])

    def _begin(self, consumer: Consumer, no_wait: bool) -> None:
        """Its deliveries come behind the answer."""
        self._channel.consumers[consumer.tag] = consumer
        self._connection.broker.add_consumer(consumer)
        if no_wait:
            self._attach(consumer)
        else:
            self._channel.reply(encode_method("basic.consume-ok", consumer_tag=consumer.tag),
                                partial(self._attach, consumer))

    def _attach(self, consumer: Consumer) -> None:
        if self._channel.consumers.get(consumer.tag) is consumer:
            consumer.attach()

    def _read_stream(self, arguments: Arguments, queue: AmqpQueue, tag: str) -> None:
        """Consumers of a stream do not know each other: there is no `exclusive`, as in RabbitMQ."""
        wall_ms = self._connection.services.wall_ms()
        table: Table = arguments["arguments"]
        consumer = StreamConsumer(self._channel, queue, tag, read_start(table, queue.where, wall_ms),
                                  read_filter(table, queue.where), no_ack=arguments["no_ack"],
                                  limit=self.consumer_limit)
        self._begin(consumer, arguments["no_wait"])

    def _await_replies(self, arguments: Arguments, tag: str) -> None:
        if not arguments["no_ack"]:
            raise precondition("reply consumer cannot acknowledge")
        if self._channel.reply_consumer is not None:
            raise precondition("reply consumer already set")
        self._channel.begin_replies(ReplyConsumer(self._channel, tag, self._connection.broker.new_name(NAMED)))
        if not arguments["no_wait"]:
            self._channel.reply(encode_method("basic.consume-ok", consumer_tag=tag))

    def _listen(self, arguments: Arguments, tag: str) -> None:
        name, no_ack = arguments["queue"], arguments["no_ack"]
        listener = DelayListener(self._channel, name, tag, no_ack=no_ack) if name == TOLD \
            else CheckListener(self._channel, name, tag, no_ack=no_ack, limit=self.consumer_limit)
        self._channel.listeners[tag] = listener
        if arguments["no_wait"]:
            listener.join()
        else:
            self._channel.reply(encode_method("basic.consume-ok", consumer_tag=tag), partial(self._join, listener))

    def _join(self, listener: NoticeConsumer) -> None:
        if self._channel.listeners.get(listener.tag) is listener:
            listener.join()

    def _cancel(self, arguments: Arguments) -> None:
        tag = arguments["consumer_tag"]
        consumer = self._channel.consumers.pop(tag, None)
        listener = self._channel.listeners.pop(tag, None)
        if listener is not None:
            listener.leave()
        if self._channel.reply_consumer is not None and self._channel.reply_consumer.tag == tag:
            self._channel.end_replies()
        if consumer is not None:                   # what it was handed and not told of yet goes before the answer
            self._connection.broker.remove_consumer(consumer)
        if not arguments["no_wait"]:
            self._channel.reply(encode_method("basic.cancel-ok", consumer_tag=tag))

    def _get(self, arguments: Arguments) -> None:
        queue = self.source(arguments["queue"])
        if queue.settings.is_quorum and queue.settings.single_active:
            raise ChannelFault(405, f"cannot obtain access to locked {queue.where}. basic.get operations are not "
                                    "supported by quorum queues with single active consumer")
        Got(self._channel, queue, no_ack=arguments["no_ack"]).begin()

    def _recover(self, arguments: Arguments) -> None:
        self._recover_async(arguments)
        self._channel.reply(encode_method("basic.recover-ok"))

    def _recover_async(self, arguments: Arguments) -> None:
        """Nothing is answered."""
        if not arguments["requeue"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "requeue=false")
        self._channel.give_back()
        self._channel.wake()

    def source(self, name: str) -> AmqpQueue:
        """What to consume from: a queue, the leased group `$share/GROUP/FILTER` of all doors, or a partition of a
        topic, `TOPIC-0`. Raises ChannelFault."""
        connection = self._connection
        if name.startswith(SHARE):
            connection.rights.require_share(name)
        queue = connection.broker.queues.share(connection.vhost, name)
        if queue is None and connection.vhost.find_queue(name) is None:
            queue = connection.broker.queues.streams.partition(connection.vhost, name)
            if queue is not None and not connection.rights.may_take(queue):
                queue = None                   # and is told what he is told of a queue that is not there
        queue = queue or self._definitions.queue(name)
        connection.rights.require_source(queue)
        return queue

    # ---- confirms and transactions

    def _select_confirms(self, arguments: Arguments) -> None:
        if self._channel.tx is not None:
            raise precondition("cannot switch from tx to confirm mode")
        self._channel.begin_confirms()
        if not arguments["no_wait"]:
            self._channel.reply(encode_method("confirm.select-ok"))

    def _select_tx(self, _: Arguments) -> None:
        if self._channel.publishing.confirms:
            raise precondition("cannot switch from confirm to tx mode")
        if self._channel.tx is None:
            self._channel.begin_tx(Tx(self._channel))
        self._channel.reply(encode_method("tx.select-ok"))

    def _commit(self, _: Arguments) -> None:
        self._require_tx().commit()

    def _roll_back(self, _: Arguments) -> None:
        self._require_tx().rollback()
        self._channel.wake()
        self._channel.reply(encode_method("tx.rollback-ok"))

    def _require_tx(self) -> Tx:
        if self._channel.tx is None:
            raise precondition("channel is not transactional")
        return self._channel.tx
