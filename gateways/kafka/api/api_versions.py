"""ApiVersions 0 to 4: what is offered, read from the one table. The first thing a client asks, before it logs in.

A version newer than known is answered in version 0's format with error 35 and the keys, so that the client asks again.
"""
from __future__ import annotations

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import NONE, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.request import Api, Request

MAX_SHOWN = 100        # characters of a client's name and version that people are shown


def dispatch(request: Request) -> None:
    asked = request.decode(ApiVersionsRequest)
    if asked.client_software_name:
        request.session.client_software = f"{asked.client_software_name} {asked.client_software_version}"[:MAX_SHOWN]
    _answer(request, NONE)


def answer_unknown_version(request: Request) -> None:
    _answer(request, UNSUPPORTED_VERSION)


def _answer(request: Request, error: int) -> None:
    keys = [Row(api_key=api.key, min_version=api.first_version if api.first_listed is None else api.first_listed,
                max_version=api.last_version)
            for api in request.session.apis.values()]
    request.answer(ApiVersionsResponse, error_code=error, api_keys=keys)


API_VERSIONS = Api(key=18, name="ApiVersions", first_version=0, last_version=4, first_flexible=3, dispatch=dispatch)
