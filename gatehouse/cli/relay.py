"""The commands about links to other hubs: `relay serve` is the meeting point, the others ask a hub."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table
from gatehouse.exits import Refused
from gatehouse_client.door import path_of
from gatehouse_client.sync import SyncClient

LOOK_S: Final = 0.3
COLUMNS: Final = ("name", "state", "peer", "behind", "sent", "received", "parked", "fault")


@click.group()
def relay() -> None:
    """Links to other hubs, and what they meet at."""


@relay.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), default=Path("relay.toml"), show_default=True,
              envvar="GATEHOUSE_RELAY_CONFIG", help="The meeting point's file.")
def serve(config_file: Path) -> int:
    """Run the meeting point that hubs dial, until it is told to stop.

    One line when it listens, then `gatehouse relay ready`, on standard output. SIGHUP reads the file again: who is no
    longer in it is let go at once.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from gatehouse.serve import loop_factory
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config_file))


async def _serve(config_file: Path) -> int:
    from gatehouse.config.relay import load_meeting
    from gatehouse.gateways.tls.tls import TlsFault
    from gatehouse.relay.serving import RelayServer
    config, problems = load_meeting(config_file, os.environ)
    if config is None:
        for line in problems:
            click.echo(line, err=True)
        return exits.USAGE
    try:
        server = RelayServer(config.section, config.hubs, config.links)
    except OSError as error:
        raise Refused(f"the meeting point cannot read what it keeps in {config.section.spool}: {error}",
                      exits.FAILED) from None
    try:
        address = await server.start()
    except (OSError, TlsFault) as error:
        raise Refused(f"the meeting point cannot listen on {config.section.listen}: {error}",
                      exits.CANNOT_LISTEN) from None

    def reload() -> None:
        new, wrong = load_meeting(config_file, os.environ)
        for line in wrong:
            logging.getLogger("gatehouse.relay").error("reload refused: %s", line)
        if new is not None:
            try:
                server.meeting.configure(new.hubs, new.links)
            except OSError as error:
                logging.getLogger("gatehouse.relay").error("reload refused: what it keeps cannot be read: %s", error)

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    click.echo(f"relay listens on {address}")
    click.echo("gatehouse relay ready")
    sys.stdout.flush()
    await stopping.wait()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(server.stop(), 5)
    return exits.OK


@relay.command()
@hub_options
def key(url: str, json_wanted: bool) -> None:
    """Print the key of this hub, for the meeting point's file."""
    with asking(url) as hub:
        own = _ask(hub, "GET", "/v1/relay")["key"]
    show({"key": own}, own, json_wanted)


@relay.command()
@hub_options
def status(url: str, json_wanted: bool) -> None:
    """Show every link.

    How far behind it is, what went over it, what was refused.
    """
    with asking(url) as hub:
        document = _ask(hub, "GET", "/v1/relay")
    if json_wanted:
        click.echo(as_json(document))
        return
    click.echo(pairs({"meeting point": document["url"] or "none", "connection": document["state"],
                      **({"fault": document["fault"]} if document["fault"] else {})}))
    rows = [{**link, "behind": link.get("lag", {}).get("messages"), "sent": link.get("sent", {}).get("messages"),
             "received": link.get("received", {}).get("messages"), "parked": link.get("received", {}).get("parked")}
            for link in document["links"]]
    click.echo(table(list(COLUMNS), [[row.get(name) for name in COLUMNS] for row in rows]))


@relay.command("show")
@click.argument("link")
@hub_options
def show_link(link: str, url: str, json_wanted: bool) -> None:
    """Show one link with all that is counted of it."""
    with asking(url) as hub:
        document = _ask(hub, "GET", path_of("v1", "relay", "links", link))
    flat = {name if not isinstance(value, dict) else f"{name}.{inner}": shown for name, value in document.items()
            for inner, shown in (value.items() if isinstance(value, dict) else [("", value)])}
    show(document, pairs(flat), json_wanted)


@relay.command()
@click.argument("link")
@click.argument("address")
@hub_options
def explain(link: str, address: str, url: str, json_wanted: bool) -> None:
    """Say what LINK does with ADDRESS, either way.

    Nothing is sent. ADDRESS is as the sending hub calls it.
    """
    with asking(url) as hub:
        document = hub.wait(hub.client.request("GET", path_of("v1", "relay", "links", link, "explain"),
                                               query={"address": address}))
    out, into = document["out"], document["in"]
    there = {True: "and the other hub takes it", False: "and the other hub does not take it",
             None: "and what the other hub takes is not known before the link is open"}[out["taken_there"]]
    show(document, pairs({
        "link": document["state"], "out": f"sent, {there}" if out["sent"] else "not sent: no filter of `send` matches",
        "in": f"taken, as {into['address_here']}" if into["received"] else "not taken: no filter of `receive` matches",
    }), json_wanted)


@relay.command()
@click.argument("link")
@click.option("--minutes", type=click.IntRange(1, 10_080), default=60, show_default=True,
              help="How long the invitation is good.")
