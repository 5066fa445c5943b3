"""What one client publishes: where it may go, one append per burst, and the PUBACK packets when it is durable.

PUBACKs leave in the order of the PUBLISH packets [MQTT-4.6.0-2], those of publishes that were not allowed too: MQTT
3.1.1 has no word for no, so they are acknowledged, dropped and counted (3.3.5), or where `on_denied` says so end the
connection. What the hub itself cannot store is
never acknowledged: the connection is closed, and the client sends it again.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.checks import InvalidHalfName
from gatehouse.gateways.mqtt import mapping
from gatehouse.gateways.mqtt.codec import decode_publishes, encode_pubacks, packet_id_of, publish_topic, value_of
from gatehouse.kernel.errors import (
    CreateDenied,
    IdempotencyConflict,
    InvalidAddress,
    InvalidCheckBack,
    InvalidDelay,
    InvalidGroup,
    KernelError,
    MessageTooLarge,
    Stopping,
    TooManyTopics,
    UnknownTopic,
    Unroutable,
)
from gatehouse.kernel.message import Stored, When

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.trace import Trace
    from gatehouse.gateways.contract import Link
    from gatehouse.gateways.mqtt.packets import Will
    from gatehouse.gateways.mqtt.transacting import Transacting
    from gatehouse.kernel.api import Message

DOOR_NAME: Final = "mqtt"
MakesAcks = Callable[[Stored], bytes]
NO_TOPIC: Final = (CreateDenied, TooManyTopics, UnknownTopic)
"""Refusals of a publish whose topic does not exist and is not created for it."""

DENIED: Final = (Denied, Unroutable, *NO_TOPIC)
"""What `on_denied` is about."""

NOT_TAKEN: Final = (*DENIED, InvalidGroup, InvalidHalfName, InvalidAddress, InvalidDelay, IdempotencyConflict,
                    InvalidCheckBack)
"""Refusals of a publish to one of the hub's own topics (a delay, a half message, a decision): the same publish, sent
again, would be refused again."""

LATE_ACKS_MAX: Final = 1000            # bursts of publishes that are not allowed, waiting behind one that is stored


class Inbox:
    """Made when CONNECT is accepted. The switchboard's `Submitter`. `end(reason)` closes the connection."""

    def __init__(self, link: Link, guard: Guard, trace: Trace, end: Callable[[str], None], *,
                 ends_on_denied: bool = False) -> None:
        self.settled = True
        """Whether everything submitted has been answered."""

        self._link = link
        self.guard = guard
        self._trace = trace
        self._end = end
        self._ends_on_denied = ends_on_denied
        self._submitted = 0              # appends that will be answered
        self._answered = 0
        self._late_acks: list[tuple[int, bytes]] = []          # (answers to wait for, acknowledgements)
        self._last_reason = ""           # why to end once everything is answered

    def place(self, data: bytes, pos: int) -> bool:
        """Find out where the topic of the whole PUBLISH at `pos` is stored; False if it may not go anywhere.

        Raises ProtocolError.
        """
        raw = publish_topic(data, pos)
        address = mapping.decode_topic(raw)
        if address.startswith(mapping.RESERVED):
            self._count("publish_reserved")
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
            else:
                raise InvalidAddress(f"topics that begin with {mapping.RESERVED!r} are the hub's")
        except NOT_TAKEN as error:
            self._deny(error)
            packet_id = packet_id_of(packet, 0)
            self.acknowledge_in_turn(encode_pubacks([packet_id]) if packet_id else b"")
        except KernelError as error:
            self.refuse(error)

    def _schedule(self, packet: bytes, raw: bytes) -> None:
        messages: list[Message] = []
        packet_ids: list[bytes] = []
        parts = mapping.split_delayed(mapping.decode_topic(raw))
        if parts is None:
            raise InvalidDelay("not written as $delayed/SECONDS/ADDRESS")
        delay_ms, address = parts
        decode_publishes(packet, 0, len(packet), {raw: self.guard.place(address)}, messages, packet_ids)
        acks = encode_pubacks(packet_ids) if packet_ids else b""
        self.guard.schedule(messages, [When(delay_ms=delay_ms)], self if acks else None, acks, len(packet))
        if acks:
            self.expect_answer()

    def expect_answer(self) -> None:
        """Something was submitted in this name, whose token is its acknowledgements, or what makes them."""
        self._submitted += 1
        self.settled = False

    def skip(self, data: bytes, pos: int, packet_ids: list[bytes]) -> None:
        """Acknowledge the PUBLISH at `pos`, which is dropped."""
        packet_id = packet_id_of(data, pos)
        if packet_id:
            packet_ids.append(packet_id)

    def submit(self, messages: list[Message], packet_ids: list[bytes], size_bytes: int) -> int:
        """Append a burst whose acknowledgements leave with `on_stored`; returns for how many ms to slow down."""
        acks = encode_pubacks(packet_ids) if packet_ids else b""
        if not messages:
            self.acknowledge_in_turn(acks)
            return 0
        return self._append(messages, acks, size_bytes)

    def _append(self, messages: list[Message], acks: bytes, size_bytes: int) -> int:
        try:
            wait_ms = self.guard.append(messages, self if acks else None, acks, size_bytes)
            if acks:
                self.expect_answer()
            return wait_ms
        except MessageTooLarge as error:
            self._append_before_large(messages, size_bytes)
            self.refuse(error)
        except NO_TOPIC as refusal:
            wait_ms = self._append_others(messages, acks, size_bytes, refusal)
            self.guard.forget_places()
            return wait_ms
        except KernelError as error:
            self.guard.forget_places()       # what was placed once may be gone: looked up again by who comes back
            self.refuse(error)
        return 0

    def _append_others(self, messages: list[Message], acks: bytes, size_bytes: int, refusal: KernelError) -> int:
        """Topics were deleted since these messages were placed: those that nobody makes anew are denied."""
        can_be_stored = {place: self.guard.can_be_stored(place) for place in {message[0] for message in messages}}
        kept = [message for message in messages if can_be_stored[message[0]]]
        if len(kept) == len(messages):
            self.refuse(refusal)
            return 0
        self._deny(refusal)
        if self._ends_on_denied:
            return 0
        if kept:
            return self._append(kept, acks, size_bytes)
        self.acknowledge_in_turn(acks)
        return 0

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

    def publish_will(self, will: Will) -> None:
        """[MQTT-3.1.2-8]; rights and places are those of now. What is refused is counted: there is nobody to tell."""
        try:
            place = self.guard.place(mapping.decode_topic(will.topic))
            self.guard.append([mapping.will_message(will, place)], None, None, len(will.payload))
        except (Denied, KernelError) as error:
            self._count("will_" + error.code)

    def _append_before_large(self, messages: list[Message], size_bytes: int) -> None:
        """Nothing of the burst was taken; what stands before its first message that is too large is."""
        for at, (place, value, _, _, _) in enumerate(messages):
            if value is not None and len(value) > self.guard.max_bytes(place):
                if at:
                    self.guard.append(messages[:at], None, None, size_bytes)
                return

    def acknowledge_in_turn(self, acks: bytes) -> None:
        """Send the acknowledgements of a publish of which nothing is stored, after those of the publishes that came
        before it."""
        if self.settled:
            self._link.write(acks)
        elif len(self._late_acks) < LATE_ACKS_MAX:
            self._late_acks.append((self._submitted, acks))
        else:
            self._end("too_many_refused: a flood of publishes that are not allowed, while the disk is slow")

    def refuse(self, error: Exception) -> None:
        """The hub cannot store it: without an acknowledgement, the client comes again."""
        code = error.code if isinstance(error, KernelError) else "internal_error"
        self._count("publish_" + code)
        self._end(f"{code}: {error}")

    def _deny(self, refusal: Exception) -> None:
        """A publish is refused: it is acknowledged and dropped, or ends the connection. `refusal` has a code."""
        code = getattr(refusal, "code", "")
        self._count("publish_denied" if isinstance(refusal, (Denied, CreateDenied)) else "publish_" + code)
        if self._ends_on_denied and isinstance(refusal, DENIED):
            self._end(f"{code}: {refusal}")

    def _count(self, event: str) -> None:
        self._trace.on_event(DOOR_NAME, event)
