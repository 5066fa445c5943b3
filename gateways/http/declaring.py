"""How a call says what it is, beside its handler: the parser, the document at `/openapi.json` and the tests read it.
Pure.

    MAX = Whole("max", "Messages in the page.", default=100, lowest=1, highest=Setting("max_page_messages"))

    @declare("topics", query=(MAX, AFTER), needs=(Need(Operation.CONSUME, "topic"),),
             answers=(Answer(200, "A page of topics.", TOPICS),), problems=("invalid_cursor",))
    async def list_topics(door: Door, call: Call) -> Answered:
        '''List topics.

        Those that the user may read, by name.
        '''
        query = call.query()
        count = MAX.read(query, door.config)

The first line of the handler's docstring is the summary, the rest the description. Query parameters that are not
declared are refused, `required` ones are asked for, by `call.query()`. `problems` are the codes that are the call's
own: those that every call can answer, or every call with a body, a path that is decoded, or a write, are added here.

A body that a call takes is a `Document`, which checks and reads it:

    class Binding(Document):
        EXAMPLE = {"filter": "plant/+/temp"}
        filter: Annotated[str, Meta(min_length=1, description="Addresses, with `+` and `#`.")]

    binding = await read(door, call, Binding)

What only the kernel or the admission can judge stands in the declaration as `shown(...)`: the document says it, and
they refuse it in their own words.

What a call answers is JSON Schema (2020-12, as OpenAPI 3.1 takes it), made of pieces. A piece is a schema in which
three things may stand that are looked up when the document is written: a `Named` schema and the type of a `Document`,
which become a reference and an entry under `components`, and a `Setting`, which becomes its value.
"""
from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct
from msgspec.json import schema_components

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.exchange import Answered, Queries, Response, decode_number, decode_seconds
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.selectors.tokens import MAX_TEXT_CHARS

if TYPE_CHECKING:
    from gatehouse.gateways.admission.decision import Operation
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.exchange import Call


# --- documents that calls take ------------------------------------------------------------------------------------

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"

_AT: Final = "x-shown"
_SHOWN: Final[list[Schema]] = []
"""What `shown` was given: msgspec keeps plain values alone, and its own before those of others."""

NESTED_MAX: Final = 32
"""Lists and objects in each other: more than any document of this door has."""


class Document(Struct, forbid_unknown_fields=True, kw_only=True):  # decision 260
    """An object that a call takes. A field that may be left out is `UNSET` then; one that is not declared is refused.
    What a schema cannot say is said by `__post_init__`, with a ValueError, and shown by `RULES`."""

    EXAMPLE: ClassVar[Any] = None
    """For `/openapi.json`; it must be valid."""

    RULES: ClassVar[Schema] = {}
    """What the schema says besides of the object as a whole."""

    def given(self) -> dict[str, Any]:
        """The fields that were not left out, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


D = TypeVar("D", bound=Document)


class Nothing(Document):
    """The body of a call that takes none."""


def shown(**schema: Any) -> Meta:
    """What the schema of a field says besides, or instead, for whoever reads it: others check that."""
    if schema not in _SHOWN:                     # annotations are evaluated again and again
        _SHOWN.append(schema)
    return Meta(extra_json_schema={_AT: _SHOWN.index(schema)})


def schemas_of(shape: type[Document]) -> dict[str, Schema]:
    """The schemas of a document and of those that it is made of, by name; what they refer to is at `REFERENCE`."""
    _, schemas = schema_components([shape], ref_template=REFERENCE)
    for schema in schemas.values():
        del schema["title"]
    schemas = {name: _with_shown(schema) for name, schema in schemas.items()}
    schemas[shape.__name__] |= shape.RULES
    return schemas


def _with_shown(value: Any) -> Any:
    """A schema with what `shown` says of its parts."""
    if isinstance(value, list):
        return [_with_shown(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    schema = {name: _with_shown(entry) for name, entry in value.items() if name != _AT}
    return schema | _SHOWN[value[_AT]] if _AT in value else schema


def choice(values: tuple[str, ...]) -> Any:
    """The type of one of these texts."""
    return Literal.__getitem__(values)


def document_like(name: str, of: type, instead: dict[str, Any], *, without: tuple[str, ...] = (), example: Any = None
                  ) -> type[Document]:
    """The document `name` with the fields of a dataclass, any of which may be left out. `instead` gives the types of
    fields whose bounds the dataclass does not say."""
    hints = get_type_hints(of)
    shape: Any = defstruct(name, [(field.name, Union[instead.get(field.name, hints[field.name]), UnsetType], UNSET)  # noqa: UP007
                            for field in fields(of) if field.name not in without],
                     bases=(Document,), namespace={"EXAMPLE": example}, kw_only=True)
    return cast(type[Document], shape)


def shaped(value: Any, shape: type[D]) -> D:
    """A JSON value, in `whole_numbers`, as the document that it is. Refuses `invalid_body`."""
    try:
        return convert(value, shape)
    except ValidationError as error:
        raise Refusal("invalid_body", f"{error}; there are: {', '.join(shape.__struct_fields__)}"
                      if "unknown field" in str(error) and "$" not in str(error) else str(error)) from None


def whole_numbers(value: Any, levels: int = NESTED_MAX) -> Any:
    """A JSON value with 3.0 as 3: to JSON they are one number (JSON Schema, 6.1.1), and many clients have only one kind
    of number. Refuses `invalid_body` where the value is nested deeper than `levels`."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise Refusal("invalid_body", f"nothing here is nested deeper than {NESTED_MAX} levels")
    if isinstance(value, list):
        return [whole_numbers(entry, levels - 1) for entry in value]
    return {name: whole_numbers(entry, levels - 1) for name, entry in value.items()}


