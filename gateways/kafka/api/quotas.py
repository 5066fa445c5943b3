"""DescribeClientQuotas and AlterClientQuotas 0 to 1, over the limits that all doors share. It takes the right to
administer the hub.

    entity                  producer_byte_rate                    consumer_byte_rate
    user                    the user's quota, `bytes_per_s`       a limit of `user:NAME`, out
    user default            a limit of `user:*`, in               a limit of `user:*`, out
    client-id, its default  a limit of `client:ID`, `client:*`, in and out
    both                    a limit of `user-client:USER/ID`, in and out; USER and ID may each be `*`

Kafka lets the most special quota of a client hold and no other. So do these limits: they yield to each other, and to
the quota of a user. decision 267
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.gateways.admission.limits.limit import (
    CLIENT,
    EACH,
    IN,
    OF_A_TENANT,
    OUT,
    USER,
    USER_CLIENT,
    Limit,
    read_limit,
)
from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.gateways.kafka.api.acls import MAX_ASKED, administration_of
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import INVALID_REQUEST, NONE, POLICY_VIOLATION
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration
    from gatehouse.gateways.kafka.session import KafkaSession

CLIENT_ID: Final = "client-id"           # Kafka's word for the kind of entity
BYTE_RATE: Final = "producer_byte_rate"
OUT_RATE: Final = "consumer_byte_rate"
DIRECTIONS: Final = {BYTE_RATE: IN, OUT_RATE: OUT}
RATES: Final = {direction: rate for rate, direction in DIRECTIONS.items()}
EXACT: Final = 0                         # match types
DEFAULT: Final = 1
ANY: Final = 2

Limits = dict[tuple[str, str], Limit]
"""The limits that are quotas, by of what they are and their direction."""

Names = dict[str, str | None]
"""The names of an entity by kind; None: the default."""


@dataclass(frozen=True, slots=True)
class Entity:
    """Of whom a quota is."""

    names: Names

    @property
    def is_user(self) -> bool:
        """Whether it is one user, with whom his quota is kept."""
        return list(self.names) == [USER] and self.names[USER] is not None

    @property
    def of(self) -> str:
        """Of what the limit is that stands for its quotas."""
        user, client = (EACH if name is None else name for name in map(self.names.get, (USER, CLIENT_ID)))
        if len(self.names) > 1:
            return f"{USER_CLIENT}:{user}/{client}"
        return f"{USER}:{user}" if USER in self.names else f"{CLIENT}:{client}"


def entity_of(limit: Limit) -> Entity:
    """Of whom the quota is that a limit stands for."""
    if limit.kind == USER_CLIENT:
        user, _, client = limit.name.partition("/")
        names = {USER: user, CLIENT_ID: client}
    else:
        names = {USER if limit.kind == USER else CLIENT_ID: limit.name}
    return Entity({kind: None if name == EACH else name for kind, name in names.items()})


# ---- DescribeClientQuotas

def describe_quotas(request: Request) -> Iterator[None]:
    """Who has none is not listed."""
    asked, session = request.decode(DescribeClientQuotasRequest), request.session
    entries: list[Row] | None = None
    error, text = NONE, None
    try:
        entries = yield from _entries(session, asked)
    except Refused as refusal:
        error, text = refusal.code, str(refusal)
    request.answer(DescribeClientQuotasResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   entries=entries)


def _entries(session: KafkaSession, asked: Any) -> Generator[None, None, list[Row]]:
    """Raises Refused."""
    accounts = administration_of(session)
    _check_filter(asked)
    quotas: dict[str, tuple[Entity, dict[str, float]]] = {}
    for user in list(accounts.accounts.users.values()):     # some may come or go between two turns
        if user.quota.bytes_per_s:
            quotas[f"{USER}:{user.name}"] = Entity({USER: user.name}), {BYTE_RATE: user.quota.bytes_per_s}
            yield
    for limit in quotas_in(session, accounts).values():
        _, rates = quotas.setdefault(limit.of, (entity_of(limit), {}))
        rates[RATES[limit.direction]] = float(limit.bytes_per_s or 0)
        yield
    entries = []
    for entity, rates in quotas.values():
        if _is_asked_for(asked, entity.names):
            entries.append(Row(
                entity=[Row(entity_type=kind, entity_name=name) for kind, name in entity.names.items()],
                values=[Row(key=key, value=rate) for key, rate in sorted(rates.items(), reverse=True)]))
        yield
    return entries


def _check_filter(asked: Any) -> None:
    """Raises Refused for what cannot be asked."""
    types = Counter(component.entity_type for component in asked.components)
    for component in asked.components:
        if types[component.entity_type] > 1 or component.match_type not in (EXACT, DEFAULT, ANY):
            raise Refused(INVALID_REQUEST, "a kind of entity is named once, with a match type from 0 to 2")


def _is_asked_for(asked: Any, names: Names) -> bool:
    """Whether every component of the filter matches; a strict one names all kinds that the entity has."""
    for component in asked.components:
        if component.entity_type not in names:
            return False
        name = names[component.entity_type]
        if component.match_type == EXACT and (name is None or name != component.match) \
                or component.match_type == DEFAULT and name is not None:
            return False
    return not asked.strict or len(asked.components) == len(names) or not asked.components


def quotas_in(session: KafkaSession, accounts: Administration) -> Limits:
    """The limits that are quotas, by of what they are and their direction."""
    tenant = session.principal.tenant
    return {(limit.of, limit.direction): limit for limit in accounts.accounts.every_limit()
            if is_quota(tenant, limit)}


def is_quota(tenant: str, limit: Limit) -> bool:
    """Whether it is of bytes and nothing else, of a user or a client id; not what the configuration says."""
    return (limit.kind in (USER, CLIENT, USER_CLIENT) and list(limit.amounts())[:1] == ["bytes_per_s"]
            and set(limit.amounts()) <= {"bytes_per_s", "yields"} and not limit.from_file
            and (limit.kind == USER or limit.tenant == tenant))


# ---- AlterClientQuotas

def alter_quotas(request: Request) -> Iterator[None]:
    """The quotas of each entity by themselves."""
    asked, session = request.decode(AlterClientQuotasRequest), request.session
    rows: list[Row] = []
    parts = AskedParts(lambda: request.answer(AlterClientQuotasResponse, throttle_time_ms=0, entries=rows))
    wanted: list[tuple[Row, Entity, dict[str, float]]] = []
    for entry in asked.entries:
        row = Row(error_code=NONE, error_message=None, entity=entry.entity)
        rows.append(row)
        try:
            if len(asked.entries) > MAX_ASKED:
                raise Refused(POLICY_VIOLATION, f"the quotas of at most {MAX_ASKED} are changed in one request")
            wanted.append((row, *wanted_of(session, administration_of(session), entry)))
        except REFUSALS as refusal:
            refuse(row, refusal)
        yield
    if wanted and not asked.validate_only:
        accounts = administration_of(session)
        with accounts.together():
            for row, entity, rates in wanted:
                parts.begin(row, partial(_change, session, accounts, entity, rates))
    parts.settle()


def _change(session: KafkaSession, accounts: Administration, entity: Entity, rates: dict[str, float], part: AskedPart
            ) -> None:
    for _ in range(1, len(rates)):
        part.also()
    for key, rate in rates.items():
        if key == BYTE_RATE and entity.is_user:
            accounts.put_user(session.author(), str(entity.names[USER]), UserChanges(bytes_per_s=rate),
                              part.on_changed, create=False)
        else:
            table = _table(session, entity, key, rate)
            accounts.set_limit(session.author(), table, partial(_is_same, session.principal.tenant, table["direction"]),
                               rate > 0, part.on_changed)


def _is_same(tenant: str, direction: str, limit: Limit) -> bool:
    """Whether it is the quota of this direction."""
    return limit.direction == direction and is_quota(tenant, limit)


def _table(session: KafkaSession, entity: Entity, key: str, rate: float) -> dict[str, Any]:
    of = entity.of
    tenant = session.principal.tenant if of.partition(":")[0] in OF_A_TENANT else DEFAULT_TENANT
    return {"of": of, "direction": DIRECTIONS[key], "tenant": tenant, "bytes_per_s": rate, "yields": True}


def wanted_of(session: KafkaSession, accounts: Administration, entry: Any) -> tuple[Entity, dict[str, float]]:
    """(of whom, bytes per second by the quota's name; 0: none). Raises Refused, AccountError."""
    entity = _read_entity(entry.entity)
    rates: dict[str, float] = {}
    for step in entry.ops:
        if step.key not in DIRECTIONS or step.key in rates:
            raise Refused(INVALID_REQUEST, f"the quotas that there are here are {BYTE_RATE} and {OUT_RATE}, each named "
                                           "once: what is sent and what goes out, by any door")
        if not step.remove and not (math.isfinite(step.value) and step.value > 0):
            raise Refused(INVALID_REQUEST, f"{step.key} is above 0")
        rates[step.key] = 0.0 if step.remove else float(step.value)
        read_limit(_table(session, entity, step.key, rates[step.key]))
    if not rates:
        raise Refused(INVALID_REQUEST, "no quota is named")
    if entity.is_user:
        accounts.user(str(entity.names[USER]))
    return entity, rates


def _read_entity(parts: list[Any]) -> Entity:
    """Raises Refused."""
    names: Names = {part.entity_type: part.entity_name for part in parts}
    if not names or len(names) < len(parts) or not names.keys() <= {USER, CLIENT_ID}:
        raise Refused(INVALID_REQUEST, f"a quota is of a {USER}, of a {CLIENT_ID}, or of both here: not of an address")
    for name in names.values():
        if name in ("", EACH) or name is not None and len(names) > 1 and "/" in name and name is names[USER]:
            raise Refused(INVALID_REQUEST, f"{name!r} cannot have a quota")
    return Entity({kind: names[kind] for kind in (USER, CLIENT_ID) if kind in names})


DESCRIBE_CLIENT_QUOTAS = Api(key=48, name="DescribeClientQuotas", first_version=0, last_version=1, first_flexible=1,
                             dispatch=describe_quotas, shows=True, message=DescribeClientQuotasRequest)
ALTER_CLIENT_QUOTAS = Api(key=49, name="AlterClientQuotas", first_version=0, last_version=1, first_flexible=1,
                          dispatch=alter_quotas, message=AlterClientQuotasRequest)
