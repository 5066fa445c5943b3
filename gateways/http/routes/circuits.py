"""`/v1/circuits`: what the hub depends on that may be down, groups that may only fail, and whether they are asked.

Needs the right to administer.

    GET /v1/circuits             {"circuits": [{"id", "circuit", "by_hand", "opened", "until", "reason"}], "cursor"}
    GET /v1/circuits/{circuit}   one
    PUT /v1/circuits/{circuit}   {"circuit": "open"} asks no more, until {"circuit": "closed"}

Webhooks and groups are shown to the tenant that has them, the others to the hub's own.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Body,
    Document,
    Named,
    Parameter,
    Whole,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.page import decode_name, page_by_name
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.circuit_breaker import CircuitState

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal

ID: Final = Parameter("circuit", "The circuit's `id`.", example="webhook:orders-to-shop",
                      text={"type": "string", "pattern": "^[a-z]+:[^\\u0000]{1,255}$"})
MAX: Final = Whole("max", "Circuits in the page.", default=100, lowest=1, highest=1000)
CIRCUIT: Final = Named("Circuit", object_of({
    "id": TEXT, "circuit": one_of(*CircuitState), "by_hand": FLAG,
    "opened": {**WHOLE, "description": "How often it opened, since the hub's start."},
    "until": {**nullable(TIME_MS), "description": "Of an open one: when it is tried."},
    "reason": {**TEXT, "description": "Why the newest try failed; empty where it did not."}}))


class CircuitInput(Document):
    """Whether nothing is asked."""

    EXAMPLE = {"circuit": "closed"}
    circuit: Literal["open", "closed"]


@declare("circuits", query=(MAX, AFTER), needs=ADMINISTERING, problems=("invalid_cursor",),
         answers=(Answer(200, "A page of circuits.", object_of({"circuits": list_of(CIRCUIT), "cursor": CURSOR})),))
async def list_circuits(door: Door, call: Call) -> Answered:
    """List circuits by id."""
    tenant, query = (await administering(door, call)).tenant, call.query()
    count = MAX.read(query, door.config)
    after = decode_name(query.get("cursor", ""))
    circuits = door.services.circuits
    ids, cursor = page_by_name([circuit_id for circuit_id in circuits.ids(tenant) if circuit_id > after], count, str)
    return json_answer({"circuits": [circuits.describe(tenant, circuit_id) for circuit_id in ids], "cursor": cursor})


@declare("circuits", path=(ID,), needs=ADMINISTERING, problems=("unknown_circuit",),
         answers=(Answer(200, "The circuit.", CIRCUIT),))
async def get_circuit(door: Door, call: Call) -> Answered:
    """Show a circuit."""
    principal = await administering(door, call)
    call.query()
    return json_answer(_found(door, principal, call))


@declare("circuits", path=(ID,), bodies=(Body(CircuitInput),), needs=ADMINISTERING, audited="circuit.turned",
         problems=("unknown_circuit",), answers=(Answer(200, "It is so.", CIRCUIT),))
async def put_circuit(door: Door, call: Call) -> Answered:
    """Open a circuit, so that nothing is asked over it, or close it, so that the next try is made at once.

    One that was opened so stays open until it is closed so, or the hub ends; that of a group over a start, too.
    """
    principal = await administering(door, call)
    call.query()
    document = await read(door, call, CircuitInput)
    await administering(door, call)
    door.services.circuits.turn(principal.tenant, call.topic_name(), document.circuit == "open")
    return json_answer(_found(door, principal, call))


def _found(door: Door, principal: Principal, call: Call) -> dict[str, Any]:
    circuit_id = call.topic_name()
    document = door.services.circuits.describe(principal.tenant, circuit_id)
    if document is None:
        raise Refusal("unknown_circuit", f"there is no circuit {circuit_id[:160]!r}, or nothing is asked over it")
    return document


ROUTES: Routes = (
    ("GET", "/v1/circuits", list_circuits),
    ("GET", "/v1/circuits/{circuit}", get_circuit),
    ("PUT", "/v1/circuits/{circuit}", put_circuit),
)
