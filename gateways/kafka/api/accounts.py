"""DescribeUserScramCredentials 0, AlterUserScramCredentials 0, DescribeClientQuotas and AlterClientQuotas 0 to 1: the
users and quotas that all doors share. It takes the right to administer the hub.

A SCRAM credential comes salted: it is for logins by its mechanism alone, and the user's password for other ways stays
as it is. A user that is not there is made. A quota is a user's; `producer_byte_rate` is its `bytes_per_s`, and
`consumer_byte_rate` a limit of what goes out to it, both for all doors.
"""
from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.gateways.admission.limits.limit import OUT
from gatehouse.gateways.admission.scram import salted_secret
from gatehouse.gateways.kafka.api.acls import administration_of
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    DUPLICATE_RESOURCE,
    INVALID_REQUEST,
    NONE,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNSUPPORTED_SASL_MECHANISM,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request

if TYPE_CHECKING:
    from gatehouse.gateways.admission.accounts import ScramSecret, User
    from gatehouse.gateways.admission.administration import Administration
    from gatehouse.gateways.admission.limits.limit import Limit
    from gatehouse.gateways.kafka.session import KafkaSession

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
MIN_ITERATIONS: Final = 4_096            # as Kafka
MAX_ITERATIONS: Final = 16_384
MAX_SALT_BYTES: Final = 1_024            # of the salt, and of what was salted

USER: Final = "user"                     # the only kind of entity that has a quota here
BYTE_RATE: Final = "producer_byte_rate"
OUT_RATE: Final = "consumer_byte_rate"
EXACT: Final = 0                         # match types
DEFAULT: Final = 1
ANY: Final = 2


# ---- SCRAM

def describe_scram(request: Request) -> None:
    """Of all users, or of those that are named."""
    asked, session = request.decode(DescribeUserScramCredentialsRequest), request.session
    rows: list[Row] = []
    error, text = NONE, None
    try:
        users = administration_of(session).accounts.users
    except Refused as refusal:
        error, text = refusal.code, str(refusal)
    else:
        times = Counter(user.name for user in asked.users or ())
        for name in times or [user.name for user in users.values() if user.scram]:
            rows.append(_described(name, users.get(name)))
            if times[name] > 1:
                refuse(rows[-1], Refused(DUPLICATE_RESOURCE, "the request names this user twice"))
                rows[-1].credential_infos = []
    request.answer(DescribeUserScramCredentialsResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   results=rows)