# --- schemas ------------------------------------------------------------------------------------------------------

class Named(NamedTuple):
    """A schema with a name of its own in the document. `example` is shown there and must be valid."""

    name: str
    schema: Schema
    example: Any = None


class Setting(NamedTuple):
    """The value of a setting of `[gateways.http]`: a bound that is not the same on every hub."""

    name: str

    def of(self, config: HttpConfig) -> Any:
        """What it is here."""
        return getattr(config, self.name)


Bound = int | float | Setting


def value_of(bound: Bound, config: HttpConfig) -> Any:
    """The number that a bound is on this hub."""
    return bound.of(config) if isinstance(bound, Setting) else bound


TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
SECONDS: Final[Schema] = {"type": "number", "minimum": 0, "description": "Seconds."}
TIME_MS: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Milliseconds since 1970."}
TOPIC_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
ADDRESS: Final[Schema] = {
    "type": "string", "format": "address", "pattern": r"^[A-Za-z0-9._-]{1,249}(/[^+#\u0000]*)?$",
    "description": "Levels with `/` between them, no wildcard. The first is a topic's name, unless a route of this hub "
                   "says otherwise."}
PRINTABLE: Final[Schema] = {"type": "string", "format": "printable", "minLength": 1, "maxLength": 255,
                            "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}
"""The name of a user, a key or a user's group; in characters."""
GROUP_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\u0000]+$"}
"""The name of a group or of a queue. Its length counts in bytes of UTF-8."""
RFC_3339: Final[Schema] = {"type": "string", "format": "date-time", "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"}
"""A time that can be told in milliseconds since 1970."""
_DATE: Final = ("(19[7-9][0-9]|[2-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
                "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))")
_TIME_OF_DAY: Final = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([+-](0[0-9]|1[0-4]):[0-5][0-9]|Z)"
MOMENT: Final = f"{_DATE}T{_TIME_OF_DAY}"
"""The pattern of an RFC 3339 time, for places where something else may stand as well: generators of clients make no
union of a text and a time."""
UUID: Final[Schema] = {"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
ANYTHING: Final[Schema] = {}
BINARY: Final[Schema] = {"type": "string", "format": "binary"}
MESSAGE_ID: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,20}$", "description": "A 64-bit number as text."}
CURSOR_PATTERN: Final = "^[A-Za-z0-9_.:-]*$"
CURSOR: Final[Schema] = {"type": ["string", "null"], "pattern": CURSOR_PATTERN,
                         "description": "Where the next page begins; null at the end."}
