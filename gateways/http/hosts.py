"""Which host a request may ask for (RFC 9110, 7.2). This keeps a web page from speaking to a hub that lets everybody
in. Pure.

A page's own name can be led to 127.0.0.1 (DNS rebinding). To the browser the hub is then the page's own server: it
sends no foreign `Origin`, and lets the page read every answer. Only the name in `Host` is still the page's. So while
anonymous access is allowed, which only loopback may, and wherever `allowed_hosts` names some, a request must ask for an
address (no name leads there), a name without a dot (nobody can buy one: `localhost`, a container's), this machine's own
name, or one of those. Others are answered 421 before anything happens.
"""
from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from gatehouse.gateways.http.problems import Refusal

ANY: Final = "*"
LOCALHOST: Final = "localhost"
HOST: Final = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
"""`uri-host [ ":" port ]` (RFC 3986, 3.2.2), with room for an IPv6 zone."""

SINGLE_LABEL: Final = re.compile(r"[a-z_][a-z0-9_-]*")
SEEN_MAX: Final = 256
"""Texts of `Host` that are remembered as good: ports make several of one name."""


class Hosts:  # decision 101
    """The decision. `own_names` are this machine's."""

    def __init__(self, allowed: Iterable[str], own_names: Iterable[str]) -> None:
        named = frozenset(map(_plain, allowed))
        self._any = ANY in named
        self._always = bool(named)
        self._names = named | {_plain(name) for name in own_names if name}
        self._admitted: set[str] = set()
        self._for_anonymous = False          # what was so when they were looked at

    def admit(self, host: str, anonymous_allowed: bool) -> None:
        """Refuses `malformed_request` where it can be no `Host` at all, and what `check` refuses."""
        if anonymous_allowed is not self._for_anonymous or len(self._admitted) >= SEEN_MAX:
            self._admitted.clear()
            self._for_anonymous = anonymous_allowed
        elif host in self._admitted:
            return
        if not is_host(host):
            raise Refusal("malformed_request", "Host is no name and port", headers={"Connection": "close"})
        self.check(host, anonymous_allowed)
        self._admitted.add(host)

    def check(self, host: str | None, anonymous_allowed: bool) -> None:
        """Refuses `host_not_allowed`. `host` is the header as it came; none at all is no browser's."""
        if not self.allows(host, anonymous_allowed):
            raise Refusal("host_not_allowed", f"this hub is not asked by the name {(host or '')[:200]!r}; ask for its "
                                              "address, or name it in gateways.http.allowed_hosts")

    def allows(self, host: str | None, anonymous_allowed: bool) -> bool:
        """Whether it may be asked so."""
        return not host or self._any or not (anonymous_allowed or self._always) or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        name = name_of(host)
        return (name in self._names or SINGLE_LABEL.fullmatch(name) is not None
                or name.endswith("." + LOCALHOST) or _is_ip_address(name))               # RFC 6761, 6.3


def is_host(text: str) -> bool:
    """Whether it can be a `Host` at all; what cannot is no request (RFC 9112, 3.2)."""
    return HOST.fullmatch(text) is not None


def name_of(host: str) -> str:
    """The name in `NAME:PORT`, as it is compared; empty where it is none (RFC 9110, 7.2)."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or _is_port(port)) and ":" in name else ""
    name, colon, port = host.partition(":")
    return _plain(name) if not colon or _is_port(colon + port) else ""


def authority_of(target: str) -> str | None:
    """The host of a request target in absolute form, which counts instead of `Host` (RFC 9112, 3.2.2)."""
    scheme, separator, rest = target.partition("://")
    return rest.partition("/")[0].partition("?")[0] if separator and scheme.isalpha() else None


def _plain(name: str) -> str:
    """Names are alike whatever their case, and with the root's dot behind them."""
    return name.strip().lower().removesuffix(".")


def _is_port(text: str) -> bool:
    return text.startswith(":") and text.isascii() and (text == ":" or text[1:].isdigit())


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
