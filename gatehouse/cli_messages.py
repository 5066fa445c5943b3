"""The commands that move messages: publish, consume, tail."""
from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from gatehouse import exits
from gatehouse.client import HubClient, HubError
from gatehouse.exits import Refused
from gatehouse.hub_option import hub_options
from gatehouse.tables import as_json, cell, show
from kernel.errors import InvalidSelector
from kernel.selectors.selector import parse_selector

# A line without an end would otherwise be read into memory whole; the hub refuses larger messages anyway.
MAX_LINE_BYTES: Final = 64 << 20

FILTER_HELP: Final = ("Only messages that match: addresses like plant/+/temp or plant/#, tags like \"tags:a || b\", a "
                      "condition like \"unit = 'C' AND temp > 20\".")


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
@click.option("--retain", is_flag=True, help="Keep as the address's last value.")
@hub_options
def publish(address: str, body: str | None, file: Path | None, key: str | None, headers: tuple[str, ...],
            content_type: str | None, correlation_id: str | None, reply_to: str | None, message_id: str | None,
            expires_in: float | None, retain: bool, url: str, json_wanted: bool) -> None:
    """Publish BODY to ADDRESS; without BODY, every line of standard input as a message of its own.

    Each message is on disk before the next is sent. Example: gatehouse publish plant/line1/temp 21.5
    """
    if body is not None and file is not None:
        raise click.UsageError("give either BODY or --file")
    sent_headers = request_headers(headers, {
        "X-Message-Key": key, "Content-Type": content_type, "X-Correlation-Id": correlation_id, "X-Reply-To": reply_to,
        "X-Message-Id": message_id, "X-Expires-In": None if expires_in is None else str(expires_in),
        "X-Retain": "true" if retain else None})
    with HubClient(url) as hub:
        if body is not None or file is not None:
            value = file.read_bytes() if file is not None else (body or "").encode()
            _tell_stored(hub.publish(address, value, sent_headers), json_wanted)
            return
        count = _publish_lines(hub, address, sent_headers, json_wanted)
    if not json_wanted:
        click.echo(f"published {count} {'message' if count == 1 else 'messages'} to {address}")


def request_headers(own: Iterable[str], known: dict[str, str | None]) -> dict[str, str]:
    """The request headers of a publish. Raises UsageError for what cannot be one."""
    headers = {name: value for name, value in known.items() if value is not None}
    for pair in own:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not NAME=VALUE")
        if f"X-Header-{name}" in headers:
            raise click.UsageError(f"header {name!r} is given twice, which this command cannot send")
        headers[f"X-Header-{name}"] = value
    for name, value in headers.items():
        if not name.isascii() or not all(character.isalnum() or character in "-_." for character in name):
            raise click.UsageError(f"{name.removeprefix('X-Header-')!r} cannot be the name of an HTTP header")
        if any(ord(character) < 32 or ord(character) > 255 for character in value):
            raise click.UsageError(f"{value!r} cannot be sent in an HTTP header")
    return headers


def _publish_lines(hub: HubClient, address: str, headers: dict[str, str], json_wanted: bool) -> int:
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
                answer = hub.publish(address, line.removesuffix(b"\n").removesuffix(b"\r"), headers)
                count += 1
                if json_wanted:
                    click.echo(as_json(answer))
                if bar is not None and length is not None:
                    bar.update(len(line))
                elif bar is not None:
                    bar.length = count + 1    # nobody knows how many will come: count, with no end in sight
                    bar.update(1)
        except HubError as error:
            raise HubError(f"{error}; {count} published before it", error.code, error.status) from None
    return count


def _size_of(source: BinaryIO) -> int | None:
    """Bytes that are left in a file; None for a pipe or a terminal."""
    try:
        found = os.fstat(source.fileno())
        return found.st_size - source.tell() if stat.S_ISREG(found.st_mode) else None
    except (OSError, ValueError):
        return None


def _lines(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise HubError(f"a line is longer than {MAX_LINE_BYTES} bytes; send it with --file")
        yield line


def _tell_stored(answer: dict[str, Any], json_wanted: bool) -> None:
    told = {name: answer.get(name) for name in ("topic", "queue", "offset", "id")}
    show(answer, "stored: " + ", ".join(f"{name} {cell(value)}" for name, value in told.items()), json_wanted)


@click.command()
@click.argument("topic")
@click.option("--from", "start", default="earliest", show_default=True, metavar="START",
              help="earliest, latest, a time (RFC 3339), or an offset together with --queue.")
@click.option("--queue", type=int, help="Only this queue of the topic.")
@click.option("--max", "limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--follow", is_flag=True, help="At the end wait for more instead of stopping.")
@click.option("--filter", "pattern", metavar="FILTER", help=FILTER_HELP)
@click.option("--group", help="Read as a member of a group. Not built yet.")
@hub_options
def consume(topic: str, start: str, queue: int | None, limit: int | None, follow: bool, pattern: str | None,
            group: str | None, url: str, json_wanted: bool) -> None:
    """Print a topic's messages from START to its end, one per line."""
    _refuse_group(group)
    _read(url, topic, start, queue, limit, follow, pattern, json_wanted)


@click.command()
@click.argument("topic")
@click.option("--from", "start", default="latest", show_default=True, metavar="START",
              help="latest, earliest, or a time (RFC 3339).")
@click.option("--filter", "pattern", metavar="FILTER", help=FILTER_HELP)
@click.option("--max", "limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--group", help="Read as a member of a group. Not built yet.")
@hub_options
def tail(topic: str, start: str, pattern: str | None, limit: int | None, group: str | None, url: str,
         json_wanted: bool) -> None:
    """Print a topic's messages as they come, until Ctrl-C."""
    _refuse_group(group)
    _read(url, topic, start, None, limit, True, pattern, json_wanted)


def _refuse_group(group: str | None) -> None:
    if group is not None:
        raise Refused("--group is not built yet; read the topic without it", exits.NOT_BUILT)


def _read(url: str, topic: str, start: str, queue: int | None, limit: int | None, follow: bool, pattern: str | None,
          json_wanted: bool) -> None:
    if pattern is not None:
        _check_filter(pattern)
    query = {"from": start, "queue": "" if queue is None else str(queue), "filter": pattern or ""}
    printed = 0
    with HubClient(url) as hub:
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
    return f"{message.get('queue')}/{message.get('offset')}  {cell(message.get('address'))}  {cell(value)}"
