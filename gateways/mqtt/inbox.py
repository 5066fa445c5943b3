"""What one client publishes: where it may go, one append per burst, and its PUBACKs and PUBRECs when it is durable.

They leave in the order of the PUBLISH packets [MQTT-4.6.0-2], those of publishes that were not allowed too: MQTT 3.1.1
has no word for no, so they are acknowledged, dropped and counted (3.3.5), or where `on_denied` says so end the
connection; MQTT 5 tells the reason. What the hub itself cannot store is never acknowledged: the connection is closed,
and the client sends it again.

A PUBLISH with QoS 2 is stored once: its packet id is remembered until PUBREL comes, and a repetition is answered with
PUBREC when the first is durable.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import OverQuota
from gatehouse.gateways.checks import InvalidHalfName
from gatehouse.gateways.mqtt import mapping, reasons
from gatehouse.gateways.mqtt.codec import (
    PACKET_IDS,
    PUBACK_SIZE,
    decode_publishes,
    encode_pubacks,
    encode_pubcomps,
    encode_pubrecs,
    packet_id_of,
    plain_ids,
    publish_topic,
    value_of,
)
from gatehouse.gateways.mqtt.errors import InvalidPublish, InvalidRecallPublish, ProtocolError, ReservedTopic
from gatehouse.gateways.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, encode_ack
from gatehouse.gateways.mqtt.recalling import is_recall_key
from gatehouse.kernel.errors import (
    CreateDenied,
    IdempotencyConflict,
    InvalidAddress,
    InvalidCheckBack,
    InvalidDelay,
    InvalidGroup,
    KernelError,
    MessageTooLarge,
    ReceiptDenied,
    Stopping,
    TooManyTopics,
    UnknownTopic,
    Unroutable,
)
from gatehouse.kernel.message import EXACTLY_ONCE, TRANSIENT, Stored, When
from gatehouse.kernel.shedding import QOS_0

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.trace import Trace
    from gatehouse.gateways.contract import Link
    from gatehouse.gateways.mqtt.durable import DurableSession
    from gatehouse.gateways.mqtt.incoming import Incoming, Publish
    from gatehouse.gateways.mqtt.native_publishes import PublishReader
    from gatehouse.gateways.mqtt.outgoing import OwnMessages
    from gatehouse.gateways.mqtt.transacting import Transacting
    from gatehouse.kernel.api import Message

DOOR_NAME: Final = "mqtt"
MakesAcks = Callable[[Stored], bytes]
NO_TOPIC: Final = (CreateDenied, TooManyTopics, UnknownTopic)
"""Refusals of a publish whose topic does not exist and is not created for it."""

NO_RIGHT: Final = (Denied, CreateDenied, ReceiptDenied)

DENIED: Final = (Denied, ReceiptDenied, Unroutable, *NO_TOPIC)
"""What `on_denied` is about."""

NOT_TAKEN: Final = (*DENIED, InvalidRecallPublish, InvalidGroup, InvalidHalfName, InvalidAddress, InvalidDelay,
                    IdempotencyConflict, InvalidCheckBack)
"""Refusals of a publish to one of the hub's own topics (a delay, a half message, a decision): the same publish, sent
again, would be refused again."""

UNKNOWN: Final = -1                    # no packet id that is in use
NO_ACKS: Final[deque[bytes]] = deque() # of who has published nothing: a deque of its own takes 760 bytes
NO_COUNTS: Final[deque[int]] = deque()
NO_IDS: Final[list[bytes]] = []
NO_LATE_ACKS: Final[list[tuple[int, bytes]]] = []
NOT_STORED: Final = (*NOT_TAKEN, InvalidPublish, OverQuota)
"""Refusals after which a publish is not stored: those above, and what only MQTT 5 has words for."""

LATE_ACKS_MAX: Final = 1000            # bursts of publishes that are not allowed, waiting behind one that is stored


class Inbox:
    """Made when CONNECT is accepted. The switchboard's `Submitter`. `end(reason)` closes the connection, `now_ms` is
    wall time."""

    def __init__(self, link: Link, guard: Guard, trace: Trace, end: Callable[[str], None],
                 now_ms: Callable[[], int], slow_down: Callable[[int], None], *, ends_on_denied: bool = False,
                 incoming: Incoming | None = None) -> None:
        self.settled = True
        """Whether everything submitted has been answered."""

        self.received: dict[bytes, int] = {}   # decision 170
        """Packet ids of QoS 2 that are not released, and the number of the submission after which PUBREC leaves."""

        self.own: OwnMessages | None = None
        """Where the offsets of what this client publishes are noted, once it has a filter with no-local."""

        self.incoming = incoming         # MQTT 5 alone
        self.slow_down = slow_down                             # the session's, once a limit was overdrawn
        self.durable: DurableSession | None = None             # keeps packet ids of QoS 2 over connections
        self._taking: list[bytes] = NO_IDS                     # of these, those that are being submitted
        self._under_way: deque[bytes] = NO_ACKS                # acknowledgements of each submission
        self._counts: deque[int] = NO_COUNTS                   # how many those are, MQTT 5 alone
        self._unacknowledged = 0                               # their sum

        self.reader: PublishReader | None = None               # takes what is plain before the session sees it
        self._link = link
        self.guard = guard
        self._now_ms = now_ms
        self._trace = trace
        self._end = end
        self._ends_on_denied = ends_on_denied
        self._submitted = 0              # appends that will be answered
        self._answered = 0
        self._alone = 0                  # the last submission that was not gathered
        self._is_gathered = False        # something was
        self._is_refused = False         # the hub could not store something: the connection ends
        self._late_acks: list[tuple[int, bytes]] = NO_LATE_ACKS    # (answers to wait for, acknowledgements)
        self._last_reason = ""           # why to end once everything is answered

    def keep_ids_in(self, durable: DurableSession) -> None:
        """Packet ids of QoS 2 outlive the connection there."""
        self.durable = durable

    def note_own_in(self, own: OwnMessages) -> None:
        """The client has a filter with no-local: see `own`."""
        self.own = own

    def reader_room(self) -> int:
        """How many publishes of QoS 1 a reader may have under way; 0 where it is to take nothing, as something waits
        that is answered before, or has to be done with each."""
        if self.own is not None or self.durable is not None or self._answered < self._alone or self._late_acks \
                or self._last_reason or self._is_refused or not self._is_gathered:
            return 0
        incoming = self.incoming
        if incoming is None:
            return PACKET_IDS
        return max(0, incoming.receive_maximum - self._unacknowledged - len(self.received))

    def take_over(self, under_way: list[bytes]) -> None:
        """Acknowledgements of what a reader has taken and is not durable yet: it is as if it had come here."""
        for acks in under_way:
            self._submitted += 1
            self._expect(len(acks) // PUBACK_SIZE, acks)

    def place(self, data: bytes, pos: int) -> bool:
        """Find out where the topic of the whole PUBLISH at `pos` is stored; False if it may not go anywhere.

        Raises ProtocolError.
        """
        raw = publish_topic(data, pos)
        address = mapping.decode_topic(raw)
        if address.startswith(mapping.RESERVED) and not address.startswith(mapping.QUEUE):
            self._count("publish_reserved")
            self.guard.note_untold("publish_reserved", "a publish to a topic of the hub's own is dropped")
            return False
        try:
            self.guard.place_raw(raw, address)
        except Stopping as error:      # of a topic that would have to be made: it is not the publish that is wrong
            self.refuse(error)
            return False
        except (Denied, KernelError) as refusal:
            self._deny(refusal)
            return False
        return True

    @staticmethod
    def is_carried_out(data: bytes, pos: int) -> bool:
        """Whether the topic of the whole PUBLISH at `pos` says what is to be done with it."""
        return publish_topic(data, pos).startswith(mapping.CARRIED_OUT)

    def carry_out(self, packet: bytes, transacting: Callable[[], Transacting]) -> None:
        """Take a PUBLISH to be delivered later, a half message, or a decision about some; like any other it is
        acknowledged when it is durable. Raises ProtocolError.
        """
        raw = publish_topic(packet, 0)
        try:
            if raw.startswith(mapping.HALF.encode()):
                transacting().hold(packet, raw)
            elif raw.startswith(mapping.DELAYED.encode()):
                self._schedule(packet, raw)
            elif raw == mapping.DECIDE.encode():
                transacting().decide(packet, value_of(packet))
            elif raw == mapping.RECALL.encode():
                transacting().recalling.recall(packet, value_of(packet))
            else:
                raise InvalidAddress(f"topics that begin with {mapping.RESERVED!r} are the hub's")
        except NOT_TAKEN as error:
            self._deny(error)
            self.acknowledge_in_turn(self.acks_of(packet, late=True))
        except KernelError as error:
            self.refuse(error)

    def _schedule(self, packet: bytes, raw: bytes) -> None:
        messages: list[Message] = []
        parts = mapping.split_delayed(mapping.decode_topic(raw))
        if parts is None:
            raise InvalidDelay("not written as $delayed/SECONDS/ADDRESS")
        delay_ms, written = parts
        key, address = mapping.split_key(written)
        if written != address and not (address and is_recall_key(key)):
            raise InvalidDelay("not written as $delayed/SECONDS/$key/KEY/ADDRESS")
        messages.append(self.message_of(packet, raw, self.guard.place(address, packet)))
        acks = _acks(packet)
        self.slow_down(self.guard.schedule.add(messages, [When(delay_ms=delay_ms, name=key)], self if acks else None,
                                               acks, len(packet)))
        if acks:                       # the packet id of what is refused is free
            self.expect_answer(count_of(packet[0] >> 1 & 3), self.acks_of(packet))

    def message_of(self, packet: bytes, raw: bytes, place: int) -> Message:
        """The message of a whole PUBLISH to the topic `raw`, to be stored at a place. Raises ProtocolError."""
        incoming = self.incoming
        if incoming is not None:
            return incoming.read(packet).message(place)
        messages: list[Message] = []
        decode_publishes(bytes((packet[0] & ~8,)) + packet[1:], 0, len(packet), {raw: place}, messages, [], {}, 0, [])
        return messages[0]

    def acks_of(self, packet: bytes, *, late: bool = False) -> bytes:
        """What acknowledges a whole PUBLISH that is submitted next, by itself, or `late`: not at all; nothing with
        QoS 0. Raises ProtocolError."""
        if packet[0] & 6 == 4:
            packet_id = packet_id_of(packet, 0)
            self.received[packet_id] = self._submitted if late else self.turn
            if not late:
                self._taking = [packet_id]
        return _acks(packet)

    @property
    def turn(self) -> int:
        """The number of the next submission."""
        return self._submitted + 1

    def expect_answer(self, count: int, acks: bytes = b"") -> None:
        """Something was submitted in this name, whose token is its acknowledgements, or what makes them. `count`: of
        QoS 1; what has QoS 2 is in `received`."""
        self._submitted += 1
        self._alone = self._submitted
        self._expect(count, acks)

    def _expect(self, count: int, acks: bytes) -> None:
        if self._taking:                 # in the frame of their messages
            if self.durable is not None:
                self.durable.take_in(self._taking)
            self._taking = NO_IDS
        if self._under_way is NO_ACKS:
            self._under_way = deque()
        self._under_way.append(acks)
        self.settled = False
        if self.incoming is not None:
            if self._counts is NO_COUNTS:
                self._counts = deque()
            self._counts.append(count)
            self._unacknowledged += count

    def skip(self, data: bytes, pos: int, packet_ids: list[bytes], exact_ids: list[bytes]) -> None:
        """Acknowledge the PUBLISH at `pos`, which is dropped."""
        packet_id = packet_id_of(data, pos)
        if packet_id and data[pos] & 6 == 2:
            packet_ids.append(packet_id)
        elif packet_id:
            if packet_id not in self.received:
                self.received[packet_id] = self.turn
            exact_ids.append(packet_id)

    # --- a PUBLISH that was sent before ------------------------------------------------------------------------------

    def repeat(self, packet_id: bytes) -> None:
        """A PUBLISH with QoS 2 has come again [MQTT-4.3.3-2]: where the first is durable it is answered once more."""
        if self.received[packet_id] <= self._answered:
            self.acknowledge_in_turn(encode_pubrecs([packet_id]))

    def is_under_way(self, packet_id: bytes) -> bool:
        """Whether a PUBLISH with QoS 1 and this id waits for its PUBACK: one that repeats it is the same message; once
        PUBACK was handed to the socket it would be another [MQTT-4.3.2-5]."""
        ack = encode_pubacks([packet_id])
        return any(_holds(acks, ack) for acks in self._under_way)

    def release(self, data: bytes, pos: int, size: int) -> int:
        """Take the PUBREL packets from `pos` on, the first of which has this size; returns the position behind them.
        Raises ProtocolError."""
        packet_ids = plain_ids(data, pos, PUBREL)
        if not packet_ids:
            return pos + size
        pos += len(packet_ids) * PUBACK_SIZE
        self.release_ids(packet_ids)
        return pos

    def release_ids(self, packet_ids: list[bytes]) -> None:
        """The client will not send these again: their ids are free. Raises ProtocolError."""
        received = self.received
        parts: list[bytes] = []
        is_early = False
        for at, packet_id in enumerate(packet_ids):
            number = received.pop(packet_id, UNKNOWN)
            if number > self._answered:
                is_early, packet_ids = True, packet_ids[:at]       # those before it count
                break
            parts.append(encode_pubcomps([packet_id]) if number != UNKNOWN or self.incoming is None
                         else encode_ack(PUBCOMP, packet_id, reasons.ID_NOT_FOUND))
        if self.durable is None:
            self._link.write(b"".join(parts))
        elif packet_ids:
            self.durable.release(packet_ids, b"".join(parts))
        if is_early:
            raise ProtocolError("[MQTT-4.3.3-1] a PUBREL before its PUBREC")

    # --- storing -----------------------------------------------------------------------------------------------------

    def submit(self, messages: list[Message], packet_ids: list[bytes], exact_ids: list[bytes], size_bytes: int) -> int:
        """Append a burst whose acknowledgements leave with `on_stored`; returns for how many ms to slow down. Raises
        ProtocolError for more than the client may have under way."""
        if self.guard.shedding.level >= QOS_0:
            messages = self._without_qos_0(messages)
            if not messages and not packet_ids and not exact_ids:
                return 0
        acks = encode_pubacks(packet_ids) if packet_ids else b""
        if exact_ids:
            acks += encode_pubrecs(exact_ids)
        if acks:
            self.check_under_way(len(packet_ids))
        if not messages:
            for packet_id in exact_ids:
                self.received[packet_id] = self._submitted
            self.acknowledge_in_turn(acks)
            return 0
        if self.durable is not None:
            messages = self.durable.marked(messages)
        # What was submitted otherwise is answered in its turn, and what is gathered behind it must not be before.
        if not exact_ids and self._answered >= self._alone and self.own is None \
                and self.guard.gather(messages, self, acks or None, size_bytes, refuses=self.incoming is not None):
            self._is_gathered = True
            if acks:
                self._submitted += 1
                self._expect(len(packet_ids), acks)
            return self.guard.gathered_wait_ms
        self._taking = exact_ids
        if self.incoming is None or len(packet_ids) != len(messages) != len(exact_ids):
            return self._append(messages, acks, size_bytes, len(packet_ids))
        try:
            return self._append(messages, acks, size_bytes, len(packet_ids), refuses=True)
        except OverQuota as refusal:
            return self._append_within(messages, packet_ids, exact_ids, size_bytes, refusal)

    def _append_within(self, messages: list[Message], packet_ids: list[bytes], exact_ids: list[bytes], size_bytes: int,
                       refusal: OverQuota) -> int:
        """Some topics refuse what is too much: those messages are answered so, the others taken. All are of one QoS."""
        self._count("publish_over_quota", len([message for message in messages if message[0] in refusal.places]))
        reason = reasons.reason_of(refusal.code)
        text = str(refusal) if self._tells else ""
        refused: list[bytes] = []
        kept: list[int] = []
        for at, packet_id in enumerate(packet_ids or exact_ids):
            if messages[at][0] not in refusal.places:
                kept.append(at)
                continue
            if exact_ids:
                self.received.pop(packet_id, None)
            refused.append(encode_ack(PUBREC if exact_ids else PUBACK, packet_id, reason, text))
        self.acknowledge_in_turn(b"".join(refused))
        if not kept:
            self._taking = NO_IDS
            return 0
        return self.submit([messages[at] for at in kept], [packet_ids[at] for at in kept] if packet_ids else [],
                           [exact_ids[at] for at in kept] if exact_ids else [], size_bytes * len(kept) // len(messages))

    def _without_qos_0(self, messages: list[Message]) -> list[Message]:
        """What is to be acknowledged: the rest may be lost, and is, as the hub has too much to do."""
        kept = [message for message in messages if not message[3] & TRANSIENT]
        dropped = len(messages) - len(kept)
        if dropped:
            self.guard.shedding.counts[QOS_0] += dropped
            self._count("publish_overloaded", dropped)
            self.guard.note_untold("publish_overloaded", "publishes of QoS 0 are dropped: the hub has too much to do")
        return kept

    def check_under_way(self, more: int) -> None:
        """Raises ProtocolError where an MQTT 5 client has more under way than it may, with so many of QoS 1 that are
        not submitted yet."""
        incoming = self.incoming
        if incoming is not None:
            under_way = self._unacknowledged + more + len(self.received)
            if under_way > incoming.receive_maximum:
                raise ProtocolError(f"[MQTT5-3.3.4-7] {under_way} PUBLISH packets under way", reasons.RECEIVE_MAXIMUM)

    def _append(self, messages: list[Message], acks: bytes, size_bytes: int, count: int, *, refuses: bool = False
                ) -> int:
        """Raises OverQuota where it may refuse."""
        try:
            if self.own is not None:
                wait_ms = self.guard.append(messages, self, partial(self._note_own, acks), size_bytes, positions=True,
                                            refuses=refuses)
                self.expect_answer(count, acks)
                return wait_ms
            wait_ms = self.guard.append(messages, self if acks else None, acks, size_bytes, refuses=refuses)
            if acks:
                self.expect_answer(count, acks)
            return wait_ms
        except MessageTooLarge as error:
            self._append_before_large(messages, size_bytes)
            self.refuse(error)
        except NO_TOPIC as refusal:
            wait_ms = self._append_others(messages, acks, size_bytes, count, refusal)
            self.guard.forget_places()
            return wait_ms
        except OverQuota as error:
            if refuses:
                raise
            self.refuse(error)               # a limit of nothing, and no word to say so
        except KernelError as error:
            self.guard.forget_places()       # what was placed once may be gone: looked up again by who comes back
            self.refuse(error)
        return 0

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        """See `door_side.Gatherer`. The part has its place among the submissions, so that it is answered in any case,
        unless the connection ends."""
        if self._is_refused:
            return False
        owner = None if token is None else self
        try:
            guard.append(messages, owner, token, size_bytes, was_gathered=True)
            return False
        except MessageTooLarge as error:
            self._append_before_large(messages, size_bytes, was_gathered=True)
            self.refuse(error)
            return False
        except NO_TOPIC as refusal:
            can_be_stored = {message[0]: guard.can_be_stored(message[0]) for message in messages}
            kept = [message for message in messages if can_be_stored[message[0]]]
            if len(kept) == len(messages):
                self.refuse(refusal)
                return True
            self._deny(refusal)
            if not self._is_refused:
                self._append_kept(kept, owner, token if owner is None else self._told_apart(
                    messages, cast(bytes, token), can_be_stored, refusal), size_bytes)
        except KernelError as error:
            self.refuse(error)
        return True

    def _append_kept(self, messages: list[Message], owner: Inbox | None, token: object, size_bytes: int) -> None:
        try:
            if messages or owner is not None:
                self.guard.append(messages, owner, token, size_bytes, was_gathered=True)
        except KernelError as error:
            self.refuse(error)

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """See `door_side.Gatherer`."""
        if error is not None or self._late_acks or self._last_reason:
            self.on_stored([Stored(token, error, 0, [])])
            return False
        self._answered += 1
        self._under_way.popleft()
        if self._counts:
            self._unacknowledged -= self._counts.popleft()
        self.settled = self._answered == self._submitted
        self._link.write(cast(bytes, token))
        return False

    def on_all_gathered(self) -> None:
        """See `door_side.Gatherer`: each part has its own acknowledgements."""

    def _note_own(self, acks: bytes, answer: Stored) -> bytes:
        if self.own is not None:
            self.own.note(answer.positions)
        return acks

    def _append_others(self, messages: list[Message], acks: bytes, size_bytes: int, count: int, refusal: KernelError
                       ) -> int:
        """Topics were deleted since these messages were placed: those that nobody makes anew are denied."""
        can_be_stored = {place: self.guard.can_be_stored(place) for place in {message[0] for message in messages}}
        kept = [message for message in messages if can_be_stored[message[0]]]
        if len(kept) == len(messages):
            self.refuse(refusal)
            return 0
        self._deny(refusal)
        if self._ends_on_denied:
            return 0
        acks = self._told_apart(messages, acks, can_be_stored, refusal)
        if kept:
            return self._append(kept, acks, size_bytes, count)
        self._taking = NO_IDS
        for packet_id, number in self.received.items():
            if number > self._submitted:
                self.received[packet_id] = self._submitted
        self.acknowledge_in_turn(acks)
        return 0

    def _told_apart(self, messages: list[Message], acks: bytes, can_be_stored: dict[int, bool], refusal: KernelError
                    ) -> bytes:
        """The acknowledgements of a burst (`acks`) of which some messages are not stored: MQTT 5 is told which."""
        reason, parts = reasons.reason_of(refusal.code), list[bytes]()
        if self.incoming is None:
            return acks
        text = str(refusal) if self._tells and reason >= reasons.FAILURE else ""
        for first, mask in ((PUBACK, 0), (PUBREC, EXACTLY_ONCE)):
            for place, _, _, attributes, _ in messages:
                if attributes & (TRANSIENT | EXACTLY_ONCE) != mask:
                    continue
                ack, acks = acks[:PUBACK_SIZE], acks[PUBACK_SIZE:]
                if not can_be_stored[place]:
                    if first == PUBREC and reason >= reasons.FAILURE:      # its packet id is free
                        self.received.pop(ack[2:], None)
                        self._taking = [packet_id for packet_id in self._taking if packet_id != ack[2:]]
                    ack = encode_ack(first, ack[2:], reason, text)
                parts.append(ack)
        return b"".join(parts)

    # --- MQTT 5 ------------------------------------------------------------------------------------------------------

    def take(self, publish: Publish, messages: list[Message], packet_ids: list[bytes], exact_ids: list[bytes]) -> bool:
        """Add an MQTT 5 PUBLISH that was read by itself to a burst; False where it cannot be: it is to be submitted, or
        refused, by itself (`take_alone`)."""
        if publish.is_alone:
            return False
        address = publish.address
        try:
            if publish.receipt is not None:
                self.guard.require_receipt(publish.receipt)
            place = self.guard.places.get(publish.raw)
            if place is None:
                if not self.guard.may(Operation.PUBLISH, address):
                    return False                               # `take_alone` hears why, once
                place = self.guard.place_raw(publish.raw, address)
        except (Denied, KernelError):
            return False
        if publish.packet_id and publish.qos == 2:
            self.received[publish.packet_id] = self.turn
            exact_ids.append(publish.packet_id)
        elif publish.packet_id:
            packet_ids.append(publish.packet_id)
        messages.append(publish.message(place))
        return True

    def take_alone(self, publish: Publish, packet: bytes, transacting: Callable[[], Transacting]) -> None:
        """Take an MQTT 5 PUBLISH to be delivered later, a half message, a decision, or one that is refused: everything
        that came before it is submitted. Raises ProtocolError."""
        try:
            if publish.raw.startswith(mapping.HALF.encode()):
                transacting().hold(packet, publish.raw)
            elif publish.raw == mapping.DECIDE.encode():
                transacting().decide(packet, publish.value)
            elif publish.raw == mapping.RECALL.encode():
                transacting().recalling.recall(packet, publish.value)
            elif publish.raw.startswith(mapping.DELAYED.encode()):
                self._schedule(packet, publish.raw)
            elif publish.when is not None:
                self._schedule_when(publish, packet, publish.when)
            elif publish.refusal is not None:
                raise publish.refusal
            else:                                              # refused, as `take` has found
                if publish.receipt is not None:
                    self.guard.require_receipt(publish.receipt)
                self.guard.place(publish.address, packet)
                raise InvalidAddress(f"{publish.address[:100]!r} could not be stored a moment ago")
        except NOT_STORED as error:
            self._deny(error)
            says_why = not isinstance(error, ReservedTopic)    # decision 344
            self.answer_no(publish, error.code, str(error) if says_why else "")
        except KernelError as error:
            self.refuse(error)

    def _schedule_when(self, publish: Publish, packet: bytes, when: When) -> None:
        """PUBACK names the id by which the message can be recalled."""
        place = self.guard.place(publish.address, packet)
        self.slow_down(self.guard.schedule.add([publish.message(place)], [when], self,
                                               partial(self._scheduled, publish), len(publish.value),
                                               refuses=publish.packet_id != b""))
        if publish.qos == 2:
            self.received[publish.packet_id] = self.turn
            self._taking = [publish.packet_id]
        self.expect_answer(count_of(publish.qos))

    def _scheduled(self, publish: Publish, answer: Stored) -> bytes:
        if not publish.packet_id:
            return b""
        message_id = str(answer.positions[0][2]) if answer.positions else ""
        return encode_ack(PUBACK if publish.qos == 1 else PUBREC, publish.packet_id, reasons.SUCCESS, "",
                          [("id", message_id)] if message_id and self._tells else None)

    def answer_late(self, packet: bytes, error: Exception | None) -> None:
        """Acknowledge a whole PUBLISH that was carried out apart, in its turn; `error`: why it came to nothing, which
        only MQTT 5 can be told."""
        if error is not None:
            self._deny(error)
        if not packet_id_of(packet, 0):
            return
        acks = self.acks_of(packet, late=True)
        if error is not None and self.incoming is not None:
            reason = reasons.reason_of(getattr(error, "code", ""))
            first = PUBACK if packet[0] & 6 == 2 else PUBREC
            if first == PUBREC:
                self.received.pop(packet_id_of(packet, 0), None)
            acks = encode_ack(first, packet_id_of(packet, 0), reason, str(error) if self._tells else "")
        self.acknowledge_in_turn(acks)

    def answer_no(self, publish: Publish, code: str, text: str) -> None:
        """Say why an MQTT 5 PUBLISH is not stored, in its turn; nobody is told with QoS 0."""
        if not publish.packet_id:
            return
        reason = reasons.reason_of(code)
        if reason < reasons.FAILURE and publish.qos == 2:      # its sender goes on with PUBREL
            self.received[publish.packet_id] = self._submitted
        self.acknowledge_in_turn(encode_ack(PUBACK if publish.qos == 1 else PUBREC, publish.packet_id, reason,
                                            text if self._tells and reason >= reasons.FAILURE else ""))

    @property
    def _tells(self) -> bool:
        """Whether the client wants more than reason codes (3.1.2.11.7)."""
        return self.incoming is not None and self.incoming.tells

    # --- what became of it -------------------------------------------------------------------------------------------

    def on_stored(self, stored: list[Stored]) -> None:
        try:
            self._acknowledge(stored)
        except Exception:
            self._end("internal_error: acknowledging failed")      # the kernel logs it
            raise

    def _acknowledge(self, stored: list[Stored]) -> None:
        acks: list[bytes] = []
        late = self._late_acks
        for answer in stored:
            self._answered += 1
            self._under_way.popleft()
            if self._counts:
                self._unacknowledged -= self._counts.popleft()
            if answer.error is not None:
                self.refuse(answer.error)
                return
            token = answer.token
            acks.append(token if isinstance(token, bytes) else cast(MakesAcks, token)(answer))
            while late and late[0][0] <= self._answered:
                acks.append(late.pop(0)[1])
        self.settled = self._answered == self._submitted
        self._link.write(acks[0] if len(acks) == 1 else b"".join(acks))
        if self._last_reason and self.settled:
            self._end(self._last_reason)

    def end_when_settled(self, reason: str) -> None:
        """Nothing more is submitted: end the connection when the last acknowledgement has left."""
        self._last_reason = reason

    def _append_before_large(self, messages: list[Message], size_bytes: int, was_gathered: bool = False) -> None:
        """Nothing of the burst was taken; what stands before its first message that is too large is."""
        if self.durable is not None and self._taking:          # all of it comes again, with the same packet ids
            return
        for at, (place, value, _, _, _) in enumerate(messages):
            if value is not None and len(value) > self.guard.max_bytes(place):
                if at:
                    self.guard.append(messages[:at], None, None, size_bytes, was_gathered=was_gathered)
                return

    def acknowledge_in_turn(self, acks: bytes) -> None:
        """Send the acknowledgements of a publish of which nothing is stored, after those of the publishes that came
        before it."""
        if self.settled:
            self._link.write(acks)
        elif len(self._late_acks) < LATE_ACKS_MAX:
            if self._late_acks is NO_LATE_ACKS:
                self._late_acks = []
            self._late_acks.append((self._submitted, acks))
        else:
            self._end("too_many_refused: a flood of publishes that are not allowed, while the disk is slow")

    def refuse(self, error: Exception) -> None:
        """The hub cannot store it: without an acknowledgement, the client comes again."""
        self._is_refused = True
        code = error.code if isinstance(error, KernelError) else "internal_error"
        self._count("publish_" + code)
        self._end(f"{code}: {error}")

    def _deny(self, refusal: Exception) -> None:
        """A publish is refused: it is acknowledged and dropped, or ends the connection. `refusal` has a code."""
        code = getattr(refusal, "code", "")
        self._count("publish_denied" if isinstance(refusal, NO_RIGHT) else "publish_" + code)
        if self.incoming is None and not isinstance(refusal, Denied):      # which admission has noted
            self.guard.note_untold("publish_" + code, f"a publish is acknowledged and dropped: {refusal}")
        if self._ends_on_denied and isinstance(refusal, DENIED):
            self._is_refused = True
            self._end(f"{code}: {refusal}")

    def _count(self, event: str, amount: int = 1) -> None:
        self._trace.on_event(DOOR_NAME, event, amount)


def count_of(qos: int) -> int:
    """What one publish counts in what is unacknowledged: see `Inbox.expect_answer`."""
    return 1 if qos == 1 else 0


def _acks(packet: bytes) -> bytes:
    """What acknowledges a whole PUBLISH; nothing with QoS 0. Raises ProtocolError."""
    packet_id = packet_id_of(packet, 0)
    if not packet_id:
        return b""
    return encode_pubacks([packet_id]) if packet[0] & 6 == 2 else encode_pubrecs([packet_id])


def _holds(acks: bytes, ack: bytes) -> bool:
    """Whether `ack` is among these packets of four bytes each."""
    at = acks.find(ack)
    while at % PUBACK_SIZE and at > 0:
        at = acks.find(ack, at + 1)
    return at >= 0
