"""All that a session, a call or a plugin gets of the kernel: what one principal may do by one door, and no more.

Each call asks for the rights of the principal as they are now, and what is appended counts for its quota. Places are
numbers that were given to this guard's principal under the rights of now: any other is refused (UnknownPlace). When
rights change, subscriptions that are no longer allowed end here, whatever the session does about it.
"""
# decision 147: rights are part of each call, not questions beside it
from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied, OverQuota
from gatehouse.gateways.admission.guarded_groups import GuardedGroups
from gatehouse.gateways.admission.guarded_schedule import GuardedSchedule
from gatehouse.gateways.admission.guarded_topics import GuardedTopics
from gatehouse.gateways.admission.guarded_transactions import GuardedTransactions
from gatehouse.gateways.admission.history import FilterHistory
from gatehouse.gateways.admission.places import GivenPlaces
from gatehouse.gateways.door_side import PART_BYTES, PART_MESSAGES
from gatehouse.kernel.addresses.address import UNROUTED, check_address, is_reserved
from gatehouse.kernel.errors import KernelError, ReceiptDenied, UnknownPlace, UnknownTopic
from gatehouse.kernel.message import NOBODY, Origin
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.state.topics import FAIL
from gatehouse.tracing.events import Kind

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.limits.charging import Charge, Charging
    from gatehouse.gateways.admission.limits.handing_out import HandingOut
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.rights import Rights
    from gatehouse.gateways.admission.session_registry import RegisteredSession, Registration
    from gatehouse.gateways.door_side import (
        Gatherer,
        Gathering,
        HeardAddress,
        LiveListener,
        Submission,
        Submitter,
        Switchboard,
    )
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Fetched, Headers, KnownProducer, OnRetained, Place, Record, Retained
    from gatehouse.kernel.records.validation import Divert, Validated
    from gatehouse.kernel.state.topics import Topic


# decision 357: looked up once
CONSUME: Final = Operation.CONSUME
PUBLISH: Final = Operation.PUBLISH

SHOWN_CHARACTERS: Final = 100           # of an address, in a line of the log

SEEN_MAX: Final = 262_144
"""Ranges of partitions that a guard remembers as asked for; beyond that they are asked for again."""


Decided = Callable[[Operation, str], bool]

KNOWN_MAX: Final = 4096                  # answers remembered for one principal


class RightsCache:
    """What one principal may, as far as it was asked. It holds for one `version` of the rights: after a change the
    principal's next question makes another one."""

    __slots__ = ("known", "known_topics", "rights", "version", "_decide")

    def __init__(self, version: object, rights: Rights | None, decide: Decided | None) -> None:
        self.version = version
        self._decide = decide                # stands in for all rights, and is asked each time: for tests
        self.rights = rights
        """The principal's rights; None: everything is allowed."""

        self.known: dict[tuple[Operation, str], bool] = {}
        self.known_topics: dict[tuple[Operation, str], bool] = {}

    def may(self, operation: Operation, wanted: str) -> bool:
        """Whether an operation is allowed at an address, or with a filter."""
        if self._decide is not None:
            return self._decide(operation, wanted)
        if self.rights is None:
            return True
        answers = self.known
        allowed = answers.get((operation, wanted))
        if allowed is None:
            if len(answers) >= KNOWN_MAX:
                answers.clear()
            allowed = answers[operation, wanted] = self.rights.of_address(operation, wanted).allowed
        return allowed

    def may_topic(self, operation: Operation, topic: str) -> bool:
        """Whether an operation is allowed with a topic as a whole: asked by every fetch and produce for each of their
        topics."""
        if self._decide is not None:
            return self._decide(operation, f"{topic}/#" if operation in (CONSUME, PUBLISH) else topic)
        if self.rights is None:
            return True
        answers = self.known_topics
        allowed = answers.get((operation, topic))
        if allowed is None:
            if len(answers) >= KNOWN_MAX:
                answers.clear()
            allowed = answers[operation, topic] = self.rights.of_topic(operation, topic).allowed
        return allowed


NO_FIRSTS: Final[list[int]] = []       # of a guard that has asked for no topic by its name: nearly all of a fleet's
NO_STOPS: Final[dict[int, int]] = {}


class Partitions:
    """Partitions of topics that were asked for by their names, with the right to them."""

    def __init__(self) -> None:
        self._firsts: list[int] = NO_FIRSTS
        self._stops: dict[int, int] = NO_STOPS

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, topic: Topic) -> None:
        if self._firsts is NO_FIRSTS:
            self._firsts, self._stops = [], {}
        for first, count in topic.ranges:
            if first not in self._stops:
                insort(self._firsts, first)
            self._stops[first] = first + count

    def require(self, partition_ids: Iterable[int]) -> None:
        """Raises Denied for one that is not among them."""
        first = stop = 0
        for partition_id in partition_ids:
            if not first <= partition_id < stop:
                at = bisect_right(self._firsts, partition_id)
                first = self._firsts[at - 1] if at else 0
                stop = self._stops.get(first, 0)
                if partition_id >= stop:
                    raise Denied("a partition of a topic that was not asked for")


