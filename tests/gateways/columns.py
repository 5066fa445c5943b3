"""The property table as the built-in doors declare it."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.properties.envelope import Column
from gatehouse.gateways.registry import BUILT_IN, built_in

SPECS: Final = {name: built_in(name) for name in BUILT_IN}
COLUMNS: Final[dict[str, Column]] = {column.name: column for spec in SPECS.values() for column in spec.columns}
