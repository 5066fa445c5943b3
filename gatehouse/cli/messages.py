"""The commands that move messages: publish, consume, tail."""
from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from gatehouse.cli.hub_option import asking, hub_options, refusal
from gatehouse.cli.tables import as_json, cell, show
from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.selectors.selector import parse_selector
from gatehouse_client.errors import HubError

if TYPE_CHECKING:
    from gatehouse_client.message import Properties, Stored

# A line without an end would otherwise be read into memory whole; the hub refuses larger messages anyway.
MAX_LINE_BYTES: Final = 64 << 20

FILTER_HELP: Final = ("Only messages that match: addresses like plant/+/temp or plant/#, tags like \"tags:a || b\", a "
                      "condition like \"unit = 'C' AND temp > 20\".")

GROUP_HELP: Final = "Take the messages of this group: what is printed is acknowledged and does not come again."
POP_S: Final = 20.0                       # how long a pop of `tail --group` waits
POP_MESSAGES: Final = 32                  # printed before they are acknowledged


@click.command()
@click.argument("address")
@click.argument("body", required=False)
@click.option("--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Body from a file.")
@click.option("--key", help="Key, where it is not what the address says.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of your own; may be repeated.")
@click.option("--content-type", help="Media type of the body.")
@click.option("--correlation-id", help="Correlation id.")
@click.option("--reply-to", help="Address for answers.")
@click.option("--message-id", help="An id of your own.")
@click.option("--expires-in", type=float, metavar="SECONDS", help="Seconds after which nobody wants it.")
@click.option("--delay", type=click.FloatRange(0), metavar="SECONDS", help="Deliver it so much later.")
@click.option("--repeat", help="Deliver it again and again: 'every 10s', '0 8 * * MON; count=5'.")
@click.option("--retain", is_flag=True, help="Keep as the address's last value.")
@hub_options
def publish(address: str, body: str | None, file: Path | None, key: str | None, headers: tuple[str, ...],
            content_type: str | None, correlation_id: str | None, reply_to: str | None, message_id: str | None,
            expires_in: float | None, delay: float | None, repeat: str | None, retain: bool, url: str,
            json_wanted: bool) -> None:
    """Publish a message, or each line of standard input as one.

    BODY goes to ADDRESS; without BODY every line of standard input is a message of its own.

    Each message is on disk before the next is sent. Example: gatehouse publish plant/line1/temp 21.5
    """
    if body is not None and file is not None:
        raise click.UsageError("give either BODY or --file")
    own = user_headers(headers)
    given: dict[str, Any] = {
        "content_type": content_type, "correlation_id": correlation_id, "reply_to": reply_to, "message_id": message_id,
        "expires_in": expires_in, "delay": delay, "repeat": repeat, "retain": retain or None}
    properties: Properties = {name: value for name, value in given.items() if value is not None}    # type: ignore
    place = {"address": address} if key is None else {"topic": address, "key": key}
    with asking(url) as hub:
        def store(value: bytes) -> Stored:
            return hub.publish(value=value, headers=own, **place, **properties)

        if body is not None or file is not None:
            _tell_stored(store(file.read_bytes() if file is not None else (body or "").encode()), json_wanted)
            return
        count = _publish_lines(store, address, json_wanted)
    if not json_wanted:
        click.echo(f"published {count} {'message' if count == 1 else 'messages'} to {address}")


