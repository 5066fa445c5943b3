"""Which hosts a webhook may post to, and which addresses the hub connects to for it (server-side request forgery).

Public addresses over https are allowed. `webhook_allow` widens that, entry by entry:

    hooks.internal          this name, whatever address it has          10.1.0.0/16     these addresses
    *.svc.internal          every name below it                         192.0.2.7       this one
    http://ENTRY            the same, and plain http there, too

A URL is judged when the webhook is defined, however its address is written (`2130706433` is 127.0.0.1) and where its
name can be none of the internet's (`localhost`, `hub`, `x.internal`), and again by the address that each socket is
about to connect to. A name that pointed to a public address when it was looked at, and points to 127.0.0.1 now, gains
nothing by it. Pure.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gatehouse.gateways.http.problems import Refusal

MAX_URL_CHARS: Final = 2048
PLAIN: Final = "http://"
NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))      # RFC 6052, RFC 8215
LOOPBACK: Final = ("127.0.0.1", "::1")
LOOPBACK_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
INSIDE: Final = (".local", ".localdomain", ".internal", ".home.arpa", ".intranet", ".lan")
"""How names end that are no machine's on the internet: RFC 6762, RFC 8375, what ICANN keeps for private use, and what
routers give out."""

NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
COMPATIBLE: Final = IPv6Network("::/96")                                         # RFC 4291, 2.5.5.1

Address = IPv4Address | IPv6Address


class WebhookTarget(NamedTuple):
    """What of a URL is judged."""

    host: str                            # lower case, without brackets or a closing dot
    plain: bool                          # http


class TargetGuard:
    """`allow` as `webhook_allow` says it. ValueError where an entry cannot be read."""

    def __init__(self, allow: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._plain_names: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        self._plain_networks: list[IPv4Network | IPv6Network] = []
        for entry in allow:
            plain = entry.startswith(PLAIN)
            self._add(entry.removeprefix(PLAIN).lower().rstrip("."), plain)

    def _add(self, entry: str, plain: bool) -> None:
        try:
            network = ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            if not entry or "/" in entry or ":" in entry or "*" in entry.removeprefix("*."):
                raise ValueError(f"{entry!r} is no host, no address and no network") from None
            (self._plain_names if plain else self._names).add(entry)
            return
        (self._plain_networks if plain else self._networks).append(network)

    def check(self, url: str) -> WebhookTarget:
        """What the URL names. Refuses `forbidden_url`."""
        if len(url) > MAX_URL_CHARS or not url.isascii() or any(ord(sign) <= 0x20 or sign in "\\\x7f" for sign in url):
            raise _refusal(f"a URL is printable ASCII, up to {MAX_URL_CHARS} characters")
        try:
            parts = urlsplit(url)
            host, _ = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:
            raise _refusal("this is no URL") from None
        if parts.scheme not in ("http", "https") or not host:
            raise _refusal("a webhook's URL begins with https:// and a host")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise _refusal("a webhook's URL has no user, no password and no fragment")
        target = WebhookTarget(host, parts.scheme == "http")
        if target.plain and not self._allows_plain(host):
            raise _refusal("plain http is allowed only where webhook_allow says so; use https")
        if not self._may_be(target):
            raise _refusal(f"{host} is no public address, and webhook_allow does not name it")
        return target

    def _may_be(self, target: WebhookTarget) -> bool:
        """Whether the URL can name an address that a socket may connect to."""
        host = target.host
        literal = _literal(host)
        if literal is not None:
            return self.may_connect(target, literal)
        if host in LOOPBACK_NAMES or host.endswith(".localhost"):
            return any(self.may_connect(target, address) for address in LOOPBACK)
        if NUMBER.fullmatch(host.rpartition(".")[2]):
            return False                                 # by its last part an IPv4 address, and it is none
        inside = "." not in host or host.endswith(INSIDE)
        return not inside or bool(self._networks or self._plain_networks) or self._is_named(target)

    def _is_named(self, target: WebhookTarget) -> bool:
        return _named(target.host, self._plain_names) or (not target.plain and _named(target.host, self._names))

    def may_connect(self, target: WebhookTarget, address: str) -> bool:
        """Whether a socket may connect to this address on the way to the target."""
        try:
            parsed_address = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        networks = self._plain_networks if target.plain else [*self._networks, *self._plain_networks]
        if self._is_named(target) or any(_within(candidate, networks)
                                         for candidate in (parsed_address, *_embedded(parsed_address))):
            return True
        judged: Sequence[Address] = _embedded(parsed_address) or (parsed_address,)
        return not target.plain and all(_is_public(candidate) for candidate in judged)

    def _allows_plain(self, host: str) -> bool:
        literal = _literal(host)
        if literal is None:
            return bool(self._plain_networks) or _named(host, self._plain_names)
        return _within(ip_address(literal), self._plain_networks) or _named(host, self._plain_names)


def _literal(host: str) -> str | None:
    """The host where it is an address, however it is written."""
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return _numeric(host)


def _numeric(host: str) -> str | None:
    """The address in the forms that `inet_aton` reads and resolvers pass on: one to four decimal, octal or hexadecimal
    numbers, of which the last fills what the others leave."""
    parts = host.split(".")
    if len(parts) > 4 or not all(map(NUMBER.fullmatch, parts)):
        return None
    try:
        *firsts, last = [_number(part) for part in parts]
    except ValueError:
        return None
    if any(first > 0xFF for first in firsts) or last >= 1 << 8 * (5 - len(parts)):
        return None
    whole = sum(first << 8 * (3 - at) for at, first in enumerate(firsts)) + last
    return str(IPv4Address(whole))


def _number(text: str) -> int:
    """Raises ValueError where it is none."""
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def _named(host: str, names: set[str]) -> bool:
    """Whether the host is a name of the list, or below one."""
    if host in names:
        return True
    levels = host.split(".")
    return any("*." + ".".join(levels[at:]) in names for at in range(1, len(levels)))


def _within(address: Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _embedded(address: Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 address leads to: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, IPv4Address):
        return []
    inside = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))
    addresses: list[IPv4Address] = [inner for inner in inside if inner is not None]
    if any(address in network for network in NAT64) or address in COMPATIBLE and int(address) > 1:
        addresses.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return addresses


def _is_public(address: Address) -> bool:
    """Neither loopback, private, link-local, shared, documentation, multicast, reserved nor unspecified."""
    return address.is_global and not address.is_multicast and not address.is_reserved and not address.is_unspecified


def _refusal(detail: str) -> Refusal:
    return Refusal("forbidden_url", detail)
