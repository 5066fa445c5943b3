"""A session that outlives its connection, as a door has it: with the rights of whoever is connected; and wills.

Rights are judged when a filter is subscribed, when a session is resumed, and for each message as it is handed out, also
for one that was in flight before: a session sleeps with no rights of its own (decision 166). Its will, and any other,
is published with the rights that its user has at that time, though he is not connected: none, where nobody may log in
by his name any more.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.principal import ANONYMOUS, Principal
from gatehouse.kernel.errors import KeptFull, KernelError, Stopping, StorageFull
from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.message import Origin
from gatehouse.kernel.records.batch import add_header, encode_header
from gatehouse.kernel.sessions.session_values import NO_LISTENER, Outgoing

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.api import HubPort, SessionPort, SessionsPort
    from gatehouse.kernel.message import Owner
    from gatehouse.kernel.sessions.session_values import Entrusted, Owed, Released, Subscribed, Will


EXPIRES_AT: Final = b"expires-at"
LATER: Final = (StorageFull, KeptFull, Stopping)
"""Refusals that are about the hub, not about the will: it is tried again."""


class SessionConnection(Protocol):
    """The connection, as its session knows it. Must not block or raise."""

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        """To be sent now, in this order."""

    def on_session_ended(self, reason: str) -> None:
        """Nothing that is told from now on counts: close."""


NOTHING_ASKED: Final[dict[str, bool]] = {}
"""Of a session that was handed nothing yet: nobody writes to it."""


class GuardedSession:
    """One session with the rights of whoever is connected. Each call is `api.SessionPort`'s, most of them are it."""

    __slots__ = ("_allowed", "_connection", "_guard", "_port", "_version")

    def __init__(self, guard: Guard, sessions: SessionsPort, connection: SessionConnection, client_id: str, *,
                 clean: bool, expiry_ms: int, window: int, owner: Owner, token: object) -> None:
        """The session of a client id, held until `hold(False)`. Answered once it is durable. Raises SessionRefused,
        TooManySessions, Stopping."""
        self._guard = guard
        self._connection: SessionConnection = connection
        self._version: object = None
        self._allowed = NOTHING_ASKED                # by address, under the rights of now
        self._port: SessionPort = sessions.attach(
            guard.tenant, client_id, guard.logged_in.name, self, clean=clean, expiry_ms=expiry_ms, window=window,
            owner=owner, token=token)
        if self._port.present:
            self.look_again()

    # ---- what the kernel calls

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        if self._version is not self._guard.version:         # decision 336: changed since they were judged
            denied = [message.packet_id for message in messages
                      if isinstance(message, Outgoing) and not self.may_have(message.address)]
            if denied:
                self._port.deny(denied)
                messages = [message for message in messages
                            if not isinstance(message, Outgoing) or self.may_have(message.address)]
        if messages:
            self._connection.on_messages(messages)

    def on_session_ended(self, reason: str) -> None:
        self._connection.on_session_ended(reason)

    def may_have(self, address: str) -> bool:
        if self._version is not self._guard.version:
            self._version = self._guard.version
            self._allowed = {}
        allowed = self._allowed.get(address)
        if allowed is None:
            if len(self._allowed) >= 1_024:
                self._allowed.clear()
            allowed = self._allowed[address] = self._guard.may(Operation.CONSUME, address)
        return allowed

    # ---- filters, with the right to them

    def may_subscribe(self, filter_text: str) -> bool:
        """Whether the client may have this filter now, or a part of it: other filters that begin with `$` are the
        door's own, and its to judge. Raises InvalidFilter."""
        if filter_text.startswith(SHARE):
            return self._guard.groups.may_share(filter_text)
        return filter_text.startswith("$") or self._guard.may_consume_some(filter_text)

    def subscribe(self, subscribed: Subscribed) -> bool:
        """Raises Denied besides."""
        if not self.may_subscribe(subscribed.filter):
            raise Denied(f"{self._guard.logged_in.name} may not consume {subscribed.filter!r}")
        return self._port.subscribe(subscribed)

    def look_again(self) -> list[str]:
        """Rights have changed, or the client was away: end the filters that are no longer allowed. Which those are."""
        ended = [subscribed.filter for subscribed in self._port.subscriptions()
                 if not self.may_subscribe(subscribed.filter)]
        for filter_text in ended:
            self._port.unsubscribe(filter_text)
        return ended

    # ---- the rest

    @property
    def present(self) -> bool:
        return self._port.present

    @property
    def publisher(self) -> bytes:
        return self._port.publisher

    @property
    def in_flight(self) -> int:
        return self._port.in_flight

    def steps(self, packet_ids: Collection[int]) -> set[int]:
        return self._port.steps(packet_ids)

    def received(self) -> list[int]:
        return self._port.received()

    def subscriptions(self) -> list[Subscribed]:
        return self._port.subscriptions()

    def unsubscribe(self, filter: str) -> bool:
        return self._port.unsubscribe(filter)

    def begin_history(self, filter: str, owed: Owed) -> None:
        self._port.begin_history(filter, owed)

    def histories(self) -> dict[str, Owed]:
        return self._port.histories()

    def move_history(self, filter: str, reached: dict[int, int]) -> None:
        self._port.move_history(filter, reached)

    def end_history(self, filter: str) -> None:
        self._port.end_history(filter)

    def flush(self, owner: Owner, token: object) -> None:
        self._port.flush(owner, token)

    def set_window(self, window: int) -> None:
        self._port.set_window(window)

    def hold(self, held: bool) -> None:
        self._port.hold(held)

    def acknowledge(self, packet_ids: Collection[int]) -> list[int]:
        return self._port.acknowledge(packet_ids)

    def deny(self, packet_ids: Collection[int]) -> None:
        self._port.deny(packet_ids)

    def receive(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        return self._port.receive(packet_ids, owner, token)

    def take_in(self, packet_id: int) -> bool:
        return self._port.take_in(packet_id)

    def release(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        return self._port.release(packet_ids, owner, token)

    def entrust(self, messages: Sequence[Entrusted], owner: Owner, token: object) -> list[int]:
        return self._port.entrust(messages, owner, token)

    def owe_retained(self, filter: str, qos: int, start: str | None) -> None:
        self._port.owe_retained(filter, qos, start)

    def owed_retained(self) -> dict[str, tuple[int, str]]:
        return self._port.owed_retained()

    def sleep(self, expiry_ms: int) -> None:
        self._port.sleep(expiry_ms)
        self._connection = NO_LISTENER


class WillPublisher:
    """For `SessionsPort.publish_wills`. What cannot be published is counted, as there is nobody to tell."""

    def __init__(self, kernel: HubPort, admission: Admission, door: str, wall_ms: Callable[[], int]) -> None:
        self._kernel = kernel
        self._wall_ms = wall_ms
        self._admission = admission
        self._door = door
        self._principal = Principal(ANONYMOUS, anonymous=True)     # whose will was the last: the next often is, too

    def publish(self, will: Will) -> bool:
        """Append it in this turn. False: not now."""
        admission = self._admission
        user = self._principal
        if (user.name, user.tenant) != (will.user, will.tenant):
            user = self._principal = Principal(will.user, will.tenant, anonymous=will.user == ANONYMOUS)
        principal = admission.known_by_client(user, will.client_id)
        try:
            if admission.is_gone(will.user):
                raise Denied(f"there is no user {will.user!r} any more")
            placement = admission.place(principal, will.address)
            headers = will.headers
            if will.expiry_ms:
                until_ms = self._wall_ms() + will.expiry_ms
                headers = add_header(headers, encode_header(EXPIRES_AT, b"%d" % until_ms))
            self._kernel.append_with([(placement, will.value, headers, will.attributes, will.timestamp_ms)], [], None,
                                     origin=Origin(self._door, will.user, will.client_id))
        except LATER:
            return False
        except (Denied, KernelError) as error:
            admission.trace.on_event(self._door, "will_" + error.code)
        return True