NOWHERE: Final = Partitions()
"""Of a guard that has asked for no topic by its name: nobody adds to it."""

NO_FILTERS: Final[dict[tuple[str, LiveListener], bool]] = {}
"""Of a guard without subscriptions: nobody writes to it."""


class ReadBack(NamedTuple):
    """What a partition still has of what was delivered."""

    answer: Fetched
    records: list[Record]


class Guard:
    """Made by `Services.guard` for one session, and ended by `leave`.

    `session` is told when the principal ends or its rights change; it is a connection, which may be one too many
    (TooManyConnections) unless it `replaces` one. `client_id`: what rules call `{client_id}`; "" where
    the door has no such thing. `own_places`: places are remembered for this guard, not for all of its principal on the
    door, as they depend on more than the principal.
    """

    def __init__(self, admission: Admission, switchboard: Switchboard, door: str, principal: Principal,
                 session: RegisteredSession | None, client_id: str = "", own_places: bool = False, peer: str = "",
                 replaces: bool = False) -> None:
        self.logged_in: Final = principal
        """The principal as it logged in, whatever its client id."""

        self._admission = admission
        self.shedding: Final = admission.shedding
        self._switchboard = switchboard
        self._port = switchboard.port
        self._door = door
        self._flow: Final = admission.trace.flow(door)
        self._client_id = self._limited_client_id = client_id
        self._peer = peer
        self.tells: Final = self._port.records_journeys
        """Whether the kernel is to be told who speaks."""

        self._gathering: Final = switchboard.gathering
        self._filters = NO_FILTERS           # and whether a part of one is enough
        self._judged: tuple[LiveListener, ...] = ()          # of whose deliveries each address is judged
        self._visible = NOWHERE              # also what was so once: answers may speak of where something was stored
        self._readable = NOWHERE
        self._alterable = NOWHERE
        self._registration: Registration | None = None
        self._groups: GuardedGroups | None = None
        self._schedule: GuardedSchedule | None = None
        self._topics: GuardedTopics | None = None
        self._transactions: GuardedTransactions | None = None
        self._has_left = False
        self._own_places = GivenPlaces(self._port, admission.judge_of_receipts(principal, client_id)) \
            if own_places else None
        self.gathered_wait_ms = 0
        self._charged_to: Charging | None = None           # made where limits are, as the next
        self._handed_to: HandingOut | None = None
        if session is not None:
            self._registration = admission.connect(principal, door, session, self, replaces)
        self._renew()
        self._is_session: Final = session is not None
        if self._is_session:
            self._tell(Kind.CONNECTED)

    def _tell(self, kind: Kind, address: str = "", reason: str = "") -> None:
        """For journeys."""
        if self.tells:
            self._port.told(kind, self._origin or self._new_origin(), self.logged_in.tenant, address, reason)

    def _require_publish(self, principal: Principal, address: str, said: bytes) -> None:
        """Raises Denied, of which journeys know, and the log with the trace id of the message that `said` is of."""
        if not self._rights.may(PUBLISH, address):
            self._tell(Kind.REFUSED, address, Denied.code)
            self._admission.require(principal, PUBLISH, address, said)

    def _tell_refused(self, messages: list[Message], refusal: Exception) -> None:
        """For journeys and the log: these were refused, as the first of them was or the one that the refusal names. A
        place that is unknown is asked for anew."""
        if messages and isinstance(refusal, KernelError) and not isinstance(refusal, UnknownPlace):
            at = getattr(refusal, "index", 0)
            place, _, headers, _, _ = messages[at if 0 <= at < len(messages) else 0]
            self.tell_refused(self._port.address_of_place(self._places.guard, place), refusal.code, str(refusal),
                              headers)

    def tell_refused(self, address: str, code: str, text: str, said: bytes) -> None:
        """For journeys and the log: a publish at an address was refused; `said`: its headers, or all of it."""
        self._tell(Kind.REFUSED, address, code)
        self._admission.note_refusal(self._door, self.logged_in.name, code,
                                     f"a publish at {address[:SHOWN_CHARACTERS]!r}: {text}", said)

    def _renew(self) -> None:
        self._gathering.settle()
        admission = self._admission
        self._version = admission.version
        self._standing: RightsCache | None = None              # made when something is asked for
        self._principal = admission.known_by_client(self.logged_in, self._client_id) if self._client_id \
            else self.logged_in
        self._origin: Origin | None = None                     # made when something is said, which many never do
        if self._visible is not NOWHERE:
            self._readable, self._alterable = Partitions(), Partitions()
        self._places: GivenPlaces = self._own_places or admission.places(self._principal, self._port)
        if self._own_places is not None:
            self._places.clear()
        if self._charged_to is not None:
            self._charged_to.renew(*self._who())
        if self._handed_to is not None:
            self._handed_to.renew(*self._who())

    def _new_origin(self) -> Origin:
        return Origin(self._door, self.logged_in.name, self._client_id, self._peer,
                      self.tells and self._admission.may_hub(self._principal, Operation.TRACE))

    def _who(self) -> tuple[str, Iterable[str], str, str]:
        """Whom limits speak of: user, groups, tenant, client id."""
        return self.logged_in.name, self._admission.groups(self.logged_in), self.tenant, self._limited_client_id

    @property
    def charging(self) -> Charging:
        """What limits make of what is sent; for who gathers by itself, as native readers do."""
        charging = self._charged_to
        if charging is None:
            charging = self._charged_to = self._admission.charging(self._door, self._look, self._fails)
            charging.renew(*self._who())
        return charging

    @property
    def _handing_out(self) -> HandingOut:
        handing_out = self._handed_to
        if handing_out is None:
            handing_out = self._handed_to = self._admission.handing_out(self._door)
            handing_out.renew(*self._who())
        return handing_out

    def limit_client(self, client_id: str) -> None:
        """Limits of a client id speak of this one, too: it is what the client says, and rights do not depend on it."""
        self._limited_client_id = client_id
        self._renew()

    def leave(self) -> None:
        """The session is over: nothing is delivered to it any more."""
        self.settle()
        if self._registration is not None:
            self._registration.leave()
            self._registration = None                          # decision 297
        for filter_text, listener in self._filters:
            self._switchboard.unsubscribe(filter_text, listener, self.tenant)
        for listener in self._judged:
            self._switchboard.judge_no_more(listener)
        self._filters, self._judged = NO_FILTERS, ()
        if self._is_session and not self._has_left:
            self._has_left = True
            self._tell(Kind.ENDED)

    def look_again(self) -> None:
        """Rights have changed: end the subscriptions that are no longer allowed."""
        self._switchboard.rights_changed(self._admission.version)
        for (filter_text, listener), partly in list(self._filters.items()):
            if not self._may_hear(filter_text, listener, partly):
                self.unsubscribe(filter_text, listener)

    def count(self, event: str, amount: int = 1) -> None:
        """For the metrics: something that became of what this door's clients sent or asked for."""
        self._admission.trace.on_event(self._door, event, amount)

    def note_untold(self, reason: str, text: str, said: bytes = b"") -> None:
        """For the log: something was refused, or has ended, which the protocol has no word for. A line a minute."""
        who = self.logged_in.name if not self._client_id else f"{self.logged_in.name} ({self._client_id[:80]!r})"
        self._admission.note_refusal(self._door, who, reason, text, said)

    # ---- who

    @property
    def principal(self) -> Principal:
        """Who this is, as rules know him now."""
        if self._version is not self._admission.version:
            self._renew()
        return self._principal

    @property
    def tenant(self) -> str:
        return self.logged_in.tenant

    @property
    def origin(self) -> Origin:
        """Who this is, for journeys of messages."""
        if self._origin is None:
            self._origin = self._new_origin()
        return self._origin

    @property
    def _rights(self) -> RightsCache:
        """What the principal may now."""
        if self._version is not self._admission.version:
            self._renew()
        standing = self._standing
        if standing is None:
            standing = self._standing = self._admission.standing(self._principal)
        return standing

    def may(self, operation: Operation, address: str) -> bool:
        """Whether the principal may do this at an address, or consume with a filter."""
        return self._rights.may(operation, address)

    def may_consume(self, address: str) -> bool:
        """Whether the principal may consume at an address, or all of what a filter matches."""
        return self.may(CONSUME, address)

    def may_consume_some(self, filter_text: str) -> bool:
        """Whether the principal may consume some of what a filter matches; of the hub's own addresses, all of it."""
        if is_reserved(filter_text):
            return self.may_consume(filter_text)
        return self._admission.may_some(self.principal, CONSUME, filter_text)

    def require(self, operation: Operation, address: str) -> None:
        """`may`, or Denied."""
        if not self.may(operation, address):
            self._admission.require(self.principal, operation, address)

    def may_group(self, operation: Operation, group: str) -> bool:
        """Whether the principal may consume with a group, alter it, or transact in it."""
        return self._admission.may_group(self.principal, operation, group)

    def require_topic(self, operation: Operation, topic: str) -> None:
        """Denied where the principal may not do this with a topic as a whole."""
        if not self.may_topic(operation, topic):
            self._admission.require_topic(self.principal, operation, topic)

    def require_group(self, operation: Operation, group: str) -> None:
        """`may_group`, or Denied."""
        self._admission.require_group(self.principal, operation, group)

    @property
    def groups(self) -> GuardedGroups:
        """What the principal may do with groups and queues."""
        if self._groups is None:
            self._groups = GuardedGroups(self, self._admission, self._switchboard)
        return self._groups

    @property
    def schedule(self) -> GuardedSchedule:
        """What the principal may do with messages for a later time."""
        if self._schedule is None:
            self._schedule = GuardedSchedule(self, self._switchboard)
        return self._schedule

    @property
    def topics(self) -> GuardedTopics:
        """What the principal may do with the definitions of topics."""
        if self._topics is None:
            self._topics = GuardedTopics(self, self._admission, self._switchboard)
        return self._topics

    @property
    def transactions(self) -> GuardedTransactions:
        """What the principal may do with half messages and their transactions."""
        if self._transactions is None:
            self._transactions = GuardedTransactions(self, self._admission, self._switchboard)
        return self._transactions

    # ---- where

    @property
    def places(self) -> dict[bytes, int]:
        """The places that `place_raw` gave, for a codec's look-up per message; to be asked for anew for each read."""
        if self._version is not self._admission.version:
            self._renew()
        return self._places.by_raw

    @property
    def given_places(self) -> GivenPlaces:
        """What `places` is of; good as long as `version` is the same."""
        if self._version is not self._admission.version:
            self._renew()
        return self._places

    @property
    def gathering(self) -> Gathering:
        """What sessions of this door publish a few at a time. A native reader adds to it what it has judged by
        `given_places`, and where it is limited as `charging` lets it spend."""
        return self._gathering

    def place(self, address: str, said: bytes = b"") -> int:
        """The place of an address. Raises Denied and what `KernelPort.place` raises. `said`: of the message that goes
        there, its headers or all of it; where it is refused, the log has its trace id. So it is with all places."""
        principal = self.principal
        place = self._places.by_name.get(address)
        if place is None:
            place = self._judge(principal, address, said)
            self._places.remember(address, place)
        return place

    def place_raw(self, raw: bytes, address: str, said: bytes = b"") -> int:
        """As `place`, and remembered in `places` under the text that the client wrote."""
        place = self._judge(self.principal, address, said)
        self._places.remember_raw(raw, place)
        return place

    def remember_raw(self, raw: bytes, place: int) -> None:
        """Have a place that was given just now in `places`, under what the client wrote for it and for all else that
        was asked about."""
        self._places.remember_raw(raw, place)

    def _judge(self, principal: Principal, address: str, said: bytes) -> int:
        admission = self._admission
        self._require_publish(principal, address, said)
        return self._port.place(self._places.guard, address, principal.tenant,
                                admission.may_create(principal, address), principal.name)

    def forget_places(self) -> None:
        """Look every address up again: what was placed once may be gone."""
        self.settle()
        self._places.clear()

    def let_go(self) -> None:
        """Look every address up again; what was decoded with its place may still be appended."""
        self.settle()
        self._places.let_go()

    @property
    def version(self) -> object:
        """Another object when places that were given before are unknown."""
        return self._admission.version

    def place_queue(self, name: str, priority: int, said: bytes = b"") -> int:
        """The place of a queue alone. Raises Denied, UnknownQueue."""
        self._require_publish(self.principal, queue_address(name), said)
        return self._places.note(self._port.place_queue(self.number, name, self.tenant, priority))

    def place_routed(self, address: str, partition_ids: tuple[int, ...], said: bytes = b"") -> int:
        """The place of an address whose messages enter exactly these queues besides; a door that routes says so. Raises
        Denied and what `KernelPort.place` raises."""
        principal = self.principal
        self._require_publish(principal, address, said)
        return self._places.note(self._port.place_routed(self.number, address, partition_ids, principal.tenant,
                                                         self._admission.may_create(principal, address),
                                                         principal.name))

    def place_bound(self, topic: str, partition: int) -> int:
        """The place of a partition of a topic that a binding of a door leads to: who bound it had the right, as with
        queues. Raises what `KernelPort.place_in` raises."""
        return self._places.note(self._port.place_in(self.number, topic, None, partition, self.principal.tenant,
                                                     False, self.principal.name))

    def place_in(self, topic: str, key: bytes | None, partition: int, said: bytes = b"") -> int:
        """The place of a key in a partition of a topic that exists. Raises Denied and what `KernelPort.place_in`
        raises."""
        name = (topic, key, partition)
        principal = self.principal
        place = self._places.by_name.get(name)
        if place is None:
            self._require_publish(principal, self._port.address_of(topic, key, ()), said)
            place = self._port.place_in(self.number, topic, key, partition, principal.tenant, False, principal.name)
            self._places.remember(name, place)
        return place

    def place_key(self, topic: str, key: bytes | None, said: bytes = b"") -> int:
        """The place of a topic and key, wherever that leads; the topic is made where it is missing and that is
        allowed. Raises Denied and what `KernelPort.place_in` raises."""
        name = (topic, key)
        principal = self.principal
        place = self._places.by_name.get(name)
        if place is None:
            admission = self._admission
            if topic == UNROUTED:                # what is there has other addresses than what leads there
                admission.require_topic(principal, PUBLISH, topic, said)
            address = self._port.address_of(topic, key, ())
            self._require_publish(principal, address, said)
            place = self._port.place_in(self._places.guard, topic, key, None, principal.tenant,
                                        admission.may_create(principal, address), principal.name)
            self._places.remember(name, place)
        return place

    def look(self, place: int) -> Place:
        """Where messages to a place are stored, as it is now. Raises UnknownPlace."""
        return self._port.look(self._places.guard, place)

    def max_bytes(self, place: int) -> int:
        """The largest message that is taken there. Raises UnknownPlace."""
        return self._port.max_bytes(self._places.guard, place)

    def can_be_stored(self, place: int) -> bool:
        """Whether there is something to store a message in, or it may be made. Raises UnknownPlace."""
        return self._port.can_be_stored(self._places.guard, place)

    # ---- topics as a whole, for doors whose clients name them

    def topic(self, name: str, operation: Operation, said: bytes = b"") -> Topic:
        """A topic that the principal may do this with, as a whole; its partitions may be asked about then, and read
        with the right to consume. Raises Denied, also where there is none, and UnknownTopic. `said`: see `place`."""
        if not self._rights.may_topic(operation, name):
            if operation is PUBLISH:
                self._tell(Kind.REFUSED, name, Denied.code)
            self._admission.require_topic(self.principal, operation, name, said)
        topic = self._port.topic(name, self.tenant)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return self.show(topic, operation)

    def topic_by_uuid(self, uuid: bytes, operation: Operation) -> Topic:
        """A topic by its id, else as `topic`; UnknownTopic comes before Denied, since an id tells nobody a name."""
        topic = self._port.topic_by_uuid(uuid)
        if topic is None or topic.tenant != self.tenant:
            raise UnknownTopic("there is no topic with this id")
        self.require_topic(operation, topic.name)
        return self.show(topic, operation)

    def show(self, topic: Topic, operation: Operation) -> Topic:
        """The topic, which the principal may do this with: its partitions may be asked about from now on."""
        if self._visible is NOWHERE or len(self._visible) >= SEEN_MAX:
            self._visible = Partitions()
            self._readable = Partitions()
            self._alterable = Partitions()
        self._visible.add(topic)
        if operation is CONSUME:
            self._readable.add(topic)
        elif operation is Operation.ALTER:
            self._alterable.add(topic)
        return topic

    def may_topic(self, operation: Operation, topic: str) -> bool:
        """Whether the principal may do this with a topic as a whole."""
        return self._rights.may_topic(operation, topic)

    def sees_topic(self, name: str) -> bool:
        """Whether the principal may know of a topic: who may consume or publish all of it may, or describe it."""
        rights = self._rights
        return rights.may_topic(CONSUME, name) or rights.may_topic(PUBLISH, name) \
            or rights.may_topic(Operation.DESCRIBE, name)

    def require_alterable(self, partition_ids: Iterable[int]) -> None:
        """Raises Denied for a partition of no topic that was asked for to be altered."""
        if self._version is not self._admission.version:
            self._renew()
        self._alterable.require(partition_ids)

    def new_producer_id(self, owner: Submitter, token: object) -> None:
        """See `KernelPort.new_producer_id`."""
        with self.submission(owner, token) as number:
            self._port.new_producer_id(number)

    def append_batch(self, name: str, partition: int, batch: bytes, count: int, owner: Submitter, token: object,
                     divert: Divert | None = None) -> int:
        """Store a producer's batch of `count` records in a partition of a topic, as it is. Returns for how many ms the
        sender is to be slowed down. Raises as `topic` and `KernelPort.append_batch`."""
        partition_id = self.topic(name, PUBLISH).partition_id(partition)
        charges, is_taken = None, False
        if self._admission.limits.limits_in:
            is_taken = self.charging.take_batch(name, count, len(batch))
            if not is_taken:
                charges = self.charging.weigh_batch(name, count, len(batch))
        self.settle()
        number = self._switchboard.submit(owner, token)
        if divert is not None:
            divert = partial(self._diverted, divert, number)
        if self.tells:
            self._port.speaks(self.origin)
        try:
            self._port.append_batch(partition_id, batch, number, divert, self.number)
        except Exception as refusal:
            self._switchboard.take_back(number)
            if is_taken:
                self.charging.give_back()
            if isinstance(refusal, KernelError):
                self.tell_refused(name, refusal.code, str(refusal), batch)
            raise
        finally:
            if self.tells:
                self._port.speaks(NOBODY)
        self.count_in(count, len(batch))
        if charges is None:
            return 0
        wait_ms = self.charging.charge(charges)
        if not wait_ms:
            self.charging.set_aside_for(name)
        return wait_ms

    def _diverted(self, divert: Divert, number: int, validated: Validated) -> bool:
        """See `Divert`. What goes elsewhere is not answered under its number."""
        if not divert(validated):
            return False
        self._switchboard.take_back(number)
        return True

    def append_batches(self, topic: Topic, batches: list[tuple[int, bytes]], count: int, owner: Submitter,
                       token: object, idempotency_key: str | None, *, refuses: bool = False) -> int:
        """Store batches of `count` records in partitions of a topic, as (partition, batch), all or none of them.
        Returns for how many ms the sender is to be slowed down. Raises Denied and what `KernelPort.append_batches`
        raises."""
        self.require_topic(PUBLISH, topic.name)
        placed = [(topic.partition_id(partition), batch) for partition, batch in batches]
        size_bytes = sum([len(batch) for _, batch in batches])
        key = None if idempotency_key is None else self.scoped(idempotency_key)
        charges = None
        if self._admission.limits.limits_in and (key is None or not self._port.is_repeated(key)):
            charges = self.charging.weigh_batch(topic.name, count, size_bytes, refuses)
        try:
            with self.submission(owner, token) as number:
                self._port.append_batches(placed, number, key)
        except KernelError as refusal:
            self.tell_refused(topic.name, refusal.code, str(refusal), b"")
            raise
        return self.charge(charges, count, size_bytes)

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """(log start offset, high watermark). Raises Denied for a partition of no topic that was asked for."""
        self._visible.require((partition_id,))
        return self._port.bounds(partition_id)

    def bounds_of(self, topic: Topic) -> array[int]:
        """Log start offset and high watermark of every partition of a topic, one after the other. Raises Denied."""
        self._visible.require([first for first, _ in topic.ranges])
        return self._port.bounds_of(topic)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool = True, max_records: int = 0) -> None:
        """See `KernelPort.fetch`; batches come as they are stored, unless they are to be opened. Raises Denied for a
        partition of no topic that was asked for to be consumed."""
        if self._version is not self._admission.version:
            self._renew()
        self._readable.require([partition_id for partition_id, _, _ in wants])
        self._port.fetch(wants, max_bytes, on_done, stored, max_records)

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """See `KernelPort.note_unreadable`."""
        self._port.note_unreadable(partition_id, offset, count)

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """The address of a record that was read."""
        return self._port.address_of(topic, key, headers)

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> int:
        """See `KernelPort.watch`: that something is there, and nothing of it."""
        return self._port.watch(partition_ids, wake)

    def unwatch(self, number: int) -> None:
        """See `KernelPort.unwatch`."""
        self._port.unwatch(number)

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_for_time`; it tells no more than `bounds`. Raises Denied."""
        self._visible.require((partition_id,))
        self._port.offset_for_time(partition_id, timestamp_ms, on_done)

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_of_largest_timestamp`. Raises Denied."""
        self._readable.require((partition_id,))
        self._port.offset_of_largest_timestamp(partition_id, on_done)

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None:
        """See `KernelPort.end_of_epoch`. Raises Denied."""
        self._readable.require((partition_id,))
        self._port.end_of_epoch(partition_id, epoch, on_done)

    def producers_of(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        """See `KernelPort.producers_of`. Raises Denied."""
        self._readable.require((partition_id,))
        self._port.producers_of(partition_id, on_done)

    # ---- told

    def submission(self, owner: Submitter | None, token: object) -> Submission:
        """A number under which `owner` is answered, unless what is told with it is refused. What is told meanwhile
        comes from here, and after what was gathered."""
        self.settle()
        return self._switchboard.submission(owner, token, self.origin if self.tells else NOBODY)

    # ---- how much

    @property
    def limited(self) -> bool:
        """Whether anything that is sent by this guard may be limited."""
        if not self._admission.limits.limits_in:
            return False
        if self._version is not self._admission.version:
            self._renew()
        return self.charging.limited

    def waits(self, refuses: bool) -> bool:
        """Whether nothing may be published for now, and what has come is to wait: the hub has too much to do, or as
        much is stored as may be and the door has no word to refuse it."""
        return self.charging.waits(refuses)

    @property
    def is_new_to_limits(self) -> bool:
        """Whether nothing is known yet of where messages go, of which limits speak, as nothing was published."""
        return self.charging.is_new

    @property
    def limits_version(self) -> int:
        """Another number once a limit has come, changed or gone."""
        return self._admission.limits.version

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes of them, may be appended at once: a door that hands on smaller pieces has its
        peer wait less for more exact limits. At least one, and more is taken too; (0, 0) while publishing waits."""
        return self.charging.room()

    @property
    def limits_out(self) -> bool:
        """Whether what is handed out may be limited: then `out_room` is to be asked before, and `hand_out` told."""
        return self._admission.limits.limits_out > 0

    def out_room(self) -> tuple[int, int]:
        """How many messages, and bytes of them, may be handed out at once: (0, 0) while a limit is overdrawn. More is
        handed out too, and has a longer wait behind it."""
        if self._version is not self._admission.version:
            self._renew()
        return self._handing_out.room()

    def out_wait_ms(self, topic: str | None = None, consumers: str = "") -> int:
        """When to ask `out_room` again, where there was none; see `HandingOut.wait_ms`."""
        if self._version is not self._admission.version:
            self._renew()
        return self._handing_out.wait_ms(topic, consumers)

    def hand_out(self, messages: int, size_bytes: int, topic: str = "", address: str = "", consumers: str = "") -> int:
        """So much was handed out: of an address, or of a topic whole, to a group of consumers. Each delivery is
        charged. Returns for how many ms nothing more is to be."""
        if not self._admission.limits.limits_out:
            return 0
        if self._version is not self._admission.version:
            self._renew()
        return self._handing_out.take(messages, size_bytes, topic, address, consumers)

    def _look(self, place: int) -> Place:
        return self._port.look(self._places.guard, place)

    def _fails(self, name: str) -> bool:
        """Whether a topic wants what is too much to be refused."""
        topic = self._port.topic(name, self.tenant)
        return topic is not None and topic.settings.at_limit == FAIL

    def append(self, messages: list[Message], owner: Submitter | None, token: object, size_bytes: int, *,
               positions: bool = False, idempotency_key: str | None = None, refuses: bool = False,
               was_gathered: bool = False) -> int:
        """Store messages, in order, in one frame; `owner.on_stored` is told, and where wanted of their `positions`.
        `size_bytes` is what they took on the wire; under a limit no less than they are counts. A repeated
        `idempotency_key` of this principal gets the first answer, stores nothing and costs nothing. `refuses`: the door
        has a word for what is too much, and its peers repeat it then. What `was_gathered` was charged then. Returns
        for how many ms the sender is to be slowed down. Raises OverQuota, with nothing stored, and as
        `KernelPort.append`."""
        if self._version is not self._admission.version:
            self._renew()
        key = None if idempotency_key is None else self.scoped(idempotency_key)
        charges: list[Charge] | None = None
        is_taken = False
        if self._admission.limits.limits_in and not was_gathered:
            is_taken = key is None and self.charging.take(messages, size_bytes)
            if not is_taken:
                try:
                    charges = self.weigh(messages, size_bytes, refuses, key)
                except OverQuota as refusal:
                    self._tell_refused(messages, refusal)
                    raise
        if self._gathering.waits:
            self._gathering.settle()
        number = self._switchboard.submit(owner, token) if owner is not None else 0
        if self.tells:
            self._port.speaks(self.origin)
        try:
            self._port.append(self._places.guard, messages, number, positions, key)
        except Exception as refusal:
            self._switchboard.take_back(number)
            if is_taken:
                self.charging.give_back()
            self._tell_refused(messages, refusal)
            raise
        finally:
            if self.tells:                               # decision 321
                self._port.speaks(NOBODY)
        self.count_in(len(messages), size_bytes)
        if charges is None:
            return 0
        wait_ms = self.charging.charge(charges, messages if refuses else ())
        if not wait_ms and messages:
            self.charging.set_aside(messages)
        return wait_ms

    def weigh(self, messages: list[Message], size_bytes: int, refuses: bool, key: str | None = None
              ) -> list[Charge] | None:
        """What these will be charged to; None: nothing, as nothing is limited or they are a repetition. Raises
        OverQuota."""
        if not self._admission.limits.limits_in or key is not None and self._port.is_repeated(key):
            return None
        return self.charging.weigh(messages, size_bytes, refuses)

    def charge(self, charges: list[Charge] | None, count: int, size_bytes: int, messages: Sequence[Message] = ()
               ) -> int:
        """So much is taken, at what `weigh` said: of these `messages` where each may be refused. Returns for how many
        ms the sender is to be slowed down."""
        self.count_in(count, size_bytes)
        return self.charging.charge(charges, messages) if charges is not None else 0

    def require_receipt(self, address: str) -> None:
        """Raises ReceiptDenied where no receipts may go in the principal's name. `append` asks the same; a door that
        refuses one publish of a burst by itself asks before."""
        try:
            check_address(address)
        except KernelError as error:
            raise ReceiptDenied(f"no receipt can be sent to {address[:100]!r}: {error}") from None
        if not self.may(PUBLISH, address):
            raise ReceiptDenied(f"{self.principal.name} may not publish at {address[:100]!r}, where a receipt would go")

    def gather(self, messages: list[Message], gatherer: Gatherer, token: object, size_bytes: int,
               positions: bool = False, *, refuses: bool = False) -> bool:
        """As `append`, for a few messages of one session of many: they enter the next frame with what others gather.
        `gatherer.on_gathered` is told, or where `positions` are wanted `on_stored`, unless `token` is None;
        `gathered_wait_ms` says for how long its peer is to be slowed down. False: not these, `append` them."""
        admission = self._admission
        if self._version is not admission.version:
            self._renew()
        if len(messages) > PART_MESSAGES or size_bytes > PART_BYTES:
            return False
        if not admission.limits.limits_in or not self.charging.limited:
            self.gathered_wait_ms = 0
            return self._gathering.add(self, self._places, messages, gatherer, token, size_bytes, positions)
        if self.charging.take(messages, size_bytes):
            if not self._gathering.add(self, self._places, messages, gatherer, token, size_bytes, positions):
                self.charging.give_back()
                return False
            self.gathered_wait_ms = 0
            return True
        if refuses:                          # each may be answered otherwise than the others
            return False
        try:
            charges = self.charging.weigh(messages, size_bytes, False)
        except OverQuota:
            return False
        if not self._gathering.add(self, self._places, messages, gatherer, token, size_bytes, positions):
            return False
        self.gathered_wait_ms = self.charging.charge(charges)
        if not self.gathered_wait_ms:
            self.charging.set_aside(messages)
        return True

    def count_in(self, messages: int, size_bytes: int) -> None:
        """So much was taken, for the metrics."""
        self._flow.messages_in += messages
        self._flow.bytes_in += size_bytes

    def settle(self) -> None:
        """Append what sessions of this door have gathered: what is told next comes after it."""
        if self._gathering.waits:
            self._gathering.settle()

    def scoped(self, idempotency_key: str) -> str:
        """Two users may choose the same key: it means something within one principal and door only."""
        return f"{self._door}\0{self.tenant}\0{self._principal.name}\0{idempotency_key}"

    @property
    def number(self) -> int:
        """The number in whose name places were given under the rights of now: others are unknown in it."""
        if self._version is not self._admission.version:
            self._renew()
        return self._places.guard

    def subscribe(self, filter_text: str, listener: LiveListener, options: int = 0, *, partly: bool = False) -> None:
        """Tell `listener` of new messages whose address matches; `partly`: of those that the principal may consume,
        where that is not all of them. Raises InvalidFilter, Denied."""
        self.settle()
        if not self._may_hear(filter_text, listener, partly):
            self._admission.require(self.principal, CONSUME, filter_text)
        self._switchboard.subscribe(filter_text, listener, options, self.tenant)
        if (filter_text, listener) not in self._filters:
            self._tell(Kind.SUBSCRIBED, filter_text)
        if self._filters is NO_FILTERS:
            self._filters = {}
        self._filters[filter_text, listener] = partly

    def _may_hear(self, filter_text: str, listener: LiveListener, partly: bool) -> bool:  # decision 331
        """Whether there is something to tell; where it is a part, each address is judged from now on."""
        if self.may_consume(filter_text):
            return True
        if not partly or not self.may_consume_some(filter_text):
            return False
        if listener not in self._judged:
            self._judged = (*self._judged, listener)
            self._switchboard.judge(listener, self.may_consume, self.tenant)
        return True

    def unsubscribe(self, filter_text: str, listener: LiveListener) -> None:
        """Undo `subscribe`, where it was done."""
        if (filter_text, listener) in self._filters:
            self.settle()
            del self._filters[filter_text, listener]
            self._tell(Kind.UNSUBSCRIBED, filter_text)
            self._switchboard.unsubscribe(filter_text, listener, self.tenant)

    # ---- asked

    def retained(self, filter_text: str, on_done: OnRetained, *, max_values: int, start: str, partly: bool = False
                 ) -> None:
        """See `KernelPort.retained`. `partly`: what of it the principal may consume. Raises Denied, InvalidFilter."""
        self.require_some(filter_text, partly)
        self._port.retained(filter_text, self.tenant, self._allowing(filter_text, on_done), max_values, start)

    def require_some(self, filter_text: str, partly: bool) -> None:
        """Denied unless the principal may consume all that a filter matches, or `partly` some of it."""
        if not self.may_consume(filter_text) and not (partly and self.may_consume_some(filter_text)):
            self._admission.require(self.principal, CONSUME, filter_text)

    def _allowing(self, filter_text: str, on_done: OnRetained) -> OnRetained:
        """Rights are those of the answer: they may have changed since a page was asked for."""
        def on_page(values: list[Retained], after: str | None, error: Exception | None) -> None:
            if values and not self.may_consume(filter_text):
                values = [value for value in values if self.may_consume(value.address)]
            on_done(values, after, error)
        return on_page

    def read_back(self, wants: list[tuple[int, int, int]], addresses: Collection[HeardAddress], max_bytes: int,
                  on_done: Callable[[list[ReadBack]], None]) -> None:
        """Read again what was delivered, of some addresses: (partition id, offset, max_bytes) each; see
        `KernelPort.fetch`. Records that the principal may not have are left out."""
        allowed = {address.address for address in addresses
                   if address.tenant == self.tenant and self.may(CONSUME, address.address)}

        def on_fetched(answers: list[Fetched]) -> None:
            on_done([ReadBack(answer, self._of_addresses(answer, allowed)) for answer in answers])

        self._port.fetch(wants, max_bytes, on_fetched, False)

    def _of_addresses(self, answer: Fetched, allowed: Collection[str]) -> list[Record]:
        """The records of a partition that are of these addresses."""
        topic = self._switchboard.topic_of(answer.partition_id, self.tenant)
        if topic is None:
            return []
        records = [record for piece in answer.pieces for record in sound_records(piece)]
        if self.may_topic(CONSUME, topic):
            return records
        address_of = self._port.address_of
        return [record for record in records if address_of(topic, record[2], record[4]) in allowed]

    def history(self, filter_text: str, *, partly: bool = False) -> FilterHistory:
        """What is stored of the addresses that a filter matches; `partly`: of those that the principal may consume.
        Raises Denied, InvalidFilter."""
        self.require_some(filter_text, partly)
        return FilterHistory(self, self._port, filter_text, partly)

    def has_expired(self, record: Record, topic: str) -> bool:
        """Whether a record of a topic is worth nothing any more."""
        return self._port.has_expired(record, topic, self.tenant)
