"""Fetch 4 to 18: the records of many partitions, at once or when there are enough of them.

It runs when every earlier request of its connection has been answered. Each look goes over all partitions once (the
hot part is `FetchRows.scan_many`) and asks the kernel for those alone that have something. Where that is less than
the client's `min_bytes`, it waits for the kernel's word that one of the partitions has grown, and looks again, until
`max_wait_ms`.

A client that keeps a fetch session (KIP-227) lists what has changed, and hears of what has: see `fetch_session`. What
it lists counts when its turn has come, so fetches that are sent one behind the other are taken in order.
"""
from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import CHECKS
from gatehouse.gateways.kafka.codec import (
    FETCH_FLEXIBLE,
    FETCH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchRows,
    decode_fetch,
    encode_fetch_error,
)
from gatehouse.gateways.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    UNKNOWN_TOPIC_ID,
)
from gatehouse.gateways.kafka.fetch_columns import Block
from gatehouse.gateways.kafka.fetch_session import FetchSession, FollowedTopic, SessionRows
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request, find_by_id, find_topic, text_of
from gatehouse.gateways.kafka.transacting import CheckTopics
from gatehouse.kernel.errors import KernelError, UnknownTopic
from gatehouse.kernel.message import Fetched
from gatehouse.kernel.records.batch import as_batch, empty_batch
from gatehouse.kernel.state.topics import Topic

CONSUME: Final = Operation.CONSUME     # decision 357: looked up once
OPENS_SESSION: Final = 0               # the epoch of a fetch that lists everything, and opens a session
NO_SESSION: Final = -1                 # of one that lists everything, and wants none
LOOK_AGAIN_MS: Final = 5               # with min_bytes above 1, how soon a look that was not enough is repeated


