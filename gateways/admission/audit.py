"""The topic `audit`: a JSON message for everything that somebody has changed.

    address    $audit/WHO, so that no subscription that begins with a wildcard sees it; in Kafka's words topic `audit`,
               key WHO
    value      {"by": WHO, "door": "http", "peer": "192.0.2.7:50000", "action": "user.created", "at": ms,
                "details": {...}}, never a secret; door and peer are null where nobody came by one

A route of the hub's own leads there; a rule of its own keeps everybody out who is no administrator. What is changed
while no hub runs waits in the database and is written by the next one, with the time at which it happened.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.admission.own_topics import AUDIT_LEVEL, AUDIT_TOPIC
from gatehouse.gateways.admission.patterns import escaped
from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.kernel.errors import KernelError, TopicExists
from gatehouse.kernel.records.batch import encode_headers

if TYPE_CHECKING:
    from gatehouse.kernel.api import HubPort
    from gatehouse.kernel.message import Owner

HEADERS: Final = ((b"content-type", b"application/json"),)
MAX_DETAILS_BYTES: Final = 65_536        # more is cut: a message says so


class Author(NamedTuple):
    """Who changes something, and from where."""

    name: str
    door: str | None = None
    peer: str | None = None


By = str | Author
"""Who changes something; the name alone where nobody came by a door."""


def compose(by: By, action: str, at_ms: int, details: Mapping[str, Any]) -> dict[str, Any]:
    """An audit message as an object of JSON."""
    author = by if isinstance(by, Author) else Author(by)
    return {"by": author.name, "door": author.door, "peer": author.peer, "action": action, "at": at_ms,
            "details": details}


class Audit:
    """Writes the messages; the topic is made with the first."""

    def __init__(self, kernel: HubPort, wall_ms: Callable[[], int], on_failure: Callable[[str], None]) -> None:
        self._kernel = kernel
        self._wall_ms = wall_ms
        self._on_failure = on_failure

    def write(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        """Write an audit message. Never raises: what was changed is changed, and the log of the hub says what could not
        be audited."""
        self.write_message(compose(by, action, self._wall_ms(), details))

    def write_message(self, message: dict[str, Any], owner: Owner | None = None, key: str | None = None) -> None:
        """Write a message that was composed before. `owner` is told when it is durable; the same `key` again writes it
        once."""
        value = json.dumps(message, default=str).encode()
        if len(value) > MAX_DETAILS_BYTES:
            value = json.dumps({**message, "details": {"left_out_bytes": len(value)}}).encode()
        try:
            self._make_topic()
            placement = self._kernel.place(f"{AUDIT_LEVEL}/{escaped(message['by'])}", tenant=DEFAULT_TENANT)
            self._kernel.append([(placement, value, encode_headers(HEADERS), 0, message["at"])], owner, None,
                                idempotency_key=key)
        except KernelError as error:
            self._on_failure(f"{message['by']}: {message['action']} could not be written to the topic {AUDIT_TOPIC}: "
                             f"{error}")

    def _make_topic(self) -> None:
        if self._kernel.topic(AUDIT_TOPIC, tenant=DEFAULT_TENANT) is None:
            try:
                self._kernel.create_topic(AUDIT_TOPIC, partitions=1, tenant=DEFAULT_TENANT)
            except TopicExists:              # made meanwhile, and not yet to be seen
                return
