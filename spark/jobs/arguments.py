"""The options of a job under spark-submit, made from its settings: `--window-s 60`, `--topics a,b`.

Passwords and tokens are no options, since everybody on a machine can read a process's arguments: they come from the
environment, as GATEHOUSE_SPARK_PASSWORD.
"""
from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gatehouse.spark.jobs.settings import JobSettings

Settings = TypeVar("Settings", bound=JobSettings)


def parse_arguments(section: type[Settings], name: str,
                    arguments: Sequence[str] | None = None) -> tuple[Settings, bool]:
    """The settings, and whether the job shall end with what is there now. Ends the process where they are wrong."""
    parser = argparse.ArgumentParser(prog=name, description=section.__doc__)
    parser.add_argument("--once", action="store_true", help="End when everything that is there now has been read.")
    hints = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        if not field.metadata.get("secret"):
            parser.add_argument(option_name(field.name), dest=field.name, default=field.default,
                                help=str(field.metadata["help"]), type=functools.partial(from_text, hints[field.name]),
                                choices=field.metadata.get("choices"))
    values = vars(parser.parse_args(arguments))
    once = values.pop("once")
    values.update(secrets(section, os.environ))
    try:
        return check(section(**values)), once
    except ValueError as error:
        parser.error(str(error))


def secrets(section: type[JobSettings], environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that stand in the environment."""
    names = [field.name for field in dataclasses.fields(section) if field.metadata.get("secret")]
    variables = {name: f"GATEHOUSE_SPARK_{name.upper()}" for name in names}
    return {name: environ[variable] for name, variable in variables.items() if variable in environ}


def option_name(setting: str) -> str:
    """How a setting is called on the command line."""
    return "--" + setting.replace("_", "-")


def from_text(hint: Any, text: str) -> Any:
    """A value as its type; ValueError where it is none."""
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(item(part.strip()) for part in text.split(",") if part.strip())
    if hint is not bool:
        return hint(text)
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def check(settings: Settings) -> Settings:
    """The settings, once their numbers are within bounds. Raises ValueError."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        size = len(value) if isinstance(value, tuple) else value
        low, high = field.metadata.get("min"), field.metadata.get("max")
        if low is not None and size < low:
            raise ValueError(f"{option_name(field.name)} must be at least {low}")
        if high is not None and size > high:
            raise ValueError(f"{option_name(field.name)} must be at most {high}")
    return settings
