"""Everything that enters the pending frame: messages, definitions, offsets; producers' batches by `batches`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gatehouse.kernel.errors import IdempotencyConflict, KeptFull, Stopping
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import RETAIN, Message, NumberedMessage, Owner, Placement
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topic, TopicSettings, encode_topic, topic_key
from gatehouse.kernel.state.views import decode_offset_key, offset_record
from gatehouse.kernel.write.batch_builder import check
from gatehouse.kernel.write.batches import Batches
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.idempotency import fingerprint
from gatehouse.kernel.write.pending_frame import PendingFrame, Repeatable, Submission
from gatehouse.kernel.write.pending_frame import Places as MessagePlaces

Adding = Callable[[PendingFrame, list[Message], MessagePlaces], None]
"""Puts messages into a pending_frame and tells the place of each."""

KEPT_FULL = "what is kept beyond retention has reached kept_bytes: nothing that would have to be kept is taken"


class Appending:
    def __init__(self, parts: Parts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer
        self._topics = parts.topics
        self._places = parts.places
        self._subscriptions = parts.subscriptions
        self._window = parts.window
        self._now_ms = parts.loop.now_ms
        self._disk_guard = parts.disk_guard
        self.batches = Batches(self, parts, committer)
        self.refuse_full: Callable[[list[Message]], None] = lambda messages: None
        """Raises QueueFull for messages that have no room in a queue they would enter."""

        self.require_room: Callable[[list[Message]], object] = lambda messages: None
        """Raises QueueFull for messages that will enter a queue later, and have no room there now."""

    @property
    def is_behind(self) -> bool:
        """Whether more waits to be checked than is good."""
        return self.batches.validating.is_full

    @property
    def pending_bytes(self) -> int:
        """What is taken and not in the log yet."""
        return self.batches.validating.size_bytes \
            + sum([frame.builder.size_bytes for frame in self._committer.pending()])

    def stop(self) -> None:
        """Refuse what waits to be checked."""
        self.batches.validating.stop()

    # ---- messages

    def append(self, messages: list[Message], owner: Owner | None, token: object, positions: bool) -> None:
        """See `Kernel.append`."""
        self._append(messages, owner, token, positions, None)

    def append_numbered(self, messages: list[NumberedMessage], placements: dict[int, Placement], owner: Owner | None,
                        token: object, positions: bool) -> None:
        """As `append`, for messages with numbers of placements in front. Raises UnknownPlace besides, for others."""
        self._append(messages, owner, token, positions, placements)

    def _append(self, messages: list[Any], owner: Owner | None, token: object, positions: bool,
                placements: dict[int, Placement] | None) -> None:
        if self._committer.short:
            self._disk_guard.refuse()
        pending_frame = self._committer.open_frame()
        limited = check(messages, self.refresh, placements)
        if limited or self._parts.kept_full:
            placed: list[Message] = messages if placements is None else [
                (placements[message[0]], *message[1:]) for message in messages]
            if self._parts.kept_full:
                self.refuse_owed(placed)
            if limited:
                self.refuse_full(placed)
        places: MessagePlaces | None = [] if positions else None
        pending_frame.builder.add(messages, places, None, placements)
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    def append_once(self, messages: list[Message], owner: Owner | None, token: object, key: str,
                    add: Adding | None = None) -> None:
        """Unless the key is known: then its first answer is given again. `add` puts them elsewhere than in
        partitions."""
        pending_frame = self._committer.open_frame()
        mine = fingerprint(messages)
        if self.answered(pending_frame, mine, owner, token, key):
            return
        if self._committer.short:
            self._disk_guard.refuse()
        limited = check(messages, self.refresh)
        if self._parts.kept_full:
            self.refuse_owed(messages)
        if limited and add is None:
            self.refuse_full(messages)
        places: MessagePlaces = []
        if add is None:
            pending_frame.builder.add(messages, places)
        else:
            add(pending_frame, messages, places)
        self.remember(pending_frame, mine, places, owner, token, key)

    def answered(self, pending_frame: PendingFrame, mine: bytes, owner: Owner | None, token: object, key: str) -> bool:
        """Answer what is known by its key, stored or pending."""
        for pending in (self._committer.flight, pending_frame):
            first = pending.repeatable.get(key) if pending is not None else None
            if pending is not None and first is not None:
                self._same(first.fingerprint, mine)
                if owner is not None:
                    pending.submissions.append(Submission(owner, token, first.places, None))
                return True
        answer = self._window.get(key, self._now_ms())
        if answer is None:
            return False
        self._same(answer.fingerprint, mine)
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, None, (answer.append_ms, answer.positions)))
        return True

    def remember(self, pending_frame: PendingFrame, mine: bytes, places: MessagePlaces, owner: Owner | None,
                 token: object,
                  key: str) -> None:
        pending_frame.repeatable[key] = Repeatable(mine, places)
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    @staticmethod
    def _same(first: bytes, second: bytes) -> None:
        if first != second:
            raise IdempotencyConflict("this idempotency key came with another message before")

    def refuse_owed(self, messages: list[Message]) -> None:
        """Nothing new is taken that would have to outlive retention. Raises KeptFull, with nothing done."""
        for placement, value, _, attributes, _ in messages:
            if placement.queue is not None or placement.also or value and (placement.compact or attributes & RETAIN):
                raise KeptFull(KEPT_FULL)

    def refresh(self, placement: Placement) -> None:
        """Bring a placement up to date. Raises as `Kernel.place`."""
        if placement.topics_version != self._topics.version:
            self._places.renew(placement)
        self._subscriptions.refresh(placement)

    def new_producer_id(self, owner: Owner, token: object) -> None:
        pending_frame = self._committer.open_frame()
        producer_id = self._topics.new_producer_id()
        pending_frame.state.append(self._counters())
        pending_frame.submissions.append(Submission(owner, token, None,
                                                    (pending_frame.builder.now_ms, [(producer_id, 0, 0)])))

    # ---- definitions

    def create_topic(self, name: str, tenant: str, partitions: int, settings: TopicSettings, owner: Owner | None,
                     token: object, maker: str = "") -> Topic:
        pending_frame = self._committer.open_frame()
        topic = self._topics.create(name, tenant, partitions, settings, pending_frame.builder.now_ms, maker)
        self._define(pending_frame, topic.id, topic, owner, token)
        return topic

    def change_topic(self, topic: Topic, partitions: int | None, settings: TopicSettings | None, owner: Owner | None,
                     token: object) -> Topic:
        pending_frame = self._committer.open_frame()
        changed = self._topics.change(topic, partitions, settings)
        self._define(pending_frame, topic.id, changed, owner, token)
        self._subscriptions.touch()
        return changed

    def delete_topic(self, topic: Topic, offsets: dict[str, dict[int, tuple[int, bytes]]], owner: Owner | None,
                     token: object) -> None:
        pending_frame = self._committer.open_frame()
        self._topics.delete(topic)
        self._define(pending_frame, topic.id, None, owner, token)
        pending_frame.deleted += topic.ranges
        names = {offset_record(group, partition_id, None) for group,
                 of_group in offsets.items() for partition_id in of_group}
        for pending in (self._committer.flight, pending_frame):      # committed, and not known to be durable yet
            if pending is not None:
                names.update(record._replace(value=None) for record in pending.state if record.kind == Kind.OFFSET)
        for name in sorted(names, key=lambda record: record.key):
            partition_id = decode_offset_key(name.key)[0]
            if any(first <= partition_id < first + count for first, count in topic.ranges):
                pending_frame.state.append(name)
        self._subscriptions.touch()

    def _define(self, pending_frame: PendingFrame, topic_id: int, topic: Topic | None, owner: Owner | None,
                token: object) -> None:
        value = None if topic is None else encode_topic(topic)
        pending_frame.state.append(StateRecord(Kind.TOPIC, topic_key(topic_id), value))
        pending_frame.state.append(self._counters())
        pending_frame.topic_changes += 1
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, None, (pending_frame.builder.now_ms, [])))

    def _counters(self) -> StateRecord:
        return StateRecord(Kind.COUNTERS, b"", self._topics.counters())

    # ---- groups and other state

    def commit_offsets(self, group: str, offsets: dict[int, tuple[int, bytes]], owner: Owner | None,
                       token: object) -> None:
        self.put_state([offset_record(group, partition_id, offset) for partition_id, offset in offsets.items()], owner,
                       token)

    def delete_state(self, records: list[StateRecord]) -> None:
        """Delete keys whose records were looked at, unless a newer one is on its way already, or the hub stops."""
        flight = self._committer.flight
        newer = set() if flight is None else {(record.kind, record.key) for record in flight.state}
        gone = [record for record in records if (record.kind, record.key) not in newer]
        try:
            if gone:
                self.put_state(gone, None, None)
        except Stopping:
            pass                                     # whoever looks the next time deletes them

    def put_state(self, records: list[StateRecord], owner: Owner | None, token: object) -> None:
        pending_frame = self._committer.open_frame()
        pending_frame.state += records
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, None, (pending_frame.builder.now_ms, [])))
