"""The commands about queues: what waits in them, and what leads there."""
from __future__ import annotations

from typing import Any

import click

from gatehouse.cli.groups import print_rows
from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import pairs, show
from gatehouse.exits import FAILED, Refused


@click.group()
def queues() -> None:
    """Queues: AMQP's, those of dead letters, your own.

    Look into them, purge, move, bind.
    """


@queues.command("list")
@hub_options
def list_queues(url: str, json_wanted: bool) -> None:
    """List every queue with its settings."""
    with asking(url) as hub:
        rows = hub.queues()
    print_rows(rows, ["name", "priorities", "max_length", "ttl_ms", "overflow"], json_wanted)


@queues.command("show")
@click.argument("name")
@hub_options
def show_queue(name: str, url: str, json_wanted: bool) -> None:
    """Show one queue: its settings, what waits in it, what leads to it."""
    with asking(url) as hub:
        queue = {**hub.queue(name), "bindings": [binding["filter"] for binding in hub.queue_bindings(name)]}
    show(queue, pairs(queue), json_wanted)


@queues.command("declare")
@click.argument("name")
@click.option("--priorities", type=int, help="How many priorities its messages may have.")
@click.option("--max-length", type=int, help="At most so many messages wait in it; 0: no limit.")
@click.option("--max-bytes", type=int, help="At most so many bytes wait in it; 0: no limit.")
@click.option("--overflow", type=click.Choice(["drop-head", "reject", "dead-letter"]),
              help="What gives way at a limit: the oldest message, the new one, or the oldest as a dead letter.")
@click.option("--ttl", "ttl_s", type=float, metavar="SECONDS", help="How long a message may wait.")
@click.option("--expires", "expires_s", type=float, metavar="SECONDS",
              help="The queue is deleted when nobody has used it for so long.")
@click.option("--max-attempts", type=int, help="After so many a message is given up; 0: never.")
@click.option("--single-active", is_flag=True, help="Only the oldest of its consumers is given anything.")
@hub_options
def declare_queue(name: str, priorities: int | None, max_length: int | None, max_bytes: int | None,
                  overflow: str | None, ttl_s: float | None, expires_s: float | None, max_attempts: int | None,
                  single_active: bool, url: str, json_wanted: bool) -> None:
    """Make a queue.

    A queue that is there must have just these settings.
    """
    given: dict[str, Any] = {
        "priorities": priorities, "max_length": max_length, "max_bytes": max_bytes, "overflow": overflow,
        "ttl_ms": None if ttl_s is None else round(ttl_s * 1000),
        "expires_ms": None if expires_s is None else round(expires_s * 1000), "max_attempts": max_attempts,
        "single_active": single_active or None}
    with asking(url) as hub:
        queue = hub.declare_queue(name, **{setting: value for setting, value in given.items() if value is not None})
    show(queue, pairs(queue), json_wanted)


@queues.command("bind")
@click.argument("name")
@click.argument("filter")
@hub_options
def bind_queue(name: str, filter: str, url: str, json_wanted: bool) -> None:
    """Let what is published to matching addresses enter a queue, too.

    FILTER is an address with + and #: 'plant/+/temp'. It counts from now on, for every door.
    """
    with asking(url) as hub:
        hub.bind_queue(name, filter)
    show({"bound": name, "filter": filter}, f"bound {name} to {filter}", json_wanted)


@queues.command("unbind")
@click.argument("name")
@click.argument("filter")
@hub_options
def unbind_queue(name: str, filter: str, url: str, json_wanted: bool) -> None:
    """Undo a binding that `bind` made. What is in the queue stays."""
    with asking(url) as hub:
        hub.unbind_queue(name, filter)
    show({"unbound": name, "filter": filter}, f"unbound {name} from {filter}", json_wanted)


@queues.command("purge")
@click.argument("name")
@hub_options
def purge_queue(name: str, url: str, json_wanted: bool) -> None:
    """Take everything out of a queue that is ready.

    What a consumer holds stays with it.
    """
    with asking(url) as hub:
        count = hub.purge_queue(name)
    show({"purged": count}, f"purged: {count}", json_wanted)


@queues.command("delete")
@click.argument("name")
@click.option("--if-empty", is_flag=True, help="Only where nothing is in it.")
@hub_options
def delete_queue(name: str, if_empty: bool, url: str, json_wanted: bool) -> None:
    """Delete a queue with everything in it, and its bindings."""
    with asking(url) as hub:
        hub.delete_queue(name, if_empty=if_empty)
    show({"deleted": name}, f"deleted {name}", json_wanted)


@queues.command("peek")
@click.argument("name")
@click.option("--max", "limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@hub_options
def peek_queue(name: str, limit: int, url: str, json_wanted: bool) -> None:
    """Look at what is in a queue, oldest first. Nothing is taken."""
    with asking(url) as hub:
        messages = hub.peek_queue(name, limit)
    print_rows(messages, ["id", "address", "leased", "timestamp", "value"], json_wanted)


@queues.command("move")
@click.argument("name")
@click.argument("to")
@click.option("--max", "limit", type=click.IntRange(min=1), help="At most so many; without: all that is ready now.")
@click.option("--address", "is_address", is_flag=True, help="TO is an address, not a queue.")
@hub_options
def move_messages(name: str, to: str, limit: int | None, is_address: bool, url: str, json_wanted: bool) -> None:
    """Move messages of a queue to the queue TO.

    With --address they are published to the address TO. They keep their ids.
    """
    with asking(url) as hub:
        count, left = hub.move_messages(name, **{"address" if is_address else "queue": to}, limit=limit)
    show({"moved": count, "left": left}, f"moved: {count}", json_wanted)
    if left:
        raise Refused(f"{len(left)} stayed; {left[0]['id']}: {left[0]['detail']}", FAILED)
