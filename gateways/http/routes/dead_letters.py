"""`/v1/dead-letters`: messages that a group gave up, with why and from where; and sending them back.

    GET  /v1/dead-letters?group=&max=&cursor=     {"messages": [...], "cursor": "17"}; a null cursor is the end
    POST /v1/dead-letters/redrive                 {"group", "ids": [...]} or {"group", "all": true}

A dead letter is the message as it was, at the place where it died, with `dead_letter`: `reason` (`attempts`,
`rejected`, `expired`, `overflow`, of a half message `unanswered`; `unknown` where somebody else put it there),
`attempts`, `at`, and in `history` the deaths before that, oldest first; of a half message also its `transaction`.
Redriven, it is behind what its partition holds now, under the same id, and every reader of the topic sees it again. The
answer counts what went (`redriven`), names up to 1,000 that did not (`left`; then it is 207), and says whether there is
`more`: then ask again.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, UnsetType

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    CURSOR,
    FLAG,
    MAX_MESSAGES,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Body,
    Document,
    Named,
    Need,
    Parameter,
    Setting,
    Whole,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
    shown,
)
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.message_schemas import MESSAGE_FIELDS, MESSAGE_OPTIONS
from gatehouse.gateways.http.openapi import PROBLEM
from gatehouse.gateways.http.problems import Refusal, document_of
from gatehouse.gateways.http.routes.waiting_messages import browse
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.errors import ExpiredReceipt, KernelError
from gatehouse.kernel.groups.dead_lettering import HEADER, SEAL, read_deaths
from gatehouse.kernel.groups.policy import ATTEMPTS, EXPIRED, OVERFLOW, REJECTED
from gatehouse.transactions.checking import UNANSWERED

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.groups.group_settings import Queue
    from gatehouse.kernel.message import Record

REDRIVEN_AT_ONCE: Final = 500
"""Dead letters that go back in one frame: a hub with a million of them goes on doing other things."""

REDRIVEN_AT_MOST: Final = 10_000
"""In one call, or a few more: it is answered in time."""

MAX_LEFT: Final = 1_000

UNKNOWN_DEATH: Final[dict[str, Any]] = {
    "reason": "unknown", "topic": "", "partition": 0, "offset": 0, "attempts": 0, "at_ms": 0, "address": ""}
"""What is shown of a message that somebody put among the dead letters."""


GROUP: Final = Parameter("group", "Whose dead letters.", required=True, example="workers")
CONTINUE: Final = Whole("cursor", "Go on where the page that gave it ended.")
_DEATH: Final = {"reason": one_of(ATTEMPTS, EXPIRED, OVERFLOW, REJECTED, UNANSWERED, UNKNOWN_DEATH["reason"]),
                 "attempts": WHOLE}
_NOWHERE: Final = {"type": "integer", "minimum": -1}
"""-1: it has been in no partition, as a half message."""

DEATH: Final = object_of({
    **_DEATH, "at": TIME_MS, "history": list_of(object_of({
        **_DEATH, "topic": TEXT, "partition": _NOWHERE, "offset": _NOWHERE, "at_ms": TIME_MS, "address": TEXT})),
    "transaction": nullable(object_of({
        "id": TEXT, "by": TEXT, "begun": TIME_MS, "checks": list_of(object_of({"at": TIME_MS, "to": TEXT}))}))})
DEAD_LETTER: Final = Named("DeadLetter", object_of(
    {**MESSAGE_FIELDS, "partition": nullable(WHOLE), "offset": nullable(WHOLE), "dead_letter": DEATH}, MESSAGE_OPTIONS))


@declare("groups", query=(GROUP, MAX_MESSAGES, CONTINUE), needs=(Need(Operation.CONSUME, "group"),),
         answers=(Answer(200, "A page, oldest first.",
                         object_of({"messages": list_of(DEAD_LETTER), "cursor": CURSOR})),),
         problems=("unknown_group", "storage_failed"))
async def get_dead_letters(door: Door, call: Call) -> Answered:
    """List a group's dead letters: messages that it gave up, with why and from where.

    Those that the user may read where they came from.
    """
    guard = await door.guard(call)
    query = call.query()
    queue = guard.groups.dead_letters(query["group"], Operation.CONSUME)
    count = MAX_MESSAGES.read(query, door.config)
    start = CONTINUE.read(query, door.config)
    messages: list[dict[str, Any]] = []
    left_bytes = door.config.max_page_bytes
    if queue is not None:
        async for records in browse(door, guard, queue, queue.first_partition_id, start):
            for record, _ in records:
                if not _may_see(guard, record):
                    continue
                if len(messages) == count or left_bytes < 0:
                    return json_answer({"messages": messages, "cursor": str(record[0])})
                messages.append(_describe(door, record))
                left_bytes -= len(record[3] or b"")
    return json_answer({"messages": messages, "cursor": None})


REDRIVEN: Final = object_of({
    "redriven": WHOLE, "left": {**list_of(PROBLEM), "description": "Those that did not go, each with its `id`."},
    "more": {**FLAG, "description": "There are more: ask again."}})


class Redrive(Document):
    """Which dead letters of a group go back: some, or all."""

    EXAMPLE = {"group": "workers", "all": True}
    RULES = {"oneOf": [{"required": ["ids"]}, {"required": ["all"]}]}
    group: str
    ids: Annotated[list[str], shown(maxItems=Setting("max_request_messages"))] | UnsetType = UNSET
    all: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.ids is UNSET) == (self.all is UNSET):
            raise ValueError("a redrive names 'ids', or says 'all': true")

    def wanted(self, max_ids: int) -> set[str] | None:
        """Their ids; None for all. Refuses `invalid_body`."""
        if self.ids is UNSET:
            return None if self.all else set()
        if len(self.ids) > max_ids:
            raise Refusal("invalid_body", f"'ids' is a list of at most {max_ids} texts")
        return set(self.ids)


@declare("groups", bodies=(Body(Redrive),), needs=(Need(Operation.ALTER, "group"),),
         writes=True, audited="dead_letters.redriven",
         answers=(Answer(200, "All of them went back.", REDRIVEN), Answer(207, "Some are left.", REDRIVEN)),
         problems=("unknown_group", "storage_failed", "kept_full"))
async def redrive(door: Door, call: Call) -> Answered:
    """Send some or all of a group's dead letters back to where they came from.

    They are behind what their partitions hold now, under the same ids, and every reader of the topic sees them again.
    """
    guard = await door.guard(call)
    call.query()
    document = await read(door, call, Redrive)
    group, wanted = document.group, document.wanted(door.config.max_request_messages)
    queue = guard.groups.dead_letters(group, Operation.ALTER)
    redriven, left, more = 0, [], False
    if queue is not None:
        gaps: list[tuple[int, int]] = []
        partition_id = queue.first_partition_id
        stop = guard.groups.end_of(queue, partition_id)
        async for records in browse(door, guard, queue, partition_id, 0, gaps):
            chosen = [record for record, _ in records
                      if record[0] < stop and (wanted is None or str(record[6]) in wanted)]
            more = redriven >= REDRIVEN_AT_MOST and bool(chosen)
            if more or wanted == set():
                break
            if wanted is not None:
                wanted.difference_update(str(record[6]) for record in chosen)
            results = await _send_back(door, guard, group, queue, chosen, gaps)
            redriven += results.count(None)
            left += [_left(str(record[6]), error) for record, error in zip(chosen, results, strict=True)
                     if error is not None]
    if not more:
        left += [_left(message_id, ExpiredReceipt("the group has no such dead letter"))
                 for message_id in sorted(wanted or ())]
    return json_answer({"redriven": redriven, "left": left[:MAX_LEFT], "more": more}, 207 if left else 200)


async def _send_back(door: Door, guard: Guard, group: str, queue: Queue, letters: list[Record],
                     gaps: list[tuple[int, int]]) -> list[KernelError | None]:
    """Durable when it returns; for each why it stays."""
    results: list[KernelError | None] = []
    for begin in range(0, len(letters), REDRIVEN_AT_ONCE):
        some = letters[begin:begin + REDRIVEN_AT_ONCE]
        results += await door.durable(partial(guard.groups.redrive, group, queue, some, gaps))
    return results


def _left(message_id: str, error: KernelError) -> dict[str, Any]:
    return document_of(error.code, str(error), {"id": message_id})


def _may_see(guard: Guard, record: Record) -> bool:
    """A group's right is not one to the messages: those are for who may read where they were."""
    deaths = read_deaths(record[4])
    address = deaths[-1]["address"] if deaths else ""
    return not address or guard.may(Operation.CONSUME, address)


