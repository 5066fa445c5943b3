"""The message kernel as doors see it: place, append, fetch, watch, subscribe; topics, producers, groups.

    append → gathering → seal → log (one fdatasync for all) → memory → answers, deliveries, woken readers

Everything runs on one thread; what blocks is handed to workers. Nothing in memory is changed by a message before its
frame is durable, but for what the next message needs at once (a topic made by use, a producer's sequence): that is
taken back if the frame cannot be stored. Calls raise their refusals at once, with nothing taken; what only the disk can
say comes by call-back.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kernel.address import is_topic_name
from kernel.appending import Appending
from kernel.checkpoints import Checkpoints
from kernel.committer import Committer
from kernel.deliveries import Deliveries
from kernel.errors import InvalidTopic, KernelError
from kernel.expiry import ProducerExpiry
from kernel.flushing import Flushing
from kernel.frame import Entries, StateRecord, encode_head
from kernel.heads import Heads
from kernel.idempotency import Window, decode_answer
from kernel.index import Index
from kernel.leasing.group import LeasedGroup
from kernel.leasing.leasing import Leasing
from kernel.leasing.redriving import Redriving
from kernel.leasing.rewinding import Rewinding
from kernel.leasing.settings import (
    GroupSettings,
    LightQueue,
    QueueSettings,
    binding_key,
    check_name,
    decode_binding,
    decode_definition,
    definition_key,
)
from kernel.ledger import KernelLedger
from kernel.log import Damage, Log
from kernel.message import Fetched, Headers, Message, Owner, Placement, Record, Subscriber
from kernel.parts import Parts
from kernel.placing import Places
from kernel.ports import Loop, Worker
from kernel.producers import Producers
from kernel.projection import Projection
from kernel.reader import Reader
from kernel.recovery import Recovery
from kernel.retention import Retention
from kernel.routes import RouteEntry, Routes
from kernel.settings import LIVE, KernelSettings
from kernel.state import Kind, StateTable
from kernel.store import IndexStore
from kernel.subscriptions import Subscriptions
from kernel.topics import Topic, Topics, TopicSettings
from kernel.views import Views
from kernel.watches import Watch, Watches

ID_STEP = 1 << 20
"""Message ids begin anew at a multiple of this at every start: none that was ever told is given again."""


class Kernel:
    """See the module's text. `open` before use; `close` to stop.

    `fatal` is told in one sentence why the process must end; `on_damage` of ranges of the log that cannot be read;
    `on_error` of our own faults that were contained.
    """

    def __init__(self, *, loop: Loop, log_worker: Worker, reader_worker: Worker, checkpoint_worker: Worker, log: Log,
                 store: IndexStore, routes: Routes, settings: KernelSettings, fatal: Callable[[str], None],
                 on_damage: Callable[[Damage], None], on_error: Callable[[Exception], None],
                 projection: Projection | None = None, new_hub: bytes = bytes(16), new_secret: bytes = bytes(32)
                 ) -> None:
        self.recovered_frames = 0
        self._loop = loop
        index, heads, state, topics, subscriptions = Index(store), Heads(), StateTable(store), Topics(), Subscriptions()
        self._places = Places(routes, topics, subscriptions, settings, self._create_by_use, self.queue)
        self._reader = Reader(heads, index, log, reader_worker, settings.recent_bytes, on_damage)
        self.parts = Parts(
            loop=loop, log_worker=log_worker, reader_worker=reader_worker, checkpoint_worker=checkpoint_worker,
            fatal=fatal, on_damage=on_damage, on_error=on_error, projection=projection, log=log, index=index,
            heads=heads, state=state, topics=topics,
            producers=Producers(lambda key: state.get(Kind.PRODUCER, key)),
            window=Window(settings.idempotency_ms, settings.max_idempotency_keys), views=Views(topics, heads),
            subscriptions=subscriptions, watches=Watches(), places=self._places, reader=self._reader,
            deliveries=Deliveries(topics, self._places, subscriptions, reader_worker, on_error), settings=settings,
            hub=new_hub, secret=new_secret)
        self._log = log
        self._heads = heads
        self._topics = topics
        self._subscriptions = subscriptions
        self._watches = self.parts.watches
        self._views = self.parts.views

    @property
    def settings(self) -> KernelSettings:
        return self.parts.settings

    @property
    def epoch(self) -> int:
        """Which start of the hub this is; 0 before `open`."""
        return self.parts.epoch

    @property
    def hub(self) -> bytes:
        """Identity of the hub whose data this is."""
        return self.parts.hub

    # ---- opening and closing

    def open(self) -> None:
        """Recover from index and log, begin a new epoch. Blocks; raises LogFailed, LogFull, OSError."""
        parts = self.parts
        recovered = Recovery(parts).run()
        self.recovered_frames = recovered.frames
        parts.epoch = parts.views.epoch + 1
        next_id = (recovered.next_id // ID_STEP + 1) * ID_STEP
        self._begin_epoch(next_id, recovered.deleted)
        answered = parts.state.scan(Kind.IDEMPOTENCY)
        parts.window.load((key.decode(), decode_answer(value)) for key, value in answered)
        self._build(next_id, recovered.kept_end)
        self.leasing.open()
        for key in [key for key, _ in parts.state.scan(Kind.BINDING)]:
            queue_id, chosen, filter_text = decode_binding(key)
            parts.subscriptions.bind(filter_text, queue_id, chosen)
        self._checkpoints.note()
        self._retention.start()
        self._expiry.start()

    def _begin_epoch(self, next_id: int, deleted: list[StateRecord]) -> None:
        parts = self.parts
        records = [StateRecord(Kind.EPOCH, b"", parts.epoch.to_bytes(4, "big")), *deleted]
        known = parts.state.get(Kind.HUB, b"")
        if known is None:
            records.append(StateRecord(Kind.HUB, b"", parts.hub))
        else:
            parts.hub = known
        secret = parts.state.get(Kind.SECRET, b"")
        if secret is None:
            records.append(StateRecord(Kind.SECRET, b"", parts.secret))
        else:
            parts.secret = secret
        head = encode_head(parts.epoch, self._loop.now_ms(), next_id, 0, Entries(), records)
        position = self._log.append(head, b"")
        self._log.sync()
        self._reader.tail.absorb(position, self._log.end(), 0, 0, Entries())
        parts.state.changes.absorb(position, records)

    def _build(self, next_id: int, kept_end: int) -> None:
        parts, settings = self.parts, self.settings
        self._checkpoints = Checkpoints(parts, lambda: self._committer.next_id)
        self._checkpoints.kept_end = kept_end
        self.leasing = Leasing(parts, lambda: self._committer.gather())
        self._flushing = Flushing(parts, self._checkpoints, self.leasing)
        self._committer = Committer(self._loop, parts.log_worker, self._log, self._flushing, policy=settings.fsync,
                                    epoch=parts.epoch, next_id=next_id, pending_bytes=settings.pending_bytes,
                                    fatal=parts.fatal)
        self._appending = Appending(parts, self._committer)
        self._rewinding = Rewinding(parts, self.leasing, self._committer.gather)
        self._redriving = Redriving(parts, self.leasing, self._committer.gather, self._appending.refresh)
        self._expiry = ProducerExpiry(parts, self._appending)
        self._retention = Retention(parts, KernelLedger(parts, self._appending, self._checkpoints))

    def close(self, on_done: Callable[[], None]) -> None:
        """Take nothing new, answer what is in flight, leave a checkpoint; then call back. The caller closes log and
        store."""
        self._retention.stop()
        self._expiry.stop()
        self.leasing.stop()
        self._committer.stop(lambda: self._checkpoints.end(on_done))

    def configure(self, settings: KernelSettings) -> None:
        """Take over what `kernel.settings.LIVE` names; the rest stays as it was until the next start."""
        live = {name: getattr(settings, name) for name in LIVE}
        settings = replace(self.settings, **live)
        self.parts.settings = self._places.settings = self._retention.settings = settings
        self._topics.version += 1
        self._subscriptions.touch()

    # ---- where things go

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True) -> Placement:
        """Where a message for this address is stored; its topic is made where it is missing.

        Raises InvalidAddress; UnknownTopic where topics are not made by use.
        """
        return self._places.place(address, tenant, may_create)

    def place_in(self, topic: str, key: bytes | None, *, queue: int | None = None, tenant: str = "/",
                 may_create: bool = True) -> Placement:
        """Where a message for this topic and key is stored. Raises UnknownTopic, UnknownQueue, InvalidTopic."""
        return self._places.place_in(topic, key, queue, tenant, may_create)

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """The address of a stored record."""
        return self._places.routes.address_of(topic, key, headers)

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]:
        """The routes as configured: with them a reader of stored records finds their addresses itself."""
        return self._places.routes.entries

    # ---- append

    @property
    def congested(self) -> bool:
        """More is pending than is good: stop reading from publishers until `on_relief`."""
        return self._committer.congested

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call once, when no longer congested."""
        self._committer.on_relief(callback)

    def append(self, messages: list[Message], owner: Owner | None, token: object = None, *, positions: bool = False,
               idempotency_key: str | None = None) -> None:
        """Store messages, in order, in one frame. `owner.on_stored` answers once they are durable, or with StorageFull.

        `positions` asks for (queue_id, offset, message id) of each. A repeated `idempotency_key` gets the first answer
        and stores nothing. Raises MessageTooLarge, Stopping, IdempotencyConflict.
        """
        if idempotency_key is None:
            self._appending.append(messages, owner, token, positions)
        else:
            self._appending.append_once(messages, owner, token, idempotency_key)

    def append_batch(self, queue_id: int, batch: bytes, owner: Owner | None, token: object = None) -> None:
        """Store one record batch v2 as it is. Answered with [(queue_id, base offset, first message id)].

        Raises CorruptBatch, UnsupportedBatch, MessageTooLarge, UnknownQueue, OutOfOrderSequence, DuplicateSequence,
        FencedProducer, Stopping. A batch that is remembered is answered with its first position.
        """
        self._appending.append_batch(queue_id, batch, owner, token)

    def append_batches(self, batches: list[tuple[int, bytes]], owner: Owner | None, token: object = None, *,
                       idempotency_key: str | None = None) -> None:
        """Store record batches v2 as they are, (queue id, batch) each, in order, all or none of them.

        Answered with (queue id, base offset, first message id) of each. A repeated `idempotency_key` gets the first
        answer and stores nothing. Raises what `append_batch` does, but for sequences; IdempotencyConflict.
        """
        self._appending.append_batches(batches, owner, token, idempotency_key)

    # ---- reading

    def bounds(self, queue_id: int) -> tuple[int, int]:
        """(log start offset, high watermark)."""
        return self._heads.log_start(queue_id), self._heads.next_offset(queue_id)

    def bounds_of(self, topic: Topic) -> array[int]:
        """Log start offset and high watermark of every queue of a topic, one after the other."""
        found: array[int] = array("q")
        for first, count in topic.ranges:
            found.extend(self._heads.bounds_of(first, count))
        return found

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None]) -> None:
        """Read queues from (queue_id, offset, max_bytes of it) on; answers stand in the order of the wants.

        `on_done` is called before this returns where everything is in memory, else later; what must be read from the
        disk is at most `reader.COLD_BYTES` a fetch, and queues beyond that stay empty this time. Each queue's first
        piece is given even if it is larger than allowed; once `max_bytes` are reached the rest stays empty. Errors
        stand in the answers: OffsetOutOfRange, StorageFailed.
        """
        self._reader.fetch(wants, max_bytes, on_done)

    def watch(self, queue_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        """Call `wake` once, after a flush that brings records to one of these queues. `cancel` it when no longer
        needed."""
        return self._watches.add(queue_ids, wake)

    def offset_for_time(self, queue_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with at least this timestamp; (None, -1) where there is none."""
        self._reader.offset_for_time(queue_id, timestamp_ms, on_done)

    # ---- topics

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        return self._topics.get(name, tenant)

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        return self._topics.by_uuid(uuid)

    def topics(self, tenant: str = "/") -> list[Topic]:
        """Sorted by name."""
        return self._topics.of(tenant)

    def create_topic(self, name: str, *, queues: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None) -> Topic:
        """Raises TopicExists, InvalidTopic, Stopping; durable once `owner` is told."""
        if not is_topic_name(name):
            raise InvalidTopic(f"{name[:249]!r} is no topic name: letters, digits, '.', '_', '-', at most 249")
        return self._appending.create_topic(name, tenant, self.settings.default_queues if queues is None else queues,
                                            settings or TopicSettings(), owner, token)

    def change_topic(self, name: str, *, queues: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None) -> Topic:
        """Add queues, replace settings. Raises UnknownTopic, InvalidTopic, Stopping."""
        return self._appending.change_topic(self._topics.require(name, tenant), queues, settings, owner, token)

    def delete_topic(self, name: str, *, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """The topic with everything in it. Raises UnknownTopic, Stopping."""
        self._appending.delete_topic(self._topics.require(name, tenant), self._views.offsets, owner, token)

    def _create_by_use(self, name: str, tenant: str) -> Topic:
        return self._appending.create_topic(name, tenant, self.settings.default_queues, TopicSettings(), None, None)

    # ---- producers and groups

    def new_producer_id(self, owner: Owner, token: object = None) -> None:
        """A number no producer had before, answered as [(producer id, 0, 0)]."""
        self._appending.new_producer_id(owner, token)

    def commit_offsets(self, group: str, offsets: dict[int, tuple[int, bytes]], owner: Owner | None,
                       token: object = None) -> None:
        """Per queue id the group's next offset and some bytes of its own (at most 4096)."""
        self._appending.commit_offsets(group, offsets, owner, token)

    def committed(self, group: str) -> dict[int, tuple[int, bytes]]:
        """The group's durable offsets by queue id."""
        return dict(self._views.offsets.get(group, {}))

    def group(self, name: str, topic: str, tenant: str = "/") -> LeasedGroup:
        """The leased group of this name over a topic; made where it is missing.

        Raises UnknownTopic, InvalidGroup, AssignedGroup, Stopping.
        """
        return self.leasing.of_topic(name, self._topics.require(topic, tenant))

    def define_group(self, name: str, settings: GroupSettings, tenant: str = "/", owner: Owner | None = None,
                     token: object = None) -> None:
        """Make a group, or change its settings. Raises InvalidGroup, Stopping."""
        check_name(name, "group")
        settings.check()
        record = self.leasing.groups.put(tenant, name, settings)
        self._appending.put_state([record], owner, token)
        self.leasing.configure(tenant, name, settings)

    def group_settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        """None where nobody has defined or used a group of this name."""
        return self._rewinding.settings(tenant, name)

    def groups(self, tenant: str = "/") -> list[tuple[str, GroupSettings]]:
        """Every group, leased or assigned, sorted by name."""
        return self._rewinding.all(tenant)

    def group_topics(self, name: str, tenant: str = "/") -> list[Topic]:
        """What a group has progress in, sorted by name."""
        return self._rewinding.topics(tenant, name)

    def group_offsets(self, name: str, topic: Topic) -> dict[int, int]:
        """Per queue id that the group has met, the first offset that is not settled."""
        return self._rewinding.offsets(topic.tenant, name, topic)

    def rewind_group(self, name: str, topic: Topic, offsets: Mapping[int, int], owner: Owner | None = None,
                     token: object = None) -> None:
        """Go on from these offsets, by queue id; leases that run there are void.

        Raises UnknownQueue, OffsetOutOfRange, AssignedGroup, Stopping, with nothing changed.
        """
        self._rewinding.rewind(self.leasing.of_topic(name, topic), topic, offsets)
        self.leasing.answer(owner, token)

    def delete_group(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """Its settings, progress and leases; its dead letters stay. Raises UnknownGroup, Stopping."""
        self._rewinding.delete(tenant, name)
        self.leasing.answer(owner, token)

    # ---- light queues

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> LightQueue:
        """The light queue of this name; made where it is missing. Raises QueueExists, InvalidQueue, Stopping."""
        queue = self.leasing.declare(name, settings or QueueSettings(), tenant)
        self.leasing.answer(owner, token)
        return queue

    def delete_queue(self, queue: LightQueue, owner: Owner | None = None, token: object = None) -> None:
        """The queue with everything in it, and its bindings. Raises Stopping."""
        self.leasing.delete(queue)
        bound = [key for key, _ in self.parts.state.scan(Kind.BINDING)
                 if decode_binding(key)[0] in queue.queue_ids()]
        for queue_id, chosen, filter_text in map(decode_binding, bound):
            self._subscriptions.unbind(filter_text, queue_id, chosen)
        self._appending.put_state([StateRecord(Kind.BINDING, key, None) for key in bound], owner, token)

    def queue(self, name: str, tenant: str = "/") -> LightQueue | None:
        return self.leasing.queues.get(tenant, name)

    def queues(self, tenant: str = "/") -> list[LightQueue]:
        """Sorted by name."""
        return [queue for _, queue in self.leasing.queues.all(tenant)]

    def queue_group(self, queue: LightQueue) -> LeasedGroup:
        """The group that a light queue is of itself: who takes from the queue takes from it."""
        return self.leasing.of_queue(queue)

    def redrive(self, queue: LightQueue, letters: list[Record], owner: Owner | None = None, token: object = None
                ) -> list[KernelError | None]:
        """Send records of a dead-letter queue back to where they died. Answers for each why it stays; `owner` is told
        when the rest is durable. Raises Stopping."""
        results = self._redriving.redrive(queue, letters)
        self.leasing.answer(owner, token)
        return results

    def bind(self, filter: str, queue: LightQueue, *, chosen: bool = False, owner: Owner | None = None,
             token: object = None) -> None:
        """Messages to matching addresses enter the queue too, by reference, from this frame on.

        `chosen` bindings do not count for messages whose door chose their queues. Raises InvalidFilter, Stopping.
        """
        self._subscriptions.bind(filter, queue.first_queue_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_queue_id, chosen, filter), b"")
        self._appending.put_state([record], owner, token)

    def unbind(self, filter: str, queue: LightQueue, *, chosen: bool = False, owner: Owner | None = None,
               token: object = None) -> None:
        """Undo `bind`. Raises InvalidFilter, Stopping."""
        self._subscriptions.unbind(filter, queue.first_queue_id, chosen)
        record = StateRecord(Kind.BINDING, binding_key(queue.first_queue_id, chosen, filter), None)
        self._appending.put_state([record], owner, token)

    def place_queue(self, queue: LightQueue, priority: int = 0, key: bytes | None = None) -> Placement:
        """Into a light queue alone."""
        return self._places.place_light(queue, priority, key)

    def place_routed(self, address: str, queue_ids: tuple[int, ...], tenant: str = "/", may_create: bool = True
                     ) -> Placement:
        """Where the address leads, and by reference into exactly these light queues, besides bindings that are not
        `chosen`. Raises as `place`."""
        return self._places.place_routed(address, queue_ids, tenant, may_create)

    # ---- definitions of the doors' own

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        """Keep some bytes under a name, for ever; None forgets them. Raises Stopping."""
        record = StateRecord(Kind.DEFINITION, definition_key(space, tenant, name), value)
        self._appending.put_state([record], owner, token)

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        """(tenant, name, value) of what is kept in a space, as far as it is durable; in no order."""
        found = [(*decode_definition(key), value) for key, value in self.parts.state.scan(Kind.DEFINITION)]
        return [(tenant, name, value) for of, tenant, name, value in found if of == space]

    # ---- live subscribers

    def subscribe(self, filter: str, subscriber: Subscriber, options: int = 0) -> None:
        """Tell `subscriber` of new messages whose address matches. Raises InvalidFilter."""
        self._subscriptions.subscribe(filter, subscriber, options)

    def unsubscribe(self, filter: str, subscriber: Subscriber) -> bool:
        return self._subscriptions.unsubscribe(filter, subscriber)

    # ---- what the metrics show

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        segments, kept = self._log.segments(), self._log.kept_segments()
        return {
            "flushes_total": self._committer.flushes,
            "appended_messages_total": self._flushing.messages,
            "appended_bytes_total": self._committer.flushed_bytes,
            "refused_flushes_total": self._flushing.refused,
            "log_bytes": sum(segment.size_bytes for segment in segments),
            "log_segments": len(segments),
            "kept_bytes": sum(segment.size_bytes for segment in kept),
            "dropped_segments_total": self._retention.dropped_segments,
            "checkpoints_total": self._checkpoints.taken,
            "postponed_checkpoints_total": self._checkpoints.postponed,
            "cold_reads_total": self._reader.cold_reads,
            "topics": len(self._topics),
            "subscriptions": len(self._subscriptions),
            "epoch": self.epoch,
        }
