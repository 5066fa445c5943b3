"""The OpenAPI 3.1 document, made from the route table: whatever is served is in it, and nothing else. Pure.

Every call stands with its parameters, bodies, answers, the codes of its problems by status, and the rights that it
asks for (`x-needs`, and a sentence in its description).
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.declaring import (
    GROUP_NAME,
    TEXT,
    TICKET,
    TOPIC_NAME,
    Answer,
    Body,
    Components,
    Declared,
    Named,
    Parameter,
    object_of,
    one_of,
)
from gatehouse.gateways.http.dispatch import Endpoint
from gatehouse.gateways.http.problems import CONTENT_TYPE, PROBLEMS, TYPE_PREFIX
from gatehouse.gateways.http.representation import MATCHED, TAGGED

VERSION: Final = "1"
"""The version of the interface, as its paths say it."""

TAG_HELP: Final = {False: "Weak: of what is answered.",
                   True: "Strong: for `If-None-Match`, and for `If-Match` of a change, which asks about settings."}

CAPTURE: Final = re.compile(r"\{([a-z_]+)(\.\.\.)?\}")

TAGS: Final[dict[str, str]] = {
    "publish": "Messages into the hub.",
    "read": "Messages out of topics, in pages, without state in the server.",
    "bulk": "Stored batches as they are, for readers and writers of many messages.",
    "topics": "What is stored, and for how long.",
    "groups": "Messages shared out among members: pop, ack, retry, dead letters.",
    "queues": "Queues, as AMQP and filters declare them.",
    "webhooks": "Messages of groups, posted to URLs.",
    "scheduled": "Messages that wait for their time.",
    "trace": "What happened to messages, and where they stand.",
    "transactions": "Half messages: seen once their sender commits, who is asked when he is silent.",
    "backups": "Copies of everything that is stored, taken while the hub runs.",
    "users": "Who may log in, by password or API key.",
    "acl": "Who may do what where.",
    "limits": "How much may come in and go out.",
    "circuits": "What the hub depends on, and whether it is asked.",
    "connections": "Who is connected, by whichever door.",
    "sessions": "What clients are owed while they are away.",
    "relay": "Links to other hubs.",
    "hub": "How the hub is, for whatever watches it.",
}
"""What calls are grouped by, in the document's order."""

CAPTURES: Final[dict[str, Parameter]] = {parameter.name: parameter for parameter in (
    Parameter("topic", "The topic's name.", example="plant", text=TOPIC_NAME),
    Parameter("group", "The group's name.", example="workers", text=GROUP_NAME),
    Parameter("queue", "The queue's name.", example="work", text=GROUP_NAME),
    Parameter("id", "The message's `id`.", example="281474976710657",
              text={"type": "string", "pattern": "^[0-9]{1,20}$"}),
)}
"""What captures of paths are, unless a call says otherwise."""

SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "basic": {"type": "http", "scheme": "basic", "description": "User and password."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A JSON Web Token, or an API key."},
    "certificate": {"type": "mutualTLS", "description": "A client certificate, where the listener asks for one."},
}
"""How a user shows who he is."""

TICKET_SCHEME: Final = {"type": "apiKey", "in": "query", "name": TICKET.name, "description": TICKET.help}
"""Besides, where a browser cannot send headers of its own."""

PROBLEM: Final = Named("Problem", object_of({
    "type": {**TEXT, "description": f"`{TYPE_PREFIX}` and the code."}, "title": TEXT,
    "status": {"type": "integer", "minimum": 400, "maximum": 599},
    "detail": {**TEXT, "description": "For people."},
    "code": {**one_of(*PROBLEMS), "description": "For programs; it never changes.\n\n" + "\n".join(
        f"- `{code}` ({problem.status}): {problem.help}" for code, problem in PROBLEMS.items())},
}), {"type": TYPE_PREFIX + "unknown_topic", "title": "Unknown topic", "status": 404,
     "detail": "there is no topic 'plnat'", "code": "unknown_topic"})

INTRODUCTION: Final = """\
Publish messages, read them, share them out among the members of a group. What comes in here can be read over MQTT, AMQP
and Kafka too, and the other way round.

Errors are `application/problem+json` with a stable `code`. Identifiers are text, since JavaScript's numbers do not hold
64 bits; times are milliseconds since 1970 unless something else is said. 201 is durable: it leaves after the hub has
synced its disk. 504 `outcome_unknown` is safe to repeat with the same `Idempotency-Key`.
"""


class Route(NamedTuple):
    """One call at one path."""

    method: str
    pattern: str
    declared: Declared


def routes_of(endpoints: Iterable[Endpoint[Declared]]) -> list[Route]:
    """The calls of a table."""
    return [Route(method, endpoint.pattern, declared) for endpoint in endpoints
            for method, declared in endpoint.handlers.items()]