class Fetch:
    """One fetch until it is answered."""

    __slots__ = ("request", "wanted", "max_bytes", "min_bytes", "deadline_ms", "looked_ms", "rows", "watch", "ended",
                 "followed", "whole", "names", "given", "is_held", "is_reading", "has_grown")

    def __init__(self, request: Request, wanted: FetchRequest) -> None:
        session = request.session
        config = session.config
        self.request = request
        self.wanted = wanted
        # One batch at least, as in Kafka: who asks for 0 bytes would otherwise never get on.
        self.max_bytes = max(1, min(wanted.max_bytes, session.services.unsent.allowed(config.fetch_max_bytes)))
        self.min_bytes = min(wanted.min_bytes, self.max_bytes)
        self.deadline_ms = session.wait_until(wanted.max_wait_ms)
        self.looked_ms = 0
        self.rows = FetchRows(request.version, wanted.read_committed, session.epoch)
        self.watch = 0                     # of the partitions; 0: none
        self.ended = False
        self.followed: FetchSession | None = None          # the session that this fetch goes on with, or has opened
        self.whole = True                  # the client is to hear of each partition
        self.names: list[str] = []         # of the topic of each want, where limits speak of what goes out
        self.given: dict[str, tuple[int, int]] = {}        # messages and bytes that this answer has, by topic
        self.is_held = False               # a limit lets nothing out now
        self.is_reading = False            # the kernel has not given yet what the last look asked for
        self.has_grown = False             # and a partition has new records since

    def begin(self) -> None:
        """Its turn has come."""
        error = self.enter_session()
        if error == NONE:
            self.look()
        else:
            self.request.done([encode_fetch_error(self.request.version, self.request.correlation_id, error)])

    def enter_session(self) -> int:
        """Find or open the session, where one is wanted; an error of the whole fetch."""
        wanted, session = self.wanted, self.request.session
        if wanted.session_epoch == NO_SESSION and not wanted.session_id:
            return NONE
        sessions, now_ms = session.fetch_sessions, session.services.now_ms()
        by_id = self.request.version >= FETCH_TOPIC_IDS
        if wanted.session_epoch in (OPENS_SESSION, NO_SESSION):
            sessions.close(wanted.session_id, session)
            if wanted.session_epoch == OPENS_SESSION:
                self.followed = sessions.open(session, by_id, wanted.topics, now_ms)
            if self.followed is not None:
                wanted.topics = []         # the session has them
            return NONE
        followed = sessions.find(wanted.session_id, session)
        if followed is None:
            return FETCH_SESSION_ID_NOT_FOUND
        if followed.epoch != wanted.session_epoch:
            return INVALID_FETCH_SESSION_EPOCH
        if followed.by_id != by_id:
            return FETCH_SESSION_TOPIC_ID_ERROR
        most = session.config.fetch_max_partitions
        if not sessions.follow(followed, wanted.topics, wanted.forgotten, most, now_ms):
            return FETCH_SESSION_ID_NOT_FOUND
        wanted.topics = []
        if not followed.size:
            sessions.close(followed.id, session)
            return NONE
        self.followed, self.whole = followed, False
        return NONE

    def look(self) -> None:
        """Go over all partitions and read what there is."""
        session = self.request.session
        self.looked_ms = session.services.now_ms()
        self.is_held = self.has_grown = False
        self.names.clear()
        version, read_committed = self.rows.version, self.rows.read_committed
        if self.followed is None:
            self.rows = FetchRows(version, read_committed, session.epoch)
            for topic in self.wanted.topics:
                self.look_at(*topic)
        else:
            rows = SessionRows(version, read_committed, session.epoch, self.followed, self.whole)
            self.rows = rows
            names = {followed.name: self.look_at_followed(rows, followed) for followed in self.followed.topics.values()}
            rows.arrange()
            if session.guard.limits_out:
                self.names = [names[followed.name] for followed in rows.wanted_topics()]
        if self.rows.wants:
            guard = session.guard
            self.is_reading, looked = True, self.rows
            guard.fetch(looked.wants, self.room() if guard.limits_out else self.max_bytes,
                        partial(self.on_read, looked))
            if self.is_reading and self.min_bytes > 1:     # what is read may not be enough
                self.watch = guard.watch(looked.partition_ids(), self.on_grown)
        else:
            self.is_reading = False
            self.judge(0)

    def room(self) -> int:
        """Bytes that limits let out now, about: 1 is one batch, 0 nothing. Who shares a limit with others takes his
        turn with few messages, however many would fit."""
        session = self.request.session
        messages, size_bytes = session.guard.out_room()
        self.is_held = messages == 0
        return 0 if self.is_held else max(1, min(self.max_bytes, size_bytes, messages * session.fetched_each_bytes))

    def look_at(self, name: bytes, partitions: list[FetchPartition], block: Block | None) -> None:
        """One topic's partitions."""
        rows, guard = self.rows, self.request.session.guard
        rows.open_topic(name, len(partitions) if block is None else len(block))
        try:
            topic = self.find_topic(name)
        except (KernelError, Denied) as refusal:
            rows.refuse(partitions, block, self.code_of(refusal))
        else:
            if block is None:
                rows.scan(partitions, topic.partition_ids(), guard.bounds)
            else:
                bounds = np.frombuffer(guard.bounds_of(topic), np.int64).reshape(-1, 2)
                rows.scan_many(block, topic.partition_ids(), bounds, guard.bounds)
            if guard.limits_out:
                self.names += [topic.name] * (len(rows.wants) - len(self.names))
        rows.close_topic()

    def look_at_followed(self, rows: SessionRows, followed: FollowedTopic) -> str:
        """One topic of a session; its name, where there is such a topic."""
        guard = self.request.session.guard
        of = rows.begin_topic(followed)
        name = ""
        try:
            topic = self.find_topic(followed.name)
        except (KernelError, Denied) as refusal:
            rows.refuse_topic(of, self.code_of(refusal))
        else:
            name = topic.name
            many = followed.many
            if many is None:
                rows.look_at_few(of, topic.partition_ids(), guard.bounds)
            else:
                bounds = np.frombuffer(guard.bounds_of(topic), np.int64).reshape(-1, 2)
                rows.look_at_many(of, many, topic.partition_ids(), bounds)
        rows.end_topic(of)
        return name

    def code_of(self, refusal: Exception) -> int:
        """Kafka's number for why a topic is not read."""
        if self.rows.version >= FETCH_TOPIC_IDS and isinstance(refusal, UnknownTopic):
            return UNKNOWN_TOPIC_ID
        return code_of(refusal)

    def find_topic(self, name: bytes) -> Topic:
        """By name, or by id from version 13. Raises UnknownTopic, Denied, InvalidTopic."""
        session = self.request.session
        if self.rows.version < FETCH_TOPIC_IDS:
            topic = find_topic(session, text_of(name), CONSUME)
        else:
            topic = find_by_id(session, name, CONSUME)
        if topic.name.startswith(CHECKS):                  # whoever fetches a group's checks is there to be asked
            CheckTopics.of(session.services).note_fetch(topic.tenant, topic.name)
        return topic

    def on_read(self, rows: FetchRows, fetched: list[Fetched]) -> None:
        """What the kernel read for these rows, in the order of their wishes; called at once when all of it was in
        memory. It is too late where there was another look since."""
        if self.ended or rows is not self.rows:
            return
        self.is_reading = False
        total = messages = 0
        self.given.clear()
        for number, (place, (_, offset, _), answer) in enumerate(zip(rows.places, rows.wants, fetched, strict=True)):
            if answer.error is not None:
                rows.errors += 1
                rows.fill(place, code_of(answer.error), answer.high_watermark, answer.log_start_offset, [])
                continue
            batches = [as_batch(piece, rows.leader_epoch) for piece in answer.pieces]
            if not batches and answer.next_offset > offset:
                batches = [empty_batch(offset, answer.next_offset, rows.leader_epoch)]
            read_bytes, read_messages = sum(map(len, batches)), sum([piece.count for piece in answer.pieces])
            total += read_bytes
            messages += read_messages
            if self.names and read_messages:
                name = self.names[number]
                given_messages, given_bytes = self.given.get(name, (0, 0))
                self.given[name] = given_messages + read_messages, given_bytes + read_bytes
            rows.fill(place, NONE, answer.high_watermark, answer.log_start_offset, batches)
        self.judge(total, messages)

    def judge(self, total_bytes: int, messages: int = 0) -> None:
        """Answer, or wait for more. As in Kafka, partitions that are not there do not hurry the others."""
        session = self.request.session
        rows = self.rows
        more = rows.more and not self.is_held          # which a limit lets out no sooner than the rest
        if (total_bytes >= self.min_bytes or rows.errors or more or session.stopping
                or self.looked_ms >= self.deadline_ms or not rows.anything_there()):
            self.end()
            session.flow.messages_out += messages
            session.flow.bytes_out += total_bytes
            throttle_ms = self.charge() if self.given else 0
            session_id = self.followed.id if self.followed is not None else 0
            self.request.done(rows.encode(self.request.correlation_id, throttle_ms, session_id))
            return
        if self.is_held:
            self.forget_watch()
            again_ms = session.services.now_ms() + max(1, session.guard.out_wait_ms())
            session.wake_at(min(self.deadline_ms, again_ms), self.on_timer)
            return
        if self.has_grown:
            self.on_grown()
            return
        if not self.watch:
            self.watch = session.guard.watch(rows.partition_ids(), self.on_grown)
        session.wake_at(self.deadline_ms, self.on_timer)

    def charge(self) -> int:
        """Charge what is answered, each topic once; returns for how many ms the client is to be slowed down."""
        session = self.request.session
        throttle_ms = count = total_bytes = 0
        for topic, (messages, size_bytes) in self.given.items():
            throttle_ms = max(throttle_ms, session.guard.hand_out(messages, size_bytes, topic))
            count += messages
            total_bytes += size_bytes
        session.fetched_each_bytes = max(1, total_bytes // count)
        if throttle_ms:
            session.throttle(throttle_ms)
        return throttle_ms

    def on_grown(self) -> None:
        """A partition that this fetch waits for has new records."""
        self.watch = 0
        if self.ended:
            return
        if self.is_reading:
            self.has_grown = True
            return
        session = self.request.session
        again_ms = self.looked_ms + LOOK_AGAIN_MS
        if self.min_bytes > 1 and session.services.now_ms() < again_ms < self.deadline_ms:
            session.wake_at(again_ms, self.on_timer)
        else:
            self.look()

    def on_timer(self) -> None:
        if not self.ended:
            self.forget_watch()
            self.look()

    def end(self) -> None:
        """Answered, or the connection is gone."""
        self.ended = True
        self.forget_watch()
        self.request.session.wake_at(0, None)

    def forget_watch(self) -> None:
        if self.watch:
            self.request.session.guard.unwatch(self.watch)
            self.watch = 0


def dispatch(request: Request) -> None:
    most = request.session.config.fetch_max_partitions
    wanted = decode_fetch(request.data, request.at, request.end, request.version, most)
    request.data = b""
    fetch = Fetch(request, wanted)
    request.on_turn = fetch.begin
    request.on_end = fetch.end


FETCH = Api(key=1, name="Fetch", first_version=4, last_version=18, first_flexible=FETCH_FLEXIBLE, dispatch=dispatch)
