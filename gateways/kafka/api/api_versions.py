"""ApiVersions 0 to 4: what is offered, read from the one table. The first thing a client asks, before it logs in.

A version newer than known is answered in version 0's format with error 35 and the keys, so that the client asks again.
"""
from __future__ import annotations

from typing import Final

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

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
