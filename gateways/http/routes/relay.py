"""`/v1/relay`: links to other hubs, for administrators.

    GET    /v1/relay                        {"key", "url", "state", "fault", "links": [{...}]}
    GET    /v1/relay/links/{link}           one link
    POST   /v1/relay/links/{link}/invite    {"minutes": 60} → {"invitation": "ghl1...."}; shown once, used once
    POST   /v1/relay/rotate                 {"use": false} → {"key", "next_key", "waits_for"}: another key for this hub
    POST   /v1/relay/join                   {"invitation": "ghl1...."} → {"link"}
    GET    /v1/relay/links/{link}/explain?address=    what the link does with an address; nothing is sent
    POST   /v1/relay/links/{link}/pause
    POST   /v1/relay/links/{link}/resume    {"go_on": false}: also after a stop; `go_on`: behind what is lost
    POST   /v1/relay/links/{link}/rewind    {"topic", "offset": 0}: what came of a topic comes once more
    DELETE /v1/relay/links/{link}           forgets who is at the other end

Answers come once the change is durable.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.contract import LinkFault
from gatehouse.gateways.http.declaring import (
    ANYTHING,
    FLAG,
    TEXT,
    WHOLE,
    Answer,
    Body,
    D,
    Document,
    Named,
    Need,
    Nothing,
    Parameter,
    declare,
    list_of,
    map_of,
    nullable,
    object_of,
)
from gatehouse.gateways.http.door import Door, Routes, author, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Links

LINK: Final = Parameter("link", "The link's name.", example="office",
                        text={"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"})
MAX_MINUTES: Final = 10_080
MINUTES: Final = 60
MAX_OFFSET: Final = (1 << 63) - 1
NEEDS: Final = (Need(Operation.RELAY, "hub"),)
SHOWN: Final = Named("RelayLink", object_of(
    {"name": TEXT, "state": TEXT, "peer": nullable(TEXT), "hub": nullable(TEXT)},
    {"fault": TEXT, "key": TEXT, "sessions": WHOLE, "send": list_of(TEXT), "receive": list_of(TEXT),
     "lag": map_of(WHOLE), "sent": map_of(ANYTHING), "received": map_of(ANYTHING), "spool": map_of(ANYTHING),
     "bounced": map_of(WHOLE), "tampered": WHOLE}))
RELAY: Final = Named("Relay", object_of(
    {"key": {**TEXT, "description": "This hub's key, for the meeting point's file."},
     "next_key": {**TEXT, "description": "What is to follow it; empty: none."}, "url": TEXT, "state": TEXT,
     "fault": TEXT, "connections": WHOLE, "links": list_of(SHOWN)}))
OF: Final = Parameter("address", "The address, as the sending hub calls it.", example="plant/line1/temp", required=True)
EXPLAINED: Final = object_of({
    "address": TEXT, "state": TEXT, "out": object_of({"sent": FLAG, "taken_there": nullable(FLAG)}),
    "in": object_of({"received": FLAG, "address_here": nullable(TEXT)})})


class InvitationInput(Document):
    """How long an invitation is good."""

    minutes: Annotated[int, Meta(ge=1, le=MAX_MINUTES)] = MINUTES


class Rotation(Document):
    """Whether the next key is to be used."""

    use: bool = False


class Joining(Document):
    """What the other side was given."""

    invitation: Annotated[str, Meta(min_length=1, max_length=65_536)]


class LinkResumption(Document):
    """Whether a link that stopped before something that is lost goes on behind it."""

    go_on: bool = False


class LinkRewind(Document):
    """A topic of the other hub, and the offset in its partitions."""

    topic: str
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0


def _links(door: Door) -> Links:
    links = door.services.links
    if links is None:
        raise Refusal("no_links", "the configuration of this hub has no [relay]")
    return links


async def _asking(door: Door, call: Call) -> str:
    """Who asks, with the right to. Raises Denied."""
    principal = await door.principal(call)
    door.admission.require_hub(principal, Operation.RELAY)
    call.query()
    return principal.name


async def _asked(door: Door, call: Call, shape: type[D]) -> tuple[str, D]:
    """Who asks, and the document in the body, with the right to when it has come. Raises Denied."""
    await _asking(door, call)
    document = await read(door, call, shape)
    return await _asking(door, call), document


async def _act(door: Door, call: Call, name: str, action: str, link: str, **given: Any) -> dict[str, Any]:
    """Do it, and return once it is durable."""
    try:
        answer = _links(door).act(author(call, name), action, link, **given)
    except LinkFault as fault:
        raise Refusal(fault.code, str(fault)) from None
    await door.stored(door.flush)
    return answer


@declare("relay", needs=NEEDS, problems=("no_links",),
         answers=(Answer(200, "The meeting point and the links.", RELAY),))
async def get_relay(door: Door, call: Call) -> Answered:
    """Show the meeting point and every link."""
    await _asking(door, call)
    return json_answer(_links(door).describe())


@declare("relay", path=(LINK,), needs=NEEDS, problems=("no_links", "unknown_link"),
         answers=(Answer(200, "The link.", SHOWN),))
async def get_link(door: Door, call: Call) -> Answered:
    """Show a link: its state, how far it is behind, what it sent, received and refused."""
    await _asking(door, call)
    name = call.topic_name()
    for link in _links(door).describe()["links"]:
        if link["name"] == name:
            return json_answer(link)
    raise Refusal("unknown_link", f"there is no link {name[:64]!r}")


@declare("relay", path=(LINK,), query=(OF,), needs=NEEDS, problems=("no_links", "unknown_link"),
         answers=(Answer(200, "Both ways.", EXPLAINED),))
async def explain_link(door: Door, call: Call) -> Answered:
    """Say what a link does with an address. Nothing is sent.

    `taken_there` is null while the hubs have not greeted: nobody has said yet what the other takes.
    """
    principal = await door.principal(call)
    door.admission.require_hub(principal, Operation.RELAY)
    address = call.query()["address"]
    try:
        return json_answer(_links(door).act(author(call, principal.name), "explain", call.topic_name(),
                                            address=address))
    except LinkFault as fault:
        raise Refusal(fault.code, str(fault)) from None


@declare("relay", path=(LINK,), needs=NEEDS, writes=True, problems=("no_links", "unknown_link", "bad_invitation"),
         bodies=(Body(InvitationInput, required=False),),
         answers=(Answer(200, "What the other side is given.", object_of({"invitation": TEXT})),))
async def invite(door: Door, call: Call) -> Answered:
    """Make an invitation to a link that this hub's configuration has.

    Whoever has the text can join once, until it ends: give it to the other side alone.
    """
    name, document = await _asked(door, call, InvitationInput)
    return json_answer(await _act(door, call, name, "invite", call.topic_name(), lasts_ms=document.minutes * 60_000))


@declare("relay", needs=NEEDS, writes=True, problems=("no_links", "unknown_link", "bad_invitation"),
         bodies=(Body(Joining),),
         answers=(Answer(200, "The link that was joined.", object_of({"link": TEXT})),))
async def join(door: Door, call: Call) -> Answered:
    """Use the invitation of another hub: both pin each other's key."""
    name, document = await _asked(door, call, Joining)
    return json_answer(await _act(door, call, name, "join", "", invitation=document.invitation))


