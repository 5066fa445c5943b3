"""Where Spark finds `format("gatehouse")`: it looks for `DefaultSource` in every module named `pyspark_...`.

`decode_values` makes columns of values.
"""
from __future__ import annotations

from gatehouse.spark.decoding import decode_values
from gatehouse.spark.source import GatehouseSource as DefaultSource

__all__ = ["DefaultSource", "decode_values"]
