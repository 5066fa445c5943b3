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
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gatehouse.gateways.checks import read_half_name
from gatehouse.gateways.half_messages import REFUSALS, Document, HalfClient, HalfListener, HalfWish, HalfWords
from gatehouse.gateways.mqtt import mapping
from gatehouse.gateways.mqtt.codec import packet_id_of
from gatehouse.gateways.mqtt.inbox import count_of
from gatehouse.gateways.mqtt.recalling import Recalling
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import InvalidCheckBack, InvalidDelay, InvalidFilter, InvalidGroup

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.door_side import Pacer
    from gatehouse.gateways.mqtt.inbox import Inbox
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Stored

_SECONDS: Final = r"[0-9]{1,8}(?:\.[0-9]{1,3})?"
_CHECK_BACK: Final = re.compile(rf"(?P<after>{_SECONDS})?,(?P<every>{_SECONDS})?,(?P<times>[0-9]{{1,5}})?", re.ASCII)
WORDS: Final = HalfWords(mapping.HELD, mapping.CHECK, mapping.DECIDED)


class Transacting:
    """The transactions of one client, made when it first uses one of their topics.

    A decision of QoS 1 holds the client: its PUBACK has its turn before anything that comes behind it.
    """

    def __init__(self, services: Services, inbox: Inbox, outbox: Outbox, name: str, pacer: Pacer) -> None:
        self._services = services
        self._inbox = inbox
        self._outbox = outbox
        self._name = name
        self._pacer = pacer
        self._client = HalfClient(inbox.guard, WORDS, self._tell)
        self._listeners: dict[str, HalfListener] = {}          # by filter
        self.recalling: Final = Recalling(services, inbox, pacer)
        """What takes back delayed messages."""

    def hold(self, packet: bytes, raw: bytes) -> None:
        """Take a PUBLISH to `$half/GROUP/ADDRESS`. Raises ProtocolError; with the client told what `HalfClient.hold`
        and `_read_half` raise."""
        group, _, written = mapping.decode_topic(raw).removeprefix(mapping.HALF).partition("/")
        packet_id = packet_id_of(packet, 0)
        about: Document = {"group": group, "name": None, "address": written,
                           "packet_id": int.from_bytes(packet_id, "big")}

        def read() -> HalfWish:
            half = _read_half(written)
            about.update(name=half.name, address=half.address)
            return HalfWish([HalfMessage(self._message(packet, raw, half.address), None, half.delay_ms)], half.name,
                            half.check, len(packet))

        acks: list[bytes] = []

        def held(answer: Stored) -> bytes:
            self._client.tell_held(group, about, answer)
            return acks[0]

        self._client.hold(group, read, about, self._inbox, held)
        acks.append(self._inbox.acks_of(packet))
        self._inbox.expect_answer(count_of(packet[0] >> 1 & 3))

    def _message(self, packet: bytes, raw: bytes, address: str) -> Message:
        """Raises Denied, what `Guard.place` raises."""
        return self._inbox.message_of(packet, raw, self._inbox.guard.place(address, packet))

    def decide(self, packet: bytes, value: bytes) -> None:
        """Take a PUBLISH to `$txn/decide`, whose payload this is."""
        waits = bool(packet_id_of(packet, 0))
        if waits:
            self._pacer.hold()
        self._client.decide(value, partial(self._on_decided, packet if waits else b""))

    def _on_decided(self, packet: bytes, error: Exception | None) -> None:
        """What the hub itself cannot do ends the connection: the client comes again."""
        if error is not None and not isinstance(error, REFUSALS):
            self._inbox.refuse(error)
            return
        if packet:
            self._inbox.acknowledge_in_turn(self._inbox.acks_of(packet, late=True))
            self._pacer.go_on(self._services.now_ms())

    def may_subscribe(self, topic_filter: str) -> bool:
        """Raises InvalidFilter, InvalidGroup where it is none of the topics above."""
        return self._listener(topic_filter, 0).may_listen(self._inbox.guard.principal)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """A client that subscribes again may do so with another QoS. Raises InvalidFilter, InvalidGroup."""
        self.unsubscribe(topic_filter)
        listener = self._listeners[topic_filter] = self._listener(topic_filter, qos)
        listener.join()

    def _listener(self, topic_filter: str, qos: int) -> HalfListener:
        name = topic_filter.encode()
        listener = HalfListener(self._services, WORDS, topic_filter, self._inbox.guard.tenant, self._name,
                                partial(self._send, len(name).to_bytes(2, "big") + name, qos))
        if not {"/", "+", "#"}.isdisjoint(listener.group):
            raise InvalidFilter(f"{topic_filter[:200]!r} does not end with one group, which is one level")
        return listener

    def unsubscribe(self, topic_filter: str) -> None:
        listener = self._listeners.pop(topic_filter, None)
        if listener is not None:
            listener.leave()

    def pump(self) -> None:
        """Send checks that wait."""
        for listener in self._listeners.values():
            listener.pump()

    def _tell(self, topic: str, document: Document) -> bool:
        listener = self._listeners.get(topic)
        return listener is None or listener.send(document)

    def _send(self, field: bytes, qos: int, document: Document) -> bool:
        return self._outbox.send_document(field, qos, orjson.dumps(document))

    def end(self) -> None:
        """The connection is over; what it was asked is asked of others in time."""
        for topic_filter in list(self._listeners):
            self.unsubscribe(topic_filter)


class HalfTopic(NamedTuple):
    """What a topic name says of a half message of its group."""

    name: str | None
    check: dict[str, float] | None
    delay_ms: int
    address: str


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
