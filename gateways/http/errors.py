"""From whatever a call raised to the answer: always a problem document, never a traceback to the client."""
from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from gateways.admission.admission import Denied, NotAuthenticated
from gateways.http.answers import problem_answer
from gateways.http.problems import PROBLEMS, Refusal
from kernel.errors import KernelError

log = logging.getLogger("gatehouse.gateways.http")

CODES_OF_STATUS: Final[dict[int, str]] = {
    400: "malformed_request", 404: "not_found", 405: "method_not_allowed", 408: "body_too_slow", 413: "body_too_large",
    415: "unsupported_media_type", 417: "expectation_failed", 431: "headers_too_large",
}
"""The server library's own refusals."""


def answer_to(error: Exception, request: web.BaseRequest, hub_name: str) -> web.StreamResponse:
    """The answer to a request that ended in `error`. A fault of ours is logged with its traceback, others are not."""
    if isinstance(error, Refusal):
        return problem_answer(error.code, error.detail, error.headers, error.members)
    if isinstance(error, KernelError):
        if error.code not in PROBLEMS:
            log.error("%s %s: unexpected refusal %s: %s", request.method, request.path, error.code, error)
        return problem_answer(error.code, str(error), {"Retry-After": "1"} if error.code == "stopping" else None)
    if isinstance(error, NotAuthenticated):
        challenge = f'Basic realm="{hub_name}", charset="UTF-8"'
        return problem_answer(error.code, str(error), {"WWW-Authenticate": challenge})
    if isinstance(error, Denied):
        return problem_answer(error.code, str(error))
    if isinstance(error, web.HTTPException):
        return _answer_to_library(error)
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return problem_answer("internal_error", "the hub failed to handle this request; its log says why")


def _answer_to_library(error: web.HTTPException) -> web.StreamResponse:
    """A refusal raised by the server library or by a mounted route; redirects and the like pass as they are."""
    code = CODES_OF_STATUS.get(error.status)
    if code is None:
        raise error
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return problem_answer(code, error.reason, headers)
