"""Everything that enters the frame being gathered: messages, definitions, offsets; producers' batches by `batches`."""
from __future__ import annotations

from collections.abc import Callable

from kernel.appending.batches import Batches
from kernel.appending.burst import check
from kernel.appending.committer import Committer
from kernel.appending.gathering import Gathering, Repeatable, Submission
from kernel.appending.gathering import Places as MessagePlaces
from kernel.appending.idempotency import fingerprint
from kernel.errors import IdempotencyConflict, KeptFull, Stopping
from kernel.log.frame import StateRecord
from kernel.message import RETAIN, Message, Owner, Placement
from kernel.parts import Parts
from kernel.state.state import Kind
from kernel.state.topics import Topic, TopicSettings, encode_topic, topic_key
from kernel.state.views import decode_offset_key, offset_record

Adding = Callable[[Gathering, list[Message], MessagePlaces], None]
"""Puts messages into a gathering and tells the place of each."""

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
        self._room = parts.room
        self.batches = Batches(self, parts, committer)
        self.refuse_full: Callable[[list[Message]], None] = lambda messages: None
        """Raises QueueFull for messages that have no room in a queue they would enter."""

        self.require_room: Callable[[list[Message]], object] = lambda messages: None
        """The same for messages that do not enter it yet."""

    @property
    def is_behind(self) -> bool:
        """Whether more waits to be checked than is good."""
        return self.batches.validating.is_full

    @property
    def pending_bytes(self) -> int:
        """What is taken and not in the log yet."""
        return self.batches.validating.size_bytes + sum([one.burst.size_bytes for one in self._committer.pending()])

    def stop(self) -> None:
        """Refuse what waits to be checked."""
        self.batches.validating.stop()

    # ---- messages

    def append(self, messages: list[Message], owner: Owner | None, token: object, positions: bool) -> None:
        """See `Kernel.append`."""
        if self._committer.short:
            self._room.refuse()
        gathering = self._committer.gather()
        limited = check(messages, self.refresh)
        if self._parts.kept_full:
            self.refuse_owed(messages)
        if limited:
            self.refuse_full(messages)
        places: MessagePlaces | None = [] if positions else None
        gathering.burst.add(messages, places)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    def append_once(self, messages: list[Message], owner: Owner | None, token: object, key: str,
                    add: Adding | None = None) -> None:
        """Unless the key is known: then its first answer is given again. `add` puts them elsewhere than in
        partitions."""
        gathering = self._committer.gather()
        mine = fingerprint(messages)
        if self.answered(gathering, mine, owner, token, key):
            return
        if self._committer.short:
            self._room.refuse()
        limited = check(messages, self.refresh)
        if self._parts.kept_full:
            self.refuse_owed(messages)
        if limited and add is None:
            self.refuse_full(messages)
        places: MessagePlaces = []
        if add is None:
            gathering.burst.add(messages, places)
        else:
            add(gathering, messages, places)
        self.remember(gathering, mine, places, owner, token, key)

    def answered(self, gathering: Gathering, mine: bytes, owner: Owner | None, token: object, key: str) -> bool:
        """Answer what is known by its key, stored or pending."""
        for pending in (self._committer.flight, gathering):
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
            gathering.submissions.append(Submission(owner, token, None, (answer.append_ms, answer.positions)))
        return True

    def remember(self, gathering: Gathering, mine: bytes, places: MessagePlaces, owner: Owner | None, token: object,
                  key: str) -> None:
        gathering.repeatable[key] = Repeatable(mine, places)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
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
        gathering = self._committer.gather()
        producer_id = self._topics.new_producer_id()
        gathering.state.append(self._counters())
        gathering.submissions.append(Submission(owner, token, None, (gathering.burst.now_ms, [(producer_id, 0, 0)])))

    # ---- definitions

    def create_topic(self, name: str, tenant: str, partitions: int, settings: TopicSettings, owner: Owner | None,
                     token: object, maker: str = "") -> Topic:
        gathering = self._committer.gather()
        topic = self._topics.create(name, tenant, partitions, settings, gathering.burst.now_ms, maker)
        self._define(gathering, topic.id, topic, owner, token)
        return topic

    def change_topic(self, topic: Topic, partitions: int | None, settings: TopicSettings | None, owner: Owner | None,
                     token: object) -> Topic:
        gathering = self._committer.gather()
        changed = self._topics.change(topic, partitions, settings)
        self._define(gathering, topic.id, changed, owner, token)
        self._subscriptions.touch()
        return changed

    def delete_topic(self, topic: Topic, offsets: dict[str, dict[int, tuple[int, bytes]]], owner: Owner | None,
                     token: object) -> None:
        gathering = self._committer.gather()
        self._topics.delete(topic)
        self._define(gathering, topic.id, None, owner, token)
        gathering.deleted += topic.ranges
        names = {offset_record(group, partition_id, None) for group,
                 of_group in offsets.items() for partition_id in of_group}
        for pending in (self._committer.flight, gathering):      # committed, and not known to be durable yet
            if pending is not None:
                names.update(record._replace(value=None) for record in pending.state if record.kind == Kind.OFFSET)
        for name in sorted(names, key=lambda one: one.key):
            partition_id = decode_offset_key(name.key)[0]
            if any(first <= partition_id < first + count for first, count in topic.ranges):
                gathering.state.append(name)
        self._subscriptions.touch()

    def _define(self, gathering: Gathering, topic_id: int, topic: Topic | None, owner: Owner | None,
                token: object) -> None:
        value = None if topic is None else encode_topic(topic)
        gathering.state.append(StateRecord(Kind.TOPIC, topic_key(topic_id), value))
        gathering.state.append(self._counters())
        gathering.topic_changes += 1
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, None, (gathering.burst.now_ms, [])))

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
        gathering = self._committer.gather()
        gathering.state += records
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, None, (gathering.burst.now_ms, [])))
