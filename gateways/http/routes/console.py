"""`/ui/`: the console's files, as the launcher gives them. They hold nothing secret and ask for no user.

A browser asks each time whether its copy is still good: `dispatch.py` gives the files tags. What the page may do stands
in `exchange.py`: it may load, run and ask nothing but this hub's own, and may not make HTML out of text.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.http.declaring import TEXT, Answer, Parameter, declare
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import PAGE_HEADERS, Answered, Call, Response
from gatehouse.gateways.http.problems import Refusal

FILES: Final = "files"
"""What a connection is called that has asked for nothing but these."""

MEDIA: Final = ("text/html", "text/css", "text/javascript", "image/svg+xml")


@declare("hub", public=True, problems=("not_found",),
         path=(Parameter("path", "The file's name; nothing for the page.", example=""),),
         answers=tuple(Answer(200, "The file.", TEXT, media) for media in MEDIA))
async def get_file(door: Door, call: Call) -> Answered:  # decision 76
    """The console's files."""
    call.query()
    name = call.captures[0]
    file = door.services.console.get(name)
    if file is None:
        raise Refusal("not_found", f"the console has no file {name[:200]!r}")
    session = call.session
    session.page = session.page or FILES
    return Response(file.body, headers=PAGE_HEADERS, content_type=file.content_type)


@declare("hub", public=True, answers=(Answer(308, "It is there.", headers={"Location": "The console."}),))
async def to_page(door: Door, call: Call) -> Answered:
    """Where the console is.

    Without the slash the page's own names would lead elsewhere.
    """
    call.query()
    return Response(status=308, headers={"Location": "/ui/"})


@declare("hub", public=True, answers=(Answer(302, "It is there.", headers={"Location": "The console."}),))
async def to_console(door: Door, call: Call) -> Answered:
    """What a browser is shown that was given no path: the console."""
    call.query()
    return Response(status=302, headers={"Location": "/ui/"})


ROUTES: Routes = (("GET", "/", to_console), ("GET", "/ui/{path...}", get_file), ("GET", "/ui", to_page))
