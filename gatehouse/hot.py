"""The modules that run once per message: what `make compile` compiles, in this one list.

They are ordinary Python that mypyc takes as it is. `make compile` refuses a name that does not exist, so the list stays
true.
"""
from __future__ import annotations

from typing import Final

HOT_MODULES: Final = (
    "gateways.amqp.codec",
    "gateways.amqp.unacked",
    "gateways.connection",
    "gateways.kafka.codec",
    "gateways.kafka.fetch_codec",
    "gateways.mqtt.backlog",
    "gateways.mqtt.codec",
    "gateways.mqtt.inbox",
    "gateways.mqtt.outbox",
    "gateways.mqtt.session",
    "gateways.mqtt.window",
    "kernel.appending",
    "kernel.burst",
    "kernel.committer",
    "kernel.flushing",
    "kernel.gathering",
    "kernel.heads",
    "kernel.leasing.group",
    "kernel.leasing.line",
    "kernel.leasing.pages",
    "kernel.leasing.receipts",
    "kernel.leasing.supply",
    "kernel.message",
    "kernel.murmur2",
    "kernel.record",
    "kernel.selectors.conditions",
    "kernel.selectors.like",
    "kernel.selectors.numerals",
    "kernel.selectors.selector",
    "kernel.tail",
)
