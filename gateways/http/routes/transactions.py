"""`/v1/transactions`: half messages, decisions about them, and being asked.

    POST /v1/transactions                         application/json {"group", "messages": [...], "check": {...}}, each
                                                  message with its `address`, or its `topic` and `key`; or one message
                                                  whose value is the body, with ?group= and ?address= or ?topic=&key=
    POST /v1/transactions/{id}/messages           more of them
    POST /v1/transactions/{id}/commit, rollback   200 again and again; 409 `already_decided` for the contrary
    GET  /v1/transactions, /v1/transactions/{id}  with every check and the decision
    POST /v1/transactions/{id}/check              ask a member now

`checks.py` is how members are asked. A delay of a half message counts from the commit. All of a request's messages are
held, or none.
"""
from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import ADDRESS as ADDRESS_TEXT
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    GROUP_NAME,
    JSON,
    MESSAGE_ID,
    TEXT,
    TIME_MS,
    VALUE_BODIES,
    Answer,
    Body,
    Document,
    Named,
    Need,
    Nothing,
    Parameter,
    Seconds,
    Setting,
    Whole,
    declare,
    list_of,
    object_of,
    one_of,
    shown,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.leases import MAX_HANDLE_CHARACTERS
from gatehouse.gateways.http.message_schemas import (
    ADDRESSED_MESSAGE,
    IDEMPOTENCY_KEY,
    MESSAGE_HEADERS,
    PUBLISHED_FIELDS,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.messages import PROBLEMS_OF_A_PUBLISH, check_request_headers, items_of, prepare
from gatehouse.gateways.http.transacting import (
    CHECK_BACK,
    TRANSACTION,
    Holding,
    begin_at_once,
    decide,
    decide_at_once,
    describe,
    group_name,
    half_of,
    half_of_body,
    id_of,
    place_named,
    place_of_query,
    publication_of,
    read_check_back,
    read_state,
)
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import UnknownPartition
from gatehouse.transactions.answering import unknown
from gatehouse.transactions.coordinator import Decision, Query, Transaction

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.mapping import Publication
    from gatehouse.kernel.halves.halves import Offsets

MAX_AGE_S: Final = 366 * 86_400

GROUP: Final = Parameter("group", "Whose members are asked; half messages as JSON say it in the body.", text=GROUP_NAME)
OF_GROUP: Final = Parameter("group", "Of this group alone.", example="shop", text=GROUP_NAME)
ADDRESS: Final = Parameter("address", "Where a message that is the body goes ...",
                           text=ADDRESS_TEXT)
TOPIC: Final = Parameter("topic", "... or its topic ...")
KEY: Final = Parameter("key", "... and its key in it.")
STATE: Final = Parameter("state", "`open` unless given.", text=one_of("open", "committed", "rolled_back", "expired"))
OLDER_THAN: Final = Seconds("older_than", "Begun so many seconds ago at least.", highest=MAX_AGE_S)
MAX: Final = Whole("max", "Most of them in the answer.", default=100, lowest=1, highest=Setting("max_page_messages"))

class HalvesInput(Document):
    """Half messages, each with its `address`, or its `topic` and `key`."""

    messages: Annotated[list[Any], shown(items=ADDRESSED_MESSAGE, minItems=1, maxItems=Setting("max_request_messages"))]


class TransactionInput(HalvesInput):
    """A transaction with its first half messages, and how its members are asked."""

    EXAMPLE = {"group": "shop", "messages": [{"topic": "orders", "key": "17", "value": "paid"}]}
    group: Annotated[str, shown(**GROUP_NAME)]
    check: Annotated[dict[str, Any] | UnsetType, shown(**CHECK_BACK)] = UNSET


class CommitAcks(Document):
    """What a group's members took for the transaction."""

    group: str
    receipt_handles: list[str]


class CommitOffset(Document):
    """Where a group that counts by offsets goes on in a partition."""

    group: str
    topic: str
    partition: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]


class CommitInput(Document):
    """What is settled with a commit, in the same piece."""

    acks: list[CommitAcks] = []
    offsets: list[CommitOffset] = []


