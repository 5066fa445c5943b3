"""How Kafka spells an address: topic and key, which its clients name themselves, whatever the routes say. Pure."""
from __future__ import annotations

import re
from typing import Any, Final

from gatehouse.gateways.addresses import Place, Record, Spelling, describe_record


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
