"""From whatever a call raised to the answer: always a problem document, never a traceback to the client."""
from __future__ import annotations

import logging
from math import ceil
from typing import Any

from gatehouse.gateways.admission.errors import AccountError, Denied, LoginsFull, NotAuthenticated, OverQuota
from gatehouse.gateways.http.login import challenges
from gatehouse.gateways.http.problems import PROBLEMS, Refusal, document_of
from gatehouse.gateways.http.response import Response, problem_answer
from gatehouse.kernel.errors import AlreadyDecided, KernelError, TooManyTopics
from gatehouse.tracing.context import hex_of, in_a_line

log = logging.getLogger("gatehouse.gateways.http")

def _members(error: Exception) -> dict[str, Any] | None:
    """What a problem says beside its code."""
    return {"state": error.state, "decided": error.when_ms} if isinstance(error, AlreadyDecided) else None


def answer_to(error: Exception, asked: str, authorization: str | None, hub_name: str, context: bytes = b"") -> Response:
    """The answer to a request (`METHOD PATH`) that ended in `error`. A fault of ours is logged with its traceback, and
    the trace id of the request's trace context."""
    if isinstance(error, Refusal):
        return problem_answer(error.code, error.detail, error.headers, error.members)
    if isinstance(error, KernelError):
        if error.code not in PROBLEMS:
            trace, fields = in_a_line(hex_of(context))
            log.error("%s: unexpected refusal %s: %s%s", asked, error.code, error, trace, extra={"fields": fields})
        headers = {"Retry-After": "1"} if error.code == "stopping" else None
        if isinstance(error, (OverQuota, TooManyTopics)) and error.wait_ms:
            headers = {"Retry-After": str(ceil(error.wait_ms / 1000))}
        return problem_answer(error.code, str(error), headers, _members(error))
    if isinstance(error, LoginsFull):
        return problem_answer(error.code, str(error), {"Retry-After": "1"})
    if isinstance(error, NotAuthenticated):
        challenge = challenges(hub_name, authorization)
        return problem_answer(error.code, str(error), {"WWW-Authenticate": challenge})
    if isinstance(error, (Denied, AccountError)):
        return problem_answer(error.code, str(error))
    trace, fields = in_a_line(hex_of(context))
    log.error("%s failed%s", asked, trace, exc_info=error, extra={"fields": fields})
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