HELD: Final = Named("HeldTransaction", object_of({
    "id": MESSAGE_ID, "state": one_of("open"), "group": TEXT, "messages": list_of(object_of(PUBLISHED_FIELDS))}))
DECIDED: Final = Named("Decided", object_of({
    "id": MESSAGE_ID, "state": one_of("committed", "rolled_back", "expired"), "decided": TIME_MS}))
DECIDING: Final = (Need(Operation.TRANSACT, "group"),)
PROBLEMS_OF_HALVES: Final = (*PROBLEMS_OF_A_PUBLISH, "transaction_too_large", "too_many_transactions")
PROBLEMS_OF_A_DECISION: Final = ("unknown_transaction", "already_decided", "busy")


# --- half messages ------------------------------------------------------------------------------------------------

@declare("transactions", query=(GROUP, ADDRESS, TOPIC, KEY), headers=(IDEMPOTENCY_KEY, *MESSAGE_HEADERS),
         bodies=(Body(TransactionInput), *VALUE_BODIES), pipelined=True,
         needs=(Need(Operation.PUBLISH, "address"), *DECIDING), writes=True,
         answers=(Answer(201, "Durable, and seen by nobody.", HELD),),
         problems=(*PROBLEMS_OF_HALVES, "invalid_group", "invalid_check_back"))
