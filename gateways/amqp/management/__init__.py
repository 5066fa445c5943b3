"""RabbitMQ's management interface, as far as tools use it, at `/api` of the HTTP door; its metrics at `/rabbitmq`.

What is there and what is not stands in the README of the AMQP door. Who asks has the same rights as on a connection.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.amqp.login import GUEST
from gatehouse.gateways.amqp.management import metrics
from gatehouse.gateways.amqp.management.asking import refusal
from gatehouse.gateways.amqp.management.calls import serve
from gatehouse.gateways.contract import HttpRoute

MANAGEMENT: Final = HttpRoute("/api", serve, refusal, GUEST)
METRICS: Final = HttpRoute("/rabbitmq", metrics.serve, refusal, GUEST)
