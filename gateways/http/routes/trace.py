"""`/v1/trace`: the journey of a message, and messages by what is known of them.

    GET /v1/trace/{id}                                  one message: what happened to it, and where it stands
    GET /v1/trace/{id}/why?consumer=C&user=U            why it did not arrive at a group, or a queue (`$queue/NAME`)
    GET /v1/trace?key=K | address=A | trace_id=T | correlation_id=C | topic=T&partition=P&offset=O | origin=HUB/ID
                  &from=TIME&to=TIME&max=               the newest messages that were recorded so, newest first

    GET /v1/trace/events?user=U | client_id=C | address=A       what was told of clients: publishes that were refused,
                                                                connections, subscriptions, and their ends

    {"id": "7", "address": "orders/7", "topic": "orders", "partition": 0, "offset": 6, "trace_id": "0af7...",
     "origin": "2c1e.../7", "followed": "from its first error on",
     "steps": [{"at": ms, "what": "stored", "recorded": false, "door": "mqtt", ...},
               {"at": ms, "what": "released", "group": "billing", "attempt": 1, "after": 12, ...}],
     "stands": [{"group": "billing", "kind": "leased", "state": "settled"}]}

A step that says `"recorded": false` was read from the message itself, and from its frame, which says who published it
(`"publisher": "not recorded"` where it does not). `after` is how many milliseconds lie between a step and the one
before. `left_out` counts errors before a step that were not recorded. By `origin` other hubs know the message. Payloads
stand in no journey; users, client ids and peers are shown to administrators, and to a user his own.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    FLAG,
    MESSAGE_ID,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Named,
    Need,
    Parameter,
    Whole,
    declare,
    list_of,
    nullable,
    object_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import door_of
from gatehouse.gateways.properties.envelope import Kind as PropertyKind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.journeys.why import NOTHING_THERE, Reason
from gatehouse.kernel.message import RELAY, SHOWN_ORIGIN
from gatehouse.tracing.context import HEADER, read
from gatehouse.tracing.events import BEGINNINGS, MAX_TEXT_BYTES, NAMING, WITH_ADDRESS, Event, Kind
from gatehouse.transactions.states import State

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.kernel.errors import StorageFailed
    from gatehouse.kernel.journeys.origins import Came
    from gatehouse.kernel.message import Origin, Record
    from gatehouse.kernel.scheduling.queries import Scheduled
    from gatehouse.transactions.records import Transaction

MAX_ID: Final = (1 << 63) - 1
QUEUE_PREFIX: Final = "$queue/"
TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
IDENTITY: Final = re.compile(r"[0-9a-f]{32}/[0-9]{1,19}")
LOOKED_AT: Final = 1_000             # events of one look-up
CUT_WITHIN: Final = 3                # bytes of a character that was cut off

WORDS: Final = {kind: kind.name.lower().replace("_", " ") for kind in Kind}
"""What a step is called."""

FROM_START, FROM_ERROR, NOT_AT_ALL = "from the start", "from its first error on", "not recorded"

STEP: Final = object_of({"at": TIME_MS, "what": TEXT, "recorded": FLAG, "after": nullable(WHOLE)}, {
    "door": TEXT, "user": TEXT, "client_id": TEXT, "peer": TEXT, "group": TEXT, "queue": TEXT, "topic": TEXT,
    "partition": WHOLE, "offset": WHOLE, "attempt": WHOLE, "until": TIME_MS, "reason": TEXT, "address": TEXT,
    "left_out": WHOLE, "number": WHOLE, "publisher": TEXT, "link": TEXT,
    "hub": TEXT, "origin": TEXT, "transaction": TEXT, "asked": TEXT})
STANDS: Final = object_of({"group": TEXT, "kind": TEXT, "state": TEXT}, {
    "attempts": WHOLE, "until": TIME_MS, "user": TEXT, "peer": TEXT})
JOURNEY: Final = Named("Journey", object_of({
    "id": MESSAGE_ID, "address": nullable(TEXT), "topic": nullable(TEXT), "queue": nullable(TEXT),
    "partition": nullable(WHOLE), "offset": nullable(WHOLE), "trace_id": nullable(TEXT), "origin": TEXT,
    "followed": TEXT,
    "steps": list_of(STEP), "stands": list_of(STANDS)}))
FOUND: Final = Named("FoundMessage", object_of({
    "id": MESSAGE_ID, "at": TIME_MS, "what": TEXT, "address": nullable(TEXT), "trace_id": nullable(TEXT)}))

TOLD: Final = Named("ClientEvent", object_of({"at": TIME_MS, "what": TEXT}, {
    "address": TEXT, "reason": TEXT, "door": TEXT, "user": TEXT, "client_id": TEXT, "peer": TEXT}))

OF_USER: Final = Parameter("user", "What was told of this user.", example="edge")
CLIENT: Final = Parameter("client_id", "What was told of this client id.")
TOLD_WAYS: Final = {"user": "user", "client_id": "client", "address": "address"}

KEY: Final = Parameter("key", "Messages with this key.", example="line1/temp")
ADDRESS: Final = Parameter("address", "Messages to this address.", example="plant/line1/temp")
TRACE: Final = Parameter("trace_id", "Messages of this trace: 32 hex digits.")
CORRELATION: Final = Parameter("correlation_id", "Messages with this correlation id.")
ORIGIN: Final = Parameter("origin", "The message that came over a link, by `HUB/ID`: the hub that stored it first, and "
                                    "its id there; followed or not, among the newest or from `from` on.")
TOPIC: Final = Parameter("topic", "With `partition` and `offset`: the message there, followed or not.")
PARTITION: Final = Whole("partition", "Its partition.", highest=1_000_000)
OFFSET: Final = Whole("offset", "Its offset.")
FROM: Final = Parameter("from", "Not before this time: RFC 3339, or milliseconds since 1970.")
TO: Final = Parameter("to", "Not after this time.")
MAX: Final = Whole("max", "Messages at most.", default=100, lowest=1, highest=LOOKED_AT)
WAYS: Final = (KEY.name, ADDRESS.name, TRACE.name, CORRELATION.name, TOPIC.name, ORIGIN.name)
CONSUMER: Final = Parameter("consumer", "A group, a queue as `$queue/NAME`, or either as `$share/GROUP/FILTER`.",
                            required=True, example="billing")
USER: Final = Parameter("user", "Whether this user may read it there is asked first.")
WHY: Final = Named("Why", object_of({"id": MESSAGE_ID, "consumer": TEXT, "reason": TEXT, "text": TEXT,
                                     "evidence": object_of()}))
SEEING: Final = (Need(Operation.CONSUME, "address"),)


@declare("trace", needs=SEEING, problems=("unknown_message", "storage_failed"),
         answers=(Answer(200, "What is known of it.", JOURNEY),))
async def get_journey(door: Door, call: Call) -> Answered:
    """Show the journey of a message.

    What happened to it, as far as that was recorded, and where it stands with each group and queue. A message that was
    not followed from the start is recorded from its first error on; what came before is read from the message itself.
    """
    principal = await door.principal(call)
    call.query()
    journey = await journey_of(door, principal, call.captures[0])
    return json_answer(describe(door, principal, journey))


@declare("trace", needs=SEEING,
         query=(KEY, ADDRESS, TRACE, CORRELATION, TOPIC, PARTITION, OFFSET, ORIGIN, FROM, TO, MAX),
         problems=("unknown_message", "unknown_topic", "unknown_partition", "storage_failed"),
         answers=(Answer(200, "The newest first.", object_of({"messages": list_of(FOUND)})),))
async def find_messages(door: Door, call: Call) -> Answered:
    """Find messages by key, address, trace or correlation id, or by where they lie.

    Those that were followed from the start; and those that failed, once they were handed out again or given up. By
    `origin` any message that came over a link is found, among the 100,000 newest messages, or 64 MiB from `from` on.
    What the user may not read is not among them.
    """
    principal = await door.principal(call)
    query = call.query()
    given = [name for name in WAYS if name in query]
    if len(given) != 1:
        raise Refusal("invalid_parameter", f"one of {', '.join(WAYS)} says what is looked for", parameter=WAYS[0])
    first_ms, last_ms, most = _time(query, FROM.name, 0), _time(query, TO.name, 1 << 62), MAX.read(query, door.config)
    if TOPIC.name in query:
        return json_answer({"messages": [_found_at(door, principal, query)]})
    if ORIGIN.name in query:
        return json_answer({"messages": await _that_came(door, principal, query[ORIGIN.name], first_ms)})

    def is_shown(event: Event) -> bool:
        return (event.tenant or "/") == principal.tenant and may_see_address(door, principal, _whole(event.address), "")

    messages: dict[int, dict[str, Any]] = {}
    for event in reversed(await _events(door, principal, given[0], query[given[0]], first_ms, last_ms, is_shown)):
        if event.message_id in messages:
            continue
        messages[event.message_id] = {
            "id": str(event.message_id), "at": event.at_ms, "what": WORDS[Kind(event.kind)],
            "address": event.address or None, "trace_id": event.trace_id.hex() or None}
        if len(messages) >= most:
            break
    return json_answer({"messages": list(messages.values())})


async def _that_came(door: Door, principal: Principal, origin: str, first_ms: int) -> list[dict[str, Any]]:
    """The message with this identity at the hub where it comes from, if the principal may see it."""
    if not IDENTITY.fullmatch(origin):
        raise Refusal("invalid_parameter", "an origin is a hub's identity, 32 hex digits, a slash, and the id there",
                      parameter=ORIGIN.name)
    reply: Reply[Came | None] = Reply()
    door.services.kernel.looking.came(origin.encode(), principal.tenant, first_ms, reply.set_result)
    came = await reply
    if came is None:
        return []
    try:
        journey = await journey_of(door, principal, str(came.message_id))
    except Refusal:
        return []
    stored = describe(door, principal, journey)
    return [{"id": stored["id"], "at": stored["steps"][0]["at"], "what": stored["steps"][0]["what"],
             "address": stored["address"], "trace_id": stored["trace_id"]}]


async def _events(door: Door, principal: Principal, way: str, value: str, first_ms: int, last_ms: int,
                  is_shown: Callable[[Event], bool]) -> list[Event]:
    raw = value.encode()
    if way == TRACE.name:
        if not TRACE_ID.fullmatch(value.lower()):
            raise Refusal("invalid_parameter", "a trace id is 32 hex digits", parameter=way)
        raw = bytes.fromhex(value)
    return await _found(door, principal, way.removesuffix("_id"), raw, first_ms, last_ms, is_shown)


async def _found(door: Door, principal: Principal, what: str, value: bytes, first_ms: int, last_ms: int,
                 is_shown: Callable[[Event], bool]) -> list[Event]:
    """The newest events of this time that have this value, and that he may see: others take no room from them."""
    reply: Reply[list[Event]] = Reply()

    def on_done(events: list[Event], error: StorageFailed | None) -> None:
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result(events)

    door.services.kernel.looking.find(what, value, principal.tenant, LOOKED_AT, on_done, first_ms, last_ms, is_shown)
    return await reply


def _found_at(door: Door, principal: Principal, query: dict[str, str]) -> dict[str, Any]:
    topic = door.guard_of(principal).topic(query[TOPIC.name], Operation.CONSUME)
    partition_id = topic.partition_id(PARTITION.read(query, door.config))
    message_id = door.services.kernel.looking.id_at(partition_id, OFFSET.read(query, door.config))
    if message_id < 0:
        raise Refusal("unknown_message", "there is no message at this offset")
    return {"id": str(message_id), "at": 0, "what": "stored", "address": None, "trace_id": None}


def _time(query: dict[str, str], name: str, default: int) -> int:
    if name not in query:
        return default
    normal = normalize(PropertyKind.TIME, query[name].encode())
    if normal is None:
        raise Refusal("invalid_parameter", f"{name!r} is an RFC 3339 time or milliseconds since 1970", parameter=name)
    return int(normal)


@declare("trace", query=(OF_USER, CLIENT, ADDRESS, FROM, TO, MAX), problems=("storage_failed",),
         answers=(Answer(200, "The newest first.", object_of({"events": list_of(TOLD)})),))
async def find_events(door: Door, call: Call) -> Answered:
    """Find what was told of clients: publishes that were refused, connections, subscriptions, and their ends.

    By user, client id or address (that of a refused publish, or a filter). A user sees his own, an administrator those
    of everybody in his tenant.
    """
    principal = await door.principal(call)
    query = call.query()
    given = [name for name in TOLD_WAYS if name in query]
    if len(given) != 1:
        raise Refusal("invalid_parameter", f"one of {', '.join(TOLD_WAYS)} says what is looked for",
                      parameter=OF_USER.name)
    first_ms, last_ms, most = _time(query, FROM.name, 0), _time(query, TO.name, 1 << 62), MAX.read(query, door.config)
    sees_all = door.admission.may_hub(principal, Operation.ADMINISTER)
    way, value = given[0], query[given[0]]

    def is_shown(event: Event) -> bool:
        return (event.tenant or "/") == principal.tenant and (sees_all or event.user == principal.name)

    events = await _found(door, principal, f"told-{TOLD_WAYS[way]}", value.encode(), first_ms, last_ms, is_shown)
    return json_answer({"events": [{"at": event.at_ms, "what": WORDS[Kind(event.kind)]} | {
        name: said for name, said in (
            ("address", event.address), ("reason", event.reason), ("door", event.door), ("user", event.user),
            ("client_id", event.client), ("peer", event.peer)) if said} for event in reversed(events[-most:])]})


@declare("trace", query=(CONSUMER, USER), needs=SEEING, problems=("unknown_message", "storage_failed"),
         answers=(Answer(200, "One answer, with what shows it.", WHY),))
async def why(door: Door, call: Call) -> Answered:
    """Say why a message did not arrive at a consumer.

    The consumer is a group, a queue as `$queue/NAME`, or either as a door calls it, `$share/GROUP/FILTER`. `reason` is
    one of: never_given, gone, waits_for_time, recalled, not_committed, no_right, no_consumer, not_routed, arrived,
    dead_letter, redriven, expired, dropped, leased, retry, behind, filtered, below_start, passed, paused, nobody_takes,
    ready. With `user`, an administrator asks about his rights first.
    """
    principal = await door.principal(call)
    query = call.query()
    consumer = door.services.kernel.reasons.consumer_of(query[CONSUMER.name], principal.tenant)
    message_id = read_id(call.captures[0])
    if message_id is None:
        raise Refusal("unknown_message", "a message's id is a whole number")
    reply: Reply[tuple[Journey, Reason | None]] = Reply()

    def on_done(journey: Journey, reason: Reason | None, error: StorageFailed | None) -> None:
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result((journey, reason))

    door.services.kernel.reasons.ask(message_id, consumer, principal.tenant, on_done)
    journey, reason = await reply
    is_seen = journey.is_known and reason is not None and _may_see(door, principal, journey)
    if reason is None or journey.is_known and not is_seen or reason.code == "waits_for_time" and not is_seen \
            and not await _may_see_scheduled(door, principal, message_id):
        reason = Reason("gone", NOTHING_THERE, {})
    if not journey.is_known or is_seen and journey.is_held:
        reason = await _of_transaction(door, principal, message_id) or reason
    if USER.name in query and is_seen:
        reason = _of_rights(door, principal, query[USER.name], address_of(door, journey), consumer) or reason
    return json_answer({"id": str(message_id), "consumer": consumer, "reason": reason.code, "text": reason.text,
                        "evidence": _evidence(door, principal, reason.evidence)})


async def _may_see_scheduled(door: Door, principal: Principal, message_id: int) -> bool:
    reply: Reply[Scheduled | None] = Reply()
    door.guard_of(principal).schedule.show(message_id, reply.set_result)
    return await reply is not None


async def _of_transaction(door: Door, principal: Principal, message_id: int) -> Reason | None:
    """What a half message waits for, or how it ended; None where it is none that began a transaction."""
    reply: Reply[Transaction | None] = Reply()
    if door.services.transactions is None:
        return None
    door.switchboard.transactions.show(message_id, principal.tenant, reply.set_result)
    transaction = await reply
    if transaction is None or not may_see_address(door, principal, transaction.address, ""):
        return None
    if transaction.state is State.OPEN:
        return Reason("not_committed", "it is a half message that nobody has decided about", {
            "begun": transaction.begun_ms, "group": transaction.group})
    return Reason("not_committed", f"it was a half message, and was {transaction.state.name.lower().replace('_', ' ')}",
                  {"at": transaction.decided_ms}) if transaction.state is not State.COMMITTED else None


def _of_rights(door: Door, principal: Principal, user: str, address: str, consumer: str) -> Reason | None:
    """Where a user may not consume at the address, or with the group."""
    if user != principal.name:
        door.admission.require_hub(principal, Operation.ADMINISTER)
    verdicts = [door.admission.explain(user, lambda rights: rights.of_address(Operation.CONSUME, address))] \
        if address else []
    if not consumer.startswith(QUEUE_PREFIX):
        verdicts.append(door.admission.explain(user, lambda rights: rights.of_group(Operation.CONSUME, consumer)))
    return next((Reason("no_right", f"{user} may not read it there", {"why": verdict.why}) for verdict in verdicts
                 if not verdict.allowed), None)


def _evidence(door: Door, principal: Principal, evidence: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in evidence.items() if name not in ("user", "peer", "until_hub_ms")}
    if door.admission.may_hub(principal, Operation.ADMINISTER) or evidence.get("user") == principal.name:
        shown |= {name: evidence[name] for name in ("user", "peer") if evidence.get(name)}
    if "until_hub_ms" in evidence:
        shown["until"] = door.services.wall_of(evidence["until_hub_ms"])
    return shown


def read_id(text: str) -> int | None:
    """A message's id; None where this is none."""
    is_id = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ID)) and int(text) <= MAX_ID
    return int(text) if is_id else None


