"""A client that speaks AMQP in bytes to a hub without a socket."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.amqp import GATEWAY, codec
from gatehouse.gateways.amqp.broker import Broker
from gatehouse.gateways.amqp.config import AmqpConfig
from gatehouse.gateways.amqp.methods import decode_method, encode_method
from gatehouse.gateways.amqp.tables import typed
from gatehouse.gateways.kit import FakeHub


class Hub(FakeHub):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.open_door(GATEWAY)
        self.broker = Broker.of(self.services)

    def client(self, config: AmqpConfig | None = None) -> Client:
        return Client(self, config or AmqpConfig())

    def ready(self, name: str, vhost: str = "/") -> list[bytes | None]:
        """The values of what a queue holds and nobody has."""
        queue = self.kernel.groups.queue(name, vhost)
        assert queue is not None
        values: list[bytes | None] = []
        for partition_id, prefetcher in self.kernel.groups.queue_group(queue).prefetchers.items():
            cursor = prefetcher.cursor
            values += [record[3] for record in self.kernel.records_of(partition_id)
                       if not cursor.is_settled(record[0]) and not cursor.is_leased(record[0])]
        return values


NO_PROPERTIES = b"\0\0"

Got = tuple[int, str, dict[str, Any]]
"""(channel, method, arguments); a content is `header` and `body`"""


class Client:
    """Speaks bytes; `got` reads what the hub wrote since the last call."""

    def __init__(self, hub: Hub, config: AmqpConfig) -> None:
        self.hub = hub
        self.session, self.link = hub.open(GATEWAY, config)

    def send(self, data: bytes) -> None:
        self.session.handle_data(data)

    def ask(self, name: str, channel: int = 1, **arguments: Any) -> list[Got]:
        """A method, a flush, and what came back."""
        table = arguments.get("arguments")
        if table:
            arguments["arguments"] = {key: typed(value) for key, value in table.items()}
        self.send(codec.frame(codec.METHOD, channel, encode_method(name, **arguments)))
        self.hub.kernel.flush()
        return self.got()

    def login(self, capabilities: tuple[str, ...] = ("consumer_cancel_notify", "connection.blocked"), *,
              frame_max: int = 131_072, heartbeat: int = 0, channels: int = 1) -> Client:
        self.send(b"AMQP\0\0\x09\x01")
        properties = {"capabilities": typed(dict.fromkeys(capabilities, True))}
        self.ask("connection.start-ok", 0, client_properties=properties, mechanism="PLAIN",
                 response=b"\0guest\0guest", locale="en_US")
        self.ask("connection.tune-ok", 0, frame_max=frame_max, channel_max=2047, heartbeat=heartbeat)
        assert self.ask("connection.open", 0, virtual_host="/")[-1][1] == "connection.open-ok"
        for number in range(1, channels + 1):
            assert self.ask("channel.open", number)[0][1] == "channel.open-ok"
        return self

    def publish(self, exchange: str, key: str, body: bytes, raw: bytes = NO_PROPERTIES, channel: int = 1,
                **arguments: Any) -> None:
        self.send(publish(exchange, key, body, raw, channel, **arguments))

    def got(self) -> list[Got]:
        data, found, at = self.link.take(), [], 0
        while at < len(data):
            size = int.from_bytes(data[at + 3:at + 7], "big")
            kind, channel, payload = data[at], int.from_bytes(data[at + 1:at + 3], "big"), data[at + 7:at + 7 + size]
            assert data[at + 7 + size] == codec.FRAME_END
            at += size + 8
            if kind == codec.METHOD:
                found.append((channel, *decode_method(payload)))
            elif kind == codec.HEADER:
                found.append((channel, "header", {"size": int.from_bytes(payload[4:12], "big"), "raw": payload[12:]}))
            else:
                found.append((channel, "body" if kind == codec.BODY else "heartbeat", {"body": payload}))
        return found

    def names(self) -> list[str]:
        return [name for _, name, _ in self.got()]


def publish(exchange: str, key: str, body: bytes, raw: bytes = NO_PROPERTIES, channel: int = 1, body_max: int = 131_064,
            **arguments: Any) -> bytes:
    method = encode_method("basic.publish", exchange=exchange, routing_key=key, **arguments)
    return codec.frame(codec.METHOD, channel, method) + codec.encode_content(
        channel.to_bytes(2, "big"), raw, body, body_max)
