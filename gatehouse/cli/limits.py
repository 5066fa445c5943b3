"""The commands about limits: how much may come in and go out, and who is at one."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from gatehouse.cli.account_access import Command, Document, access_options, accounts_of
from gatehouse.cli.tables import as_json, show, table

COLUMNS: Final = ("id", "of", "direction", "messages_per_s", "bytes_per_s", "operations_per_s", "connections",
                  "stored_messages", "stored_bytes", "tenant", "observe", "yields", "from_file")
RATES: Final = ("messages_per_s", "bytes_per_s", "operations_per_s")
BURSTS: Final = ("messages_burst", "bytes_burst", "operations_burst")


def amount_options(command: Command) -> Command:
    """--messages-per-s and the rest of what a limit says."""
    command = click.option("--connections", type=click.IntRange(0), default=None,
                           help="Open at once, of the hub, a door, a tenant or a user.")(command)
    for name in ("stored_bytes", "stored_messages"):
        command = click.option(f"--{name.replace('_', '-')}", name, type=click.IntRange(0), default=None,
                               help=f"{name.partition('_')[2].capitalize()} that may be stored, of a tenant or in a "
                                    "topic.")(command)
    for name in reversed(BURSTS):
        command = click.option(f"--{name.replace('_', '-')}", name, type=click.IntRange(1), default=None,
                               help=f"{name.partition('_')[0].capitalize()} at once. Default: one second's.")(command)
    for name in reversed(RATES):
        what = name.partition("_")[0]
        command = click.option(f"--{name.replace('_', '-')}", name, type=click.FloatRange(0), default=None,
                               help=f"{what.capitalize()} a second; 0 lets nothing pass.")(command)
    return command


@click.group()
def limits() -> None:
    """Limits: how much may come in and go out.

    They stand beside the quotas of users. Asks the hub, which takes the right to administer, or works on a data
    directory on which none runs.
    """


@limits.command("list")
@access_options
def list_limits(config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """List limits, those of the configuration first."""
    with accounts_of(config_file, data, url) as access:
        listed = access.limits()
    if json_wanted:
        for limit in listed:
            click.echo(as_json(limit))
    else:
        click.echo(table([name.replace("_", " ") for name in COLUMNS],
                         [[_cell(limit.get(name)) for name in COLUMNS] for limit in listed]))


@limits.command("show")
@click.argument("id")
@access_options
def show_limit(id: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Show a limit, and who has taken most.

    Of a running hub: with what each has left.
    """
    with accounts_of(config_file, data, url) as access:
        limit = access.limit(id)
    used = limit.get("used", [])
    lines = [f"{name.replace('_', ' ')}: {_cell(value)}" for name, value in limit.items() if name != "used"]
    for meter in used:
        left = ", ".join(f"{count} {what}" for what, count in meter["left"].items())
        lines.append(f"{meter['name'] or limit['of']}: {meter['messages']} messages, {meter['bytes']} bytes; "
                     f"left: {left}; refused {meter['refused']}, observed {meter['observed']}")
    show(limit, "\n".join(lines), json_wanted)


@limits.command("set")
@click.argument("of", metavar="OF")
@amount_options
@click.option("--out", "direction", flag_value="out", help="Of what is given to readers; else of what is published.")
@click.option("--tenant", default=None, help="Of a client, address, topic or consumers: the tenant; '*': each.")
@click.option("--observe", is_flag=True, help="Count what would be too much, and stop nobody.")
@click.option("--yields", is_flag=True, help="Of users and client ids: hold only where no closer limit does.")
@access_options
def set_limit(of: str, direction: str | None, tenant: str | None, observe: bool, yields: bool, config_file: Path,
              data: Path | None, url: str | None, json_wanted: bool, **amounts: float | None) -> None:
    """Set a limit, in place of what there is.

    That is the one of the same kind, name, direction and tenant. OF is hub, door:NAME, tenant:NAME, group:NAME (of
    users), user:NAME, client:ID, user-client:USER/ID, address:FILTER, topic:NAME or consumers:NAME; `*` in place of
    the name gives each its own.

    Example: gatehouse limits set user:ann --messages-per-s 50 --messages-burst 100
    """
    document: Document = {"of": of, "direction": direction or "in", "observe": observe}
    if yields:
        document["yields"] = True
    if tenant is not None:
        document["tenant"] = tenant
    document.update({name: int(value) if float(value).is_integer() else value
                     for name, value in amounts.items() if value is not None})
    with accounts_of(config_file, data, url) as access:
        same = [limit["id"] for limit in access.limits() if not limit["from_file"] and (
            limit["of"], limit["direction"], limit["tenant"]) == (of, document["direction"], tenant or "/")]
        limit = access.replace_limit(same[0], document) if same else access.add_limit(document)
    show(limit, f"set limit {limit['id']}", json_wanted)


@limits.command("delete")
@click.argument("id")
@access_options
def delete_limit(id: str, config_file: Path, data: Path | None, url: str | None, json_wanted: bool) -> None:
    """Delete a limit. Those of the configuration are deleted there, and a user's quota by `gatehouse users quota`."""
    with accounts_of(config_file, data, url) as access:
        access.remove_limit(id)
    show({"id": id, "state": "deleted"}, f"deleted limit {id}", json_wanted)


def _cell(value: Any) -> Any:
    return "-" if value is None else value
