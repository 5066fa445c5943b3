"""The commands about messages that wait for their time."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table, time_text

COLUMNS: Final = ("id", "due", "address", "times", "repeat", "value")
TIMES: Final = frozenset(("due", "accepted", "at", "timestamp"))
"""Fields in milliseconds since 1970."""


@click.group()
def scheduled() -> None:
    """Messages that wait for their time."""


@scheduled.command("list")
@click.option("--max", "limit", type=click.IntRange(1), default=100, show_default=True, help="How many at most.")
@hub_options
def list_scheduled(limit: int, url: str, json_wanted: bool) -> None:
    """List what waits, what falls due next first."""
    with asking(url) as hub:
        messages = hub.scheduled(limit)
    if json_wanted:
        for message in messages:
            click.echo(as_json(message))
    else:
        click.echo(table(COLUMNS, [[_shown(name, message.get(name)) for name in COLUMNS] for message in messages]))


@scheduled.command("show")
@click.argument("message_id", metavar="ID")
@hub_options
def show_scheduled(message_id: str, url: str, json_wanted: bool) -> None:
    """Show one, or what became of it within the last day."""
    with asking(url) as hub:
        message = hub.show_scheduled(message_id)
    show(message, pairs({name: _shown(name, value) for name, value in message.items()}), json_wanted)


@scheduled.command("recall")
@click.argument("message_id", metavar="ID")
@hub_options
def recall_scheduled(message_id: str, url: str, json_wanted: bool) -> None:
    """Take one back: it, and what it would repeat, is not delivered."""
    with asking(url) as hub:
        hub.recall(message_id)
    show({"id": message_id, "state": "recalled"}, f"recalled {message_id}", json_wanted)


def _shown(name: str, value: Any) -> Any:
    """Times as people write them."""
    if name in TIMES and isinstance(value, int):
        return time_text(value, "milliseconds")
    return value
