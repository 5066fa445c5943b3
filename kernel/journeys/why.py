"""Why did a message not arrive at a consumer: a group, or a queue. One answer, from what was recorded and from what is
so at this second.

The first of these that holds is the answer: what became of it there (acked, given up), where it stands (leased, waits
for a retry), what keeps it from being handed out (expired, gone, behind another one of its key, not wanted), and last
that nobody takes.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.errors import KernelError, StorageFailed
from gatehouse.kernel.groups.calls import Groups
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import DEAD_LETTER_PREFIX, GroupSettings
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.groups.policy import EXPIRED as DIED_OF_AGE
from gatehouse.kernel.groups.policy import OVERFLOW, Ordering
from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.journeys.looking import IS_LEASED, QUEUE, SETTLED, WAITING, Journey, Looking, Standing
from gatehouse.kernel.message import Leased, Record
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.headers import NEVER, expires_at
from gatehouse.kernel.scheduling.queries import Scheduled
from gatehouse.kernel.scheduling.schedule_records import Fate, Pending
from gatehouse.kernel.scheduling.scheduling import Scheduling
from gatehouse.kernel.state.state import Watermarks
from gatehouse.kernel.state.topics import Topics
from gatehouse.tracing.events import Event, Kind

NEVER_GIVEN: Final = "never_given"
GONE: Final = "gone"
WAITS_FOR_TIME: Final = "waits_for_time"
RECALLED: Final = "recalled"
NO_CONSUMER: Final = "no_consumer"
NOT_ROUTED: Final = "not_routed"
ARRIVED: Final = "arrived"
DEAD_LETTER: Final = "dead_letter"
REDRIVEN: Final = "redriven"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
LEASED: Final = "leased"
RETRY: Final = "retry"
BEHIND: Final = "behind"
FILTERED: Final = "filtered"
BELOW_START: Final = "below_start"
PASSED: Final = "passed"
PAUSED: Final = "paused"
NOBODY_TAKES: Final = "nobody_takes"
READY: Final = "ready"

DEAD_LETTERS: Final = QUEUE_PREFIX + DEAD_LETTER_PREFIX

NOTHING_THERE: Final = ("nothing is there of it that this user may read: retention has passed it, or no message had "
                        "this id")


class Reason(NamedTuple):
    """The answer: a constant name, words, and what shows it."""

    code: str
    text: str
    evidence: dict[str, Any]


NOT_RECORDED: Final = Reason(ARRIVED, "it is settled, and nothing was recorded of how: it was acked at the first try, "
                                      "or ended while more did than is recorded", {})

OnReason = Callable[[Journey, "Reason | None", "StorageFailed | None"], None]


class Reasons:
    """Finds them. `next_id` is the id that no message has had yet."""

    def __init__(self, *, loop: Loop, looking: Looking, leasing: Leasing, groups: Groups, topics: Topics,
                 watermarks: Watermarks, scheduling: Scheduling, next_id: Callable[[], int]) -> None:
        self._loop = loop
        self._looking = looking
        self._leasing = leasing
        self._groups = groups
        self._topics = topics
        self._watermarks = watermarks
        self._scheduling = scheduling
        self._next_id = next_id

    def ask(self, message_id: int, consumer: str, tenant: str, on_done: OnReason) -> None:
        """Why a message is not with a consumer: a group, or a queue as `$queue/NAME`. None: it is somebody else's."""
        self._looking.journey(message_id, tenant, partial(self._on_journey, consumer, tenant, on_done))

    def _on_journey(self, consumer: str, tenant: str, on_done: OnReason, journey: Journey,
                    error: StorageFailed | None) -> None:
        if error is not None:
            on_done(journey, None, error)
        elif not journey.is_known or journey.is_held:
            self._scheduling.show(journey.message_id, tenant, partial(self._of_nothing, journey, on_done))
        elif journey.tenant != tenant:
            on_done(journey, None, None)
        else:
            reason = self._reason(journey, consumer, tenant)
            letters = None if reason is not NOT_RECORDED else self._groups.queue(
                DEAD_LETTER_PREFIX + consumer.removeprefix(QUEUE_PREFIX), tenant)
            if letters is None:
                on_done(journey, reason, None)
            else:                                        # more died than is recorded, and it may be one of them
                self._looking.find_in(letters.partition_ids(), journey.message_id,
                                      partial(_of_letters, journey, reason, on_done))

    def _of_nothing(self, journey: Journey, on_done: OnReason, scheduled: Scheduled | None) -> None:
        """Nothing is in a partition, and nothing was recorded."""
        message_id = journey.message_id
        what = None if scheduled is None else scheduled.what
        if isinstance(what, Pending):
            reason = Reason(WAITS_FOR_TIME, "it waits for its time", {"due": what.due_ms})
        elif what is not None and what.fate is Fate.RECALLED:
            reason = Reason(RECALLED, "it was recalled before its time", {"at": what.settled_ms})
        elif not 0 < message_id < self._next_id():
            reason = Reason(NEVER_GIVEN, "this hub has never given such an id", {})
        else:
            reason = Reason(GONE, NOTHING_THERE, {})
        on_done(journey, reason, None)

    def consumer_of(self, name: str, tenant: str) -> str:
        """The consumer that is called so: of `$share/GROUP/FILTER`, as doors call a group that has no other name there,
        its group, or the queue of its filter."""
        if not name.startswith(SHARE):
            return name
        if self._groups.queue(name, tenant) is not None:
            return QUEUE_PREFIX + name
        return name.removeprefix(SHARE).partition("/")[0] or name

    # ---- what is known of it

    def _reason(self, journey: Journey, consumer: str, tenant: str) -> Reason:
        queue = self._groups.queue(consumer.removeprefix(QUEUE_PREFIX), tenant) \
            if consumer.startswith(QUEUE_PREFIX) else None
        settings = self._groups.settings(consumer, tenant) if queue is None else None
        dying = consumer.removeprefix(DEAD_LETTERS) if consumer.startswith(DEAD_LETTERS) else ""
        of_it = [event for event in journey.events if event.group == consumer
                 or dying and event.group == dying and event.kind == Kind.GIVEN_UP
                 or event.kind == Kind.REDRIVEN and event.group == DEAD_LETTERS + consumer]
        if queue is None and settings is None and not of_it:
            return Reason(NO_CONSUMER, f"there is no group or queue {consumer!r}", {})
        became = _what_became(of_it, consumer)
        if became is not None:
            return became
        standing = next((each for each in journey.standings if each.group == consumer), None)
        if standing is None:
            return self._not_there(journey, consumer)
        return self._standing(journey, consumer, standing, settings)

    def _not_there(self, journey: Journey, consumer: str) -> Reason:
        entered = sorted({place.topic or QUEUE_PREFIX + place.queue for place in journey.places.values()
                          if place.topic or place.queue})
        tenant = journey.tenant or "/"
        queue = self._groups.queue(consumer.removeprefix(QUEUE_PREFIX), tenant) \
            if consumer.startswith(QUEUE_PREFIX) else None
        if queue is not None:
            return Reason(NOT_ROUTED, f"it did not enter {consumer!r}: nothing led there from where it was published",
                          {"entered": entered})
        reads = sorted(topic.name for topic in self._groups.topics(consumer, tenant))
        if not reads:
            return Reason(NOT_ROUTED, f"nobody has taken with {consumer!r} yet, so it reads no topic",
                          {"entered": entered, "reads": reads})
        return Reason(NOT_ROUTED, f"it did not enter what {consumer!r} reads", {"entered": entered, "reads": reads})

    def _standing(self, journey: Journey, consumer: str, standing: Standing, settings: GroupSettings | None) -> Reason:
        seen: dict[str, Any] = {"attempts": standing.attempts} if standing.attempts else {}
        if standing.state == IS_LEASED:
            until = {} if not standing.until_ms else {"until_hub_ms": standing.until_ms}
            return Reason(LEASED, "somebody has it leased, and has not said what became of it",
                          {**seen, "user": standing.user, "peer": standing.peer, **until})
        if standing.state == WAITING:
            return Reason(RETRY, "it was given back, and waits for its next try",
                          {**seen, "until_hub_ms": standing.until_ms})
        kept = self._kept_from(journey, consumer, standing, settings)
        if kept is not None:
            return kept
        if standing.state == SETTLED:
            return self._settled(standing, settings)
        return self._ready(journey, consumer, standing)

    def _settled(self, standing: Standing, settings: GroupSettings | None) -> Reason:
        if standing.kind not in ("leased", QUEUE):
            return Reason(PASSED, "the group's committed offset is behind it: its members say that they have read it",
                          {})
        if settings is not None and settings.start == "latest":
            return Reason(BELOW_START, "the group begins with what came after it was first used, and this came before; "
                                       "or it was acked, which was not recorded", {"start": settings.start})
        return NOT_RECORDED

    def _kept_from(self, journey: Journey, consumer: str, standing: Standing, settings: GroupSettings | None
                   ) -> Reason | None:
        """What keeps it from being handed out, or did."""
        place, record = journey.place, journey.record
        if place is None:
            return None
        start = self._watermarks.log_start(place.partition_id)
        if record is None:
            return None if place.offset >= start else Reason(
                GONE, "retention has passed it", {"offset": place.offset, "log_start_offset": start})
        group = self._group(journey, consumer)
        if settings is not None and settings.selector and not self._is_wanted(settings, record, place.partition_id):
            return Reason(FILTERED, "the group's selector does not want it", {"selector": settings.selector})
        if standing.state == SETTLED:
            return None
        topic = self._topics.get(place.topic, place.tenant or "/") if place.topic else None
        end_ms = expires_at(record[4], record[1], topic.settings if topic is not None else None)
        if end_ms != NEVER and end_ms <= self._loop.wall_ms():
            return Reason(EXPIRED, "it has expired", {"expired_at": end_ms})
        if group is not None and group.settings.ordered and record[2] is not None:
            return self._behind(group, place.partition_id, place.offset, record[2])
        return None

    def _group(self, journey: Journey, consumer: str) -> LeasedGroup | None:
        place = journey.place
        if place is None:
            return None
        readers = self._leasing.cursors.readers.get(place.partition_id, ())
        return next((group for group, _ in readers if group.name == consumer or group.shared == consumer), None)

    def _is_wanted(self, settings: GroupSettings, record: Record, partition_id: int) -> bool:
        offset, timestamp_ms, key, value, headers, attributes, message_id = record
        message: Leased = ((partition_id, 0, ""), offset, 1, message_id, timestamp_ms, key, value,
                           encode_headers(headers), attributes)
        try:
            wants = self._leasing.selectors.wants(settings.selector)
        except KernelError:
            return True
        return wants is None or wants(message)

    @staticmethod
    def _behind(group: LeasedGroup, partition_id: int, offset: int, key: bytes) -> Reason | None:
        prefetcher = group.prefetchers.get(partition_id)
        ordering = next((policy for policy in group.policies if isinstance(policy, Ordering)), None)
        holder = -1 if prefetcher is None or ordering is None else ordering.keys_of(prefetcher).holder_of(key)
        if holder < 0 or holder == offset:
            return None
        return Reason(BEHIND, "the group keeps the order of keys, and an earlier message of its key is not settled",
                      {"earlier_offset": holder})

    def _ready(self, journey: Journey, consumer: str, standing: Standing) -> Reason:
        group = self._group(journey, consumer)
        queue = self._groups.queue(consumer.removeprefix(QUEUE_PREFIX), journey.tenant or "/") \
            if standing.kind == QUEUE else None
        if queue is not None:
            group = self._groups.queue_group(queue)
        seen: dict[str, Any] = {"attempts": standing.attempts} if standing.attempts else {}
        if standing.kind not in ("leased", QUEUE):
            return Reason(READY, "the group's committed offset is before it: its members have not read it yet", {})
        if group is not None and group.is_paused:
            return Reason(PAUSED, "the group is paused: its members only failed, or somebody paused it", seen)
        if group is None or not group.taken_from:
            return Reason(NOBODY_TAKES, "it is ready, and nobody takes from there", seen)
        return Reason(READY, "it is ready: its turn has not come, or who takes has no room", {**seen,
                                                                                         "ready": group.ready})


