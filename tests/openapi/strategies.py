"""What the document says in words, for schemathesis: languages of their own (`format`), and what may not stand
together."""
from __future__ import annotations

import re
import string
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import schemathesis
from hypothesis import strategies
from schemathesis.core import NotSet

LEVELS = strategies.text("abcdefghijklmnop-_.0123456789 \N{SNOWMAN}", min_size=1, max_size=12)

schemathesis.openapi.format("cursor", strategies.just(""))
FIRST_LEVELS = strategies.text(string.ascii_letters, min_size=1, max_size=12)          # topic names
schemathesis.openapi.format("address", strategies.tuples(FIRST_LEVELS, strategies.lists(LEVELS, max_size=4)).map(
    lambda drawn: "/".join([drawn[0], *drawn[1]])))
schemathesis.openapi.format("repeat", strategies.sampled_from(["every 10s", "R5/PT10S", "0 8 * * MON-FRI"]))
PRINTED = strategies.text(strategies.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=40)
schemathesis.openapi.format("printable", PRINTED)
schemathesis.openapi.format("password", strategies.text(string.ascii_letters, min_size=8, max_size=30))
schemathesis.openapi.format("webhook-url", strategies.sampled_from(["https://shop.example/hook", "https://a.example/?b"]))
schemathesis.openapi.format("webhook-secret", strategies.binary(min_size=24, max_size=64).map(
    lambda secret: f"whsec_{b64encode(secret).decode()}"))
schemathesis.openapi.format("who", strategies.sampled_from(["user:", "group:"]).flatmap(
    lambda sort: PRINTED.map(sort.__add__)))                 # a rule for everyone could shut out who asks here
schemathesis.openapi.format("address-pattern", strategies.sampled_from(["plant/#", "inbox/{user}/+", "a", "+/b/#"]))
# None of these would refuse the others.
for _name, _of in (("limit-of-connections", ["door:none", "user:limited", "tenant:none"]),
                   ("limit-of-what-is-stored", ["tenant:none"]), ("limit-of-a-topic", ["topic:limited"]),
                   ("limit-of-the-hub", ["door:none", "user:limited", "group:none"]),
                   ("limit-of-a-tenant", ["client:limited", "address:limited/#", "topic:limited"]),
                   ("limit-that-may-yield", ["user:limited", "client:limited", "user-client:limited/*"]),
                   ("limit-of-consumers", ["consumers:none"])):
    schemathesis.openapi.format(_name, strategies.sampled_from(_of))
schemathesis.openapi.format("name-pattern", strategies.sampled_from(["plant", "plant.*", "*", "{user}-work"]))
schemathesis.openapi.format("selector", strategies.sampled_from([
    "priority > 3", "content_type = 'text/plain'", "address LIKE 'plant/%'", "NOT (unit = 'C') AND key IS NOT NULL"]))

TOPIC = re.compile("[A-Za-z0-9._-]{1,249}")
LAST_YEAR = datetime.now(UTC).year + 9

OF_AN_ADDRESS = ("/v1/publish/{address}", "/v1/request/{address}")
MESSAGES = "/v1/topics/{topic}/messages"
ONE_OR_MANY = (MESSAGES, "/v1/transactions", "/v1/transactions/{id}/messages")


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether the document, read by a human being, allows to say all of this at once."""
    if (case.path_parameters or {}).get("name") == "root" and case.method != "GET":
        return False                     # it is who asks
    if isinstance(case.body, dict) and _is_over(case.body.get("expires")):
        return False
    if case.path in ONE_OR_MANY and isinstance(case.body, str):
        return False                     # it would be sent as JSON: another kind of body
    headers = {name.lower() for name in case.headers or {}}
    query = case.query or {}
    if any("unknown-property" in name for name in headers):
        return False                     # a request may have headers that nobody knows (RFC 9110, 5.1)
    if {"x-delay", "x-deliver-at"} <= headers or {"x-expires-at", "x-expires-in"} <= headers:
        return False
    if _is_far_ahead((case.headers or {}).get("X-Deliver-At")) or len((case.headers or {}).get("X-Delay", "")) > 8:
        return False
    if "cloudevents" in (case.media_type or "") and headers & OF_ONE_MESSAGE:
        return False
    if case.path == "/v1/publish":
        in_json = case.media_type == "application/json" and not isinstance(case.body, NotSet)
        return "x-message-key" not in headers if "address" in query else in_json and not headers & OF_ONE_MESSAGE
    if case.path in OF_AN_ADDRESS:
        address = str((case.path_parameters or {}).get("address"))
        if "/" in address or "%2F" in address:
            return False                 # as it encodes slashes; the query is the way for it
        return "x-message-key" not in headers or TOPIC.fullmatch(address) is not None
    if case.path in ONE_OR_MANY and case.method == "POST":
        in_json = case.media_type == "application/json" and not isinstance(case.body, NotSet)
        if in_json and (query or headers & OF_ONE_MESSAGE):
            return False
        if case.path != MESSAGES and not in_json:
            return ("address" in query) != ("topic" in query) and not {"address", "key"} <= query.keys() and (
                "group" in query or "{id}" in case.path)
        return not ("key" in query and "x-message-key" in headers)
    if case.path == MESSAGES and case.method == "GET":
        begin = query.get("from")
        return "cursor" not in query and not (isinstance(begin, str) and begin.isdigit() and "partition" not in query)
    return True


def _is_over(time: Any) -> bool:
    """Whether a time in milliseconds since 1970 has been."""
    return isinstance(time, int | float) and time < datetime.now(UTC).timestamp() * 1000


def _is_far_ahead(time: Any) -> bool:
    """Whether it is more than ten years ahead; a time is text as RFC 3339 has it, or milliseconds."""
    if isinstance(time, int):
        return time > (LAST_YEAR - 1970) * 365 * 86_400_000
    return isinstance(time, str) and time[:4].isdigit() and int(time[:4]) > LAST_YEAR


OF_ONE_MESSAGE = {"x-message-id", "x-message-key", "content-encoding", "x-correlation-id", "x-reply-to", "x-expires-at",
                  "x-expires-in", "x-timestamp", "x-priority", "x-deliver-at", "x-delay", "x-retain", "x-repeat",
                  "x-receipt", "x-receipt-group", "x-header-name"}
