"""All limits of the hub, and which of them speak of whom. Pure: time is an argument.

A connection asks once for the meters of its user, groups, tenant, client id and door, and once for each place that it
publishes to. It keeps the answer until `version` is another one: so a message looks nothing up.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gatehouse.gateways.admission.limits.limit import (
    ADDRESS,
    CLIENT,
    CONSUMERS,
    DOOR,
    EACH,
    GROUP,
    HUB,
    IN,
    OF_A_TENANT,
    OUT,
    QUOTA,
    TENANT,
    TOPIC,
    USER,
    USER_CLIENT,
    Limit,
    Quota,
)
from gatehouse.gateways.admission.limits.meter import Meter
from gatehouse.gateways.admission.limits.purse import SET_ASIDE_MS, Purse
from gatehouse.gateways.admission.patterns import overlaps
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import MANY, FilterTrie, parse_filter

METERS_MAX: Final = 65_536
"""Names that are remembered with what they have left; the one that was looked up longest ago goes first."""

PURSES_MAX: Final = 16_384
"""Purses that are kept; all are settled and forgotten beyond that."""

MATCHES_MAX: Final = 64
"""Filters that may be charged for one address; further ones that match it are not looked at."""


class LimitBook:
    """All limits of the hub: put, removed, and found for whoever is to be charged."""

    def __init__(self) -> None:
        self.version = 0
        """Another number once a limit has come or gone: who applies must be looked up again."""

        self.limits_in = 0
        self.limits_out = 0
        self.places_in = 0                   # of those, which speak of addresses and topics
        self.places_out = 0
        self.stored = 0
        """Limits of what is stored."""

        self.publishing_waits = False
        """Nobody may publish for now, whatever his limits: the hub has too much to do."""

        self._limits: dict[str, Limit] = {}
        self._named: dict[tuple[str, str, str, str], list[Limit]] = {}       # by direction, tenant, kind and name
        self._filters: dict[tuple[str, str], FilterTrie[str]] = {}           # ids, by direction and tenant
        self._of_addresses: dict[tuple[str, str], dict[str, Limit]] = {}     # the same limits, by id
        self._storing: dict[str, Limit] = {}                                 # of what is stored, by id
        self._bounding: dict[tuple[str, str], dict[str, Limit]] = {}         # of connections: by kind and name, by id
        self._meters: dict[tuple[str, str, str], Meter] = {}                 # by id, tenant and name
        self._meters_by_id: dict[str, dict[tuple[str, str, str], Meter]] = {}
        self._purses: dict[tuple[tuple[Meter, ...], tuple[Meter, ...]], Purse] = {}
        self._open_purses: dict[Purse, None] = {}        # in which something is set aside, longest first

    # ---- which there are

    def __iter__(self) -> Iterator[Limit]:
        return iter(self._limits.values())

    def __len__(self) -> int:
        return len(self._limits)

    def get(self, id: str) -> Limit | None:
        """The limit of this id."""
        return self._limits.get(id)

    def put(self, limit: Limit, now_ms: int) -> None:
        """A limit that is new, or reads otherwise from now on."""
        self._forget_purses()
        before = self._limits.get(limit.id)
        if before is not None and _reach(before) == _reach(limit) and before.has_meters and limit.has_meters \
                and before.bounds_stored == limit.bounds_stored:
            self._limits[limit.id] = limit
            self._index(limit)
            named = self._named.get(_place(limit))
            if named is not None:
                named[named.index(before)] = limit
            for meter in self._meters_of(limit.id):
                meter.change(limit, now_ms)
            self.version += 1
            return
        if before is not None:
            self.remove(limit.id)
        self._limits[limit.id] = limit
        self._index(limit)
        self._count(limit, 1)
        if not limit.has_meters:
            return
        if limit.kind == ADDRESS:
            self._filters.setdefault((limit.direction, limit.tenant), FilterTrie()).insert(
                parse_filter(limit.name), limit.id)
        else:
            self._named.setdefault(_place(limit), []).append(limit)

    def remove(self, id: str) -> None:
        """Nothing is limited by it any more, where it is there."""
        self._forget_purses()
        limit = self._limits.pop(id, None)
        if limit is None:
            return
        self._unindex(limit)
        self._count(limit, -1)
        if not limit.has_meters:
            return
        if limit.kind == ADDRESS:
            self._filters[limit.direction, limit.tenant].remove(parse_filter(limit.name), limit.id)
        else:
            self._named[_place(limit)].remove(limit)
            if not self._named[_place(limit)]:
                del self._named[_place(limit)]
        for key in self._meters_by_id.pop(id, ()):
            del self._meters[key]

    def _index(self, limit: Limit) -> None:
        """Of ten thousand limits those that are wanted are found at once."""
        if limit.bounds_stored:
            self._storing[limit.id] = limit
        of, key = self._indexed(limit)
        if limit.connections is None and of is self._bounding:
            of.get(key, {}).pop(limit.id, None)
        else:
            of.setdefault(key, {})[limit.id] = limit

    def _unindex(self, limit: Limit) -> None:
        self._storing.pop(limit.id, None)
        of, key = self._indexed(limit)
        limits = of.get(key, {})
        limits.pop(limit.id, None)
        if not limits:
            of.pop(key, None)

    def _indexed(self, limit: Limit) -> tuple[dict[tuple[str, str], dict[str, Limit]], tuple[str, str]]:
        if limit.kind == ADDRESS:
            return self._of_addresses, (limit.direction, limit.tenant)
        return self._bounding, (limit.kind, limit.name)

    def put_quotas(self, quotas: Mapping[str, Quota], now_ms: int) -> None:
        """The quotas of users, by name: each is a limit of what its user sends, by all doors together."""
        wanted = {f"{QUOTA}{name}": quota for name, quota in quotas.items() if quota != Quota()}
        for id in [id for id in self._limits if id.startswith(QUOTA) and id not in wanted]:
            self.remove(id)
        for id, quota in wanted.items():
            self.put_quota(id[len(QUOTA):], quota, now_ms)

    def put_quota(self, user: str, quota: Quota, now_ms: int) -> None:
        """The quota of one user; a quota of nothing is none."""
        id = f"{QUOTA}{user}"
        if quota == Quota():
            self.remove(id)
            return
        limit = Limit(f"{USER}:{user}", messages_per_s=quota.messages_per_s or None,
                      bytes_per_s=quota.bytes_per_s or None, id=id)
        if self._limits.get(id) != limit:
            self.put(limit, now_ms)

    def _count(self, limit: Limit, by: int) -> None:
        self.version += 1
        if not limit.has_meters:
            return
        self.stored += by if limit.bounds_stored else 0
        of_a_place = limit.kind in (ADDRESS, TOPIC)
        if limit.direction == IN:
            self.limits_in += by
            self.places_in += by if of_a_place else 0
        else:
            self.limits_out += by
            self.places_out += by if of_a_place else 0

    def hold_publishing(self, waits: bool) -> None:
        """Whether publishing waits: as by one more limit of everybody, that has nothing left."""
        if waits != self.publishing_waits:
            self.publishing_waits = waits
            self.limits_in += 1 if waits else -1
            self.version += 1

    # ---- which of them apply

    def of_connection(self, direction: str, door: str, user: str, groups: Iterable[str], tenant: str, client_id: str,
                      now_ms: int) -> tuple[Meter, ...]:
        """The meters of everything that this connection sends, or is sent. `client_id`: "" where there is none."""
        special = self._meters_of_client(direction, user, tenant, client_id, now_ms)
        meters = self._meters_named(direction, HUB, "", "", now_ms)
        meters += self._meters_named(direction, DOOR, door, "", now_ms)
        meters += self._meters_named(direction, TENANT, tenant, "", now_ms)
        for group in sorted(groups):
            meters += self._meters_named(direction, GROUP, group, "", now_ms)
        return (*meters, *special)

    def _meters_of_client(self, direction: str, user: str, tenant: str, client_id: str, now_ms: int) -> list[Meter]:
        """The meters of a user and his client id, the most special first. What yields to one before it is left out."""
        meters: list[Meter] = []
        for kind, name, each in ((USER_CLIENT, f"{user}/{client_id}", f"{user}/{EACH}"), (USER, user, ""),
                                 (USER_CLIENT, f"{EACH}/{client_id}", f"{EACH}/{EACH}"), (USER, "", EACH),
                                 (CLIENT, client_id, EACH)):
            if not client_id and kind != USER:
                continue
            for of_name in (name, each):
                before = tuple(meters)
                for limit in self._limits_named(direction, kind, of_name, tenant) if of_name else ():
                    if not any(limit.yields_to(other.limit) for other in before):
                        meters.append(self._meter(limit, _shown(kind, user, client_id), tenant if kind != USER else "",
                                                  now_ms))
        return meters

    def _limits_named(self, direction: str, kind: str, name: str, tenant: str) -> list[Limit]:
        tenants = (tenant, EACH) if kind in OF_A_TENANT else ("",)
        return [limit for of in tenants for limit in self._named.get((direction, of, kind, name), ())]

    def of_place(self, direction: str, tenant: str, topic: str, address: str, now_ms: int) -> tuple[Meter, ...]:
        """The meters of what is stored in a topic under an address besides. `topic`: "" for a queue alone."""
        meters = self._meters_named(direction, TOPIC, topic, tenant, now_ms) if topic else []
        for of in (tenant, EACH):
            trie = self._filters.get((direction, of))
            if trie is not None:
                meters += [self._meter(self._limits[id], "", tenant, now_ms)
                           for id in trie.match(levels_of(address))[:MATCHES_MAX]]
        return tuple(meters)

    def of_topic(self, direction: str, tenant: str, topic: str, now_ms: int) -> tuple[Meter, ...]:
        """The meters of what is stored in a topic, whatever its addresses: those of every filter that some of them
        could match are among them."""
        meters = self._meters_named(direction, TOPIC, topic, tenant, now_ms)
        whole = (topic, MANY)
        for of in (tenant, EACH):
            for limit in self._of_addresses.get((direction, of), {}).values():
                if len(meters) < MATCHES_MAX and overlaps(parse_filter(limit.name), whole):
                    meters.append(self._meter(limit, "", tenant, now_ms))
        return tuple(meters)

    def of_consumers(self, tenant: str, group: str, now_ms: int) -> tuple[Meter, ...]:
        """The meters of what goes out to a group."""
        return tuple(self._meters_named(OUT, CONSUMERS, group, tenant, now_ms))

    def _meters_named(self, direction: str, kind: str, name: str, tenant: str, now_ms: int) -> list[Meter]:
        tenants = (tenant, EACH) if kind in OF_A_TENANT else ("",)
        names = (name, EACH) if kind != HUB else ("",)
        return [self._meter(limit, name, tenant, now_ms) for of_tenant in tenants for of_name in names
                for limit in self._named.get((direction, of_tenant, kind, of_name), ())]

    def _meter(self, limit: Limit, name: str, tenant: str, now_ms: int) -> Meter:
        key = (limit.id, tenant, name)
        meter = self._meters.pop(key, None)
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                oldest = next(iter(self._meters))
                del self._meters[oldest], self._meters_by_id[oldest[0]][oldest]
            meter = Meter(limit, name or limit.name, now_ms)
            self._meters_by_id.setdefault(limit.id, {})[key] = meter
        self._meters[key] = meter
        return meter

    def meters_of_stored(self) -> list[tuple[Meter, str, str]]:
        """What bounds what is stored, of whom anything was taken lately: (meter, tenant, topic); topic "": all of the
        tenant's."""
        return [(meter, tenant if limit.kind == TOPIC else name, name if limit.kind == TOPIC else "")
                for limit in self._storing.values()
                for (_, tenant, name), meter in self._meters_by_id.get(limit.id, {}).items()]

    def of_connections(self, door: str, user: str, tenant: str) -> list[tuple[Limit, str, str]]:
        """What bounds the connections of a user: (limit, kind, name of those that are counted)."""
        if not self._bounding:
            return []
        names = {HUB: "", DOOR: door, TENANT: tenant, USER: user}
        return [(limit, kind, name) for kind, name in names.items() for of in dict.fromkeys((name, EACH))
                for limit in self._bounding.get((kind, of), {}).values()]

    # ---- what is reserved for small bursts

    def purse(self, common: tuple[Meter, ...], own: tuple[Meter, ...]) -> Purse:
        """The purse of everybody whose messages are charged to these meters."""
        purse = self._purses.get((common, own))
        if purse is None:
            if len(self._purses) >= PURSES_MAX:
                self._forget_purses()
            purse = self._purses[common, own] = Purse(common, own)
        return purse

    def open_purse(self, purse: Purse, now_ms: int) -> bool:
        """Set a part of what is left aside in it, in place of the part that it has; False: there is too little left."""
        self._open_purses.pop(purse, None)
        if not purse.set_aside(now_ms):
            return False
        self._open_purses[purse] = None
        return True

    def reclaim(self, now_ms: int) -> None:
        """Somebody is to be weighed: what others have set aside for long, and not used, is given back before."""
        old: list[Purse] = []
        for purse in self._open_purses:
            if now_ms - purse.opened_ms < SET_ASIDE_MS:
                break
            old.append(purse)
        for purse in old:
            del self._open_purses[purse]
            purse.settle()

    def settle(self) -> None:
        """Nothing is set aside any more, and what was taken is known."""
        for purse in self._open_purses:
            purse.settle()
        self._open_purses.clear()

    def _forget_purses(self) -> None:
        self.settle()
        self._purses.clear()

    # ---- for people

    def _meters_of(self, id: str) -> list[Meter]:
        return list(self._meters_by_id.get(id, {}).values())

    def most_used(self, id: str, count: int) -> list[Meter]:
        """Those who have taken most under a limit."""
        self.settle()
        return sorted(self._meters_of(id), key=lambda meter: -meter.messages_taken)[:count]


def _shown(kind: str, user: str, client_id: str) -> str:
    """The name of whom a meter is."""
    return {USER: user, CLIENT: client_id}.get(kind, f"{user}/{client_id}")


def _reach(limit: Limit) -> tuple[str, str, str, bool]:
    return limit.of, limit.direction, limit.tenant, limit.yields


def _place(limit: Limit) -> tuple[str, str, str, str]:
    return limit.direction, limit.tenant if limit.kind in OF_A_TENANT else "", limit.kind, limit.name
