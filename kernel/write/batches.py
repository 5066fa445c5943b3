"""Producers' batches on their way in: checked, opened as far as anybody needs it, and stored as they were sent.

What a batch means to its topic is judged by how things stood when it came: whether the topic was compacted, or bound to
a queue. Two things are asked again when it enters: whether the topic is still there, and whether somebody
listens; for who has subscribed meanwhile it is opened once more.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.skip_scan import retained_key
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import (
    InvalidRecord,
    KeptFull,
    KernelError,
    MessageTooLarge,
    NoTransaction,
    UnknownPartition,
    UnsupportedBatch,
)
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import RETAIN, Headers, Judge, Message, Origin, Owner, Record, Speaker
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.records.batch import (
    LOG_APPEND_TIME,
    MAX_OPENED_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    encode_headers,
    read_header,
    stamped,
)
from gatehouse.kernel.records.validation import Divert, Validated
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.write.committer import KEPT_FULL, UNFOLLOWED, Appending, Committer, ReceiptKeeper
from gatehouse.kernel.write.idempotency import Idempotency, fingerprint_batches
from gatehouse.kernel.write.pending_frame import PendingFrame, Run, Submission
from gatehouse.kernel.write.pending_frame import Places as RunPlaces
from gatehouse.kernel.write.producers import KnownBatch, Producers, check_sequence, find_duplicate, with_batch
from gatehouse.kernel.write.validating import MAX_RECORDS, Arrived, Entering, Validating
from gatehouse.tracing.events import Kind

STEP_RECORDS = 64
"""Records of a batch that are placed before the clock is read: a tenth of a millisecond."""

MAX_NAMED_RECORDS: Final = 100         # of those that a batch is refused for: decision 285
RETAIN_HEADER: Final = b"retain"
TRUE: Final = (b"true", b"1")

PENDING = -1
"""Offset of a producer's batch that has its sequence but not yet its place."""


class Unseen(NamedTuple):
    """A batch that is held: in no partition, until its producer commits."""

    partition_id: int
    opened_bytes: int                      # at most
    is_traced: bool                        # some of it is to be followed, as its sender has the right to ask
    batch: bytes


OnOpen = Callable[["list[Arrived]", "list[Validated] | None", "BaseException | None"], None]
"""Called with batches that were held, and with what is in them, or why they cannot be opened."""


class Inside(NamedTuple):
    """What a producer's batch means beyond the partition that it enters whole."""

    records: list[Record]                  # none where nobody needs them
    listened: bool                         # somebody may hear of them
    noted: list[tuple[int, Message]]       # those that change state, with their index
    copies: list[Message]                  # for queues that are bound to addresses of its topic


