"""The commands about groups and what they gave up: groups, dead-letters."""
from __future__ import annotations

from typing import Any

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.state import describe_topic
from gatehouse.cli.tables import as_json, pairs, show, table
from gatehouse.exits import FAILED, Refused

SHOWN_SETTINGS = ("kind", "ordered", "invisible_ms", "max_attempts", "dead_letters", "selector")


@click.group()
def groups() -> None:
    """Groups: settings, progress, rewind."""


@groups.command("list")
@hub_options
def list_groups(url: str, json_wanted: bool) -> None:
    """List every group with its settings."""
    with asking(url) as hub:
        rows = hub.groups()
    print_rows(rows, ["name", *SHOWN_SETTINGS], json_wanted)


@groups.command("show")
@click.argument("name")
@hub_options
def show_group(name: str, url: str, json_wanted: bool) -> None:
    """Show one group: its settings, and how far it is.

    That is what is ready, leased and waiting in each topic; of an assigned group also its members, and what each has.
    """
    with asking(url) as hub:
        description = hub.group(name).describe()
    members = [{**member, "partitions": " ".join(map(_spell_part, member["partitions"]))}
               for member in description.get("members", ())]
    show(description, describe_topic({**description, "members": members}), json_wanted)


def _spell_part(part: dict[str, Any]) -> str:
    """A topic's partitions for people: `orders:0,1`."""
    return f"{part['topic']}:{','.join(map(str, part['partitions']))}"


@groups.command("define")
@click.argument("name")
@click.option("--ordered", is_flag=True, help="One message of a key at a time.")
@click.option("--invisible", "invisible_s", type=float, metavar="SECONDS", help="How long a taker keeps a message.")
@click.option("--max-attempts", type=int, help="After so many a message is a dead letter; 0: never.")
@click.option("--retry", "retry_s", type=float, multiple=True, metavar="SECONDS",
              help="Wait before a failed message comes again; repeated: before the next time, and the next.")
@click.option("--filter", "selector", metavar="FILTER", help="Take only messages that match.")
@click.option("--pause-after", type=int, metavar="FAILURES",
              help="Hand out nothing for a while after so many failures in a row; 0: never.")
@click.option("--pause", "pause_s", type=float, metavar="SECONDS",
              help="For so long at first; each try that fails doubles it.")
@click.option("--start", type=click.Choice(["earliest", "latest"]), help="Where a topic that is new to it begins.")
@hub_options
def define_group(name: str, ordered: bool, invisible_s: float | None, max_attempts: int | None,
                 retry_s: tuple[float, ...], selector: str | None, pause_after: int | None, pause_s: float | None,
                 start: str | None, url: str, json_wanted: bool) -> None:
    """Make a group, or give it other settings.

    What is left out is as by default.
    """
    given: dict[str, Any] = {
        "ordered": ordered or None, "invisible_ms": None if invisible_s is None else round(invisible_s * 1000),
        "max_attempts": max_attempts, "retry": [round(seconds * 1000) for seconds in retry_s] or None,
        "selector": selector, "start": start, "pausing": _pausing(pause_after, pause_s)}
    with asking(url) as hub:
        settings = hub.group(name).define(**{setting: value for setting, value in given.items() if value is not None})
    show(settings, pairs(settings), json_wanted)


def _pausing(failures: int | None, pause_s: float | None) -> dict[str, int] | None:
    given = {"failures": failures, "open_ms": None if pause_s is None else round(pause_s * 1000)}
    return {name: value for name, value in given.items() if value is not None} or None


@groups.command("rewind")
@click.argument("name")
@click.argument("topic")
@click.argument("to")
@click.option("--partition", type=int, help="Only this partition of the topic.")
@hub_options
def rewind_group(name: str, topic: str, to: str, partition: int | None, url: str, json_wanted: bool) -> None:
    """Let a group go on in a topic from another place.

    TO is earliest, latest, a time (RFC 3339), or an offset together with --partition.
    """
    with asking(url) as hub:
        rows = hub.group(name, topic).rewind(to, partition=partition)
    print_rows(rows, ["topic", "partition", "offset", "high_watermark", "lag"], json_wanted)


@groups.command("delete")
@click.argument("name")
@hub_options
def delete_group(name: str, url: str, json_wanted: bool) -> None:
    """Forget a group: settings, progress and leases. Its dead letters stay."""
    with asking(url) as hub:
        hub.group(name).delete()
    show({"deleted": name}, f"deleted {name}", json_wanted)


@click.group("dead-letters")
def dead_letters() -> None:
    """Messages that could not be delivered; send them again."""


@dead_letters.command("list")
@click.argument("group")
@click.option("--max", "limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@hub_options
def list_dead_letters(group: str, limit: int, url: str, json_wanted: bool) -> None:
    """List a group's dead letters, oldest first.

    Each with its id, why, how often it was tried, where it died, and its value.
    """
    with asking(url) as hub:
        letters = hub.group(group).dead_letters(limit)
    rows = [{**letter, **letter["dead_letter"]} for letter in letters]
    print_rows(letters if json_wanted else rows,
                ["id", "reason", "attempts", "address", "partition", "offset", "value"],
                json_wanted)


@dead_letters.command("redrive")
@click.argument("group")
@click.argument("ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
@hub_options
def redrive_dead_letters(group: str, ids: tuple[str, ...], every: bool, url: str, json_wanted: bool) -> None:
    """Send dead letters back to the partition where they died.

    Those with these IDS, or --all.
    """
    if every == bool(ids):
        raise click.UsageError("give either IDS or --all")
    with asking(url) as hub:
        count, left = hub.group(group).redrive(None if every else ids)
    show({"redriven": count, "left": left}, f"redriven: {count}", json_wanted)
    if left:
        raise Refused(f"{len(left)} stayed; {left[0]['id']}: {left[0]['detail']}", FAILED)


def print_rows(rows: list[dict[str, Any]], heads: list[str], json_wanted: bool) -> None:
    """One JSON value per line for programs, a table for people."""
    if json_wanted:
        for row in rows:
            click.echo(as_json(row))
        return
    click.echo(table([head.replace("_", " ") for head in heads], [[row.get(head) for head in heads] for row in rows]))
