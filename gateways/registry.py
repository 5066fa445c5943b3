"""Which doors there are: the built-in ones whose folder exists, and what plugins declare.

A plugin is any distribution with an entry point in the group `gatehouse.gateways` whose value is its `GATEWAY`:

    [project.entry-points."gatehouse.gateways"]
    smoke = "my_package.smoke:GATEWAY"

A plugin that does not load is none of the doors; why is kept, for whoever has it in his configuration.
"""
from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from gatehouse.gateways.contract import CONTRACT, GatewaySpec

ENTRY_POINT_GROUP: Final = "gatehouse.gateways"
BUILT_IN: Final = ("mqtt", "http", "amqp", "kafka")


class GatewayClash(Exception):
    """Two doors cannot both be what they say, or one says what it cannot be. The text names both and their origin."""


class Specs(dict[str, GatewaySpec]):
    """Every door that can be opened, by name."""

    def __init__(self, specs: Mapping[str, GatewaySpec], broken: Mapping[str, str]) -> None:
        super().__init__(specs)
        self.broken = broken
        """Plugins that do not load, by the name of their entry point: a sentence that names package and reason."""


def load_specs() -> Specs:
    """Every door that can be opened. Raises GatewayClash, and ImportError if the code of a built-in one does not load.
    """
    declared = [(f"gatehouse.gateways.{name}", built_in(name)) for name in BUILT_IN if _is_there(name)]
    broken: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        spec = _loaded(point)
        if isinstance(spec, GatewaySpec):
            declared.append((f"entry point {point.value}", spec))
        else:
            broken[point.name] = spec
    return Specs(check_specs(declared), broken)


def _is_there(name: str) -> bool:
    """Whether the door's folder exists and declares something; one that is not built yet may be a README alone."""
    if importlib.util.find_spec(f"gatehouse.gateways.{name}") is None:
        return False
    return hasattr(importlib.import_module(f"gatehouse.gateways.{name}"), "GATEWAY")


def built_in(name: str) -> GatewaySpec:
    """The declaration in `gateways/NAME`."""
    spec = importlib.import_module(f"gatehouse.gateways.{name}").GATEWAY
    if not isinstance(spec, GatewaySpec):
        raise GatewayClash(f"gatehouse.gateways.{name}: GATEWAY is no GatewaySpec")
    return spec


def check_specs(declared: Iterable[tuple[str, GatewaySpec]]) -> dict[str, GatewaySpec]:
    """(origin, declaration) pairs by name, if no name and no number is taken twice."""
    specs: dict[str, GatewaySpec] = {}
    origins: dict[str, str] = {}
    names_by_door: dict[int, str] = {}           # of the hub's own; the others are given theirs
    for origin, spec in declared:
        if spec.name in specs:
            raise GatewayClash(f"two gateways are called {spec.name!r}: {origins[spec.name]} and {origin}")
        if spec.door is not None and spec.door in names_by_door:
            other = names_by_door[spec.door]
            raise GatewayClash(f"{spec.name} ({origin}) and {other} ({origins[other]}) both use "
                               f"door number {spec.door}")
        specs[spec.name] = spec
        origins[spec.name] = origin
        if spec.door is not None:
            names_by_door[spec.door] = spec.name
    return specs


def _loaded(point: EntryPoint) -> GatewaySpec | str:
    """A plugin's declaration, or a sentence why there is none."""
    package = point.dist.name if point.dist is not None else point.module
    origin = f"the plugin {point.name} of the package {package} (entry point {point.value})"
    try:
        spec = point.load()
    except (Exception, SystemExit) as error:     # its code runs here, and may do anything
        return f"{origin} does not load: {type(error).__name__}: {' '.join(str(error).split())}"
    if not isinstance(spec, GatewaySpec):
        return f"{origin} is no GatewaySpec"
    if spec.contract != CONTRACT:    # decision 130
        return f"{origin} was written for version {spec.contract} of the contract of doors; this hub has {CONTRACT}"
    if spec.door is not None and spec.name not in BUILT_IN:      # decision 153
        return f"{origin} states a door number; a door from outside is given its number by each hub"
    return spec
