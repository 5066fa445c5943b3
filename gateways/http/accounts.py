"""What the calls about users and rights share: who may make them, and waiting for a change of the accounts."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.administration import Administration
from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import AccountError, AccountsUnavailable
from gatehouse.gateways.admission.rules import ADDRESS, CLIENT, GROUP, HUB, KINDS, TOPIC
from gatehouse.gateways.http.declaring import TEXT, Named, Need, Schema, list_of, object_of, one_of
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import author
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.representation import check_conditions

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.exchange import Call

ADMINISTERING: Final = (Need(Operation.ADMINISTER, "hub"),)
CHANGES: Final = ("accounts_unavailable", "outcome_unknown")
"""What every change of accounts can end in."""

OPERATIONS: Final = one_of(*[operation.value for operation in Operation])
KIND: Final = one_of(*KINDS)
_PATTERNS: Final[dict[str, Any]] = {
    ADDRESS: {**TEXT, "format": "address-pattern", "minLength": 1,
              "description": "An address; `+` is any one level, `#` any number, `{user}` and `{client_id}` who asks."},
    TOPIC: {**TEXT, "format": "name-pattern", "minLength": 1,
            "description": "A topic's name, `*` at its end for whatever follows."},
    GROUP: {**TEXT, "format": "name-pattern", "minLength": 1,
            "description": "A group's name, `*` at its end for whatever follows."},
    CLIENT: {**TEXT, "format": "name-pattern", "minLength": 1,
             "description": "A client id, `*` at its end for whatever follows, `{user}` who asks."},
    HUB: {"enum": [""], "description": "Empty, or left out."}}


def rule_schema(needed: dict[str, Any], optional: dict[str, Any], kinds: Iterable[str] = KINDS) -> Schema:
    """A rule with these fields besides: each kind has operations and patterns of its own; it is `address` unless
    given."""
    variants = []
    for kind in kinds:
        operations = KINDS[kind]
        fixed = {"kind": one_of(kind)}
        pattern = {"pattern": _PATTERNS[kind]}
        names = sorted(operation.value for operation in operations)
        may = {**optional, "operations": list_of(one_of(*names), minItems=1, maxItems=20)}
        variants.append(object_of({**needed, **(fixed if kind != ADDRESS else {}), **(pattern if kind != HUB else {})},
                                  {**may, **(fixed if kind == ADDRESS else {}), **(pattern if kind == HUB else {})},
                                  closed=True))
    return {"anyOf": variants}


LIMITS: Final = Named("KeyRestriction", list_of(
    rule_schema({}, {}, [kind for kind in KINDS if kind != CLIENT]), maxItems=100))


async def administering(door: Door, call: Call) -> Principal:
    """Who asks, who must have the right to administer. Raises Denied, NotAuthenticated."""
    principal = await door.principal(call)
    door.admission.require_hub(principal, Operation.ADMINISTER)
    return principal


async def administrator(door: Door, call: Call) -> tuple[Author, Administration]:
    """Who asks, who must have the right to administer, and what changes accounts. Raises Denied, NotAuthenticated."""
    principal = await administering(door, call)
    accounts = door.services.accounts
    if accounts is None:
        raise AccountsUnavailable("there is no database of users and rights behind this hub")
    return author(call, principal.name), accounts


# decision 217: the right is asked for again after a wait
async def changed(door: Door, call: Call, change: Callable[[Callable[[Any], None]], None]) -> Any:
    """What `change` tells its call-back in the end. Raises the AccountError that it may be, Refusal at the deadline;
    Denied, NotAuthenticated where who asks may no longer: the body may have come slowly."""
    async with door.changing:
        await administering(door, call)
        return await _changed(door, change)


async def changed_if(door: Door, call: Call, shown: Callable[[], Mapping[str, Any] | None],
                     change: Callable[[Callable[[Any], None]], None]) -> Any:
    """Make a change as `changed` does, if the request's conditions fit what is there before it, which `shown` gives.
    Refuses `precondition_failed`."""
    async with door.changing:
        await administering(door, call)
        check_conditions(call.headers, shown())
        return await _changed(door, change)


async def _changed(door: Door, change: Callable[[Callable[[Any], None]], None]) -> Any:
    reply: Reply[Any] = Reply()
    change(reply.set_result)
    timer = door.loop.call_later(door.config.request_deadline_s, reply.set_exception, Refusal(
        "outcome_unknown", "the database of users and rights has not answered in time"))
    try:
        result = await reply
    finally:
        timer.cancel()
    if isinstance(result, AccountError):
        raise result
    return result


def refuse_unknown(document: dict[str, Any], fields: tuple[str, ...]) -> None:
    """Refuses `invalid_body` where the document holds what the call does not know."""
    for name in document:
        if name not in fields:
            raise Refusal("invalid_body", f"no field {name[:40]!r} here; there are: {', '.join(fields)}")