def _unknown(text: str) -> Refusal:
    return Refusal("unknown_message", f"nothing is known of a message {text[:32]!r} that this user may read")


async def journey_of(door: Door, principal: Principal, text: str) -> Journey:
    """The journey of the message with this id. Refuses `unknown_message`, also where the principal may not see it."""
    journey: Journey | None = None
    message_id = read_id(text)
    if message_id is not None:
        reply: Reply[Journey] = Reply()

        def on_done(journey: Journey, error: StorageFailed | None) -> None:
            if error is not None:
                reply.set_exception(error)
            else:
                reply.set_result(journey)

        door.services.kernel.looking.journey(message_id, principal.tenant, on_done)
        journey = await reply
    if journey is None or not journey.is_known or not _may_see(door, principal, journey):
        raise _unknown(text)
    return journey


def _may_see(door: Door, principal: Principal, journey: Journey) -> bool:
    if journey.tenant != principal.tenant:
        return False
    place = journey.place
    return may_see_address(door, principal, address_of(door, journey), place.topic if place is not None else "")


def may_see_address(door: Door, principal: Principal, address: str, topic: str) -> bool:
    """Whether the principal may read what goes to an address; where nobody knows it, whether he may read the topic, or
    administers the hub."""
    if address:
        return door.admission.may(principal, Operation.CONSUME, address)
    if topic:
        return door.admission.may_topic(principal, Operation.CONSUME, topic)
    return door.admission.may_hub(principal, Operation.ADMINISTER)


