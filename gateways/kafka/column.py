"""Which properties of a message Kafka carries: record headers are the stored ones; and how it spells an address:
topic and key, which its clients name themselves, whatever the routes say. Pure.
"""
from __future__ import annotations

import re
from typing import Any, Final

from gatehouse.gateways.addresses import Place, Record, Spelling, describe_record
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
    "x-trace": (header_cell("x-trace"),),
    "receipt": (header_cell("receipt"),),
    "receipt-group": (header_cell("receipt-group"),),
}, show_header=lambda name, value: (name, value), text_is_bytes=True)


def parse_kafka_name(text: str) -> Record:
    """What `TOPIC:KEY`, `TOPIC/KEY` or `TOPIC` name, for people: a topic name holds neither `:` nor `/`."""
    match = re.search("[:/]", text)
    if match is None:
        return Record(text, None)
    return Record(text[:match.start()], text[match.end():].encode())


def _line(place: Place) -> str:
    return "no topic" if place.topic is None else describe_record(place.topic, place.key)


def _document(place: Place) -> dict[str, Any]:
    return {"topic": place.topic, "key": None if place.key is None else place.key.decode(errors="replace")}


SPELLING: Final = Spelling("Kafka", parse_kafka_name, lambda place: [_line(place)], _document)