# decision 74
def build_document(routes: Iterable[Route], config: HttpConfig, hub_name: str, *, anonymous: bool) -> dict[str, Any]:
    """The whole document. `anonymous`: who shows nothing may come in."""
    components = Components(config)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = CAPTURE.sub(r"{\1}", route.pattern)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, config, components, anonymous)
    return {
        "openapi": "3.1.0",
        "info": {"title": hub_name, "version": VERSION, "description": INTRODUCTION},
        "servers": [{"url": "/", "description": "This hub."}],
        "tags": [{"name": name, "description": help} for name, help in TAGS.items()],
        "paths": paths,
        "components": {"schemas": components.schemas,
                       "securitySchemes": {**SECURITY_SCHEMES, TICKET.name: TICKET_SCHEME}},
    }


def _operation(route: Route, config: HttpConfig, components: Components, anonymous: bool) -> dict[str, Any]:
    declared = route.declared
    operation: dict[str, Any] = {
        "operationId": operation_id(route), "summary": declared.summary, "tags": [declared.tag],
        "description": _description(declared), "security": _security(declared, anonymous),
    }
    parameters = [*_path_parameters(route, config)]
    parameters += [_parameter(parameter, "query", config, components) for parameter in declared.query
                   if parameter is not TICKET]
    parameters += [_parameter(parameter, "header", config, components) for parameter in declared.headers]
    if parameters:
        operation["parameters"] = parameters
    if declared.bodies:
        operation["requestBody"] = {"required": all(body.required for body in declared.bodies), "content": {
            body.media: _content(body, components) for body in declared.bodies}}
    if declared.needs:
        operation["x-needs"] = [{"operation": need.operation.value, "on": need.kind} for need in declared.needs]
    operation["responses"] = _responses(route, components)
    return operation


def operation_id(route: Route) -> str:
    """Unique and speaking: the method and what the path names."""
    words = [word for word in re.split(r"[^a-z]+", CAPTURE.sub(r"\1", route.pattern.removeprefix("/v1/"))) if word]
    return "_".join([route.method.lower(), *(words or ["root"])])


def _description(declared: Declared) -> str:
    text = declared.description
    if declared.needs:
        rights = " and ".join(f"`{need.operation.value}` on the {need.kind}" for need in declared.needs)
        text += f"\n\nAsks for the right to {rights}."
    return text.strip()


def _security(declared: Declared, anonymous: bool) -> list[dict[str, list[str]]]:
    if declared.public:
        return []
    schemes: list[dict[str, list[str]]] = [{name: []} for name in SECURITY_SCHEMES]
    if TICKET in declared.query:
        schemes.append({TICKET.name: []})
    return [{}, *schemes] if anonymous else schemes


def _path_parameters(route: Route, config: HttpConfig) -> Iterable[dict[str, Any]]:
    for name, rest in CAPTURE.findall(route.pattern):
        capture = route.declared.path.get(name) or CAPTURES[name]
        yield {"name": name, "in": "path", "required": True, "description": capture.help,
               "schema": capture.schema(config), **({"example": capture.example} if capture.example else {}),
               **({"x-levels": True} if rest else {})}


def _parameter(parameter: Parameter, where: str, config: HttpConfig, components: Components) -> dict[str, Any]:
    shown = {"name": parameter.name, "in": where, "description": parameter.help, "required": parameter.required,
             "schema": components.resolve(parameter.schema(config))}
    return shown if parameter.example is None else {**shown, "example": parameter.example}


def _content(part: Body | Answer, components: Components) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": components.resolve(part.schema)}
    if part.example is not None:
        content["example"] = part.example
    return content


def _responses(route: Route, components: Components) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in route.declared.answers:
        response = responses.setdefault(str(answer.status), {"description": answer.help})
        if answer.headers:
            response["headers"] = {name: {"description": help, "schema": TEXT} for name, help in answer.headers.items()}
        if answer.schema is not None:
            response.setdefault("content", {})[answer.media] = _content(answer, components)
    if route.method == "GET" and route.pattern in TAGGED | MATCHED:
        responses["304"] = {"description": "It is what `If-None-Match` names."}
        responses["200"].setdefault("headers", {})["ETag"] = {"description": TAG_HELP[route.pattern in MATCHED],
                                                              "schema": TEXT}
    codes: defaultdict[int, list[str]] = defaultdict(list)
    for code in sorted(route.declared.problems_at(CAPTURE.search(route.pattern) is not None)):
        codes[PROBLEMS[code].status].append(code)
    for status, problems in sorted(codes.items()):
        responses[str(status)] = _problem_response(problems, components)
    return responses


def _problem_response(codes: list[str], components: Components) -> dict[str, Any]:
    # Beside `$ref`, not in an `allOf` with it: generators of clients would make a type of each answer.
    return {"description": ", ".join(f"`{code}`" for code in codes), "content": {CONTENT_TYPE: {"schema": {
        **components.resolve(PROBLEM), "properties": {"code": one_of(*codes)}}}}}
