"""The stream of messages that a job reads, from its settings."""
from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from gatehouse.spark.jobs.settings import JobSettings


def read_stream(spark: SparkSession, settings: JobSettings, columns: Sequence[str] = ()) -> DataFrame:
    """The messages that the settings name, as `format("gatehouse")` gives them; all columns unless some are named."""
    reader = spark.readStream.format("gatehouse").options(**source_options(settings))
    return (reader.option("columns", ",".join(columns)) if columns else reader).load()


def source_options(settings: JobSettings) -> dict[str, str]:
    """The source's options; what is left empty is left out."""
    return _given(connection(settings) | {
        "subscribe": ",".join(settings.topics),
        "subscribePattern": settings.pattern,
        "filter": settings.filter,
        "startingOffsets": settings.starting,
        "maxOffsetsPerTrigger": str(settings.max_rows),
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
    })


def sink_options(settings: JobSettings) -> dict[str, str]:
    """The sink's options; the rows say where they go."""
    return _given(connection(settings))


def connection(settings: JobSettings) -> dict[str, str]:
    """Where the hub is, and who asks."""
    return {"url": settings.url, "user": settings.user, "password": settings.password, "token": settings.token,
            "tlsCa": settings.tls_ca}


def _given(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}
