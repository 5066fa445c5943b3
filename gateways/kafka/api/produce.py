"""Produce 3 to 13: each partition's record batch is appended as it came, and the answer leaves when all are durable.

A refusal is raised by the kernel, or comes as its answer where a batch was opened on another thread. acks=0 has no
answer; as Kafka does, the door closes the connection of such a producer when one of its batches is refused, so that it
notices. acks=1 and acks=all are the same here: stored means synced.

A batch of a transaction is held until its producer commits, and answered with base offset -1 (`api/transactions.py`).
"""
from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.codec import (
    PRODUCE_FLEXIBLE,
    PRODUCE_TOPIC_IDS,
    ProduceTopic,
    decode_produce,
    encode_produced,
)
from gatehouse.gateways.kafka.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TXN_STATE,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from gatehouse.gateways.kafka.mapping import Refused, code_of
from gatehouse.gateways.kafka.request import Api, Request, find_by_id, find_topic, text_of
from gatehouse.gateways.kafka.transacting import DECIDE, KafkaDeciding, hold_halves, may_hold_halves, require_ordinary
from gatehouse.kernel.errors import KernelError, RecordsRefused, UnknownTopic
from gatehouse.kernel.message import Record, Stored
from gatehouse.kernel.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_COVERS_FROM,
    TRANSACTIONAL,
)
from gatehouse.kernel.records.validation import Divert, Validated
from gatehouse.kernel.state.topics import Topic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

PUBLISH: Final = Operation.PUBLISH     # decision 357: looked up once
TRANSACT: Final = Operation.TRANSACT
NO_ACKS: Final = 0
ALLOWED_ACKS: Final = (-1, 0, 1)
MANY: Final = 1_000              # partitions of a request, which take some milliseconds


class Produced:
    """What becomes of one partition's batch; the kernel carries it as the append's token."""

    __slots__ = ("produce", "index", "error", "base_offset", "append_ms", "shows_time", "log_start", "text",
                 "records", "decisions")

    def __init__(self, produce: Produce, index: int) -> None:
        self.produce = produce
        self.index = index
        self.error = NONE
        self.base_offset = -1
        self.append_ms = -1
        self.shows_time = False             # its topic has the time of the append
        self.log_start = -1
        self.text: str | None = None
        self.records: Sequence[int] = ()    # of the batch, that it is refused for
        self.decisions: list[Record] = []   # about transactions, until they are stored

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.refuse_for(stored.error)
        else:
            partition_id, self.base_offset, _ = stored.positions[0]
            if self.shows_time:
                self.append_ms = stored.append_ms
            self.log_start = self.produce.guard.bounds(partition_id)[0]
            if self.decisions:
                decisions, self.decisions = self.decisions, []
                KafkaDeciding(self, self.produce.request.session).take(decisions)
                return
        self.produce.settle()

    def refuse(self, error: int, text: str) -> None:
        self.error, self.text = error, text

    def refuse_for(self, refusal: Exception) -> None:
        self.refuse(code_of(refusal), str(refusal))
        if isinstance(refusal, RecordsRefused):
            self.records = refusal.records

    def keep_decisions(self, validated: Validated) -> bool:
        """Keep the decisions of a batch: they are carried out once they are stored."""
        self.decisions = validated.records or []
        return False

    def row(self) -> tuple[int, int, int, int, int, bytes | None, Sequence[int]]:
        return (self.index, self.error, self.base_offset, self.append_ms, self.log_start,
                None if self.text is None else self.text.encode(), self.records)


