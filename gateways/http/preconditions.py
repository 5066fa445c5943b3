"""Changes that are made only to what their sender has seen: `If-Match` and `If-None-Match` of RFC 9110, 13. Pure.

What can be changed so has strong tags, made of the document that is shown. Users and rules show settings alone. Topics,
groups and webhooks show how they do, too, so their tags have two parts:

    "DEFINITION"            a user, a rule
    "DEFINITION.ALL"        a topic, a group, a webhook

Who asks for it again has it if the whole tag is the same; a change asks about the definition alone, which a message
more or less does not touch. Other paths refuse `If-Match`.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from gatehouse.gateways.http.encoding import TAG_BYTES, matches
from gatehouse.gateways.http.problems import Refusal

MATCHED: Final = frozenset(("/v1/users/{name}", "/v1/acl/{id}", "/v1/limits/{id}", "/v1/topics/{topic}",
                            "/v1/groups/{group}", "/v1/webhooks/{webhook}"))
"""Paths whose answers have a strong tag, and whose changes ask about it."""


def strong_tag(*parts: bytes) -> str:  # decision 75
    """The strong ETag made of these bytes: of a definition, and perhaps of all that is shown."""
    return f'"{".".join([blake2b(part, digest_size=TAG_BYTES).hexdigest() for part in parts])}"'


def check_conditions(headers: Mapping[str, str], definition: Mapping[str, Any] | None) -> None:
    """Refuses `precondition_failed`. `definition` is what is there now; None: nothing."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    if wanted is None and unwanted is None:
        return
    tag = None if definition is None else strong_tag(orjson.dumps(definition))
    if wanted is not None and not _is_one_of(wanted, tag):
        raise Refusal("precondition_failed", "there is nothing to change" if tag is None
                      else "it is another by now; look at it again")
    if unwanted is not None and tag is not None and matches(",".join(_definitions(unwanted)), tag):
        raise Refusal("precondition_failed", "it is there already")


def _is_one_of(wanted: str, tag: str | None) -> bool:
    """13.1.1: strong comparison, so that a weak tag is never one."""
    return tag is not None and any(definition in ("*", tag) for definition in _definitions(wanted))


def _definitions(tags: str) -> Iterator[str]:
    """Tags of definitions alone."""
    for tag in tags.split(","):
        definition, dot, _ = tag.strip().partition(".")
        yield f'{definition}"' if dot else definition