def user_headers(pairs: tuple[str, ...]) -> list[tuple[str, str]]:
    """Headers as they were given, NAME=VALUE. Raises UsageError."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not NAME=VALUE")
        headers.append((name, value))
    return headers


def _publish_lines(store: Callable[[bytes], Stored], address: str, json_wanted: bool) -> int:
    """Every line of standard input; how many there were. A failure says how many went before."""
    source = sys.stdin.buffer
    length = _size_of(source)
    count = 0
    show_bar = sys.stderr.isatty() and not sys.stdin.isatty()
    progress: Any = click.progressbar(length=length or 1, label=f"to {address}", file=sys.stderr,
                                      show_pos=length is None, show_percent=length is not None)
    with progress if show_bar else nullcontext() as bar:
        try:
            for line in _lines(source):
                stored = store(line.removesuffix(b"\n").removesuffix(b"\r"))
                count += 1
                if json_wanted:
                    click.echo(as_json(asdict(stored)))
                if bar is not None and length is not None:
                    bar.update(len(line))
                elif bar is not None:
                    bar.length = count + 1    # nobody knows how many will come: count, with no end in sight
                    bar.update(1)
        except HubError as error:
            raise refusal(error, f"; {count} published before it") from None
    return count


def _size_of(source: BinaryIO) -> int | None:
    """Bytes that are left in a file; None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
        return status.st_size - source.tell() if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _lines(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise HubError(f"a line is longer than {MAX_LINE_BYTES} bytes; send it with --file", "body_too_large")
        yield line


def _tell_stored(stored: Stored, json_wanted: bool) -> None:
    fields = asdict(stored)
    show(fields, "stored: " + ", ".join(f"{name} {cell(fields[name])}"
                                        for name in ("topic", "partition", "offset", "id")), json_wanted)


@click.command()
@click.argument("topic")
@click.option("--from", "start", metavar="START",
              help="earliest (the default), latest, a time (RFC 3339), or an offset together with --partition.")
@click.option("--partition", type=int, help="Only this partition of the topic.")
@click.option("--max", "limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--follow", is_flag=True, help="At the end wait for more instead of stopping.")
@click.option("--filter", "pattern", metavar="FILTER", help=FILTER_HELP)
@click.option("--group", help=GROUP_HELP)
@hub_options
def consume(topic: str, start: str | None, partition: int | None, limit: int | None, follow: bool, pattern: str | None,
            group: str | None, url: str, json_wanted: bool) -> None:
    """Print a topic's messages from START to its end, one per line."""
    if group is not None:
        _take(url, topic, group, limit, follow, bool(start or pattern or partition is not None), json_wanted)
    else:
        _read(url, topic, start or "earliest", partition, limit, follow, pattern, json_wanted)


@click.command()
@click.argument("topic")
@click.option("--from", "start", metavar="START", help="latest (the default), earliest, or a time (RFC 3339).")
@click.option("--filter", "pattern", metavar="FILTER", help=FILTER_HELP)
@click.option("--max", "limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--group", help=GROUP_HELP)
@hub_options
def tail(topic: str, start: str | None, pattern: str | None, limit: int | None, group: str | None, url: str,
         json_wanted: bool) -> None:
    """Print a topic's messages as they come, until Ctrl-C."""
    if group is not None:
        _take(url, topic, group, limit, True, bool(start or pattern), json_wanted)
    else:
        _read(url, topic, start or "latest", None, limit, True, pattern, json_wanted)


def _take(url: str, topic: str, group: str, limit: int | None, follow: bool, placed: bool, json_wanted: bool) -> None:
    """Print what a group has left, or what comes; every message is acknowledged once it is printed."""
    if placed:
        raise click.UsageError("a group keeps its own place and filter: leave out --from, --partition and --filter, "
                               "or see `gatehouse groups`")
    left = limit
    with asking(url) as hub:
        taker = hub.group(group, topic)
        while left is None or left > 0:
            messages = taker.pop_documents(min(POP_MESSAGES, left or POP_MESSAGES), wait_s=POP_S if follow else 0.0)
            if not messages and not follow:
                return
            for message in messages:
                click.echo(as_json(message) if json_wanted else line_of(message))
            sys.stdout.flush()
            if messages:
                taker.ack([message["receipt_handle"] for message in messages])
            left = None if left is None else left - len(messages)


def _read(url: str, topic: str, start: str, partition: int | None, limit: int | None, follow: bool, pattern: str | None,
          json_wanted: bool) -> None:
    if pattern is not None:
        _check_filter(pattern)
    query = {"from": start, "partition": "" if partition is None else str(partition), "filter": pattern or ""}
    printed = 0
    with asking(url) as hub:
        for page in hub.pages(topic, query, follow):
            for message in page:
                click.echo(as_json(message) if json_wanted else line_of(message))
                printed += 1
                if printed == limit:
                    return
            sys.stdout.flush()


def _check_filter(pattern: str) -> None:
    """A filter that cannot be read is refused before anybody is asked."""
    try:
        parse_selector(pattern)
    except InvalidSelector as error:
        raise click.UsageError(f"{pattern!r} is no filter: {error}") from None


def line_of(message: dict[str, Any]) -> str:
    """One message for people: where it stands, its address, its value."""
    value = message.get("value")
    if value is None and message.get("value_base64") is not None:
        value = f"(base64) {message['value_base64']}"
    return f"{message.get('partition')}/{message.get('offset')}  {cell(message.get('address'))}  {cell(value)}"
