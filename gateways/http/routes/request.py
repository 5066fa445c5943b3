"""`POST /v1/request/{address}`: publish a message, wait for what answers it.

    body, headers       as of `POST /v1/publish/{address}`
    X-Reply-To          the address that the answer comes to; left out, a queue of this door
    X-Correlation-Id    left out, one is made; no two requests may wait for an answer by the same
    wait                seconds; left out, as long as the door lets anybody wait

The answer is 200 and the answering message as JSON. 504 `no_answer` where none came: the request is stored for all
that.

A request is a message with the properties `reply-to` and `correlation-id`, which every door shows in its own words:
MQTT 5's response topic and correlation data, AMQP's reply_to and correlation_id, Kafka's and HTTP's headers. Whoever
answers publishes to the one, with the other. Without a wish of the caller's, answers come to a queue of this door,
`$queue/replies.http`, which AMQP reaches by its default exchange and every other door by that address; with one, they
come to an address, which links carry between hubs as any other.

The first answer counts. One that nobody waits for is gone from the queue, as nobody will ask for it.
"""
from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import VALUE_BODIES, Answer, Need, Seconds, Setting, declare
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import DOOR, Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, json_answer
from gatehouse.gateways.http.message_schemas import MESSAGE, MESSAGE_HEADERS
from gatehouse.gateways.http.page import PageSource, build_page
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.messages import ADDRESS, PROBLEMS_OF_A_PUBLISH, fetch, place
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.addresses.address import is_address, is_reserved
from gatehouse.kernel.addresses.filters import MANY, ONE
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.message import NOBODY, Headers, Record
from gatehouse.kernel.records.batch import encode_headers, public_headers

if TYPE_CHECKING:
    from gatehouse.gateways.door_side import Delivery
    from gatehouse.gateways.http.mapping import Publication
    from gatehouse.kernel.api import Taken


QUEUE: Final = "replies.http"
REPLY_TO: Final = b"reply-to"
CORRELATION: Final = b"correlation-id"
ANSWER_MS: Final = 60_000              # an answer that nobody has taken by then is of no use to anybody
CREDIT: Final = 1_000
MAX_WAITING: Final = 10_000            # requests of all users at once


class Came:
    """An answer: the record, and where it is stored. One that was heard live has no id (0), and a partition to look it
    up in."""

    __slots__ = ("record", "topic", "partition", "address", "partition_id")

    def __init__(self, record: Record, topic: str, partition: int, address: str, partition_id: int) -> None:
        self.record = record
        self.topic = topic
        self.partition = partition
        self.address = address
        self.partition_id = partition_id


# decision 211: answers come to one queue of the door, or to an address of the caller's
class Answers:
    """The answers that one tenant's requests wait for. It is a member of the queue's group, and a `LiveListener` for
    addresses."""

    def __init__(self, door: Door, tenant: str) -> None:
        self._door = door
        self._tenant = tenant
        self._joined = False
        self._member = 0
        self._waiting: dict[tuple[str, bytes], Reply[Came | None]] = {}
        self._addresses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, address: str, correlation: bytes) -> Reply[Came | None]:
        """The answer that comes to this address, or to the door's queue where it is "". Raises what the kernel
        refuses. Refuses what another request waits for: nobody could tell which of them is answered."""
        if (address, correlation) in self._waiting:
            raise Refusal("invalid_header", "another request with this X-Correlation-Id waits for its answer; left "
                                            "out, one is made")
        if address:
            count = self._addresses.get(address, 0)
            if not count:
                self._door.switchboard.subscribe(address, self, 0, self._tenant)
            self._addresses[address] = count + 1
        elif not self._joined:
            self._join()
        reply: Reply[Came | None] = Reply()
        self._waiting[address, correlation] = reply
        return reply

    def forget(self, address: str, correlation: bytes) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop((address, correlation), None)
        if address:
            count = self._addresses.pop(address) - 1
            if count:
                self._addresses[address] = count
            else:
                self._door.switchboard.unsubscribe(address, self, self._tenant)

    def _join(self) -> None:
        groups = self._door.port.groups
        groups.declare_queue(QUEUE, QueueSettings(ttl_ms=ANSWER_MS, max_length=MAX_WAITING), self._tenant, 0)
        self._member = groups.join((QUEUE, ""), self._tenant, CREDIT, False, NOBODY, self.on_leased, self.on_gone)
        self._joined = True

    def on_leased(self, messages: list[Taken]) -> None:
        """Answers that came to the door's queue."""
        for message in messages:
            _, offset, _, message_id, timestamp_ms, key, value, headers, attributes = message.leased
            record = (offset, timestamp_ms, key, value, _headers_of(headers), attributes, message_id)
            self._give("", Came(record, f"$queue/{QUEUE}", 0, f"$queue/{QUEUE}", 0))
        self._door.port.groups.add_credit(self._member, len(messages))

    def on_gone(self) -> None:
        """Somebody has deleted the queue: the next request makes it anew."""
        self._joined, self._member = False, 0

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """See `door_side.LiveListener`."""
        for heard, messages, first_offset, _ in deliveries:
            for at, (_, value, headers, attributes, timestamp_ms) in enumerate(messages):
                record = (first_offset + at, timestamp_ms, heard.key, value, _headers_of(headers), attributes, 0)
                self._give(heard.address, Came(record, heard.topic, heard.partition, heard.address, heard.partition_id))

    def _give(self, expected: str, came: Came) -> None:
        correlation = next((value for name, value in came.record[4] if name == CORRELATION), None)
        reply = self._waiting.get((expected, correlation or b""))
        if reply is not None:
            reply.set_result(came)


