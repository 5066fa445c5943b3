"""Producers' transactions: whole batches that nobody sees until their producer commits, with what its groups have read.

    name ─► producer id, epoch ─► begin ─► hold ..., add_offsets ─► end: all of it in one frame, or nothing
             a newer epoch fences           └─► silence ─► rolled back, and fenced

A producer has a name of its own (in Kafka: its transactional id), and one transaction at a time. A held batch is kept
as it came, in no partition: it has no offset, and holds back no reader. So every door sees it once it is committed, and
never otherwise. Its producer's sequence is kept in the same frame: sent again, it is held once.

State records: Kind.PRODUCER_TRANSACTION, by tenant, NUL and name, JSON; Kind.HELD_BATCH, by producer id and number,
in which lies the partition id (u64), the bytes (u64, opened) and the records (u64) up to this one, whether its sender
wants any of it followed (u8), and the batch.
"""
from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import orjson

from gatehouse.kernel.errors import (
    FencedProducer,
    InvalidTimeout,
    KernelError,
    NoTransaction,
    OtherProducer,
    Stopping,
    TooManyTransactions,
    TransactionEnding,
    TransactionTooLarge,
)
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.halves.halves import Halves
from gatehouse.kernel.message import Origin, Owner, StateRecord, Stored, tell
from gatehouse.kernel.ports import Loop, Timer
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.records.batch import out_of_transaction
from gatehouse.kernel.records.validation import Validated
from gatehouse.kernel.state.state import Kind, StateTable, offset_record
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.batches import Batches, Unseen
from gatehouse.kernel.write.committer import Committer, Slices
from gatehouse.kernel.write.pending_frame import PendingFrame, Submission
from gatehouse.kernel.write.topic_changes import TopicChanges
from gatehouse.kernel.write.validating import Arrived

MAX_TIMEOUT_MS: Final = 900_000           # Kafka's transaction.max.timeout.ms
MAX_HELD_BYTES: Final = 256 << 20         # of one transaction, opened: so much enters in one frame
MAX_HELD_RECORDS: Final = 1_000_000       # of one transaction: each is an object on its way to whoever listens
MAX_HELD_BATCHES: Final = 100_000         # of one transaction: each is a state record, deleted in the frame of its end
MAX_NAMED_BYTES: Final = 1 << 20          # of partitions and offsets of one: all of it is written with each change
MAX_ALL_NAMED_BYTES: Final = 256 << 20    # of all transactions that are open
AGAIN_MS: Final = 1_000                   # after a frame that was not stored, what is overdue waits
LARGE_FRAME_BYTES: Final = 32 << 20       # behind a commit that made a frame so large the next one waits for it
MAX_NAMES: Final = 100_000                # producers with a name: each costs about a KiB of memory
IDLE_MS: Final = MAX_TIMEOUT_MS           # not used for so long, it makes room for another name
UNUSED_MS: Final = 7 * 24 * 3_600_000     # Kafka's transactional.id.expiration.ms
LOOK_MS: Final = 3_600_000
NAMES_PER_LOOK: Final = 10_000            # bounds one frame; the rest goes at the next look
LAST_EPOCH: Final = (1 << 15) - 2         # the next producer of the name gets another id
NO_EPOCH: Final = -1
HELD_OFFSET: Final = -1                   # what a batch that is held is answered with

OPEN: Final = "open"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled_back"
NEW: Final = "new"

_HELD_KEY = struct.Struct(">QQ")
_HELD = struct.Struct(">QQQ?")
_PARTITION_ID_BYTES: Final = 22           # in JSON, at most, with what is around it
_OFFSET_BYTES: Final = 52

Key = tuple[str, str]
"""Tenant, and the name that a producer gave itself."""

Offsets = dict[str, dict[int, tuple[int, bytes]]]
"""By group and partition id: the next offset, and some bytes of the group's own."""


