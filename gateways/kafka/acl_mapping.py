"""Kafka's ACLs and the rules of the rights: each in the other's words; and what a client is told that it may do. Pure.

An ACL is (resource, pattern, principal, host, operation, permission); a rule says several operations at once, so it is
shown as several ACLs, and is taken apart where one of them is deleted. What one side says and the other cannot is not
shown, or refused by name: rules on addresses and client ids, patterns with `{user}`; hosts, delegation tokens,
operations that are part of a larger right here.

    Topic    READ consume, WRITE publish, CREATE create, DESCRIBE describe; DELETE + ALTER + ALTER_CONFIGS alter
    Group    READ consume, DELETE alter
    Cluster  ALL administer
"""
# decision 177: an ACL grants what it says, or is refused
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.patterns import ANY_NAME
from gatehouse.gateways.admission.principal import ANONYMOUS
from gatehouse.gateways.admission.rules import EVERYONE, GROUP, HUB, TOPIC, Rule
from gatehouse.gateways.kafka.error_codes import INVALID_REQUEST
from gatehouse.gateways.kafka.mapping import Refused

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12

ANY: Final = 1                           # in a filter, of every enumeration
ALL: Final = 2                           # operations
DENY: Final = 2
ALLOW: Final = 3
MATCH: Final = 2                         # a filter's pattern type: whatever applies to the name
LITERAL: Final = 3
PREFIXED: Final = 4
TOPICS: Final = 2
GROUPS: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
CLUSTER_NAME: Final = "kafka-cluster"
ANY_HOST: Final = "*"
USERS: Final = "User:"
OUR_GROUPS: Final = "Group:"
EVERYBODY: Final = "User:*"
NOBODY: Final = "User:ANONYMOUS"

RESOURCES: Final = {TOPIC: TOPICS, GROUP: GROUPS, HUB: CLUSTER}
KINDS: Final = {number: kind for kind, number in RESOURCES.items()}

SAYS: Final[dict[str, dict[Operation, frozenset[int]]]] = {
    TOPIC: {Operation.CONSUME: frozenset((READ,)), Operation.PUBLISH: frozenset((WRITE,)),
            Operation.CREATE: frozenset((CREATE,)), Operation.DESCRIBE: frozenset((DESCRIBE,)),
            Operation.ALTER: frozenset((DELETE, ALTER, ALTER_CONFIGS))},
    GROUP: {Operation.CONSUME: frozenset((READ,)), Operation.ALTER: frozenset((DELETE,))},
    HUB: {Operation.ADMINISTER: frozenset((ALL,))},
}
"""What each of our operations is in Kafka's."""

NAMES: Final = {ALL: "All", READ: "Read", WRITE: "Write", CREATE: "Create", DELETE: "Delete",
                ALTER: "Alter", DESCRIBE: "Describe", ALTER_CONFIGS: "AlterConfigs",
                CLUSTER_ACTION: "ClusterAction", DESCRIBE_CONFIGS: "DescribeConfigs",
                IDEMPOTENT_WRITE: "IdempotentWrite"}


