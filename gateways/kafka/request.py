"""One request on its way: what an API's file declares, what its `dispatch` is given, and the place of its answer.

A request is *dispatched* when `dispatch` is called: in the order the peer sent them, so appends keep that order. It
is *done* when it has its answer, which may be later and out of order; the session sends answers in the order of the
requests. `on_turn` is called when every earlier request has been answered: a fetch reads and waits only then, so that a
connection never holds more than one fetch's records.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.kafka import cold

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession


@dataclass(frozen=True, slots=True)
class Api:
    """One API as it is offered: key and versions as in Kafka, and who answers it."""

    key: int
    name: str
    first_version: int
    last_version: int
    first_flexible: int
    dispatch: Callable[[Request], None]
    """May raise codec.Malformed, which closes the connection."""

    first_listed: int | None = None
    """Lower than `first_version` where clients need to see it in ApiVersions though it is refused."""

    shows: bool = False
    """It is about what earlier requests of its connection may have changed: it waits until they are answered."""


class Request:
    """`data[at:end]` is the body."""

    __slots__ = ("session", "api", "version", "correlation_id", "data", "at", "end", "parts", "on_turn", "on_end",
                 "on_stopping")

    def __init__(self, session: KafkaSession, api: Api, version: int, correlation_id: int, data: bytes, at: int,
                 end: int) -> None:
        self.session = session
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.data = data
        self.at = at
        self.end = end
        self.parts: list[bytes] | None = None            # the answer, framed; None: not done
        self.on_turn: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None    # the connection is gone or goes: let go of what is held
        self.on_stopping: Callable[[], None] | None = None     # the hub stops: answer with what there is

    def decode(self, message: Any) -> cold.Row:
        """The body as a class of kafka.protocol defines it. Raises Malformed."""
        return cold.decode(message, self.version, self.data, self.at, self.end)

    def answer(self, message: Any, **fields: Any) -> None:
        """Done: the answer as a class of kafka.protocol defines it."""
        self.done([cold.encode(message, self.version, self.correlation_id, **fields)])

    def done(self, parts: list[bytes]) -> None:
        """Done: the answer as framed buffers; none at all where the protocol wants no answer."""
        self.parts = parts
        self.data = b""
        self.session.on_done()
