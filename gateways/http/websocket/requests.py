"""Frames that take a while: pop and what becomes of what was popped, half messages and decisions. Each is answered when
it is done, and durable."""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import orjson

from gatehouse.gateways.checks import InvalidDecision, read_id, read_verdict
from gatehouse.gateways.http.declaring import D, shaped
from gatehouse.gateways.http.leases import Extension, Handles, Release, handles_in, result_of
from gatehouse.gateways.http.mapping import Publication, read_idempotency_key
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.leases import ACKING, extending, pop_from_queue, pop_topic, releasing, settled
from gatehouse.gateways.http.routes.transactions import TransactionInput, find_transaction, hold_document
from gatehouse.gateways.http.transacting import decide, describe
from gatehouse.gateways.http.websocket.frames import Frame, name_in, query_of, text_in

if TYPE_CHECKING:
    from gatehouse.gateways.http.websocket.connection import WebSocketConnection
    from gatehouse.kernel.api import Settling


async def _pop(connection: WebSocketConnection, frame: Frame) -> Frame:
    query = query_of(frame, "topic", "max", "invisible", "wait", "values")
    of_queue = _names_queue(frame)
    if not of_queue and "topic" not in query:
        raise Refusal("invalid_frame", "a pop names the 'topic' of its group")
    pop, topic = pop_from_queue if of_queue else pop_topic, query.get("topic", "")
    door, guard, name = connection.door, connection.guard, name_in(frame, "queue" if of_queue else "group")
    await door.ready_to_hand_out(guard, topic, name)
    messages = await pop(door, guard, name, query)
    door.flow.messages_out += len(messages)
    if guard.limits_out:
        guard.hand_out(len(messages), len(orjson.dumps(messages)), topic, consumers=name)
    return {"type": "popped", "messages": messages}


async def _ack(connection: WebSocketConnection, frame: Frame) -> Frame:
    return await _settle(connection, frame, "acked", _document_in(frame, Handles), ACKING)


async def _extend(connection: WebSocketConnection, frame: Frame) -> Frame:
    document = _document_in(frame, Extension)
    return await _settle(connection, frame, "extended", document, extending(document))


async def _release(connection: WebSocketConnection, frame: Frame) -> Frame:
    document = _document_in(frame, Release)
    return await _settle(connection, frame, "released", document, releasing(document))


def _document_in(frame: Frame, shape: type[D]) -> D:
    return shaped({name: frame[name] for name in shape.__struct_fields__ if name in frame}, shape)


async def _settle(connection: WebSocketConnection, frame: Frame, done: str, document: Handles,
                  settling: Settling) -> Frame:
    of_queue = _names_queue(frame)
    name = name_in(frame, "queue" if of_queue else "group")
    connection.guard.groups.require_settler(name, of_queue)
    texts = handles_in(document, connection.door.config.max_request_messages)
    errors = await settled(connection.door, connection.guard, name, of_queue, texts, settling)
    return {"type": done, "results": [result_of(text, error) for text, error in zip(texts, errors, strict=True)]}


async def _hold(connection: WebSocketConnection, frame: Frame) -> Frame:
    request = Publication()
    if frame.get("idempotency_key") is not None:
        request.idempotency_key = read_idempotency_key(text_in(frame, "idempotency_key").encode())
    document = _document_in(frame, TransactionInput)
    answer = await hold_document(connection.door, connection.guard, document, request)
    return {"type": "held", "transaction": answer.pop("id"), **answer}


async def _decide(connection: WebSocketConnection, frame: Frame) -> Frame:
    try:
        transaction_id, decision = read_id(frame.get("transaction")), read_verdict(frame.get("decision"))
    except InvalidDecision as error:
        raise Refusal("invalid_frame", str(error)) from None
    if decision is None:                              # who is not sure is told how it stands
        door = connection.door
        outcome = describe(await find_transaction(connection.guard, transaction_id), door.services.wall_of)
        return {"type": "decided", "transaction": outcome["id"], "state": outcome["state"],
                "decided": outcome["decided"]}
    answer = await decide(connection.door, connection.guard, transaction_id, decision)
    return {"type": "decided", "transaction": answer.pop("id"), **answer}


def _names_queue(frame: Frame) -> bool:
    queue, group = text_in(frame, "queue"), text_in(frame, "group")
    if bool(queue) == bool(group):
        raise Refusal("invalid_frame", "name a 'group' (and to pop, its 'topic') or a 'queue'")
    if queue and "topic" in frame:
        raise Refusal("invalid_frame", "a 'queue' has no 'topic'")
    return bool(queue)


REQUESTS: Final[dict[str, Callable[[WebSocketConnection, Frame], Awaitable[Frame]]]] = {
    "pop": _pop, "ack": _ack, "extend": _extend, "release": _release, "hold": _hold,
    "decide": _decide}
