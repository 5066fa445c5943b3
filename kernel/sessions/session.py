"""One session: its filters, what is in flight, what came in and is not released, and what it weighs. Pure: no clock, no
log.

    offset < following          handed out: in flight under a packet id, or done with
    offset >= following         waits, in the session's own partition

Everything of a session is in here but its messages, which are entries of its partition that point into the log
(decision 162). A session that sleeps is this object and its filters in the trie, nothing more.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from operator import attrgetter
from typing import Any, Final

from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter
from gatehouse.kernel.addresses.subscriptions import Lasting
from gatehouse.kernel.errors import TooManyReceived
from gatehouse.kernel.sessions.session_records import (
    DROPPED,
    ENTRUSTED_1,
    ENTRUSTED_2,
    ENTRUSTED_STEPS,
    OPEN,
    RELEASED_2,
    SENT_1,
    SENT_2,
    Flight,
    Stint,
    Terms,
)
from gatehouse.kernel.sessions.session_values import IDS_MAX, NEVER, Subscribed

# --- what a session weighs ----------------------------------------------------------------------------------------

# The bytes of what waits for one session, in pieces of neighbours.
#
# A session is weighed only where what waits could be too much at all, see `sessions`. Pieces are as small as a
# sixty-fourth of the limit, or as one frame; within one all messages count as equally long.

PIECES: Final = 64           # that a limit is cut into, at least


class Weight:
    """The bytes of what waits for one session. `end_offset`: the offset behind all that is weighed."""

    __slots__ = ("_pieces", "_total", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self._pieces: list[tuple[int, int, int]] = []        # first offset, offset behind, bytes
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def add(self, behind: int, size: int, limit: int) -> None:
        """What lies from `end_offset` until before this offset."""
        assert behind > self.end_offset, "messages are weighed once, in order"
        pieces = self._pieces
        if pieces and pieces[-1][2] + size <= limit // PIECES:
            pieces[-1] = pieces[-1][0], behind, pieces[-1][2] + size
        else:
            pieces.append((self.end_offset, behind, size))
        self._total += size
        self.end_offset = behind

    def learn(self, first: int, behind: int, size: int) -> None:
        """What lies before everything that is weighed."""
        self._pieces.insert(0, (first, behind, size))
        self._total += size

    def pass_to(self, offset: int) -> None:
        """What lies before this offset waits no more."""
        pieces = self._pieces
        while pieces and pieces[0][0] < offset:
            first, behind, size = pieces[0]
            gone = size if behind <= offset else size * (offset - first) // (behind - first)
            self._total -= gone
            if behind <= offset:
                del pieces[0]
            else:
                pieces[0] = offset, behind, size - gone
        self.end_offset = max(self.end_offset, offset)

    def first_within(self, limit: int) -> int:
        """The first offset from which on what waits is not more than the limit; 0: all of it."""
        over, first = self._total - limit, 0
        for begin, behind, size in self._pieces:
            if over <= 0:
                break
            count = behind - begin
            first = behind if size <= over else begin + -(-over * count // size)
            over -= size
        return first


# --- the session --------------------------------------------------------------------------------------------------

CONNECTED: Final = 0
RECEIVED_MAX: Final = 65_535         # packet ids there are
NO_STINTS: Final[tuple[Stint, ...]] = ()
FILTER: Final = attrgetter("filter")

ENDLESS: Final = 1 << 62     # above every offset

OF_SESSION: Final = 1        # what of a session is to be written: its own record,
OF_FLIGHT: Final = 2         # how far it was handed messages, and what is in flight,
OF_RECEIVED: Final = 4       # what came in and is not released
OF_TERMS: Final = 8          # what is owed of histories


class Session(Lasting):
    """What a client is owed while it is away, and how far it is: all but its messages."""

    __slots__ = ("attached", "client_id", "created_ms", "dropped", "expiry_ms", "flight", "following", "gone",
                 "last_id", "looked_at_ms", "received", "stints", "tenant", "terms", "until_ms", "user", "weight")

    def __init__(self, tenant: str, client_id: str, user: str, partition_id: int, created_ms: int, expiry_ms: int,
                 until_ms: int) -> None:
        super().__init__(partition_id)
        self.tenant = tenant
        self.client_id = client_id
        self.user = user
        self.created_ms = created_ms
        self.expiry_ms = expiry_ms
        self.until_ms = until_ms                     # hub time; CONNECTED, or NEVER
        self.looked_at_ms = 0                        # when it is seen whether it is over; 0: nobody waits for that
        self.following = 0                           # the first offset that was not handed out
        self.last_id = 0                             # the packet id that was given last
        self.stints: tuple[Stint, ...] = NO_STINTS   # by filter, then by offset: each for the offsets it was there for
        self.terms: dict[str, Terms] | None = None   # of filters that have some; None: of none
        self.flight: Flight | None = None            # None: nothing
        self.received: dict[int, None] | None = None
        self.dropped: list[int] | None = None        # counted by reason, as in `session_records.DROPPED`
        self.attached: Any = None                    # the connection that has it
        self.gone = False
        self.weight: Weight | None = None            # of what waits; None: not weighed

    # ---- as the state says

    def load_stints(self, stints: list[Stint]) -> None:
        self.stints = tuple(sorted([stint for stint in stints if stint.since != stint.until]))

    def load_terms(self, filter_text: str, terms: Terms) -> None:
        self.terms = {**(self.terms or {}), filter_text: terms}

    def load_flight(self, following: int, dropped: list[int], flight: Flight) -> None:
        self.following = following
        self.dropped = dropped if any(dropped) else None
        self.flight = flight or None
        self.last_id = next(reversed(flight), 0)

    def load_received(self, received: dict[int, None]) -> None:
        self.received = received or None

    # ---- coming and going

    def connect(self, expiry_ms: int) -> None:
        """A client is there; when it goes the session waits so long."""
        self.until_ms, self.expiry_ms = CONNECTED, expiry_ms

    def attach(self, attached: Any) -> None:
        """This connection has it; None: no connection has."""
        self.attached = attached

    def fall_asleep(self, now_ms: int, expiry_ms: int) -> None:
        """The session waits so long from now on."""
        self.expiry_ms = expiry_ms
        self.until_ms = NEVER if expiry_ms == NEVER else now_ms + expiry_ms

    def end(self) -> None:
        """The session is not there any more."""
        self.gone = True

    # ---- filters

    def subscribe(self, subscribed: Subscribed, since: int) -> bool:
        """The filter is heard from this offset on. False where it was there already: it ends here, and begins anew."""
        open_before = self._close(subscribed.filter, since, (Stint(subscribed.filter, since, OPEN, *subscribed[1:6]),))
        return not open_before

    def set_terms(self, filter_text: str, terms: Terms | None) -> None:
        """Set the terms of a filter; None: it has none."""
        others = {name: each for name, each in (self.terms or {}).items() if name != filter_text}
        if terms is not None:
            others[filter_text] = terms
        self.terms = others or None

    def terms_of(self, filter_text: str) -> Terms | None:
        return None if self.terms is None else self.terms.get(filter_text)

    @property
    def held_from(self) -> int:
        """The offset from which on what waits is behind a history that is not sent yet; `ENDLESS`: there is none."""
        if self.terms is None:
            return ENDLESS
        return min([terms.since for terms in self.terms.values() if terms.waits], default=ENDLESS)

    def unsubscribe(self, filter_text: str, until: int) -> bool:
        """From this offset on the filter hears nothing. False where there is none."""
        return self._close(filter_text, until, NO_STINTS)

    def _close(self, filter_text: str, until: int, following: tuple[Stint, ...]) -> bool:
        """End the filter's open stint before this offset; others of it follow. Whether there was an open one."""
        first, behind = self._span(filter_text)
        stints = self.stints[first:behind]
        was_open = bool(stints) and stints[-1].until == OPEN
        if was_open:
            last = stints[-1]._replace(until=until)
            stints = stints[:-1] if last.since == until else (*stints[:-1], last)     # what heard nothing is no stint
        self.stints = self.stints[:first] + stints + following + self.stints[behind:]
        return was_open

    def _span(self, filter_text: str) -> tuple[int, int]:
        """Where the stints of a filter stand, and where they end."""
        first = bisect_left(self.stints, filter_text, key=FILTER)
        return first, bisect_right(self.stints, filter_text, first, key=FILTER)

    def forget_stints(self) -> list[str]:
        """Filters that ended before everything that is not done with are of no more use; which of them had some."""
        first = self.committed
        over = [stint.filter for stint in self.stints if OPEN != stint.until <= first]
        if over:
            self.stints = tuple([stint for stint in self.stints if not OPEN != stint.until <= first])
        return over

    def stints_of(self, filter_text: str) -> tuple[Stint, ...]:
        first, behind = self._span(filter_text)
        return self.stints[first:behind]

    def open_stint(self, filter_text: str) -> Stint | None:
        """The stint by which the filter is heard now."""
        stints = self.stints_of(filter_text)
        return stints[-1] if stints and stints[-1].until == OPEN else None

    def subscriptions(self) -> list[Subscribed]:
        """The filters that are heard now, as the client asked for them."""
        subscribed = [stint.subscribed for stint in self.stints if stint.until == OPEN]
        if self.terms is None:
            return subscribed
        return [each._replace(selector=terms.text) if (terms := self.terms_of(each.filter)) else each
                for each in subscribed]

    def bound_filters(self, *, transient: bool) -> list[str]:
        """The filters whose messages wait for the session; `transient`: those of QoS 0, too."""
        return [stint.filter for stint in self.stints if stint.until == OPEN and waits_for(stint, transient)]

    @property
    def has_no_local(self) -> bool:
        return any(stint.no_local for stint in self.stints)

    def matching(self, address: str) -> list[Stint]:
        """The filters that match an address, whenever they did, also those for which nothing waits."""
        levels = levels_of(address)
        return [stint for stint in self.stints
                if not stint.filter.startswith("$") and matches(parse_filter(stint.filter), levels)]

    # ---- what is handed out

    @property
    def committed(self) -> int:
        """Everything before this offset is done with."""
        return min([self.following, *[offset for offset, _ in self.flight.values()]]) if self.flight \
            else self.following

    @property
    def in_flight(self) -> int:
        return len(self.flight) if self.flight else 0

    def give_id(self, offset: int, qos: int, *, is_entrusted: bool = False) -> int:
        """A packet id for the message at this offset; fewer than `IDS_MAX` are in flight. `is_entrusted`: it is none of
        its partition, in which the session has got to this offset."""
        flight = self.flight
        if flight is None:
            flight = self.flight = {}
        assert len(flight) < IDS_MAX, "a window is smaller than the packet ids there are"
        packet_id = self.last_id
        while True:
            packet_id = packet_id + 1 if packet_id < IDS_MAX else 1
            if packet_id not in flight:
                break
        self.last_id = packet_id
        if is_entrusted:
            flight[packet_id] = offset, ENTRUSTED_2 if qos == 2 else ENTRUSTED_1
        else:
            flight[packet_id] = offset, SENT_2 if qos == 2 else SENT_1
        return packet_id

    def has_entrusted(self, packet_id: int) -> bool:
        """Whether what is in flight under this packet id was entrusted to the session."""
        return (self.flight or {}).get(packet_id, (0, 0))[1] in ENTRUSTED_STEPS

    def steps(self, packet_ids: Collection[int]) -> set[int]:
        """See `api.SessionPort.steps`."""
        flight = self.flight or {}
        steps = {flight[packet_id][1] for packet_id in packet_ids if packet_id in flight}
        return steps if steps.isdisjoint(ENTRUSTED_STEPS) else {ENTRUSTED_STEPS.get(step, step) for step in steps}

    def pass_to(self, offset: int) -> None:
        """Everything before this offset was handed out, or dropped."""
        assert offset >= self.following, "what was handed out stays so"
        self.following = offset

    def drop(self, reason: str, count: int = 1) -> None:
        """The session is not given so many messages."""
        if self.dropped is None:
            self.dropped = [0] * len(DROPPED)
        self.dropped[DROPPED.index(reason)] += count

    def acknowledge(self, packet_ids: Collection[int]) -> list[int]:
        """These packet ids are done with; returns those that were not in flight."""
        flight = self.flight or {}
        unknown = [packet_id for packet_id in packet_ids if flight.pop(packet_id, None) is None]
        if not flight:
            self.flight = None
        return unknown

    def receive(self, packet_ids: Collection[int]) -> list[int]:
        """PUBREC came for these; returns those that are not in flight with QoS 2."""
        flight = self.flight or {}
        unknown: list[int] = []
        for packet_id in packet_ids:
            offset, step = flight.get(packet_id, (0, 0))
            if step in (SENT_2, ENTRUSTED_2, RELEASED_2):
                flight[packet_id] = offset, RELEASED_2
            else:
                unknown.append(packet_id)
        return unknown

    # ---- what comes in

    def take_in(self, packet_id: int) -> bool:
        """A packet id came in. False where it is there already. Raises TooManyReceived."""
        if self.received is None:
            self.received = {}
        if packet_id in self.received:
            return False
        if len(self.received) >= RECEIVED_MAX:
            raise TooManyReceived("every packet id is taken by a message that is not released")
        self.received[packet_id] = None
        return True

    def release(self, packet_ids: Collection[int]) -> list[int]:
        """PUBREL came for these packet ids; returns those that were not there."""
        received = self.received or {}
        unknown = [packet_id for packet_id in packet_ids if packet_id not in received]
        for packet_id in packet_ids:
            received.pop(packet_id, None)
        if not received:
            self.received = None
        return unknown

    # ---- what it weighs

    def weigh(self) -> Weight:
        """Weigh what waits, from here on."""
        if self.weight is None:
            self.weight = Weight(self.following)
        return self.weight

    def stop_weighing(self) -> None:
        """So little waits that it does not matter what it weighs."""
        self.weight = None

    # ---- time

    def is_over(self, now_ms: int) -> bool:
        """Whether it has waited long enough."""
        return self.until_ms not in (CONNECTED, NEVER) and self.until_ms <= now_ms

    def note_look(self, when_ms: int) -> None:
        """It is seen then whether it is over; 0: nobody waits for that."""
        self.looked_at_ms = when_ms


def waits_for(stint: Stint, transient: bool) -> bool:
    """Whether messages that match wait for the session: QoS 0 waits for nobody unless `transient` says so, what a
    shared filter takes is its group's, and other filters that begin with `$` are the door's own."""
    return (stint.qos > 0 or transient) and not stint.filter.startswith("$")
