"""What a limit is, and how it is read. Pure.

    {"of": "user:ann", "direction": "in", "messages_per_s": 50, "messages_burst": 100}

`of` says for whom or what:

    hub                 everything             door:NAME        what comes in or goes out by one door
    user:NAME           one user               group:NAME       the users of a group together
    tenant:NAME         one tenant             client:ID        one client id (MQTT, Kafka) of the tenant
    address:FILTER      what a filter matches  topic:NAME       one topic
    consumers:NAME      what goes out to a group of consumers
    user-client:USER/ID one client id of one user; USER and ID may each be `*`

`connections` bounds how many are open at once, of the hub, a door, a tenant or a user; `stored_messages` and
`stored_bytes` how much there may be in a topic, or in all topics of a tenant.

A limit that `yields` holds only for those of whom no more special limit speaks (`YIELDING`).

Where the name is `*`, each user, tenant, client, topic, door or group has a bucket of its own.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from gatehouse.gateways.admission.errors import InvalidLimit
from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.errors import InvalidFilter

HUB: Final = "hub"
DOOR: Final = "door"
USER: Final = "user"
GROUP: Final = "group"
TENANT: Final = "tenant"
CLIENT: Final = "client"
ADDRESS: Final = "address"
TOPIC: Final = "topic"
CONSUMERS: Final = "consumers"
USER_CLIENT: Final = "user-client"

KINDS: Final = (HUB, DOOR, TENANT, GROUP, USER, CLIENT, USER_CLIENT, ADDRESS, TOPIC, CONSUMERS)
OF_A_TENANT: Final = frozenset((CLIENT, USER_CLIENT, ADDRESS, TOPIC, CONSUMERS))
"""Kinds whose names mean something within one tenant."""

OF_CONNECTIONS: Final = frozenset((HUB, DOOR, TENANT, USER))
"""Kinds that may bound connections."""

YIELDING: Final = frozenset((USER, CLIENT, USER_CLIENT))
"""Kinds whose limits may yield: to one of the same rates that speaks of a user and his client id, of a user, of a
client id; each by name before `*`. decision 267"""

OF_STORED: Final = frozenset((TENANT, TOPIC))
"""Kinds that may bound what is stored."""

EACH: Final = "*"
IN: Final = "in"
OUT: Final = "out"

MAX_RATE: Final = 10 ** 18
MAX_NAME_BYTES: Final = 65_535
AMOUNTS: Final = ("messages_per_s", "bytes_per_s", "operations_per_s", "messages_burst", "bytes_burst",
                  "operations_burst", "connections", "stored_messages", "stored_bytes")
RATES: Final = ("messages_per_s", "bytes_per_s", "operations_per_s")
WHOLE: Final = ("connections", "stored_messages", "stored_bytes")
"""Amounts of which a whole number is there at once."""

QUOTA: Final = "quota:"
"""How the id of a limit begins that is the quota of a user."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a user may send, kept with the user: summed over all its connections on all doors. 0: no limit."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. None: that is not limited. A burst that is left out is one second of its rate."""

    of: str
    direction: str = IN
    tenant: str = DEFAULT_TENANT
    messages_per_s: float | None = None
    bytes_per_s: float | None = None
    operations_per_s: float | None = None
    messages_burst: int | None = None
    bytes_burst: int | None = None
    operations_burst: int | None = None
    connections: int | None = None
    """As many may be open at once."""

    stored_messages: int | None = None
    stored_bytes: int | None = None
    """So much may be there at once; the bytes are those of the log."""

    observe: bool = False
    """It counts what would be too much, and stops nobody."""

    yields: bool = False
    """It holds only where no more special limit does."""

    id: str = ""

    @property
    def kind(self) -> str:
        return self.of.partition(":")[0]

    @property
    def name(self) -> str:
        return self.of.partition(":")[2]

    @property
    def from_file(self) -> bool:
        return self.id.startswith("file-")

    @property
    def has_rates(self) -> bool:
        """Whether it is of anything that flows."""
        return any(rate is not None for rate in (self.messages_per_s, self.bytes_per_s, self.operations_per_s))

    @property
    def bounds_stored(self) -> bool:
        """Whether it is of anything that is stored."""
        return self.stored_messages is not None or self.stored_bytes is not None

    @property
    def has_meters(self) -> bool:
        """Whether what is taken is charged to it."""
        return self.has_rates or self.bounds_stored

    def as_dict(self) -> dict[str, Any]:
        shown = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.yields:
            del shown["yields"]
        return {**shown, "from_file": self.from_file}

    def amounts(self) -> dict[str, Any]:
        """What is stored beside `of`, `direction` and `tenant`."""
        return {name: getattr(self, name) for name in AMOUNTS if getattr(self, name) is not None} | (
            {"observe": True} if self.observe else {}) | ({"yields": True} if self.yields else {})

    def yields_to(self, other: Limit) -> bool:
        """Whether it does not hold for those of whom another one speaks that is more special."""
        return self.yields and any(getattr(self, rate) is not None and getattr(other, rate) is not None
                                   for rate in RATES)


FIELDS: Final = tuple(field.name for field in fields(Limit) if field.name != "id")


def read_limit(table: Mapping[str, Any], id: str = "") -> Limit:
    """A limit from JSON or from the configuration. Raises InvalidLimit."""
    for name in table:
        if name not in FIELDS:
            raise InvalidLimit(f"{str(name)[:40]!r} is nothing that a limit has; it has {', '.join(FIELDS)}")
    of = _read_of(table.get("of"))
    kind = of.partition(":")[0]
    direction = table.get("direction", IN)
    if direction not in (IN, OUT):
        raise InvalidLimit(f"direction is {IN} or {OUT}, not {str(direction)[:40]!r}")
    if kind == CONSUMERS and direction == IN:
        raise InvalidLimit("a group of consumers sends nothing: its limit has the direction out")
    tenant = table.get("tenant", DEFAULT_TENANT)
    if not _is_text(tenant, 255):
        raise InvalidLimit("tenant is a text of 1 to 255 characters")
    if tenant != DEFAULT_TENANT and kind not in OF_A_TENANT:
        raise InvalidLimit(f"a limit of the kind {kind!r} is not of one tenant")
    observe = table.get("observe", False)
    if not isinstance(observe, bool):
        raise InvalidLimit("observe is true or false")
    yields = table.get("yields", False)
    if not isinstance(yields, bool):
        raise InvalidLimit("yields is true or false")
    if yields and kind not in YIELDING:
        raise InvalidLimit(f"what yields is a limit of {', '.join(sorted(YIELDING))}")
    amounts = {name: _read_amount(table, name) for name in AMOUNTS}
    for what in ("messages", "bytes", "operations"):
        if amounts[f"{what}_burst"] is not None and amounts[f"{what}_per_s"] is None:
            raise InvalidLimit(f"{what}_burst says how much may come at once of {what}_per_s, which is not there")
    if all(amounts[name] is None for name in AMOUNTS):
        raise InvalidLimit("a limit has messages_per_s, bytes_per_s, operations_per_s, connections, stored_messages or "
                           "stored_bytes")
    if (amounts["stored_messages"] is not None or amounts["stored_bytes"] is not None) and (
            kind not in OF_STORED or direction == OUT):
        raise InvalidLimit(f"what is stored is bounded for {', '.join(sorted(OF_STORED))}, with the direction in")
    if amounts["connections"] is not None and (kind not in OF_CONNECTIONS or direction == OUT):
        raise InvalidLimit(f"connections are bounded for {', '.join(sorted(OF_CONNECTIONS))}, with the direction in")
    return Limit(of, direction, tenant, observe=observe, yields=yields, id=id, **amounts)


def _read_of(of: Any) -> str:
    if not _is_text(of, MAX_NAME_BYTES):
        raise InvalidLimit("of is a text that says of what the limit is, such as user:ann or hub")
    kind, colon, name = of.partition(":")
    if kind not in KINDS or (kind == HUB) != (not colon) or (colon and not name):
        raise InvalidLimit(f"of is {HUB} or KIND:NAME with one of {', '.join(KINDS[1:])}, not {of[:80]!r}")
    if kind == USER_CLIENT and not all(name.partition("/")[::2]):
        raise InvalidLimit(f"{USER_CLIENT}:USER/ID has both, and each may be {EACH}")
    if kind == ADDRESS:
        try:
            parse_filter(name)
        except InvalidFilter as error:
            raise InvalidLimit(str(error)) from None
    return str(of)


def _is_text(value: Any, bytes_max: int) -> bool:
    return (isinstance(value, str) and value != "" and value.isprintable()
            and len(value.encode(errors="surrogatepass")) <= bytes_max)


def _read_amount(table: Mapping[str, Any], name: str) -> Any:
    if name not in table:
        return None
    value = table[name]
    if name in WHOLE:
        if type(value) is not int or not 0 <= value <= MAX_RATE:
            raise InvalidLimit(f"{name} is a whole number from 0, which lets nothing in, to 1e18")
    elif name.endswith("_burst"):
        if type(value) is not int or not 1 <= value <= MAX_RATE:
            raise InvalidLimit(f"{name} is a whole number from 1 to 1e18")
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_RATE:
        raise InvalidLimit(f"{name} is a number from 0, which lets nothing pass, to 1e18")
    return int(value) if isinstance(value, float) and value.is_integer() else value
