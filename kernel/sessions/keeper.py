"""What of sessions goes into each frame: one record for each session and kind, however much has happened to it.

    touch ──► the pending frame ──► sealed with it: each session as it is then ──► durable, or all of it is taken back
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.message import Owner, StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.sessions.session import OF_FLIGHT, OF_RECEIVED, OF_SESSION, OF_TERMS, Session
from gatehouse.kernel.sessions.session_records import (
    DROPPED,
    SessionRecord,
    Terms,
    encode_flight,
    encode_received,
    encode_session,
    encode_stints,
    encode_terms,
    named_key,
    partition_key,
    split_named,
    subscription_key,
)
from gatehouse.kernel.state.state import Kind, Watermarks, offset_record
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

LAZY_MS: Final = 20
"""What nobody waits for (acknowledgements of a client) gets a frame of its own after this, if no other has come. A
crash before forgets it: those messages come again, with DUP."""

NO_FLIGHT: Final = [0] * len(DROPPED)

Named = tuple[str, str]
"""Tenant and client id."""


class Keeper:  # decision 163
    """A `Participant` for all sessions. `on_settled` is told of a partition of which something is done with;
    `on_refused` which sessions are to be read back, as a frame was refused."""

    def __init__(self, loop: Loop, committer: Committer, watermarks: Watermarks, on_settled: Callable[[int], None],
                 on_refused: Callable[[set[Named]], None]) -> None:
        self._loop = loop
        self._committer = committer
        self._watermarks = watermarks
        self._on_settled = on_settled
        self._on_refused = on_refused
        self._touched: dict[Session, int] = {}
        self._on_way: dict[Session, int] = {}
        self._lazy: dict[Session, int] = {}
        self._later: list[StateRecord] = []
        self._lazy_armed = False
        self._stopped = False

    def stop(self) -> None:
        """What nobody waits for goes into the pending frame."""
        self._gather()
        self._stopped = True

    # ---- what goes in

    def touch(self, session: Session, what: int) -> PendingFrame:
        """The pending frame writes this of a session. Raises Stopping."""
        frame = self._committer.open_frame()
        frame.join(self)
        self._touched[session] = self._touched.get(session, 0) | what
        return frame

    def touch_lazily(self, session: Session, what: int) -> None:
        """The next frame writes this of a session, whoever's it is."""
        self._lazy[session] = self._lazy.get(session, 0) | what
        self._join_lazily()

    def _join_lazily(self) -> None:
        self._committer.join_next(self)
        if not self._lazy_armed:
            self._lazy_armed = True
            self._loop.call_at(self._loop.now_ms() + LAZY_MS, self._on_lazy)

    def write(self, record: StateRecord) -> None:
        """The pending frame has this record, too. Raises Stopping."""
        self._committer.open_frame().state.append(record)

    def write_lazily(self, record: StateRecord) -> None:
        """The next frame has it, whoever's it is; a crash before forgets it."""
        self._later.append(record)
        self._join_lazily()

    def write_filter(self, session: Session, filter_text: str) -> None:
        """The pending frame writes a filter of a session as it is now. Raises Stopping."""
        self.touch(session, 0).state.append(_filter_record(session, filter_text))

    def write_terms(self, session: Session, filter_text: str) -> None:
        """The pending frame writes the terms of a session's filter as they are now. Raises Stopping."""
        self.touch(session, 0).state.append(_terms_record(session, filter_text, session.terms_of(filter_text)))

    def answer(self, owner: Owner, token: object) -> None:
        """Tell the owner once everything that was told is durable. Raises Stopping."""
        self._committer.open_frame().answer(owner, token)

    def delete(self, session: Session) -> None:
        """The session with everything in it goes with the pending frame. Raises Stopping."""
        frame = self._committer.open_frame()
        frame.join(self)
        key = partition_key(session.partition_id)
        frame.state.extend([StateRecord(Kind.SESSION, named_key(session.tenant, session.client_id), None),
                            StateRecord(Kind.FLIGHT, key, None), StateRecord(Kind.RECEIVED, key, None),
                            offset_record("", session.partition_id, None)])
        frame.state.extend([StateRecord(Kind.SUBSCRIPTION, subscription_key(session.partition_id, filter_text), None)
                            for filter_text in {stint.filter: None for stint in session.stints}])
        frame.state.extend([_terms_record(session, filter_text, None) for filter_text in session.terms or ()])
        frame.delete_partitions(session.partition_id, 1)
        session.end()

    def since(self, partition_id: int) -> int:
        """The offset of what enters a partition next, behind all that is on its way there."""
        return self._watermarks.next_offset(partition_id) + sum(
            [frame.builder.entering(partition_id) for frame in self._committer.pending()])

    def _on_lazy(self) -> None:
        self._lazy_armed = False
        if not self._stopped:
            self._gather()

    def _gather(self) -> None:
        if self._lazy or self._later:
            self._committer.open_frame().join(self)

    # ---- frames

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        lazy, self._lazy = self._lazy, {}
        for session, what in lazy.items():
            self._touched[session] = self._touched.get(session, 0) | what
        for session, what in self._touched.items():
            if not session.gone:
                self._write(frame, session, what)
        frame.state.extend(self._later)
        self._later = []
        self._on_way, self._touched = self._touched, {}
        return 0

    def _write(self, frame: PendingFrame, session: Session, what: int) -> None:
        key = partition_key(session.partition_id)
        if what & OF_SESSION:
            record = SessionRecord(session.partition_id, session.created_ms, session.expiry_ms, session.until_ms,
                                   session.user)
            frame.state.append(StateRecord(Kind.SESSION, named_key(session.tenant, session.client_id),
                                           encode_session(record)))
        if what & OF_RECEIVED:
            frame.state.append(StateRecord(Kind.RECEIVED, key, encode_received(session.received or ())))
        if what & OF_TERMS:
            frame.state.extend([_terms_record(session, filter_text, terms)
                                for filter_text, terms in (session.terms or {}).items()])
        if what & OF_FLIGHT:
            frame.state.append(StateRecord(Kind.FLIGHT, key, encode_flight(
                session.following, session.dropped or NO_FLIGHT, session.flight or {})))
            committed = session.committed
            if committed > self._watermarks.log_start(session.partition_id):
                frame.state.append(offset_record("", session.partition_id, (committed, b"")))
                self._on_settled(session.partition_id)
            frame.state.extend([_filter_record(session, filter_text) for filter_text in session.forget_stints()])

    def applied(self, frame: PendingFrame) -> None:
        self._on_way = {}

    def failed(self, frames: list[PendingFrame]) -> None:
        """Sessions are as the state says."""
        changed = {**self._on_way, **self._touched, **self._lazy}
        self._on_way, self._touched, self._lazy = {}, {}, {}
        names = {(session.tenant, session.client_id) for session in changed}
        names |= {split_named(record.key) for frame in frames for record in frame.state if record.kind == Kind.SESSION}
        self._on_refused(names)


def _filter_record(session: Session, filter_text: str) -> StateRecord:
    return StateRecord(Kind.SUBSCRIPTION, subscription_key(session.partition_id, filter_text),
                       encode_stints(session.stints_of(filter_text)))


def _terms_record(session: Session, filter_text: str, terms: Terms | None) -> StateRecord:
    return StateRecord(Kind.TERMS, subscription_key(session.partition_id, filter_text), encode_terms(terms))
