"""Messages by hand: published to an exchange, taken from a queue and given back or not, purged."""
from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.management.asking import (
    Asking,
    Host,
    Row,
    bad_request,
    needed,
    nothing_there,
    shown_table,
    table_of,
    text_of,
)
from gatehouse.gateways.amqp.management.changing import check_short
from gatehouse.gateways.amqp.management.seeing import (
    DEFAULT_NAME,
    exchange_of,
    queue_of,
)
from gatehouse.gateways.amqp.publishing import AmqpSender
from gatehouse.gateways.amqp.rights import READ
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.kernel.errors import QueueFull
from gatehouse.kernel.message import When

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.amqp.vhost import AmqpQueue
    from gatehouse.kernel.message import Leased

PUBLISH_METHOD: Final = b"\0\x3c\0\x28\0\0"        # class, method, a reserved short: before the names
MESSAGES_MAX: Final = 10_000                       # of one get
BYTES_MAX: Final = 32 << 20                        # of the bodies that one get answers with
NUMBERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": (1 << 64) - 1}
TEXT_BYTES_MAX: Final = 255                        # of a property that is a short string
ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
ENCODINGS: Final = ("auto", "base64")


# ---- in

async def publish(asking: Asking, vhost: str, exchange: str) -> HttpAnswer:
    host, document = asking.host(vhost), asking.document()
    needed(document, "payload", "payload_encoding", "properties", "routing_key")
    exchange = "" if exchange in ("", DEFAULT_NAME) else exchange_of(host, exchange).name
    key = text_of(document, "routing_key")
    check_short(key)
    body = _decoded(text_of(document, "payload"), document["payload_encoding"])
    routed = await send(asking, host, exchange, key, properties.write(_properties(document["properties"])), body)
    return HttpAnswer(200, {"routed": routed})


async def send(asking: Asking, host: Host, exchange: str, key: str, raw: bytes, body: bytes) -> bool:
    """Whether it enters a queue; durable then. Raises AmqpError, KernelError."""
    services = asking.services
    guard = services.guard(DOOR_NAME, host.principal, None, own_places=True)
    try:
        sender = AmqpSender(asking.broker, services, host.vhost, host.rights, guard, lambda what: None)
        arguments = {"exchange": exchange, "routing_key": key, "mandatory": False, "immediate": False}
        sent = sender.send(PUBLISH_METHOD + mapping.names_of(exchange, key) + b"\0", arguments, raw, body)
        if sent.half is not None:
            raise bad_request("half messages are published over AMQP, or at /v1/transactions")
        message = sent.message
        if message is not None:
            messages = [message, *sent.copies]
            waits = [When(delay_ms=sent.delay_ms, name=sent.delay_key)] * len(messages)
            try:
                await asking.ask.stored(
                    (lambda owner, token: guard.schedule.add(messages, waits, owner, token, len(body),
                                                             idempotency_key=sent.repeat_key)) if sent.delay_ms
                    else lambda owner, token: guard.append(messages, owner, token, len(body),
                                                           idempotency_key=sent.repeat_key))
            except QueueFull:
                return False
        return sent.routed
    finally:
        guard.leave()


def _decoded(payload: str, encoding: Any) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"{{unsupported_encoding,{encoding}}}")
    try:
        return b64decode(payload, validate=True)
    except (Base64Error, ValueError):
        raise bad_request("payload is no base64") from None


def _properties(given: Any) -> dict[str, Any]:
    if given == []:
        return {}
    if not isinstance(given, dict):
        raise bad_request("{not_a_table,properties}")
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name not in properties.NAMES:
            raise bad_request(f"{{unknown_property,{name}}}")
        if name == "headers":
            read[name] = table_of(value, name)
        elif name in NUMBERS:
            if type(value) is not int or not 0 <= value <= NUMBERS[name]:
                raise bad_request(f"{{not_a_number,{name}}}")
            read[name] = value
        elif isinstance(value, str):
            if len(value.encode(errors="replace")) > TEXT_BYTES_MAX:
                raise bad_request(f"{{longer_than_{TEXT_BYTES_MAX}_bytes,{name}}}")
            read[name] = value
        else:
            raise bad_request(f"{{not_a_string,{name}}}")
    return read


# ---- out

