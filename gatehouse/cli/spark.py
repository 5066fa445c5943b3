"""`gatehouse spark`: the jobs that come with the hub. Their options are the settings of `[spark.NAME]`.

Passwords and tokens have no option, since everybody on a machine can read a process's arguments: they stand in the
configuration (`{ file = … }`, `{ env = … }`) or in GATEHOUSE__SPARK__ARCHIVE__PASSWORD.
"""
from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.exits import Refused
from gatehouse.spark.jobs.arguments import option_name
from gatehouse.spark.jobs.failure import JobFailed
from gatehouse.spark.jobs.settings import AnalyticsSettings, ArchiveSettings, JobSettings

DEFAULT_CONFIG: Final = "gateways.toml"
NEEDS: Final = "Spark is not installed here: pip install 'gatehouse[spark]', and Java 17 or later"


@click.group()
def spark() -> None:
    """Jobs in Spark: topics as a table, statistics of readings.

    Each goes on where it ended before, and runs until Ctrl-C unless --once is given.
    """


def _command(name: str, section: type[JobSettings], text: str) -> click.Command:
    """The command of one job: an option for each setting."""
    def run_job(config_file: Path, once: bool, **given: Any) -> None:
        _run(name, config_file, once, {key: value for key, value in given.items() if value is not None})

    command: Callable[..., Any] = run_job
    for field in reversed(dataclasses.fields(section)):
        if not field.metadata.get("secret"):
            command = click.option(option_name(field.name), field.name, help=_help(field))(command)
    command = click.option("--once", is_flag=True, help="End when everything that is there now has been read.")(command)
    command = click.option("--config", "config_file", type=click.Path(path_type=Path), default=Path(DEFAULT_CONFIG),
                           envvar="GATEHOUSE_CONFIG", show_default=True,
                           help=f"The configuration file, for [spark.{name}].")(command)
    return click.command(name, help=text)(command)


def _help(field: dataclasses.Field[Any]) -> str:
    text = str(field.metadata["help"])
    shown = ",".join(f"{item:g}" for item in field.default) if isinstance(field.default, tuple) else field.default
    return f"{text} Default: {str(shown).lower() if isinstance(shown, bool) else shown}." if shown != "" else text


def _run(name: str, config_file: Path, once: bool, given: dict[str, str]) -> None:
    from gatehouse.cli.hub_option import default_url
    from gatehouse.config.config import ConfigError, load_job
    from gatehouse.config.settings import Text
    try:
        texts = {key: Text("option", value) for key, value in given.items()}
        settings = load_job(config_file, os.environ, name, texts)
    except ConfigError as error:
        raise Refused("; ".join(error.lines), exits.USAGE) from None
    if not settings.url:
        settings = dataclasses.replace(settings, url=default_url(config_file))
    try:
        job = importlib.import_module(f"gatehouse.spark.jobs.{name}")
    except ModuleNotFoundError as error:
        raise Refused(f"{NEEDS} ({error.name} is missing)", exits.FAILED) from None
    try:
        job.run(settings, once)
    except JobFailed as error:
        raise Refused(str(error), exits.FAILED) from None


ARCHIVE_HELP: Final = """Store topics as a Delta table or Parquet files.

Each message is in it once.

One commit per micro-batch, partitioned by topic and day. Example: gatehouse spark archive --topics plant --to archive
"""
ANALYTICS_HELP: Final = """Send statistics of every address back to the hub.

They are over windows of time, and published like any message.

Count, mean, smallest, largest, percentiles, late readings. Example: gatehouse spark analytics --topics plant
"""
spark.add_command(_command("archive", ArchiveSettings, ARCHIVE_HELP))
spark.add_command(_command("analytics", AnalyticsSettings, ANALYTICS_HELP))
