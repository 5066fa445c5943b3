"""Answers that stay the same while the hub runs: bytes made once, and an `ETag`, so that they are sent once."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.http.representation import matches, tag_of
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Response

REVALIDATE: Final = "no-cache"
"""A browser may keep it and asks each time whether it still holds (RFC 9111, 5.2.2.4): after an upgrade it does not."""


PAGE_HEADERS: Final = {  # decision 76
    "Cache-Control": REVALIDATE,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                               "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                               "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of this door's own pages: the pages load, run and ask nothing but this hub's own, are put in no frame, and
make no HTML out of text (trusted types)."""


class Fixed:
    """One such answer; `headers` go out with it."""

    def __init__(self, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self._body = body
        self._tag = tag_of(body)
        self._headers = {"ETag": self._tag, "Cache-Control": REVALIDATE, **(headers or {})}
        self._content_type = content_type

    def answer(self, call: Call) -> Response:
        """The bytes, or 304 to who has them."""
        if matches(call.headers.get("if-none-match", ""), self._tag):
            return Response(status=304, headers=self._headers)
        return Response(self._body, headers=self._headers, content_type=self._content_type)
