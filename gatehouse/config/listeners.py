"""Where doors listen: texts `HOST:PORT` or tables with TLS, and what cannot be together on one machine.

    listen = ["127.0.0.1:1883", { address = "0.0.0.0:8883", tls = { cert = "hub.pem", key = "hub.key" } },
              { address = "127.0.0.1:8083", websocket = true }]
    tls    = { ... }      of the door: for every listener without one of its own; `tls = false` there keeps it plain

Hosts are names or addresses; IPv6 stands in brackets, and an empty host or `*` is every address of the machine. Files
are looked for from the folder of the configuration file on.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gatehouse.config.addresses import EVERYWHERE, split_address
from gatehouse.config.settings import ConfigPlace, Problems, Text, read_section
from gatehouse.gateways.contract import Listen
from gatehouse.gateways.tls.certificates import ends_of, validity
from gatehouse.gateways.tls.tls import TlsFault, TlsSettings, server_context

EXPIRES_SOON: Final = timedelta(days=21)


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """A table in `listen`."""

    address: str = field(metadata={"help": "`HOST:PORT`; port 0 takes a free one."})
    advertise: str | None = field(default=None, metadata={
        "help": "`HOST:PORT` that Kafka clients which came by this address are sent to, instead of the door's."})
    websocket: bool = field(default=False, metadata={
        "help": "Whether clients speak inside a WebSocket there, at any path; on doors that browsers reach (MQTT, "
                "AMQP)."})
    origins: tuple[str, ...] = field(default=(), metadata={
        "help": "Origins whose web pages may connect to such an address (`https://app.example`), or `*` for all."})


def parse_address(text: str) -> Listen:
    """`HOST:PORT` as a Listen. Raises ValueError that says what it should look like."""
    return Listen(*split_address(text))


def parse_listen(value: Any, tls: Any, door: str, place: ConfigPlace, problems: Problems) -> tuple[Listen, ...]:
    """The `listen` list of a door, and its `tls` table or None."""
    source, items = place.source, value
    if isinstance(value, Text):
        source, items = value.source, _items(value.text)
    if not isinstance(items, list) or not all(isinstance(item, (str, dict)) for item in items):
        problems.add(source, f"{door}.listen", "must be a list of texts HOST:PORT or tables { address = ... }")
        return ()
    common = None if tls is None else _parse_tls(tls, f"{door}.tls", place, problems)
    listens = []
    for number, item in enumerate(items):
        key = f"{door}.listen" if isinstance(item, str) else f"{door}.listen[{number}]"
        table = {"address": item} if isinstance(item, str) else dict(item)
        own = table.pop("tls", None)
        settings = read_section(ListenSettings, table, key, place, problems, also=("tls",))
        if settings is None:
            continue
        chosen = None if own is False else common if own is None else _parse_tls(own, f"{key}.tls", place, problems)
        try:
            address = parse_address(settings.address)
        except ValueError as error:
            problems.add(source, key, str(error))
            continue
        if settings.origins and not settings.websocket:
            problems.add(source, key, "origins are of a listener with websocket = true")
        listens.append(dataclasses.replace(address, tls=chosen, advertise=settings.advertise,
                                           websocket=settings.websocket,
                                           origins=tuple([origin.rstrip("/").lower() for origin in settings.origins])))
    return tuple(listens)


def _items(text: str) -> Any:
    """The list that a text from the environment means: JSON, or addresses separated by commas."""
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        return None


def _parse_tls(value: Any, key: str, place: ConfigPlace, problems: Problems) -> TlsSettings | None:
    """A TLS table, its files found, read and matched with each other."""
    source = place.source
    if isinstance(value, Text):
        source = value.source
        try:
            value = json.loads(value.text)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        problems.add(source, key, "must be a table: { cert = \"FILE\", key = \"FILE\" }")
        return None
    problem_count = len(problems.lines)
    settings: TlsSettings | None = read_section(TlsSettings, value, key, place, problems)
    if settings is None or len(problems.lines) > problem_count:
        return None
    ca, crl = (name and str(place.folder / name) for name in (settings.client_ca, settings.client_crl))
    settings = dataclasses.replace(settings, cert=str(place.folder / settings.cert),
                                   key=str(place.folder / settings.key), client_ca=ca, client_crl=crl)
    try:
        server_context(settings)
    except TlsFault as fault:
        problems.add(source, f"{key}.{fault.setting}", str(fault))
    return settings


def expiry_notices(door: str, listens: tuple[Listen, ...]) -> list[str]:
    """A line for each certificate that is not valid now, or not for long, and for each list that is out of date."""
    now = datetime.now(UTC)
    notices = []
    for cert in dict.fromkeys(listen.tls.cert for listen in listens if listen.tls is not None):
        try:
            begins, ends = validity(Path(cert))
        except (ValueError, OSError):
            continue    # OpenSSL takes it, so it is used; only its dates cannot be told
        if now < begins:
            notices.append(f"gateways.{door}: the certificate {cert} is valid from {begins:%Y-%m-%d %H:%M} UTC on: "
                           "until then clients refuse it")
        elif now > ends:
            notices.append(f"gateways.{door}: the certificate {cert} expired on {ends:%Y-%m-%d}: clients refuse it")
        elif now > ends - EXPIRES_SOON:
            notices.append(f"gateways.{door}: the certificate {cert} expires on {ends:%Y-%m-%d}")
    for crl in dict.fromkeys(listen.tls.client_crl for listen in listens if listen.tls is not None):
        notices += [] if crl is None else _list_notices(door, crl, now)
    return notices


def _list_notices(door: str, crl: str, now: datetime) -> list[str]:
    """Lists are made anew every few days, so that only what is over already is news."""
    try:
        ends = ends_of(Path(crl))
    except (ValueError, OSError):
        return []
    return [f"gateways.{door}: the revocation list of {issuer} in {crl} was good until {end:%Y-%m-%d %H:%M} UTC: its "
            "clients' certificates are refused" for issuer, end in ends.items() if now > end]


def find_conflicts(doors: list[tuple[str, tuple[Listen, ...], str | None]], anonymous: bool, source: str,
                   problems: Problems) -> None:
    """Ports used twice, an `advertise` nobody outside can reach, anonymous access from outside.

    `doors` holds (name, listeners, advertise where the door has such a setting).
    """
    used: list[tuple[str, Listen]] = []
    for name, listeners, advertise in doors:
        key = f"gateways.{name}"
        for listen in listeners:
            for other_name, other in used:
                if _collide(listen, other):
                    problems.add(source, f"{key}.listen", f"port {listen.port} is already taken by "
                                                          f"gateways.{other_name}.listen ({other}); choose another")
            used.append((name, listen))
        public = [listen for listen in listeners if not listen.loopback]
        if public and anonymous:
            problems.add(source, f"{key}.listen",
                         f"{public[0]} can be reached from outside while auth.allow_anonymous is true; listen on "
                         "127.0.0.1 or set auth.allow_anonymous = false")
        _check_advertised(key, listeners, advertise, source, problems)


def _check_advertised(key: str, listeners: tuple[Listen, ...], advertise: str | None, source: str,
                      problems: Problems) -> None:
    """Where clients are sent to, by listener, or by the door for those that say nothing."""
    silent = [listen for listen in listeners if listen.advertise is None]
    for number, listen in enumerate(listeners):
        if listen.advertise is None:
            continue
        if advertise is None:
            problems.add(source, f"{key}.listen[{number}].advertise", "this door sends nobody anywhere; take it out")
        else:
            _check_advertise(listen.advertise, f"{key}.listen[{number}].advertise", [listen], source, problems)
    if advertise is not None and silent:
        _check_advertise(advertise, f"{key}.advertise", silent, source, problems)
        if len({listen.tls is None for listen in silent}) > 1:
            problems.add(source, f"{key}.listen", "clients with and without TLS would be sent to the same address; "
                                                  "give each listener its own advertise")


def _check_advertise(advertise: str, key: str, listeners: list[Listen], source: str, problems: Problems) -> None:
    try:
        address = parse_address(advertise)
    except ValueError as error:
        problems.add(source, key, str(error))
        return
    public = [listen for listen in listeners if not listen.loopback]
    if address.host in EVERYWHERE:
        problems.add(source, key, f"{advertise!r} names no host that a client can connect to; give one")
    elif address.loopback and public:
        problems.add(source, key, f"{advertise} is loopback while {public[0]} is public: clients elsewhere would be "
                                  "sent to themselves; give the name they reach this hub by")


def _collide(listener: Listen, other: Listen) -> bool:
    if listener.port == 0 or listener.port != other.port:
        return False
    return listener.host == other.host or listener.host in EVERYWHERE or other.host in EVERYWHERE
