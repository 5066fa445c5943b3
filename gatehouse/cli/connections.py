"""The commands about connections: who is connected, and closing one."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table, time_text

COLUMNS: Final = ("id", "door", "peer", "user", "client_id", "since", "tls", "subscriptions", "unsent_bytes")


@click.group()
def connections() -> None:
    """Who is connected, by whichever door. Needs the right to administer."""


@connections.command("list")
@click.option("--max", "limit", type=click.IntRange(1), default=1000, show_default=True, help="How many at most.")
@hub_options
def list_connections(limit: int, url: str, json_wanted: bool) -> None:
    """List connections, in the order in which they came."""
    with asking(url) as hub:
        documents = hub.connections(limit)
    if json_wanted:
        for connection in documents:
            click.echo(as_json(connection))
    else:
        heads = [name.replace("_", " ") for name in COLUMNS]
        click.echo(table(heads, [[_shown(name, connection.get(name)) for name in COLUMNS] for connection in documents]))


@connections.command("show")
@click.argument("connection_id", metavar="ID")
@hub_options
def show_connection(connection_id: str, url: str, json_wanted: bool) -> None:
    """Show one with its subscriptions, and what else its door tells of it."""
    with asking(url) as hub:
        connection = hub.show_connection(connection_id)
    fields = {**{name: value for name, value in connection.items() if name != "details"},
              **connection.get("details", {})}
    show(connection, pairs({name.replace("_", " "): _shown(name, value) for name, value in fields.items()}),
         json_wanted)


@connections.command("close")
@click.argument("connection_id", metavar="ID")
@hub_options
def close_connection(connection_id: str, url: str, json_wanted: bool) -> None:
    """Close one in its protocol's words; its client may come back."""
    with asking(url) as hub:
        hub.close_connection(connection_id)
    show({"id": connection_id, "state": "closing"}, f"closing {connection_id}", json_wanted)


def _shown(name: str, value: Any) -> Any:
    """Times as people write them."""
    if name == "since" and isinstance(value, int):
        return time_text(value)
    return value
