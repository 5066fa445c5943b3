"""Half messages over MQTT 3.1.1, which has no words for them but topics:

    PUBLISH    $half/GROUP/ADDRESS       holds a half message; PUBACK when it is durable and seen by nobody
    PUBLISH    $half/GROUP/$id/NAME/ADDRESS        the same transaction, however often it is sent
    PUBLISH    $half/GROUP/$check/AFTER,EVERY,TIMES/ADDRESS        asked about then, in seconds; behind `$id/NAME`
    SUBSCRIBE  $txn/half/GROUP           tells this client alone of its own: {"id", "group", "address", "packet_id"}, or
                                         with "code" and "detail" instead of "id" where it is refused
    SUBSCRIBE  $txn/check/GROUP          makes this client a member: checks, shared among the members of all doors
    PUBLISH    $txn/decide               {"id", "decision": "commit" or "rollback"}; PUBACK when that is durable
    SUBSCRIBE  $txn/decided              tells this client alone what came of its own: {"id", "state"} or {"id", "code"}

GROUP and NAME are one level each. A check or a notice that socket or window have no room for is not kept: a check comes
again, and what became of a transaction can be asked for by deciding again.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.checks import (
    InvalidDecision,
    InvalidHalfName,
    describe_check,
    describe_decided,
    describe_refused,
    read_check_settings,
    read_decision,
    read_half_name,
)
from gatehouse.gateways.mqtt import mapping
from gatehouse.gateways.mqtt.codec import decode_publishes, encode_pubacks, encode_qos0, encode_qos1, packet_id_of
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import (
    AlreadyDecided,
    Busy,
    InvalidCheckBack,
    InvalidDelay,
    InvalidFilter,
    InvalidGroup,
    KernelError,
    UnknownTransaction,
)
from gatehouse.kernel.groups.settings import check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.mqtt.inbox import Inbox
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Stored
    from gatehouse.transactions.coordinator import Check, Membership

_SECONDS: Final = r"[0-9]{1,8}(?:\.[0-9]{1,3})?"
_CHECK_BACK: Final = re.compile(rf"(?P<after>{_SECONDS})?,(?P<every>{_SECONDS})?,(?P<times>[0-9]{{1,5}})?", re.ASCII)
CHECKS_AHEAD: Final = 100              # that a member may be asked and has no room to be told of
NOT_HELD: Final = (Denied, InvalidHalfName, KernelError)
"""Refusals of a half message. Its sender is told of the refusal, whatever else MQTT does about the publish."""

REFUSALS: Final = (InvalidDecision, UnknownTransaction, AlreadyDecided, Busy)
"""Refusals of a decision. Whoever made the decision is told; the client has not broken the protocol."""


class Transacting:
    """The transactions of one client, made when it first uses one of their topics. A `Member`, and the `Owner` of the
    client's decisions.

    A decision of QoS 1 calls `hold`, and `go_on` when it has been answered: its PUBACK has its turn before anything
    that comes behind it.
    """

    def __init__(self, services: Services, inbox: Inbox, outbox: Outbox, tenant: str, name: str,
                 hold: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._services = services
        self._inbox = inbox
        self._outbox = outbox
        self._tenant = tenant
        self._name = name
        self._hold = hold
        self._go_on = go_on
        self._told: dict[str, int] = {}                        # granted QoS by filter
        self._memberships: dict[str, Membership] = {}          # by filter
        self._waiting: list[Check] = []

    # --- half messages -----------------------------------------------------------------------------------------------

    def hold(self, packet: bytes, raw: bytes) -> None:
        """Take a PUBLISH to `$half/GROUP/ADDRESS`. Raises ProtocolError, InvalidGroup; with the client told what
        `_read_half` raises, Denied and what `Transactions.begin` raises."""
        group, written = _split_group(raw)
        packet_id = packet_id_of(packet, 0)
        acks = encode_pubacks([packet_id]) if packet_id else b""
        notice = {"group": group, "name": None, "address": written, "packet_id": int.from_bytes(packet_id, "big")}

        def held(answer: Stored) -> bytes:
            self._tell(mapping.HELD + group, {"id": str(answer.positions[0][2]), **notice})
            return acks

        guard = self._inbox.guard
        try:
            name, asked, delay_ms, address = _read_half(written)
            notice |= {"name": name, "address": address}
            guard.require_group(Operation.TRANSACT, group)
            place = guard.place(address)
            messages: list[Message] = []
            decode_publishes(packet, 0, len(packet), {raw: place}, messages, [])
            checks = None if asked is None else read_check_settings(asked, guard.checks_for(place, group))
            guard.begin([HalfMessage(messages[0], None, delay_ms)], group, checks, name, self._inbox, held, len(packet))
        except NOT_HELD as refused:
            self._tell(mapping.HELD + group, {**notice, "code": refused.code, "detail": str(refused)})
            raise
        self._inbox.expect_answer()

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, packet: bytes, value: bytes) -> None:
        """Take a PUBLISH to `$txn/decide`, whose payload this is."""
        packet_id = packet_id_of(packet, 0)
        acks = encode_pubacks([packet_id]) if packet_id else b""
        try:
            transaction_id, decision = read_decision(value)
        except InvalidDecision as error:
            self._refuse(error.given, error)
            self._inbox.acknowledge_in_turn(acks)
            return
        if decision is None:
            self._inbox.acknowledge_in_turn(acks)
            return
        if acks:
            self._hold()
        self._inbox.guard.decide(transaction_id, decision, self, (transaction_id, decision, acks))

    def on_stored(self, stored: list[Stored]) -> None:
        """Decisions are durable, or refused. What the hub itself cannot do ends the connection: the client comes
        again."""
        for answer in stored:
            assert isinstance(answer.token, tuple)
            transaction_id, decision, acks = answer.token
            if isinstance(answer.error, REFUSALS):
                self._refuse(transaction_id, answer.error)
            elif answer.error is not None:
                self._inbox.refuse(answer.error)
                return
            else:
                self._tell(mapping.DECIDED, describe_decided(transaction_id, decision, answer.append_ms))
            self._inbox.acknowledge_in_turn(acks)
            if acks:
                self._go_on()

    def _refuse(self, transaction_id: int | str | None, error: Exception) -> None:
        document = describe_refused(transaction_id, error)
        self._services.admission.trace.on_event("mqtt", f"decision_{document['code']}")
        self._tell(mapping.DECIDED, document)

    # --- being told --------------------------------------------------------------------------------------------------

    def may_subscribe(self, topic_filter: str) -> bool:
        """Raises InvalidFilter where it is none of the topics above."""
        if topic_filter == mapping.DECIDED:
            return True
        return self._inbox.guard.may_group(Operation.TRANSACT, _group_of(topic_filter))

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Raises InvalidFilter, InvalidGroup."""
        self._told[topic_filter] = qos
        if topic_filter.startswith(mapping.CHECK) and topic_filter not in self._memberships:
            self._memberships[topic_filter] = self._inbox.guard.join_checks(
                _group_of(topic_filter), self, self._name, CHECKS_AHEAD)

    def unsubscribe(self, topic_filter: str) -> None:
        self._told.pop(topic_filter, None)
        membership = self._memberships.pop(topic_filter, None)
        if membership is not None:
            membership.leave()

    def on_checks(self, checks: list[Check]) -> None:
        """Sent as far as window and socket allow; the rest waits for `pump`."""
        self._waiting += checks
        self.pump()

    def pump(self) -> None:
        """Send checks that wait."""
        while self._waiting:
            check = self._waiting[0]
            topic = mapping.CHECK + check.group
            membership = self._memberships.get(topic)
            if membership is not None and not self._tell(topic, describe_check(check, self._names())):
                return
            self._waiting.pop(0)
            if membership is not None:
                membership.add_credit(1)

    def _names(self) -> dict[int, str]:
        return {spec.door: spec.name for spec in self._services.specs}

    def _tell(self, topic: str, document: dict[str, Any]) -> bool:
        """False where there is no room for it. True also where the client did not subscribe to it."""
        qos = self._told.get(topic)
        if qos is None:
            return True
        outbox = self._outbox
        if not outbox.may_send(qos > 0):
            self._services.admission.trace.on_event("mqtt", "notice_dropped")
            return False
        name = topic.encode()
        messages: list[Message] = [(0, orjson.dumps(document), b"\0", 0, 0)]
        field = len(name).to_bytes(2, "big") + name
        if qos:
            outbox.link.write(encode_qos1(field, messages, 0, 1, outbox.window.take(1)))
        else:
            outbox.link.write(encode_qos0(field, messages, 0, 1))
        return True

    def end(self) -> None:
        """The connection is over; what it was asked is asked of others in time."""
        for topic_filter in list(self._told):
            self.unsubscribe(topic_filter)
        self._waiting = []


