"""Dead letters: a message that a group gives up goes to its dead-letter queue, in the frame that settles it.

The copy keeps the message's id, key, value and headers, and has one header more, `dead-letter`: why, from where, after
how many attempts, when, and what has happened to it before. A group over a topic has a light queue for them,
`$dead-letters/GROUP`; a light queue says itself where they go, in the words of the door that declared it.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kernel.gathering import Gathering
from kernel.leasing.settings import LightQueue, QueueSettings
from kernel.message import Headers, Leased, Message, Placement
from kernel.parts import Parts
from kernel.record import encode_headers, read_headers

if TYPE_CHECKING:
    from kernel.leasing.group import LeasedGroup
    from kernel.leasing.leasing import Leasing
    from kernel.leasing.supply import Supply

PREFIX: Final = "$dead-letters/"
HEADER: Final = b"dead-letter"
MAX_HISTORY: Final = 20                 # deaths that a message remembers; the oldest go first

_DEATH: Final = {"reason": str, "topic": str, "queue": int, "offset": int, "attempts": int, "at_ms": int,
                 "address": str}

Route = Callable[["LightQueue", Leased, str], "list[Message]"]
"""A door's own: the messages that a dead letter of a light queue becomes, for this reason; none to drop it."""


class Burial:
    def __init__(self, parts: Parts, leasing: Leasing, gather: Callable[[], Gathering]) -> None:
        self._parts = parts
        self._leasing = leasing
        self._gather = gather
        self.route: Route | None = None

    def bury(self, group: LeasedGroup, supply: Supply, messages: list[Leased], reason: str) -> None:
        """Settle these, with their copies in the same frame. Raises Stopping, with nothing done."""
        gathering = self._gather()
        for message in messages:
            copies = self._copies(group, message, reason)
            if copies:
                for placement, _, _, _, _ in copies:
                    if placement.version != placement.first_level.version:
                        self._parts.subscriptions.refresh(placement)
                gathering.burst.add_copies(copies, [message[3]] * len(copies), None)
        group.dead += len(messages)
        offsets = [message[1] for message in messages]
        group.settle_unleased(supply, offsets)

    def _copies(self, group: LeasedGroup, message: Leased, reason: str) -> list[Message]:
        if group.queue is not None:
            return self.route(group.queue, message, reason) if self.route is not None else []
        if not group.settings.dead_letters:
            return []
        queue = self._leasing.declare(PREFIX + group.name, QueueSettings(), group.tenant)
        placement = self._parts.places.place_light(queue, 0, message[5])
        return [(placement, message[6], with_death(message, self.describe(group, message, reason)), message[8],
                 message[4])]

    def describe(self, group: LeasedGroup, message: Leased, reason: str) -> dict[str, Any]:
        """What a dead letter says about its death."""
        found = self._parts.topics.of_queue(message[0].queue_id)
        topic = found[0].name if found is not None else ""
        headers, _ = read_headers(message[7], 0)
        return {"reason": reason, "group": group.name, "topic": topic, "queue": found[1] if found else 0,
                "offset": message[1], "attempts": message[2], "at_ms": self._leasing.now_ms(),
                "address": self._parts.places.routes.address_of(topic, message[5], headers) if topic else ""}


def deaths_of(headers_encoded: bytes) -> list[dict[str, Any]]:
    """The deaths a message has died, oldest first."""
    return read_deaths(read_headers(headers_encoded, 0)[0]) if HEADER in headers_encoded else []


def read_deaths(headers: Headers) -> list[dict[str, Any]]:
    """The same for headers that are decoded."""
    for name, value in headers:
        if name == HEADER and value is not None:
            try:
                read = json.loads(value)
            except ValueError:
                return []
            return [death for death in read if _is_death(death)] if isinstance(read, list) else []
    return []


def _is_death(read: Any) -> bool:
    """A sender may have made one up."""
    return isinstance(read, dict) and all(type(read.get(name)) is kind for name, kind in _DEATH.items())


def with_death(message: Leased, death: dict[str, Any]) -> bytes:
    """The message's encoded headers, with one more death."""
    headers, _ = read_headers(message[7], 0)
    history = [*deaths_of(message[7]), death][-MAX_HISTORY:]
    others = [header for header in headers if header[0] != HEADER]
    return encode_headers([*others, (HEADER, json.dumps(history).encode())])


def without_deaths(headers_encoded: bytes) -> bytes:
    """The headers a message had before it died."""
    if HEADER not in headers_encoded:
        return headers_encoded
    return encode_headers([one for one in read_headers(headers_encoded, 0)[0] if one[0] != HEADER])


def is_dead(placement: Placement) -> bool:
    """Whether this is a dead-letter queue."""
    return isinstance(placement.light, LightQueue) and placement.light.name.startswith(PREFIX)
