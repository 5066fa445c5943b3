"""Messages that a connection entrusts to its session: in flight, and none of those that wait in its partition.

    a delivery of a shared group with QoS 2    its lease stays with the session, however often connection and hub end,
                                               until PUBREC comes: nobody else is handed what its client may have
    a retained value with QoS 1 or 2           in flight like any other

Each is a copy, for the group's queue may be deleted and another value be retained while the session sleeps. It is
written in the frame that gives it a packet id, and goes when its client has it. What becomes of a lease is said in the
same frame: PUBREC settles it; where the client refuses the message, or the session ends before PUBREC, the lease
becomes a dead letter, and the copy stays until that is stored: a start of the hub goes on with it.

    ENTRUSTED   key     partition id u64 of the session | packet id u16
                value   identifier u32 | timestamp i64 | attributes u8 | lengths: address u16, group u16, headers u32
                        | lease: partition id u64, epoch u64, offset u64, attempt u16 (0: none; as pages keep it)
                        | address | group | headers | value
    RETAINED OWED   key     partition id u64 of the session | packet id 0 u16 | filter
                    value   QoS u8 | the address that comes next
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.groups.calls import read_leased, reject_read
from gatehouse.kernel.groups.cursor import MAX_ATTEMPT, Key
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.message import Handle, Leased, Owner, StateRecord, Stored
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.sessions.keeper import Keeper
from gatehouse.kernel.sessions.session import OF_FLIGHT, Session
from gatehouse.kernel.sessions.session_records import ENTRUSTED_STEPS
from gatehouse.kernel.sessions.session_values import Entrusted
from gatehouse.kernel.state.state import Kind, StateTable

AGAIN_MS: Final = 1_000              # what could not be given up is tried again after this

_HEAD = struct.Struct(">IqBHHIQQQH")
_KEY = struct.Struct(">QH")

PacketOf = tuple[int, int]
"""Partition id of the session, packet id."""

GroupOf = Callable[[Key], LeasedGroup | None]


class GivenUp(NamedTuple):
    """What was given up in a frame that is not durable."""

    named: PacketOf
    message: Entrusted


class Awaiting(NamedTuple):
    """Who waits until what was entrusted is durable, and which that is."""

    owner: Owner
    token: object
    names: list[PacketOf]


def encode_entrusted(entrusted: Entrusted) -> bytes:
    """The value of the state record of one."""
    (partition_id, epoch, group), offset, attempt = entrusted.handle or ((0, 0, ""), 0, 0)
    address, name = entrusted.address.encode(), group.encode()
    return _HEAD.pack(entrusted.identifier, entrusted.timestamp_ms, entrusted.attributes, len(address), len(name),
                      len(entrusted.headers), partition_id, epoch, offset, min(attempt, MAX_ATTEMPT)) \
        + address + name + entrusted.headers + entrusted.value


def decode_entrusted(stored: bytes, qos: int) -> Entrusted:
    (identifier, timestamp_ms, attributes, address_len, group_len, headers_len, partition_id, epoch, offset,
     attempt) = _HEAD.unpack_from(stored)
    group_at = _HEAD.size + address_len
    headers_at = group_at + group_len
    value_at = headers_at + headers_len
    handle = None if not attempt else ((partition_id, epoch, stored[group_at:headers_at].decode()), offset, attempt)
    return Entrusted(qos, stored[_HEAD.size:group_at].decode(), identifier, stored[headers_at:value_at],
                     stored[value_at:], attributes, timestamp_ms, handle)


def _key(named: PacketOf) -> bytes:
    return _KEY.pack(*named)


class Entrusting:  # decision 270
    """Keeps what connections entrust to their sessions. `group_of` finds the group of a lease; `on_left` is told of a
    session which of its packet ids are free, once the dead letter is in the pending frame."""

    def __init__(self, loop: Loop, state: StateTable, keeper: Keeper, group_of: GroupOf,
                 on_left: Callable[[int, int], None]) -> None:
        self._loop = loop
        self._state = state
        self._keeper = keeper
        self._group_of = group_of
        self._on_left = on_left
        self._on_way: dict[PacketOf, Entrusted] = {}          # in a frame that is not durable
        self._leaving: set[PacketOf] = set()
        self._owed: dict[int, dict[str, tuple[int, str]]] = {}       # of retained values, by partition id and filter
        self._stopped = False

    def open(self) -> None:
        """What is owed of retained values, as the state says."""
        self._owed = {}
        for key, value in self._state.scan(Kind.ENTRUSTED):
            partition_id, packet_id = _KEY.unpack_from(key)
            if not packet_id:
                self._owed.setdefault(partition_id, {})[key[_KEY.size:].decode()] = value[0], value[1:].decode()

    def start(self, is_in_flight: Callable[[int, int], bool]) -> None:
        """Give up what the last end of the hub has left of sessions that were ending."""
        for key, value in list(self._state.scan(Kind.ENTRUSTED)):
            partition_id, packet_id = _KEY.unpack_from(key)
            if packet_id and not is_in_flight(partition_id, packet_id):
                self._give_up((partition_id, packet_id), decode_entrusted(value, 2))

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True

    # ---- coming

    def entrust(self, session: Session, messages: Sequence[Entrusted], owner: Owner, token: object) -> list[int]:
        """See `api.SessionPort.entrust`."""
        frame = self._keeper.touch(session, OF_FLIGHT)
        packet_ids: list[int] = []
        names: list[PacketOf] = []
        for message in messages:
            if message.handle is not None and not self._keep_lease(message.handle):
                packet_ids.append(0)
                continue
            packet_id = session.give_id(session.following, message.qos, is_entrusted=True)
            named = session.partition_id, packet_id
            frame.state.append(StateRecord(Kind.ENTRUSTED, _key(named), encode_entrusted(message)))
            self._on_way[named] = message
            names.append(named)
            packet_ids.append(packet_id)
        frame.answer(self, Awaiting(owner, token, names))
        return packet_ids

    def _keep_lease(self, handle: Handle) -> bool:
        group = self._group_of(handle[0])
        return group is not None and group.entrust([handle]) == [None]

    def on_stored(self, stored: list[Stored]) -> None:
        """This is durable, or was refused: then leases and sessions are as the state says."""
        for answer in stored:
            awaiting = answer.token
            if isinstance(awaiting, GivenUp):
                if answer.error is not None:
                    self._give_up_later(*awaiting)
                continue
            assert isinstance(awaiting, Awaiting), "nothing else is asked for"
            for named in awaiting.names:
                self._on_way.pop(named, None)
            awaiting.owner.on_stored([Stored(awaiting.token, answer.error, answer.append_ms, [])])

    def get(self, session: Session, packet_id: int) -> Entrusted | None:
        """What is in flight under this packet id; None where it is nothing that was entrusted."""
        _, step = (session.flight or {}).get(packet_id, (0, 0))
        if step not in ENTRUSTED_STEPS:
            return None
        return self._stored((session.partition_id, packet_id), ENTRUSTED_STEPS[step])

    def _stored(self, named: PacketOf, qos: int) -> Entrusted | None:
        on_way = self._on_way.get(named)
        if on_way is not None:
            return on_way
        stored = self._state.get(Kind.ENTRUSTED, _key(named))
        return None if stored is None else decode_entrusted(stored, qos)

    # ---- going

    def receive(self, session: Session, packet_ids: Collection[int]) -> None:
        """The client has these, with QoS 2. The caller touches the session. Raises Stopping."""
        for packet_id in packet_ids:
            message = self.get(session, packet_id)
            if message is not None and message.qos == 2:
                if message.handle is not None:
                    group = self._group_of(message.handle[0])
                    if group is not None:
                        group.ack([message.handle])
                self._forget((session.partition_id, packet_id))

    def let_go(self, session: Session, packet_ids: Collection[int]) -> list[int]:
        """The client is done with these, or does not want them. Those that may be free at once: the lease of another
        becomes a dead letter first. Raises Stopping."""
        free: list[int] = []
        for packet_id in packet_ids:
            named = session.partition_id, packet_id
            message = self.get(session, packet_id)
            if message is not None and message.handle is not None and self._group_of(message.handle[0]) is not None:
                self._give_up(named, message)
                continue
            if message is not None:
                self._forget(named)
            free.append(packet_id)
        return free

    def end(self, session: Session) -> None:
        """The session ends: what its client may have becomes dead letters, what is retained is forgotten. Raises
        Stopping."""
        for packet_id, (_, step) in (session.flight or {}).items():
            if step in ENTRUSTED_STEPS:
                named = session.partition_id, packet_id
                message = self._stored(named, ENTRUSTED_STEPS[step])
                if message is not None:
                    self._give_up(named, message)
        for filter_text in list(self.owed_retained(session)):
            self.owe_retained(session, filter_text, 0, None)

    def _give_up(self, named: PacketOf, message: Entrusted) -> None:
        """Forget a message in the frame that has its dead letter, where there is a lease of it."""
        if named in self._leaving:
            return
        group = None if message.handle is None else self._group_of(message.handle[0])
        if group is None or message.handle is None:
            self._forget(named)
            return
        self._leaving.add(named)
        read_leased(group, [message.handle], partial(self._read, named, message, group))

    def _read(self, named: PacketOf, message: Entrusted, group: LeasedGroup, leased: list[Leased] | None) -> None:
        self._leaving.discard(named)
        if self._stopped:                     # the next start goes on with it
            return
        if leased is None:
            self._give_up_later(named, message)
            return
        try:
            self._forget(named)
            if message.handle is not None and leased:
                reject_read(group, [message.handle], leased)
            self._keeper.answer(self, GivenUp(named, message))
            self._on_left(*named)
        except Stopping:
            pass

    def _give_up_later(self, named: PacketOf, message: Entrusted) -> None:
        def again() -> None:
            if not self._stopped:
                try:
                    self._give_up(named, message)
                except Stopping:
                    pass

        self._loop.call_at(self._loop.now_ms() + AGAIN_MS, again)

    def _forget(self, named: PacketOf) -> None:
        self._keeper.write(StateRecord(Kind.ENTRUSTED, _key(named), None))

    # ---- retained values that are still to be sent

    def owe_retained(self, session: Session, filter_text: str, qos: int, start: str | None) -> None:
        """See `api.SessionPort.owe_retained`. Raises Stopping."""
        key = _key((session.partition_id, 0)) + filter_text.encode()
        owed = self._owed.get(session.partition_id, {})
        if start is not None:
            self._owed[session.partition_id] = {**owed, filter_text: (qos, start)}
            self._keeper.touch(session, 0).state.append(
                StateRecord(Kind.ENTRUSTED, key, bytes((qos,)) + start.encode()))
        elif owed.pop(filter_text, None) is not None:
            self._keeper.write_lazily(StateRecord(Kind.ENTRUSTED, key, None))
            if not owed:
                del self._owed[session.partition_id]

    def owed_retained(self, session: Session) -> dict[str, tuple[int, str]]:
        """See `api.SessionPort.owed_retained`."""
        return self._owed.get(session.partition_id, {})