class KnownTransaction(NamedTuple):
    """What people are shown of a producer and its transaction."""

    name: str
    producer_id: int
    epoch: int
    state: str                      # OPEN, COMMITTED, ROLLED_BACK; NEW: it has begun none
    ending: bool                    # it is being committed
    timeout_ms: int
    begun_ms: int                   # wall time; -1: none is open
    partition_ids: list[int]        # that it writes to
    groups: list[str]               # whose offsets it moves


class Producer:
    """One name, with the transaction that is open, or how the last one ended."""

    __slots__ = ("key", "producer_id", "epoch", "last_epoch", "timeout_ms", "state", "begun_ms", "used_ms",
                 "partitions", "offsets", "held", "held_bytes", "held_records", "stored_with", "named_bytes", "ending",
                 "timer")

    def __init__(self, key: Key, producer_id: int) -> None:
        self.key = key
        self.producer_id = producer_id
        self.epoch = 0
        self.last_epoch = NO_EPOCH               # that its owner had before, and may still name
        self.timeout_ms = 0
        self.state = NEW
        self.begun_ms = 0                        # hub time
        self.used_ms = 0
        self.partitions: set[int] = set()
        self.offsets: Offsets = {}
        self.held = 0                            # batches, numbered from 0
        self.held_bytes = 0                      # opened
        self.held_records = 0
        self.stored_with = 0                     # how many frames are stored once its newest batch is
        self.named_bytes = 0                     # of `encode`, the last time
        self.ending = False
        self.timer: Timer | None = None

    def encode(self) -> bytes:
        """Its state record's value."""
        return orjson.dumps({
            "id": self.producer_id, "epoch": self.epoch, "last": self.last_epoch, "timeout": self.timeout_ms,
            "state": self.state, "begun": self.begun_ms, "used": self.used_ms, "partitions": sorted(self.partitions),
            "offsets": {group: [[partition_id, offset, b64encode(metadata).decode()]
                                for partition_id, (offset, metadata) in of_group.items()]
                        for group, of_group in self.offsets.items()}})

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Producer:
        """As `encode` wrote it."""
        tenant, _, name = key.decode().partition("\0")
        said = orjson.loads(value)
        producer = cls((tenant, name), said["id"])
        producer.named_bytes = len(value)
        producer.epoch, producer.last_epoch, producer.timeout_ms = said["epoch"], said["last"], said["timeout"]
        producer.state, producer.begun_ms, producer.used_ms = said["state"], said["begun"], said["used"]
        producer.partitions = set(said["partitions"])
        producer.offsets = {group: {partition_id: (offset, b64decode(metadata))
                                    for partition_id, offset, metadata in of_group}
                            for group, of_group in said["offsets"].items()}
        return producer

    def record(self) -> StateRecord:
        """What is to be known of it after a start."""
        value = self.encode()
        self.named_bytes = len(value)
        return StateRecord(Kind.PRODUCER_TRANSACTION, "\0".join(self.key).encode(), value)

    def renew(self, timeout_ms: int, now_ms: int) -> None:
        """Whoever has the id and epoch from here on is the producer of this name."""
        self.timeout_ms, self.used_ms = timeout_ms, now_ms

    def fence(self, last_epoch: int) -> None:
        """Its epoch is over. `last_epoch` is what its owner may still name to be given the new one."""
        self.last_epoch = last_epoch
        self.epoch += 1

    def replace(self, producer_id: int) -> None:
        """Its epochs are used up."""
        self.producer_id, self.epoch, self.last_epoch = producer_id, 0, NO_EPOCH

    def begin(self, now_ms: int) -> None:
        """Its transaction is open."""
        self.state, self.begun_ms, self.used_ms = OPEN, now_ms, now_ms

    def note_held(self, held: int, held_bytes: int, held_records: int, stored_with: int = 0) -> None:
        """So much of it is held."""
        self.held, self.held_bytes, self.held_records = held, held_bytes, held_records
        self.stored_with = stored_with

    def end(self, state: str) -> None:
        """Nothing is open, and nothing held, any more."""
        self.state = state
        self.partitions, self.offsets, self.ending = set(), {}, False
        self.note_held(0, 0, 0)
        self.disarm()

    def be_ending(self, ending: bool) -> None:
        """It is being committed, or could not be."""
        self.ending = ending

    def arm(self, timer: Timer) -> None:
        """It is rolled back then."""
        self.disarm()
        self.timer = timer

    def disarm(self) -> None:
        """Nothing happens by itself any more."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()


class Commit(NamedTuple):
    """A transaction whose batches are about to enter."""

    producer: Producer
    origin: Origin
    owner: Owner | None
    token: object


class ProducerTransactions:  # decision 361
    """All producers that have a name. A refusal is raised with nothing done; all else is answered when durable."""

    def __init__(self, *, loop: Loop, state: StateTable, topics: Topics, topic_changes: TopicChanges, batches: Batches,
                 committer: Committer, halves: Halves, receipts: Receipts, require_commits: Callable[[str, str], None],
                 on_error: Callable[[Exception], None]) -> None:
        """`require_commits` raises GroupIsLeased for a group, by tenant and name, that commits no offsets."""
        self._loop = loop
        self._state = state
        self._topics = topics
        self._topic_changes = topic_changes
        self._batches = batches
        self._committer = committer
        self._halves = halves
        self._on_error = on_error
        self._receipts = receipts
        self._require_commits = require_commits
        self._producers: dict[Key, Producer] = {}        # who was used last is the last
        self._open: dict[int, Producer] = {}             # by producer id
        self._movers: dict[tuple[str, str], dict[Producer, None]] = {}     # by tenant and group that they move
        self._named_bytes = 0                    # of all
        self._commits: deque[Commit] = deque()
        self._reading = False                    # what one of them holds, or opening it
        self._entered: PendingFrame | None = None        # by the last of them, and not stored yet
        self._slices = Slices(loop, on_error)
        self._stopped = False
        self.committed_total = 0
        self.rolled_back_total = 0

    # ---- over a start

    def open(self) -> None:
        """Go on where the log ended."""
        self._load()
        self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._look)

    def stop(self) -> None:
        """Roll nothing back any more."""
        self._stopped = True
        for producer in self._producers.values():
            producer.disarm()

    def _load(self) -> None:
        for key, value in self._state.scan(Kind.PRODUCER_TRANSACTION):
            self._take(key, value, 0)
        self._producers = dict(sorted(self._producers.items(), key=lambda item: item[1].used_ms))

    def _take(self, key: bytes, value: bytes, wait_ms: int) -> None:
        """A producer as the log has it; what is overdue of it waits for so long."""
        producer = Producer.decode(key, value)
        self._producers[producer.key] = producer
        self._batches.named.add(producer.producer_id)
        self._named_bytes += producer.named_bytes
        if producer.state == OPEN:
            producer.note_held(*self._held_of(producer.producer_id))
            self._note_open(producer)
            self._arm(producer, wait_ms)

    def _held_of(self, producer_id: int) -> tuple[int, int, int]:
        """How many batches are held, their bytes and their records: they are numbered without a gap, and each says what
        is held up to it."""
        def at(number: int) -> bytes | None:
            return self._state.get(Kind.HELD_BATCH, _HELD_KEY.pack(producer_id, number))

        above = 1
        while above <= MAX_HELD_BATCHES and at(above - 1) is not None:
            above *= 2
        held = bisect_left(range(above), True, above // 2, above, key=lambda number: at(number) is None)
        last = at(held - 1) if held else None
        return (0, 0, 0) if last is None else (held, *_HELD.unpack_from(last)[1:3])

    def _arm(self, producer: Producer, wait_ms: int = 0) -> None:
        """It is rolled back when its time is over, and so long from now at the earliest."""
        when_ms = max(producer.begun_ms + producer.timeout_ms, self._loop.now_ms() + wait_ms)
        producer.arm(self._loop.call_at(when_ms, partial(self._on_time, producer)))

    def _forget(self, producer: Producer) -> None:
        """It is in memory no more."""
        producer.disarm()
        self._note_closed(producer)
        self._batches.named.discard(producer.producer_id)
        self._named_bytes -= producer.named_bytes
        del self._producers[producer.key]

    def _note_open(self, producer: Producer) -> None:
        """It has a transaction, which moves these groups."""
        self._open[producer.producer_id] = producer
        for group in producer.offsets:
            self._movers.setdefault((producer.key[0], group), {})[producer] = None

    def _note_closed(self, producer: Producer) -> None:
        self._open.pop(producer.producer_id, None)
        for group in producer.offsets:
            movers = self._movers.get((producer.key[0], group), {})
            movers.pop(producer, None)
            if not movers:
                self._movers.pop((producer.key[0], group), None)

    def _on_time(self, producer: Producer) -> None:
        """Its owner was silent for too long: rolled back, and what it says from here on is of an older epoch."""
        if self._stopped or not self._is_current(producer) or producer.state != OPEN:
            return
        if producer.ending:
            self._arm(producer, producer.timeout_ms)
            return
        try:
            frame = self._committer.open_frame()
        except Stopping:
            return
        producer.fence(producer.epoch)
        self._settle(producer, ROLLED_BACK, None, None, frame)

    def _look(self) -> None:
        """Names that nobody has used for a week are forgotten."""
        if self._stopped:
            return
        before_ms = self._loop.now_ms() - UNUSED_MS
        unused = list(islice((producer for producer in self._producers.values()
                              if producer.state != OPEN and producer.used_ms < before_ms), NAMES_PER_LOOK))
        try:
            if unused:
                self._committer.put_state([producer.record()._replace(value=None) for producer in unused]).join(self)
                for producer in unused:
                    self._forget(producer)
        except Stopping:
            return
        self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._look)

    def _is_current(self, producer: Producer) -> bool:
        return self._producers.get(producer.key) is producer

    # ---- what producers ask for

    def identify(self, tenant: str, name: str, timeout_ms: int, producer_id: int, epoch: int, owner: Owner,
                 token: object) -> None:
        """The producer id and epoch of whoever has this name from here on: answered as (producer id, epoch, 0). What
        its predecessor had open is rolled back. `producer_id` and `epoch` are what it had, -1 where it begins.

        Raises InvalidGroup, InvalidTimeout, TooManyTransactions, TransactionEnding, FencedProducer, Stopping.
        """
        check_name(name, "producer")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidTimeout(f"a transaction lasts for {MAX_TIMEOUT_MS} ms at most")
        producer = self._producers.get((tenant, name))
        leaving = self._leaving() if producer is None and len(self._producers) >= MAX_NAMES else None
        if producer is not None and producer_id >= 0 and producer.producer_id != producer_id:
            raise FencedProducer(f"{name} is another producer by now")
        if producer is not None and producer_id >= 0 and (epoch < 0 or epoch not in (producer.epoch,
                                                                                      producer.last_epoch)):
            raise FencedProducer(f"{name} has the epoch {producer.epoch}, not {epoch}")
        if producer is not None and producer.ending:
            raise TransactionEnding(f"the transaction of {name} is being committed")
        frame = self._committer.open_frame()
        if leaving is not None:
            frame.state.append(leaving.record()._replace(value=None))
            self._forget(leaving)
        if producer is None:
            producer = self._producers[tenant, name] = Producer(
                (tenant, name), self._topic_changes.next_producer_id(frame))
        elif producer_id >= 0 and epoch != producer.epoch and producer.epoch <= LAST_EPOCH:
            pass                                     # it has been given its epoch, and has not heard of it
        elif producer.epoch >= LAST_EPOCH:
            self._roll_back(producer, frame)
            self._batches.named.discard(producer.producer_id)
            producer.replace(self._topic_changes.next_producer_id(frame))
        else:
            self._roll_back(producer, frame)
            producer.fence(producer.epoch if producer_id >= 0 else NO_EPOCH)
        self._batches.named.add(producer.producer_id)
        producer.renew(timeout_ms, self._loop.now_ms())
        self._note_use(producer)
        self._put(producer, frame)
        frame.submissions.append(Submission(owner, token, None, (frame.builder.now_ms, [
            (producer.producer_id, producer.epoch, 0)])))

    def begin(self, tenant: str, name: str, producer_id: int, epoch: int, partition_ids: list[int], group: str | None,
              owner: Owner, token: object) -> None:
        """The transaction is open, and will write to these partitions, and move the offsets of this group. Raises
        InvalidGroup, OtherProducer, FencedProducer, TransactionEnding, TransactionTooLarge, TooManyTransactions,
        Stopping."""
        if group is not None:
            check_name(group, "group")
        producer = self._require(tenant, name, producer_id, epoch)
        partition_ids = [partition_id for partition_id in partition_ids if partition_id not in producer.partitions]
        self._require_room(producer, len(partition_ids) * _PARTITION_ID_BYTES + 4 * len((group or "").encode()))
        frame = self._committer.open_frame()
        if producer.state != OPEN:
            producer.begin(self._loop.now_ms())
            self._note_use(producer)
            self._note_open(producer)
            self._arm(producer)
        producer.partitions.update(partition_ids)
        if group is not None:
            producer.offsets.setdefault(group, {})
            self._note_open(producer)
        self._put(producer, frame).answer(owner, token)

    def hold(self, tenant: str, name: str, partition_id: int, validated: Validated, owner: Owner | None, token: object
             ) -> None:
        """Hold a sound batch of an open transaction: answered with the offset `HELD_OFFSET`. Raises NoTransaction,
        TransactionTooLarge, and what `begin` and `Batches.hold` raise."""
        header = validated.header
        producer = self._require(tenant, name, header.producer_id, header.producer_epoch)
        if producer.state != OPEN or partition_id not in producer.partitions:
            raise NoTransaction(f"{name} has no transaction that writes to this partition")
        held_bytes = producer.held_bytes + max(validated.opened_bytes, len(validated.batch))
        held_records = producer.held_records + header.record_count
        if held_bytes > MAX_HELD_BYTES or held_records > MAX_HELD_RECORDS or producer.held >= MAX_HELD_BATCHES:
            if self._batches.repeats(self._committer.open_frame(), partition_id, header, owner, token):
                return                           # it is held already
            raise TransactionTooLarge(f"a transaction of a producer is {MAX_HELD_BYTES} bytes at most, opened, "
                                      f"{MAX_HELD_RECORDS} records, and {MAX_HELD_BATCHES} batches")
        frame = self._batches.hold(partition_id, validated, owner, token)
        if frame is None:
            return
        batch = out_of_transaction(validated.batch)
        about = _HELD.pack(partition_id, held_bytes, held_records, bool(validated.traced))
        frame.state.append(StateRecord(Kind.HELD_BATCH, _HELD_KEY.pack(producer.producer_id, producer.held),
                                       about + batch))
        committer = self._committer
        stored_with = committer.flushes + len(committer.pending())
        producer.note_held(producer.held + 1, held_bytes, held_records, stored_with)
        frame.join(self)
        if owner is not None:
            frame.submissions.append(Submission(owner, token, None, (frame.builder.now_ms, [
                (partition_id, HELD_OFFSET, 0)])))
        frame.builder.note_bytes(len(batch))
        self._committer.note_size()

    def add_offsets(self, tenant: str, name: str, producer_id: int, epoch: int, group: str,
                    offsets: dict[int, tuple[int, bytes]], owner: Owner, token: object) -> None:
        """The group has read so far, once the transaction is committed. Raises NoTransaction, and what `begin`
        raises."""
        producer = self._require(tenant, name, producer_id, epoch)
        if producer.state != OPEN or group not in producer.offsets:
            raise NoTransaction(f"{name} has no transaction that moves the group {group}")
        moved = producer.offsets[group]
        self._require_room(producer, sum([
            max(0, _bytes_of(metadata) - (_bytes_of(moved[partition_id][1]) if partition_id in moved else 0))
            for partition_id, (_, metadata) in offsets.items()]))
        frame = self._committer.open_frame()
        moved.update(offsets)
        self._put(producer, frame).answer(owner, token)

    def end(self, tenant: str, name: str, producer_id: int, epoch: int, commits: bool, origin: Origin, owner: Owner,
            token: object) -> None:
        """Commit, or roll back, all of it in one frame; `origin` has sent it. The same again is answered alike. Raises
        NoTransaction, GroupIsLeased, and what `begin` raises; what is found while batches enter is answered, and
        nothing has ended."""
        producer = self._require(tenant, name, producer_id, epoch)
        wanted = COMMITTED if commits else ROLLED_BACK
        if producer.state == wanted:
            self._committer.open_frame().answer(owner, token)
        elif producer.state != OPEN:
            raise NoTransaction(f"{name} has no transaction to end")
        elif not commits or not producer.held:
            self._require_groups(producer, wanted)
            self._settle(producer, wanted, owner, token, self._committer.open_frame())
        elif producer.stored_with > self._committer.flushes:
            raise TransactionEnding(f"what {name} has sent is not stored yet: ask again")
        else:
            self._require_groups(producer, wanted)
            producer.be_ending(True)
            self._commits.append(Commit(producer, origin, owner, token))
            self._go_on()

    def forget_offsets(self, tenant: str, group: str, partition_ids: Collection[int] | None = None) -> None:
        """The offsets of a group are deleted, there or (None) everywhere: so are those that open transactions would
        commit. Raises Stopping."""
        for producer in self._movers.get((tenant, group), ()):
            of_group = producer.offsets[group]
            gone = [partition_id for partition_id in of_group
                    if partition_ids is None or partition_id in partition_ids]
            for partition_id in gone:
                del of_group[partition_id]
            if gone:
                self._put(producer, self._committer.open_frame())

    def moving(self, group: str, tenant: str) -> set[int]:
        """The partitions in which what the group has committed is moved by an open transaction, or by something that
        is not stored yet: a commit that is on its way."""
        moved = {partition_id for producer in self._movers.get((tenant, group), ())
                 for partition_id in producer.offsets[group]}
        for frame in self._committer.pending():
            moved.update(frame.offsets_of(group))
        return moved

    def known(self, tenant: str) -> Iterator[KnownTransaction]:
        """Every producer of a tenant, by name; those that are forgotten between two steps are left out."""
        for key in sorted([key for key in self._producers if key[0] == tenant]):
            producer = self._producers.get(key)
            if producer is not None:
                yield self._described(producer)

    def find(self, tenant: str, name: str) -> KnownTransaction | None:
        """The producer of this name."""
        producer = self._producers.get((tenant, name))
        return None if producer is None else self._described(producer)

    def _described(self, producer: Producer) -> KnownTransaction:
        return KnownTransaction(
            producer.key[1], producer.producer_id, producer.epoch, producer.state, producer.ending, producer.timeout_ms,
            self._halves.wall_of(producer.begun_ms) if producer.state == OPEN else -1, sorted(producer.partitions),
            sorted(producer.offsets))

    def _note_use(self, producer: Producer) -> None:
        """It has been used last of all."""
        del self._producers[producer.key]
        self._producers[producer.key] = producer

    def _leaving(self) -> Producer:
        """Whose place another may have: who comes back gets another id, and what it says with the old one is refused.
        Some programs take a new name for each transaction. Raises TooManyTransactions."""
        oldest = next(iter(self._producers.values()))
        if oldest.state == OPEN or oldest.used_ms > self._loop.now_ms() - IDLE_MS:
            raise TooManyTransactions(f"{MAX_NAMES} producers with a name have been used lately")
        return oldest

    def _require(self, tenant: str, name: str, producer_id: int, epoch: int) -> Producer:
        producer = self._producers.get((tenant, name))
        if producer is None or producer.producer_id != producer_id:
            raise OtherProducer(f"{name} is not the producer {producer_id}")
        if producer.epoch != epoch:
            raise FencedProducer(f"{name} has the epoch {producer.epoch}, not {epoch}")
        if producer.ending:
            raise TransactionEnding(f"the transaction of {name} is being committed")
        return producer

    def _require_room(self, producer: Producer, more_bytes: int) -> None:
        """Raises TransactionTooLarge, TooManyTransactions where so much more cannot be said of it."""
        if producer.named_bytes + more_bytes > MAX_NAMED_BYTES:
            raise TransactionTooLarge(f"a transaction says {MAX_NAMED_BYTES} bytes of partitions and offsets at most")
        if more_bytes and self._named_bytes + more_bytes > MAX_ALL_NAMED_BYTES:
            raise TooManyTransactions(f"open transactions say {MAX_ALL_NAMED_BYTES} bytes of offsets already")

    # ---- how one goes

    def _put(self, producer: Producer, frame: PendingFrame) -> PendingFrame:
        self._named_bytes -= producer.named_bytes
        frame.state.append(producer.record())
        self._named_bytes += producer.named_bytes
        frame.join(self)
        return frame

    def _roll_back(self, producer: Producer, frame: PendingFrame) -> None:
        """What is open of it, if anything."""
        if producer.state == OPEN:
            self._drop(producer, frame)
            self._note_closed(producer)
            producer.end(ROLLED_BACK)
            frame.frees = True
            self.rolled_back_total += 1

    @staticmethod
    def _drop(producer: Producer, frame: PendingFrame) -> None:
        frame.state += [StateRecord(Kind.HELD_BATCH, _HELD_KEY.pack(producer.producer_id, number), None)
                        for number in range(producer.held)]

    def _settle(self, producer: Producer, state: str, owner: Owner | None, token: object, frame: PendingFrame) -> None:
        """Everything but the batches themselves, which are in this frame, or nowhere."""
        self._drop(producer, frame)
        if state == COMMITTED:
            self.committed_total += 1
            for group, of_group in producer.offsets.items():
                for partition_id, offset in of_group.items():
                    if self._topics.of_partition(partition_id) is not None:
                        if self._receipts.waiting:
                            self._receipts.on_committed(group, partition_id, offset[0])
                        frame.state.append(offset_record(group, partition_id, offset))
        else:
            self.rolled_back_total += 1
            frame.frees = True
        self._note_closed(producer)
        producer.end(state)
        self._put(producer, frame).answer(owner, token)

    def _go_on(self) -> None:
        """One after the other: what one of them holds is in memory while it enters, and until its frame is stored."""
        if not self._commits or self._reading or self._slices.busy or self._stopped:
            return
        if self._entered is not None and self._entered.builder.size_bytes > LARGE_FRAME_BYTES:
            return
        commit = self._commits.popleft()
        producer = commit.producer
        names = [(int(Kind.HELD_BATCH), _HELD_KEY.pack(producer.producer_id, number))
                 for number in range(producer.held)]
        values = self._halves.recent(names)
        if values is not None:
            self._enter(commit, values)
        else:
            self._reading = True
            self._halves.read(names, partial(self._read, commit))

    def _read(self, commit: Commit, values: list[bytes | None]) -> None:
        self._reading = False
        if not self._stopped:
            self._enter(commit, values)

    def _enter(self, commit: Commit, values: list[bytes | None]) -> None:
        batches = []
        before_bytes = 0
        for value in values:
            if value is not None:
                partition_id, held_bytes, _, is_traced = _HELD.unpack_from(value)
                batches.append(Unseen(partition_id, held_bytes - before_bytes, is_traced, value[_HELD.size:]))
                before_bytes = held_bytes
        assert len(batches) == commit.producer.held or not self._is_current(commit.producer), "what is held is there"
        self._reading = True
        self._batches.open_held(batches, partial(self._opened, commit))

    def _opened(self, commit: Commit, arrived: list[Arrived], validated: list[Validated] | None,
                error: BaseException | None) -> None:
        self._reading = False
        if not self._stopped:
            self._slices.run(self._entering(commit, arrived, validated, error), self._go_on)

    def _entering(self, commit: Commit, arrived: list[Arrived], validated: list[Validated] | None,
                  error: BaseException | None) -> Iterator[None]:
        producer = commit.producer
        settle = partial(self._settle, producer, COMMITTED, commit.owner, commit.token)
        try:
            if validated is None:
                raise error or RuntimeError("no batches and no error")
            yield from self._batches.release(arrived, validated, commit.origin,
                                             partial(self._require_current, producer, settle))
        except Exception as refusal:
            producer.be_ending(False)
            if not isinstance(refusal, KernelError):
                self._on_error(refusal)
            if commit.owner is not None:
                tell(commit.owner, [Stored(commit.token, refusal.with_traceback(None), self._loop.now_ms(), [])])

    def _require_current(self, producer: Producer, settle: Callable[[PendingFrame], None], frame: PendingFrame) -> None:
        if not self._is_current(producer):
            raise TransactionEnding("frames before it were not stored: ask again")
        self._require_groups(producer, COMMITTED)
        settle(frame)
        self._entered = frame

    def _require_groups(self, producer: Producer, state: str) -> None:
        """Raises GroupIsLeased where a commit would move a group whose messages are leased by now."""
        for group in producer.offsets if state == COMMITTED else ():
            self._require_commits(producer.key[0], group)

    # ---- taking part in a frame; see `kernel.write.pending_frame.Participant`

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The records are in it already."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """What has changed was in memory already."""
        if frame is self._entered:
            self._leave()

    def failed(self, frames: list[PendingFrame]) -> None:
        """None of these frames was stored: producers that changed with them are as the last durable one left them."""
        by_id = {producer.producer_id: producer for producer in self._producers.values()}
        keys: set[bytes] = set()
        for frame in frames:
            for record in frame.state:
                if record.kind == Kind.PRODUCER_TRANSACTION:
                    keys.add(record.key)
                elif record.kind == Kind.HELD_BATCH:
                    producer = by_id.get(_HELD_KEY.unpack(record.key)[0])
                    if producer is not None:
                        keys.add("\0".join(producer.key).encode())
        for key in keys:
            tenant, _, name = key.decode().partition("\0")
            changed = self._producers.get((tenant, name))
            if changed is not None:
                self._forget(changed)
            value = self._state.get(Kind.PRODUCER_TRANSACTION, key)
            if value is not None:
                self._take(key, value, AGAIN_MS)
        if self._entered in frames:
            self._leave()

    def _leave(self) -> None:
        """What entered is stored, or is not: there is room for more."""
        self._entered = None
        if self._commits:
            self._loop.call_soon(self._go_on)

    def oldest_ms(self) -> int:
        """For how long the oldest transaction has been open; 0: none is."""
        now_ms = self._loop.now_ms()
        return max(0, now_ms - min([producer.begun_ms for producer in self._open.values()], default=now_ms))

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        return {"producer_transactions_open": len(self._open),
                "producer_transactions_held_bytes": sum([producer.held_bytes for producer in self._open.values()]),
                "producer_transactions_committed_total": self.committed_total,
                "producer_transactions_rolled_back_total": self.rolled_back_total}


def _bytes_of(metadata: bytes) -> int:
    """What an offset takes in a producer's state record, about."""
    return _OFFSET_BYTES + 4 * len(metadata) // 3
