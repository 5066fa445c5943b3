"""ShareFetch 1 and 2, ShareAcknowledge 1 and 2: messages leased to members of a share group (KIP-932), and what becomes
of them.

A share group is a leased group of the same name, which HTTP's pop and `$share` take from as well. A fetch first settles
what it says of earlier messages, in steps. When every earlier request of its connection has been answered it takes some
of one of its topics, as many as it has room for, and waits where none of them has as much as it asks for. It is
answered when what it settled is durable.

    accept   done               reject   a dead letter, for nobody
    release  ready at once      renew    kept for another lock time

Messages that were given and not settled go back when their lock time is over, and at once when the connection is gone.
Source: https://kafka.apache.org/protocol#protocol_api_keys (78, 79), KIP-932, KIP-1206, KIP-1222.
"""
from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.kafka.api.fetch import LOOK_AGAIN_MS
from gatehouse.gateways.kafka.api.group_administration import share_members
from gatehouse.gateways.kafka.api.membership import require_group
from gatehouse.gateways.kafka.api.metadata import NODE_ID
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_ID,
)
from gatehouse.gateways.kafka.kept_configs import SHARE_LOCK, GroupConfigs, start_of
from gatehouse.gateways.kafka.mapping import Refused, code_of
from gatehouse.gateways.kafka.request import Api, Request, find_by_id
from gatehouse.gateways.kafka.schemas import Field, Message
from gatehouse.gateways.kafka.share_session import (
    ACCEPT,
    GAP,
    MAX_BATCHES,
    MAX_HELD,
    MAX_TYPES,
    OPENS,
    REJECT,
    RELEASE,
    RENEW,
    Held,
    HeldAt,
    PartitionName,
    ShareSession,
    ShareSessions,
)
from gatehouse.kernel.api import ACK, EXTEND, LEAVE, Settling, Taken
from gatehouse.kernel.api import REJECT as REJECTED
from gatehouse.kernel.api import RELEASE as RELEASED
from gatehouse.kernel.errors import KernelError, UnknownGroup, UnknownTopic
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.message import Handle, Leased, Stored
from gatehouse.kernel.records.batch import MAX_DELTA, leased_batch

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

_LEADER: Final = ("CurrentLeader", [("LeaderId", "int32", 0), ("LeaderEpoch", "int32", 0)])
_ENDPOINTS: Final = ("[]NodeEndpoint", [("NodeId", "int32", 0), ("Host", "string", 0), ("Port", "int32", 0),
                                        ("Rack", "string?", 0)])
_SETTLED: Final = ("[]AcknowledgementBatch", [("FirstOffset", "int64", 0), ("LastOffset", "int64", 0),
                                              ("AcknowledgeTypes", "[]int8", 0)])
_TOPICS: Final[list[Field]] = [
    ("TopicId", "uuid", 0),
    ("Partitions", ("[]Partition", [("PartitionIndex", "int32", 0), ("AcknowledgementBatches", _SETTLED, 0)]), 0)]

SHARE_FETCH_REQUEST: Final = Message("ShareFetchRequest", 2, [
    ("GroupId", "string?", 0), ("MemberId", "string?", 0), ("ShareSessionEpoch", "int32", 0), ("MaxWaitMs", "int32", 0),
    ("MinBytes", "int32", 0), ("MaxBytes", "int32", 0), ("MaxRecords", "int32", 1), ("BatchSize", "int32", 1),
    ("ShareAcquireMode", "int8", 2), ("IsRenewAck", "bool", 2), ("Topics", ("[]FetchTopic", _TOPICS), 0),
    ("ForgottenTopicsData", ("[]ForgottenTopic", [("TopicId", "uuid", 0), ("Partitions", "[]int32", 0)]), 0)])

