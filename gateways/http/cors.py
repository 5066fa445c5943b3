"""Which web pages may use this door (the Fetch standard's CORS protocol), decided from `cors_origins`.

Browsers name the page's origin on every request that could change something. A page of an origin that was not allowed
is refused before anything happens: without this, any page that somebody opens could publish to a hub on his own
machine, since a simple POST needs no permission beforehand.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.exchange import Response, add_vary
from gatehouse.gateways.http.problems import Refusal

EXPOSED: Final = ("Allow", "Content-Range", "Date", "ETag", "Location", "Preference-Applied", "Retry-After", "Server",
                  "WWW-Authenticate", "X-Cursor", "X-High-Watermark", "X-Log-Start-Offset", "X-Lost", "X-Next-Offset",
                  "X-Skipped")

OTHER_SITES: Final = ("cross-site", "same-site")


if TYPE_CHECKING:
    from gatehouse.gateways.http.stream import Stream


class Cors:
    """The decision and its headers."""

    def __init__(self, config: HttpConfig) -> None:
        self._any = "*" in config.cors_origins
        self._origins = frozenset(origin.rstrip("/").lower() for origin in config.cors_origins)
        self._credentials = config.cors_credentials
        self._exposed = ", ".join((*EXPOSED, *config.cors_exposed_headers))
        self._max_age_s = config.cors_max_age_s

    def check(self, origin: str, host: str) -> None:
        """Refuses an origin that is neither the door's own nor allowed. A proxy may take TLS off: only hosts count."""
        if self._allows(origin) or origin.partition("://")[2].lower() == host.lower():
            return
        raise Refusal("origin_not_allowed", f"pages of {origin[:200]!r} may not use this hub; see cors_origins")

    def check_site(self, site: str, method: str, headers: Mapping[str, str]) -> None:
        """Refuses a request where the browser names no origin, but says that another site's page asks (`Sec-Fetch-Site`
        of Fetch Metadata). A link that was clicked is let through; images, scripts and frames are not, since some calls
        that only read have effects, too."""
        if site not in OTHER_SITES or self._any:
            return
        if method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate" \
                and headers.get("sec-fetch-dest", "document") == "document":
            return
        raise Refusal("origin_not_allowed", "pages of other sites may not use this hub; see cors_origins")

    def check_act(self, headers: Mapping[str, str]) -> None:
        """Refuses a link of another site to a call that does something."""
        if headers.get("sec-fetch-site") in OTHER_SITES and not self._any:
            raise Refusal("origin_not_allowed", "this call does something: no link of another site may begin it")

    def add_headers(self, answer: Response | Stream, origin: str) -> None:
        """Let the page read the answer."""
        add_vary(answer, "Origin")
        if self._allows(origin):
            allowed = {"Access-Control-Allow-Origin": "*" if self._any else origin,
                       "Access-Control-Expose-Headers": self._exposed}
            if self._credentials:
                allowed["Access-Control-Allow-Credentials"] = "true"
            answer.headers = {**answer.headers, **allowed}

    @staticmethod
    def is_preflight(headers: Mapping[str, str]) -> bool:
        """Whether an OPTIONS request with these fields asks for permission."""
        return "origin" in headers and "access-control-request-method" in headers

    def preflight(self, methods: str, headers: Mapping[str, str]) -> Response:
        """The permission for a path with these methods."""
        asked = headers.get("access-control-request-headers", "")
        return Response(status=204, headers={
            "Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": asked,
            "Access-Control-Max-Age": str(self._max_age_s), "Vary": "Access-Control-Request-Headers"})

    def _allows(self, origin: str) -> bool:
        return self._any or origin.lower() in self._origins
