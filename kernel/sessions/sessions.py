"""Sessions that outlive connection and hub; see `api.SessionsPort`.

A session has a partition of its own. What matches its filters enters it by reference, in the frame that stores the
message, as messages enter queues (decision 24); so a message that ten thousand sessions wait for is stored once, and
waking up costs what waits, not what has passed.

    sleeps     the session's object, and its filters in the trie
    attached   a connection has it: `attached` hands out what waits

What waits is bounded in messages, bytes and age (`max_session_messages`, `max_session_bytes`, `max_session_wait_ms`):
beyond, the oldest give way, counted. The last sixteen always wait, whatever they weigh.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from heapq import heapify, heappop, heappush, nsmallest
from sys import intern
from typing import Final

from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.errors import SessionRefused, Stopping, TooManySessions, TooManySubscriptions, UnknownSession
from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.message import Fetched, Owner, StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.selectors.selector import Selector, parse_selector
from gatehouse.kernel.sessions.attached import Attached
from gatehouse.kernel.sessions.entrusted import Entrusting, GroupOf
from gatehouse.kernel.sessions.keeper import Keeper, Named
from gatehouse.kernel.sessions.session import CONNECTED, OF_FLIGHT, OF_SESSION, OF_TERMS, Session, Weight, waits_for
from gatehouse.kernel.sessions.session_records import (
    DROPPED,
    OPEN,
    SessionRecord,
    Stint,
    Terms,
    decode_flight,
    decode_received,
    decode_session,
    decode_stints,
    decode_terms,
    filter_of,
    named_key,
    partition_key,
    partition_of,
    split_named,
)
from gatehouse.kernel.sessions.session_values import NEVER, Owed, SessionDescription, SessionListener, Subscribed, Will
from gatehouse.kernel.sessions.wills import Wills
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Clock, Kind, StateTable, Watermarks
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Committer, Slices

UNWEIGHED: Final = 16                  # messages that may wait whatever they weigh: most sessions are never weighed
AGES_PER_WAIT: Final = 8               # how often the age of what waits is looked at within the time that it may wait
AGE_STEP_MS: Final = 1_000             # but no more often than this
SUBSCRIPTIONS_MAX: Final = 10_000      # of one session
STALE_MAX: Final = 1_024               # entries of a heap that may be out of date, and as many as there are others
STEP_ENDED: Final = 16                 # sessions that end, before the clock is read

TAKEN_OVER: Final = "taken_over: another connection came with the same client id"
DELETED: Final = "session_deleted: the session was ended"
REFUSED: Final = "storage_full: the disk did not take what was told of the session"


class Sessions:  # decision 162
    """All sessions, each with a partition of its own: they outlive connection and hub."""

    def __init__(self, *, loop: Loop, state: StateTable, subscriptions: Subscriptions, topics: Topics,
                 watermarks: Watermarks, reader: Reader, committer: Committer, clock: Clock, settings: KernelSettings,
                 selector_names: Mapping[str, str], on_settled: Callable[[int], None], group_of: GroupOf,
                 on_error: Callable[[Exception], None]) -> None:
        self.loop = loop
        self.wills = Wills(loop, state, committer, on_error)
        self.keeper = Keeper(loop, committer, watermarks, on_settled, self._read_back)
        self.entrusting = Entrusting(loop, state, self.keeper, group_of, self._on_left)
        self.shared = SharedFilters()
        self._state = state
        self._subscriptions = subscriptions
        self._topics = topics
        self._watermarks = watermarks
        self._reader = reader
        self._committer = committer
        self._clock = clock
        self._settings = settings
        self._selector_names = selector_names
        self._by_name: dict[str, dict[str, Session]] = {}       # by tenant and client id, no object for each
        self._by_partition: dict[int, Session] = {}
        self.waiting: Collection[int] = self._by_partition
        """Partitions of sessions; see `kernel.write.pending_frame.Follower`."""

        self._waiting: list[tuple[int, int]] = []        # (until, partition id), a heap; some are out of date
        self._alarm = Alarm(loop.call_at, self._look)
        self._aging: dict[int, None] = {}                # partitions whose messages are looked at by their age,
        self._aging_heap: list[tuple[int, int]] = []     # and when, a heap
        self._aging_armed_ms = 0
        self._ready: dict[Attached, None] = {}
        self._serving = Slices(loop, on_error)
        self._ending = Slices(loop, on_error)
        self._connected = 0
        self.dropped = dict.fromkeys(DROPPED, 0)
        """Messages that sessions were not given since the start, by reason."""

        self._stopped = False

    # ---- opening and closing

    def open(self) -> None:
        """After recovery: every session, asleep."""
        of_partition: dict[int, list[Stint]] = {}
        for key, value in self._state.scan(Kind.SUBSCRIPTION):
            of_partition.setdefault(partition_of(key), []).extend(decode_stints(filter_of(key), value))
        for key, value in self._state.scan(Kind.SESSION):
            record = decode_session(value)
            self._add(self._made(split_named(key), record, of_partition.get(record.partition_id, [])))
        for key, value in self._state.scan(Kind.TERMS):
            session = self._by_partition.get(partition_of(key))
            if session is not None:
                session.load_terms(filter_of(key), decode_terms(value, self._selector))
        for key, value in self._state.scan(Kind.FLIGHT):
            session = self._by_partition.get(partition_of(key))
            if session is not None:
                session.load_flight(*decode_flight(value))
        for key, value in self._state.scan(Kind.RECEIVED):
            session = self._by_partition.get(partition_of(key))
            if session is not None:
                session.load_received(decode_received(value))
        self.entrusting.open()
        self.wills.open()

    def start(self) -> None:
        """Sessions whose connections the last end of the hub has cut sleep from now on."""
        for session in self._by_partition.values():
            if session.until_ms == CONNECTED:
                self.keeper.touch(session, OF_SESSION)
                session.fall_asleep(self.loop.now_ms(), session.expiry_ms)
            self._wait(session)
            if self.end_of(session.partition_id) > session.following:
                self._age(session.partition_id, 0)
        self.entrusting.start(self._has_entrusted)
        self.wills.start()

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopped = True
        self.entrusting.stop()
        self.wills.stop()
        try:
            self.keeper.stop()
        except Stopping:
            pass

    def _made(self, name: Named, record: SessionRecord, stints: list[Stint]) -> Session:
        session = Session(*name, intern(record.user), record.partition_id, record.created_ms, record.expiry_ms,
                          record.until_ms)
        session.load_stints(stints)
        return session

    def _add(self, session: Session) -> None:
        self._by_name.setdefault(session.tenant, {})[session.client_id] = session
        self._by_partition[session.partition_id] = session
        for filter_text in session.bound_filters(transient=self.keeps_transient):
            self._subscriptions.bind_lasting(filter_text, session, session.tenant)
        self.shared.add(session)

    def _remove(self, session: Session) -> None:
        """It is not known any more."""
        session.end()
        for filter_text in session.bound_filters(transient=self.keeps_transient):
            self._subscriptions.unbind_lasting(filter_text, session, session.tenant)
        self.shared.remove(session)
        del self._by_partition[session.partition_id]
        named = self._by_name[session.tenant]
        del named[session.client_id]
        if not named:
            del self._by_name[session.tenant]

    def _named(self, tenant: str, client_id: str) -> Session | None:
        return self._by_name.get(tenant, {}).get(client_id)

    # ---- a client comes and goes

    def attach(self, tenant: str, client_id: str, user: str, listener: SessionListener, *, clean: bool,
                     expiry_ms: int, window: int, owner: Owner, token: object) -> Attached:
        """See `api.SessionsPort`."""
        session = self._of_user(tenant, client_id, user)
        if session is not None and clean:
            self._end(session, TAKEN_OVER)
            session = None
        present = session is not None
        if session is None:
            session = self._new(tenant, client_id, user, expiry_ms)
        elif session.attached is not None:
            self._detach(session, TAKEN_OVER)
        self.keeper.touch(session, OF_SESSION).answer(owner, token)
        session.connect(expiry_ms)
        attached = Attached(self, session, listener, window, present)
        session.attach(attached)
        self._connected += 1
        return attached

    def _new(self, tenant: str, client_id: str, user: str, expiry_ms: int) -> Session:
        if len(self._by_partition) >= self._settings.max_sessions:
            raise TooManySessions(f"there are as many sessions as may be (kernel.max_sessions, "
                                  f"{self._settings.max_sessions})")
        frame = self._committer.open_frame()
        session = Session(tenant, client_id, intern(user), self._topics.new_partition_ids(1), frame.builder.now_ms,
                          expiry_ms, CONNECTED)
        frame.state.append(StateRecord(Kind.COUNTERS, b"", self._topics.counters()))
        self._add(session)
        return session

    def _of_user(self, tenant: str, client_id: str, user: str) -> Session | None:
        session = self._named(tenant, client_id)
        if session is not None and session.is_over(self.loop.now_ms()):      # and `_end_due` has not come to it
            self._end(session, DELETED)
            return None
        if session is not None and session.user != user:
            raise SessionRefused("the session of this client id belongs to another user")  # decision 166
        return session

    def _detach(self, session: Session, reason: str) -> None:
        attached = session.attached
        session.attach(None)
        if attached is not None:
            self._connected -= 1
            self._ready.pop(attached, None)
            attached.end(reason)

    def let_go(self, session: Session, expiry_ms: int) -> None:
        """Its connection has ended. After `stop` it is found connected by the next start, which lets it sleep."""
        if session.attached is not None:
            self._ready.pop(session.attached, None)
            session.attach(None)
            self._connected -= 1
        try:
            if expiry_ms == 0:
                self._end(session, DELETED)
                return
            self.keeper.touch(session, OF_SESSION)
        except Stopping:
            return
        session.fall_asleep(self.loop.now_ms(), expiry_ms)
        self._wait(session)

    def _end(self, session: Session, reason: str) -> None:
        """Raises Stopping."""
        self.keeper.delete(session)
        self._remove(session)
        self._detach(session, reason)
        self.entrusting.end(session)
        self.wills.end_session(session.tenant, session.client_id)

    def owner_of(self, tenant: str, client_id: str) -> str | None:
        """See `api.SessionsPort`."""
        session = self._named(tenant, client_id)
        return None if session is None or session.is_over(self.loop.now_ms()) else session.user

    def clear(self, tenant: str, client_id: str, user: str) -> bool:
        """See `api.SessionsPort`."""
        session = self._of_user(tenant, client_id, user)
        if session is None:
            return False
        self._end(session, DELETED)
        return True

    def delete(self, tenant: str, client_id: str, owner: Owner | None = None, token: object = None) -> None:
        """See `api.SessionsPort`."""
        session = self._named(tenant, client_id)
        if session is None:
            raise UnknownSession(f"there is no session of the client id {client_id[:80]!r}")
        self._end(session, DELETED)
        if owner is not None:
            self.keeper.answer(owner, token)

    # ---- filters

    def subscribe(self, session: Session, subscribed: Subscribed) -> bool:
        """See `api.SessionPort.subscribe`."""
        parse_filter(subscribed.filter)
        selector = self._selector(subscribed.selector)
        if len(session.stints) >= SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions(f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions")
        answer = self._change(session, subscribed.filter, partial(session.subscribe, subscribed))
        had_terms = session.terms_of(subscribed.filter) is not None
        if had_terms or selector is not None:
            session.set_terms(subscribed.filter, None if selector is None else Terms(selector, 0, {}))
            self.keeper.write_terms(session, subscribed.filter)
        return answer

    def unsubscribe(self, session: Session, filter_text: str) -> bool:
        """See `api.SessionPort.unsubscribe`."""
        if not session.stints_of(filter_text):
            return False
        if session.terms_of(filter_text) is not None:
            self.keeper.touch(session, 0)
            session.set_terms(filter_text, None)
            self.keeper.write_terms(session, filter_text)
        return self._change(session, filter_text, partial(session.unsubscribe, filter_text))

    def _selector(self, text: str) -> Selector | None:
        """Raises InvalidSelector."""
        return parse_selector(text, self._selector_names) if text else None

    # ---- histories  # decision 226

    def begin_history(self, session: Session, filter_text: str, owed: Owed) -> None:
        """See `api.SessionPort.begin_history`."""
        before = session.terms_of(filter_text)
        since = max([stint.since for stint in session.stints_of(filter_text)], default=0)
        session.set_terms(filter_text, Terms(None if before is None else before.selector, since, owed))
        self.keeper.write_terms(session, filter_text)

    def move_history(self, session: Session, filter_text: str, reached: dict[int, int]) -> None:
        """See `api.SessionPort.move_history`."""
        terms = session.terms_of(filter_text)
        if terms is not None:
            terms.move(reached)
            self.keeper.touch_lazily(session, OF_TERMS)

    def _change(self, session: Session, filter_text: str, change: Callable[[int], bool]) -> bool:
        # decision 164: which filters a message is for is told by its offset
        self.keeper.touch(session, 0)
        before = session.open_stint(filter_text)
        answer = change(self.keeper.since(session.partition_id))
        after = session.open_stint(filter_text)
        was_bound, is_bound = [stint is not None and waits_for(stint, self.keeps_transient)
                               for stint in (before, after)]
        if is_bound and not was_bound:
            self._subscriptions.bind_lasting(filter_text, session, session.tenant)
        elif was_bound and not is_bound:
            self._subscriptions.unbind_lasting(filter_text, session, session.tenant)
        if filter_text.startswith(SHARE):
            self.shared.count(session.tenant, filter_text, (after is not None) - (before is not None))
        self.keeper.write_filter(session, filter_text)
        return answer

    # ---- frames

    def _read_back(self, names: set[Named]) -> None:
        """A frame was refused: these sessions are as the state says, and their connections are over."""
        for name in names:
            session = self._named(*name)
            if session is not None:
                self._remove(session)
                self._detach(session, REFUSED)
            value = self._state.get(Kind.SESSION, named_key(*name))
            if value is None:
                continue
            record = decode_session(value)
            key = partition_key(record.partition_id)
            stints = [stint for filter_key, encoded in self._state.scan(Kind.SUBSCRIPTION, key)
                      for stint in decode_stints(filter_of(filter_key), encoded)]
            session = self._made(name, record, stints)
            for filter_key, encoded in self._state.scan(Kind.TERMS, key):
                session.load_terms(filter_of(filter_key), decode_terms(encoded, self._selector))
            flight = self._state.get(Kind.FLIGHT, key)
            if flight is not None:
                session.load_flight(*decode_flight(flight))
            received = self._state.get(Kind.RECEIVED, key)
            if received is not None:
                session.load_received(decode_received(received))
            self._add(session)
            if session.until_ms == CONNECTED:            # it is asleep, and a later frame may say so
                session.fall_asleep(self.loop.now_ms(), session.expiry_ms)
                self.keeper.touch_lazily(session, OF_SESSION)
            self._wait(session)
        self.entrusting.open()

    def _has_entrusted(self, partition_id: int, packet_id: int) -> bool:
        session = self._by_partition.get(partition_id)
        return session is not None and session.has_entrusted(packet_id)

    def _on_left(self, partition_id: int, packet_id: int) -> None:
        """What was entrusted to a session under this packet id is a dead letter. Raises Stopping."""
        session = self._by_partition.get(partition_id)
        if session is None or not session.has_entrusted(packet_id):
            return
        self.keeper.touch(session, OF_FLIGHT)
        session.acknowledge([packet_id])
        if session.attached is not None:
            session.attached.on_left()

    @property
    def keeps_transient(self) -> bool:
        """See `api.SessionsPort`."""
        return self._settings.session_keeps_transient

    def follow(self, entered: AbstractSet[int]) -> None:
        """Messages entered these partitions."""
        by_partition = self._by_partition
        few, many = (entered, by_partition) if len(entered) < len(by_partition) else (by_partition, entered)
        for partition_id in [partition_id for partition_id in few if partition_id in many]:
            session = by_partition[partition_id]
            self._hold_to_limit(session)
            if session.attached is not None:
                self.soon(session.attached)

    def _hold_to_limit(self, session: Session) -> None:  # decision 165
        """The oldest give way where more wait than may."""
        end, limit = self.end_of(session.partition_id), self._settings.max_session_bytes
        first = end - self._settings.max_session_messages
        if not limit or end - session.following <= UNWEIGHED:
            session.stop_weighing()
        else:
            first = max(first, min(self._weighed(session, end, limit).first_within(limit), end - UNWEIGHED))
        self._give_way(session, first, "limit")
        if end > session.following:
            self._age(session.partition_id, self._settings.max_session_wait_ms)

    def _give_way(self, session: Session, first: int, reason: str) -> None:
        """What waits before this offset is not given to the session."""
        if first > session.following:
            self.drop(session, reason, first - session.following)
            session.pass_to(first)
            self.keeper.touch_lazily(session, OF_FLIGHT)

    def _weighed(self, session: Session, end: int, limit: int) -> Weight:  # decision 246
        """The bytes of what waits. What is not in memory any more counts a little later."""
        weight = session.weigh()
        weight.pass_to(session.following)
        if weight.end_offset < end:
            before = weight.end_offset
            first, size = self._reader.bytes_in_memory(session.partition_id, before)
            weight.add(end, size, limit)
            if first > before:
                self._reader.sizes([session.partition_id], partial(self._learn, session, weight, before, first, size))
        return weight

    def _learn(self, session: Session, weight: Weight, first: int, behind: int, in_memory: int, sizes: list[int]
               ) -> None:
        if session.weight is weight and not self._stopped:
            weight.learn(first, min(behind, weight.end_offset), max(0, sizes[0] - in_memory))
            self._hold_to_limit(session)

    # ---- what is too old  # decision 247

    def is_too_old(self, timestamp_ms: int) -> bool:
        longest = self._settings.max_session_wait_ms
        return longest > 0 and timestamp_ms < self.loop.wall_ms() - longest

    def _age(self, partition_id: int, after_ms: int) -> None:
        """Look so much later whether what waits there is too old."""
        if not self._settings.max_session_wait_ms or partition_id in self._aging:
            return
        self._aging[partition_id] = None
        heappush(self._aging_heap, (self.loop.now_ms() + after_ms, partition_id))
        self._arm_aging()

    def _arm_aging(self) -> None:
        if self._aging_heap and (not self._aging_armed_ms or self._aging_heap[0][0] < self._aging_armed_ms):
            self._aging_armed_ms = self._aging_heap[0][0]
            self.loop.call_at(self._aging_armed_ms, self._look_at_ages)

    def _look_at_ages(self) -> None:
        self._aging_armed_ms = 0
        oldest_ms = self.loop.wall_ms() - self._settings.max_session_wait_ms
        for _ in range(STEP_ENDED):
            if self._stopped or not self._aging_heap or self._aging_heap[0][0] > self.loop.now_ms():
                break
            _, partition_id = heappop(self._aging_heap)
            self._reader.offset_for_time(partition_id, oldest_ms,
                                         partial(self._age_known, partition_id, self.end_of(partition_id)))
        if not self._stopped:
            self._arm_aging()

    def _age_known(self, partition_id: int, end: int, first: int | None, _: int) -> None:
        """What waits from `first` on is not too old; None: all before `end` is."""
        self._aging.pop(partition_id, None)
        session = self._by_partition.get(partition_id)
        if session is None or self._stopped:
            return
        self._give_way(session, end if first is None else first, "age")
        if self.end_of(partition_id) > session.following:
            self._age(partition_id, max(AGE_STEP_MS, self._settings.max_session_wait_ms // AGES_PER_WAIT))

    # ---- handing out

    def drop(self, session: Session, reason: str, count: int = 1) -> None:
        session.drop(reason, count)
        self.dropped[reason] += count

    def end_of(self, partition_id: int) -> int:
        return self._watermarks.next_offset(partition_id)

    def read(self, partition_id: int, offset: int, max_bytes: int, on_done: Callable[[Fetched], None]) -> None:
        self._reader.fetch([(partition_id, offset, max_bytes)], max_bytes, lambda answers: on_done(answers[0]),
                           kept=True)

    def soon(self, attached: Attached) -> None:
        if attached.session.attached is not attached or self._stopped:
            return
        if not self._ready:
            self.loop.call_soon(self._serve)
        self._ready[attached] = None

    def _serve(self) -> None:
        if self._ready and not self._serving.busy:
            self._serving.run(self._pump_all(), self._served)

    def _served(self) -> None:
        if self._ready:
            self.loop.call_soon(self._serve)

    def _pump_all(self) -> Iterator[None]:
        ready, self._ready = self._ready, {}
        for attached in ready:
            if attached.session.attached is attached and not self._stopped:
                attached.pump()
            yield

    # ---- time

    def _wait(self, session: Session) -> None:
        if session.until_ms in (CONNECTED, NEVER) or 0 < session.looked_at_ms <= session.until_ms:
            return                           # it is looked at before, and waits on then
        if len(self._waiting) > 2 * len(self._by_partition) + STALE_MAX:
            self._forget_stale()
        session.note_look(session.until_ms)
        heappush(self._waiting, (session.until_ms, session.partition_id))
        self._arm()

    def _forget_stale(self) -> None:
        """Most of what waits is of sessions that are no more, or is looked at earlier."""
        self._waiting = [(session.looked_at_ms, partition_id) for partition_id, session in self._by_partition.items()
                         if session.looked_at_ms]
        heapify(self._waiting)

    def _arm(self) -> None:
        if self._waiting:
            self._alarm.ring_by(self._waiting[0][0])

    def _look(self) -> None:
        if not self._stopped and not self._ending.busy:
            self._ending.run(self._end_due(), self._arm)

    def _end_due(self) -> Iterator[None]:
        count = 0
        while self._waiting and self._waiting[0][0] <= self.loop.now_ms() and not self._stopped:
            due_ms, partition_id = heappop(self._waiting)
            session = self._by_partition.get(partition_id)
            if session is not None and session.looked_at_ms == due_ms:
                session.note_look(0)
                if session.is_over(self.loop.now_ms()):
                    try:
                        self._end(session, DELETED)
                    except Stopping:
                        return
                else:
                    self._wait(session)
            count += 1
            if not count % STEP_ENDED:
                yield

    # ---- wills

    def keep_will(self, will: Will, owner: Owner, token: object) -> None:
        self.wills.keep(will, owner, token)

    def forget_will(self, tenant: str, client_id: str) -> None:
        self._unless_stopping(partial(self.wills.forget, tenant, client_id))

    def break_off(self, tenant: str, client_id: str) -> None:
        self._unless_stopping(partial(self.wills.break_off, tenant, client_id))

    def publish_wills(self, publish: Callable[[Will], bool]) -> None:
        self.wills.publish_by(publish)

    @staticmethod
    def _unless_stopping(call: Callable[[], None]) -> None:
        try:
            call()
        except Stopping:                     # the next start finds what the state says
            pass

    # ---- what people see

    def describe(self, tenant: str, client_id: str) -> SessionDescription | None:
        session = self._named(tenant, client_id)
        return None if session is None else self._described(session)

    def page(self, tenant: str, after: str, limit: int) -> list[SessionDescription]:
        """See `api.SessionsPort`."""
        named = self._by_name.get(tenant, {})
        return [self._described(named[name]) for name in nsmallest(limit, [name for name in named if name > after])]

    def _described(self, session: Session) -> SessionDescription:
        waits = session.until_ms not in (CONNECTED, NEVER)
        return SessionDescription(
            session.tenant, session.client_id, session.user, session.until_ms == CONNECTED, session.created_ms,
            self._clock.wall_of(session.until_ms) if waits else 0, session.expiry_ms, session.subscriptions(),
            max(0, self.end_of(session.partition_id) - session.following), session.in_flight,
            len(session.received or ()), dict(zip(DROPPED, session.dropped or [0] * len(DROPPED), strict=True)))

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        return {"sessions": len(self._by_partition), "sessions_connected": self._connected, "wills": len(self.wills)}


class SharedFilters:  # decision 280
    """How many sessions have each shared filter: a queue behind one is kept for those that sleep, and a group over a
    topic is made with the topic. By tenant and `$share/GROUP/FILTER`, of the sessions that were added."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._names: dict[tuple[str, str], set[str]] = {}      # of groups, by tenant and topic, see `names_over`

    def has(self, tenant: str, filter_text: str) -> bool:
        """Whether a session has this filter."""
        return (tenant, filter_text) in self._counts

    def names_over(self, tenant: str, topic: str) -> list[str]:  # decision 346
        """The groups of which a session has the filter that is this whole topic, `$share/GROUP/TOPIC/#`."""
        return sorted(self._names.get((tenant, topic), ()))

    def add(self, session: Session) -> None:
        """A session is there with the filters that it has."""
        self._count_all(session, 1)

    def remove(self, session: Session) -> None:
        """It is not there any more."""
        self._count_all(session, -1)

    def _count_all(self, session: Session, change: int) -> None:
        for stint in session.stints:
            if stint.until == OPEN and stint.filter.startswith(SHARE):
                self.count(session.tenant, stint.filter, change)

    def count(self, tenant: str, filter_text: str, change: int) -> None:
        """So many more sessions, or fewer, have this filter."""
        name = tenant, filter_text
        before = self._counts.get(name, 0)
        count = before + change
        if count:
            self._counts[name] = count
        else:
            self._counts.pop(name, None)
        if bool(before) != bool(count):
            self._note_name(tenant, filter_text, is_had=count > 0)

    def _note_name(self, tenant: str, filter_text: str, *, is_had: bool) -> None:
        group, _, rest = filter_text.removeprefix(SHARE).partition("/")
        topic, _, tail = rest.partition("/")
        if tail != "#":
            return
        names = self._names.setdefault((tenant, topic), set())
        if is_had:
            names.add(group)
        else:
            names.discard(group)
            if not names:
                del self._names[tenant, topic]
