"""Which doors there are: the built-in ones whose folder exists, and what plugins declare.

A plugin is any distribution with an entry point in the group `gatehouse.gateways` whose value is its `GATEWAY`:

    [project.entry-points."gatehouse.gateways"]
    smoke = "my_package.smoke:GATEWAY"
"""
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from gateways.contract import GatewaySpec

ENTRY_POINT_GROUP: Final = "gatehouse.gateways"
BUILT_IN: Final = ("mqtt", "http", "amqp", "kafka")
DOORS_MAX: Final = 16          # a door's number has four bits in a record's attributes


class GatewayClash(Exception):
    """Two doors cannot both be what they say, or one says what it cannot be. The text names both and their origin."""


def load_specs() -> dict[str, GatewaySpec]:
    """Every door that can be opened, by name. Raises GatewayClash, and ImportError if a door's code does not load."""
    declared = [(f"gateways.{name}", built_in(name)) for name in BUILT_IN if _is_there(name)]
    declared += [_from_entry_point(point) for point in entry_points(group=ENTRY_POINT_GROUP)]
    return check_specs(declared)


def _is_there(name: str) -> bool:
    """Whether the door's folder exists and declares something; one that is not built yet may be a README alone."""
    if importlib.util.find_spec(f"gateways.{name}") is None:
        return False
    return hasattr(importlib.import_module(f"gateways.{name}"), "GATEWAY")


def built_in(name: str) -> GatewaySpec:
    """The declaration in `gateways/NAME`."""
    spec = importlib.import_module(f"gateways.{name}").GATEWAY
    if not isinstance(spec, GatewaySpec):
        raise GatewayClash(f"gateways.{name}: GATEWAY is no GatewaySpec")
    return spec


def check_specs(declared: Iterable[tuple[str, GatewaySpec]]) -> dict[str, GatewaySpec]:
    """(origin, declaration) pairs by name, if no name and no number is taken twice."""
    specs: dict[str, GatewaySpec] = {}
    origins: dict[str, str] = {}
    names_by_door: dict[int, str] = {}
    for origin, spec in declared:
        if spec.name in specs:
            raise GatewayClash(f"two gateways are called {spec.name!r}: {origins[spec.name]} and {origin}")
        if not 0 <= spec.door < DOORS_MAX:
            raise GatewayClash(f"{spec.name} ({origin}): door number {spec.door} is not in 0 to {DOORS_MAX - 1}")
        if spec.door in names_by_door:
            other = names_by_door[spec.door]
            raise GatewayClash(f"{spec.name} ({origin}) and {other} ({origins[other]}) both use "
                               f"door number {spec.door}")
        if (spec.session is None) == (spec.service is None):
            raise GatewayClash(f"{spec.name} ({origin}): a gateway has either a session or a service")
        specs[spec.name] = spec
        origins[spec.name] = origin
        names_by_door[spec.door] = spec.name
    return specs


def _from_entry_point(point: EntryPoint) -> tuple[str, GatewaySpec]:
    origin = f"entry point {point.value}"
    spec = point.load()
    if not isinstance(spec, GatewaySpec):
        raise GatewayClash(f"{point.name} ({origin}) is no GatewaySpec")
    return origin, spec
