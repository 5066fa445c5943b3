"""Leased groups as HTTP says them: messages with receipt handles, settings as JSON, one result per handle. Pure."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.problems import Refusal, document_of
from gatehouse.gateways.http.schemas import (
    TEXT,
    WHOLE,
    Named,
    Schema,
    Setting,
    list_of,
    object_of,
    one_of,
    properties_of,
)
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group import Counts
from gatehouse.kernel.groups.settings import (
    ASSIGNED,
    LEASED,
    MAX_BACKOFF_STEPS,
    MAX_DELAY_MS,
    MAX_INVISIBLE_MS,
    STARTS,
    GroupSettings,
    Retry,
)
from gatehouse.kernel.selectors.tokens import MAX_TEXT_CHARS
from gatehouse.kernel.state.topics import Topic

SETTINGS: Final = {field.name: field.type for field in fields(GroupSettings) if field.name != "retry"}
RETRY: Final = {field.name: field.type for field in fields(Retry)}
TYPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "int": ((int,), "a whole number"), "float": ((int, float), "a number"), "str": ((str,), "a text"),
    "bool": ((bool,), "true or false")}
MAX_HANDLE_CHARACTERS: Final = 256        # of one handle; what is longer was not made here

_DELAY_MS: Final = {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS}
_DELAYS: Final = list_of(_DELAY_MS, maxItems=MAX_BACKOFF_STEPS)
_RETRY: Final = {"delays_ms": _DELAYS, "first_ms": _DELAY_MS, "longest_ms": _DELAY_MS,
                 "factor": {"type": "number", "minimum": 1, "maximum": 100},
                 "jitter": {"type": "number", "minimum": 0, "maximum": 1}}
_SETTINGS: Final = properties_of(
    GroupSettings, kind=one_of(LEASED, ASSIGNED), start=one_of(*STARTS), retry=object_of(_RETRY),
    invisible_ms={"type": "integer", "minimum": 1, "maximum": MAX_INVISIBLE_MS},
    max_attempts={"type": "integer", "minimum": 0, "maximum": 65_535},
    selector={"type": "string", "format": "selector", "maxLength": MAX_TEXT_CHARS})
GROUP_SETTINGS: Final = Named("GroupSettings", object_of({}, {
    **_SETTINGS, "retry": {"anyOf": [object_of({}, _RETRY, closed=True), _DELAYS, {"type": "null"}]}}, closed=True),
    {"invisible_ms": 60_000, "max_attempts": 5, "retry": [1_000, 10_000]})
GROUP: Final = {"name": TEXT, **_SETTINGS}
COUNTS: Final = dict.fromkeys(Counts._fields, WHOLE)
"""What `LeasedGroup.counts` gives."""


def read_settings(document: Mapping[str, Any]) -> GroupSettings:
    """The settings of a group's document; what it leaves out is as by default. Refuses `invalid_body`.

    `retry` is a list of delays in ms, or an object of the fields of `kernel.groups.settings.Retry`.
    """
    given = {name: value for name, value in document.items() if name != "retry"}
    _check_fields(given, SETTINGS, "a group")
    return GroupSettings(**given, retry=_read_retry(document.get("retry")))


def _read_retry(given: object) -> Retry:
    if given is None:
        return Retry()
    if isinstance(given, list):
        given = {"delays_ms": given}
    if not isinstance(given, dict):
        raise Refusal("invalid_body", "'retry' is a list of delays in ms, or an object")
    delays = given.get("delays_ms", [])
    if not isinstance(delays, list) or any(type(delay) is not int for delay in delays):
        raise Refusal("invalid_body", "'delays_ms' is a list of whole numbers")
    others = {name: value for name, value in given.items() if name != "delays_ms"}
    _check_fields(others, RETRY, "a retry")
    return Retry(tuple(delays), **others)


def _check_fields(given: Mapping[str, Any], settings: Mapping[str, Any], what: str) -> None:
    for name, value in given.items():
        if name not in settings:
            raise Refusal("invalid_body", f"{what} has no setting {name!r}; there are: {', '.join(settings)}")
        types, said = TYPES[str(settings[name])]
        if type(value) not in types:
            raise Refusal("invalid_body", f"{name!r} is {said}")


def describe_settings(settings: GroupSettings) -> dict[str, Any]:
    """The settings as JSON's types, as `read_settings` takes them."""
    return asdict(settings)


def read_handles(document: Mapping[str, Any], max_handles: int, *more: str) -> list[str]:
    """The receipt handles of a request. Refuses `invalid_body`; a handle that was not made here is no error yet."""
    for name in document:
        if name != "receipt_handles" and name not in more:
            raise Refusal("invalid_body", f"there is no {name!r} here; there are: receipt_handles, {', '.join(more)}")
    handles = document.get("receipt_handles")
    if not isinstance(handles, list) or not all(isinstance(handle, str) for handle in handles):
        raise Refusal("invalid_body", "'receipt_handles' is a list of texts")
    if not 0 < len(handles) <= max_handles:
        raise Refusal("invalid_body", f"a request has 1 to {max_handles} receipt handles, this one {len(handles)}")
    return [handle[:MAX_HANDLE_CHARACTERS] for handle in handles]


def _read_ms(document: Mapping[str, Any], name: str, lowest_ms: int, highest_ms: int) -> int | None:
    """A number of seconds of the document in ms, None where it is not given. Refuses `invalid_body`."""
    given = document.get(name)
    if given is None:
        return None
    if type(given) not in (int, float) or not lowest_ms <= given * 1000 <= highest_ms:
        raise Refusal("invalid_body", f"{name!r} is a number of seconds from {lowest_ms / 1000:g} to "
                                      f"{highest_ms / 1000:g}")
    return int(round(given * 1000))


def read_invisible_ms(document: Mapping[str, Any]) -> int | None:
    """For how long messages stay with their taker; None: as the group says."""
    return _read_ms(document, "invisible", 1, MAX_INVISIBLE_MS)


def read_delay_ms(document: Mapping[str, Any]) -> int | None:
    """After how long released messages come again; None: as the group's retry says."""
    return _read_ms(document, "delay", 0, MAX_DELAY_MS)


HANDLES: Final[dict[str, Any]] = {
    "receipt_handles": list_of(TEXT, minItems=1, maxItems=Setting("max_request_messages"))}
RESULTS: Final = Named("LeaseResults", object_of({"results": list_of({"anyOf": [
    object_of({"receipt_handle": TEXT, "status": one_of(200)}), PROBLEM]})}))


def seconds_of(lowest_ms: int, highest_ms: int) -> Schema:
    """What `_read_ms` takes, for the document."""
    return {"type": ["number", "null"], "minimum": lowest_ms / 1000, "maximum": highest_ms / 1000}


INVISIBLE: Final = seconds_of(1, MAX_INVISIBLE_MS)
DELAY: Final = seconds_of(0, MAX_DELAY_MS)


def result_of(handle: str, error: KernelError | None) -> dict[str, Any]:
    """What became of one receipt handle."""
    if error is None:
        return {"receipt_handle": handle, "status": 200}
    return document_of(error.code, str(error), {"receipt_handle": handle})


def partition_number(topic: Topic, partition_id: int) -> int:
    """Which partition of its topic this is, from 0."""
    before = 0
    for first, count in topic.ranges:
        if first <= partition_id < first + count:
            return before + partition_id - first
        before += count
    raise ValueError(f"{partition_id} is no partition of {topic.name}")
