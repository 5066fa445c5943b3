"""What a channel defines: exchanges, queues, bindings. Requests are checked by `vhost`, made durable by the broker."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.amqp.arguments import OF_EXCHANGES, OF_QUEUES, unknown
from gatehouse.gateways.amqp.asked import UNKNOWN
from gatehouse.gateways.amqp.direct_reply import NAMED, REPLY_TO, is_reply_name
from gatehouse.gateways.amqp.errors import AmqpError, ChannelFault, ConnectionFault, in_use, not_found, refused
from gatehouse.gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gatehouse.gateways.amqp.methods import Arguments, encode_method
from gatehouse.gateways.amqp.rights import CONFIGURE, READ, WRITE
from gatehouse.gateways.amqp.transacting import TXN, check_listened
from gatehouse.gateways.amqp.vhost import RESERVED

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.rights import AmqpRights
    from gatehouse.gateways.amqp.vhost import AmqpQueue, Change
    from gatehouse.kernel.message import Stored

GENERATED: Final = "amq.gen-"
RESOURCE_ERROR: Final = 506
ACTIONS: Final = {"exchange.declare": "exchange.declared", "exchange.delete": "exchange.deleted",
                  "exchange.bind": "exchange.bound", "exchange.unbind": "exchange.unbound",
                  "queue.declare": "queue.declared", "queue.delete": "queue.deleted", "queue.purge": "queue.purged",
                  "queue.bind": "queue.bound", "queue.unbind": "queue.unbound"}
"""The action by which the audit topic calls each of these methods."""

Audited = Mapping[str, object]
"""The details that the audit topic is told of a change."""



class Definitions:
    """One channel's requests; the kernel's `Owner` of what they change."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last_queue = ""
        self.methods: dict[str, Callable[[Arguments], None]] = {
            "exchange.declare": self._declare_exchange, "exchange.delete": self._delete_exchange,
            "exchange.bind": self._bind_exchange, "exchange.unbind": self._unbind_exchange,
            "queue.declare": self._declare_queue, "queue.delete": self._delete_queue, "queue.purge": self._purge,
            "queue.bind": self._bind_queue, "queue.unbind": self._unbind_queue}

    @property
    def _rights(self) -> AmqpRights:
        return self._channel.connection.rights

    # ---- exchanges

    def _declare_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        name = _one_line(arguments["exchange"])
        changes: list[Change] = []
        if arguments["passive"]:
            self._rights.require_exchange_sight(name, READ)
            vhost.check_exchange(name)
        else:
            if name in vhost.exchanges:
                self._rights.require_exchange_sight(name, CONFIGURE)
            elif name:
                self._rights.require_exchange(name, Operation.CREATE)
            alternate = arguments["arguments"].get("alternate-exchange")
            if alternate is not None and alternate.type == "S" and name not in vhost.exchanges:
                self._rights.require_feeding(alternate.value.decode(errors="replace"))
            made = vhost.declare_exchange(
                name, arguments["type"], durable=arguments["durable"], auto_delete=arguments["auto_delete"],
                internal=arguments["internal"], arguments=arguments["arguments"])
            changes = [] if made is None else [made]
            if made is not None and unknown(made.arguments, OF_EXCHANGES):
                self._channel.connection.note_not_honoured(UNKNOWN)
        self._answer(changes, "exchange.declare-ok", arguments["no_wait"], audited={
            "exchange": name, "type": arguments["type"], "durable": arguments["durable"]})

    def _delete_exchange(self, arguments: Arguments) -> None:
        if arguments["exchange"]:
            self._rights.require_exchange(arguments["exchange"], Operation.ALTER)
        gone = self._channel.connection.vhost.delete_exchange(arguments["exchange"], arguments["if_unused"])
        self._answer(gone, "exchange.delete-ok", arguments["no_wait"], audited={"exchange": arguments["exchange"]})

    def _bind_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        self._require_linking(arguments)
        vhost.check_exchange(arguments["destination"])
        made = vhost.bind(arguments["source"], Destination(EXCHANGE, arguments["destination"]),
                          arguments["routing_key"], arguments["arguments"])
        self._answer([] if made is None else [made], "exchange.bind-ok", arguments["no_wait"],
                     audited=_link(arguments, "destination"))

    def _unbind_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        self._require_linking(arguments)
        gone = vhost.unbind(arguments["source"], Destination(EXCHANGE, arguments["destination"]),
                            arguments["routing_key"], arguments["arguments"])
        self._answer(gone, "exchange.unbind-ok", arguments["no_wait"], audited=_link(arguments, "destination"))

    def _require_linking(self, arguments: Arguments) -> None:
        self._rights.require_feeding(arguments["destination"])
        self._rights.require_hearing(arguments["source"], arguments["routing_key"])

    # ---- queues

    def _declare_queue(self, arguments: Arguments) -> None:
        channel = self._channel
        connection = channel.connection
        broker, vhost = connection.broker, connection.vhost
        name = _one_line(arguments["queue"])
        if name.startswith(TXN):
            check_listened(name)
            self._last_queue = name
            self._answer([], "queue.declare-ok", arguments["no_wait"], queue=name, message_count=0, consumer_count=0)
            return
        if is_reply_name(name):
            if name != REPLY_TO and broker.replies.find(vhost.name, name) is None:
                raise not_found("queue", name, vhost.name)
            self._answer([], "queue.declare-ok", arguments["no_wait"], queue=name, message_count=0, consumer_count=1)
            return
        if arguments["passive"]:
            name = name or self._last_queue
            self._see(name, READ)
            queue = vhost.require_queue(name, connection)
            is_new = False
        else:
            exclusive = arguments["exclusive"]
            if name and vhost.find_queue(name) is None:
                self._rights.require_queue(name, Operation.CREATE, CONFIGURE)
            elif name:
                self._see(name, CONFIGURE)
            broker.totals.queues_declared += 1
            queue, is_new = vhost.declare_queue(
                name or broker.new_name(GENERATED), durable=arguments["durable"] and not exclusive,
                auto_delete=arguments["auto_delete"], owner=connection if exclusive else None, asker=connection,
                arguments=arguments["arguments"], generated=not name)
            if is_new:
                self._open(queue, generated=not name)
                broker.totals.queues_created += 1
                if unknown(queue.arguments, OF_QUEUES):
                    connection.note_not_honoured(UNKNOWN)
        if not is_new:
            broker.queues.note_declared(queue)
        self._last_queue = queue.name
        count = 0 if is_new and not queue.settings.is_stream else broker.queues.ready(queue)
        self._answer([queue] if is_new else [], "queue.declare-ok", arguments["no_wait"], queue=queue.name,
                     message_count=count, consumer_count=len(queue.consumers),
                     audited=_lasting(queue, durable=queue.durable))

    def queue(self, name: str, operation: Operation = Operation.CONSUME, access: str = READ) -> AmqpQueue:
        """The queue of that name, or the last one declared here. Raises ChannelFault: where it is not there, or another
        connection's, 403 for whoever could not do this with it otherwise, so that nobody learns which queues others
        have."""
        if not name:
            name = self._last_queue
            if not name:
                raise ChannelFault(404, "no previously declared queue")
        self._check_hidden(name, operation, access)
        return self._channel.connection.vhost.require_queue(name, self._channel.connection)

    def _check_hidden(self, name: str, operation: Operation, access: str) -> None:
        """See `queue`. A generated name is nobody's secret to find out, and clients ask for their own that are gone."""
        queue = self._channel.connection.vhost.find_queue(name)
        is_hidden = queue is None or queue.owner not in (None, self._channel.connection)
        if is_hidden and not name.startswith(RESERVED):
            self._rights.require_queue(name, operation, access)

    def _see(self, name: str, access: str) -> None:
        """Require that the client may know of a queue of this name. A generated name is nobody's secret to find out,
        unless the queue is there for everybody."""
        queue = self._channel.connection.vhost.find_queue(name)
        is_shared = queue is not None and queue.owner is None
        is_own = queue is not None and queue.owner is self._channel.connection
        if is_shared or not is_own and not name.startswith(RESERVED):
            self._rights.require_sight(name, access)

    def _open(self, queue: AmqpQueue, *, generated: bool) -> None:
        connection = self._channel.connection
        try:
            self._rights.require_new_queue(queue, generated)
        except AmqpError:
            connection.vhost.delete_queue(queue)
            raise
        connection.broker.open_queue(queue)

    def _delete_queue(self, arguments: Arguments) -> None:
        connection = self._channel.connection
        broker, vhost = connection.broker, connection.vhost
        name = arguments["queue"] or self._last_queue
        if name and vhost.find_queue(name) is None:
            self._check_hidden(name, Operation.ALTER, CONFIGURE)
            self._answer([], "queue.delete-ok", arguments["no_wait"])
            return
        queue = self.queue(name, Operation.ALTER, CONFIGURE)
        self._rights.require_change(queue, Operation.ALTER, CONFIGURE)
        if arguments["if_unused"] and queue.consumers:
            raise in_use("queue", queue.name, vhost.name, "in use")
        count = broker.queues.ready(queue)
        if arguments["if_empty"] and count:
            raise in_use("queue", queue.name, vhost.name, "not empty")
        own = broker.take_consumers(queue, self._channel)
        gone = broker.drop_queue(queue)
        self._answer(gone, "queue.delete-ok", arguments["no_wait"], message_count=count,
                     audited=_lasting(queue, messages=count))
        for consumer in own:                   # behind the answer, as in RabbitMQ: py-amqp takes it for a fault before
            consumer.on_gone()

    def _purge(self, arguments: Arguments) -> None:
        queue = self.queue(arguments["queue"])
        self._rights.require_change(queue, Operation.CONSUME, READ)
        count = self._channel.connection.broker.queues.purge(queue)
        self._audit("queue.purge", _lasting(queue, messages=count))
        if not arguments["no_wait"]:
            self._channel.reply(encode_method("queue.purge-ok", message_count=count))

    def _bind_queue(self, arguments: Arguments) -> None:
        _not_volatile(arguments["queue"])
        queue = self.queue(arguments["queue"], Operation.PUBLISH, WRITE)
        key = arguments["routing_key"]
        if not arguments["queue"] and not key:
            key = queue.name                   # 0-9-1, queue.bind: "the default routing key is the queue's name"
        self._rights.require_change(queue, Operation.PUBLISH, WRITE)
        self._rights.require_hearing(arguments["exchange"], key)
        made = self._channel.connection.vhost.bind(arguments["exchange"], Destination(QUEUE, queue.name), key,
                                                   arguments["arguments"])
        self._answer([] if made is None else [made], "queue.bind-ok", arguments["no_wait"],
                     audited=_lasting(queue, exchange=arguments["exchange"], routing_key=key))

    def _unbind_queue(self, arguments: Arguments) -> None:
        _not_volatile(arguments["queue"])
        channel = self._channel
        name = arguments["queue"] or self._last_queue
        audited: Audited | None = None
        if name and channel.connection.vhost.find_queue(name) is None:
            self._check_hidden(name, Operation.PUBLISH, WRITE)
        else:
            queue = self.queue(name, Operation.PUBLISH, WRITE)
            name = queue.name
            audited = _lasting(queue, exchange=arguments["exchange"], routing_key=arguments["routing_key"])
            self._rights.require_change(queue, Operation.PUBLISH, WRITE)
        gone = channel.connection.vhost.unbind(arguments["exchange"], Destination(QUEUE, name),
                                                     arguments["routing_key"], arguments["arguments"])
        self._answer(gone, "queue.unbind-ok", False, audited=audited)

    # ---- answers

    def _answer(self, changes: Collection[Change], method: str, no_wait: bool, audited: Audited | None = None,
                **reply: object) -> None:
        """Answer a request: at once where all is on the disk, else when it is. The audit topic is told of a change
        then, too."""
        channel = self._channel
        broker = channel.connection.broker
        payload = b"" if no_wait else encode_method(method, **reply)
        if changes or payload and broker.is_storing:
            told_of = audited if changes else None
            token = (channel.reply_when_stored(payload), changes, method.removesuffix("-ok"), told_of)
            broker.store(channel.connection.vhost, changes, self, token)
        elif payload:
            channel.reply(payload)

    def on_stored(self, stored: list[Stored]) -> None:
        connection = self._channel.connection
        for answer in stored:
            token: Any = answer.token
            waiting, changes, method, audited = token
            if answer.error is not None:
                connection.broker.undo(connection.vhost, changes)
                connection.fail(ConnectionFault(RESOURCE_ERROR, str(answer.error)))
            else:
                self._audit(method, audited)
            self._channel.release_replies(waiting)

    def _audit(self, method: str, audited: Audited | None) -> None:
        if audited is not None:
            self._rights.audit(ACTIONS[method], audited)


def _not_volatile(queue: str) -> None:
    if queue.startswith(NAMED):
        raise refused("cannot bind or unbind to a volatile (direct reply-to) queue")


def _lasting(queue: AmqpQueue, **more: object) -> Audited | None:
    """What the audit topic is told of a queue; nothing of one that goes with its connection or its consumers."""
    return None if queue.owner is not None or queue.auto_delete else {"queue": queue.name, **more}


def _link(arguments: Arguments, to: str) -> Audited:
    return {name: arguments[name] for name in ("source", to, "routing_key")}


def _one_line(name: str) -> str:
    """A declared name without line ends: RabbitMQ takes them out."""
    return name.replace("\r", "").replace("\n", "")