SHARE_FETCH_RESPONSE: Final = Message("ShareFetchResponse", 2, [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("AcquisitionLockTimeoutMs", "int32", 1),
    ("Responses", ("[]ShareFetchableTopicResponse", [
        ("TopicId", "uuid", 0),
        ("Partitions", ("[]PartitionData", [
            ("PartitionIndex", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
            ("AcknowledgeErrorCode", "int16", 0), ("AcknowledgeErrorMessage", "string?", 0),
            ("CurrentLeader", _LEADER, 0), ("Records", "bytes", 0),
            ("AcquiredRecords", ("[]AcquiredRecords", [("FirstOffset", "int64", 0), ("LastOffset", "int64", 0),
                                                       ("DeliveryCount", "int16", 0)]), 0)]), 0)]), 0),
    ("NodeEndpoints", _ENDPOINTS, 0)])

SHARE_ACKNOWLEDGE_REQUEST: Final = Message("ShareAcknowledgeRequest", 2, [
    ("GroupId", "string?", 0), ("MemberId", "string?", 0), ("ShareSessionEpoch", "int32", 0),
    ("IsRenewAck", "bool", 2), ("Topics", ("[]AcknowledgeTopic", _TOPICS), 0)])

SHARE_ACKNOWLEDGE_RESPONSE: Final = Message("ShareAcknowledgeResponse", 2, [
    ("ThrottleTimeMs", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
    ("AcquisitionLockTimeoutMs", "int32", 2),
    ("Responses", ("[]ShareAcknowledgeTopicResponse", [
        ("TopicId", "uuid", 0),
        ("Partitions", ("[]PartitionData", [
            ("PartitionIndex", "int32", 0), ("ErrorCode", "int16", 0), ("ErrorMessage", "string?", 0),
            ("CurrentLeader", _LEADER, 0)]), 0)]), 0),
    ("NodeEndpoints", _ENDPOINTS, 0)])

FIRST_WITH_RENEWAL: Final = 2            # of both
CONSUME: Final = Operation.CONSUME
MAX_TRIES: Final = 0x7FFF                # of a delivery count, an i16
RECORD_BYTES: Final = 16                 # of a record beside its key, value and headers, about
DISK_MS: Final = 250                     # what a fetch that does not want to wait gives to messages on the disk
READY_MS: Final = 20                     # what a topic that seems to have messages is given before others are asked
ASKED_AT_ONCE: Final = 64                # topics, in one turn
TOLD_AT_ONCE: Final = 64                 # messages that are settled, in one step
SETTLINGS: Final = {GAP: Settling(ACK), ACCEPT: Settling(ACK), RELEASE: Settling(RELEASED, 0),
                    REJECT: Settling(REJECTED)}


def sessions_of(session: KafkaSession) -> ShareSessions:
    """The share sessions of a connection, made at the first use."""
    if session.share_sessions is None:
        session.share_sessions = ShareSessions()
    return session.share_sessions


def lock_ms_of(session: KafkaSession, group: str) -> int:
    """How long the group's members keep a message: as was set by a Kafka client, or else as the group says."""
    tenant = session.principal.tenant
    configs = GroupConfigs.of(session.services).get(tenant, group)
    if SHARE_LOCK in configs:
        return int(configs[SHARE_LOCK])
    return (session.kernel.groups.settings(group, tenant) or GroupSettings()).invisible_ms


# ---- settling

class Settlement:
    """What one request settles, until it is durable."""

    __slots__ = ("session", "group", "held", "lock_ms", "codes", "texts", "_by_kind", "_pending", "_on_done")

    def __init__(self, session: KafkaSession, group: str, held: ShareSession, lock_ms: int) -> None:
        self.session = session
        self.group = group
        self.held = held
        self.lock_ms = lock_ms
        self.codes: dict[PartitionName, int] = {}        # of each partition that the request says something of
        self.texts: dict[PartitionName, str] = {}
        self._by_kind: dict[int, list[HeldAt]] = {}     # what the kernel is to be told
        self._pending = 1                                # one more, while the request is gone through
        self._on_done: Callable[[], None] | None = None

    def settle(self, asked: list[Any], renews: bool) -> Iterator[None]:
        """What the request says of each partition's messages, a partition a step. What a session holds that has ended
        goes back."""
        held = self.held
        until_ms = self.session.services.now_ms() + self.lock_ms
        for topic in asked:
            for partition in topic.partitions:
                yield
                if not partition.acknowledgement_batches:
                    continue
                name = (topic.topic_id.bytes, partition.partition_index)
                self.codes.setdefault(name, NONE)
                try:
                    kinds = held.settled(name, partition.acknowledgement_batches, renews)
                except Refused as refusal:
                    self.refuse(name, refusal)
                    continue
                for kind, offsets in kinds.items():
                    if offsets:
                        self._by_kind.setdefault(kind, []).extend(
                            held.take(name, offsets, until_ms if kind == RENEW else 0))
        while self._tell_some():
            yield
        self.tell()

    def _tell_some(self) -> bool:
        """The kernel hears of some of what was gone through; whether there was anything."""
        for kind, mine in self._by_kind.items():
            self._by_kind[kind] = mine[TOLD_AT_ONCE:]
            if not self._by_kind[kind]:
                del self._by_kind[kind]
            self._tell(SETTLINGS.get(kind) or Settling(EXTEND, self.lock_ms), mine[:TOLD_AT_ONCE])
            return True
        return False

    def tell(self) -> None:
        """The kernel hears of all that was gone through. Also where the connection is gone before the end of it."""
        while self._tell_some():
            pass
        if self.held.ended:
            give_back(self.session, self.group, self.held.take_all())

    def _tell(self, settling: Settling, mine: list[HeldAt]) -> None:
        durable = Durable(self)
        try:
            errors = self.session.guard.groups.settle(self.group, False, [each.held.receipt for each in mine], settling,
                                                      self.session, durable)
        except (KernelError, Denied) as refusal:
            self.fail(mine, refusal)
            return
        self._pending += 1
        for each, error in zip(mine, errors, strict=True):
            if error is None:
                durable.mine.append(each)
            else:                                        # its time was over, or it was purged
                self.refuse(each.name, Refused(INVALID_RECORD_STATE, str(error)))

    def fail(self, mine: list[HeldAt], refusal: Exception) -> None:
        """Nothing has become of these."""
        self.held.put_back(mine)
        for name in {each.name for each in mine}:
            self.refuse(name, refusal)

    def refuse(self, name: PartitionName, refusal: Exception) -> None:
        if isinstance(refusal, Denied):
            refusal = Refused(GROUP_AUTHORIZATION_FAILED, str(refusal))
        self.codes[name] = refusal.code if isinstance(refusal, Refused) else code_of(refusal)
        self.texts[name] = str(refusal)

    def when_done(self, on_done: Callable[[], None]) -> None:
        """Call it once everything is durable, or is not: now, or later."""
        self._on_done = on_done
        self.settled()

    def settled(self) -> None:
        self._pending -= 1
        if not self._pending and self._on_done is not None:
            self._on_done()


class Durable:
    """Waits for what was settled in one way."""

    __slots__ = ("settlement", "mine")

    def __init__(self, settlement: Settlement) -> None:
        self.settlement = settlement
        self.mine: list[HeldAt] = []

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.settlement.fail(self.mine, stored.error)
        self.settlement.settled()


class Unheard:
    """Waits for nothing: who held these messages is gone."""

    def on_stored(self, stored: Stored) -> None:
        pass


UNHEARD: Final = Unheard()


def give_back(session: KafkaSession, group: str, receipts: list[str]) -> None:
    """What a member holds is ready again at once."""
    if not receipts:
        return
    try:
        session.guard.groups.settle(group, False, receipts, Settling(LEAVE), session, UNHEARD)
    except (KernelError, Denied):                        # their time runs out by itself
        pass


def end_sessions(session: KafkaSession) -> None:
    """The connection is gone."""
    if session.share_sessions is not None:
        for group, receipts in session.share_sessions.end():
            give_back(session, group, receipts)


def begin(request: Request, asked: Any, may_open: bool) -> ShareSession:
    """The session that a request goes on with. Raises Refused."""
    session = request.session
    if not asked.group_id or not asked.member_id:
        raise Refused(INVALID_REQUEST, "a group and a member have names")
    require_group(session, CONSUME, asked.group_id)
    batches = [len(batch.acknowledge_types) for topic in asked.topics for partition in topic.partitions
               for batch in partition.acknowledgement_batches]
    if len(batches) > (0 if asked.share_session_epoch == OPENS else MAX_BATCHES) or sum(batches) > MAX_TYPES:
        raise Refused(INVALID_REQUEST, f"who opens a session has nothing to settle; later there are {MAX_BATCHES} "
                                       f"stretches of offsets at most, with {MAX_TYPES} types")
    held, old = sessions_of(session).enter(asked.group_id, asked.member_id, asked.share_session_epoch, may_open)
    give_back(session, asked.group_id, old)
    held.drop_overdue(session.services.now_ms())
    return held


# ---- ShareFetch

class Given(NamedTuple):
    """What one partition gives to an answer."""

    records: bytes
    acquired: list[Row]


NOTHING: Final = Given(b"", [])


class ShareFetch:
    """One fetch until it is answered."""

    __slots__ = ("request", "asked", "held", "settlement", "lock_ms", "renews", "deadline_ms", "refusals", "given",
                 "ended", "_requests", "_watches", "_left", "_count", "_min_bytes", "_max_bytes", "_reads",
                 "_is_settled", "_has_taken")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.asked = request.decode(SHARE_FETCH_REQUEST)
        self.held = ShareSession()
        self.settlement = Settlement(request.session, "", self.held, 0)          # until it has begun
        self.refusals: dict[PartitionName, Exception] = {}       # of partitions that cannot be read
        self.given: dict[PartitionName, Given] = {}
        self.renews = request.version >= FIRST_WITH_RENEWAL and self.asked.is_renew_ack
        self.lock_ms = self.deadline_ms = 0
        self._requests: dict[bytes, int] = {}                    # by which the kernel was asked for messages of topics
        self._watches: list[int] = []                            # of topics that do not have enough yet
        self._left: Iterator[Topic] = iter(())                   # topics that are still to be asked for
        self._count = 0                                          # of messages that are asked for
        self._max_bytes = max(1, self.asked.max_bytes)           # one message at least, as in Kafka
        self._min_bytes: int = min(self.asked.min_bytes, self._max_bytes)
        self._reads = self._is_settled = self._has_taken = self.ended = False

    def settle(self) -> Iterator[None]:
        """What comes first; then it waits for its turn."""
        asked, session = self.asked, self.request.session
        try:
            self.held = begin(self.request, asked, True)
        except Refused as refusal:
            self._answer(refusal)
            return
        self.lock_ms = lock_ms_of(session, asked.group_id)
        self.settlement = Settlement(session, asked.group_id, self.held, self.lock_ms)
        try:
            for topic in asked.topics:
                yield
                self.held.ask(topic.topic_id.bytes, [partition.partition_index for partition in topic.partitions],
                              sessions_of(session).room(self.held, session.config.fetch_max_partitions))
        except Refused as refusal:
            self.settlement.tell()
            self._answer(refusal)
            return
        for topic in asked.forgotten_topics_data:
            self.held.forget(topic.topic_id.bytes, topic.partitions)
        yield from self.settlement.settle(asked.topics, self.renews)
        self.settlement.when_done(self._on_settled)

    def begin(self) -> None:
        """Its turn has come."""
        asked, session = self.asked, self.request.session
        self.deadline_ms = session.wait_until(asked.max_wait_ms)
        if self.held.ended or asked.max_records <= 0 or self.renews:
            self._take_nothing()
        else:
            self._look()

    # ---- taking

    def _look(self) -> None:
        """Begin to ask for messages. Who holds as many as may be is given none, and waits as long as if there were
        none."""
        session = self.request.session
        self._count = max(0, min(self.asked.max_records, MAX_HELD - self.held.count,
                                 max(1, self._max_bytes // max(1, self.held.each_bytes))))
        if session.stopping:
            self._take_nothing()
            return
        if session.guard.limits_out:
            room, room_bytes = session.guard.out_room()
            if not room:
                session.wake_at(min(self.deadline_ms, session.services.now_ms() + max(1, session.guard.out_wait_ms())),
                                self._on_timer)
                return
            self._count = min(self._count, room, max(1, room_bytes // session.fetched_each_bytes))
        self._left = self._topics() if self._count else iter(())
        self._ask()

    def _ask(self) -> None:
        """Ask the kernel for messages of some topics more; the first that has some gives them. Behind one that seems to
        have some the others wait a little: what is given of more than one goes back."""
        session, group = self.request.session, self.asked.group_id
        if self.ended or self._has_taken:
            return
        if session.stopping:
            self._take_nothing()
            return
        asked = 0
        for topic in self._left:
            if topic.uuid in self._requests:                     # it waits for the first one there
                continue
            try:
                settings = session.kernel.groups.settings(group, session.principal.tenant)
                if settings is None:                             # deleted meanwhile
                    start = start_of(session, group)
                    if isinstance(start, int):                   # the next heartbeat has it begin
                        continue
                    session.guard.groups.open(group, topic.name, start)
                elif settings.single_active and not self._is_active(topic):
                    continue
                if not self._has_enough(topic):
                    self._watches.append(session.guard.watch(topic.partition_ids(), self._on_grown))
                    continue
                number, must_read = session.guard.groups.take((group, topic.name), self._count, self.lock_ms,
                                                              partial(self._on_taken, topic))
            except (KernelError, Denied) as refusal:
                self._refuse(topic.uuid, refusal)
                continue
            self._requests[topic.uuid] = number
            self._reads |= must_read
            asked += 1
            if must_read or asked >= ASKED_AT_ONCE:
                session.wake_at(session.services.now_ms() + (READY_MS if must_read else 1), self._ask)
                return
        now_ms = session.services.now_ms()
        session.wake_at(max(now_ms if self.refusals else self.deadline_ms, now_ms + DISK_MS if self._reads else 0),
                        self._on_deadline if self._watches else self._take_nothing)

    def _is_active(self, topic: Topic) -> bool:
        """Whether no member that reads the topic has been in the group for longer."""
        members = share_members(self.request.session, self.asked.group_id)
        return members is not None and members.first(topic.name) == self.asked.member_id

    def _has_enough(self, topic: Topic) -> bool:
        """Whether there is as much as the fetch asks for, by what its messages take on the average, or as many as it
        may be given. As long as nobody knows how large they are the first is enough, and so it is when time is over."""
        each_bytes, now_ms = self.held.each_bytes, self.request.session.services.now_ms()
        if self._min_bytes <= 1 or not each_bytes or now_ms >= self.deadline_ms:
            return True
        least = min(self._count, -(-self._min_bytes // each_bytes))
        return self.request.session.guard.groups.counts(self.asked.group_id, topic.name).ready >= least

    def _on_grown(self) -> None:
        """A topic that did not have enough has more, or is gone. It is looked again soon, with what comes meanwhile."""
        self._unwatch()
        if not self.ended and not self._has_taken:
            session = self.request.session
            session.wake_at(min(self.deadline_ms, session.services.now_ms() + LOOK_AGAIN_MS), self._look)

    def _on_deadline(self) -> None:
        """What there is is enough now."""
        self._unwatch()
        self._look()

    def _unwatch(self) -> None:
        watches, self._watches = self._watches, []
        for number in watches:
            self.request.session.guard.unwatch(number)

    def _topics(self) -> Iterator[Topic]:
        """Those that are asked for, in turn; what cannot be read is noted."""
        for name in self.held.in_turn():
            try:
                yield find_by_id(self.request.session, name, CONSUME)
            except (KernelError, Denied) as refusal:
                self._refuse(name, refusal)

    def _refuse(self, name: bytes, refusal: Exception) -> None:
        """One partition stands for all of a topic: there may be thousands of them."""
        for partition in islice(self.held.asked.get(name, ()), 1):
            self.refusals[name, partition] = refusal

    def _on_timer(self) -> None:
        """A limit may let something out now."""
        if self.request.session.services.now_ms() >= self.deadline_ms:
            self._take_nothing()
        else:
            self._look()

    def _on_taken(self, topic: Topic, taken: list[Taken], error: KernelError | None) -> None:
        """The kernel gives messages of one topic. Who has been answered, or was given others, gets none."""
        if self.ended or self._has_taken:
            return
        if error is not None:
            self._refuse(topic.uuid, error)
        elif not taken or not self._give(topic, taken):
            return                                       # it has time left, for what comes of other topics
        self._has_taken = True
        self._end_requests()
        self._finish()

    def _give(self, topic: Topic, taken: list[Taken]) -> bool:
        """Whether anything of it is wanted: a topic may have grown, and the client does not know it yet. The rest, and
        what the answer has no room for, goes back as if nobody had had it."""
        session = self.request.session
        until_ms = session.services.now_ms() + self.lock_ms
        by_partition: dict[int, list[Taken]] = {}
        for each in taken:
            by_partition.setdefault(each.leased[0][0], []).append(each)
        ids = topic.partition_ids()                      # as they were when it was asked
        wanted = () if self.held.ended else self.held.asked.get(topic.uuid, ())
        unwanted: list[Handle] = []
        size_bytes = messages = 0
        for partition_id, mine in by_partition.items():
            number = ids.number_of(partition_id) if partition_id in ids else -1
            if number not in wanted:
                unwanted += [each.leased[:3] for each in mine]
                continue
            mine.sort(key=lambda each: each.leased[1])
            fitting = fitting_in([each.leased for each in mine], self._max_bytes - size_bytes, is_first=not messages)
            unwanted += [each.leased[:3] for each in mine[fitting:]]
            mine = mine[:fitting]
            if not mine:
                continue
            name = (topic.uuid, number)
            for each in mine:
                self.held.hold(name, each.leased[1], Held(each.receipt, until_ms))
            self.given[name] = given = Given(records_of([each.leased for each in mine], session.epoch),
                                             acquired_of([each.leased for each in mine]))
            size_bytes += len(given.records)
            messages += len(mine)
        if unwanted:
            session.guard.groups.give_back(self._requests[topic.uuid], unwanted)
        if messages:
            self.held.note_size(messages, size_bytes)
        session.flow.messages_out += messages
        session.flow.bytes_out += size_bytes
        if messages and session.guard.limits_out:        # the next fetch waits; what is settled comes meanwhile
            session.guard.hand_out(messages, size_bytes, topic.name, consumers=self.asked.group_id)
            session.fetched_each_bytes = self.held.each_bytes
        return messages > 0

    def _end_requests(self) -> None:
        """Nothing more is taken."""
        self._unwatch()
        requests, self._requests = self._requests, {}
        for number in requests.values():
            self.request.session.guard.groups.end_request(number)

    def _take_nothing(self) -> None:
        """There is nothing to take, or no time left."""
        self._has_taken = True
        self._end_requests()
        self._finish()

    # ---- answering

    def _on_settled(self) -> None:
        self._is_settled = True
        self._finish()

    def _finish(self) -> None:
        if self._is_settled and self._has_taken and not self.ended:
            self._answer(None)

    def _answer(self, refusal: Refused | None) -> None:
        self.ended = True
        session = self.request.session
        session.wake_at(0, None)
        rows: dict[PartitionName, Row] = {}
        if refusal is None:
            settlement = self.settlement
            for name in {**self.given, **self.refusals, **settlement.codes}:
                unread = self.refusals.get(name)
                given = self.given.get(name, NOTHING)
                rows[name] = Row(
                    partition_index=name[1], error_code=NONE if unread is None else code_of_unread(unread),
                    error_message=None if unread is None else str(unread),
                    acknowledge_error_code=settlement.codes.get(name, NONE),
                    acknowledge_error_message=settlement.texts.get(name),
                    current_leader=Row(leader_id=NODE_ID, leader_epoch=session.epoch),
                    records=given.records, acquired_records=given.acquired)
        self.request.answer(
            SHARE_FETCH_RESPONSE, throttle_time_ms=0,
            error_code=NONE if refusal is None else refusal.code,
            error_message=None if refusal is None else str(refusal), acquisition_lock_timeout_ms=self.lock_ms,
            responses=by_topic(rows), node_endpoints=[])

    def end(self) -> None:
        """The connection is gone."""
        self.ended = True
        self._end_requests()
        self.settlement.tell()


def by_topic(rows: dict[PartitionName, Row]) -> list[Row]:
    """The rows of partitions as an answer has them: those of each topic together."""
    topics: dict[bytes, list[Row]] = {}
    for name, row in rows.items():
        topics.setdefault(name[0], []).append(row)
    return [Row(topic_id=uuid.UUID(bytes=topic), partitions=partitions) for topic, partitions in topics.items()]


def code_of_unread(refusal: Exception) -> int:
    """Why a partition gives nothing."""
    if isinstance(refusal, UnknownTopic | UnknownGroup):         # a group over a topic ends with it
        return UNKNOWN_TOPIC_ID
    return code_of(refusal)


def fitting_in(messages: list[Leased], max_bytes: int, is_first: bool) -> int:
    """How many of these, from the first on, an answer has room for; `is_first`: one in any case."""
    for at, (_, _, _, _, _, key, value, headers, _) in enumerate(messages):
        max_bytes -= RECORD_BYTES + len(key or b"") + len(value or b"") + len(headers)
        if max_bytes < 0 and (at or not is_first):
            return at
    return len(messages)


def records_of(messages: list[Leased], leader_epoch: int) -> bytes:
    """Record batches of one partition's messages: one, unless their offsets are too far apart."""
    batches: list[bytes] = []
    begin = 0
    for at, message in enumerate(messages):
        if message[1] - messages[begin][1] > MAX_DELTA:
            batches.append(leased_batch(messages[begin:at], leader_epoch))
            begin = at
    return b"".join([*batches, leased_batch(messages[begin:], leader_epoch)])


def acquired_of(messages: list[Leased]) -> list[Row]:
    """Which offsets were given, how many times: stretches that follow one another and were tried as often."""
    rows: list[Row] = []
    for _, offset, attempt, *_ in messages:
        tries = min(attempt, MAX_TRIES)
        if rows and rows[-1].last_offset == offset - 1 and rows[-1].delivery_count == tries:
            rows[-1].last_offset = offset
        else:
            rows.append(Row(first_offset=offset, last_offset=offset, delivery_count=tries))
    return rows


def fetch(request: Request) -> Iterator[None]:
    waiting = ShareFetch(request)
    request.on_end = waiting.end
    yield from waiting.settle()
    if not waiting.ended:
        request.on_turn = waiting.begin


# ---- ShareAcknowledge

def acknowledge(request: Request) -> Iterator[None]:
    asked, session = request.decode(SHARE_ACKNOWLEDGE_REQUEST), request.session
    try:
        held = begin(request, asked, False)
    except Refused as refusal:
        request.answer(SHARE_ACKNOWLEDGE_RESPONSE, throttle_time_ms=0, error_code=refusal.code,
                       error_message=str(refusal), acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[])
        return
    settlement = Settlement(session, asked.group_id, held, lock_ms_of(session, asked.group_id))
    request.on_end = settlement.tell
    renews = request.version >= FIRST_WITH_RENEWAL and asked.is_renew_ack
    yield from settlement.settle(asked.topics, renews)
    settlement.when_done(partial(answer_acknowledge, request, settlement))


def answer_acknowledge(request: Request, settlement: Settlement) -> None:
    rows = {name: Row(partition_index=name[1], error_code=code, error_message=settlement.texts.get(name),
                      current_leader=Row(leader_id=NODE_ID, leader_epoch=request.session.epoch))
            for name, code in settlement.codes.items()}
    request.answer(
        SHARE_ACKNOWLEDGE_RESPONSE, throttle_time_ms=0, error_code=NONE, error_message=None,
        acquisition_lock_timeout_ms=settlement.lock_ms, responses=by_topic(rows), node_endpoints=[])


SHARE_FETCH = Api(key=78, name="ShareFetch", first_version=1, last_version=2, first_flexible=0, dispatch=fetch,
                  message=SHARE_FETCH_REQUEST)
SHARE_ACKNOWLEDGE = Api(key=79, name="ShareAcknowledge", first_version=1, last_version=2, first_flexible=0,
                        dispatch=acknowledge, message=SHARE_ACKNOWLEDGE_REQUEST)
