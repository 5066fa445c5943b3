"""ApiVersions 0 to 4: what is offered, read from the one table; the first thing a client asks, before it logs in. And
what becomes of requests that are not offered.

A version of ApiVersions newer than known is answered in version 0's format with error 35 and the keys, so that the
client asks again. A request of an API, or a version, that is not offered is answered with UNSUPPORTED_VERSION where its
answer has a place for it, so that who asks without a look at ApiVersions raises an error and does not try for ever.
Else the connection is closed, as Kafka does.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from gatehouse.gateways.kafka import cold
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import NONE, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.request import Api, Request

FEATURES: Final[dict[str, tuple[int, int]]] = {"group.version": (0, 1)}
"""Levels of features that clients choose their ways by: (lowest, finalized) by name. A feature stands here when all
that its level promises is there."""

MAX_SHOWN: Final = 100        # characters of a client's name and version that people are shown


def dispatch(request: Request) -> None:
    asked = request.decode(ApiVersionsRequest)
    if asked.client_software_name:
        request.session.note_software(f"{asked.client_software_name} {asked.client_software_version}"[:MAX_SHOWN])
    _answer(request, NONE)


def answer_unknown_version(request: Request) -> None:
    _answer(request, UNSUPPORTED_VERSION)


def _answer(request: Request, error: int) -> None:
    keys = [Row(api_key=api.key, min_version=api.first_version if api.first_listed is None else api.first_listed,
                max_version=api.last_version)
            for api in request.session.apis.values()]
    request.answer(
        ApiVersionsResponse, error_code=error, api_keys=keys, throttle_time_ms=0, finalized_features_epoch=0,
        supported_features=[Row(name=name, min_version=lowest, max_version=level)
                            for name, (lowest, level) in FEATURES.items()],
        finalized_features=[Row(name=name, min_version_level=level, max_version_level=level)
                            for name, (_, level) in FEATURES.items()])


API_VERSIONS = Api(key=18, name="ApiVersions", first_version=0, last_version=4, first_flexible=3, dispatch=dispatch)


UNOFFERED: Final = Api(-1, "a request that is not offered", 0, 0, 0, lambda request: request.done([request.data]))
"""Stands for any of them; its requests carry their answers as data."""

PACKAGES: Final = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
"""Imported, so that `_answers` finds their classes."""


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
