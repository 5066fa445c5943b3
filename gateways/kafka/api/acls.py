"""DescribeAcls, CreateAcls and DeleteAcls 1 to 3: the rules of the rights, as `acl_mapping.py` reads them.

They are the rules that `gatehouse acl`, HTTP and the console show and change, of the client's tenant. It takes the
right to administer the hub. A rule of the configuration file is shown, and changed there.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rules import EVERY_TENANT, Rule
from gatehouse.gateways.kafka.acl_mapping import (
    Acl,
    AclPlace,
    acls_of,
    is_wanted,
    place_of,
    rights_of,
    why_not,
)
from gatehouse.gateways.kafka.api.parts import AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    SECURITY_DISABLED,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration
    from gatehouse.gateways.kafka.session import KafkaSession

MAX_ASKED: Final = 1_000         # ACLs, or filters, of one request: each filter looks at every rule


def administration_of(session: KafkaSession) -> Administration:
    """What changes users and rules. Raises Refused."""
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        raise Refused(CLUSTER_AUTHORIZATION_FAILED, f"{session.principal.name} may not administer this hub")
    accounts = session.services.accounts
    if accounts is None:
        raise Refused(SECURITY_DISABLED, "this hub has no database of users and rights")
    return accounts


def together(session: KafkaSession) -> AbstractContextManager[None]:
    """What is asked of the database within goes there in few transactions."""
    accounts = session.services.accounts
    return nullcontext() if accounts is None else accounts.together()


def rules_of(session: KafkaSession, accounts: Administration) -> list[Rule]:
    """Those that hold in the client's tenant."""
    return [rule for rule in accounts.accounts.every_rule() if rule.tenant in (session.principal.tenant, EVERY_TENANT)]


# ---- DescribeAcls

def describe_acls(request: Request) -> Iterator[None]:
    asked, session = request.decode(DescribeAclsRequest), request.session
    resources: dict[tuple[int, str, int], dict[Acl, None]] = {}
    error, text = NONE, None
    try:
        accounts = administration_of(session)
    except Refused as refusal:
        error, text = refusal.code, str(refusal)
    else:
        for rule in rules_of(session, accounts):
            for _, acl in acls_of(rule):
                if is_wanted(asked, acl):
                    resources.setdefault(acl[:3], {})[acl] = None
            yield
    rows = [Row(resource_type=kind, resource_name=name, pattern_type=pattern, acls=[
        Row(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission)
        for acl in acls]) for (kind, name, pattern), acls in resources.items()]
    request.answer(DescribeAclsResponse, throttle_time_ms=0, error_code=error, error_message=text, resources=rows)


# ---- CreateAcls

def create_acls(request: Request) -> Iterator[None]:
    """ACLs of one place are looked at together: some are one right only with others. What is there already is there."""
    asked, session = request.decode(CreateAclsRequest), request.session
    rows = [Row(error_code=NONE, error_message=None) for _ in asked.creations]
    parts = AskedParts(lambda: request.answer(CreateAclsResponse, throttle_time_ms=0, results=rows))
    try:
        accounts = administration_of(session)
        if len(rows) > MAX_ASKED:
            raise Refused(POLICY_VIOLATION, f"at most {MAX_ASKED} ACLs are taken in one request")
    except Refused as refusal:
        for row in rows:
            refuse(row, refusal)
    else:
        places: dict[AclPlace, dict[int, list[Row]]] = {}
        for creation, row in zip(asked.creations, rows, strict=True):
            try:
                places.setdefault(place_of(creation), {}).setdefault(creation.operation, []).append(row)
            except Refused as refusal:
                refuse(row, refusal)
            yield
        with accounts.together():
            for place, wanted in places.items():
                _create(session, accounts, place, wanted, parts)
    parts.settle()


def _create(session: KafkaSession, accounts: Administration, place: AclPlace, wanted: dict[int, list[Row]],
            parts: AskedParts) -> None:
    """Add the rules that are missing for what is wanted of one place."""
    rights: dict[tuple[Operation, ...], list[Row]] = {}
    meant = rights_of(place, wanted)
    for number, rows in wanted.items():
        if number in meant:
            rights.setdefault(meant[number], []).extend(rows)
        for row in rows if number not in meant else ():
            refuse(row, Refused(INVALID_REQUEST, why_not(place.kind, number)))
    for right, rows in rights.items():
        if not right:
            continue
        table = {"effect": "allow" if place.allows else "deny", "who": place.who, "kind": place.kind,
                 "operations": [operation.value for operation in right], "tenant": session.principal.tenant,
                 **({"pattern": place.pattern} if place.pattern else {})}
        parts.begin(Both(rows), partial(_add, session, accounts, table))


