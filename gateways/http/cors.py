"""Which web pages may use this door (the Fetch standard's CORS protocol), decided from `cors_origins`.

Browsers name the page's origin on every request that could change something. A page of an origin that was not allowed
is refused before anything happens: without this, any page that somebody opens could publish to a hub on his own
machine, since a simple POST needs no permission beforehand.
"""
from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiohttp import web

from gateways.http.problems import Refusal

EXPOSED: Final = ("Allow, Date, Location, Preference-Applied, Retry-After, WWW-Authenticate, X-High-Watermark, "
                  "X-Log-Start-Offset, X-Next-Offset")
PREFLIGHT_AGE_S: Final = 600
"""How long a browser may remember a preflight's answer."""


class Cors:
    """The decision and its headers."""

    def __init__(self, origins: Collection[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def check(self, origin: str, host: str) -> None:
        """Refuses an origin that is neither the door's own nor allowed. A proxy may take TLS off: only hosts count."""
        if self._allows(origin) or origin.partition("://")[2].lower() == host.lower():
            return
        raise Refusal("origin_not_allowed", f"pages of {origin[:200]!r} may not use this hub; see cors_origins")

    def add_headers(self, response: web.StreamResponse, origin: str) -> None:
        """Let the page read the answer."""
        response.headers["Vary"] = "Origin"
        if self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = "*" if self._any else origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED

    @staticmethod
    def is_preflight(request: web.Request) -> bool:
        """Whether this OPTIONS request asks for permission."""
        return "Origin" in request.headers and "Access-Control-Request-Method" in request.headers

    @staticmethod
    def preflight(methods: str, request: web.Request) -> web.Response:
        """The permission for a path with these methods."""
        asked = request.headers.get("Access-Control-Request-Headers", "")
        return web.Response(status=204, headers={
            "Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": asked,
            "Access-Control-Max-Age": str(PREFLIGHT_AGE_S), "Vary": "Access-Control-Request-Headers"})

    def _allows(self, origin: str) -> bool:
        return self._any or origin.lower() in self._origins
