"""The commands that show a hub's state: status, topics."""
from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.hub_option import asking, hub_options
from gatehouse.tables import as_json, pairs, show, table

_SAMPLE: Final = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read_samples(page: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every sample on a metrics page."""
    samples = []
    for line in page.splitlines():
        found = _SAMPLE.match(line)
        if found:
            labels = {name: json.loads(f'"{value}"') for name, value in _LABEL.findall(found["labels"] or "")}
            samples.append((found["name"], labels, float(found["value"])))
    return samples


@click.command()
@hub_options
def status(url: str, json_wanted: bool) -> int:
    """Whether the hub is ready, its doors and what went through. Exit code 1 where it is not ready."""
    with asking(url) as hub:
        told = describe(read_samples(hub.metrics()), hub.ready(), len(hub.topics()), url)
    doors = told["doors"]
    text = pairs({name.replace("_", " "): value for name, value in told.items() if name != "doors"})
    if doors:
        rows = [(name, *numbers.values()) for name, numbers in doors.items()]
        text += "\n\n" + table(["door", "connections", "accepted", "refused", "faults"], rows)
    show(told, text, json_wanted)
    return exits.OK if told["ready"] else exits.FAILED


def describe(samples: list[tuple[str, dict[str, str], float]], ready: bool, topics_count: int,
             url: str) -> dict[str, Any]:
    """The state of a hub, from its metrics."""
    plain = {name: value for name, labels, value in samples if not labels}
    info: dict[str, str] = next((labels for name, labels, _ in samples if name == "gatehouse_info"), {})
    doors: dict[str, dict[str, int]] = {}
    wanted = {"gatehouse_connections": "connections", "gatehouse_connections_accepted_total": "accepted",
              "gatehouse_connections_refused_total": "refused", "gatehouse_faults_total": "faults"}
    for name, labels, value in samples:
        if name in wanted and "door" in labels:
            doors.setdefault(labels["door"], dict.fromkeys(wanted.values(), 0))[wanted[name]] = int(value)
    return {
        "hub": info.get("hub"),
        "version": info.get("version"),
        "url": url,
        "ready": ready,
        "epoch": int(plain.get("gatehouse_epoch", 0)),
        "topics": topics_count,
        "messages_in": int(plain.get("gatehouse_messages_in_total", 0)),
        "bytes_in": int(plain.get("gatehouse_bytes_in_total", 0)),
        "congested": bool(plain.get("gatehouse_congested", 0)),
        "longest_stall_ms": round(plain.get("gatehouse_loop_stall_recent_seconds", 0) * 1000, 1),
        "memory_mib": round(plain.get("gatehouse_resident_bytes", 0) / 2**20, 1),
        "doors": doors,
    }


@click.command()
@click.argument("name", required=False)
@hub_options
def topics(name: str | None, url: str, json_wanted: bool) -> None:
    """List topics, or show the one that is named."""
    with asking(url) as hub:
        if name is not None:
            told = hub.topic(name)
            show(told, describe_topic(told), json_wanted)
            return
        found = hub.topics()
    if json_wanted:
        for topic in found:
            click.echo(as_json(topic))
        return
    heads = list(dict.fromkeys(key for topic in found for key in topic)) or ["name"]
    click.echo(table(heads, [[_shown(key, topic.get(key)) for key in heads] for topic in found]))


def describe_topic(topic: dict[str, Any]) -> str:
    """One topic for people: its settings, then a table of its queues."""
    plain = {key: _shown(key, value) for key, value in topic.items() if not isinstance(value, list)}
    text = pairs(plain)
    for rows in (value for value in topic.values() if isinstance(value, list) and value):
        if all(isinstance(row, dict) for row in rows):
            heads = list(rows[0])
            text += "\n\n" + table([head.replace("_", " ") for head in heads],
                                   [[row.get(head) for head in heads] for row in rows])
    return text


def _shown(key: str, value: Any) -> Any:
    """Times as people write them."""
    if key == "created" and isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")
    return value