class HalfTopic(NamedTuple):
    """What a topic name says of a half message of its group."""

    name: str | None
    check: dict[str, float] | None
    delay_ms: int
    address: str


def _split_group(raw: bytes) -> tuple[str, str]:
    """The group, and what is behind it. Raises ProtocolError, InvalidGroup."""
    group, _, written = mapping.decode_topic(raw).removeprefix(mapping.HALF).partition("/")
    check_name(group, "group")
    return group, written


def _read_half(address: str) -> HalfTopic:
    """What is behind the group. Raises InvalidGroup, InvalidHalfName, InvalidCheckBack, InvalidDelay."""
    name: str | None = None
    if address.startswith(mapping.NAMED):
        given, _, address = address.removeprefix(mapping.NAMED).partition("/")
        name = read_half_name(given.encode())
    asked: dict[str, float] | None = None
    if address.startswith(mapping.CHECKED):
        given, _, address = address.removeprefix(mapping.CHECKED).partition("/")
        asked = _read_check(given)
    if not address:
        raise InvalidGroup(f"not written as {mapping.HALF}GROUP/ADDRESS")
    delay_ms = 0
    if address.startswith(mapping.DELAYED):
        parts = mapping.split_delayed(address)
        if parts is None:
            raise InvalidDelay("not written as $delayed/SECONDS/ADDRESS")
        delay_ms, address = parts
    return HalfTopic(name, asked, delay_ms, address)


def _read_check(given: str) -> dict[str, float]:
    """`AFTER,EVERY,TIMES`, each of which may be left out. Raises InvalidCheckBack."""
    match = _CHECK_BACK.fullmatch(given)
    if match is None:
        raise InvalidCheckBack(f"not written as {mapping.CHECKED}AFTER,EVERY,TIMES/")
    read: dict[str, float] = {name: float(match[name]) for name in ("after", "every") if match[name]}
    return read | ({"times": int(match["times"])} if match["times"] else {})


def _group_of(topic_filter: str) -> str:
    """Raises InvalidFilter, InvalidGroup."""
    for prefix in (mapping.CHECK, mapping.HELD):
        if topic_filter.startswith(prefix):
            group = topic_filter.removeprefix(prefix)
            if "/" in group or "+" in group or "#" in group:
                break
            check_name(group, "group")
            return group
    raise InvalidFilter(f"{topic_filter[:200]!r} is none of {mapping.CHECK}GROUP, {mapping.HELD}GROUP, "
                        f"{mapping.DECIDED}")
