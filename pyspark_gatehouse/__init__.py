"""Where Spark finds `format("gatehouse")`: it looks for `DefaultSource` in every module named `pyspark_...`."""
from __future__ import annotations

from spark.source import GatehouseSource as DefaultSource

__all__ = ["DefaultSource"]