@hub_options
def invite(link: str, minutes: int, url: str, json_wanted: bool) -> None:
    """Print what the hub at the other end of LINK joins with.

    It works once. Whoever has it can join: give it to the other side alone.
    """
    with asking(url) as hub:
        document = _ask(hub, "POST", path_of("v1", "relay", "links", link, "invite"), {"minutes": minutes})
    show(document, document["invitation"], json_wanted)


@relay.command()
@click.argument("invitation")
@hub_options
def join(invitation: str, url: str, json_wanted: bool) -> None:
    """Join a link with what the other side printed.

    `-` reads that from standard input.
    """
    text = sys.stdin.read() if invitation == "-" else invitation
    with asking(url) as hub:
        document = _ask(hub, "POST", "/v1/relay/join", {"invitation": text.strip()})
    show(document, f"joined {document['link']}", json_wanted)


@relay.command()
@click.option("--use", is_flag=True, help="Be known by the next key from now on.")
@hub_options
def rotate(use: bool, url: str, json_wanted: bool) -> None:
    """Have another key follow this hub's, without a break.

    Three steps: `rotate` makes it, and the other hubs pin it; the meeting point's file names it beside the old one and
    is read again (SIGHUP); `rotate --use`. Then the old one can be taken out of that file.
    """
    with asking(url) as hub:
        document = _ask(hub, "POST", "/v1/relay/rotate", {"use": use})
    show(document, pairs({"key": document["key"], **({"next key": document["next_key"]} if not use else {}),
                          "not pinned by": ", ".join(document["waits_for"]) or "none"}), json_wanted)


@relay.command()
@click.argument("link")
@hub_options
def pause(link: str, url: str, json_wanted: bool) -> None:
    """Close LINK until it is resumed."""
    with asking(url) as hub:
        document = _ask(hub, "POST", path_of("v1", "relay", "links", link, "pause"))
    show(document, f"paused {link}", json_wanted)


@relay.command()
@click.argument("link")
@click.option("--go-on", is_flag=True, help="Behind what is lost, where the link has stopped before that.")
@hub_options
def resume(link: str, go_on: bool, url: str, json_wanted: bool) -> None:
    """Let LINK go on, after a pause or a stop."""
    with asking(url) as hub:
        document = _ask(hub, "POST", path_of("v1", "relay", "links", link, "resume"), {"go_on": go_on})
    show(document, f"resumed {link}", json_wanted)


@relay.command()
@click.argument("link")
@click.option("--for", "for_s", type=click.FloatRange(1), default=3600.0, show_default=True, metavar="SECONDS",
              help="Give up after so long.")
@hub_options
def once(link: str, for_s: float, url: str, json_wanted: bool) -> None:
    """Let LINK run until all that is owed has gone out, then pause it.

    Exit code 1 where it stops before, or the time is over; it is paused then, too, unless it has stopped.
    """
    path, end_s = path_of("v1", "relay", "links", link), time.monotonic() + for_s
    with asking(url) as hub:
        document = _ask(hub, "POST", f"{path}/resume")
        while document["state"] != "stopped" and time.monotonic() < end_s \
                and (document["state"] != "open" or document["lag"]["messages"]):
            time.sleep(LOOK_S)
            document = _ask(hub, "GET", path)
        if document["state"] == "stopped":
            raise Refused(f"the link {link} has stopped: {document['fault']}", exits.FAILED)
        behind = document["lag"]["messages"] if document["state"] == "open" else None
        document = _ask(hub, "POST", f"{path}/pause")
    if behind != 0:
        raise Refused(f"the link {link} has not sent all within {for_s:g} s: {document['fault'] or 'it is behind'}",
                      exits.FAILED)
    show(document, f"{link} is empty, and paused", json_wanted)


@relay.command()
@click.argument("link")
@hub_options
def unlink(link: str, url: str, json_wanted: bool) -> None:
    """Forget who is at the other end of LINK. It is closed at once, and takes an invitation to be made anew."""
    with asking(url) as hub:
        _ask(hub, "DELETE", path_of("v1", "relay", "links", link))
    show({"unlinked": link}, f"unlinked {link}", json_wanted)


@relay.command()
@click.argument("link")
@click.argument("topic")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True,
              help="Of the other hub's partitions; what it no longer has cannot come.")
@hub_options
def rewind(link: str, topic: str, offset: int, url: str, json_wanted: bool) -> None:
    """Have what came of the other hub's TOPIC once more. What is here already is then here twice."""
    with asking(url) as hub:
        document = _ask(hub, "POST", path_of("v1", "relay", "links", link, "rewind"),
                        {"topic": topic, "offset": offset})
    show(document, f"rewound {topic}: {document['partitions']} partitions", json_wanted)


def _ask(hub: SyncClient, method: str, path: str, document: Any = None) -> dict[str, Any]:
    return hub.wait(hub.client.request(method, path, document))
