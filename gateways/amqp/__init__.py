"""The AMQP 0-9-1 door, with RabbitMQ's extensions. What it does not do is in README.md."""
from __future__ import annotations

from gatehouse.gateways.amqp.addresses import SPELLING
from gatehouse.gateways.amqp.broker import DOOR_NAME, Broker
from gatehouse.gateways.amqp.codec import DOOR
from gatehouse.gateways.amqp.column import AMQP
from gatehouse.gateways.amqp.config import AmqpConfig, connection_settings
from gatehouse.gateways.amqp.management import MANAGEMENT, METRICS
from gatehouse.gateways.amqp.queues import KernelQueues
from gatehouse.gateways.amqp.session import AmqpSession
from gatehouse.gateways.contract import CONTRACT, GatewaySpec, Services, WebSocketRoute


def open_door(services: Services) -> None:
    """Queues that outlived the hub give up messages and are bound to other doors' whether anybody connects or not."""
    broker = services.shared[DOOR_NAME] = Broker(services, KernelQueues(services.kernel, services.wall_ms))
    services.holders["amqp_contents"] = lambda: broker.begun_bytes


GATEWAY = GatewaySpec(name="amqp", contract=CONTRACT, door=DOOR, config=AmqpConfig, default_listen=("127.0.0.1:5672",),
                      session=AmqpSession, opened=open_door, columns=(AMQP,), spelling=SPELLING,
                      connection_settings=connection_settings,
                      tls_tickets=False,       # the Java client's NIO takes one for a frame, and RabbitMQ gives none
                      websockets=(WebSocketRoute("/amqp", ("amqp",)),), http=(MANAGEMENT, METRICS))
