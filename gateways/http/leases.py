"""Leased groups as HTTP says them: messages with receipt handles, settings as JSON, one result per handle. Pure."""
from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from gatehouse.gateways.http.declaring import (
    TEXT,
    WHOLE,
    Document,
    Named,
    Setting,
    document_like,
    list_of,
    object_of,
    one_of,
    properties_of,
    shown,
)
from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.problems import Refusal, document_of
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group import Counts
from gatehouse.kernel.groups.group_settings import (
    ASSIGNED,
    LEASED,
    LEAST_OPEN_MS,
    MAX_BACKOFF_STEPS,
    MAX_DELAY_MS,
    MAX_FAILURES,
    MAX_INVISIBLE_MS,
    MAX_OPEN_MS,
    STARTS,
    GroupSettings,
    Pausing,
    Retry,
)
from gatehouse.kernel.selectors.tokens import MAX_TEXT_CHARS

MAX_HANDLE_CHARACTERS: Final = 256        # of one handle; what is longer was not made here

_DELAY_MS: Final = {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS}
_DELAYS: Final = list_of(_DELAY_MS, maxItems=MAX_BACKOFF_STEPS)
_RETRY: Final = {"delays_ms": _DELAYS, "first_ms": _DELAY_MS, "longest_ms": _DELAY_MS,
                 "factor": {"type": "number", "minimum": 1, "maximum": 100},
                 "jitter": {"type": "number", "minimum": 0, "maximum": 1}}
_OPEN_MS: Final = {"type": "integer", "minimum": LEAST_OPEN_MS, "maximum": MAX_OPEN_MS}
_PAUSING: Final = {"failures": {"type": "integer", "minimum": 0, "maximum": MAX_FAILURES},
                   "open_ms": _OPEN_MS, "longest_open_ms": _OPEN_MS}
_SETTINGS: Final = properties_of(
    GroupSettings, kind=one_of(LEASED, ASSIGNED), start=one_of(*STARTS), retry=object_of(_RETRY),
    pausing=object_of(_PAUSING),
    invisible_ms={"type": "integer", "minimum": 1, "maximum": MAX_INVISIBLE_MS},
    max_attempts={"type": "integer", "minimum": 0, "maximum": 65_535},
    selector={"type": "string", "format": "selector", "maxLength": MAX_TEXT_CHARS})
RetryInput: Final = document_like(
    "RetryInput", Retry, {"delays_ms": Annotated[list[int], shown(**_DELAYS)],
                          **{name: Annotated[hint, shown(**_RETRY[name])] for name, hint in (
                              ("first_ms", int), ("longest_ms", int), ("factor", float), ("jitter", float))}})
PausingInput: Final = document_like(
    "PausingInput", Pausing, {name: Annotated[int, shown(**rule)] for name, rule in _PAUSING.items()})
GroupInput: Final = document_like(
    "GroupInput", GroupSettings, {"retry": RetryInput | Annotated[list[int], shown(**_DELAYS)] | None,
                                  "pausing": PausingInput | None,
                                  **{name: Annotated[hint, shown(**_SETTINGS[name])] for name, hint in (
                                      ("kind", str), ("start", str), ("invisible_ms", int), ("max_attempts", int),
                                      ("selector", str))}},
    example={"invisible_ms": 60_000, "max_attempts": 5, "retry": [1_000, 10_000]})
"""`retry` is a list of delays in ms, or an object of the fields of `kernel.groups.group_settings.Retry`."""
GROUP: Final = {"name": TEXT, **_SETTINGS}
COUNTS: Final = dict.fromkeys(Counts._fields, WHOLE)
"""What `LeasedGroup.counts` gives."""


def read_settings(document: Document, kind: str = LEASED) -> GroupSettings:
    """The settings of a group's document; what it leaves out is as by default, and `kind` as said here."""
    given = {"kind": kind, **document.given()}
    retry = given.pop("retry", None)
    if isinstance(retry, list):
        retry = {"delays_ms": retry}
    elif isinstance(retry, Document):
        retry = retry.given()
    if retry:
        retry["delays_ms"] = tuple(retry.get("delays_ms", ()))
    pausing = given.pop("pausing", None)
    return GroupSettings(**given, retry=Retry(**(retry or {})),
                         pausing=Pausing(**pausing.given()) if isinstance(pausing, Document) else Pausing())


def describe_settings(settings: GroupSettings) -> dict[str, Any]:
    """The settings as JSON's types, as `read_settings` takes them."""
    return asdict(settings)


class Handles(Document):
    """Leased messages, by the handles that came with them."""

    EXAMPLE = {"receipt_handles": ["q1.17.3"]}
    receipt_handles: Annotated[list[str], Meta(min_length=1), shown(maxItems=Setting("max_request_messages"))]


class Extension(Handles):
    """Keep them for so many seconds from now on; unless given, for as long as the group says."""

    invisible: Annotated[float, Meta(ge=0.001, le=MAX_INVISIBLE_MS / 1000)] | UnsetType | None = UNSET


class Release(Handles):
    """Give them back, to come again after so many seconds, or never; unless given, as the group's retry says."""

    RULES = {"not": {"required": ["delay", "dead_letter"],
                     "properties": {"delay": {"type": "number"}, "dead_letter": {"const": True}}}}
    delay: Annotated[float, Meta(ge=0, le=MAX_DELAY_MS / 1000)] | UnsetType | None = UNSET
    dead_letter: bool = False

    def __post_init__(self) -> None:
        if self.dead_letter and ms_of(self.delay) is not None:
            raise ValueError("what is dead has no 'delay'")


def ms_of(seconds: float | UnsetType | None) -> int | None:
    """The time in ms; None where none is given."""
    return None if seconds is None or seconds is UNSET else round(seconds * 1000)


def handles_in(document: Handles, max_handles: int) -> list[str]:
    """The receipt handles of a request. Refuses `invalid_body`; a handle that was not made here is no error yet."""
    if len(document.receipt_handles) > max_handles:
        raise Refusal("invalid_body", f"a request has 1 to {max_handles} receipt handles, "
                                      f"this one {len(document.receipt_handles)}")
    return [handle[:MAX_HANDLE_CHARACTERS] for handle in document.receipt_handles]


RESULTS: Final = Named("LeaseResults", object_of({"results": list_of({"anyOf": [
    object_of({"receipt_handle": TEXT, "status": one_of(200)}), PROBLEM]})}))


def result_of(handle: str, error: KernelError | None) -> dict[str, Any]:
    """What became of one receipt handle."""
    if error is None:
        return {"receipt_handle": handle, "status": 200}
    return document_of(error.code, str(error), {"receipt_handle": handle})