def _describe(door: Door, record: Record) -> dict[str, Any]:
    """A dead letter as the message that it was."""
    headers = tuple(header for header in record[4] if header[0] != HEADER)
    deaths = read_deaths(record[4])
    last = deaths[-1] if deaths else UNKNOWN_DEATH
    shown = record_to_json((last["offset"], record[1], record[2], record[3], headers, record[5], record[6]),
                           last["topic"], last["partition"], last["address"],
                           door.door_names.get(door_of(record[5]), str(door_of(record[5]))))
    if last["offset"] < 0:                       # a half message: it has been in no partition
        shown |= {"partition": None, "offset": None}
    shown["dead_letter"] = {"reason": last["reason"], "attempts": last["attempts"], "at": last["at_ms"],
                            "history": [_unsealed(death) for death in deaths[:-1]],
                            "transaction": _transaction(last.get("transaction"))}
    return shown


def _unsealed(death: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in death.items() if name != SEAL}


def _transaction(read: Any) -> dict[str, Any] | None:
    """The transaction of a half message that nobody answered for. None for other dead letters, and for what a sender
    made up."""
    try:
        return {"id": str(read["id"]), "by": str(read["by"]), "begun": _time(read["begun_ms"]),
                "checks": [{"at": _time(check["at_ms"]), "to": str(check["to"])} for check in read["checks"]]}
    except (KeyError, TypeError):
        return None


def _time(read: Any) -> int:
    if type(read) is not int:
        raise TypeError("a time is in ms")
    return read


ROUTES: Routes = (("GET", "/v1/dead-letters", get_dead_letters), ("POST", "/v1/dead-letters/redrive", redrive))