def _of_letters(journey: Journey, reason: Reason, on_done: OnReason, where: tuple[int, int] | None) -> None:
    """It lies among the dead letters of the consumer, or not."""
    on_done(journey, reason if where is None else Reason(
        DEAD_LETTER, "it is a dead letter, and nothing was recorded of how it died", {}), None)


def _what_became(of_it: list[Event], consumer: str) -> Reason | None:
    """What the recorded events of a consumer say, the newest first. Of a group's dead letters the group's deaths are
    among them, and of a group what its dead letters sent back."""
    for event in reversed(of_it):
        if event.group != consumer:
            return None                                  # it came in: where it stands now says more
        if event.kind == Kind.ACKED:
            return Reason(ARRIVED, "it arrived: it was acked", {"at": event.at_ms, "attempts": event.attempt})
        if event.kind == Kind.GIVEN_UP:
            seen = {"at": event.at_ms, "attempts": event.attempt, "reason": event.reason}
            if event.reason == DIED_OF_AGE:
                return Reason(EXPIRED, "it expired before anybody was done with it", seen)
            if event.reason == OVERFLOW:
                return Reason(DROPPED, "it gave way: the queue was at its limit", seen)
            return Reason(DEAD_LETTER, "it is a dead letter", seen)
        if event.kind == Kind.REDRIVEN:
            return Reason(REDRIVEN, "it was there, and was sent back to its address",
                          {"at": event.at_ms, "address": event.address})
        if event.kind in (Kind.HANDED_OUT, Kind.RELEASED, Kind.LEASE_OVER, Kind.EXTENDED):
            return None                                  # where it stands now says more
    return None