class Produce:
    """One produce request until its last batch is stored."""

    __slots__ = ("request", "guard", "acks", "transactional_id", "topics", "pending", "throttle_ms")

    def __init__(self, request: Request, acks: int, transactional_id: str | None = None) -> None:
        self.request = request
        self.transactional_id = transactional_id     # of the producer whose transaction this is about
        self.guard = request.session.guard  # that was asked for its topics: the client may log in again meanwhile
        self.acks = acks
        self.topics: list[tuple[bytes, list[Produced]]] = []
        self.pending = 1                    # batches without an answer; one more while they are being appended
        self.throttle_ms = 0

    def wait(self) -> None:
        """One batch more has no answer yet."""
        self.pending += 1

    def append(self, name: bytes, partitions: list[tuple[int, bytes | None]], more: bool = False) -> None:
        """Append a topic's batches, in the order they came; `more`: further ones of the last topic."""
        session = self.request.session
        rows = [Produced(self, index) for index, _ in partitions]
        if more:
            self.topics[-1][1].extend(rows)
        else:
            self.topics.append((name, rows))
        if self.acks not in ALLOWED_ACKS:
            for row in rows:
                row.refuse(INVALID_REQUIRED_ACKS, f"acks={self.acks}")
            return
        by_id = self.request.version >= PRODUCE_TOPIC_IDS
        try:
            topic = find_by_id(session, name, PUBLISH) if by_id \
                else find_topic(session, text_of(name), PUBLISH, partitions[0][1] or b"")
        except (KernelError, Denied) as refusal:
            unknown = by_id and isinstance(refusal, UnknownTopic)
            for row in rows:
                row.refuse(UNKNOWN_TOPIC_ID if unknown else code_of(refusal), str(refusal))
            return
        for row, (_, batch) in zip(rows, partitions, strict=True):
            batch = batch or b""
            try:
                count = check_produced(batch, self.request.version, self.transactional_id is not None)
                self._append(topic, row, batch, count)
            except Refused as refusal:
                row.refuse(refusal.code, str(refusal))
            except (KernelError, Denied) as refusal:
                row.refuse_for(refusal)

    # decision 304: by itself, not gathered with what other connections send
    def _append(self, topic: Topic, row: Produced, batch: bytes, count: int) -> None:
        """Raises Refused, KernelError, Denied."""
        session = self.request.session
        divert: Divert | None = None
        if self.transactional_id is not None:
            note_delay(session, batch)
            divert = partial(self._hold, topic, row)
        elif topic.name == DECIDE:
            divert = row.keep_decisions
        elif topic.settings.interpret_headers and may_hold_halves(batch):
            divert = partial(hold_halves, session, row, topic)
        else:
            note_delay(session, batch)
        if divert is None and self.acks == NO_ACKS:
            wait_ms = session.guard.append_batch(topic.name, row.index, batch, count, session, Unacknowledged(self))
            self.throttle_ms = max(self.throttle_ms, wait_ms)
            return
        self.pending += 1
        row.shows_time = topic.settings.log_append_time
        try:
            wait_ms = session.guard.append_batch(topic.name, row.index, batch, count, session, row, divert)
            self.throttle_ms = max(self.throttle_ms, wait_ms)
        except KernelError:
            self.pending -= 1
            raise

    def _hold(self, topic: Topic, row: Produced, validated: Validated) -> bool:
        """Hold a batch for its producer's transaction. Raises KernelError, as the append that it is part of: who is
        refused is charged for nothing."""
        session = self.request.session
        require_ordinary(topic, validated)
        session.kernel.producing.hold(topic.tenant, self.transactional_id or "", topic.partition_id(row.index),
                                      validated, session, row)
        return True

    def finish(self) -> None:
        """Everything is with the kernel."""
        session = self.request.session
        if self.throttle_ms:
            session.throttle(self.throttle_ms)
        self.settle()

    def settle(self) -> None:
        """One thing less to wait for."""
        self.pending -= 1
        if self.pending:
            return
        answered, self.topics = self.topics, []    # its rows point back at this: they would await collection
        if self.acks == NO_ACKS:
            refused = next((row for _, rows in answered for row in rows if row.error != NONE), None)
            if refused is not None:
                self.close_refused(refused.error, refused.text)
            self.request.done([])
            return
        request = self.request
        if sum([len(rows) for _, rows in answered]) > MANY:
            request.session.beside(partial(self.encode, answered), request.on_encoded)
        else:
            request.done([self.encode(answered)])

    def encode(self, answered: list[tuple[bytes, list[Produced]]]) -> bytes:
        """The answer."""
        topics = [(name, [row.row() for row in rows]) for name, rows in answered]
        return encode_produced(self.request.version, self.request.correlation_id, topics, self.throttle_ms)

    def close_refused(self, error: int, text: str | None) -> None:
        """Tell a producer that wants no answer."""
        self.request.session.close(f"produce_refused: acks=0 and error {error}: {text}")


class Unacknowledged(NamedTuple):
    """The token of a batch whose producer wants no answer."""

    produce: Produce

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.produce.close_refused(code_of(stored.error), str(stored.error))


ZSTD: Final = 4                          # codec number in a batch's attributes


PRODUCE_ZSTD: Final = 7                  # the first Produce version that may carry it (KIP-110)


_LENGTH_TO_ATTRIBUTES = struct.Struct(">8xi4xb4xh")


