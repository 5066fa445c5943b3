"""The message kernel as doors see it: place, append, fetch, watch, subscribe; topics, producers, groups.

    append → pending_frame → seal → log (one fdatasync for all) → memory → answers, deliveries, woken readers

Everything runs on one thread; what blocks is handed to workers. Nothing in memory is changed by a message before its
frame is durable, but for what the next message needs at once (a topic made by use, a producer's sequence): that is
taken back if the frame cannot be stored. Calls raise their refusals at once, with nothing taken; what only the disk can
say comes by call-back.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.addresses.makers import Makers
from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.api import DoorSide, KernelPort
from gatehouse.kernel.assigned.assigned_groups import AssignedGroups
from gatehouse.kernel.background import Background, LiveWork
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.backup.backups import Backups, Copied, Cutting
from gatehouse.kernel.delivery.deliveries import Deliveries, Watch, Watches
from gatehouse.kernel.delivery.retained import RetainedValues
from gatehouse.kernel.errors import InvalidTopic
from gatehouse.kernel.groups.calls import Groups
from gatehouse.kernel.groups.definitions import LiveGroups
from gatehouse.kernel.groups.group_settings import Queue, decode_definition, definition_key
from gatehouse.kernel.groups.lags import Lags
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.halves.halves import Halves
from gatehouse.kernel.halves.producer_transactions import ProducerTransactions
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.memtable import Checkpoints, Memtables
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.journeys.journeys import Journeys
from gatehouse.kernel.journeys.looking import Looking
from gatehouse.kernel.journeys.origins import Origins
from gatehouse.kernel.journeys.publishers import Publishers
from gatehouse.kernel.journeys.trail import Trail
from gatehouse.kernel.journeys.why import Reasons
from gatehouse.kernel.log.disk_guard import DiskGuard, Reserve
from gatehouse.kernel.log.log import Damage, FrameWriter, Log
from gatehouse.kernel.message import (
    NOBODY,
    Encoded,
    Fetched,
    Headers,
    Judge,
    Message,
    OnRetained,
    Origin,
    Owner,
    Placement,
    ReadStamp,
    Record,
    Speaker,
    StateRecord,
    Subscriber,
    When,
    Written,
)
from gatehouse.kernel.port import HalfHolder, Port
from gatehouse.kernel.ports import Loop, Notices, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.records.headers import expires_at
from gatehouse.kernel.records.opened import Unreadable
from gatehouse.kernel.records.validation import Divert
from gatehouse.kernel.recovery.recovery import Beginning, Recovery
from gatehouse.kernel.retention.compaction import Compaction
from gatehouse.kernel.retention.holders import Holder
from gatehouse.kernel.retention.retention import Retention
from gatehouse.kernel.retention.segment_scan import SegmentScanner
from gatehouse.kernel.retention.spill import Spill
from gatehouse.kernel.scheduling.scheduling import Scheduling
from gatehouse.kernel.sessions.sessions import Sessions
from gatehouse.kernel.settings import LIVE, JourneySettings, KernelSettings
from gatehouse.kernel.shedding import Shedding
from gatehouse.kernel.state.projection import Projection
from gatehouse.kernel.state.state import (
    Clock,
    Kind,
    StateTable,
    Views,
    Watermarks,
    decode_epoch_key,
    decode_position,
    heads_record,
)
from gatehouse.kernel.state.store import IndexStore
from gatehouse.kernel.state.topics import Topic, Topics, TopicSettings
from gatehouse.kernel.write.batches import Batches
from gatehouse.kernel.write.committer import DURABLE_MS, Answering, Appending, Committer, Slices, WorkerWriter
from gatehouse.kernel.write.idempotency import Idempotency, Window
from gatehouse.kernel.write.producers import KnownProducers, ProducerExpiry, Producers
from gatehouse.kernel.write.topic_changes import TopicChanges
from gatehouse.kernel.write.validating import Validating


class Kernel:  # decision 138
    """The message kernel, put together of its parts. `open` before use; `close` to stop.

    `fatal` is told in one sentence why the process must end; `on_damage` of ranges of the log that cannot be read;
    `on_error` of our own faults that were contained. `frame_writer` writes the log on the thread of `log_worker`.
    """

    def __init__(self, *, loop: Loop, log_worker: Worker, reader_worker: Worker, checkpoint_worker: Worker,
                 validation_worker: Worker, log: Log, store: IndexStore, routes: Routes, settings: KernelSettings,
                 fatal: Callable[[str], None], on_damage: Callable[[Damage], None],
                 on_error: Callable[[Exception], None], notices: Notices | None = None,
                 projection: Projection | None = None, new_hub: bytes = bytes(16), new_secret: bytes = bytes(32),
                 new_shard: int = 0, reserve: Reserve | None = None, emergency_reserve: Reserve | None = None,
                 selector_names: Mapping[str, str] | None = None, journeys: JourneySettings | None = None,
                 new_trace: Callable[[], bytes] | None = None,
                 door_names: Callable[[int], str] = str, frame_writer: FrameWriter | None = None) -> None:
        notices = notices or Notices()
        self.recovered_frames = 0
        self.settings = settings
        self._loop = loop
        self.shedding = shedding = Shedding()
        """What is left undone under overload; whoever measures that sets its level."""

        self.background = background = Background(loop, shedding)
        # One user: what is done for the index, for retention and for backups keeps its order.
        self._checkpoint_worker = checkpoint_worker = background.worker(checkpoint_worker, "upkeep")
        self._bulk_worker = background.worker(reader_worker, "bulk", may_be_shed=True)
        self._log = log
        self._on_error = on_error
        self._identity = identity = Identity(new_hub, new_secret, new_shard)
        self.congested = False
        """More is pending than is good: stop reading from publishers until `on_relief`."""

        self._backpressure = backpressure = Backpressure(self._set_congested)
        self._disk_guard = disk_guard = DiskGuard(
            loop=loop, worker=checkpoint_worker, reserve=reserve, emergency_reserve=emergency_reserve,
            look=self._look_for_room, is_settled=self._is_settled, notices=notices)

        # What is stored, and what is known of it in memory.
        self._state = state = StateTable(store)
        self._clock = clock = Clock(loop, notices.on_step)
        self._topics = topics = Topics()
        self._watermarks = watermarks = Watermarks()
        self._views = views = Views(topics, watermarks)
        index = Index(store)
        self._memtables = memtables = Memtables(settings.recent_bytes)
        self._recovery = Recovery(
            log=log, index=index, memtables=memtables, watermarks=watermarks, state=state, views=views, clock=clock,
            checkpoint_bytes=settings.checkpoint_bytes, on_damage=on_damage)
        self._beginning = Beginning(
            log=log, index=index, memtables=memtables, topics=topics, watermarks=watermarks, state=state, views=views,
            clock=clock, identity=identity)

        # Where messages go, and reading them.
        self.makers = Makers(topics, notices.on_topics_short)
        self._subscriptions = subscriptions = Subscriptions(
            lasting_take_all=settings.session_keeps_transient)
        self._places = places = Places(routes, topics, subscriptions, settings, self._create_by_use, self._queue)
        self._unreadable = unreadable = Unreadable(notices.on_unreadable)
        self._reader = reader = Reader(
            watermarks=watermarks, memtables=memtables, index=index, state=state, topics=topics, log=log,
            worker=reader_worker, replay_worker=background.worker(reader_worker, "replay", may_be_shed=True),
            group_worker=background.worker(reader_worker, "groups"), bulk_worker=self._bulk_worker,
            slice_bytes=background.slice_bytes, unreadable=unreadable, on_damage=on_damage,
            limit_of=places.max_record_bytes)

        # Into the log, and what hears of that.
        self._answering = answering = Answering(loop, backpressure, on_error)
        self.deliveries = deliveries = Deliveries(
            topics=topics, places=places, subscriptions=subscriptions, worker=reader_worker, loop=loop,
            backpressure=backpressure, unreadable=unreadable, on_error=on_error)
        self._watches = Watches()
        self.committer = committer = Committer(
            loop=loop, worker=log_worker, log=log, writer=frame_writer or WorkerWriter(log_worker, log), clock=clock,
            disk_guard=disk_guard, backpressure=backpressure, watermarks=watermarks, memtables=memtables, state=state,
            answering=answering, deliver=deliveries.deliver, policy=settings.fsync,
            pending_bytes=settings.pending_bytes, gather_turns=settings.gather_turns, fatal=fatal)

        # What happened to messages, written beside them.
        self.speaker = Speaker()
        self._topic_changes = TopicChanges(topics, subscriptions, committer)
        self.trail = trail = Trail(
            loop=loop, worker=reader_worker, writer=checkpoint_worker, store=store, topics=topics,
            watermarks=watermarks, read=reader.fetch, on_error=on_error)
        self.journeys = recorder = None if journeys is None or not journeys.enabled else Journeys(
            settings=journeys, loop=loop, committer=committer, topics=topics, topic_changes=self._topic_changes,
            places=places, watermarks=watermarks, trail=trail, speaker=self.speaker, disk_guard=disk_guard,
            id_of=reader.id_of, ids=new_trace or partial(bytes, 24), door_names=door_names, shedding=shedding,
            on_error=on_error)

        # What goes, and what is kept.
        scanner = SegmentScanner(log=log, index=index, watermarks=watermarks, topics=topics,
                                 max_record_bytes=places.max_record_bytes, on_damage=on_damage)
        self._spill = spill = Spill(index=index, state=state, topics=topics, scanner=scanner, committer=committer,
                                    worker=checkpoint_worker, fatal=fatal)
        self._checkpoints = checkpoints = Checkpoints(
            loop=loop, log_worker=log_worker, worker=checkpoint_worker, log=log, index=index, memtables=memtables,
            watermarks=watermarks, state=state, clock=clock, disk_guard=disk_guard, backpressure=backpressure,
            settings=settings, identity=identity, projection=projection, next_id=lambda: committer.next_id,
            on_superseded=spill.on_superseded, fatal=fatal)
        self._retention = retention = Retention(
            loop=loop, worker=checkpoint_worker, clock=clock, disk_guard=disk_guard, log=log, index=index,
            state=state, topics=topics, watermarks=watermarks, memtables=memtables, committer=committer,
            checkpoints=checkpoints, scanner=scanner, spill=spill, settings=settings, identity=identity, fatal=fatal)
        self._compaction = Compaction(loop=loop, worker=checkpoint_worker, clock=clock, index=index, state=state,
                                      topics=topics, watermarks=watermarks, committer=committer, fatal=fatal)
        self._cutting = Cutting(
            loop=loop, log_worker=log_worker, worker=checkpoint_worker, log=log, memtables=memtables,
            retention=retention, checkpoints=checkpoints, committer=committer, identity=identity,
            policy=settings.fsync, fatal=fatal)

        # What doors ask for.
        self.receipts = receipts = Receipts(
            committer=committer, state=state, places=places, wall_ms=loop.wall_ms)
        live = LiveGroups()
        self.leasing = leasing = Leasing(
            loop=loop, reader=reader, memtables=memtables, watermarks=watermarks, topics=topics, views=views,
            state=state, subscriptions=subscriptions, places=places, identity=identity, committer=committer,
            names=selector_names or {}, on_committed=spill.on_settled, kept_in=spill.below,
            on_error=on_error, live=live, recorder=recorder, receipts=receipts)
        receipts.begin(leasing.queues.max_lengths)
        spill.ask(leasing.cursors)
        publishers = Publishers(log=log, worker=reader_worker, bulk_worker=self._bulk_worker, reader=reader)
        self.looking = Looking(
            trail=trail, reader=reader, topics=topics, watermarks=watermarks, views=views, leasing=leasing,
            following=None if recorder is None else recorder.following, publishers=publishers,
            address_of=places.routes.address_of,
            origins=Origins(loop=loop, reader=reader, topics=topics, watermarks=watermarks, publishers=publishers,
                            journeys_id=lambda: trail.topic_id))
        self.assigned = AssignedGroups(
            loop=loop, state=state, topics=topics, definitions=leasing.definitions, live=live,
            put_state=leasing.core.put_state, has_offsets=leasing.has_offsets, identity=identity, on_error=on_error,
            receipts=receipts, forget_offsets=self._forget_offsets)
        self.groups = Groups(leasing, committer, subscriptions, topics, places, views, watermarks,
                             self._forget_offsets)
        self.sessions = Sessions(
            loop=loop, state=state, subscriptions=subscriptions, topics=topics, watermarks=watermarks, reader=reader,
            committer=committer, clock=clock, settings=settings, selector_names=selector_names or {},
            on_settled=spill.on_settled, group_of=leasing.cursors.group_of, on_error=on_error)
        leasing.queues.ask(self.sessions.shared.has)
        self.groups.ask(self.sessions.shared.names_over)
        self._producers = producers = Producers(lambda key: state.get(Kind.PRODUCER, key))
        self._producer_expiry = ProducerExpiry(loop=loop, worker=checkpoint_worker, clock=clock, index=index,
                                               producers=producers, committer=committer, fatal=fatal)
        self._known_producers = KnownProducers(worker=reader_worker, index=index, state=state)
        window = Window(settings.idempotency_ms, settings.max_idempotency_keys, settings.max_idempotency_bytes)
        self._idempotency = idempotency = Idempotency(window, committer, loop.now_ms)
        self._appending = appending = Appending(
            committer=committer, places=places, disk_guard=disk_guard, idempotency=idempotency,
            queue_limits=leasing.queues.max_lengths, receipts=receipts, speaker=self.speaker, recorder=recorder)
        self._validating = validating = Validating(loop, validation_worker, backpressure, on_error)
        self._batches = Batches(
            appending=appending, committer=committer, validating=validating, topics=topics, places=places,
            subscriptions=subscriptions, producers=producers, idempotency=idempotency, disk_guard=disk_guard,
            listens=deliveries.listens, receipts=receipts, speaker=self.speaker, recorder=recorder)
        self._retained = RetainedValues(store=store, state=state, topics=topics, committer=committer,
                                        worker=reader_worker, wall_ms=loop.wall_ms)
        self.scheduling = scheduling = Scheduling(
            loop=loop, worker=reader_worker, index=index, state=state, topics=topics, clock=clock, places=places,
            disk_guard=disk_guard, backpressure=backpressure, committer=committer, appending=appending,
            max_scheduled=settings.max_scheduled, fatal=fatal, receipts=receipts, recorder=recorder)
        self.lags = Lags(leasing=leasing, views=views, topics=topics, watermarks=watermarks,
                         append_ms=reader.append_ms_of)
        self.reasons = Reasons(loop=loop, looking=self.looking, leasing=leasing, groups=self.groups, topics=topics,
                               watermarks=watermarks, scheduling=scheduling, next_id=lambda: committer.next_id)
        self.halves = Halves(loop=loop, worker=reader_worker, index=index, state=state, clock=clock,
                             committer=committer, appending=appending, scheduling=scheduling, leasing=leasing,
                             identity=identity, fatal=fatal, on_error=on_error, receipts=receipts, recorder=recorder)
        self.producing = ProducerTransactions(
            loop=loop, state=state, topics=topics, topic_changes=self._topic_changes, batches=self._batches,
            committer=committer, halves=self.halves, receipts=receipts, require_commits=leasing.require_commits,
            on_error=on_error)

    @property
    def epoch(self) -> int:
        """Which start of the hub this is; 0 before `open`."""
        return self._identity.epoch

    @property
    def follows_all(self) -> bool:
        return self.journeys is not None and self.journeys.follows_all

    @property
    def records_journeys(self) -> bool:
        """Whether anybody wants to know who speaks, see `speaker`."""
        return self.journeys is not None

    @property
    def keeps_pace(self) -> bool:
        """Whether work that can wait may add to the log: nobody is held up, and checkpoints are not behind."""
        return not self.congested and not self._checkpoints.is_late

    @property
    def hub(self) -> bytes:
        """Identity of the hub whose data this is."""
        return self._identity.hub

    @property
    def secret(self) -> bytes:
        """What this hub signs with, 32 bytes."""
        return self._identity.secret

    @property
    def shard(self) -> int:
        """Who gives the ids of this hub, see `kernel.ids`."""
        return self._identity.shard

    # ---- opening and closing

    def open(self) -> None:
        """Recover from index and log, begin a new epoch. Blocks; raises LogFailed, LogFull, ForeignShard, OSError."""
        recovered = self._recovery.run()
        self.recovered_frames = recovered.frames
        self._beginning.begin(recovered)
        self._reader.begin([(decode_epoch_key(key), decode_position(value))
                            for key, value in self._state.scan(Kind.BEGUN)])
        leasing, identity = self.leasing, self._identity
        self.committer.begin(
            identity.epoch, identity.first_id,
            keepers={Kind.WATERMARKS: self._views.apply_stored, Kind.OFFSET: self._views.apply_stored,
                     Kind.QUEUE: leasing.settle, Kind.GROUP: leasing.settle},
            participants=[self._producers, self._topic_changes, leasing, self.receipts, self.sessions.keeper,
                          self.sessions.wills, self.producing],
            noting=[self._retained, self._compaction],
            followers=[self._watches, leasing, self.sessions], forgetters=[self._spill, self._checkpoints],
            copying=[self.receipts], on_grown=self._checkpoints.note, recorder=self.journeys)
        self._idempotency.load((key.decode(), value) for key, value in self._state.scan(Kind.IDEMPOTENCY))
        self._spill.open()
        self.receipts.open()
        leasing.open()
        self.assigned.open()
        self.producing.open()
        self.sessions.open()
        self._spill.on_superseded(recovered.superseded)
        self._checkpoints.begin(recovered.kept_end)
        if self.journeys is not None:
            self.trail.open(self.journeys.resume)
        self.background.begin(self._live_work, self._hurries)
        leasing.start()
        self.sessions.start()
        self._retention.start()
        self._producer_expiry.start()
        self.scheduling.start()
        self._compaction.start()
        self._disk_guard.open()
        if recovered.rebuilt and self._topics.compacted:
            self._checkpoints.take(self._spill.forget_superseded)


    def close(self, on_done: Callable[[], None]) -> None:
        """Take nothing new, answer what is in flight, take a checkpoint; call back. The caller closes log and store."""
        self._retention.stop()
        self._producer_expiry.stop()
        self._compaction.stop()
        self.scheduling.stop()
        self.assigned.stop()
        self.producing.stop()
        self.sessions.stop()
        self.leasing.stop()
        self.trail.stop()
        if self.journeys is not None:
            self.journeys.stop()
        self._validating.stop()
        self.background.stop()
        self.committer.stop(lambda: self._answering.when_idle(lambda: self._checkpoints.end(on_done)))

    def _forget_offsets(self, tenant: str, group: str, partition_ids: Collection[int] | None = None) -> None:
        """See `ProducerTransactions`, which is made last."""
        self.producing.forget_offsets(tenant, group, partition_ids)

    def _live_work(self) -> LiveWork:
        committer = self.committer
        return LiveWork(committer.messages, committer.durable_ms, committer.flushed_bytes, committer.newest_ms)

    def _hurries(self) -> bool:
        """Whether live messages themselves wait for what is done in the background."""
        return self.congested or self._checkpoints.is_late or self._disk_guard.short

    def _look_for_room(self) -> None:
        """The disk is full: something may go."""
        self._retention.check()

    def _is_settled(self) -> bool:
        """Nothing that is under way waits for room on the disk."""
        return not self._retention.busy and not self._checkpoints.full

    def configure(self, settings: KernelSettings) -> None:
        """Take over what `kernel.settings.LIVE` names; the rest stays as it was until the next start."""
        live = {name: getattr(settings, name) for name in LIVE}
        self.settings = replace(self.settings, **live)
        self._places.configure(self.settings)
        self._retention.configure(self.settings)
        self._topics.touch()
        self._subscriptions.touch()

    def backups(self, log: Copied, beside: Callable[[], Mapping[str, bytes]], about: dict[str, Any]) -> Backups:
        """Backups of `log`, which this kernel writes; see `kernel.backup.backups`."""
        return Backups(loop=self._loop, worker=self._checkpoint_worker, cutting=self._cutting, identity=self._identity,
                       log=log, beside=beside, about=about)

    # ---- where things go

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True, maker: str = "") -> Placement:
        """Where a message for this address is stored; its topic is made where it is missing, and counted for its maker
        (see `addresses.makers`).

        Raises InvalidAddress, Unroutable; UnknownTopic, CreateDenied, TooManyTopics: so may an append, once it is gone.
        """
        return self._places.place(address, tenant, may_create, maker)

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement:
        """Where a message for this topic and key is stored. Raises UnknownPartition, InvalidTopic, and of a missing
        topic what `place` raises."""
        return self._places.place_in(topic, key, partition, tenant, may_create, maker)

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """The address of a stored record."""
        return self._places.routes.address_of(topic, key, headers)

    def place_queue(self, queue: Queue, priority: int = 0, key: bytes | None = None) -> Placement:
        """Into a queue alone."""
        return self._places.place_queue(queue, priority, key)

    def place_known(self, address: str, partition_ids: tuple[int, ...], tenant: str = "/") -> Placement | None:
        """Where the address leads, and by reference into exactly these queues, besides bindings that are not `chosen`;
        None, and nothing is made, where its topic is not there."""
        return self._places.place_known(address, partition_ids, tenant)

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]:
        """The routes as configured: with them a reader of stored records finds their addresses itself."""
        return self._places.routes.entries

    # ---- append

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call once, when no longer congested."""
        self._backpressure.on_relief(callback)

    def _set_congested(self, congested: bool) -> None:
        self.congested = congested

    def append(self, messages: list[Message], owner: Owner | None, token: object = None, *, positions: bool = False,
               idempotency_key: str | None = None, judge: Judge | None = None) -> None:
        """Store messages, in order, in one frame. `owner.on_stored` answers once they are durable, or with StorageFull.

        `positions` asks for (partition_id, offset, message id) of each. A repeated `idempotency_key` gets the first
        answer and stores nothing. `judge` says what the sender may at the address of a receipt that he asks for;
        without it nobody is told. Raises MessageTooLarge, ReceiptDenied, Stopping, IdempotencyConflict.
        """
        if idempotency_key is None:
            self._appending.append(messages, owner, token, positions, None, judge)
        else:
            self._appending.append_once(messages, owner, token, idempotency_key, None, judge)

    def append_batch(self, partition_id: int, batch: bytes, owner: Owner | None, token: object = None,
                     divert: Divert | None = None, judge: Judge | None = None) -> None:
        """Store one record batch v2 as it is. Answered with [(partition_id, base offset, first message id)].

        Refuses with CorruptBatch, InvalidRecord, InvalidTimestamp, UnsupportedBatch, MessageTooLarge, UnknownPartition,
        OutOfOrderSequence, FencedProducer, Stopping: raised, or answered where the batch is opened
        on another thread. One that is remembered is answered with its first position. `divert`: see `validation`.
        """
        self._batches.append(partition_id, batch, owner, token, divert, judge)

    def append_batches(self, batches: list[tuple[int, bytes]], owner: Owner | None, token: object = None, *,
                       idempotency_key: str | None = None) -> None:
        """Store record batches v2 as they are, (partition id, batch) each, in order, all or none of them.

        Answered with (partition id, base offset, first message id) of each. A repeated `idempotency_key` gets the first
        answer and stores nothing. Refuses what `append_batch` does, but for sequences; IdempotencyConflict.
        """
        self._batches.append_all(batches, owner, token, idempotency_key)

    # decision 203: what has arrived over a link, and how far that is, in one frame
    def append_with(self, messages: list[Message], records: list[StateRecord], owner: Owner | None,
                    token: object = None, origin: Origin = NOBODY, encoded: Sequence[Encoded] = ()) -> None:
        """Store messages and state records in one frame: both are there after a crash, or neither. Answered as
        `append`; with neither, once everything before is durable. They come from `origin`. What is `encoded` enters
        before the messages: no more of it than `unfollowed`. Raises what `append` does, with nothing taken."""
        self.speaker.speaks(origin if self.records_journeys else NOBODY)
        try:
            self._appending.append(messages, owner, token, False, encoded=encoded)
        finally:
            self.speaker.speaks(NOBODY)
        if records:
            self.committer.put_state(records)

    @property
    def unfollowed(self) -> int:
        """Messages that enter before the next one which may be followed."""
        return self._appending.unfollowed

    def link_state(self, kind: int, key: bytes) -> bytes | None:
        """A state record of a link, as far as it is durable."""
        return self._state.get(kind, key)

    # decision 241: of two values that two hubs retain for an address, the same one stays on both
    def keep_retained_clocks(self, stamp_in: ReadStamp) -> None:
        """Have retained values say when and where they were written, from now on."""
        self._retained.keep_clocks(self.hub, stamp_in)

    def has_retained_clocks(self, partition_id: int) -> bool:
        """Whether a partition may have messages whose values or ends have such a clock."""
        return self._retained.has_clocks(partition_id)

    def retained_written(self, address: str, tenant: str) -> Written | None:
        """When and where what an address retains was written, or ended; as far as that is durable."""
        return self._retained.written(address, tenant)

    def link_states(self, kind: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Every such record whose key begins so; in no order."""
        return list(self._state.scan(kind, prefix))

    # ---- for later

    def schedule(self, messages: list[Message], whens: list[When], owner: Owner | None, token: object = None, *,
                 idempotency_key: str | None = None) -> None:
        """Append each message when it falls due; at once where that is over. All are taken in one frame, or none.

        Answered with (0, -1, id) of each that waits, as `append` says for the others. What is delivered once keeps its
        id; each repetition is a message of its own. Repetitions that fall due while the hub is down are delivered once.
        Raises InvalidDelay, InvalidSchedule, TooManyScheduled and what `append` raises. Looking at what waits, and
        taking it back: `Kernel.scheduling`.
        """
        self.scheduling.schedule(messages, whens, owner, token, idempotency_key)

    # ---- reading

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """(log start offset, high watermark)."""
        return self._reader.bounds(partition_id)

    def bounds_of(self, topic: Topic) -> array[int]:
        """Log start offset and high watermark of every partition of a topic, one after the other."""
        return self._reader.bounds_of(topic)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None], *, kept: bool = False, stored: bool = False,
              max_records: int = 0) -> None:
        """Read partitions from (partition_id, offset, max_bytes of it) on; answers stand in the order of the wants.

        `on_done` is called before this returns where everything is in memory, else later. At most `message.COLD_BYTES`
        are read from the disk; beyond that, and beyond `max_bytes`, partitions stay empty this time, but for the first
        piece of one. Producers' batches come opened and cut to these bytes (`kernel.records.opened`), or `stored`: as
        they are. Nothing of a partition is read behind the piece with the last of `max_records`, unless that is 0.
        Errors stand in the answers: OffsetOutOfRange, StorageFailed.

        With `kept`, what is kept below the start of a partition is read too, with gaps where nothing is; a compacted
        partition is always read so. Kept records come each as a piece of its own.
        """
        self._reader.fetch_public(wants, max_bytes, on_done, kept, stored, max_records)

    def bulk_turn(self, max_bytes: int, on_turn: Callable[[int], None]) -> None:
        """Call `on_turn` once a read in bulk may go on beside live messages, with how many bytes it takes at most: what
        is in memory is read on the kernel's thread, too. At once where nobody publishes."""
        if self.background.yields():
            self._bulk_worker.submit(_nothing, lambda _, error: on_turn(self.background.slice_bytes(max_bytes)))
        else:
            on_turn(max_bytes)

    def fetch_private(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None]
                      ) -> None:
        """As `fetch`, for a door that reads what it keeps of its own messages in private headers."""
        self._reader.fetch(wants, max_bytes, on_done, False, False)

    def fetch_stored(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None]
                     ) -> None:
        """As `fetch`, for another hub: with what is kept, batches as they are, and private headers in place."""
        self._reader.fetch(wants, max_bytes, on_done, kept=True, stored=True)

    def note_fault(self, fault: Exception) -> None:
        """A fault of our own that was contained, outside of the kernel."""
        self._on_error(fault)

    def retained(self, filter: str, tenant: str, on_done: OnRetained, *, max_values: int = 100, start: str = ""
                 ) -> None:
        """The values that addresses matching a filter retain, level by level in order, a page at a time.

        `on_done(values, next, error)`: `start=next` gives the next page, None: there is none; error is StorageFailed.
        `start` may be any address. A page may hold fewer values than asked for, and none only at the end. It is true
        when it is given: a subscription made before the call missed nothing. Raises InvalidFilter.
        """
        self._retained.look_up(filter, tenant, max_values, start, on_done)

    def has_expired(self, record: Record, topic: str, tenant: str) -> bool:
        """Whether a record of a topic is worth nothing any more: sessions are not given it."""
        existing = self._topics.get(topic, tenant)
        until_ms = expires_at(record[4], record[1], existing.settings if existing is not None else None)
        return until_ms <= self._loop.wall_ms()

    def keep_for(self, holder: Holder) -> None:
        """Ask `holder`, before records go with their segment, which of them must be kept."""
        self._spill.ask(holder)

    def forget_kept(self, partition_id: int) -> None:
        """Something of this partition was settled: what is kept of it and needed by nobody goes."""
        self._spill.on_settled(partition_id)

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        """Call `wake` once, after a flush that brings records to one of these partitions, or when it is deleted, unless
        it is cancelled."""
        return self._watches.add(partition_ids, wake)

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with at least this timestamp; (None, -1) where there is none."""
        self._reader.offset_for_time(partition_id, timestamp_ms, on_done)

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        """The bytes that each of these partitions has in the log, about: what is being written may be missing, or
        count twice."""
        self._reader.sizes(partition_ids, on_done)

    # ---- topics

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        return self._topics.get(name, tenant)

    def topics(self, tenant: str = "/") -> list[Topic]:
        """Sorted by name."""
        return self._topics.of(tenant)

    @property
    def topics_version(self) -> int:
        """Counts the changes of topics: while it stays the same, so do they."""
        return self._topics.version

    def create_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None, maker: str = "") -> Topic:
        """Raises TopicExists, InvalidTopic, TooManyTopics, Stopping; durable once `owner` is told."""
        if not is_topic_name(name):
            raise InvalidTopic(f"{name[:249]!r} is no topic name: letters, digits, '.', '_', '-', at most 249")
        return self._create(name, tenant, self.settings.default_partitions if partitions is None else partitions,
                            settings or TopicSettings(), owner, token, maker)

    def pace_topics(self, maker: str) -> None:
        """This maker changes a topic, which counts as making one. Raises TooManyTopics."""
        if maker:
            self.makers.pace(maker, self.settings, self._loop.now_ms())

    def change_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None) -> Topic:
        """Add partitions, replace settings. Raises UnknownTopic, InvalidTopic, Stopping."""
        changed = self._topic_changes.change(self._topics.require(name, tenant), partitions, settings, owner, token)
        self.leasing.configure_topic(changed)
        return changed

    def delete_topic(self, name: str, *, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """The topic with everything in it; who watches it is woken. Raises UnknownTopic, Stopping."""
        topic = self._topics.require(name, tenant)
        self._topic_changes.delete(topic, self._views.offsets, owner, token)
        self.leasing.end_topic(topic)
        if self._watches.waiting:
            self._loop.call_soon(partial(self._watches.follow, frozenset(topic.partition_ids())))

    def delete_records(self, before: Mapping[int, int], owner: Owner | None = None, token: object = None) -> None:
        """Readers of these partitions begin at these offsets from now on, or where the partition ends if that is
        earlier. What a leased group still has to settle stays its own. Raises Stopping."""
        pages = self._watermarks.pages_starting_at(dict(before))
        self.committer.put_state([heads_record(number, page) for number, page in pages.items()], owner, token)

    def _create_by_use(self, name: str, tenant: str, maker: str) -> Topic:
        return self._create(name, tenant, self.settings.default_partitions, TopicSettings(), None, None, maker)

    def _create(self, name: str, tenant: str, partitions: int, settings: TopicSettings, owner: Owner | None,
                token: object, maker: str) -> Topic:
        if maker and self._topics.get(name, tenant) is None:
            self.makers.check(maker, self.settings, self._loop.now_ms())
        topic = self._topic_changes.create(name, tenant, partitions, settings, owner, token, maker)
        self.groups.on_topic(topic)
        self.makers.look(self.settings)
        return topic

    def _queue(self, name: str, tenant: str) -> Queue | None:
        return self.groups.queue(name, tenant)

    # ---- definitions of the doors' own

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        """Keep some bytes under a name, for ever; None forgets them. Raises Stopping."""
        record = StateRecord(Kind.DEFINITION, definition_key(space, tenant, name), value)
        self.committer.put_state([record], owner, token)

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        """(tenant, name, value) of what is kept in a space, as far as it is durable; in no order."""
        definitions = [(*decode_definition(key), value) for key, value in self._state.scan(Kind.DEFINITION)]
        return [(tenant, name, value) for of, tenant, name, value in definitions if of == space]

    # ---- producers

    def new_producer_id(self, owner: Owner, token: object = None) -> None:
        """A number no producer had before, answered as [(producer id, 0, 0)]."""
        self._topic_changes.new_producer_id(owner, token)

    # ---- live subscribers

    def subscribe(self, filter: str, subscriber: Subscriber, options: int = 0, *, tenant: str = "/") -> None:
        """Tell `subscriber` of a tenant's new messages whose address matches. Raises InvalidFilter."""
        self._subscriptions.subscribe(filter, subscriber, options, tenant)

    def unsubscribe(self, filter: str, subscriber: Subscriber, *, tenant: str = "/") -> bool:
        return self._subscriptions.unsubscribe(filter, subscriber, tenant)

    def slices(self) -> Slices:
        """For work of a door that grows with its clients."""
        return Slices(self._loop, self._on_error)

    # ---- clocks

    def wall_of(self, hub_ms: int) -> int:
        """What the wall clock said at a hub time, or will say if it is not stepped before; for what is shown."""
        return self._clock.wall_of(hub_ms)

    def port(self, door: DoorSide, transactions: HalfHolder | None = None) -> KernelPort:
        """A port of a door's own; see `api.KernelPort`."""
        return Port(
            door, transactions, kernel=self, identity=self._identity, backpressure=self._backpressure,
            topics=self._topics, places=self._places, subscriptions=self._subscriptions,
            speaker=self.speaker, journeys=self.journeys, committer=self.committer, appending=self._appending,
            batches=self._batches, idempotency=self._idempotency, receipts=self.receipts, scheduling=self.scheduling,
            reader=self._reader, unreadable=self._unreadable, watches=self._watches,
            deliveries=self.deliveries, retained=self._retained, known_producers=self._known_producers,
            groups=self.groups, assigned=self.assigned)

    # ---- what the metrics show

    @property
    def is_short(self) -> bool:
        """The disk is full, and the reserve is given up: no messages are taken."""
        return self._disk_guard.short

    @property
    def is_refusing(self) -> bool:
        """Messages were refused lately as the disk is full, or would be."""
        return self._disk_guard.refusing

    def topic_of(self, partition_id: int) -> tuple[Topic, int] | None:
        """The topic that a partition id belongs to, and the partition's number in it."""
        return self._topics.of_partition(partition_id)

    def checkpoint_age_ms(self) -> int | None:
        """How long ago the last checkpoint was taken; None where none was since the start."""
        taken_ms = self._checkpoints.taken_ms
        return self._loop.now_ms() - taken_ms if taken_ms else None

    def unflushed_ms(self) -> int:
        """For how long the oldest that is on its way to the disk has waited; 0 where nothing is."""
        flight = self.committer.flight
        return 0 if flight is None else max(0, self._loop.now_ms() - flight.now_ms)

    def delivered_ms(self) -> Iterator[tuple[str, list[tuple[int, int]], int, int]]:
        """Of each door's live subscribers: within how many ms from the disk how many messages were there, as
        `durable_ms`."""
        return self.deliveries.latencies.by_door()

    def durable_ms(self) -> tuple[list[tuple[int, int]], int, int]:
        """How many messages since the start were durable within so many ms (upper bound, count), how many there are,
        and the sum of what they took."""
        committer, below = self.committer, 0
        bounds: list[tuple[int, int]] = []
        for bound_ms, count in zip(DURABLE_MS, committer.durable, strict=False):
            below += count
            bounds.append((bound_ms, below))
        return bounds, below + committer.durable[-1], committer.durable_ms

    def held_bytes(self) -> dict[str, Callable[[], int]]:
        """Who holds memory for clients here, and how many bytes, about."""
        return {"pending": lambda: self.committer.pending_bytes + self._validating.size_bytes,
                "unindexed": self._checkpoints.unwritten_bytes, "recent": lambda: self._memtables.cached_bytes}

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        segments, kept, clock = self._log.segments(), self._log.kept_segments(), self._clock
        return {
            "flushes_total": self.committer.flushes,
            "appended_messages_total": self.committer.messages,
            "appended_bytes_total": self.committer.flushed_bytes,
            "refused_flushes_total": self.committer.refused,
            "log_bytes": sum(segment.size_bytes for segment in segments),
            "log_segments": len(segments),
            "kept_bytes": sum(segment.size_bytes for segment in kept),
            "dropped_segments_total": self._retention.dropped_segments,
            "pending_bytes": self.committer.pending_bytes + self._validating.size_bytes,
            "checkpoints_total": self._checkpoints.taken,
            "unindexed_bytes": self._checkpoints.unwritten_bytes(),
            "postponed_checkpoints_total": self._checkpoints.postponed,
            "cold_reads_total": self._reader.cold_reads,
            "unreadable_stretches_total": self._unreadable.count,
            "topics": len(self._topics),
            "max_auto_topics": self.settings.max_auto_topics,
            "clock_steps_total": clock.steps,
            "subscriptions": self._subscriptions.count,
            **self.scheduling.statistics(), **self.producing.statistics(),
            **({} if self.journeys is None else self.journeys.statistics()), **self.receipts.statistics(),
            **self.sessions.statistics(),
            "epoch": self.epoch,
        }


def _nothing() -> None:
    """The job of a bulk reader that waits for its turn."""
