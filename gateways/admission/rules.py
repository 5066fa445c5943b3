"""One rule of the rights: who may, or may not, do what where. Pure.

    {"effect": "allow", "who": "user:ann", "operations": ["publish"], "kind": "address", "pattern": "plant/{user}/#"}

Each kind knows its operations; the shortest rule names all of them by leaving `operations` out.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gatehouse.gateways.admission import patterns
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import InvalidRule as InvalidRule
from gatehouse.gateways.admission.principal import ANONYMOUS, DEFAULT_TENANT

EVERYONE: Final = "everyone"
EVERY_TENANT: Final = "*"
MAX_WHO_CHARACTERS: Final = 261          # `group:` and a name of 255
MAX_TENANT_CHARACTERS: Final = 255
MAX_PATTERN_BYTES: Final = 4096

ALLOW: Final = "allow"
DENY: Final = "deny"

ADDRESS: Final = "address"
TOPIC: Final = "topic"
GROUP: Final = "group"
HUB: Final = "hub"
CLIENT: Final = "client"
"""A client id."""

KINDS: Final[Mapping[str, frozenset[Operation]]] = {
    ADDRESS: frozenset((Operation.PUBLISH, Operation.CONSUME, Operation.CREATE, Operation.ALTER, Operation.TRANSACT,
                        Operation.DESCRIBE)),
    TOPIC: frozenset((Operation.PUBLISH, Operation.CONSUME, Operation.CREATE, Operation.ALTER, Operation.TRANSACT,
                      Operation.DESCRIBE)),
    GROUP: frozenset((Operation.CONSUME, Operation.ALTER, Operation.TRANSACT)),
    HUB: frozenset((Operation.ADMINISTER, Operation.RELAY, Operation.TRACE)),
    CLIENT: frozenset((Operation.CONNECT,)),
}

FIELDS: Final = ("effect", "who", "operations", "kind", "pattern", "tenant")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Read it by `read_rule`, which checks it."""

    allows: bool
    who: str
    operations: frozenset[Operation]
    kind: str
    pattern: str
    tenant: str = DEFAULT_TENANT
    id: str = ""
    """The rule's id: the database's number, `file-N` for the Nth `[[acl]]` of the configuration, `hub-N` for a built-in
    rule."""

    @property
    def from_file(self) -> bool:
        return self.id.startswith("file-")

    @property
    def built_in(self) -> bool:
        return self.id.startswith("hub-")

    @property
    def speaks_of_anonymous(self) -> bool:
        """Whether the rule speaks of `anonymous`. As soon as one rule does, `anonymous` may only do what rules
        allow."""
        return self.who in (EVERYONE, f"user:{ANONYMOUS}")

    @property
    def decides_administering(self) -> bool:
        return self.kind == HUB and Operation.ADMINISTER in self.operations

    def says(self, other: Rule) -> bool:
        """Whether it says all that another one says, of the same place and the same people."""
        return (self.pattern == other.pattern and self.who == other.who and self.kind == other.kind
                and self.allows == other.allows and self.tenant in (other.tenant, EVERY_TENANT)
                and self.operations.issuperset(other.operations))

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "effect": ALLOW if self.allows else DENY, "who": self.who,
                "operations": sorted(operation.value for operation in self.operations), "kind": self.kind,
                "pattern": self.pattern, "tenant": self.tenant, "from_file": self.from_file}

    def __str__(self) -> str:
        """The rule as people read it, with its effect, who, operations, place, tenant and id."""
        operations = ", ".join(sorted(operation.value for operation in self.operations))
        where = "this hub" if self.kind == HUB else f"{self.kind} {self.pattern}"
        tenant = "" if self.tenant == DEFAULT_TENANT else f" in tenant {self.tenant}"
        return f"{ALLOW if self.allows else DENY} {self.who}: {operations} on {where}{tenant} ({self.id or 'no id'})"


def read_rule(table: Mapping[str, Any], id: str = "") -> Rule:
    """A rule from JSON or from the configuration. Raises InvalidRule."""
    for name in table:
        if name not in FIELDS:
            raise InvalidRule(f"{str(name)[:40]!r} is nothing that a rule has; it has {', '.join(FIELDS)}")
    effect = _choice(table, "effect", (ALLOW, DENY), ALLOW)
    kind = _choice(table, "kind", tuple(KINDS), ADDRESS)
    tenant = _text(table, "tenant", DEFAULT_TENANT, MAX_TENANT_CHARACTERS)
    return Rule(effect == ALLOW, _read_who(table), _read_operations(table, kind), kind, _read_pattern(table, kind),
                tenant, id)


def _read_who(table: Mapping[str, Any]) -> str:
    who = _text(table, "who", None, MAX_WHO_CHARACTERS)
    sort, colon, name = who.partition(":")
    if who != EVERYONE and not (colon and name and sort in ("user", "group")):
        raise InvalidRule(f"who is user:NAME, group:NAME or {EVERYONE}, not {who[:80]!r}")
    return who


def _read_operations(table: Mapping[str, Any], kind: str) -> frozenset[Operation]:
    operations = {operation.value: operation for operation in KINDS[kind]}
    if "operations" not in table:
        return KINDS[kind]
    names = table["operations"]
    if not isinstance(names, Collection) or isinstance(names, (str, Mapping)) or not names:
        raise InvalidRule("operations is a list of one or more, or left out for all of them")
    for name in names:
        if not isinstance(name, str) or name not in operations:
            raise InvalidRule(f"{str(name)[:40]!r} is no operation on a kind {kind!r}; there are "
                              f"{', '.join(sorted(operations))}")
    return frozenset(operations[name] for name in names)


def _read_pattern(table: Mapping[str, Any], kind: str) -> str:
    if kind == HUB:
        if table.get("pattern", "") != "":
            raise InvalidRule("a rule on the hub has no pattern")
        return ""
    pattern = _text(table, "pattern", None, MAX_PATTERN_BYTES)
    try:
        if kind == ADDRESS:
            patterns.parse_address_pattern(pattern)
        else:
            patterns.check_name_pattern(pattern)
    except patterns.InvalidPattern as error:
        raise InvalidRule(str(error)) from None
    if kind == CLIENT and patterns.speaks_of_client(pattern):
        raise InvalidRule(f"a client id is what such a rule is about: {patterns.CLIENT_ID} says nothing in it")
    return pattern


def _choice(table: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = table.get(name, default)
    if value not in choices:
        raise InvalidRule(f"{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {str(value)[:40]!r}")
    return str(value)


def _text(table: Mapping[str, Any], name: str, default: str | None, size_max: int) -> str:
    value = table.get(name, default)
    if not isinstance(value, str) or not value:
        raise InvalidRule(f"{name} is a text and is needed")
    if len(value.encode(errors="surrogatepass")) > size_max or "\0" in value or not value.isprintable():
        raise InvalidRule(f"{name} has at most {size_max} bytes, all printable")
    return value
