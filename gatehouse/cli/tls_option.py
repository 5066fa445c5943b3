"""How a command speaks TLS with a hub: --tls-ca, --tls-cert and --tls-key, or the environment.

Commands are not handed them: `client_tls` finds them where click put them.
"""
from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gatehouse import exits

Command = TypeVar("Command", bound=Callable[..., Any])

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


def _keep(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    context.meta[f"gatehouse.{parameter.name}"] = value


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
