"""`format("gatehouse")`: what Spark asks for readers and writers."""
from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.options import read_options, read_write_options
from gatehouse.spark.reading import BatchReader
from gatehouse.spark.schema import check_schema, schema_of
from gatehouse.spark.streaming import StreamReader
from gatehouse.spark.writing import BatchWriter, StreamWriter


class GatehouseSource(DataSource):
    """The messages of a hub as tables and streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "gatehouse"

    def schema(self) -> StructType:
        """The columns that the option `columns` names, or all."""
        return schema_of(read_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """What reads a batch."""
        return BatchReader(read_options(self.options), check_schema(schema).fieldNames())

    def streamReader(self, schema: StructType) -> StreamReader:
        """What reads a stream."""
        return StreamReader(read_options(self.options), check_schema(schema).fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """What writes a batch. A topic is only ever added to."""
        if overwrite:
            raise InvalidOption("messages cannot be overwritten: write with mode('append')")
        return BatchWriter(read_write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """What writes a stream."""
        if overwrite:
            raise InvalidOption("messages cannot be overwritten: write with outputMode('append') or 'update'")
        return StreamWriter(read_write_options(self.options))
