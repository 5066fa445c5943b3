"""What configurations say of links: `[relay]` and `[[relay.links]]` of a hub; the whole file of a meeting point."""
from __future__ import annotations

import dataclasses
import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gatehouse.config.settings import ConfigPlace, Problems, read_section
from gatehouse.relay.settings import LinkSettings, MeetingSection, MetHub, MetLink, RelaySection

MEETING_SECTIONS = ("relay", "hubs", "links")


@dataclasses.dataclass(frozen=True, slots=True)
class RelayConfig:
    """`[relay]` of a hub."""

    section: RelaySection = RelaySection()
    links: tuple[LinkSettings, ...] = ()
    wanted: bool = False
    """Whether there is such a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeetingConfig:
    """A meeting point's file."""

    section: MeetingSection
    hubs: tuple[MetHub, ...]
    links: tuple[MetLink, ...]


def read_relay(tables: dict[str, Any], place: ConfigPlace, problems: Problems) -> RelayConfig:
    """Takes its table out of `tables`."""
    table = tables.pop("relay", None)
    if table is None:
        return RelayConfig()
    if not isinstance(table, dict):
        problems.add(place.source, "relay", "must be a table: [relay]")
        return RelayConfig()
    own = dict(table)
    links = read_list(LinkSettings, own.pop("links", []), "relay.links", place, problems)
    section = read_section(RelaySection, own, "relay", place, problems, also=("links",))
    if section is None:
        return RelayConfig()
    names = [link.name for link in links]
    for name in {name for name in names if names.count(name) > 1}:
        problems.add(place.source, "relay.links", f"there are two links {name!r}")
    fault = fault_of_url(section.url) if section.url else ""
    if fault:
        problems.add(place.source, "relay.url", fault)
    if section.ca is not None:
        section = dataclasses.replace(section, ca=str(place.folder / section.ca))
        if not Path(section.ca or "").is_file():
            problems.add(place.source, "relay.ca", "there is no such file")
    return RelayConfig(section, links, True)


def read_list(section: type, entries: Any, name: str, place: ConfigPlace, problems: Problems) -> tuple[Any, ...]:
    """Every entry of a list of tables."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        problems.add(place.source, name, f"must be a list of tables: [[{name}]]")
        return ()
    settings = [read_section(section, entry, f"{name}[{number}]", place, problems)
                for number, entry in enumerate(entries)]
    return tuple(entry for entry in settings if entry is not None)


def fault_of_url(url: str) -> str:
    """What is wrong with where a hub dials."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        return "must be wss://HOST[:PORT]/v1/relay"
    if parts.scheme == "ws" and not is_loopback(parts.hostname):
        return "must be wss://: without TLS only a host of this machine is dialled"
    return ""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_meeting(path: Path, environ: Mapping[str, str]) -> tuple[MeetingConfig | None, list[str]]:
    """The file of a meeting point, or what is wrong with it."""
    place, problems = ConfigPlace(str(path), path.parent, environ), Problems()
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        return None, [f"{path}: cannot read it: {error.strerror}"]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return None, [f"{path}: not valid TOML: {error}"]
    for name in tables:
        if name not in MEETING_SECTIONS:
            problems.unknown(place.source, name, name, MEETING_SECTIONS, "section")
    table = tables.get("relay", {})
    section = read_section(MeetingSection, table if isinstance(table, dict) else {}, "relay", place, problems)
    hubs = read_list(MetHub, tables.get("hubs", []), "hubs", place, problems)
    links = read_list(MetLink, tables.get("links", []), "links", place, problems)
    names = [hub.name for hub in hubs]
    for number, link in enumerate(links):
        for name in link.hubs:
            if name not in names:
                problems.unknown(place.source, f"links[{number}].hubs", name, names, "hub")
    if section is not None:
        section = _checked(section, place, problems)
    if problems.lines or section is None:
        return None, problems.lines
    return MeetingConfig(section, hubs, links), []


def _checked(section: MeetingSection, place: ConfigPlace, problems: Problems) -> MeetingSection:
    host, colon, port = section.listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        problems.add(place.source, "relay.listen", f"{section.listen!r} is not HOST:PORT")
    if (section.cert is None) != (section.key is None):
        problems.add(place.source, "relay.cert", "a certificate needs its key, and a key its certificate")
    if section.cert is None and not section.plain and not is_loopback(host.strip("[]")):
        problems.add(place.source, "relay.listen", "without `cert` and `key` only loopback is listened on; set "
                                                   "`plain = true` where something before it ends TLS")
    cert, key = (name and str(place.folder / name) for name in (section.cert, section.key))
    for file in (cert, key):
        if file is not None and not Path(file).is_file():
            problems.add(place.source, "relay.cert", f"there is no file {file}")
    spool = section.spool and str(place.folder / section.spool)
    return dataclasses.replace(section, cert=cert, key=key, spool=spool)
