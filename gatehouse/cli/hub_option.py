"""Which hub a command asks (--url, the environment, the configuration here, or the default), how it speaks TLS with it,
and the asking itself.

Commands are not handed --tls-ca, --tls-cert and --tls-key: `client_tls` finds them where click put them.
"""
from __future__ import annotations

import http
import os
import ssl
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gatehouse import exits
from gatehouse.config.addresses import EVERYWHERE, split_address
from gatehouse_client.errors import HubError, NotAuthenticated, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from gatehouse_client.sync import SyncClient

DEFAULT_URL: Final = "http://127.0.0.1:8080"

Command = TypeVar("Command", bound=Callable[..., Any])


def configured_url() -> str:
    """The HTTP door of the configuration that GATEHOUSE_CONFIG names, or of the one in this folder."""
    return default_url(Path(os.environ.get("GATEHOUSE_CONFIG", "gateways.toml")))


def default_url(config_file: Path) -> str:
    """The HTTP door of this configuration; the default port where there is none."""
    try:
        tables: Any = tomllib.loads(config_file.read_text())
        address, scheme = _first_listener(tables["gateways"]["http"])
        host, port = split_address(address)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return DEFAULT_URL    # only a default: `gatehouse check` says what is wrong with the file
    if host in EVERYWHERE:
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _first_listener(door: dict[str, Any]) -> tuple[str, str]:
    """Address and scheme of a listener: one without TLS where there is one, since no certificate is for 127.0.0.1."""
    listeners = [(listener, door.get("tls")) if isinstance(listener, str)
                 else (listener["address"], listener.get("tls", door.get("tls")))
                 for listener in door["listen"]]
    plain = [address for address, tls in listeners if not tls]
    return (plain[0], "http") if plain else (listeners[0][0], "https")


HELP: Final = {
    "ca": "File with the authorities that stand for the hub's certificate; else the system's do.",
    "cert": "File with a client certificate to show, and its key where --tls-key is not given.",
    "key": "File with the key of --tls-cert.",
}


def tls_options(command: Command) -> Command:
    """--tls-ca, --tls-cert and --tls-key."""
    for name in reversed(HELP):
        command = click.option(f"--tls-{name}", f"tls_{name}", envvar=f"GATEHOUSE_TLS_{name.upper()}", default=None,
                               type=click.Path(path_type=Path), expose_value=False, callback=_keep,
                               help=HELP[name])(command)
    return command


def client_tls() -> ssl.SSLContext | None:
    """What the command's connections are made with; None where nothing was said. Raises Refused."""
    context = click.get_current_context(silent=True)
    ca, cert, key = [None if context is None else context.meta.get(f"gatehouse.tls_{name}") for name in HELP]
    if ca is None and cert is None:
        return None
    try:
        made = ssl.create_default_context(cafile=ca)
        if cert is not None:
            made.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) and error.strerror else "it is no PEM"
        raise exits.Refused(f"cannot use the files of --tls-ca, --tls-cert and --tls-key: {reason}",
                            exits.USAGE) from None
    return made


def login_options(command: Command) -> Command:
    """--user and --hub-password-file: who asks; and how, see `tls_options`. `asking` looks them up, no command is
    handed them."""
    user = click.option("--user", "asking_user", envvar="GATEHOUSE_USER", default=None, expose_value=False,
                        callback=_keep,
                        help="Who asks, if not anonymous. The password comes from --hub-password-file, from "
                             "GATEHOUSE_PASSWORD, or is asked for. Instead of both: an API key or a token in "
                             "GATEHOUSE_TOKEN.")
    password = click.option("--hub-password-file", envvar="GATEHOUSE_PASSWORD_FILE", default=None, expose_value=False,
                            callback=_keep, type=click.Path(path_type=Path),
                            help="File with the password of --user in its first line.")
    return user(password(tls_options(command)))


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"gatehouse.{parameter.name}"] = value


def _login() -> dict[str, str]:
    """User and password for the client; none, and it is anonymous. Raises Refused."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    user = meta.get("gatehouse.asking_user")
    if user is None:
        token = os.environ.get("GATEHOUSE_TOKEN")
        return {} if token is None else {"user": "", "password": token}
    file = meta.get("gatehouse.hub_password_file")
    if file is not None:
        try:
            password = file.read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError):
            raise exits.Refused(f"cannot read the password in {file}", exits.USAGE) from None
    else:
        password = os.environ.get("GATEHOUSE_PASSWORD")
        if password is None:
            password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return {"user": user, "password": password}


def _login_given() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get("gatehouse.asking_user") is not None \
        or "GATEHOUSE_TOKEN" in os.environ


def hub_options(command: Command) -> Command:
    """--url, --user, --tls-ca and --json."""
    url = click.option("--url", envvar="GATEHOUSE_URL", default=configured_url,
                       help="HTTP door of the hub. Default: the one in gateways.toml here (or in the file that "
                            "GATEHOUSE_CONFIG names), or " + DEFAULT_URL + ".")
    json_wanted = click.option("--json", "json_wanted", is_flag=True, help="For programs: one JSON value per line.")
    return url(login_options(json_wanted(command)))


def dialling(url: str) -> Callable[[], SyncClient]:
    """What makes clients of the hub at `url`, all with one login. Raises Refused."""
    from gatehouse_client.retry import NO_RETRY
    from gatehouse_client.sync import SyncClient
    tls, login = client_tls(), _login()
    return lambda: SyncClient(url, retry=NO_RETRY, tls=tls, **login)


@contextmanager
def asking(url: str) -> Iterator[SyncClient]:
    """The hub at `url`, asked once for everything: people see at once that it is not there. Raises Refused."""
    try:
        with dialling(url)() as hub:
            yield hub
    except HubError as error:
        raise refusal(error) from None


def refusal(error: HubError, more: str = "") -> exits.Refused:
    """What a command says and ends with where the hub refused, or is not there."""
    if isinstance(error, (Unavailable, OutcomeUnknown)) and not error.status:
        more += "; start one with `gatehouse serve`, or name it with --url"
    if isinstance(error, NotAuthenticated) and not _login_given():
        more += "; say who asks with --user, GATEHOUSE_USER or GATEHOUSE_TOKEN. Where there is no user yet, stop the " \
                "hub and make the first with `gatehouse users create NAME --admin`"
    not_built = error.status == http.HTTPStatus.NOT_IMPLEMENTED
    return exits.Refused(f"{error}{more}", exits.NOT_BUILT if not_built else exits.FAILED)
