"""The commands about sessions that outlive their connections: what clients are owed while they are away."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table, time_text

COLUMNS: Final = ("client_id", "user", "connected", "expires", "subscriptions", "waiting", "in_flight", "dropped")
FILTER_COLUMNS: Final = ("filter", "qos", "no_local", "retain_as_published", "identifier")
CLIENT: Final = click.argument("client_id", metavar="CLIENT")


@click.group()
def sessions() -> None:
    """What clients are owed while they are away. Needs the right to administer."""


@sessions.command("list")
@click.option("--max", "limit", type=click.IntRange(1), default=1000, show_default=True, help="How many at most.")
@hub_options
def list_sessions(limit: int, url: str, json_wanted: bool) -> None:
    """List sessions that outlive their connections, by client id."""
    with asking(url) as hub:
        documents = hub.sessions(limit)
    if json_wanted:
        for session in documents:
            click.echo(as_json(session))
    else:
        heads = [name.replace("_", " ") for name in COLUMNS]
        click.echo(table(heads, [[_shown(name, session.get(name)) for name in COLUMNS] for session in documents]))


@sessions.command("show")
@CLIENT
@hub_options
def show_session(client_id: str, url: str, json_wanted: bool) -> None:
    """Show one: its filters, what waits for it, and what it was not given."""
    with asking(url) as hub:
        session = hub.show_session(client_id)
    fields = {name: value for name, value in session.items() if name not in ("filters", "dropped")}
    fields |= {f"dropped {reason}": count for reason, count in session["dropped"].items()}
    filters = [[each.get(name) for name in FILTER_COLUMNS] for each in session["filters"]]
    show(session, pairs({name.replace("_", " "): _shown(name, value) for name, value in fields.items()})
         + ("\n\n" + table([name.replace("_", " ") for name in FILTER_COLUMNS], filters) if filters else ""),
         json_wanted)


@sessions.command("delete")
@CLIENT
@hub_options
def delete_session(client_id: str, url: str, json_wanted: bool) -> None:
    """End a session, and drop what waits for it.

    Its client, where it is connected, is disconnected.
    """
    with asking(url) as hub:
        hub.delete_session(client_id)
    show({"client_id": client_id, "state": "deleted"}, f"deleted the session of {client_id}", json_wanted)


def _shown(name: str, value: Any) -> Any:
    """Times as people write them, and drops in sum."""
    if name in ("created", "expires") and isinstance(value, int):
        return time_text(value, "milliseconds")
    if name == "dropped" and isinstance(value, dict):
        return sum(value.values())
    return "" if value is None else value
