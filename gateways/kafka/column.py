"""Which properties of a message Kafka carries: record headers are the stored ones. Pure."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.properties.envelope import Column, Shape, header_cell, property_cell

KAFKA: Final = Column("kafka", "Kafka", {
    "id": (header_cell("id"),),
    "key": (property_cell("key", Shape.BYTES),),
    "content-type": (header_cell("content-type"),),
    "content-encoding": (header_cell("content-encoding"),),
    "utf8": (header_cell("utf8"),),
    "correlation-id": (header_cell("correlation-id", Shape.BYTES),),
    "reply-to": (header_cell("reply-to"),),
    "expires-at": (header_cell("expires-at"),),
    "timestamp": (property_cell("timestamp", Shape.TIME_MS),),
    "priority": (header_cell("priority"),),
    "durability": (property_cell("acks", Shape.FLAG, read_only=True),),
    "deliver-at": (header_cell("deliver-at"),),
    "retain": (header_cell("retain"),),
    "traceparent": (header_cell("traceparent"),),
}, show_header=lambda name, value: (name, value), text_is_bytes=True)