def _described(name: str, user: User | None) -> Row:
    row = Row(user=name, error_code=NONE, error_message=None, credential_infos=[
        Row(mechanism=NUMBERS[mechanism], iterations=secret.iterations)
        for mechanism, secret in sorted(user.scram.items())] if user is not None else [])
    if not row.credential_infos:
        refuse(row, Refused(RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"))
    return row


def alter_scram(request: Request) -> None:
    """All of a user's changes at once, or none of them."""
    asked, session = request.decode(AlterUserScramCredentialsRequest), request.session
    named = Counter((change.name, change.mechanism) for change in (*asked.deletions, *asked.upsertions))
    rows = {name: Row(user=name, error_code=NONE, error_message=None) for name, _ in named}
    changes: dict[str, dict[str, ScramSecret | None]] = {name: {} for name in rows}
    parts = AskedParts(lambda: request.answer(AlterUserScramCredentialsResponse, throttle_time_ms=0,
                                              results=list(rows.values())))
    for change in (*asked.deletions, *asked.upsertions):
        try:
            mechanism = MECHANISMS.get(change.mechanism)
            if mechanism is None:
                raise Refused(UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
            if named[change.name, change.mechanism] > 1:
                raise Refused(DUPLICATE_RESOURCE, "a user's credential is changed once in a request")
            changes[change.name][mechanism] = _secret(mechanism, change) if hasattr(change, "salt") else None
        except Refused as refusal:
            refuse(rows[change.name], refusal)
    for name, row in rows.items():
        if row.error_code == NONE:
            parts.begin(row, partial(_change_scram, session, name, changes[name]))
    parts.settle()


def _secret(mechanism: str, asked: Any) -> ScramSecret:
    """Raises Refused."""
    if not asked.name:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not MIN_ITERATIONS <= asked.iterations <= MAX_ITERATIONS:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not 0 < len(asked.salted_password) <= MAX_SALT_BYTES or not 0 < len(asked.salt) <= MAX_SALT_BYTES:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"salt and salted password have 1 to {MAX_SALT_BYTES} bytes")
    return salted_secret(mechanism, asked.salted_password, asked.salt, asked.iterations)


def _change_scram(session: KafkaSession, name: str, secrets: dict[str, ScramSecret | None], part: AskedPart) -> None:
    accounts = administration_of(session)
    user = accounts.accounts.users.get(name)
    for mechanism, secret in secrets.items():
        if secret is None and (user is None or mechanism not in user.scram):
            raise Refused(RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    accounts.put_user(session.author(), name, UserChanges(scram=secrets), part.on_changed)


# ---- quotas

def describe_quotas(request: Request) -> None:
    """Of users; who has none is not listed."""
    asked, session = request.decode(DescribeClientQuotasRequest), request.session
    entries: list[Row] | None = None
    error, text = NONE, None
    try:
        accounts = administration_of(session)
        out = _limits_out(accounts)
        entries = []
        for user in accounts.accounts.users.values():
            values = [Row(key=BYTE_RATE, value=user.quota.bytes_per_s)] if user.quota.bytes_per_s else []
            if user.name in out:
                values.append(Row(key=OUT_RATE, value=out[user.name].bytes_per_s))
            if values and _is_asked_for(asked, user.name):
                entries.append(Row(entity=[Row(entity_type=USER, entity_name=user.name)], values=values))
    except Refused as refusal:
        error, text = refusal.code, str(refusal)
    request.answer(DescribeClientQuotasResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   entries=entries)


def _is_asked_for(asked: Any, name: str) -> bool:
    """Raises Refused for a filter that cannot be."""
    types = Counter(component.entity_type for component in asked.components)
    for component in asked.components:
        if types[component.entity_type] > 1 or component.match_type not in (EXACT, DEFAULT, ANY):
            raise Refused(INVALID_REQUEST, "a kind of entity is named once, with a match type from 0 to 2")
    return all(component.entity_type == USER and (component.match_type == ANY or component.match_type == EXACT
                                                  and component.match == name) for component in asked.components)


def alter_quotas(request: Request) -> None:
    """The quota of each user by itself."""
    asked, session = request.decode(AlterClientQuotasRequest), request.session
    rows: list[Row] = []
    parts = AskedParts(lambda: request.answer(AlterClientQuotasResponse, throttle_time_ms=0, entries=rows))
    for entry in asked.entries:
        row = Row(error_code=NONE, error_message=None, entity=entry.entity)
        rows.append(row)
        if asked.validate_only:
            try:
                _quota(administration_of(session), entry)
            except REFUSALS as refusal:
                refuse(row, refusal)
        else:
            parts.begin(row, partial(_change_quota, session, entry))
    parts.settle()


def _change_quota(session: KafkaSession, entry: Any, part: AskedPart) -> None:
    accounts = administration_of(session)
    name, rates = _quota(accounts, entry)
    for _ in range(1, len(rates)):
        part.also()
    if BYTE_RATE in rates:
        accounts.put_user(session.author(), name, UserChanges(bytes_per_s=rates[BYTE_RATE]), part.on_changed,
                          create=False)
    if OUT_RATE in rates:
        _change_limit_out(session, accounts, name, rates[OUT_RATE], part)


def _change_limit_out(session: KafkaSession, accounts: Administration, name: str, rate: float, part: AskedPart) -> None:
    limit = _limits_out(accounts).get(name)
    table = {"of": f"{USER}:{name}", "direction": OUT, "bytes_per_s": rate}
    if limit is None and rate:
        accounts.add_limit(session.author(), table, part.on_changed)
    elif limit is not None and rate:
        accounts.replace_limit(session.author(), limit.id, table, part.on_changed)
    elif limit is not None:
        accounts.delete_limit(session.author(), limit.id, part.on_changed)
    else:
        part.end()                       # there is none to be removed, as Kafka has it


def _limits_out(accounts: Administration) -> dict[str, Limit]:
    """What bounds the bytes that go out to a user and nothing else, by user; not what the configuration says."""
    return {limit.name: limit for limit in accounts.accounts.every_limit()
            if limit.kind == USER and limit.direction == OUT and list(limit.amounts()) == ["bytes_per_s"]
            and not limit.from_file}


def _quota(accounts: Administration, entry: Any) -> tuple[str, dict[str, float]]:
    """(user, bytes per second by the quota's name; 0: none). Raises Refused, UnknownUser."""
    if [part.entity_type for part in entry.entity] != [USER] or entry.entity[0].entity_name is None:
        raise Refused(INVALID_REQUEST, "a quota is one user's here: not a client id's, an address's or everybody's")
    rates: dict[str, float] = {}
    for step in entry.ops:
        if step.key not in (BYTE_RATE, OUT_RATE) or step.key in rates:
            raise Refused(INVALID_REQUEST, f"the quotas that there are here are {BYTE_RATE} and {OUT_RATE}, each named "
                                           "once: what a user sends and is sent, by any door")
        rates[step.key] = 0.0 if step.remove else float(step.value)
        if not step.remove and not (math.isfinite(step.value) and step.value > 0):
            raise Refused(INVALID_REQUEST, f"{step.key} is above 0")
    if not rates:
        raise Refused(INVALID_REQUEST, "no quota is named")
    return accounts.user(entry.entity[0].entity_name).name, rates


DESCRIBE_CLIENT_QUOTAS = Api(key=48, name="DescribeClientQuotas", first_version=0, last_version=1, first_flexible=1,
                             dispatch=describe_quotas)
ALTER_CLIENT_QUOTAS = Api(key=49, name="AlterClientQuotas", first_version=0, last_version=1, first_flexible=1,
                          dispatch=alter_quotas)
DESCRIBE_SCRAM = Api(key=50, name="DescribeUserScramCredentials", first_version=0, last_version=0, first_flexible=0,
                     dispatch=describe_scram)
ALTER_SCRAM = Api(key=51, name="AlterUserScramCredentials", first_version=0, last_version=0, first_flexible=0,
                  dispatch=alter_scram)
