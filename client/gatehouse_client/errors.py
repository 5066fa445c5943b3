"""What a call of the client can end in: one class per thing that a program would do about it.

`code` is the hub's stable code (docs/errors.md) where it gave one; `status` the HTTP status, 0 where there was none.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class HubError(Exception):
    """The hub refused, failed or is not there. The text is one line for people."""

    def __init__(self, text: str, code: str = "", status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.status = status
        self.problem: Mapping[str, Any] = problem or {}
        """The whole problem document; some codes say more than their text, as numbers."""
        self.retry_after_s = 0.0
        """Seconds after which the hub asks to come again."""


class InvalidRequest(HubError):
    """The call asks for something that cannot be: correct the program."""


class NotAuthenticated(HubError):
    """A user and password are needed, or these are wrong."""


class NotAuthorized(HubError):
    """The user has no right to do this."""


class NotFound(HubError):
    """The topic, queue, group or message does not exist."""


class Conflict(HubError):
    """The request contradicts what is there already."""


class TooLarge(HubError):
    """A message or request beyond its limit."""


class LeaseLost(HubError):
    """The receipt handle holds nothing any more: it was settled, it ran out, or it is not one of this group."""


class OverQuota(HubError):
    """The user's quota is used up for now; nothing was stored."""


class NotBuilt(HubError):
    """The hub knows the name and cannot do it yet."""


class HubFault(HubError):
    """The hub failed, or its disk did."""


class Unavailable(HubError):
    """No hub answers, or it is too busy or stopping; nothing was stored."""


class OutcomeUnknown(HubError):
    """The request may have taken effect or not. Repeating it with the same `idempotency_key` is safe, where there is
    one."""

    idempotency_key: str | None = None


LEASE_CODES: Final = frozenset(("receipt_expired", "unknown_receipt"))
BY_STATUS: Final[dict[int, type[HubError]]] = {
    400: InvalidRequest, 401: NotAuthenticated, 403: NotAuthorized, 404: NotFound, 405: InvalidRequest,
    408: Unavailable, 409: Conflict, 410: Conflict, 413: TooLarge, 415: InvalidRequest, 416: InvalidRequest,
    417: InvalidRequest, 422: Conflict, 429: OverQuota, 431: InvalidRequest, 501: NotBuilt, 502: OutcomeUnknown,
    503: Unavailable, 504: OutcomeUnknown}


def error_of(status: int, problem: Mapping[str, Any]) -> HubError:
    """What an `application/problem+json` says, as an exception; other answers become one by their status."""
    code = str(problem.get("code", ""))
    text = problem.get("detail") or problem.get("title") or f"it answered {status}"
    kind = LeaseLost if code in LEASE_CODES else BY_STATUS.get(status, HubFault)
    return kind(f"the hub refused: {text}{f' ({code})' if code else ''}", code, status, problem)
