"""--url: which hub a command asks: as given, from the environment, from the configuration here, or the default."""
from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gatehouse.listeners import EVERYWHERE, parse_address

DEFAULT_URL: Final = "http://127.0.0.1:8080"

Command = TypeVar("Command", bound=Callable[..., Any])


def default_url(config_file: Path = Path("gateways.toml")) -> str:
    """The HTTP door of the configuration in this folder; the default port where there is none."""
    try:
        tables: Any = tomllib.loads(config_file.read_text())
        listen = parse_address(tables["gateways"]["http"]["listen"][0])
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return DEFAULT_URL    # only a default: `gatehouse check` says what is wrong with the file
    host = "127.0.0.1" if listen.host in EVERYWHERE else listen.host
    return f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"


def hub_options(command: Command) -> Command:
    """--url and --json."""
    url = click.option("--url", envvar="GATEHOUSE_URL", default=default_url,
                       help="HTTP door of the hub. Default: the one in gateways.toml here, or " + DEFAULT_URL + ".")
    json_wanted = click.option("--json", "json_wanted", is_flag=True, help="For programs: one JSON value per line.")
    return url(json_wanted(command))
