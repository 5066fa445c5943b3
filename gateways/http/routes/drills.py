"""`POST /v1/drills`: have a hub that allows it be in trouble for a while. Needs the right to administer.

    {"drill": "held_disk", "seconds": 5}    nothing reaches the disk
    {"drill": "full_memory", "seconds": 5}  all of `hub.memory_bytes` is in use
    {"drill": "lost_link", "seconds": 5}    the meeting point of links is out of reach
    {"drill": "killed_hub"}                 kill -9
"""
from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import TEXT, Answer, Body, Document, declare, object_of
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.problems import Refusal

LONGEST_S: Final = 60


class DrillInput(Document):
    """What the hub does to itself, and for how long."""

    EXAMPLE = {"drill": "held_disk", "seconds": 5}
    drill: Literal["held_disk", "full_memory", "killed_hub", "lost_link"]
    seconds: Annotated[float, Meta(ge=0.1, le=LONGEST_S, description="Of a killed hub it says nothing.")] = 5.0


@declare("hub", bodies=(Body(DrillInput),), needs=ADMINISTERING, audited="drill.begun",
         problems=("drills_not_allowed", "drill_under_way", "no_links"),
         answers=(Answer(202, "It begins.", object_of({"drill": TEXT})),))
async def post_drill(door: Door, call: Call) -> Answered:
    """Have the hub be in trouble for a while, where `hub.allow_drills` says so."""
    await administering(door, call)
    call.query()
    document = await read(door, call, DrillInput)
    await administering(door, call)
    drills = door.services.drills
    if drills is None:
        raise Refusal("drills_not_allowed", "`hub.allow_drills` does not say that this hub may be told to")
    if not drills.can(document.drill):
        raise Refusal("no_links", "the configuration of this hub has no [relay] that dials a meeting point")
    if not drills.begin(document.drill, document.seconds):
        raise Refusal("drill_under_way", "another drill is under way")
    return json_answer({"drill": document.drill}, 202)


ROUTES: Routes = (("POST", "/v1/drills", post_drill),)
