"""Everything that enters the frame being gathered: messages, producers' batches, definitions, offsets."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kernel.appending.burst import Run, check
from kernel.appending.committer import Committer
from kernel.appending.gathering import Gathering, Repeatable, Submission
from kernel.appending.gathering import Places as MessagePlaces
from kernel.appending.idempotency import fingerprint, fingerprint_batches
from kernel.appending.producers import KnownBatch, check_sequence, find_duplicate, with_batch
from kernel.delivery.retained import asks_to_retain
from kernel.errors import IdempotencyConflict, KeptFull, MessageTooLarge, Stopping, UnknownQueue, UnsupportedBatch
from kernel.log.frame import StateRecord
from kernel.message import RETAIN, Message, Owner, Piece, Placement
from kernel.parts import Parts
from kernel.records.batch import TRANSACTIONAL, BatchHeader, check_batch, records_of
from kernel.records.record import encode_headers
from kernel.retention.owed import retained_key
from kernel.state.state import Kind
from kernel.state.topics import Topic, TopicSettings, encode_topic, topic_key
from kernel.state.views import decode_offset_key, offset_record

Adding = Callable[[Gathering, list[Message], MessagePlaces], None]
"""Puts messages into a gathering and tells the place of each."""

KEPT_FULL = "what is kept beyond retention has reached kept_bytes: nothing that would have to be kept is taken"

PENDING = -1
"""Offset of a producer's batch that has its sequence but not yet its place."""


class Inside(NamedTuple):
    """What a producer's batch means beyond the queue that it enters whole."""

    noted: list[tuple[int, Message]]       # records that change state, with their index
    listened: bool                         # somebody may hear of its records
    copies: list[Message]                  # for light queues that are bound to addresses of its topic


