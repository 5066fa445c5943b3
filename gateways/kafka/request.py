"""One request on its way: what an API's file declares, what its `dispatch` is given, and the place of its answer.

A request is *dispatched* when `dispatch` is called: in the order the peer sent them, so appends keep that order. It
is *done* when it has its answer, which may be later and out of order; the session sends answers in the order of the
requests. `on_turn` is called when every earlier request has been answered: a fetch reads and waits only then, so that a
connection never holds more than one fetch's records.

A long request is read on a thread beside the loop, and so is a long answer written. In between it is gone through in
steps: where `dispatch` is a generator, it yields after each part, and others have their turn between some of these.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.api_message import ApiMessage

from gatehouse.gateways.kafka import cold
from gatehouse.gateways.kafka.configs import KeptConfigs
from gatehouse.gateways.kafka.error_codes import UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.kafka.api.parts import AskedPart
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
    """`data[at:end]` is the body."""

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


# Requests of APIs that are not offered: answered with UNSUPPORTED_VERSION where their answer has a place for it, so
# that who asks without a look at ApiVersions raises an error and does not try for ever. Else the connection is closed,
# as Kafka does.

UNOFFERED: Final = Api(-1, "a request that is not offered", 0, 0, 0, lambda request: request.done([request.data]))
"""Stands for any of them; its requests carry their answers as data."""

PACKAGES: Final = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)


# decision 176
def encode_unoffered(key: int, version: int, correlation_id: int) -> bytes | None:
    """The answer to a request that is not offered; None where it could not say so."""
    message = _answers().get(key)
    if message is None or not message.min_version <= version <= message.max_version \
            or "error_code" not in [field.name for field in message._struct.untagged_fields(version)]:
        return None
    return cold.encode(message, version, correlation_id, error_code=UNSUPPORTED_VERSION)


@cache
def _answers() -> dict[int, Any]:
    """The class of each answer that kafka-python knows, by its API's number."""
    return {message.API_KEY: message for message in _classes(ApiMessage) if str(message.name).endswith("Response")}


def _classes(message: Any) -> Iterator[Any]:
    for made_of in message.__subclasses__():
        yield made_of
        yield from _classes(made_of)


# What was set for topics and says nothing to the kernel: kept, so that whoever has set it reads it back.
#
#     space "kafka-topics", name: the topic's id in hex, value: a JSON object of settings
#
# It travels in the frame that makes or changes the topic, and is forgotten with it; what a topic leaves behind that
# another door has deleted goes when the door opens.

SPACE: Final = "kafka-topics"
TENANT: Final = "/"                  # a topic's id is that of no other tenant's


class RememberedConfigs:
    """Of all topics, by their ids."""

    def __init__(self, services: Services) -> None:
        self._kept = KeptConfigs(services, SPACE)
        for _, name, value in services.kernel.definitions(SPACE):
            if services.door("kafka").port.topic_by_uuid(bytes.fromhex(name)) is None:
                self._kept.put((TENANT, name), {})
            else:
                self._kept.load((TENANT, name), value)

    @staticmethod
    def of(services: Services) -> RememberedConfigs:
        """Those of the hub, read at the first use."""
        return services.share(SPACE, lambda: RememberedConfigs(services))

    def get(self, topic: Topic) -> Mapping[str, str]:
        """What was set for a topic."""
        return self._kept.get((TENANT, topic.uuid.hex()))

    def latest(self, topic: Topic) -> Mapping[str, str]:
        """What was set, with what is on its way to the disk: what a change begins from."""
        return self._kept.latest((TENANT, topic.uuid.hex()))

    def put(self, topic: Topic, configs: Mapping[str, str], session: KafkaSession, part: AskedPart) -> None:
        """Remember these, and no others; the part waits for that too. To be called in the turn in which the topic is
        changed: so both are durable, or neither is."""
        name = (TENANT, topic.uuid.hex())
        if dict(configs) != self._kept.latest(name):
            self._kept.put(name, configs, session, part)
            part.also()

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        name = (TENANT, topic.uuid.hex())
        if self._kept.latest(name):
            self._kept.put(name, {})
