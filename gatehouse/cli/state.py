"""The commands that show a hub's state: status, topics."""
from __future__ import annotations

from typing import Any, Final

import click

from gatehouse import exits
from gatehouse.cli.hub_option import asking, hub_options
from gatehouse.cli.tables import as_json, pairs, show, table, time_text

DOOR_COLUMNS: Final = ("door", "connections", "messages_in", "messages_out", "refused", "faults")
MIB: Final = 1 << 20


@click.command()
@hub_options
def status(url: str, json_wanted: bool) -> int:
    """How the hub is: doors, rates, log, disk, groups. Exit code 1 where it is not ready.

    Whoever is no administrator is told less.
    """
    with asking(url) as hub:
        document = {"url": url, **hub.status()}
    show(document, describe_status(document), json_wanted)
    return exits.OK if document["ready"] else exits.FAILED


def describe_status(document: dict[str, Any]) -> str:
    """A status document for people."""
    plain = {name.replace("_", " "): document.get(name) for name in ("hub", "version", "url", "ready", "epoch")}
    plain["up"] = _duration((document["now"] - document["started"]) // 1000)
    plain["asking as"] = document["you"]["user"]
    if "doors" not in document:
        return pairs(plain)
    log, checkpoint, groups, loop = document["log"], document["checkpoint"], document["groups"], document["loop"]
    full = ", full: messages are refused" if log.get("full") else ""
    congested = ", congested" if document["pending"]["congested"] else ""
    plain |= {
        "log": f"{_mib(log['bytes'])} in {log['segments']} segments, {_mib(log['kept_bytes'])} kept beyond retention",
        "disk": f"{_mib(log['disk_free_bytes'])} free of {_mib(log['disk_bytes'])}{full}",
        **_damage(log),
        "waiting for the disk": _mib(document["pending"]["bytes"]) + congested,
        "last checkpoint": "none since the start" if checkpoint["age_ms"] is None
                           else f"{_duration(checkpoint['age_ms'] // 1000)} ago",
        "longest stall": f"{loop['stall_recent_ms']} ms lately, {loop['stall_worst_ms']} ms since the start",
        "memory": _mib(document["memory_bytes"]),
        "left undone": ", ".join(document.get("overload", {}).get("left_undone", ())) or "nothing",
        "circuits not closed": _circuits(document.get("circuits", {})),
        "topics": document["topics"],
        "groups in use": f"{groups['active']}: {groups['ready']} messages ready, {groups['leased']} leased, "
                         f"{groups['waiting']} waiting",
        "scheduled": document["scheduled"],
    }
    rows = [(*(door[name] for name in DOOR_COLUMNS), door["rates"]["messages_in"], door["rates"]["messages_out"])
            for door in document["doors"]]
    heads = [*(name.replace("_", " ") for name in DOOR_COLUMNS), "in/s", "out/s"]
    return pairs(plain) + "\n\n" + table(heads, rows)


def _damage(log: dict[str, Any]) -> dict[str, str]:
    """Nothing, as long as nothing is damaged."""
    lines = [f"{log.get(name, 0)} {text}" for name, text in (
        ("damaged_ranges", "ranges of the log cannot be read"), ("mended_headers", "headers were written anew"),
        ("set_aside_files", "in the folder `damaged`, see docs/operations.md")) if log.get(name)]
    return {"damage": ", ".join(lines)} if lines else {}


def _circuits(circuits: dict[str, Any]) -> str:
    named = ", ".join(f"{circuit['id']} ({'by hand' if circuit['by_hand'] else circuit['circuit']})"
                      for circuit in circuits.get("not_closed", ()))
    more = circuits.get("open", 0) + circuits.get("half_open", 0) - len(circuits.get("not_closed", ()))
    return (named or "none") + (f" and {more} more" if more > 0 else "")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"


def _duration(seconds: int) -> str:
    """1 d 2 h, 3 h 4 min, 5 min 6 s, 7 s."""
    for unit_s, unit, below_s, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit} {seconds % unit_s // below_s} {below}"
    return f"{seconds} s"


@click.command()
@click.argument("name", required=False)
@hub_options
def topics(name: str | None, url: str, json_wanted: bool) -> None:
    """List topics, or show the one that is named."""
    with asking(url) as hub:
        if name is not None:
            document = hub.topic(name)
            show(document, describe_topic(document), json_wanted)
            return
        documents = hub.topics()
    if json_wanted:
        for topic in documents:
            click.echo(as_json(topic))
        return
    heads = list(dict.fromkeys(key for topic in documents for key in topic)) or ["name"]
    click.echo(table(heads, [[_shown(key, topic.get(key)) for key in heads] for topic in documents]))


def describe_topic(topic: dict[str, Any]) -> str:
    """One topic for people: its settings, then a table of its partitions."""
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
        return time_text(value)
    return value