class Batches:
    """What appends producers' batches."""

    def __init__(self, *, appending: Appending, committer: Committer, validating: Validating, topics: Topics,
                 places: Places, subscriptions: Subscriptions, producers: Producers, idempotency: Idempotency,
                 disk_guard: DiskGuard, listens: Callable[[Topic], bool], receipts: ReceiptKeeper,
                 speaker: Speaker, recorder: Recorder | None = None) -> None:
        """`listens`: whether a live subscriber may hear of what enters a topic."""
        self._appending = appending
        self._committer = committer
        self._validating = validating
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._producers = producers
        self._idempotency = idempotency
        self._disk_guard = disk_guard
        self._listens = listens
        self._receipts = receipts
        self._speaker = speaker
        self._recorder = recorder
        self.named: set[int] = set()         # ids of producers that have a name, and send batches of transactions alone
        self._unfollowed: int = UNFOLLOWED if recorder is None else recorder.gap()     # until one is looked at
        if recorder is not None:
            recorder.on_calm(self._shorten)

    def _shorten(self, gap: int) -> None:
        """At most so many messages pass before one that may be followed."""
        self._unfollowed = min(self._unfollowed, gap)

    def append(self, partition_id: int, batch: bytes, owner: Owner | None, token: object,
               divert: Divert | None, judge: Judge | None = None) -> None:
        """See `Kernel.append_batch`."""
        arrived, origin = self._arrived(partition_id, batch, divert is not None), self._speaker.origin
        if arrived.header.attributes & TRANSACTIONAL and divert is None:
            raise UnsupportedBatch("a batch of a transaction comes with its producer's name")
        self._validating.validate([arrived], owner, token, partial(self._enter, arrived, owner, token, divert, judge,
                                                                   origin), partial(self._refused, arrived, origin))

    def append_all(self, batches: list[tuple[int, bytes]], owner: Owner | None, token: object, key: str | None) -> None:
        """See `Kernel.append_batches`."""
        arrived = [self._arrived(partition_id, batch, False) for partition_id, batch in batches]
        if any(arrival.header.producer_id >= 0 or arrival.header.attributes & TRANSACTIONAL for arrival in arrived):
            raise UnsupportedBatch("batches of an idempotent producer come one by one, each with its sequence")
        records = sum([arrival.header.record_count for arrival in arrived])
        if records > MAX_RECORDS:
            raise MessageTooLarge(f"{records} records are more than are taken in one request: {MAX_RECORDS}")
        origin = self._speaker.origin
        self._validating.validate(arrived, owner, token, partial(self._enter_all, arrived, owner, token, key, origin),
                                  partial(self._refused, arrived[0], origin))

    # ---- when they come

    def _arrived(self, partition_id: int, batch: bytes, wanted: bool) -> Arrived:
        """Raises what `Kernel.append_batch` says of what can be seen without opening it."""
        of = self._of(partition_id)
        topic = of[0]
        limit = self._places.max_message_bytes(topic)
        if len(batch) > limit:
            raise MessageTooLarge(f"a batch of {len(batch)} bytes is more than {topic.name} takes: {limit}")
        header = check_batch(batch)
        wanted = (wanted or topic.settings.compact or topic.settings.interpret_headers
                  or self._listens(topic))
        return Arrived(partition_id, batch, header, of, limit, wanted, self._speaker.origin.traces)

    def _of(self, partition_id: int) -> tuple[Topic, int]:
        of = self._topics.of_partition(partition_id)
        if of is None:
            raise UnknownPartition(f"there is no partition {partition_id}")
        return of

    def _refused(self, arrived: Arrived, origin: Origin, refusal: KernelError) -> None:
        """For journeys: it was refused when nobody waited for the call any more."""
        if self._recorder is not None:
            topic = arrived.of[0]
            self._recorder.on_client(Kind.REFUSED, origin, topic.tenant, topic.name, refusal.code)

    # ---- when they are sound

    def _enter(self, arrived: Arrived, owner: Owner | None, token: object, divert: Divert | None, judge: Judge | None,
               origin: Origin, validated: list[Validated]) -> Entering:
        partition_id, (opened,) = arrived.partition_id, validated
        header = opened.header
        self._of(partition_id)
        if header.producer_id in self.named and not header.attributes & TRANSACTIONAL:
            raise NoTransaction(f"the producer {header.producer_id} sends in transactions: this batch is in none")
        if divert is not None and divert(opened):
            return
        opened, followed = self._followed(arrived, opened, origin)
        inside = self._inside(arrived.of[0], opened)
        yield from self._look_inside(arrived, inside)
        self._of(partition_id)
        pending_frame = self._committer.open_frame()
        if header.producer_id >= 0 and self.repeats(pending_frame, partition_id, header, owner, token):
            return
        if self._disk_guard.short:
            self._disk_guard.refuse()
        if inside.copies:
            self._renew_copies(arrived, inside)
        self._check(inside)
        askings = self._askings(arrived.of, opened, judge) if opened.asks else None
        run = self._add(pending_frame, arrived.of[0], partition_id, opened, inside, followed, origin)
        if askings:
            self._receipts.on_entered(pending_frame, askings, [(run, at) for at in range(run.count)])
        if header.producer_id >= 0:
            self._note_sequence(pending_frame, partition_id, header, run)
        pending_frame.wait(owner, token, [(run, 0)])
        self._committer.note_size()

    def _enter_all(self, arrived: list[Arrived], owner: Owner | None, token: object, key: str | None,
                   origin: Origin, validated: list[Validated]) -> Entering:
        opening = [self._followed(arrival, opened, origin) for arrival, opened in zip(arrived, validated, strict=True)]
        insides = [self._inside(arrival.of[0], opened) for arrival, (opened, _) in zip(arrived, opening, strict=True)]
        for arrival, inside in zip(arrived, insides, strict=True):
            yield from self._look_inside(arrival, inside)
        for arrival in arrived:
            self._of(arrival.partition_id)
        pending_frame = self._committer.open_frame()
        mine = fingerprint_batches([(arrival.partition_id, arrival.batch) for arrival in arrived])
        if key is not None and self._idempotency.answered(pending_frame, mine, owner, token, key):
            return
        if self._disk_guard.short:
            self._disk_guard.refuse()
        for arrival, inside in zip(arrived, insides, strict=True):
            if inside.copies:
                self._renew_copies(arrival, inside)
            self._check(inside)
        places: RunPlaces = [
            (self._add(pending_frame, arrival.of[0], arrival.partition_id, opened, inside, followed, origin), 0)
            for arrival, (opened, followed), inside in zip(arrived, opening, insides, strict=True)]
        if key is not None:
            self._idempotency.remember(pending_frame, mine, places, key)
        pending_frame.wait(owner, token, places)
        self._committer.note_size()

    def _add(self, pending_frame: PendingFrame, topic: Topic, partition_id: int, validated: Validated, inside: Inside,
             followed: object, origin: Origin) -> Run:
        if topic.settings.log_append_time:
            validated, inside = as_appended(validated, inside, pending_frame.builder.now_ms)
        header = validated.header
        run = pending_frame.builder.add_batch(partition_id, validated.batch, header.record_count, header.max_ms,
                                               origin if origin.door else None)
        if followed is not None and self._recorder is not None:
            self._recorder.on_batch_entered(pending_frame, run, followed)
        pending_frame.builder.note(run, inside.noted)
        if inside.listened:
            pending_frame.builder.hear_batch(run, validated.records, validated.opened_bytes)
        if inside.copies:
            pending_frame.builder.add(inside.copies, None, None, None, origin if origin.door else None)
        return run

    def _askings(self, of: tuple[Topic, int], opened: Validated, judge: Judge | None) -> list[Any]:
        """Its records that ask for a receipt. Raises ReceiptDenied."""
        topic, address_of = of[0], self._places.routes.address_of
        return self._receipts.judged([(at, asked, topic.tenant, address_of(topic.name, key, headers))
                                      for at, asked, key, headers in opened.asks], judge)

    def _followed(self, arrived: Arrived, opened: Validated, origin: Origin) -> tuple[Validated, object]:
        """A batch as it enters, and what whoever records journeys is to be told of it: where some of its records are
        followed, they have a trace context. It is asked before anybody looks into it."""
        self._unfollowed -= opened.header.record_count
        if self._unfollowed >= 0 and not opened.traced:
            return opened, None
        recorder, topic = self._recorder, arrived.of[0]
        assert recorder is not None, "nobody counts down to what is not recorded"
        opened, followed, self._unfollowed = recorder.follow_batch(
            topic.name, topic.tenant, topic.id, opened, self._unfollowed + opened.header.record_count, origin)
        return opened, followed

    # ---- what is in them

    def _inside(self, topic: Topic, validated: Validated) -> Inside:
        """Nothing of its records yet."""
        return Inside(validated.records or [], self._listens(topic), [], [])

    def _look_inside(self, arrived: Arrived, inside: Inside) -> Iterator[None]:
        """Look into a batch as far as anybody needs it. Raises InvalidAddress."""
        settings = arrived.of[0].settings
        if settings.compact or settings.interpret_headers:
            yield from self._note(arrived.of, inside)
        if inside.listened and self._subscriptions.binds:
            yield from self._copy_for_partitions(arrived.of, inside)

    def _check(self, inside: Inside) -> None:
        """Raises KeptFull, QueueFull."""
        if self._disk_guard.kept_full:
            self._appending.refuse_owed([message for _, message in inside.noted])
        self._appending.check_entering(inside.copies)

    def _note(self, of: tuple[Topic, int], inside: Inside) -> Iterator[None]:
        """The records of a batch that change state, with their index: where its topic is compacted, or says that
        headers count. Raises InvalidAddress, InvalidRecord."""
        topic, partition = of
        settings = topic.settings
        for at, timestamp_ms, key, value, headers, attributes, _ in inside.records:
            attributes &= ~RETAIN
            if settings.interpret_headers and asks_to_retain(headers):
                attributes |= RETAIN
            if settings.compact or attributes & RETAIN:
                if settings.compact and key is None:
                    keyless = islice((record[0] for record in inside.records if record[2] is None), MAX_NAMED_RECORDS)
                    raise InvalidRecord("Compacted topic cannot accept message without key in topic partition "
                                        f"{topic.name}-{partition}.", list(keyless))
                placement = self._places.for_record(topic, partition, key, headers)
                retained_key(topic.tenant, placement.address)
                inside.noted.append((at, (placement, value, encode_headers(headers), attributes, timestamp_ms)))
            if at % STEP_RECORDS == 0:
                yield

    def _copy_for_partitions(self, of: tuple[Topic, int], inside: Inside) -> Iterator[None]:
        """A producer's records that queues are bound to are cut anew for them: once, however many there are."""
        topic, partition = of
        for at, timestamp_ms, key, value, headers, attributes, _ in inside.records:
            placement = self._places.for_record(topic, partition, key, headers)
            self._subscriptions.refresh(placement)
            if placement.choosing:
                placement = self._subscriptions.choose([(placement, value, encode_headers(headers), attributes,
                                                         timestamp_ms)])[0][0]
            if placement.also:
                inside.copies.append((self._places.copied_to(placement, topic), value, encode_headers(headers),
                                      attributes & ~RETAIN, timestamp_ms))
            if at % STEP_RECORDS == 0:
                yield

    def _renew_copies(self, arrived: Arrived, inside: Inside) -> None:
        """Copies that were cut some turns ago are cut again where bindings have changed since: a queue may be gone."""
        if any(message[0].version != message[0].first_level.version for message in inside.copies):
            inside.copies.clear()
            for _ in self._copy_for_partitions(arrived.of, inside):
                pass

    # ---- sequences

    def repeats(self, pending_frame: PendingFrame, partition_id: int, header: BatchHeader, owner: Owner | None,
                token: object) -> bool:
        """Answer a batch that is known or pending already; refuse one that is not the next."""
        state = self._producers.get(partition_id, header.producer_id)
        duplicate = None if state is None else find_duplicate(state, header)
        if state is None or duplicate is None:
            check_sequence(state, header)
            return False
        for pending in (self._committer.flight, pending_frame):
            run = pending.produced_run(partition_id, header) if pending is not None else None
            if pending is not None and run is not None:
                pending.wait(owner, token, [(run, 0)])
                return True
        if owner is not None:
            fixed = (duplicate.append_ms, [(partition_id, duplicate.first_offset, duplicate.first_id)])
            pending_frame.submissions.append(Submission(owner, token, None, fixed))
        return True

    def _note_sequence(self, pending_frame: PendingFrame, partition_id: int, header: BatchHeader, run: Run | None
                       ) -> None:
        state = self._producers.get(partition_id, header.producer_id)
        batch = KnownBatch(header.base_sequence, header.record_count, PENDING, PENDING if run is not None else 0,
                           pending_frame.builder.now_ms)
        self._producers.put(partition_id, header.producer_id, with_batch(state, header, batch))
        pending_frame.join(self._producers)
        batches = pending_frame.produced.setdefault((partition_id, header.producer_id), [])
        if run is not None:
            batches.append((header, run))

    # ---- transactions of producers; see `kernel.halves.producer_transactions`

    def hold(self, partition_id: int, validated: Validated, owner: Owner | None, token: object) -> PendingFrame | None:
        """Take the sequence of a sound batch that is held instead of stored, into the frame that is returned; None: it
        is known, and will be answered. Raises FencedProducer, OutOfOrderSequence, InvalidAddress, InvalidRecord,
        UnknownPartition, StorageFull, KeptFull, Stopping, with nothing done."""
        of, header = self._of(partition_id), validated.header
        pending_frame = self._committer.open_frame()
        if self.repeats(pending_frame, partition_id, header, owner, token):
            return None
        if self._disk_guard.short:
            self._disk_guard.refuse()
        if self._disk_guard.kept_full:
            raise KeptFull(KEPT_FULL)
        if of[0].settings.compact or of[0].settings.interpret_headers:
            for _ in self._note(of, self._inside(of[0], validated)):
                pass                                 # what its topic would refuse is refused now
        self._note_sequence(pending_frame, partition_id, header, None)
        return pending_frame

    def open_held(self, held: list[Unseen], on_open: OnOpen) -> None:
        """Batches that were held, as far as somebody looks into them, but for those of topics that are gone."""
        arrived = []
        for partition_id, opened_bytes, is_traced, batch in held:
            of = self._topics.of_partition(partition_id)
            if of is not None:
                settings = of[0].settings
                wanted = settings.compact or settings.interpret_headers or self._listens(of[0])
                arrived.append(Arrived(partition_id, batch, read_header(batch), of, MAX_OPENED_BYTES, wanted,
                                       is_traced, opened_bytes))
        self._validating.open(arrived, partial(on_open, arrived))

    def release(self, arrived: list[Arrived], validated: list[Validated], origin: Origin,
                settle: Callable[[PendingFrame], None]) -> Entering:
        """Batches that were held, and are open, enter their partitions together, in one frame with what `settle` adds;
        those of topics that are gone do not. Raises InvalidAddress, InvalidRecord, QueueFull, StorageFull, Stopping,
        with nothing done."""
        entering: list[tuple[Arrived, Validated, object, Inside]] = []
        for arrival, sound in zip(arrived, validated, strict=True):
            opened, followed = self._followed(arrival, sound, origin)
            inside = self._inside(arrival.of[0], opened)
            yield from self._look_inside(arrival, inside)
            entering.append((arrival, opened, followed, inside))
            yield
        pending_frame = self._committer.open_frame()
        if self._disk_guard.short:
            self._disk_guard.refuse()
        for arrival, _, _, inside in entering:
            if inside.copies:
                self._renew_copies(arrival, inside)
        self._appending.check_entering([message for _, _, _, inside in entering for message in inside.copies])
        settle(pending_frame)
        for arrival, opened, followed, inside in entering:
            if self._topics.of_partition(arrival.partition_id) is not None:
                self._add(pending_frame, arrival.of[0], arrival.partition_id, opened, inside, followed, origin)
        self._committer.note_size()


def as_appended(validated: Validated, inside: Inside, now_ms: int) -> tuple[Validated, Inside]:
    """A batch whose records have the time of its append, and what it means."""
    batch = stamped(validated.batch, now_ms, LOG_APPEND_TIME)
    records = validated.records
    if records is not None:
        records = [(record[0], now_ms, *record[2:]) for record in records]
    noted = [(at, (*message[:4], now_ms)) for at, message in inside.noted]
    copies: list[Message] = [(*message[:4], now_ms) for message in inside.copies]
    return (validated._replace(batch=batch, records=records, header=read_header(batch)),
            inside._replace(noted=noted, copies=copies))


def asks_to_retain(headers: Headers) -> bool:
    """Whether a producer's record asks that its value be kept as its address's last."""
    for name, value in headers:
        if name == RETAIN_HEADER:
            return value is not None and value.lower() in TRUE
    return False
