"""How a call says what it is, beside its handler: the parser, the document at `/openapi.json` and the tests read it.

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
"""
from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.http.parameters import Parameter
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.response import Answered
from gatehouse.gateways.http.schemas import BINARY
from gatehouse.gateways.http.target import decode_query

if TYPE_CHECKING:
    from gatehouse.gateways.admission.decision import Operation
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.request import Call

JSON: Final = "application/json"

OF_EVERY_CALL: Final = ("malformed_request", "unknown_parameter", "invalid_parameter", "host_not_allowed",
                        "origin_not_allowed", "target_too_long", "headers_too_large", "not_acceptable",
                        "internal_error", "busy")
OF_USERS: Final = ("not_authenticated", "not_authorized", "invalid_header")
OF_A_PATH: Final = ("invalid_address",)
OF_A_BODY: Final = ("malformed_request", "body_too_large", "body_too_slow", "expectation_failed", "busy")
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


Action = Callable[["Door", "Call"], Awaitable[Answered]]


class Declared:
    """A handler, `run`, and what it says about itself."""

    __slots__ = ("run", "tag", "query", "headers", "path", "bodies", "answers", "problems", "needs", "public",
                 "audited", "acts", "pipelined", "known", "required", "media")

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
        self.known = frozenset(parameter.name for parameter in query)
        self.media = frozenset(answer.media for answer in answers if answer.schema is not None)
        self.required = tuple(parameter.name for parameter in query if parameter.required)
        self.problems = frozenset(problems + OF_EVERY_CALL + (() if public else OF_USERS)
                                  + (OF_A_BODY if bodies else ())
                                  + (OF_A_JSON_BODY if any(body.media == JSON for body in bodies) else ())
                                  + (OF_A_WRITE if writes else ()))

    def read_query(self, raw: str) -> dict[str, str]:
        """Query parameters by name. Refuses what is not declared, and where one is missing that must be there."""
        query = decode_query(raw, self.known) if raw else {}
        for name in self.required:
            if name not in query:
                raise Refusal("invalid_parameter", f"{name!r} is needed", parameter=name)
        return query

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
