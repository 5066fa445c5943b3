"""What one guard's messages are charged to: resolved once, and again when a limit has come or gone. Pure.

All limits that apply are asked before any is charged, and a message is charged once, when it was taken. What is refused
is an operation and nothing else. What happens where something is used up is the topic's choice: `slow` takes the
messages and says for how long their sender is to be slowed down, `fail` refuses them, where the door has a word for
that. A limit of 0 refuses in any case, since waiting would not help.
"""
# decision 234: one place where a burst is weighed and charged
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.admission.errors import NoRoomLeft, OverQuota
from gatehouse.gateways.admission.limits.book import LimitBook
from gatehouse.gateways.admission.limits.limit import IN
from gatehouse.gateways.admission.limits.meter import NO_BOUND, Meter, charge_all
from gatehouse.gateways.admission.limits.purse import Purse
from gatehouse.kernel.errors import UnknownPlace
from gatehouse.kernel.shedding import WAIT_MS

if TYPE_CHECKING:
    from gatehouse.kernel.message import Place

PLACES_MAX: Final = 4096
"""Places whose meters a guard remembers; forgotten all at once beyond that."""

MET_MAX: Final = 64
"""Meters of places that were charged lately, of which `room` is asked."""

WHOLE: Final = -1
"""What stands for a producer's batch, which has a topic and no place."""

EVERYWHERE: Final = 0
"""What stands for the place where places do not matter."""


class Charge(NamedTuple):
    """What of a burst is charged to these meters."""

    meters: Sequence[Meter]
    messages: int
    size_bytes: int