class Acl(NamedTuple):
    """One of Kafka's, as it is listed."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclPlace(NamedTuple):
    """What an ACL is about, besides its operation: ACLs of one place that are made together may be one right."""

    kind: str
    pattern: str
    who: str
    allows: bool


# ---- what rules are in Kafka's words

def acls_of(rule: Rule) -> Iterator[tuple[tuple[Operation, ...], Acl]]:
    """The ACLs that a rule is, each with the operations of ours that it is; none where Kafka has no words for it."""
    if rule.kind not in RESOURCES or "{" in rule.pattern:
        return
    name, pattern_type = rule.pattern, LITERAL
    if rule.kind == HUB:
        name = CLUSTER_NAME
    elif name != ANY_NAME and name.endswith(ANY_NAME):
        name, pattern_type = name.removesuffix(ANY_NAME), PREFIXED
    says = SAYS[rule.kind]
    rights: dict[tuple[Operation, ...], list[int]] = {
        (operation,): sorted(says[operation]) for operation in says if operation in rule.operations}
    if len(rights) == len(says):
        rights = {tuple(says): [ALL]}
    for right, numbers in rights.items():
        for number in numbers:
            yield right, Acl(RESOURCES[rule.kind], name, pattern_type, principal_of(rule.who), ANY_HOST, number,
                             ALLOW if rule.allows else DENY)


def principal_of(who: str) -> str:
    """Whom a rule speaks of, as Kafka writes it."""
    if who == EVERYONE:
        return EVERYBODY
    sort, _, name = who.partition(":")
    if sort == "group":
        return OUR_GROUPS + name
    return NOBODY if name == ANONYMOUS else USERS + name


# ---- what ACLs are in ours

def place_of(asked: Any) -> AclPlace:
    """Raises Refused for what no rule says."""
    kind = KINDS.get(asked.resource_type)
    if asked.resource_type == TRANSACTIONAL_ID:
        raise Refused(INVALID_REQUEST, "a TransactionalId has no ACLs here: using one takes the hub's right "
                                       "`transact` on the group of that name")
    if kind is None:
        raise Refused(INVALID_REQUEST, "rights are given on topics, groups and the cluster here")
    if asked.host != ANY_HOST:
        raise Refused(INVALID_REQUEST, "rules speak of no hosts here: the host is *")
    if asked.permission_type not in (ALLOW, DENY):
        raise Refused(INVALID_REQUEST, f"Invalid permission type {asked.permission_type}")
    return AclPlace(kind, _pattern(kind, asked), _who(asked.principal), asked.permission_type == ALLOW)


def _pattern(kind: str, asked: Any) -> str:
    name = asked.resource_name
    if kind == HUB:
        if name != CLUSTER_NAME or asked.resource_pattern_type != LITERAL:
            raise Refused(INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        return ""
    if asked.resource_pattern_type == LITERAL and name == ANY_NAME:
        return ANY_NAME
    if not name or ANY_NAME in name or "{" in name:
        raise Refused(INVALID_REQUEST, f"{name[:80]!r} is no name that a rule may have here")
    if asked.resource_pattern_type == PREFIXED:
        return str(name) + ANY_NAME
    if asked.resource_pattern_type != LITERAL:
        raise Refused(INVALID_REQUEST, f"Invalid pattern type {asked.resource_pattern_type}")
    return str(name)


def _who(principal: str) -> str:
    if principal == EVERYBODY:
        return EVERYONE
    if principal == NOBODY:
        return f"user:{ANONYMOUS}"
    for prefix, sort in ((USERS, "user"), (OUR_GROUPS, "group")):
        if principal.startswith(prefix) and len(principal) > len(prefix):
            return f"{sort}:{principal.removeprefix(prefix)}"
    raise Refused(INVALID_REQUEST, f"a principal is User:NAME or Group:NAME, not {principal[:80]!r}")


def rights_of(place: AclPlace, asked: Iterable[int]) -> dict[int, tuple[Operation, ...]]:
    """The operations of ours that each is which is asked for of one place, none where whoever has logged in may do that
    anyway. What is missing would be more than was asked for, or is nothing here: `why_not` says so."""
    numbers = set(asked)
    meant: dict[int, tuple[Operation, ...]] = {}
    for operation, covers in SAYS[place.kind].items():
        if covers <= numbers:
            meant |= dict.fromkeys(covers, (operation,))
    if ALL in numbers:
        meant[ALL] = tuple(SAYS[place.kind])
    if IDEMPOTENT_WRITE in numbers and place.kind == HUB and place.allows:
        meant[IDEMPOTENT_WRITE] = ()
    return meant


def why_not(kind: str, number: int) -> str:
    """What is said where an operation cannot be given by itself."""
    name = NAMES.get(number, str(number))
    if kind == TOPIC and number in SAYS[TOPIC][Operation.ALTER]:
        return f"{name} is part of one right here: give Alter, AlterConfigs and Delete on a topic together"
    if kind == TOPIC and number == DESCRIBE_CONFIGS:
        return f"{name} is part of Describe here"
    if kind == GROUP and number == DESCRIBE:
        return f"{name} is part of Read on a group here"
    if kind == HUB:
        return f"{name} is part of the right to administer here: give All on the cluster"
    return f"there is no {name} on a {kind} here"


# ---- filters

def is_wanted(asked: Any, acl: Acl) -> bool:
    """Whether an ACL is one that a filter asks for (KIP-290)."""
    return (asked.resource_type_filter in (ANY, acl.resource_type) and _is_named(asked, acl)
            and (asked.principal_filter is None or asked.principal_filter == acl.principal)
            and (asked.host_filter is None or asked.host_filter == acl.host)
            and asked.operation in (ANY, acl.operation) and asked.permission_type in (ANY, acl.permission))


def _is_named(asked: Any, acl: Acl) -> bool:
    name, pattern = asked.resource_name_filter, asked.pattern_type_filter
    if pattern not in (ANY, MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if pattern != MATCH:
        return False
    return acl.resource_name == ANY_NAME if acl.pattern_type == LITERAL else bool(name.startswith(acl.resource_name))


NOT_ASKED: Final = None
"""What stands in an answer to who has not asked: kafka-python encodes it as the least number that there is."""

_OF_TOPICS: Final[dict[Operation, frozenset[int]]] = {
    Operation.CONSUME: frozenset((READ, DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.PUBLISH: frozenset((WRITE, DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.CREATE: frozenset((CREATE,)),
    Operation.DESCRIBE: frozenset((DESCRIBE, DESCRIBE_CONFIGS)),
    Operation.ALTER: frozenset((DELETE, ALTER, ALTER_CONFIGS)),
}
_OF_ADMINISTRATORS: Final = frozenset((CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))


def topic_operations(session: KafkaSession, name: str) -> frozenset[int]:
    """What this client may do with a topic."""
    return frozenset().union(*[numbers for operation, numbers in _OF_TOPICS.items()
                               if session.admission.may_topic(session.principal, operation, name)])


def cluster_operations(session: KafkaSession) -> frozenset[int]:
    """What this client may do with the hub."""
    may = session.admission.may_hub(session.principal, Operation.ADMINISTER)
    return _OF_ADMINISTRATORS | {IDEMPOTENT_WRITE} if may else frozenset((DESCRIBE, IDEMPOTENT_WRITE))


def as_bits(numbers: Iterable[int]) -> int:
    """Numbers of operations as the bits of one number, where kafka-python does not make it."""
    return sum([1 << number for number in numbers])
