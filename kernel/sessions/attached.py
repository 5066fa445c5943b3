"""A session in the hands of one connection: reads what waits, gives packet ids, hands out what is durable.

    again     what was in flight when the connection came, in its order, with DUP
    fresh     read ──► judged ──► a packet id ──► [durable] ──► the listener

One piece of what waits is on its way at a time; a client that does not read has none in memory.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.errors import OffsetOutOfRange, Stopping
from gatehouse.kernel.message import EXACTLY_ONCE, RETAIN, TRANSIENT, Fetched, Headers, Owner, Record, Stored
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.records.batch import MARK, encode_header, read_headers, sound_records
from gatehouse.kernel.records.headers import expires_at
from gatehouse.kernel.sessions.entrusted import Entrusting
from gatehouse.kernel.sessions.keeper import Keeper
from gatehouse.kernel.sessions.session import OF_FLIGHT, OF_RECEIVED, Session, waits_for
from gatehouse.kernel.sessions.session_records import ENTRUSTED_STEPS, OPEN, RELEASED_2, SENT_2, Stint, partition_key
from gatehouse.kernel.sessions.session_values import (
    IDS_MAX,
    NO_LISTENER,
    Entrusted,
    Outgoing,
    Owed,
    Released,
    SessionListener,
    Subscribed,
)

READ_BYTES: Final = 256 << 10          # of what waits, in memory for one connection
ADDRESSES_MAX: Final = 1_024           # whose filters are remembered
READ_AGAIN_MS: Final = 1_000           # a read that failed is tried again after this

PUBLISHER: Final = MARK + b"by"
"""The private header of a message whose client has a filter with no-local: partition id of its session."""


NOTHING: Final[deque[Any]] = deque()
"""What is read ahead, and comes again, of a client that is up to date: a deque of its own takes 760 bytes."""

NO_IDS: Final[set[int]] = set()

NO_STINTS_KNOWN: Final[dict[str, list[Stint]]] = {}
"""Of a client that nothing was handed out to yet: nobody writes to it."""


class Hub(Protocol):
    """What an attached session needs of those around it."""

    @property
    def keeper(self) -> Keeper: ...

    @property
    def entrusting(self) -> Entrusting: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def keeps_transient(self) -> bool:
        """Whether messages wait that their senders asked no durability of."""

    def is_too_old(self, timestamp_ms: int) -> bool:
        """Whether a message has waited longer than one may."""

    def end_of(self, partition_id: int) -> int:
        """The offset behind the last message that waits."""

    def read(self, partition_id: int, offset: int, max_bytes: int, on_done: Callable[[Fetched], None]) -> None:
        """What waits, kept or not."""

    def soon(self, attached: Attached) -> None:
        """Call its `pump` when its turn comes."""

    def subscribe(self, session: Session, subscribed: Subscribed) -> bool: ...

    def unsubscribe(self, session: Session, filter_text: str) -> bool: ...

    def begin_history(self, session: Session, filter_text: str, owed: Owed) -> None: ...

    def move_history(self, session: Session, filter_text: str, reached: dict[int, int]) -> None: ...

    def drop(self, session: Session, reason: str, count: int = 1) -> None:
        """It is not given so many messages."""

    def let_go(self, session: Session, expiry_ms: int) -> None:
        """Its connection has ended."""


class Attached:
    """A session in the hands of one connection: an `api.SessionPort`."""

    __slots__ = ("_again", "_ahead", "_entrusted", "_held", "_hub", "_matching", "_over", "_present",
                 "_read_to", "_reading", "_storing", "_window", "listener", "session")

    def __init__(self, hub: Hub, session: Session, listener: SessionListener, window: int, present: bool) -> None:
        self.session = session
        self.listener: SessionListener = listener
        self._hub = hub
        self._present = present
        self._window = min(window, IDS_MAX)
        self._held = True
        self._over = False
        self._reading = False
        self._storing = False                    # messages have packet ids that are not durable
        self._again: deque[int] = deque(session.flight) if session.flight else NOTHING
        self._ahead: deque[Record] = NOTHING     # read, and not judged yet
        self._read_to = 0                        # the offset behind them
        self._matching = NO_STINTS_KNOWN
        self._entrusted = NO_IDS
        if session.flight:
            self._entrusted = {packet_id for packet_id in session.flight if session.has_entrusted(packet_id)}

    @property
    def present(self) -> bool:
        return self._present

    @property
    def publisher(self) -> bytes:
        session = self.session
        return encode_header(PUBLISHER, partition_key(session.partition_id)) if session.has_no_local else b""

    @property
    def in_flight(self) -> int:
        return self.session.in_flight

    def steps(self, packet_ids: Collection[int]) -> set[int]:
        return self.session.steps(packet_ids)

    def received(self) -> list[int]:
        return list(self.session.received or ())

    def end(self, reason: str) -> None:
        """The session is not this connection's any more."""
        if not self._over:
            self._over = True
            self._again.clear()
            self._ahead.clear()
            listener, self.listener = self.listener, NO_LISTENER
            listener.on_session_ended(reason)

    # ---- filters

    def subscriptions(self) -> list[Subscribed]:
        return self.session.subscriptions()

    def subscribe(self, subscribed: Subscribed) -> bool:
        if self._over:
            return False
        self._matching = NO_STINTS_KNOWN
        return self._hub.subscribe(self.session, subscribed)

    def unsubscribe(self, filter: str) -> bool:
        if self._over:
            return False
        self._matching = NO_STINTS_KNOWN
        return self._hub.unsubscribe(self.session, filter)

    # ---- histories

    def begin_history(self, filter: str, owed: Owed) -> None:
        if not self._over:
            self._hub.begin_history(self.session, filter, owed)

    def histories(self) -> dict[str, Owed]:
        return {name: terms.owed for name, terms in (self.session.terms or {}).items() if terms.owed}

    def move_history(self, filter: str, reached: dict[int, int]) -> None:
        if not self._over:
            self._hub.move_history(self.session, filter, reached)

    def end_history(self, filter: str) -> None:
        terms = self.session.terms_of(filter)
        if not self._over and terms is not None:
            terms.waits = False
            self._hub.soon(self)

    def flush(self, owner: Owner, token: object) -> None:
        self._hub.keeper.answer(owner, token)

    # ---- pace

    def set_window(self, window: int) -> None:
        self._window = min(window, IDS_MAX)
        self._hub.soon(self)

    def hold(self, held: bool) -> None:
        self._held = held
        if held:
            self._ahead.clear()              # read again when the client reads
        else:
            self._hub.soon(self)

    @property
    def _room(self) -> int:
        """How many more may be sent."""
        return self._window - self.session.in_flight + len(self._again)

    # ---- what the client says

    def acknowledge(self, packet_ids: Collection[int]) -> list[int]:
        if self._over:
            return list(packet_ids)
        if self._entrusted and not self._entrusted.isdisjoint(packet_ids):
            packet_ids = self._let_go(packet_ids)
        unknown = self.session.acknowledge(packet_ids)
        if len(unknown) < len(packet_ids):
            self._hub.keeper.touch_lazily(self.session, OF_FLIGHT)
            self.on_left()
        return unknown

    def deny(self, packet_ids: Collection[int]) -> None:
        if not self._over:
            self._hub.drop(self.session, "denied", len(packet_ids))
            self.acknowledge([packet_id for packet_id in packet_ids if packet_id])

    def on_left(self) -> None:
        """Something of what was in flight is done with."""
        if self._again:
            flight = self.session.flight or {}
            self._again = deque([packet_id for packet_id in self._again if packet_id in flight])
        self._hub.soon(self)

    def receive(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        if self._over:
            return list(packet_ids)
        keeper = self._hub.keeper
        frame = keeper.touch(self.session, OF_FLIGHT)
        if self._entrusted:
            self._hub.entrusting.receive(self.session, packet_ids)
            self._entrusted.difference_update(packet_ids)
        unknown = self.session.receive(packet_ids)
        frame.answer(owner, token)
        return unknown

    def take_in(self, packet_id: int) -> bool:
        if self._over:
            return False
        keeper = self._hub.keeper
        keeper.touch(self.session, OF_RECEIVED)
        return self.session.take_in(packet_id)

    def release(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        if self._over:
            return list(packet_ids)
        frame = self._hub.keeper.touch(self.session, OF_RECEIVED)
        unknown = self.session.release(packet_ids)
        frame.answer(owner, token)
        return unknown

    # ---- what was entrusted to it

    def entrust(self, messages: Sequence[Entrusted], owner: Owner, token: object) -> list[int]:
        if self._over:
            return [0] * len(messages)
        packet_ids = self._hub.entrusting.entrust(self.session, messages, owner, token)
        if self._entrusted is NO_IDS:
            self._entrusted = set()
        self._entrusted.update(packet_ids)
        return packet_ids

    def _let_go(self, packet_ids: Collection[int]) -> Collection[int]:
        """Which of these are done with."""
        try:
            free = self._hub.entrusting.let_go(self.session, packet_ids)
        except Stopping:                         # the next start finds them in flight
            return [packet_id for packet_id in packet_ids if packet_id not in self._entrusted]
        self._entrusted.difference_update(packet_ids)
        return free

    def owe_retained(self, filter: str, qos: int, start: str | None) -> None:
        if not self._over:
            self._hub.entrusting.owe_retained(self.session, filter, qos, start)

    def owed_retained(self) -> dict[str, tuple[int, str]]:
        return dict(self._hub.entrusting.owed_retained(self.session))

    def sleep(self, expiry_ms: int) -> None:
        if not self._over:
            self._over = True
            self._again.clear()
            self._ahead.clear()
            self.listener = NO_LISTENER
            self._hub.let_go(self.session, expiry_ms)

    # ---- handing out

    def pump(self) -> None:
        """Read the next piece, where there is room for it."""
        session = self.session
        if self._over or self._held or self._reading or self._storing:
            return
        if self._again:
            self._hand_again()
        elif self._ahead:
            if self._room > 0 and self._ahead[0][0] < session.held_from:
                self._hand_fresh()
        elif self._room > 0 and session.following < min(self._hub.end_of(session.partition_id), session.held_from):
            self._read(session.following, self._fresh)

    def _read(self, offset: int, on_done: Callable[[Fetched], None]) -> None:
        self._reading = True

        def done(answer: Fetched) -> None:
            self._reading = False
            if self._over:
                return
            if answer.error is not None and not isinstance(answer.error, OffsetOutOfRange):
                self._hub.loop.call_at(self._hub.loop.now_ms() + READ_AGAIN_MS, self.pump)
                return
            on_done(answer)

        self._hub.read(self.session.partition_id, offset, READ_BYTES, done)

    # ---- again

    def _hand_again(self) -> None:
        """What was in flight when the connection came: what is released needs no message."""
        flight, again = self.session.flight or {}, self._again
        messages: list[Outgoing | Released] = []
        lost: list[int] = []
        while again and self._room > 0:
            packet_id = again[0]
            step = flight[packet_id][1]
            if step == RELEASED_2:
                messages.append(Released(packet_id))
            elif step in ENTRUSTED_STEPS:
                outgoing = self._entrusted_again(packet_id)
                if outgoing is None:
                    lost.append(packet_id)
                else:
                    messages.append(outgoing)
            else:
                break
            again.popleft()
        if lost:
            self.acknowledge(lost)
        if messages:
            self.listener.on_messages(messages)
            self._hub.soon(self)
        elif again and self._room > 0:
            self._read(flight[again[0]][0], self._read_again)

    def _entrusted_again(self, packet_id: int) -> Outgoing | None:
        """What was entrusted to the session, to be sent again; None where its user may not have it any more."""
        message = self._hub.entrusting.get(self.session, packet_id)
        if message is None or not self.listener.may_have(message.address):
            self._hub.drop(self.session, "lost" if message is None else "denied")
            return None
        return Outgoing(packet_id, message.qos, True, message.handle is None, message.address, message.value,
                        _split(read_headers(message.headers, 0)[0])[1], message.attributes, message.timestamp_ms,
                        (message.identifier,) if message.identifier else ())

    def _read_again(self, answer: Fetched) -> None:
        session, again = self.session, self._again
        flight = session.flight or {}
        records = {record[0]: record for piece in answer.pieces for record in sound_records(piece)}
        first = flight[again[0]][0] if again else 0
        reached = max([piece.first_offset + piece.count for piece in answer.pieces], default=first + 1)
        messages: list[Outgoing | Released] = []
        lost: list[int] = []
        while again and self._room > 0:
            packet_id = again[0]
            offset, step = flight[packet_id]
            if step == RELEASED_2:
                messages.append(Released(packet_id))
            elif step in ENTRUSTED_STEPS:
                break                                # it is not read
            elif offset not in records and (offset >= reached or offset < first):
                break                                # of another piece
            else:
                record = records.get(offset)
                outgoing = None if record is None else self._outgoing(record, packet_id, 2 if step == SENT_2 else 1)
                if outgoing is None:
                    self._hub.drop(session, "lost" if record is None else "denied")
                    lost.append(packet_id)
                else:
                    messages.append(outgoing)
            again.popleft()
        if lost:
            session.acknowledge(lost)
            self._hub.keeper.touch_lazily(session, OF_FLIGHT)
        if messages:
            self.listener.on_messages(messages)
        if self._room > 0:
            self._hub.soon(self)

    def _outgoing(self, record: Record, packet_id: int, qos: int) -> Outgoing | None:
        """A message that is sent again; None where its user may not have it any more."""
        address, headers, _ = _split(record[4])
        if not self.listener.may_have(address):
            return None
        stints = [stint for stint in self._stints(address) if _covers(stint, record[0])]
        return _encode(record, packet_id, qos, True, address, headers, stints)

    # ---- fresh

    def _fresh(self, answer: Fetched) -> None:
        session = self.session
        if not answer.pieces:
            gone = answer.log_start_offset if answer.error is not None else answer.next_offset
            if gone <= session.following:
                self._hub.loop.call_at(self._hub.loop.now_ms() + READ_AGAIN_MS, self.pump)
                return
            self._read_to = gone
        if self._ahead is NOTHING:
            self._ahead = deque()
        for piece in answer.pieces:
            self._ahead.extend(sound_records(piece))
            self._read_to = piece.first_offset + piece.count
        self._hand_fresh()

    def _hand_fresh(self) -> None:
        """Give packet ids to what was read, as far as there is room."""
        session, ahead = self.session, self._ahead
        before, held_from = session.following, session.held_from
        messages: list[Outgoing | Released] = []
        size = 0
        while ahead and self._room > 0 and size < READ_BYTES and ahead[0][0] < held_from:
            record = ahead.popleft()
            if record[0] < session.following:        # it gave way meanwhile
                continue
            self._lose(record[0])
            outgoing = self._judge(record)
            session.pass_to(record[0] + 1)
            if outgoing is not None:
                messages.append(outgoing)
                size += len(outgoing.value or b"")
        if not ahead:
            self._lose(min(self._read_to, held_from))
        if messages:
            self._storing = True
            try:
                self._hub.keeper.touch(session, OF_FLIGHT).answer(self, messages)
            except Stopping:
                self._over = True
        elif session.following > before:
            self._hub.keeper.touch_lazily(session, OF_FLIGHT)
            self._hub.soon(self)

    def _lose(self, offset: int) -> None:
        """There is nothing before this offset."""
        if offset > self.session.following:
            self._hub.drop(self.session, "lost", offset - self.session.following)
            self.session.pass_to(offset)

    def _judge(self, record: Record) -> Outgoing | None:
        """A message that comes for the first time, with a packet id; None where the session is not to have it."""
        session, offset = self.session, record[0]
        address, headers, publisher = _split(record[4])
        stints = [stint for stint in self._stints(address) if _covers(stint, offset)]
        if session.terms is not None:
            stints = [stint for stint in stints if self._is_wanted(stint.filter, record, address, headers)]
        if not any(waits_for(stint, self._hub.keeps_transient) for stint in stints):
            return None                              # the connection has heard of it
        if publisher == partition_key(session.partition_id):
            stints = [stint for stint in stints if not stint.no_local]
        if not stints:
            return None
        if expires_at(record[4], record[1], None) <= self._hub.loop.wall_ms():
            self._hub.drop(session, "expired")
            return None
        if self._hub.is_too_old(record[1]):
            self._hub.drop(session, "age")
            return None
        if not self.listener.may_have(address):
            self._hub.drop(session, "denied")
            return None
        published = 0 if record[5] & TRANSIENT else 2 if record[5] & EXACTLY_ONCE else 1
        qos = min(published, max([stint.qos for stint in stints]))
        return _encode(record, session.give_id(offset, qos) if qos else 0, qos, False, address, headers, stints)

    def _is_wanted(self, filter_text: str, record: Record, address: str, headers: Headers) -> bool:
        terms = self.session.terms_of(filter_text)
        return terms is None or terms.is_wanted(headers, record[2], address, record[1], record[3])

    def _stints(self, address: str) -> list[Stint]:
        stints = self._matching.get(address)
        if stints is None:
            if self._matching is NO_STINTS_KNOWN or len(self._matching) >= ADDRESSES_MAX:
                self._matching = {}
            stints = self._matching[address] = self.session.matching(address)
        return stints

    def on_stored(self, stored: list[Stored]) -> None:
        """Packet ids are durable: their messages may leave. A frame that was refused has ended the session before."""
        self._storing = False
        for answer in stored:
            if answer.error is None and not self._over:
                messages = answer.token
                assert isinstance(messages, list), "messages with their packet ids"
                self.listener.on_messages(messages)
        self._hub.soon(self)


def _covers(stint: Stint, offset: int) -> bool:
    """Whether the filter was there when the message was stored."""
    return stint.since <= offset and (stint.until == OPEN or offset < stint.until)


def _split(headers: Headers) -> tuple[str, Headers, bytes]:
    """What the hub has noted with a message, apart: its address, the headers of its sender, who published it."""
    address = publisher = b""
    public: list[tuple[bytes, bytes | None]] = []
    last = -1
    for name, value in headers:
        if name == ADDRESS_HEADER:
            address, last = value or b"", len(public)
        elif name == PUBLISHER:
            publisher = value or b""
        if not name.startswith(MARK):
            public.append((name, value))
    if last >= 0:
        del public[last]
    return address.decode(errors="replace"), tuple(public), publisher


def _encode(record: Record, packet_id: int, qos: int, dup: bool, address: str, headers: Headers, stints: list[Stint]
            ) -> Outgoing:
    _, timestamp_ms, _, value, _, attributes, _ = record
    retain = bool(attributes & RETAIN) and any(stint.retain_as_published for stint in stints)
    return Outgoing(packet_id, qos, dup, retain, address, value, headers, attributes, timestamp_ms,
                    tuple([stint.identifier for stint in stints if stint.identifier]))
