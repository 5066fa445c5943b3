"""`/openapi.json`: what this door answers, for programs, made from the declarations of its calls at first use; and
`/docs`, a page to try it, which loads nothing from elsewhere."""
from __future__ import annotations

from importlib.resources import files
from typing import Final

import orjson

from gatehouse.gateways.http.declaring import ANYTHING, JSON, TEXT, Answer, declare, object_of
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import PAGE_HEADERS, Answered, Call, Fixed
from gatehouse.gateways.http.openapi import build_document

PATH: Final = "/openapi.json"
PAGES: Final = files("gatehouse.gateways.http") / "pages"
TYPES: Final = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
                "js": "text/javascript; charset=utf-8"}


NOT_MODIFIED: Final = Answer(304, "It is the one that `If-None-Match` names.")


@declare("hub", public=True, answers=(
    Answer(200, "The document.", object_of({"openapi": TEXT, "info": ANYTHING, "paths": ANYTHING}),
           headers={"ETag": "Of this document."}),
    NOT_MODIFIED))
async def get_openapi(door: Door, call: Call) -> Answered:
    """Show this document."""
    call.query()
    anonymous = door.admission.allow_anonymous
    made_for = f"{PATH} {anonymous}"
    document = door.fixed.get(made_for)
    if document is None:
        made = build_document(door.routes, door.config, door.services.hub_name, anonymous=anonymous)
        document = door.fixed[made_for] = Fixed(orjson.dumps(made), JSON)
    return document.answer(call)


@declare("hub", public=True, answers=(Answer(200, "The page.", TEXT, "text/html"), NOT_MODIFIED))
async def get_docs(door: Door, call: Call) -> Answered:
    """A page to look calls up in and to try them."""
    call.query()
    return _page(door, "docs.html").answer(call)


@declare("hub", public=True, answers=(Answer(200, "The styles.", TEXT, "text/css"), NOT_MODIFIED))
async def get_styles(door: Door, call: Call) -> Answered:
    """The styles of the page."""
    call.query()
    return _page(door, "docs.css").answer(call)


@declare("hub", public=True, answers=(Answer(200, "The script.", TEXT, "text/javascript"), NOT_MODIFIED))
async def get_script(door: Door, call: Call) -> Answered:
    """The script of the page."""
    call.query()
    return _page(door, "docs.js").answer(call)


def _page(door: Door, name: str) -> Fixed:
    page = door.fixed.get(name)
    if page is None:
        content_type = TYPES[name.rpartition(".")[2]]
        page = door.fixed[name] = Fixed((PAGES / name).read_bytes(), content_type, PAGE_HEADERS)
    return page


ROUTES: Routes = (("GET", PATH, get_openapi), ("GET", "/docs", get_docs), ("GET", "/docs/docs.css", get_styles),
                  ("GET", "/docs/docs.js", get_script))
