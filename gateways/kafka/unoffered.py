"""Requests of APIs that are not offered: answered with UNSUPPORTED_VERSION where their answer has a place for it, so
that who asks without a look at ApiVersions raises an error and does not try for ever. Else the connection is closed, as
Kafka does."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.api_message import ApiMessage

from gatehouse.gateways.kafka import cold
from gatehouse.gateways.kafka.error_codes import UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.request import Api

UNOFFERED: Final = Api(-1, "a request that is not offered", 0, 0, 0, lambda request: request.done([request.data]))
"""Stands for any of them; its requests carry their answers as data."""

PACKAGES: Final = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)


# decision 176
def encode_unoffered(key: int, version: int, correlation_id: int) -> bytes | None:
    """The answer to a request that is not offered; None where it could not say so."""
    message = _answers().get(key)
    if message is None or not message.min_version <= version <= message.max_version \
            or "error_code" not in [field.name for field in message._struct.untagged_fields(version)]:
        return None
    return cold.encode(message, version, correlation_id, error_code=UNSUPPORTED_VERSION)


@cache
def _answers() -> dict[int, Any]:
    """The class of each answer that kafka-python knows, by its API's number."""
    return {message.API_KEY: message for message in _classes(ApiMessage) if str(message.name).endswith("Response")}


def _classes(message: Any) -> Iterator[Any]:
    for made_of in message.__subclasses__():
        yield made_of
        yield from _classes(made_of)
