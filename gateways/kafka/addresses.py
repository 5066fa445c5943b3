"""How Kafka spells an address: topic and key, which its clients name themselves, whatever the routes say. Pure."""
from __future__ import annotations

import re
from typing import Any, Final

from gatehouse.gateways.addresses import Place, Record, Spelling


def parse_kafka_name(text: str) -> Record:
    """What `TOPIC:KEY`, `TOPIC/KEY` or `TOPIC` name, for people: a topic name holds neither `:` nor `/`."""
    match = re.search("[:/]", text)
    if match is None:
        return Record(text, None)
    return Record(text[:match.start()], text[match.end():].encode())


def _line(place: Place) -> str:
    if place.topic is None:
        return "no topic"
    key = "no key" if place.key is None else f"key '{place.key.decode(errors='replace')}'"
    return f"topic {place.topic}, {key}"


def _document(place: Place) -> dict[str, Any]:
    return {"topic": place.topic, "key": None if place.key is None else place.key.decode(errors="replace")}


SPELLING: Final = Spelling("Kafka", parse_kafka_name, lambda place: [_line(place)], _document)