@declare("relay", needs=NEEDS, writes=True, problems=("no_links", "key_not_pinned"),
         bodies=(Body(Rotation, required=False),),
         answers=(Answer(200, "The keys, and links whose other hub has not pinned the next one.", object_of(
             {"key": TEXT, "next_key": TEXT, "waits_for": list_of(TEXT)})),))
async def rotate(door: Door, call: Call) -> Answered:
    """Make the key that is to follow this hub's, or with `use` be known by it.

    The other hubs pin it as soon as they are connected; the meeting point's file has to name it, too, before it is
    used.
    """
    name, document = await _asked(door, call, Rotation)
    return json_answer(await _act(door, call, name, "rotate", "", use=document.use))


@declare("relay", path=(LINK,), needs=NEEDS, writes=True, problems=("no_links", "unknown_link"),
         bodies=(Body(Nothing, required=False),),
         answers=(Answer(200, "The link.", SHOWN),))
async def pause_link(door: Door, call: Call) -> Answered:
    """Close a link until it is resumed."""
    name, _ = await _asked(door, call, Nothing)
    return json_answer(await _act(door, call, name, "pause", call.topic_name()))


@declare("relay", path=(LINK,), needs=NEEDS, writes=True, problems=("no_links", "unknown_link"),
         bodies=(Body(LinkResumption, required=False),),
         answers=(Answer(200, "The link.", SHOWN),))
async def resume_link(door: Door, call: Call) -> Answered:
    """Let a link go on, after a pause or a stop.

    One that stopped before something that is lost stops there again, unless `go_on` says to go on behind it. Both hubs
    list what that is.
    """
    name, document = await _asked(door, call, LinkResumption)
    return json_answer(await _act(door, call, name, "resume", call.topic_name(), go_on=document.go_on))


@declare("relay", path=(LINK,), needs=NEEDS, writes=True, problems=("no_links", "unknown_link"),
         bodies=(Body(LinkRewind),),
         answers=(Answer(200, "Of how many partitions.", object_of({"partitions": WHOLE})),))
async def rewind_link(door: Door, call: Call) -> Answered:
    """Have what came of a topic of the other hub once more.

    From an offset of its partitions on, or from the first that it still has. What is here already is then here twice.
    """
    name, wanted = await _asked(door, call, LinkRewind)
    return json_answer(await _act(door, call, name, "rewind", call.topic_name(), topic=wanted.topic,
                                  offset=wanted.offset))


@declare("relay", path=(LINK,), needs=NEEDS, writes=True, problems=("no_links", "unknown_link"),
         answers=(Answer(204, "It is forgotten who is at the other end."),))
async def unlink(door: Door, call: Call) -> Answered:
    """Forget who is at the other end of a link: it is closed, and takes an invitation to be made anew.

    How far what came over it has arrived is not forgotten.
    """
    name = await _asking(door, call)
    await _act(door, call, name, "unlink", call.topic_name())
    return Response(status=204)


ROUTES: Routes = (
    ("GET", "/v1/relay", get_relay), ("POST", "/v1/relay/join", join), ("POST", "/v1/relay/rotate", rotate),
    ("GET", "/v1/relay/links/{link}", get_link), ("DELETE", "/v1/relay/links/{link}", unlink),
    ("GET", "/v1/relay/links/{link}/explain", explain_link), ("POST", "/v1/relay/links/{link}/invite", invite),
    ("POST", "/v1/relay/links/{link}/rewind", rewind_link),
    ("POST", "/v1/relay/links/{link}/pause", pause_link), ("POST", "/v1/relay/links/{link}/resume", resume_link))