def _whole(address: str) -> str:
    """The address in an event; "" where that is perhaps but its beginning, by which nobody's right can be judged."""
    return address if len(address.encode()) < MAX_TEXT_BYTES - CUT_WITHIN else ""


def address_of(door: Door, journey: Journey) -> str:
    """Where a message was published; "" where nobody knows."""
    said = _whole(next((event.address for event in journey.events
                        if event.address and (event.kind in WITH_ADDRESS or event.kind in NAMING)), ""))
    place, record = journey.place, journey.record
    if place is None or said and said != place.topic:
        return said
    if record is not None and place.topic:           # of a batch that was not opened only the topic is told
        return door.port.address_of(place.topic, record[2], record[4])
    if said:
        return said
    return QUEUE_PREFIX + place.queue if place.queue else ""


def describe(door: Door, principal: Principal, journey: Journey) -> dict[str, Any]:
    """The journey as this principal may see it."""
    place, record = journey.place, journey.record
    sees_all = door.admission.may_hub(principal, Operation.ADMINISTER)
    steps = [_step(door, journey, event, principal, sees_all) for event in journey.events]
    first = next((event for event in journey.events if event.kind in BEGINNINGS), None)
    if first is None and record is not None:
        steps.insert(0, _stored(door, record, journey.publisher, principal, sees_all))
    before: int | None = None
    for step in steps:
        step["after"] = None if before is None else max(0, step["at"] - before)
        before = step["at"]
    if steps:
        steps[0] |= _by_link(journey, first, sees_all)
    return {"id": str(journey.message_id), "address": address_of(door, journey) or None,
            "topic": place.topic or None if place is not None else None,
            "queue": place.queue or None if place is not None else None,
            "partition": place.partition if place is not None else None,
            "offset": place.offset if place is not None else None,
            "trace_id": _trace_of(journey),
            "origin": next((step["origin"] for step in steps[:1] if "origin" in step),
                           f"{door.port.hub.hex()}/{journey.message_id}"),
            "followed": FROM_START if first is not None else FROM_ERROR if journey.events else NOT_AT_ALL,
            "steps": steps, "stands": [_standing(door, each._asdict(), principal, sees_all)
                                       for each in journey.standings]}


