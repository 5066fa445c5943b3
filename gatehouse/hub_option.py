"""Which hub a command asks (--url, the environment, the configuration here, or the default), and the asking itself."""
from __future__ import annotations

import http
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gatehouse import exits
from gatehouse.client.errors import HubError, OutcomeUnknown, Unavailable
from gatehouse.listeners import EVERYWHERE, parse_address

if TYPE_CHECKING:
    from gatehouse.client.sync import SyncClient

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


@contextmanager
def asking(url: str) -> Iterator[SyncClient]:
    """The hub at `url`, asked once for everything: people see at once that it is not there. Raises Refused."""
    from gatehouse.client.retry import NO_RETRY
    from gatehouse.client.sync import SyncClient
    try:
        with SyncClient(url, retry=NO_RETRY) as hub:
            yield hub
    except HubError as error:
        raise refusal(error) from None


def refusal(error: HubError, more: str = "") -> exits.Refused:
    """What a command says and ends with where the hub refused, or is not there."""
    if isinstance(error, (Unavailable, OutcomeUnknown)) and not error.status:
        more += "; start one with `gatehouse serve`, or name it with --url"
    not_built = error.status == http.HTTPStatus.NOT_IMPLEMENTED
    return exits.Refused(f"{error}{more}", exits.NOT_BUILT if not_built else exits.FAILED)
