"""The commands about transactions: half messages that wait for their sender, and what became of them."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table, time_text

COLUMNS: Final = ("id", "state", "group", "begun", "messages", "checks", "next", "decided", "decided_by", "address")
TIMES: Final = frozenset(("begun", "next", "decided"))
"""Fields in milliseconds since 1970."""

STATES: Final = ("open", "committed", "rolled_back", "expired")
ID: Final = click.argument("transaction_id", metavar="ID")


@click.group()
def transactions() -> None:
    """Half messages that wait for their sender."""


@transactions.command("list")
@click.option("--state", type=click.Choice(STATES), default="open", show_default=True,
              help="What has become of them.")
@click.option("--group", default="", help="Of this group alone.")
@click.option("--older-than", "older_than_s", type=click.FloatRange(0), default=0.0, metavar="SECONDS",
              help="Begun so long ago at least.")
@click.option("--max", "limit", type=click.IntRange(1), default=100, show_default=True, help="How many at most.")
@hub_options
def list_transactions(state: str, group: str, older_than_s: float, limit: int, url: str, json_wanted: bool) -> None:
    """List transactions of a state.

    Open ones oldest first, others newest decision first.
    """
    with asking(url) as hub:
        documents = hub.transactions(state=state, group=group, older_than_s=older_than_s, limit=limit)
    if json_wanted:
        for transaction in documents:
            click.echo(as_json(transaction))
    else:
        click.echo(table(COLUMNS, [[_shown(name, transaction.get(name)) for name in COLUMNS]
                                   for transaction in documents]))


@transactions.command("show")
@ID
@hub_options
def show_transaction(transaction_id: str, url: str, json_wanted: bool) -> None:
    """Show one with every check and its decision."""
    with asking(url) as hub:
        transaction = hub.show_transaction(transaction_id)
    lines = {name: _shown(name, value) for name, value in transaction.items() if name != "checks"}
    checks = [[_time(check["at"]), check["to"] or "(nobody was there)"] for check in transaction["checks"]]
    show(transaction, pairs(lines) + ("\n\n" + table(("asked", "who"), checks) if checks else ""), json_wanted)


@transactions.command("commit")
@ID
@hub_options
def commit_transaction(transaction_id: str, url: str, json_wanted: bool) -> None:
    """Decide by hand: its messages enter their partitions."""
    _decide(transaction_id, "commit", url, json_wanted)


@transactions.command("rollback")
@ID
@hub_options
def roll_back_transaction(transaction_id: str, url: str, json_wanted: bool) -> None:
    """Decide by hand: its messages were never there."""
    _decide(transaction_id, "rollback", url, json_wanted)


@transactions.command("check")
@ID
@hub_options
def check_transaction(transaction_id: str, url: str, json_wanted: bool) -> None:
    """Have a member of its group asked now, whatever the time."""
    with asking(url) as hub:
        hub.check_transaction(transaction_id)
        transaction = hub.show_transaction(transaction_id)
    asked = transaction["checks"][-1]["to"]
    show({"id": transaction_id, "to": asked},
         f"asked {asked} about {transaction_id}" if asked else
         f"nobody of the group {transaction['group']} is there to be asked about {transaction_id}: "
         "the next who joins it is",
         json_wanted)


def _decide(transaction_id: str, decision: str, url: str, json_wanted: bool) -> None:
    with asking(url) as hub:
        decided = hub.decide_transaction(transaction_id, decision)
    show(decided, f"{decided['state']} {transaction_id} at {_time(decided['decided'])}", json_wanted)


def _shown(name: str, value: Any) -> Any:
    if name in TIMES and isinstance(value, int):
        return _time(value)
    return len(value) if name == "checks" else value


def _time(time_ms: int) -> str:
    """A time in ms since 1970, as people write it."""
    return time_text(time_ms, "milliseconds")