class Appending:
    def __init__(self, parts: Parts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer
        self._topics = parts.topics
        self._places = parts.places
        self._subscriptions = parts.subscriptions
        self._producers = parts.producers
        self._window = parts.window
        self._deliveries = parts.deliveries
        self._now_ms = parts.loop.now_ms
        self._room = parts.room
        self.refuse_full: Callable[[list[Message]], None] = lambda messages: None
        """Raises QueueFull for messages that have no room in a light queue they would enter."""

        self.require_room: Callable[[list[Message]], object] = lambda messages: None
        """The same for messages that do not enter it yet."""

    # ---- messages

    def append(self, messages: list[Message], owner: Owner | None, token: object, positions: bool) -> None:
        """See `Kernel.append`."""
        if self._committer.short:
            self._room.refuse()
        gathering = self._committer.gather()
        limited = check(messages, self.refresh)
        if self._parts.kept_full:
            self._refuse_owed(messages)
        if limited:
            self.refuse_full(messages)
        places: MessagePlaces | None = [] if positions else None
        gathering.burst.add(messages, places)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    def append_once(self, messages: list[Message], owner: Owner | None, token: object, key: str,
                    add: Adding | None = None) -> None:
        """Unless the key is known: then its first answer is given again. `add` puts them elsewhere than in queues."""
        gathering = self._committer.gather()
        mine = fingerprint(messages)
        if self._answered(gathering, mine, owner, token, key):
            return
        if self._committer.short:
            self._room.refuse()
        limited = check(messages, self.refresh)
        if self._parts.kept_full:
            self._refuse_owed(messages)
        if limited and add is None:
            self.refuse_full(messages)
        places: MessagePlaces = []
        if add is None:
            gathering.burst.add(messages, places)
        else:
            add(gathering, messages, places)
        self._remember(gathering, mine, places, owner, token, key)

    def _answered(self, gathering: Gathering, mine: bytes, owner: Owner | None, token: object, key: str) -> bool:
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

    def _remember(self, gathering: Gathering, mine: bytes, places: MessagePlaces, owner: Owner | None, token: object,
                  key: str) -> None:
        gathering.repeatable[key] = Repeatable(mine, places)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    @staticmethod
    def _same(first: bytes, second: bytes) -> None:
        if first != second:
            raise IdempotencyConflict("this idempotency key came with another message before")

    def _refuse_owed(self, messages: list[Message]) -> None:
        """Nothing new is taken that would have to outlive retention. Raises KeptFull, with nothing done."""
        for placement, value, _, attributes, _ in messages:
            if placement.light is not None or placement.also or value and (placement.compact or attributes & RETAIN):
                raise KeptFull(KEPT_FULL)

    def refresh(self, placement: Placement) -> None:
        """Bring a placement up to date. Raises as `Kernel.place`."""
        if placement.topics_version != self._topics.version:
            self._places.renew(placement)
        self._subscriptions.refresh(placement)

    # ---- producers' batches

    def append_batch(self, queue_id: int, batch: bytes, owner: Owner | None, token: object) -> None:
        """See `Kernel.append_batch`."""
        found, header = self._checked(queue_id, batch)
        gathering = self._committer.gather()
        if header.producer_id >= 0 and self._repeats(gathering, queue_id, header, owner, token):
            return
        if self._committer.short:
            self._room.refuse()
        run = self._add_batch(gathering, queue_id, batch, header, self._inside(found, batch, header))
        if header.producer_id >= 0:
            self._note_sequence(gathering, queue_id, header, run)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, [(run, 0)], None))
        self._committer.note_size()

    def append_batches(self, batches: list[tuple[int, bytes]], owner: Owner | None, token: object,
                       key: str | None) -> None:
        """See `Kernel.append_batches`."""
        checked = [(queue_id, batch, *self._checked(queue_id, batch)) for queue_id, batch in batches]
        if any(header.producer_id >= 0 for _, _, _, header in checked):
            raise UnsupportedBatch("batches of an idempotent producer come one by one, each with its sequence")
        gathering = self._committer.gather()
        mine = fingerprint_batches(batches)
        if key is not None and self._answered(gathering, mine, owner, token, key):
            return
        if self._committer.short:
            self._room.refuse()
        insides = [self._inside(found, batch, header) for _, batch, found, header in checked]
        places: MessagePlaces = [(self._add_batch(gathering, queue_id, batch, header, inside), 0)
                                 for (queue_id, batch, _, header), inside in zip(checked, insides, strict=True)]
        if key is not None:
            self._remember(gathering, mine, places, owner, token, key)
            return
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    def _checked(self, queue_id: int, batch: bytes) -> tuple[tuple[Topic, int], BatchHeader]:
        """Topic and queue of a producer's batch, and its header. Raises what `Kernel.append_batch` says."""
        found = self._topics.of_queue(queue_id)
        if found is None:
            raise UnknownQueue(f"there is no queue {queue_id}")
        limit = self._places.max_message_bytes(found[0])
        if len(batch) > limit:
            raise MessageTooLarge(f"a batch of {len(batch)} bytes is more than {found[0].name} takes: {limit}")
        header = check_batch(batch)
        if header.attributes & TRANSACTIONAL:
            raise UnsupportedBatch("Kafka transactions are not built yet")
        return found, header

    def _add_batch(self, gathering: Gathering, queue_id: int, batch: bytes, header: BatchHeader, inside: Inside
                   ) -> Run:
        run = gathering.burst.add_batch(queue_id, batch, header.record_count, header.max_ms)
        gathering.burst.noted += [(message, run, at) for at, message in inside.noted]
        if inside.listened:
            gathering.burst.heard.append((None, [], run, 0))
        if inside.copies:
            gathering.burst.add(inside.copies, None)
        return run

    def _inside(self, of: tuple[Topic, int], batch: bytes, header: BatchHeader) -> Inside:
        """Open a batch as far as anybody needs it. Raises CorruptBatch, InvalidAddress, KeptFull, QueueFull."""
        noted = self._look_inside(of, batch, header)
        listened = self._deliveries.listens(of[0])
        copies = self._copies_for_queues(of, batch, header) if listened and self._subscriptions.binds else []
        if check(copies, self.refresh):
            self.refuse_full(copies)
        return Inside(noted, listened, copies)

    def _look_inside(self, of: tuple[Topic, int], batch: bytes, header: BatchHeader) -> list[tuple[int, Message]]:
        """The records of a batch that change state, with their index: where its topic is compacted, or says that
        headers count. Raises CorruptBatch, InvalidAddress, KeptFull."""
        topic, queue = of
        settings = topic.settings
        if not settings.compact and not settings.interpret_headers:
            return []
        found: list[tuple[int, Message]] = []
        piece = Piece(0, header.record_count, True, batch, 0, header.max_ms, 0)
        for at, timestamp_ms, key, value, headers, attributes, _ in records_of(piece):
            attributes &= ~RETAIN
            if settings.interpret_headers and asks_to_retain(headers):
                attributes |= RETAIN
            if settings.compact or attributes & RETAIN:
                placement = self._places.for_record(topic, queue, key, headers)
                retained_key(topic.tenant, placement.address)
                found.append((at, (placement, value, encode_headers(headers), attributes, timestamp_ms)))
        if self._parts.kept_full:
            self._refuse_owed([message for _, message in found])
        return found

    def _copies_for_queues(self, of: tuple[Topic, int], batch: bytes, header: BatchHeader) -> list[Message]:
        """A producer's records that light queues are bound to are cut anew for them: once, however many there are."""
        topic, queue = of
        copies: list[Message] = []
        piece = Piece(0, header.record_count, True, batch, 0, header.max_ms, 0)
        for _, timestamp_ms, key, value, headers, attributes, _ in self._deliveries.open_piece(piece):
            placement = self._places.for_record(topic, queue, key, headers)
            self._subscriptions.refresh(placement)
            if placement.also:
                copies.append((self._places.copied_to(placement, topic), value, encode_headers(headers),
                               attributes & ~RETAIN, timestamp_ms))
        return copies

    def _repeats(self, gathering: Gathering, queue_id: int, header: BatchHeader, owner: Owner | None,
                 token: object) -> bool:
        """Answer a batch that is known or pending already; refuse one that is not the next."""
        state = self._producers.get(queue_id, header.producer_id)
        known = None if state is None else find_duplicate(state, header)
        if state is None or known is None:
            check_sequence(state, header)
            return False
        for pending in (self._committer.flight, gathering):
            run = pending.produced_run(queue_id, header) if pending is not None else None
            if pending is not None and run is not None:
                if owner is not None:
                    pending.submissions.append(Submission(owner, token, [(run, 0)], None))
                return True
        if owner is not None:
            fixed = (state.append_ms, [(queue_id, known.first_offset, known.first_id)])
            gathering.submissions.append(Submission(owner, token, None, fixed))
        return True

    def _note_sequence(self, gathering: Gathering, queue_id: int, header: BatchHeader, run: Run) -> None:
        state = self._producers.get(queue_id, header.producer_id)
        batch = KnownBatch(header.base_sequence, header.record_count, PENDING, PENDING)
        now_ms = gathering.burst.now_ms
        self._producers.put(queue_id, header.producer_id, with_batch(state, header, now_ms, batch))
        gathering.produced.setdefault((queue_id, header.producer_id), []).append((header, run))

    def new_producer_id(self, owner: Owner, token: object) -> None:
        gathering = self._committer.gather()
        producer_id = self._topics.new_producer_id()
        gathering.state.append(self._counters())
        gathering.submissions.append(Submission(owner, token, None, (gathering.burst.now_ms, [(producer_id, 0, 0)])))

    # ---- definitions

    def create_topic(self, name: str, tenant: str, queues: int, settings: TopicSettings, owner: Owner | None,
                     token: object, maker: str = "") -> Topic:
        gathering = self._committer.gather()
        topic = self._topics.create(name, tenant, queues, settings, gathering.burst.now_ms, maker)
        self._define(gathering, topic.id, topic, owner, token)
        return topic

    def change_topic(self, topic: Topic, queues: int | None, settings: TopicSettings | None, owner: Owner | None,
                     token: object) -> Topic:
        gathering = self._committer.gather()
        changed = self._topics.change(topic, queues, settings)
        self._define(gathering, topic.id, changed, owner, token)
        self._subscriptions.touch()
        return changed

    def delete_topic(self, topic: Topic, offsets: dict[str, dict[int, tuple[int, bytes]]], owner: Owner | None,
                     token: object) -> None:
        gathering = self._committer.gather()
        self._topics.delete(topic)
        self._define(gathering, topic.id, None, owner, token)
        gathering.deleted += topic.ranges
        names = {offset_record(group, queue_id, None) for group, of_group in offsets.items() for queue_id in of_group}
        for pending in (self._committer.flight, gathering):      # committed, and not known to be durable yet
            if pending is not None:
                names.update(record._replace(value=None) for record in pending.state if record.kind == Kind.OFFSET)
        for name in sorted(names, key=lambda one: one.key):
            queue_id = decode_offset_key(name.key)[0]
            if any(first <= queue_id < first + count for first, count in topic.ranges):
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
        self.put_state([offset_record(group, queue_id, offset) for queue_id, offset in offsets.items()], owner, token)

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