CURSOR_IN: Final[Schema] = {"type": "string", "format": "cursor", "pattern": CURSOR_PATTERN}
SELECTOR: Final[Schema] = {"type": "string", "format": "selector", "minLength": 1, "maxLength": MAX_TEXT_CHARS,
                           "pattern": r"[^ \t\r\n\f]"}
"""What stands in it is a language of its own: `kernel.selectors`."""

_UNITS: Final = (("d", 3), ("h", 4), ("m", 6), ("s", 8))
"""Units of an interval, and digits behind the first: none is more than a century."""
_EVERY: Final = "|".join(
    f"[1-9][0-9]{{0,{digits}}}{unit}" + "".join(f"([0-9]{{1,{more + 1}}}{later})?" for later, more in _UNITS[at + 1:])
    for at, (unit, digits) in enumerate(_UNITS))
_ISO: Final = ("R([1-9][0-9]{0,8})?/P([1-9][0-9]{0,2}W|[1-9][0-9]{0,3}D(T[0-9]{1,5}H)?"
               "|T([1-9][0-9]{0,4}H([0-9]{1,7}M)?([0-9]{1,9}S)?|[1-9][0-9]{0,6}M([0-9]{1,9}S)?|[1-9][0-9]{0,8}S))")
_CRON_VALUES: Final = (
    "[0-5]?[0-9]", "[01]?[0-9]|2[0-3]", "0?[1-9]|[12][0-9]|3[01]",
    "0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC", "[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT")
_PARTS: Final = [rf"(\*|({values})(-({values}))?)(/[1-9][0-9]?)?" for values in _CRON_VALUES]
_CRON: Final = " +".join(f"{part}(,{part})*" for part in _PARTS) + "|@(hourly|daily|weekly|monthly|yearly)"
_UNTIL: Final = f" *; *until=({MOMENT}|[0-9]{{1,14}})"
_COUNT: Final = " *; *count=[1-9][0-9]{0,8}"
REPEAT_PATTERN: Final = f"^(every +({_EVERY})|{_ISO}|{_CRON})(({_UNTIL})?({_COUNT})?|{_COUNT}{_UNTIL})$"
REPEAT: Final[Schema] = {"type": "string", "format": "repeat", "pattern": REPEAT_PATTERN}
"""See `kernel.scheduling.schedule`: every schedule that it writes about is one of these."""


MAX_32_BITS: Final = (1 << 31) - 1

OF_TYPE: Final[dict[Any, Schema]] = {int: {"type": "integer"}, float: NUMBER, str: TEXT, bool: FLAG}


def explained(piece: Any, help: str) -> Schema:
    """A piece of a schema, with a sentence about this use of it."""
    return {"allOf": [piece], "description": help} if isinstance(piece, Named) else {**piece, "description": help}


def list_of(piece: Any, **bounds: Any) -> Schema:
    """A list; `minItems` and `maxItems` are its bounds."""
    return {"type": "array", "items": piece, **bounds}


def nullable(piece: Any) -> Schema:
    """The piece or null. `["array", "null"]` would be as good, but generators of clients cannot read it."""
    if not isinstance(piece, Named) and piece.get("type") in ("string", "integer", "number", "boolean"):
        return {**piece, "type": [piece["type"], "null"]}
    return {"anyOf": [piece, {"type": "null"}]}


def one_of(*values: Any) -> Schema:
    """One of these values."""
    return {"enum": list(values)}


def map_of(piece: Any) -> Schema:
    """An object with names of its own choosing."""
    return {"type": "object", "additionalProperties": piece}


def object_of(needed: dict[str, Any] | None = None, optional: dict[str, Any] | None = None, *, closed: bool = False
              ) -> Schema:
    """An object; `closed`, as every object that is taken: a field that is not named is refused."""
    schema: Schema = {"type": "object", "properties": {**(needed or {}), **(optional or {})}}
    if needed:
        schema["required"] = list(needed)
    if closed:
        schema["additionalProperties"] = False
    return schema


