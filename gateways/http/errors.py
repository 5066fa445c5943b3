"""From whatever a call raised to the answer: always a problem document, never a traceback to the client."""
from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp import web

from gatehouse.gateways.admission.errors import AccountError, Denied, LoginsFull, NotAuthenticated
from gatehouse.gateways.http.answers import problem_answer
from gatehouse.gateways.http.login import challenges
from gatehouse.gateways.http.problems import PROBLEMS, Refusal, document_of
from gatehouse.kernel.errors import AlreadyDecided, KernelError

log = logging.getLogger("gatehouse.gateways.http")

CODES_OF_STATUS: Final[dict[int, str]] = {
    400: "malformed_request", 404: "not_found", 405: "method_not_allowed", 408: "body_too_slow", 413: "body_too_large",
    415: "unsupported_media_type", 417: "expectation_failed", 426: "upgrade_required",
    431: "headers_too_large", 503: "busy",
}
"""Refusals of the server library, and of routes that other doors mount."""


def _members(error: Exception) -> dict[str, Any] | None:
    """What a problem says beside its code."""
    return {"state": error.state, "decided": error.when_ms} if isinstance(error, AlreadyDecided) else None


def answer_to(error: Exception, asked: str, authorization: str | None, hub_name: str) -> web.Response:
    """The answer to a request (`METHOD PATH`) that ended in `error`. A fault of ours is logged with its traceback."""
    if isinstance(error, Refusal):
        return problem_answer(error.code, error.detail, error.headers, error.members)
    if isinstance(error, KernelError):
        if error.code not in PROBLEMS:
            log.error("%s: unexpected refusal %s: %s", asked, error.code, error)
        headers = {"Retry-After": "1"} if error.code == "stopping" else None
        return problem_answer(error.code, str(error), headers, _members(error))
    if isinstance(error, LoginsFull):
        return problem_answer(error.code, str(error), {"Retry-After": "1"})
    if isinstance(error, NotAuthenticated):
        challenge = challenges(hub_name, authorization)
        return problem_answer(error.code, str(error), {"WWW-Authenticate": challenge})
    if isinstance(error, (Denied, AccountError)):
        return problem_answer(error.code, str(error))
    if isinstance(error, web.HTTPException):
        return _answer_to_library(error)
    log.error("%s failed", asked, exc_info=error)
    return problem_answer("internal_error", "the hub failed to handle this request; its log says why")


def problem_document(error: Exception) -> dict[str, Any]:
    """The problem document for an error that is not the answer to a request (but a frame, say). A fault of ours is
    logged."""
    if isinstance(error, Refusal):
        return document_of(error.code, error.detail, error.members)
    if isinstance(error, (KernelError, NotAuthenticated, Denied)):
        return document_of(error.code, str(error), _members(error))
    log.error("a frame could not be answered", exc_info=error)
    return document_of("internal_error", "the hub failed to do this; its log says why")


def _answer_to_library(error: web.HTTPException) -> web.Response:
    """A refusal raised by the server library or by a mounted route; redirects and the like pass as they are."""
    code = CODES_OF_STATUS.get(error.status)
    if code is None:
        raise error
    headers = {name: value for name, value in error.headers.items() if not name.lower().startswith("content-")}
    own = error.text if error.text != f"{error.status}: {error.reason}" else None
    return problem_answer(code, own or error.reason, headers)
