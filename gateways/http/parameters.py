"""Query parameters and request headers: declared once, for whoever parses them and for the document. Pure.

    MAX = Whole("max", "Messages in the page.", default=100, lowest=1, highest=Setting("max_page_messages"))
    ...
    count = MAX.read(call.query(), door.config)
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.schemas import CURSOR_IN, TEXT, Bound, Setting, value_of
from gatehouse.gateways.http.shapes import Schema
from gatehouse.gateways.http.target import decode_number, decode_seconds


@dataclass(frozen=True, slots=True)
class Parameter:
    """A text in the query, or a part of the path, or a request header: the declaration says which."""

    name: str
    help: str
    required: bool = False
    text: Schema = field(default_factory=lambda: TEXT)
    """What it may be; whoever uses it checks that."""

    example: str | None = None

    def schema(self, config: HttpConfig) -> Schema:
        """For the document."""
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Parameter):
    """A whole number of the query."""

    default: int | None = None
    lowest: Bound = 0
    highest: Bound = (1 << 63) - 1

    def read(self, query: dict[str, str], config: HttpConfig) -> int:
        """The number, or the default (at most `highest`). Refuses `invalid_parameter`."""
        highest = value_of(self.highest, config)
        default = 0 if self.default is None else min(self.default, highest)
        return decode_number(query, self.name, default, value_of(self.lowest, config), highest)

    def find(self, query: dict[str, str], config: HttpConfig) -> int | None:
        """The number, None where it is not given. Refuses `invalid_parameter`."""
        return self.read(query, config) if self.name in query else None

    def schema(self, config: HttpConfig) -> Schema:
        """For the document."""
        highest = value_of(self.highest, config)
        schema: dict[str, Any] = {"type": "integer", "minimum": value_of(self.lowest, config), "maximum": highest}
        return schema if self.default is None else {**schema, "default": min(self.default, highest)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds(Parameter):
    """A decimal number of seconds of the query; 0 where it is not given."""

    highest: Bound

    def read(self, query: dict[str, str], config: HttpConfig) -> float:
        """The number. Refuses `invalid_parameter`."""
        return decode_seconds(query, self.name, value_of(self.highest, config))

    def schema(self, config: HttpConfig) -> Schema:
        """For the document."""
        return {"type": "number", "minimum": 0, "maximum": value_of(self.highest, config), "default": 0}


MAX_LISTED: Final = Whole("max", "Entries in the page.", default=1_000, lowest=1, highest=1_000)
"""The parameter `max` of lists by name."""

CONTAINS: Final = Parameter("contains", "Only those with this text in their names, in whatever case.")

WITH_COUNTS: Final = Parameter("counts", "`true`: with counts of what they hold and what waits.",
                          text={"type": "string", "enum": ["true", "false"]})


def wants_counts(query: dict[str, str]) -> bool:
    """What `WITH_COUNTS` says. Refuses `invalid_parameter`."""
    if query.get(WITH_COUNTS.name, "false") not in ("true", "false"):
        raise Refusal("invalid_parameter", "'counts' is true or false", parameter=WITH_COUNTS.name)
    return query.get(WITH_COUNTS.name) == "true"


VALUES: Final = Parameter("values", "`json`: a value that is JSON is shown as such, in `value_json`, not `value`.",
                          text={"type": "string", "enum": ["text", "json"]})


def wants_json(query: dict[str, str]) -> bool:
    """What `VALUES` says. Refuses `invalid_parameter`."""
    wanted = query.get(VALUES.name, "text")
    if wanted not in ("text", "json"):
        raise Refusal("invalid_parameter", "'values' is text or json", parameter=VALUES.name)
    return wanted == "json"


MAX_MESSAGES: Final = Whole("max", "Messages in the page.", default=100, lowest=1, highest=Setting("max_page_messages"))
WAIT: Final = Seconds("wait", "Seconds to wait while there is nothing; the answer comes with the first message.",
                      highest=Setting("max_wait_s"))
AFTER: Final = Parameter("cursor", "Go on behind the page that gave it.", text=CURSOR_IN)

TICKET: Final = Parameter("ticket", "From `POST /v1/tickets`, where no `Authorization` header can be sent.")
"""The parameter `ticket` of streams."""