def _by_link(journey: Journey, first: Event | None, sees_all: bool) -> dict[str, Any]:
    """By which link a message came, from which hub, and its id on the hub that stored it first; else nothing."""
    sender = first if first is not None else journey.publisher
    if sender is None or sender.door != RELAY:
        return {}
    headers = () if journey.record is None else journey.record[4]
    origin = next((value.decode(errors="replace") for name, value in headers if name == SHOWN_ORIGIN and value), "")
    of_link = {"link": sender.client, "hub": sender.peer} if sees_all else {}
    return {name: value for name, value in (*of_link.items(), ("origin", origin)) if value}


def _trace_of(journey: Journey) -> str | None:
    trace_id = next((event.trace_id for event in journey.events if event.trace_id), b"")
    if not trace_id and journey.record is not None:
        context = next((read(value) for name, value in journey.record[4] if name == HEADER), None)
        trace_id = context.trace_id if context is not None else b""
    return trace_id.hex() or None


def _stored(door: Door, record: Record, publisher: Origin | None, principal: Principal, sees_all: bool
            ) -> dict[str, Any]:
    """The first step of a message of which it was not recorded."""
    number = door_of(record[5])
    step = {"at": record[1], "what": WORDS[Kind.STORED], "recorded": False, "after": None,
            "door": door.door_names.get(number, str(number)), "offset": record[0]}
    if publisher is None:
        return {**step, "publisher": NOT_AT_ALL}
    return step | _who(publisher, principal, sees_all)


