"""One request on its way: what an API's file declares, what its `dispatch` is given, the place of its answer, and the
topics that it names.

A request is *dispatched* when `dispatch` is called: in the order the peer sent them, so appends keep that order. It
is *done* when it has its answer, which may be later and out of order; the session sends answers in the order of the
requests. `on_turn` is called when every earlier request has been answered: a fetch reads and waits only then, so that a
connection never holds more than one fetch's records.

A long request is read on a thread beside the loop, and so is a long answer written. In between it is gone through in
steps: where `dispatch` is a generator, it yields after each part, and others have their turn between some of these.

A right to a topic is looked at before it is looked whether the topic is there: who has none does not learn which topics
exist. What lies in a produced batch is not opened, so every request needs the right to the whole topic.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.kafka import cold
from gatehouse.gateways.kafka.error_codes import UNKNOWN_TOPIC_ID
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
from gatehouse.kernel.errors import InvalidTopic, KernelError, UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic


@dataclass(frozen=True, slots=True)
class Api:
    """One API as it is offered: key and versions as in Kafka, and who answers it."""

    key: int
    name: str
    first_version: int
    last_version: int
    first_flexible: int
    dispatch: Callable[[Request], Iterator[None] | None]
    """May raise codec.Malformed, which closes the connection. A generator yields after each part of the request."""

    message: Any = None
    """kafka-python's class of its request, where it is read by that."""

    first_listed: int | None = None
    """Lower than `first_version` where clients need to see it in ApiVersions though it is refused."""

    shows: bool = False
    """It is about what earlier requests of its connection may have changed: it waits until they are answered."""


class Request:
    """One request of a client, from its header to its answer. `data[at:end]` is the body."""

    __slots__ = ("session", "api", "version", "correlation_id", "data", "at", "end", "asked", "parts", "on_turn",
                 "on_end", "on_stopping")

    def __init__(self, session: KafkaSession, api: Api, version: int, correlation_id: int, data: bytes, at: int,
                 end: int) -> None:
        self.session = session
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.data = data
        self.at = at
        self.end = end
        self.asked: cold.Row | None = None               # the body, where it was read beside the loop
        self.parts: list[bytes] | None = None            # the answer, framed; None: not done
        self.on_turn: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None    # the connection is gone or goes: let go of what is held
        self.on_stopping: Callable[[], None] | None = None     # the hub stops: answer with what there is

    def read(self) -> cold.Row:
        """The body as the API's `message` defines it; for any thread. Raises Malformed."""
        return cold.decode(self.api.message, self.version, self.data, self.at, self.end)

    def decode(self, message: Any) -> cold.Row:
        """The body as a class of kafka.protocol defines it. Raises Malformed."""
        if self.asked is not None:
            return self.asked
        return cold.decode(message, self.version, self.data, self.at, self.end)

    def answer(self, message: Any, **fields: Any) -> None:
        """Done: the answer as a class of kafka.protocol defines it, as soon as it is written."""
        self.data, self.asked, self.on_stopping = b"", None, None
        encode = partial(cold.encode, message, self.version, self.correlation_id, **fields)
        if cold.is_long(fields):
            self.session.beside(encode, self.on_encoded)
        else:
            self.done([encode()])

    def on_encoded(self, framed: bytes | None, error: BaseException | None) -> None:
        """Done: the answer was written beside the loop."""
        if framed is None:
            self.session.fail(error)
        else:
            self.done([framed])

    def done(self, parts: list[bytes]) -> None:
        """Done: the answer as framed buffers; none at all where the protocol wants no answer."""
        self.parts = parts
        self.data, self.asked = b"", None
        self.session.on_done()


def text_of(name: bytes) -> str:
    """A topic's name as text. Raises InvalidTopic where it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise InvalidTopic("a topic's name is not UTF-8") from None


def find_topic(session: KafkaSession, name: str, operation: Operation, said: bytes = b"") -> Topic:  # decision 93
    """The topic, which exists. Raises Denied, UnknownTopic. `said`: a batch for it, see `Guard.place`."""
    try:
        return session.guard.topic(name, operation, said)
    except Denied as refusal:
        session.guard.count(refusal.code)
        raise


def find_by_id(session: KafkaSession, uuid: bytes, operation: Operation) -> Topic:
    """The topic with this id. Raises Denied, UnknownTopic."""
    try:
        return session.guard.topic_by_uuid(uuid, operation)
    except Denied as refusal:
        session.guard.count(refusal.code)
        raise


def find_asked(session: KafkaSession, asked: Any, by_id: bool) -> Topic:
    """The topic that a part of a request names, or says by its id, to be read. Raises Refused, with Kafka's number."""
    if not by_id:
        try:
            return find_topic(session, asked.name, Operation.CONSUME)
        except (KernelError, Denied) as refusal:
            raise Refused(coordinator_code_of(refusal), str(refusal)) from None
    try:
        return find_by_id(session, asked.topic_id.bytes, Operation.CONSUME)
    except UnknownTopic as refusal:
        raise Refused(UNKNOWN_TOPIC_ID, str(refusal)) from None
    except Denied as refusal:
        raise Refused(coordinator_code_of(refusal), str(refusal)) from None