_RECORD_COUNT = struct.Struct(">57xi")


def check_produced(batch: bytes, version: int, is_transactional: bool = False) -> int:
    """The number of records that a produced batch claims. Raises Refused for what Produce `version` may not carry.

    Whether it is sound (CRC, records, sequence) is for the kernel to say.
    """
    if not batch:
        raise Refused(INVALID_RECORD, "a partition without a record batch")
    if len(batch) > 16 and batch[16] < 2:
        raise Refused(UNSUPPORTED_FOR_MESSAGE_FORMAT,
                      f"message format {batch[16]} is not stored here: use a client of Kafka 0.11 or later")
    if len(batch) < HEADER_BYTES:
        raise Refused(CORRUPT_MESSAGE, f"{len(batch)} bytes hold no record batch")
    length, magic, attributes = _LENGTH_TO_ATTRIBUTES.unpack_from(batch)
    if magic != 2:
        raise Refused(INVALID_RECORD, f"message format {magic} is unknown")
    if 0 <= length < len(batch) - LENGTH_COVERS_FROM:
        raise Refused(INVALID_RECORD, "a produce request carries exactly one record batch per partition")
    if attributes & CONTROL:
        raise Refused(INVALID_RECORD, "control batches are not accepted from producers")
    if bool(attributes & TRANSACTIONAL) != is_transactional:
        raise Refused(INVALID_TXN_STATE, "a batch is of the transaction of its request, or of none")
    codec = attributes & CODEC_MASK
    if codec > ZSTD or codec == ZSTD and version < PRODUCE_ZSTD:
        raise Refused(UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} in Produce {version}")
    count: int = _RECORD_COUNT.unpack_from(batch)[0]
    return count


DELIVER_AT: Final = "deliver-at"
NOT_HONOURED: Final = {
    DELIVER_AT: "a batch is stored as it was sent, and its records can be read at once; delays are for HTTP and MQTT"}
"""What clients ask for without effect, and what happens instead."""

LOOKED_AT_BYTES: Final = 4096          # of a batch, some 4 µs: who delays records delays the first one
_NAMED: Final = b"\x14" + DELIVER_AT.encode()              # a header's name as it lies in a record, behind its length


def note_delay(session: KafkaSession, batch: bytes) -> None:
    """Look whether the sender wants records of a batch to come later. Those that are compressed are not looked into."""
    if batch.find(_NAMED, HEADER_BYTES, LOOKED_AT_BYTES) >= 0:
        client = f"{session.client_id}@{session.link.peer.rpartition(':')[0]}"
        session.services.not_honoured.note("kafka", DELIVER_AT, NOT_HONOURED[DELIVER_AT], client)


def dispatch(request: Request) -> Iterator[None] | None:
    said_id, acks, _timeout_ms, topics = decode_produce(request.data, request.at, request.end, request.version)
    request.data = b""
    transactional_id = None
    if said_id is not None:
        transactional_id = said_id.decode(errors="replace")
        if not request.session.admission.may_group(request.session.principal, TRANSACT, transactional_id):
            refuse_all(Produce(request, acks), topics)
            return None
    produce = Produce(request, acks, transactional_id)
    if sum([len(partitions) for _, partitions in topics]) > MANY:
        return in_steps(produce, topics)
    for name, partitions in topics:
        if partitions:                      # one without any is left out of the answer, as in Kafka
            produce.append(name, partitions)
    produce.finish()
    return None


def refuse_all(produce: Produce, topics: list[ProduceTopic]) -> None:
    """The client may not use the transactional id."""
    for name, partitions in topics:
        rows = [Produced(produce, index) for index, _ in partitions]
        for row in rows:
            row.refuse(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this user may not use this transactional id")
        produce.topics.append((name, rows))
    produce.finish()


def in_steps(produce: Produce, topics: list[ProduceTopic]) -> Iterator[None]:
    """Append the batches of many partitions, one after the other."""
    for name, partitions in topics:
        for at in range(len(partitions)):
            produce.append(name, partitions[at:at + 1], at > 0)
            yield
    produce.finish()


# Versions 0 to 2 carry only message formats that are not stored here. They are listed and refused, as Kafka 4 does:
# librdkafka takes a broker without version 0 for one that knows no compression (KAFKA-18659).
PRODUCE = Api(key=0, name="Produce", first_version=3, last_version=13, first_flexible=PRODUCE_FLEXIBLE, first_listed=0,
              dispatch=dispatch)
