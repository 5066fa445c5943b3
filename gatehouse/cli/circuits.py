"""The commands about circuits: what the hub depends on, and whether it is asked."""
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import click

from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, show, table
from gatehouse_client.door import path_of

COLUMNS: Final = ("id", "circuit", "by_hand", "opened", "until", "reason")


@click.group()
def circuits() -> None:
    """Circuits: what the hub depends on, and whether it is asked.

    Receivers of webhooks, the issuer of tokens, the catalogue's database, the meeting point of links, and groups whose
    settings say that they are paused while their members only fail. One that fails too often, or answers too slowly, is
    tried once a minute, then less often, until it is back.
    """


@circuits.command("list")
@hub_options
def list_circuits(url: str, json_wanted: bool) -> None:
    """List circuits."""
    listed: list[dict[str, Any]] = []
    with asking(url) as hub:
        query: dict[str, Any] = {}
        while True:
            page = hub.wait(hub.client.request("GET", "/v1/circuits", query=query))
            listed += page["circuits"]
            if page["cursor"] is None:
                break
            query = {"cursor": page["cursor"]}
    if json_wanted:
        for circuit in listed:
            click.echo(as_json(circuit))
    else:
        click.echo(table([name.replace("_", " ") for name in COLUMNS],
                         [[_cell(name, circuit[name]) for name in COLUMNS] for circuit in listed]))


@circuits.command("open")
@click.argument("id")
@hub_options
def open_circuit(id: str, url: str, json_wanted: bool) -> None:
    """Ask nothing over the circuit ID until it is closed, or the hub ends. A group stays paused over that, too."""
    _turn(id, "open", url, json_wanted)


@circuits.command("close")
@click.argument("id")
@hub_options
def close_circuit(id: str, url: str, json_wanted: bool) -> None:
    """Close the circuit ID: what it leads to is tried at once."""
    _turn(id, "closed", url, json_wanted)


def _turn(circuit_id: str, wanted: str, url: str, json_wanted: bool) -> None:
    with asking(url) as hub:
        circuit = hub.wait(hub.client.request("PUT", path_of("v1", "circuits", circuit_id), {"circuit": wanted}))
    show(circuit, f"{circuit_id} is {circuit['circuit']}", json_wanted)


def _cell(name: str, value: Any) -> Any:
    if value is None or value == "":
        return "-"
    return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds") if name == "until" else value
