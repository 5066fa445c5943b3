"""`/v1/acl`: the rules of the rights. Needs the right to administer.

    GET, POST /v1/acl                  {"rules": [{...}], "cursor"}, those of the configuration first
    GET, PUT, DELETE /v1/acl/{id}      one; those of the configuration (`from_file`) are changed there
    POST /v1/acl/test                  would this be allowed, and by which rule?
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rights import ask_rights as ask
from gatehouse.gateways.admission.rules import ADDRESS, HUB, KINDS, Rule
from gatehouse.gateways.http.accounts import (
    ADMINISTERING,
    CHANGES,
    KIND,
    OPERATIONS,
    administering,
    administrator,
    changed,
    changed_if,
    rule_schema,
)
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
    MAX_LISTED,
    PRINTABLE,
    TEXT,
    Answer,
    Body,
    Document,
    Named,
    Parameter,
    choice,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
    shown,
)
from gatehouse.gateways.http.door import Door, Routes, read, read_object
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.page import page_by_place

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration

ID: Final = Parameter("id", "The rule's `id`.", example="7", text={"type": "string", "minLength": 1, "maxLength": 32})

_WHO: Final = {**TEXT, "format": "who", "pattern": "^((user|group):.+|everyone)$",
               "description": "`user:NAME`, `group:NAME` or `everyone`."}
_MORE: Final = {"effect": one_of("allow", "deny"), "tenant": {**PRINTABLE, "description": "`*`: every one."}}
RULE: Final = Named("Rule", object_of({
    "id": TEXT, "who": _WHO, "operations": list_of(OPERATIONS), "kind": KIND, "pattern": TEXT, **_MORE,
    "from_file": FLAG}))
NEW_RULE: Final = Named("RuleInput", rule_schema({"who": _WHO}, _MORE),
                        {"who": "group:operators", "operations": ["publish", "consume"], "pattern": "plant/#"})
VERDICT: Final = object_of({"allowed": FLAG, "why": TEXT, "rule": nullable(RULE), "creates": {
    **nullable(object_of({"allowed": FLAG, "why": TEXT})),
    "description": "Of publishing at an address: whether its topic is made where it is missing."}})



class RightsQuestion(Document):
    """Would a user be allowed to do this there?"""

    EXAMPLE = {"user": "ann", "operation": "publish", "on": "plant/line1/temp"}
    RULES = {"anyOf": [{"properties": {"on": {"minLength": 1}}, "required": ["on"]},
                       {"properties": {"kind": one_of(HUB)}, "required": ["kind"]}]}
    user: Annotated[str, Meta(min_length=1)]
    operation: Operation
    on: Annotated[str, Meta(description="Address, filter, topic, group or client id.")] = ""
    kind: choice(tuple(KINDS)) = ADDRESS  # type: ignore[valid-type]
    client_id: str | None = None
    tenant: str | None = None
    groups: Annotated[list[str], shown(maxItems=1000)] = []

    def __post_init__(self) -> None:
        if self.kind != HUB and not self.on:
            raise ValueError("a question says what it is 'on', unless its 'kind' is hub")


@declare("acl", query=(MAX_LISTED, AFTER), needs=ADMINISTERING, problems=("invalid_cursor", "accounts_unavailable"),
         answers=(Answer(200, "A page of rules.", object_of({"rules": list_of(RULE), "cursor": CURSOR})),))
async def list_rules(door: Door, call: Call) -> Answered:
    """List rules: those of the configuration, then the others in the order in which they were made."""
    _, accounts = await administrator(door, call)
    query = call.query()
    page, cursor = page_by_place(accounts.accounts.every_rule(), query.get("cursor", ""),
                                 MAX_LISTED.read(query, door.config))
    return json_answer({"rules": [rule.as_dict() for rule in page], "cursor": cursor})


@declare("acl", bodies=(Body(NEW_RULE),), needs=ADMINISTERING,
         problems=("invalid_rule", "invalid_user", "last_administrator", *CHANGES),
         answers=(Answer(201, "It holds from now on.", RULE),))
async def add_rule(door: Door, call: Call) -> Answered:
    """Add a rule. It holds at once, for those who are connected too."""
    by, accounts = await administrator(door, call)
    call.query()
    document = await read_object(door, call)
    rule: Rule = await changed(door, call, lambda on_done: accounts.add_rule(by, document, on_done))
    return json_answer(rule.as_dict(), 201)


@declare("acl", path=(ID,), needs=ADMINISTERING, problems=("unknown_rule", "accounts_unavailable"),
         answers=(Answer(200, "The rule.", RULE),))
async def get_rule(door: Door, call: Call) -> Answered:
    """Show a rule."""
    _, accounts = await administrator(door, call)
    call.query()
    return json_answer(accounts.rule(call.topic_name()).as_dict())


@declare("acl", path=(ID,), bodies=(Body(NEW_RULE),), needs=ADMINISTERING,
         problems=("invalid_rule", "unknown_rule", "from_file", "last_administrator", "precondition_failed", *CHANGES),
         answers=(Answer(200, "It reads as the document says.", RULE),))
async def put_rule(door: Door, call: Call) -> Answered:
    """Make a rule read as the document says.

    `If-Match` with the rule's `ETag` changes only what was seen.
    """
    by, accounts = await administrator(door, call)
    call.query()
    document = await read_object(door, call)
    rule: Rule = await changed_if(door, call, lambda: _found(accounts, call.topic_name()),
                                  lambda on_done: accounts.replace_rule(by, call.topic_name(), document, on_done))
    return json_answer(rule.as_dict())


@declare("acl", path=(ID,), needs=ADMINISTERING,
         problems=("unknown_rule", "from_file", "last_administrator", "precondition_failed", *CHANGES),
         answers=(Answer(204, "It holds no more."),))
async def delete_rule(door: Door, call: Call) -> Answered:
    """Remove a rule. What it allowed ends, for those who are connected too."""
    by, accounts = await administrator(door, call)
    call.query()
    await changed_if(door, call, lambda: _found(accounts, call.topic_name()),
                     lambda on_done: accounts.delete_rule(by, call.topic_name(), on_done))
    return Response(status=204)


@declare("acl", bodies=(Body(RightsQuestion),), needs=ADMINISTERING, problems=("accounts_unavailable",),
         answers=(Answer(200, "What would be decided.", VERDICT),))
async def ask_rights(door: Door, call: Call) -> Answered:
    """Ask whether a user may do something, and which rule decides it."""
    await administrator(door, call)
    call.query()
    question = await read(door, call, RightsQuestion)
    await administering(door, call)
    verdict = door.admission.explain(
        question.user, lambda rights: ask(rights, question.kind, question.operation, question.on),
        groups=question.groups, tenant=question.tenant, client_id=question.client_id)
    return json_answer({**verdict.as_dict(), "rule": None if verdict.rule is None else verdict.rule.as_dict()})


def _found(accounts: Administration, id: str) -> dict[str, Any] | None:
    """What a request may ask about."""
    return next((rule.as_dict() for rule in accounts.accounts.every_rule() if rule.id == id), None)


ROUTES: Routes = (
    ("GET", "/v1/acl", list_rules), ("POST", "/v1/acl", add_rule), ("POST", "/v1/acl/test", ask_rights),
    ("GET", "/v1/acl/{id}", get_rule), ("PUT", "/v1/acl/{id}", put_rule), ("DELETE", "/v1/acl/{id}", delete_rule))
