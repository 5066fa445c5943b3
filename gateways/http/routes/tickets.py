"""`POST /v1/tickets`: a word for the `?ticket=` of a stream, for pages, whose streams can send no `Authorization`."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.http.declaring import NUMBER, TEXT, Answer, Named, declare, object_of
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, json_answer

TICKET: Final = Named("Ticket", object_of({
    "ticket": {**TEXT, "description": "For `?ticket=` of a stream."},
    "expires_in": {**NUMBER, "description": "Seconds in which a stream can be opened with it."}}))


@declare("read", answers=(Answer(201, "A new ticket.", TICKET),))
async def issue(door: Door, call: Call) -> Answered:
    """Get a ticket.

    It lets a browser's EventSource or WebSocket log in as whoever asks here: give it as `?ticket=`.
    """
    principal = await door.principal(call)
    call.query()
    word = door.tickets.issue(principal)
    return json_answer({"ticket": word, "expires_in": door.config.ticket_s}, 201, {"Cache-Control": "no-store"})


ROUTES: Routes = (("POST", "/v1/tickets", issue),)