def _headers_of(encoded: bytes) -> Headers:
    try:
        return public_headers(encoded)
    except KernelError:
        return ()


REQUEST_PREFIX: Final = "/v1/request/"
FOR: Final = Seconds("wait", "Seconds to wait for the answer; 0: as long as the door lets anybody wait.",
                     highest=Setting("max_wait_s"))


SENT_LATER: Final = ("X-Delay", "X-Deliver-At", "X-Repeat", "X-Message-Key")
"""Headers of a publish that a request cannot have: it goes now, to its address."""


@declare("publish", path=(ADDRESS,), query=(FOR,),
         headers=tuple(header for header in MESSAGE_HEADERS if header.name not in SENT_LATER),
         needs=(Need(Operation.PUBLISH, "address"), Need(Operation.CONSUME, "address")), writes=True,
         bodies=VALUE_BODIES, answers=(Answer(200, "The message that answers it.", MESSAGE),),
         problems=(*PROBLEMS_OF_A_PUBLISH, "no_answer", "queue_exists"))
async def request(door: Door, call: Call) -> Answered:
    """Publish one message and wait for what answers it.

    Whoever answers, by any door, publishes to the message's `reply-to` with its `correlation-id`. With `X-Reply-To`
    that is an address of yours, which links carry to other hubs, and at which you need the right to consume.
    """
    guard = await door.guard(call)
    wait_s = FOR.read(call.query(), door.config) or float(door.config.max_wait_s)
    publication = call.head.publication(door.services.wall_ms)
    if publication.later or publication.respond_async or publication.idempotency_key or call.head.is_event \
            or publication.key is not None:
        raise Refusal("invalid_header", "a request is one message, sent now and waited for: it has no Idempotency-Key, "
                                        "no time to wait for, no X-Message-Key")
    number = place(guard, call.captures[0], publication)           # refused before the body is read
    headers, address, correlation = _with_reply(publication)
    if address:
        guard.require(Operation.CONSUME, address)
    await door.ready_to_append(guard, (number,))
    value = await door.bodies.read(call)
    answers = door.answers.setdefault(guard.tenant, Answers(door, guard.tenant))
    if sum([len(tenant) for tenant in door.answers.values()]) >= MAX_WAITING:
        raise Refusal("busy", f"{MAX_WAITING} requests wait for an answer already")
    reply = answers.expect(address, correlation)
    late = door.loop.call_later(wait_s, reply.set_exception, Refusal("no_answer", f"nothing answered in {wait_s:g} s"))
    try:
        await door.append(guard, [(place(guard, call.captures[0], publication), value, encode_headers(headers),
                                   DOOR | publication.attributes, publication.timestamp_ms)], None)
        came = await door.unless_stopping(reply)
        if came is not None and not came.record[6]:
            came.record = await _with_id(door, came)
        return _shown(door, came)
    finally:
        late.cancel()
        answers.forget(address, correlation)


def _with_reply(publication: Publication) -> tuple[list[tuple[bytes, bytes | None]], str, bytes]:
    """The headers of the request; the address of the answer, "" for the door's queue; what the answer names."""
    headers = list(publication.headers)
    given = dict(headers)
    correlation = given.get(CORRELATION)
    if correlation is None:
        correlation = token_hex(8).encode()
        headers.append((CORRELATION, correlation))
    reply_to = given.get(REPLY_TO)
    if reply_to is None:
        headers.append((REPLY_TO, f"$queue/{QUEUE}".encode()))
        return headers, "", correlation
    address = reply_to.decode()
    if not is_address(address) or is_reserved(address) or {ONE, MANY} & set(address.split("/")):
        raise Refusal("invalid_header", "X-Reply-To is an address that the answer can be published to")
    return headers, address, correlation


async def _with_id(door: Door, came: Came) -> Record:
    """The record of an answer that was heard live, as it is stored; as it was heard where it is gone already."""
    offset = came.record[0]
    fetched = await fetch(door.port, [(came.partition_id, offset, 1)], 1)
    page = build_page([PageSource(came.partition, offset, fetched[0])], 1, 1)
    return next((record for _, record in page.records if record[0] == offset), came.record)


def _shown(door: Door, came: Came | None) -> Answered:
    if came is None:
        raise Refusal("stopping", "the hub stops; the request is stored, and nobody waits for its answer any more")
    number = door_of(came.record[5])
    return door.counted(1, json_answer(record_to_json(came.record, came.topic, came.partition, came.address,
                                                      door.door_names.get(number, str(number)))))


ROUTES: Routes = (("POST", REQUEST_PREFIX + "{address...}", request),)
