"""Where doors listen: the texts `HOST:PORT`, and what cannot be together on one machine.

Hosts are names or addresses; IPv6 stands in brackets, and an empty host or `*` is every address of the machine.
"""
from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final

from gatehouse.settings import Place, Problems, Text, read_section

EVERYWHERE: Final = {"", "*", "0.0.0.0", "::"}
MAX_LISTENERS: Final = 64    # of one door


@dataclass(frozen=True, slots=True)
class Listen:
    """One address to listen on; port 0 takes a free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host or '*'}:{self.port}"


def parse_address(text: str) -> Listen:
    """`HOST:PORT` as a Listen. Raises ValueError that says what it should look like."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, [{host}]:{port}")
    return Listen("" if host == "*" else host, int(port))


def parse_listen(value: Any, door: str, place: Place, problems: Problems) -> tuple[Listen, ...]:
    """The `listen` list of a door."""
    listeners = []
    source = value.source if isinstance(value, Text) else place.source
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        problems.add(source, f"{door}.listen", "settings per listener (TLS) are not built yet; give texts HOST:PORT")
        return ()
    texts = read_section(_ListenSetting, {"listen": value}, door, place, problems).listen
    for text in texts:
        try:
            listeners.append(parse_address(text))
        except ValueError as error:
            problems.add(source, f"{door}.listen", str(error))
    return tuple(listeners)


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
        if advertise:
            _check_advertise(advertise, key, public, source, problems)


def _check_advertise(advertise: str, key: str, public: list[Listen], source: str, problems: Problems) -> None:
    try:
        address = parse_address(advertise)
    except ValueError as error:
        problems.add(source, f"{key}.advertise", str(error))
        return
    if address.host in EVERYWHERE:
        problems.add(source, f"{key}.advertise", f"{advertise!r} names no host that a client can connect to; give one")
    elif address.loopback and public:
        problems.add(source, f"{key}.advertise",
                     f"{advertise} is loopback while {public[0]} is public: clients elsewhere would be sent to "
                     "themselves; give the name they reach this hub by")


def _collide(one: Listen, other: Listen) -> bool:
    if one.port == 0 or one.port != other.port:
        return False
    return one.host == other.host or one.host in EVERYWHERE or other.host in EVERYWHERE


@dataclass(frozen=True, slots=True)
class _ListenSetting:
    listen: tuple[str, ...] = ()