def properties_of(of: type, /, **instead: Any) -> dict[str, Any]:  # decision 74
    """The fields of a dataclass as properties; `instead` says what a field's type does not."""
    assert is_dataclass(of)
    hints = get_type_hints(of)
    return {field.name: instead.get(field.name) or _of_hint(hints[field.name]) for field in fields(of)}


def _of_hint(hint: Any) -> Schema:
    if hint in OF_TYPE:
        return OF_TYPE[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return object_of(properties_of(hint))
    arguments = get_args(hint)
    if get_origin(hint) in (tuple, list):
        return list_of(_of_hint(arguments[0]))
    (kind,) = (argument for argument in arguments if argument is not type(None))
    return nullable(_of_hint(kind))


def _is_wide(schema: Schema) -> bool:
    """Whether it is a whole number that 32 bits may not hold: generators of clients take 32 unless they are told."""
    kind = schema.get("type")
    return (kind == "integer" or isinstance(kind, list) and "integer" in kind) and schema.get(
        "maximum", MAX_32_BITS + 1) > MAX_32_BITS


class Components:
    """Resolves pieces for one document and collects the named schemas that they mention."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._named: dict[str, Named] = {}
        self.schemas: dict[str, Any] = {}

    def resolve(self, piece: Any) -> Any:
        """The piece as plain JSON types. ValueError where two schemas have one name."""
        if isinstance(piece, Named):
            return self._refer(piece)
        if isinstance(piece, type):
            return self._refer_shape(piece)
        if isinstance(piece, Setting):
            return piece.of(self._config)
        if isinstance(piece, dict):
            resolved = {name: self.resolve(value) for name, value in piece.items()}
            return {**resolved, "format": "int64"} if _is_wide(resolved) else resolved
        if isinstance(piece, (list, tuple)):
            return [self.resolve(value) for value in piece]
        return piece

    def _refer(self, named: Named) -> Schema:
        existing = self._named.setdefault(named.name, named)
        if existing != named:
            raise ValueError(f"two schemas are named {named.name}")
        if named.name not in self.schemas:
            self.schemas[named.name] = {}                # a schema may mention itself
            schema = self.resolve(named.schema)
            if named.example is not None:
                schema["examples"] = [named.example]
            self.schemas[named.name] = schema
        return {"$ref": REFERENCE.format(name=named.name)}

    def _refer_shape(self, shape: type[Document]) -> Schema:
        """What is declared as a type, with the types that it is made of."""
        for name, schema in schemas_of(shape).items():
            self._refer(Named(name, schema, shape.EXAMPLE if name == shape.__name__ else None))
        return {"$ref": REFERENCE.format(name=shape.__name__)}


# --- parameters ---------------------------------------------------------------------------------------------------

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


PAGE_MESSAGES: Final = 100
MAX_MESSAGES: Final = Whole("max", "Messages in the page.", default=PAGE_MESSAGES, lowest=1,
                            highest=Setting("max_page_messages"))
WAIT: Final = Seconds("wait", "Seconds to wait while there is nothing; the answer comes with the first message.",
                      highest=Setting("max_wait_s"))
AFTER: Final = Parameter("cursor", "Go on behind the page that gave it.", text=CURSOR_IN)

TICKET: Final = Parameter("ticket", "From `POST /v1/tickets`, where no `Authorization` header can be sent.")
"""The parameter `ticket` of streams."""


# --- calls --------------------------------------------------------------------------------------------------------

JSON: Final = "application/json"

OF_EVERY_CALL: Final = ("malformed_request", "unknown_parameter", "invalid_parameter", "host_not_allowed",
                        "origin_not_allowed", "target_too_long", "headers_too_large", "not_acceptable", "not_built",
                        "expectation_failed", "internal_error", "busy")
OF_USERS: Final = ("not_authenticated", "not_authorized", "invalid_header")
OF_A_PATH: Final = ("invalid_address",)
OF_A_BODY: Final = ("malformed_request", "body_too_large", "body_too_slow", "busy")
OF_A_JSON_BODY: Final = ("invalid_body", "unsupported_media_type")
OF_A_WRITE: Final = ("outcome_unknown", "stopping", "storage_full", "busy")


class Need(NamedTuple):
    """A right that the call asks for: to do what, on what (address, topic, group, hub)."""

    operation: Operation
    kind: str


class Body(NamedTuple):
    """One kind of body that the call takes."""

    schema: Any
    media: str = JSON
    help: str = ""
    example: Any = None
    required: bool = True


VALUE_HELP: Final = "One message's value, as it is."
VALUE_BODIES: Final = (Body(BINARY, "*/*", VALUE_HELP, required=False),
                       Body(BINARY, "application/octet-stream", VALUE_HELP, required=False))
"""Any bytes. Their usual type stands beside all types: generators of clients know nothing of `*/*`."""


class Answer(NamedTuple):
    """One way in which the call succeeds. `headers` are explained by name; without `schema` it has no body."""

    status: int
    help: str
    schema: Any = None
    media: str = JSON
    headers: dict[str, str] = {}
    example: Any = None


Action = Callable[["Door", "Call"], Awaitable[Answered] | Response]


class Declared:
    """A handler, `run`, and what it says about itself."""

    __slots__ = ("run", "tag", "query", "headers", "path", "bodies", "answers", "problems", "needs", "public",
                 "audited", "acts", "pipelined", "queries", "media")

    def __init__(self, run: Action, tag: str, *, query: tuple[Parameter, ...], headers: tuple[Parameter, ...],
                 path: tuple[Parameter, ...], bodies: tuple[Body, ...], answers: tuple[Answer, ...],
                 problems: tuple[str, ...], needs: tuple[Need, ...], writes: bool, public: bool, audited: str,
                 acts: bool, pipelined: bool) -> None:
        self.run = run
        self.tag = tag
        self.query = query
        self.headers = headers
        self.path = {parameter.name: parameter for parameter in path}
        self.bodies = bodies
        self.answers = answers
        self.needs = needs
        self.public = public
        self.audited = audited
        self.acts = acts
        self.pipelined = pipelined
        self.queries = Queries([parameter.name for parameter in query],
                               [parameter.name for parameter in query if parameter.required])
        self.media = frozenset(answer.media for answer in answers if answer.schema is not None)
        self.problems = frozenset(problems + OF_EVERY_CALL + (() if public else OF_USERS)
                                  + (OF_A_BODY if bodies else ())
                                  + (OF_A_JSON_BODY if any(body.media == JSON for body in bodies) else ())
                                  + (OF_A_WRITE if writes else ()))

    def problems_at(self, captures: bool) -> frozenset[str]:
        """The codes that it can answer at a path, with captures or without."""
        return self.problems | set(OF_A_PATH) if captures else self.problems

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring, without its full stop."""
        return self._text().partition("\n")[0].removesuffix(".")

    @property
    def description(self) -> str:
        """The rest of the docstring."""
        return self._text().partition("\n")[2].strip()

    def _text(self) -> str:
        return inspect.getdoc(self.run) or ""


def declare(tag: str, *, answers: tuple[Answer, ...], query: tuple[Parameter, ...] = (),  # decision 74
            headers: tuple[Parameter, ...] = (), path: tuple[Parameter, ...] = (), bodies: tuple[Body, ...] = (),
            problems: tuple[str, ...] = (), needs: tuple[Need, ...] = (), writes: bool = False, public: bool = False,
            audited: str = "", acts: bool = False, pipelined: bool = False) -> Callable[[Action], Declared]:
    """Say what the handler below is.

    `path` explains captures that are not in `openapi.CAPTURES`, `headers` are request headers, `writes` tells that
    the answer waits until something is durable, `public` that nobody is asked who he is, `audited` is the action that
    the audit topic is told of when it succeeds, `acts` that it is a GET with effects, which no link of another site may
    begin. `pipelined` is a write that does nothing more once it is durable but say so: on one connection the next may
    begin while it waits for that. With no `needs` any user may.
    """
    def declared(run: Action) -> Declared:
        return Declared(run, tag, query=query, headers=headers, path=path, bodies=bodies, answers=answers,
                        problems=problems, needs=needs, writes=writes, public=public, audited=audited, acts=acts,
                        pipelined=pipelined)
    return declared
