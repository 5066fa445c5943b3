"""The plain values of sessions that cross between doors and kernel."""
from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.message import Handle, Headers

IDS_MAX: Final = 0x7FFF
"""A session gives out packet ids from 1 to this. The ids above are for what a door sends beside it and does not entrust
to it: none of that outlives the connection."""

NEVER: Final = -1
"""Of an expiry: the session waits for its client for ever."""


class Subscribed(NamedTuple):
    """One subscription of a session, as its client asked for it."""

    filter: str                      # may be `$share/GROUP/FILTER`: kept, and of no effect on what waits
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0              # 0: none
    selector: str = ""               # of its messages those that it takes; see `kernel.selectors`


Owed = dict[int, tuple[int, int]]
"""What a filter is owed of before it was there, by partition id: the next offset, and the first that is not owed."""

BY_TIME: Final = 1 << 62
"""In place of a next offset, with a time in ms added: what has at least that time. Which offset that is was not found
yet."""


class Outgoing(NamedTuple):
    """One message that a session hands to its client: durable under its packet id."""

    packet_id: int
    qos: int                         # 1 or 2, or 0 with the packet id 0
    dup: bool                        # it was handed out before, on this connection's forerunner
    retain: bool                     # what its RETAIN flag is to be
    address: str
    value: bytes | None
    headers: Headers
    attributes: int
    timestamp_ms: int
    identifiers: tuple[int, ...]     # of the subscriptions that match


class Entrusted(NamedTuple):
    """A message that a session is to have in flight though it did not wait there."""

    qos: int                         # 1 or 2
    address: str
    identifier: int                  # of the subscription that it came for; 0: none
    headers: bytes                   # as they stand in a record
    value: bytes
    attributes: int
    timestamp_ms: int
    handle: Handle | None = None     # its lease, with QoS 2, where it is a shared group's; None: it is retained


class Released(NamedTuple):
    """A QoS 2 message whose receipt the client has confirmed (PUBREC): it is to be told again to release it."""

    packet_id: int


class SessionListener(Protocol):
    """A connection that has a session, as the kernel knows it. Must not block or raise."""

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        """To be sent now, in this order: their packet ids are durable."""

    def may_have(self, address: str) -> bool:
        """Whether its user may have messages of this address now: others are dropped, counted."""

    def on_session_ended(self, reason: str) -> None:
        """The session is another connection's, or deleted, or a full disk did not take what was told: nothing that is
        told from now on counts. The connection is to be closed."""


class _NoListener:
    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        pass

    def may_have(self, address: str) -> bool:
        return False

    def on_session_ended(self, reason: str) -> None:
        pass


NO_LISTENER: Final = _NoListener()
"""Whom a session tells, and asks, that no connection has any more: `SessionListener`."""


class Will(NamedTuple):
    """What is published when a client's connection breaks."""

    tenant: str
    client_id: str
    user: str                        # with whose rights, as they are when it is published
    address: str
    value: bytes
    headers: bytes                   # as `record.encode_headers` made them
    attributes: int                  # door, RETAIN, TRANSIENT
    delay_ms: int                    # after the connection broke
    expiry_ms: int = 0               # how long it is worth something once it is published; 0: for ever
    timestamp_ms: int = 0            # 0: append time


class SessionDescription(NamedTuple):
    """A session as people see it."""

    tenant: str
    client_id: str
    user: str
    connected: bool
    created_ms: int                  # wall time
    expires_ms: int                  # wall time; 0: while connected, or never
    expiry_ms: int                   # how long it may sleep; NEVER
    subscriptions: list[Subscribed]
    waiting: int                     # messages that nobody has handed to it yet
    in_flight: int
    received: int                    # QoS 2 ids that came in and are not released
    dropped: dict[str, int]          # by reason: limit, expired, denied, lost, age