def begin(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Begin a transaction with its first half messages.

    They are stored and seen by nobody until its sender decides; when he is silent the members of `group` are asked. The
    transaction's id is that of its first message.
    """
    return door.with_guard(call, _begin)


def _begin(door: Door, call: Call, guard: Guard) -> Awaitable[Answered]:
    reply = begin_at_once(door, call, guard)
    return _begin_later(door, call, guard) if reply is None else reply


async def _begin_later(door: Door, call: Call, guard: Guard) -> Answered:
    query = call.query()
    publication = _publication_of(door, call)
    if door.must_wait:
        await door.ready_to_append(guard)
    if call.media == JSON:
        _refuse_destination(query)
        document = await read(door, call, TransactionInput)
        return json_answer(await hold_document(door, guard, document, publication), 201)
    place_of_query(guard, call, query, publication)          # refused before the body is read
    value = await door.bodies.read(call)
    message = half_of_body(door, call, place_of_query(guard, call, query, publication), publication, value)
    return json_answer(await _hold(door, guard, query["group"], [message], None, publication.idempotency_key), 201)


async def hold_document(door: Door, guard: Guard, document: TransactionInput, publication: Publication
                        ) -> dict[str, Any]:
    """Begin the transaction of a document; what its sender is told. Refuses what is wrong with it."""
    group = group_name(document.group)
    guard.require_group(Operation.TRANSACT, group)
    halves = _read_halves(door, guard, document, publication)
    check = None if document.check is UNSET else document.check
    return await _hold(door, guard, group, halves, check, publication.idempotency_key)


async def _hold(door: Door, guard: Guard, group: str, halves: list[HalfMessage], check_back: object,
                idempotency_key: str | None) -> dict[str, Any]:
    """Durable when it returns. Raises what `Transactions.begin` raises."""
    checks = None if check_back is None else read_check_back(
        check_back, guard.transactions.checks_for(halves[0].message[0], group))
    holding = Holding(door, guard, group, halves, checks, idempotency_key)
    return holding.begun(await door.stored(holding.begin))


@declare("transactions", query=(ADDRESS, TOPIC, KEY), headers=MESSAGE_HEADERS,
         bodies=(Body(HalvesInput),
                 *VALUE_BODIES),
         needs=(Need(Operation.PUBLISH, "address"), *DECIDING), writes=True,
         answers=(Answer(201, "Durable, and seen by nobody.", HELD),),
         problems=(*PROBLEMS_OF_HALVES, *PROBLEMS_OF_A_DECISION))
async def add(door: Door, call: Call) -> Answered:
    """Add half messages to a transaction that is open."""
    guard = await door.guard(call)
    query = call.query()
    transaction_id = id_of(call)
    publication = _publication_of(door, call)
    if publication.idempotency_key is not None:
        raise Refusal("invalid_header", "Idempotency-Key: what is added to a transaction has none")
    await door.ready_to_append(guard)
    transaction = await find_transaction(guard, transaction_id)
    if call.media == JSON:
        _refuse_destination(query)
        halves = _read_halves(door, guard, await read(door, call, HalvesInput), publication)
    else:
        place_named(guard, query, publication)               # refused before the body is read
        value = await door.bodies.read(call)
        halves = [half_of_body(door, call, place_named(guard, query, publication), publication, value)]
    holding = Holding(door, guard, transaction.group, halves)
    stored = await door.stored(partial(holding.add, transaction_id))
    return json_answer(holding.added(transaction_id, stored), 201)


def _publication_of(door: Door, call: Call) -> Publication:
    """What the request's headers say, of one message or of all in a document."""
    publication = publication_of(door, call)
    if call.media == JSON:
        check_request_headers(publication)
    return publication


def _refuse_destination(query: dict[str, str]) -> None:
    if query:
        name = next(iter(query))
        raise Refusal("invalid_parameter", f"in application/json {name!r} stands in the body", parameter=name)


def _read_halves(door: Door, guard: Guard, document: HalvesInput, publication: Publication) -> list[HalfMessage]:
    """The half messages of a document, all of them or none."""
    items = items_of(document.messages, door.config.max_request_messages)
    batch = prepare(door, guard, None, items, publication)
    for number, result in enumerate(batch.results):
        if isinstance(result, dict):
            raise Refusal(result["code"], f"message {number}: {result['detail']}", message=number)
    return [half_of(door, message, when) for message, when in zip(batch.messages, batch.whens, strict=True)]


# --- decisions ----------------------------------------------------------------------------------------------------

@declare("transactions", bodies=(Body(CommitInput, required=False),), needs=DECIDING, writes=True, pipelined=True,
         answers=(Answer(200, "All of it is durable, in one piece.", DECIDED),),
         problems=(*PROBLEMS_OF_A_DECISION, "unknown_receipt", "receipt_expired", "unknown_topic", "unknown_partition",
                   "offset_out_of_range", "assigned_group", "leased_group", "group_has_members", "invalid_group"))
def commit(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Commit: every message enters its partition at once.

    What a consumer took for them is settled in the same piece: receipt handles in `acks`, offsets of groups that count
    by offsets in `offsets`. A repeated commit is answered like the first and settles nothing more.
    """
    return door.with_guard(call, _commit)


def _commit(door: Door, call: Call, guard: Guard) -> Awaitable[Answered]:
    reply = decide_at_once(door, call, guard, Decision.COMMIT)
    return _settle_and_commit(door, call, guard) if reply is None else reply


async def _settle_and_commit(door: Door, call: Call, guard: Guard) -> Answered:
    settled = await read(door, call, CommitInput)
    receipts = [(acks.group, [handle[:MAX_HANDLE_CHARACTERS] for handle in acks.receipt_handles])
                for acks in settled.acks]
    offsets = _read_offsets(guard, settled.offsets)
    return json_answer(await decide(door, guard, id_of(call), Decision.COMMIT, receipts, offsets))


@declare("transactions", bodies=(Body(Nothing, required=False),), needs=DECIDING, writes=True,
         pipelined=True, answers=(Answer(200, "Its messages are gone.", DECIDED),), problems=PROBLEMS_OF_A_DECISION)
def rollback(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Roll back: its messages were never there."""
    return door.with_guard(call, _roll_back)


def _roll_back(door: Door, call: Call, guard: Guard) -> Awaitable[Answered]:
    reply = decide_at_once(door, call, guard, Decision.ROLLBACK)
    return _roll_back_later(door, call, guard) if reply is None else reply


async def _roll_back_later(door: Door, call: Call, guard: Guard) -> Answered:
    await read(door, call, Nothing)
    return json_answer(await decide(door, guard, id_of(call), Decision.ROLLBACK))


def _read_offsets(guard: Guard, given: list[CommitOffset]) -> Offsets:
    """Next offsets by group and partition id. Raises Denied, InvalidGroup, UnknownTopic, UnknownPartition."""
    offsets: Offsets = {}
    for entry in given:
        group_name(entry.group)
        guard.require_group(Operation.CONSUME, entry.group)
        topic = guard.topic(entry.topic, Operation.CONSUME)
        if entry.partition >= topic.partitions:
            raise UnknownPartition(f"{entry.topic} has the partitions 0 to {topic.partitions - 1}")
        partition_id = topic.partition_id(entry.partition)
        first, end = guard.bounds(partition_id)
        if entry.offset > end:
            raise Refusal("offset_out_of_range", f"the partition holds the offsets {first} to {end}, the next",
                          log_start_offset=first, high_watermark=end)
        offsets.setdefault(entry.group, {})[partition_id] = (entry.offset, b"")
    return offsets


@declare("transactions", needs=DECIDING, writes=True, problems=PROBLEMS_OF_A_DECISION,
         answers=(Answer(202, "It is asked, or will be once somebody is there.", object_of({"id": MESSAGE_ID})),))
async def check_now(door: Door, call: Call) -> Answered:
    """Have a member of the group asked now, whatever the time."""
    guard = await door.guard(call)
    call.query()
    transaction_id = id_of(call)
    await door.stored(partial(guard.transactions.check_now, transaction_id))
    return json_answer({"id": str(transaction_id)}, 202)


# --- looking ------------------------------------------------------------------------------------------------------

@declare("transactions", query=(STATE, OF_GROUP, OLDER_THAN, MAX, AFTER), needs=DECIDING,
         problems=("invalid_cursor", "invalid_group"),
         answers=(Answer(200, "Open ones oldest first, decided ones by their decision, the newest first.",
                         object_of({"transactions": list_of(TRANSACTION), "cursor": CURSOR})),))
async def list_transactions(door: Door, call: Call) -> Answered:
    """List transactions.

    Those of groups that the user may transact in. A page may be shorter than `max`, even empty, before the end.
    """
    guard = await door.guard(call)
    query = call.query()
    group = group_name(query["group"]) if "group" in query else None
    asked = Query(guard.tenant, read_state(query.get("state", "open")), group,
                  int(OLDER_THAN.read(query, door.config) * 1000), query.get("cursor", ""),
                  MAX.read(query, door.config))
    reply: Reply[tuple[list[Transaction], str | None]] = Reply()
    try:
        guard.transactions.page(asked, reply.set_result)
    except ValueError:
        raise Refusal("invalid_cursor", "this cursor was not made by this hub") from None
    transactions, cursor = await reply
    return json_answer({"transactions": [
        describe(transaction, door.services.wall_of) for transaction in transactions], "cursor": cursor})


@declare("transactions", needs=DECIDING, problems=("unknown_transaction", "busy"),
         answers=(Answer(200, "The transaction.", TRANSACTION),))
async def get_transaction(door: Door, call: Call) -> Answered:
    """Show a transaction with every check and its decision; decided ones for as long as they are remembered."""
    guard = await door.guard(call)
    call.query()
    return json_answer(describe(await find_transaction(guard, id_of(call)), door.services.wall_of))


async def find_transaction(guard: Guard, transaction_id: int) -> Transaction:
    """Raises UnknownTransaction, also where the principal may not see it."""
    reply: Reply[Transaction | None] = Reply()
    guard.transactions.show(transaction_id, reply.set_result)
    transaction = await reply
    if transaction is None:
        raise unknown(transaction_id)
    return transaction


ROUTES: Routes = (
    ("POST", "/v1/transactions", begin),
    ("GET", "/v1/transactions", list_transactions),
    ("GET", "/v1/transactions/{id}", get_transaction),
    ("POST", "/v1/transactions/{id}/messages", add),
    ("POST", "/v1/transactions/{id}/commit", commit),
    ("POST", "/v1/transactions/{id}/rollback", rollback),
    ("POST", "/v1/transactions/{id}/check", check_now),
)
