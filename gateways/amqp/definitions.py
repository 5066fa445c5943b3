"""What a channel defines: exchanges, queues, bindings. Requests are checked by `vhost`, made durable by the broker."""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from gateways.amqp.errors import ConnectionFault, in_use
from gateways.amqp.exchanges import EXCHANGE, QUEUE, Destination
from gateways.amqp.methods import Arguments, encode_method

if TYPE_CHECKING:
    from gateways.amqp.channel import Channel
    from gateways.amqp.vhost import Change
    from kernel.message import Stored

GENERATED: Final = "amq.gen-"
RESOURCE_ERROR: Final = 506


class Definitions:
    """One channel's requests; the kernel's `Owner` of what they change."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.methods: dict[str, Callable[[Arguments], None]] = {
            "exchange.declare": self._declare_exchange, "exchange.delete": self._delete_exchange,
            "exchange.bind": self._bind_exchange, "exchange.unbind": self._unbind_exchange,
            "queue.declare": self._declare_queue, "queue.delete": self._delete_queue, "queue.purge": self._purge,
            "queue.bind": self._bind_queue, "queue.unbind": self._unbind_queue}

    # ---- exchanges

    def _declare_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        name = _one_line(arguments["exchange"])
        changes: list[Change] = []
        if arguments["passive"]:
            vhost.check_exchange(name)
        else:
            made = vhost.declare_exchange(
                name, arguments["type"], durable=arguments["durable"], auto_delete=arguments["auto_delete"],
                internal=arguments["internal"], arguments=arguments["arguments"])
            changes = [] if made is None else [made]
        self._answer(changes, "exchange.declare-ok", arguments["no_wait"])

    def _delete_exchange(self, arguments: Arguments) -> None:
        gone = self._channel.connection.vhost.delete_exchange(arguments["exchange"], arguments["if_unused"])
        self._answer(gone, "exchange.delete-ok", arguments["no_wait"])

    def _bind_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        vhost.check_exchange(arguments["destination"])
        made = vhost.bind(arguments["source"], Destination(EXCHANGE, arguments["destination"]),
                          arguments["routing_key"], arguments["arguments"])
        self._answer([] if made is None else [made], "exchange.bind-ok", arguments["no_wait"])

    def _unbind_exchange(self, arguments: Arguments) -> None:
        vhost = self._channel.connection.vhost
        gone = vhost.unbind(arguments["source"], Destination(EXCHANGE, arguments["destination"]),
                            arguments["routing_key"], arguments["arguments"])
        self._answer(gone, "exchange.unbind-ok", arguments["no_wait"])

    # ---- queues

    def _declare_queue(self, arguments: Arguments) -> None:
        channel = self._channel
        connection = channel.connection
        broker, vhost = connection.broker, connection.vhost
        name = _one_line(arguments["queue"])
        if arguments["passive"]:
            queue = vhost.require_queue(name or channel.last_queue, connection)
            is_new = False
        else:
            exclusive = arguments["exclusive"]
            queue, is_new = vhost.declare_queue(
                name or broker.new_name(GENERATED), durable=arguments["durable"] and not exclusive,
                auto_delete=arguments["auto_delete"], owner=connection if exclusive else None, asker=connection,
                arguments=arguments["arguments"], generated=not name)
        if is_new:
            broker.open_queue(queue)
        channel.note_declared(queue.name)
        self._answer([queue] if is_new else [], "queue.declare-ok", arguments["no_wait"], queue=queue.name,
                     message_count=broker.queues.ready(queue), consumer_count=len(queue.consumers))

    def _delete_queue(self, arguments: Arguments) -> None:
        connection = self._channel.connection
        broker, vhost = connection.broker, connection.vhost
        name = arguments["queue"] or self._channel.last_queue
        if name and vhost.find_queue(name) is None:
            self._answer([], "queue.delete-ok", arguments["no_wait"])
            return
        queue = self._channel.queue(name)
        if arguments["if_unused"] and queue.consumers:
            raise in_use("queue", queue.name, vhost.name, "in use")
        count = broker.queues.ready(queue)
        if arguments["if_empty"] and count:
            raise in_use("queue", queue.name, vhost.name, "not empty")
        gone = broker.drop_queue(queue)
        self._answer(gone, "queue.delete-ok", arguments["no_wait"], message_count=count)

    def _purge(self, arguments: Arguments) -> None:
        queue = self._channel.queue(arguments["queue"])
        count = self._channel.connection.broker.queues.purge(queue)
        if not arguments["no_wait"]:
            self._channel.reply(encode_method("queue.purge-ok", message_count=count))

    def _bind_queue(self, arguments: Arguments) -> None:
        queue = self._channel.queue(arguments["queue"])
        key = arguments["routing_key"]
        if not arguments["queue"] and not key:
            key = queue.name                   # 0-9-1, queue.bind: "the default routing key is the queue's name"
        made = self._channel.connection.vhost.bind(arguments["exchange"], Destination(QUEUE, queue.name), key,
                                                   arguments["arguments"])
        self._answer([] if made is None else [made], "queue.bind-ok", arguments["no_wait"])

    def _unbind_queue(self, arguments: Arguments) -> None:
        channel = self._channel
        name = arguments["queue"] or channel.last_queue
        if not name or name in channel.connection.vhost.queues:
            name = channel.queue(name).name
        gone = channel.connection.vhost.unbind(arguments["exchange"], Destination(QUEUE, name),
                                                     arguments["routing_key"], arguments["arguments"])
        self._answer(gone, "queue.unbind-ok", False)

    # ---- answers

    def _answer(self, changes: Collection[Change], method: str, no_wait: bool, **reply: object) -> None:
        """At once where nothing has changed, else when it is on the disk."""
        channel = self._channel
        payload = b"" if no_wait else encode_method(method, **reply)
        if changes:
            token = (channel.reply_when_stored(payload), changes)
            channel.connection.broker.store(channel.connection.vhost, changes, self, token)
        elif payload:
            channel.reply(payload)

    def on_stored(self, stored: list[Stored]) -> None:
        connection = self._channel.connection
        for answer in stored:
            token: Any = answer.token
            waiting, changes = token
            if answer.error is not None:
                connection.broker.undo(connection.vhost, changes)
                connection.fail(ConnectionFault(RESOURCE_ERROR, str(answer.error)))
            self._channel.release_replies(waiting)


def _one_line(name: str) -> str:
    """RabbitMQ takes line ends out of names that are declared."""
    return name.replace("\r", "").replace("\n", "")
