"""`/v1/acl`: the rules of the rights. Needs the right to administer.

    GET, POST /v1/acl                  {"rules": [{...}], "cursor"}, those of the configuration first
    GET, PUT, DELETE /v1/acl/{id}      one; those of the configuration (`from_file`) are changed there
    POST /v1/acl/test                  would this be allowed, and by which rule?
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rights import Verdict
from gatehouse.gateways.admission.rights import ask_rights as ask
from gatehouse.gateways.admission.rules import ADDRESS, HUB, KINDS, Rule
from gatehouse.gateways.http.accounts import (
    ADMINISTERING,
    CHANGES,
    KIND,
    OPERATIONS,
    administrator,
    changed,
    changed_if,
    refuse_unknown,
    rule_schema,
)
from gatehouse.gateways.http.cursor import page_by_place
from gatehouse.gateways.http.declaring import Answer, Body, declare
from gatehouse.gateways.http.documents import read_object
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.parameters import AFTER, MAX_LISTED, Parameter
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, Response, json_answer
from gatehouse.gateways.http.schemas import CURSOR, FLAG, PRINTABLE, TEXT, Named, list_of, nullable, object_of, one_of

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
_ASKED: Final = {"user": {**TEXT, "minLength": 1}, "operation": OPERATIONS}
_ABOUT: Final = {"client_id": TEXT, "tenant": TEXT, "groups": list_of(TEXT, maxItems=1000)}
QUESTION: Final = Named("RightsQuestion", {"anyOf": [
    object_of({**_ASKED, "on": {**TEXT, "minLength": 1, "description": "Address, filter, topic, group or client id."}},
              {"kind": one_of(*[kind for kind in KINDS if kind != HUB]), **_ABOUT}, closed=True),
    object_of({**_ASKED, "kind": one_of(HUB)}, {"on": TEXT, **_ABOUT}, closed=True)]},
    {"user": "ann", "operation": "publish", "on": "plant/line1/temp"})
VERDICT: Final = object_of({"allowed": FLAG, "why": TEXT, "rule": nullable(RULE), "creates": {
    **nullable(object_of({"allowed": FLAG, "why": TEXT})),
    "description": "Of publishing at an address: whether its topic is made where it is missing."}})


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
    document = await read_object(door, call, "a rule")
    rule: Rule = await changed(door, lambda on_done: accounts.add_rule(by, document, on_done))
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
    document = await read_object(door, call, "a rule")
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


@declare("acl", bodies=(Body(QUESTION),), needs=ADMINISTERING, problems=("accounts_unavailable",),
         answers=(Answer(200, "What would be decided.", VERDICT),))
async def ask_rights(door: Door, call: Call) -> Answered:
    """Ask whether a user may do something, and which rule decides it."""
    await administrator(door, call)
    call.query()
    question = await read_object(door, call, "a question about rights")
    verdict = _answered(door, question)
    return json_answer({**verdict.as_dict(), "rule": None if verdict.rule is None else verdict.rule.as_dict()})


def _found(accounts: Administration, id: str) -> dict[str, Any] | None:
    """What a request may ask about."""
    return next((rule.as_dict() for rule in accounts.accounts.every_rule() if rule.id == id), None)


def _answered(door: Door, question: dict[str, Any]) -> Verdict:
    refuse_unknown(question, ("user", "operation", "kind", "on", "client_id", "tenant", "groups"))
    texts = {name: _text(question, name) for name in ("user", "operation", "kind", "on", "client_id", "tenant")}
    operation = next((candidate for candidate in Operation if candidate.value == texts["operation"]), None)
    kind, on = texts["kind"] or ADDRESS, texts["on"] or ""
    groups = question.get("groups", [])
    if operation is None or not texts["user"] or kind not in KINDS or (kind != HUB and not on):
        raise Refusal("invalid_body", f"a question has user and operation, kind ({', '.join(KINDS)}) and on")
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise Refusal("invalid_body", "groups is a list of texts")
    return door.admission.explain(texts["user"], lambda rights: ask(rights, kind, operation, on), groups=groups,
                                  tenant=texts["tenant"], client_id=texts["client_id"])


def _text(question: dict[str, Any], name: str) -> str | None:
    value = question.get(name)
    if name in question and not isinstance(value, str):
        raise Refusal("invalid_body", f"{name} is a text")
    return value


ROUTES: Routes = (
    ("GET", "/v1/acl", list_rules), ("POST", "/v1/acl", add_rule), ("POST", "/v1/acl/test", ask_rights),
    ("GET", "/v1/acl/{id}", get_rule), ("PUT", "/v1/acl/{id}", put_rule), ("DELETE", "/v1/acl/{id}", delete_rule))