class Both(Row):
    """The rows of several ACLs that one rule is made for."""

    def __init__(self, rows: list[Row]) -> None:
        object.__setattr__(self, "rows", rows)

    def __setattr__(self, name: str, value: object) -> None:
        for row in self.rows:
            setattr(row, name, value)


def _add(session: KafkaSession, accounts: Administration, table: dict[str, Any], part: AskedPart) -> None:
    accounts.ensure_rule(session.author(), table, part.on_changed)


# ---- DeleteAcls

def delete_acls(request: Request) -> Iterator[None]:
    """Each filter's ACLs are taken from their rules; a rule that says nothing more goes. A right that is several of
    Kafka's operations goes with any of them, where it allows; where it denies, only with all."""
    asked, session = request.decode(DeleteAclsRequest), request.session
    rows = [Row(error_code=NONE, error_message=None, matching_acls=[]) for _ in asked.filters]
    parts = AskedParts(lambda: request.answer(DeleteAclsResponse, throttle_time_ms=0, filter_results=rows))
    try:
        accounts = administration_of(session)
        if len(rows) > MAX_ASKED:
            raise Refused(POLICY_VIOLATION, f"at most {MAX_ASKED} filters are taken in one request")
    except Refused as refusal:
        for row in rows:
            refuse(row, refusal)
    else:
        taken: list[Taken] = []
        filters = list(zip(asked.filters, rows, strict=True))
        for rule in rules_of(session, accounts):
            taken += _taken(session, rule, filters)
            yield
        with accounts.together():
            for outcome, rule, gone in taken:
                parts.begin(outcome, partial(_take, session, accounts, rule, gone))
    parts.settle()


class Taken(NamedTuple):
    """What filters take from a rule."""

    outcome: Both
    rule: Rule
    gone: set[Operation]


def _taken(session: KafkaSession, rule: Rule, filters: list[tuple[Any, Row]]) -> Iterator[Taken]:
    """What filters ask to be taken from a rule, if anything."""
    acls: dict[tuple[Operation, ...], list[Acl]] = {}
    for right, acl in acls_of(rule):
        acls.setdefault(right, []).append(acl)
    gone: set[Operation] = set()
    listed: list[Row] = []
    for right, each in acls.items():
        matches = [[acl for acl in each if is_wanted(wanted, acl)] for wanted, _ in filters]
        wanted_acls = {acl for matching in matches for acl in matching}
        if not wanted_acls or not rule.allows and len(wanted_acls) < len(each):
            continue
        gone.update(right)
        for (_, row), matching in zip(filters, matches, strict=True):
            for acl in each if matching else ():
                listed.append(_matching(acl))
                row.matching_acls.append(listed[-1])
    if not gone:
        return
    outcome = Both(listed)
    if rule.tenant != session.principal.tenant:
        refuse(outcome, Refused(CLUSTER_AUTHORIZATION_FAILED, "the rule is one of every tenant"))
    else:
        yield Taken(outcome, rule, gone)


def _take(session: KafkaSession, accounts: Administration, rule: Rule, gone: set[Operation], part: AskedPart) -> None:
    accounts.narrow_rule(session.author(), rule.id, gone, part.on_changed)


def _matching(acl: Acl) -> Row:
    return Row(error_code=NONE, error_message=None, resource_type=acl.resource_type, resource_name=acl.resource_name,
               pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host, operation=acl.operation,
               permission_type=acl.permission)


DESCRIBE_ACLS = Api(key=29, name="DescribeAcls", first_version=1, last_version=3, first_flexible=2,
                    dispatch=describe_acls, shows=True, message=DescribeAclsRequest)
CREATE_ACLS = Api(key=30, name="CreateAcls", first_version=1, last_version=3, first_flexible=2, dispatch=create_acls,
                  message=CreateAclsRequest)
DELETE_ACLS = Api(key=31, name="DeleteAcls", first_version=1, last_version=3, first_flexible=2, dispatch=delete_acls,
                  message=DeleteAclsRequest)