class Charging:
    """What one guard's messages are charged to. `look` gives a place by its number, `fails` says whether its topic
    fails at a limit."""

    def __init__(self, book: LimitBook, now_ms: Callable[[], int], door: str, look: Callable[[int], Place],
                 fails: Callable[[str], bool]) -> None:
        self._book = book
        self._now_ms = now_ms
        self._door = door
        self._look = look
        self._fails = fails
        self._user = self._tenant = self._client_id = ""
        self._groups: Iterable[str] = ()
        self._version = -1
        self._meters: tuple[Meter, ...] = ()
        self._of_place: dict[int, tuple[Meter, ...]] = {}
        self._of_topic: dict[str, tuple[Meter, ...]] = {}
        self._met: dict[Meter, None] = {}
        self._purses: dict[int, Purse] = {}              # by place
        self._purses_of_topics: dict[str, Purse] = {}    # of batches; "" where topics do not matter
        self._taken: tuple[Purse, int, int, int] | None = None
        self._is_closed = False

    def renew(self, user: str, groups: Iterable[str], tenant: str, client_id: str) -> None:
        """Who sends; places that were given before are unknown."""
        self._user, self._groups, self._tenant, self._client_id = user, groups, tenant, client_id
        self._version = -1                   # which a purse of before does not survive

    @property
    def limited(self) -> bool:
        """Whether anything that is sent here may be limited."""
        book = self._book
        if not book.limits_in:
            return False
        if self._version != book.version:
            self._resolve()
        return bool(self._meters) or book.places_in > 0 or book.publishing_waits

    @property
    def is_new(self) -> bool:
        """Whether nothing is known yet of where messages go, though limits speak of that."""
        book = self._book
        if self._version != book.version:
            self._resolve()
        return book.places_in > 0 and not self._of_place and not self._of_topic and not book.publishing_waits

    def waits(self, refuses: bool) -> bool:
        """Whether what has come is to wait, as nothing may be taken for now: nobody may publish, or as much is stored
        as may be, and the door has no word to refuse it."""
        book = self._book
        if book.publishing_waits or refuses or not book.stored:
            return book.publishing_waits
        if self._version != book.version:
            self._resolve()
        return any(meter.is_full for meter in (*self._meters, *self._met))

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes of them, may be taken at once, as far as is known before they are read; at least
        one. What is taken beyond that is taken too, and has a longer wait behind it. (0, 0): publishing waits, and what
        has come is to wait too, where the door can keep it."""
        if self._book.publishing_waits:
            return 0, 0
        if self._version != self._book.version:
            self._resolve()
        now_ms = self._now_ms()
        messages = size_bytes = NO_BOUND
        if self._book.places_in and not self._of_place and not self._of_topic:
            messages = 1                     # as `is_new` says
        for meter in (*self._meters, *self._met):
            room = meter.room(now_ms)
            messages, size_bytes = min(messages, room[0]), min(size_bytes, room[1])
        if self._taken is not None:
            left = self._taken[0].left()
            messages, size_bytes = messages + left[0], size_bytes + left[1]
        return messages, size_bytes

    # ---- small bursts, far from every limit

    def spends(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]], size_bytes: int) -> bool:
        """For a native reader: whether these few may be gathered, and are charged where anything limits them."""
        return not self.limited or self.take(messages, size_bytes)

    def take(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]], size_bytes: int) -> bool:
        """Whether a burst could be taken out of what was set aside: then it is charged. Else it is to be weighed."""
        book = self._book
        if self._version != book.version or book.publishing_waits:
            return False
        count = len(messages)
        if not count:
            return False
        place, value, _, _, _ = messages[0]
        try:
            purse = self._purse_of(place)
            if count > 1 and book.places_in and not self._share(messages, purse):
                return False
        except UnknownPlace:
            return False
        if count == 1:
            values_bytes = 0 if value is None else len(value)
        else:
            values_bytes = sum([len(message[1]) for message in messages if message[1]])
        if values_bytes > size_bytes:
            size_bytes = values_bytes
        return self._take(purse, count, size_bytes, values_bytes)

    def take_batch(self, topic: str, count: int, size_bytes: int) -> bool:
        """Whether a producer's batch, which has a topic and no place, is paid from what was set aside."""
        book = self._book
        if self._version != book.version or book.publishing_waits:
            return False
        purse = self._purses_of_topics.get(topic if book.places_in else "")
        return purse is not None and self._take(purse, count, size_bytes, size_bytes)

    def _take(self, purse: Purse, count: int, size_bytes: int, values_bytes: int) -> bool:
        if not purse.take(count, size_bytes, values_bytes) and not (
                purse.is_used and self._book.open_purse(purse, self._now_ms())
                and purse.take(count, size_bytes, values_bytes)):
            purse.settle()                   # what is weighed has all that is there
            return False
        self._taken = purse, count, size_bytes, values_bytes
        return True

    def _share(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]], purse: Purse) -> bool:
        """Whether all of a burst's places have this purse, as those of one topic often do."""
        last = -1
        for message in messages:
            place = message[0]
            if place != last:
                if self._purse_of(place) is not purse:
                    return False
                last = place
        return True

    def _purse_of(self, place: int) -> Purse:
        """That of everybody whose messages are charged as those to this place. Raises UnknownPlace."""
        has_places = self._book.places_in > 0
        if not has_places:
            place = EVERYWHERE
        purse = self._purses.get(place)
        if purse is None:
            if len(self._purses) >= PLACES_MAX:
                self._purses.clear()
            own = self._meters_of_place(place) if has_places else ()
            purse = self._purses[place] = self._book.purse(self._meters, own)
        return purse

    def give_back(self) -> None:
        """What `take` took last was not stored."""
        if self._taken is not None:
            purse, count, size_bytes, values_bytes = self._taken
            purse.give_back(count, size_bytes, values_bytes)
            self._taken = None

    # ---- weighing: before anything is stored

    def weigh(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]], size_bytes: int, refuses: bool
              ) -> list[Charge]:
        """What a burst will be charged to. `refuses`: whether its door has a word for refusal here. Raises OverQuota,
        UnknownPlace."""
        book = self._book
        if self._version != book.version:
            self._resolve()
        book.reclaim(self._now_ms())
        count = len(messages)
        values_bytes = sum([len(message[1]) for message in messages if message[1]])
        charges = [Charge(self._meters, count, values_bytes if values_bytes > size_bytes else size_bytes)]
        if book.places_in:
            places = {message[0] for message in messages}
            if len(places) == 1:
                place = messages[0][0]
                own = self._of_place.get(place)
                charges.append(Charge(self._meters_of_place(place) if own is None else own, count, values_bytes))
            else:
                charges += self._charges_of_places(messages)
        if refuses or self._is_closed:
            self._require(charges, {message[0] for message in messages}, refuses)
        return charges

    def _charges_of_places(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]]) -> list[Charge]:
        counts: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for message in messages:
            place = message[0]
            counts[place] = counts.get(place, 0) + 1
            sizes[place] = sizes.get(place, 0) + len(message[1] or b"")
        return [Charge(meters, count, sizes[place]) for place, count in counts.items()
                if (meters := self._meters_of_place(place))]

    def weigh_batch(self, topic: str, count: int, size_bytes: int, refuses: bool = False) -> list[Charge]:
        """What a producer's batch will be charged to: its records are not looked at, so filters that some of them could
        match count all of them. Raises OverQuota."""
        if self._version != self._book.version:
            self._resolve()
        self._book.reclaim(self._now_ms())
        charges = [Charge(self._meters, count, size_bytes)]
        if self._book.places_in:
            charges.append(Charge(self._meters_of_topic(topic), count, size_bytes))
        if refuses or self._is_closed:
            self._require(charges, {WHOLE}, refuses, topic)
        elif self._book.stored:
            self._require_room(charges, topic)
        return charges

    def _require_room(self, charges: Sequence[Charge], topic: str) -> None:
        """Where as much is stored as may be, refuse a batch whose door has a word for that, whatever its topic does at
        a limit. Raises NoRoomLeft, OverQuota."""
        now_ms = self._now_ms()
        for charge in charges:
            for meter in charge.meters:
                if meter.is_full:
                    meter.refuse(charge.messages, now_ms)
                    kind = OverQuota if self._fails(topic) else NoRoomLeft
                    raise kind(meter.limit.id, meter.limit.of, meter.wait_ms(now_ms))

    def _require(self, charges: Sequence[Charge], places: Iterable[int], refuses: bool, topic: str = "") -> None:
        """Raises OverQuota for the places whose messages are refused: nothing is charged but an operation."""
        now_ms = self._now_ms()
        common = [meter for meter in self._meters if meter.wait_ms(now_ms)]
        refused: dict[int, list[Meter]] = {}
        for place in places:
            own = charges[-1].meters if place == WHOLE and len(charges) > 1 else self._of_place.get(place, ())
            over = [*common, *[meter for meter in own if meter.wait_ms(now_ms)]]
            closed = any(meter.is_closed or refuses and meter.is_full for meter in over)
            if closed or over and refuses and self._fails(topic or self._topic(place)):
                refused[place] = over
        if not refused:
            return
        over = list(dict.fromkeys(meter for meters in refused.values() for meter in meters))
        for meter in dict.fromkeys(meter for charge in charges for meter in charge.meters):
            meter.refuse(charges[0].messages if meter in over else 0, now_ms)
        slowest = max(over, key=lambda meter: meter.wait_ms(now_ms))
        raise OverQuota(slowest.limit.id, slowest.limit.of, slowest.wait_ms(now_ms), frozenset(refused))

    def _topic(self, place: int) -> str:
        return self._look(place).topic

    # ---- charging: once it was taken

    def charge(self, charges: Sequence[Charge], refusable: Sequence[tuple[int, bytes | None, bytes, int, int]] = ()
               ) -> int:
        """A burst was taken. Returns for how many ms its sender is to be slowed down: not at all where all of it was
        `refusable`, and its topics fail; then the next burst is refused."""
        now_ms = self._now_ms()
        wait_ms = 0
        for meters, messages, size_bytes in charges:
            wait_ms = max(wait_ms, charge_all(meters, messages, size_bytes, 1, now_ms))
        if wait_ms and refusable and all(self._fails(self._topic(place)) for place in {
                message[0] for message in refusable}):
            wait_ms = 0
        return max(wait_ms, WAIT_MS) if self._book.publishing_waits else wait_ms

    def set_aside(self, messages: Sequence[tuple[int, bytes | None, bytes, int, int]]) -> None:
        """A burst was charged: the next to its places may be taken out of a purse."""
        book = self._book
        if self._version != book.version or book.publishing_waits:
            return
        now_ms = self._now_ms()
        opened: set[Purse] = set()
        for place in {message[0] for message in messages} if book.places_in else (EVERYWHERE,):
            purse = self._purse_of(place)
            if purse not in opened:
                opened.add(purse)
                book.open_purse(purse, now_ms)

    def set_aside_for(self, topic: str) -> None:
        """A batch was charged: the next to its topic may be taken out of a purse."""
        book = self._book
        if self._version != book.version or book.publishing_waits:
            return
        own = self._meters_of_topic(topic) if book.places_in else ()
        purse = self._purses_of_topics[topic if book.places_in else ""] = book.purse(self._meters, own)
        book.open_purse(purse, self._now_ms())

    # ---- which apply

    def meters_of(self, places: Iterable[int], topic: str = "") -> set[Meter]:
        """All that messages to these places are charged to, and a batch to this topic. Raises UnknownPlace."""
        if self._version != self._book.version:
            self._resolve()
        meters = set(self._meters)
        if self._book.places_in:
            for place in places:
                meters.update(self._meters_of_place(place))
            if topic:
                meters.update(self._meters_of_topic(topic))
        return meters

    def _resolve(self) -> None:
        book = self._book
        self._version = book.version
        self._meters = book.of_connection(IN, self._door, self._user, self._groups, self._tenant, self._client_id,
                                          self._now_ms())
        self._of_place.clear()
        self._of_topic.clear()
        self._met.clear()
        self._purses.clear()
        self._purses_of_topics.clear()
        self._taken = None
        self._is_closed = any(meter.is_closed for meter in self._meters)

    def _meters_of_place(self, number: int) -> tuple[Meter, ...]:
        meters = self._of_place.get(number)
        if meters is None:
            if len(self._of_place) >= PLACES_MAX:
                self._of_place.clear()
            place = self._look(number)
            meters = self._of_place[number] = self._note(
                self._book.of_place(IN, self._tenant, place.topic, place.address, self._now_ms()))
        return meters

    def _meters_of_topic(self, topic: str) -> tuple[Meter, ...]:
        meters = self._of_topic.get(topic)
        if meters is None:
            meters = self._of_topic[topic] = self._note(self._book.of_topic(IN, self._tenant, topic, self._now_ms()))
        return meters

    def _note(self, meters: tuple[Meter, ...]) -> tuple[Meter, ...]:
        for meter in meters:
            self._is_closed = self._is_closed or meter.is_closed
            if len(self._met) < MET_MAX:
                self._met[meter] = None
        return meters