def _who(who: Origin | Event, principal: Principal, sees_all: bool) -> dict[str, Any]:
    """Who did something, as far as this principal may see it."""
    if who.door == RELAY or not sees_all and who.user != principal.name:
        return {}
    return {name: value for name, value in (("user", who.user), ("client_id", who.client), ("peer", who.peer))
            if value}


def _step(door: Door, journey: Journey, event: Event, principal: Principal, sees_all: bool) -> dict[str, Any]:
    step: dict[str, Any] = {"at": event.at_ms, "what": WORDS[Kind(event.kind)], "recorded": True, "after": None}
    if event.door:
        step["door"] = door.door_names.get(int(event.door), event.door) if event.door.isdigit() else event.door
    who = _who(event, principal, sees_all)
    step |= who if event.kind != Kind.CHECKED else {"asked": who["client_id"]} if "client_id" in who else {}
    place = journey.places.get(event.partition_id)
    if place is not None and event.partition_id:
        step |= {"topic": place.topic, "partition": place.partition} if place.topic else {
            "queue": place.queue} if place.queue else {}
        if event.kind != Kind.ROUTED:
            step["offset"] = event.offset
    for name, value in (("group", event.group), ("attempt", event.attempt), ("reason", event.reason),
                        ("address", event.address), ("number", event.number if event.kind == Kind.DELIVERED else 0),
                        ("left_out", event.number if event.kind != Kind.DELIVERED else 0)):
        if value:
            step[name] = value
    if event.until_ms:
        step["until"] = door.services.wall_of(event.until_ms)
    if event.transaction:
        step["transaction"] = str(event.transaction)
    return step


def _standing(door: Door, standing: dict[str, Any], principal: Principal, sees_all: bool) -> dict[str, Any]:
    until_ms = standing.pop("until_ms")
    if not sees_all and standing["user"] != principal.name:
        standing["user"] = standing["peer"] = ""
    shown = {name: value for name, value in standing.items() if value}
    return {**shown, "until": door.services.wall_of(until_ms)} if until_ms else shown


ROUTES: Routes = (("GET", "/v1/trace", find_messages), ("GET", "/v1/trace/events", find_events),
                  ("GET", "/v1/trace/{id}", get_journey),
                  ("GET", "/v1/trace/{id}/why", why))