async def get(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host, document = asking.host(vhost), asking.document()
    queue = host.vhost.require_queue(queue_of(host, name).name, asking)
    host.rights.require_source(queue)
    needed(document, "count", "ackmode", "encoding")
    count, mode = _count(document["count"]), document["ackmode"]
    if mode not in ACK_MODES or document["encoding"] not in ENCODINGS:
        raise bad_request(f"ackmode is one of {', '.join(ACK_MODES)}, encoding one of {', '.join(ENCODINGS)}")
    leases: list[Leased] = []
    size = 0
    try:
        while len(leases) < count and size < BYTES_MAX:
            leased = await take(asking, queue)
            if leased is None:
                break
            leases.append(leased)
            size += len(leased[6] or b"")
        if queue.kernel_queue is None:         # deleted meanwhile
            raise nothing_there()
        left = asking.broker.queues.ready(queue)
        rows = [_show(asking, queue, leased, left + len(leases) - number, document)
                for number, leased in enumerate(leases, 1)]
    except BaseException:
        asking.broker.queues.release(queue, [leased[:3] for leased in leases])
        raise
    await _settle(asking, queue, leases, mode)
    return HttpAnswer(200, rows)


async def take(asking: Asking, queue: AmqpQueue) -> Leased | None:
    """One message, or None where there is none. What is taken for a caller that has gone is ready again."""
    queues = asking.broker.queues
    is_awaited = True
    taken: Leased | None = None

    def begin(done: Callable[[Leased | None], None]) -> None:
        def on_done(leased: Leased | None) -> None:
            nonlocal taken
            taken = leased
            if is_awaited:
                done(leased)
            else:
                give_back()

        queues.take(queue, on_done)

    def give_back() -> None:
        if taken is not None:
            queues.release(queue, [taken[:3]])

    try:
        await asking.ask.told(begin)
    except BaseException:
        is_awaited = False
        give_back()
        raise
    return taken


async def _settle(asking: Asking, queue: AmqpQueue, leases: list[Leased], mode: str) -> None:
    handles = [leased[:3] for leased in leases]
    queues = asking.broker.queues
    if mode.endswith("requeue_true"):
        queues.release(queue, handles)
    elif handles:
        settle = queues.ack_durably if mode.startswith("ack") else queues.reject_durably
        await asking.ask.stored(lambda owner, token: settle(queue, handles, owner, token))


def _count(given: Any) -> int:
    if isinstance(given, str) and given.isascii() and given.isdigit():
        given = int(given[:9])
    if type(given) is not int or not 0 < given <= MESSAGES_MAX:
        raise bad_request(f"count is 1 to {MESSAGES_MAX}")
    return given


def _show(asking: Asking, queue: AmqpQueue, leased: Leased, left: int, document: dict[str, Any]) -> Row:
    side, body = asking.broker.queues.side_of(queue, leased), leased[6] or b""
    exchange, key = mapping.read_names(side)
    read = properties.read(side[codec.names_end(side):])
    shown = {name: shown_table(value) if name == "headers" else value for name, value in read.items()}
    cut = document.get("truncate")
    payload = body[:cut] if type(cut) is int and cut >= 0 else body
    return {"payload_bytes": len(body), "redelivered": leased[2] > 1, "exchange": exchange, "routing_key": key,
            "message_count": left, "properties": shown or [], **_encoded(payload, document["encoding"])}


def _encoded(payload: bytes, encoding: str) -> Row:
    if encoding == "auto":
        try:
            return {"payload": payload.decode(), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return {"payload": b64encode(payload).decode(), "payload_encoding": "base64"}


async def purge(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    host = asking.host(vhost)
    queue = host.vhost.require_queue(queue_of(host, name).name, asking)
    host.rights.require_change(queue, Operation.CONSUME, READ)
    count = 0

    def purge_now(owner: Any, token: object) -> None:
        nonlocal count
        count = asking.broker.queues.purge(queue)
        asking.broker.store(host.vhost, (), owner, token)

    await asking.ask.stored(purge_now)
    host.rights.audit("queue.purged", {"queue": name, "messages": count})
    return HttpAnswer(204)


async def act(asking: Asking, vhost: str, name: str) -> HttpAnswer:
    """Mirrors are synchronised in RabbitMQ; here a queue has none."""
    host = asking.host(vhost)
    queue_of(host, name)
    if asking.document().get("action") not in ("sync", "cancel_sync"):
        raise bad_request("unknown action")
    return HttpAnswer(204)
