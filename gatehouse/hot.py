"""The modules that run once per message: what `make compile` compiles, in this one list.

They are ordinary Python that mypyc takes as it is. `make compile` refuses a name that does not exist, so the list stays
true.
"""
from __future__ import annotations

from typing import Final

HOT_MODULES: Final = (
    "kernel.burst",
    "kernel.heads",
    "kernel.message",
    "kernel.murmur2",
    "kernel.record",
    "kernel.tail",
    "gateways.mqtt.codec",
    "gateways.mqtt.window",
    "gateways.mqtt.inbox",
    "gateways.mqtt.outbox",
    "gateways.mqtt.session",
)
