"""Half messages over Kafka, whose records have headers and whose clients have topics, and nothing else to say it by:

    a record with the header `half` = GROUP      is held, in a topic whose `interpret_headers` is set; its batch is one
                                                 transaction, takes no offset and is answered with base offset -1
        and the header `half-id` = NAME          the same transaction, however often it is sent: the records of a batch
                                                 that have one name
        and the header `half-check`              {"after", "every", "times"}: when it is asked about
    the topic `txn-half.GROUP`                   where it exists: what was held by this door, a record for each batch
    the topic `txn-check.GROUP`                  while somebody fetches from it: a member of the group; checks
    a record of the topic `txn-decide`           {"id": "...", "decision": "commit" or "rollback"}; stored like any
                                                 other, and answered once it has been carried out

A batch holds half messages of one group, or none. That of an idempotent producer is known by its sequence: repeated, it
is answered again and held once; such a producer sends a partition either half messages or others.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.own_topics import CHECKS, HELD
from gatehouse.gateways.checks import InvalidHalfName, read_half_name
from gatehouse.gateways.half_messages import NOT_HELD, REFUSALS, Document, HalfClient, HalfListener, HalfWish, HalfWords
from gatehouse.gateways.kafka.error_codes import INVALID_RECORD
from gatehouse.gateways.kafka.mapping import Refused, code_of
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.errors import InvalidRecord, KernelError
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, encode_headers
from gatehouse.kernel.records.compression import NONE

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.kafka.api.produce import Produced
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.message import Record, Stored
    from gatehouse.kernel.records.batch import BatchHeader
    from gatehouse.kernel.records.validation import Validated
    from gatehouse.kernel.state.topics import Topic

HEADER: Final = b"half"
NAME: Final = b"half-id"
CHECK_BACK: Final = b"half-check"
TAKEN_OUT: Final = (HEADER, NAME, CHECK_BACK)
DECIDE: Final = "txn-decide"
WORDS: Final = HalfWords(HELD, CHECKS, "txn-decided")
ABSENT_MS: Final = 60_000              # without a fetch, after which nobody is there to be asked
CHECKS_AHEAD: Final = 1_000


# ---- half messages

def may_hold_halves(batch: bytes) -> bool:
    """Whether a batch for a topic that interprets headers has to be looked into; not where it is uncompressed and there
    is nothing of the kind."""
    return batch[ATTRIBUTES_AT + 1] & CODEC_MASK != NONE or HEADER in batch[HEADER_BYTES:]


def require_ordinary(topic: Topic, validated: Validated) -> None:
    """Raises InvalidRecord for what cannot be in a producer's transaction: half messages, decisions about them, and
    records that ask for receipts."""
    if validated.asks:
        raise InvalidRecord("no receipt is given for what a producer's transaction sends")
    is_half = topic.settings.interpret_headers and any(_group_of(record) is not None
                                                       for record in validated.records or ())
    if is_half or topic.name == DECIDE:
        raise InvalidRecord("half messages and decisions about them are in no other transaction: send them "
                            "by a producer without a transactional id")


def hold_halves(session: KafkaSession, row: Produced, topic: Topic, validated: Validated) -> bool:
    """Hold a batch of half messages, or refuse it, and settle its row; False: it is an ordinary one."""
    header, records = validated.header, validated.records or []
    try:
        group = _group_of_all(records)
        if group is None:
            return False
        HeldBatch(row, session, topic, group).hold(header, records)
    except InvalidHalfName as refusal:
        row.refuse(INVALID_RECORD, str(refusal))
    except Refused as refusal:
        row.refuse(refusal.code, str(refusal))
    except (KernelError, Denied) as refusal:
        row.refuse(code_of(refusal), str(refusal))
    row.produce.settle()
    return True


def _group_of_all(records: list[Record]) -> str | None:
    """None: these are ordinary messages. Raises Refused."""
    groups = {_group_of(record) for record in records}
    if groups == {None}:
        return None
    if len(groups) > 1:
        raise Refused(INVALID_RECORD, "half messages of one group fill a batch alone: send them by a producer of their "
                                      "own, or flush before and behind them")
    try:
        return (groups.pop() or b"").decode()
    except UnicodeDecodeError:
        raise Refused(INVALID_RECORD, "the header `half` is UTF-8 text, the name of a group") from None


def _group_of(record: Record) -> bytes | None:
    """None: it is an ordinary one. A header without a value is none: it names no group, and is refused."""
    return next((value or b"" for name, value in record[4] if name == HEADER), None)


def _header(record: Record, name: bytes) -> bytes | None:
    return next((value for header, value in record[4] if header == name), None)


class HeldBatch:
    """A batch of half messages on its way: answered when each of its transactions is."""

    def __init__(self, row: Produced, session: KafkaSession, topic: Topic, group: str) -> None:
        self._row = row
        self._session = session
        self._topic = topic
        self._group = group
        self._client = client_of(session)
        self._waiting = 1

    def hold(self, header: BatchHeader, records: list[Record]) -> None:
        """One transaction for each name, and one of what has none. Raises Denied, InvalidGroup, InvalidHalfName, with
        nothing held; what the kernel refuses afterwards is answered."""
        check_name(self._group, "group")
        self._session.guard.require_group(Operation.TRANSACT, self._group)
        by_name: dict[str | None, list[Record]] = {}
        for record in records:
            named = any(name == NAME for name, _ in record[4])
            by_name.setdefault(read_half_name(_header(record, NAME)) if named else None, []).append(record)
        self._row.produce.wait()
        for name, mine in by_name.items():
            self._waiting += 1
            keys = [None if record[2] is None else record[2].decode(errors="replace") for record in mine]
            about: Document = {"group": self._group, "name": name, "topic": self._topic.name,
                               "partition": self._row.index, "messages": len(mine), "keys": keys}
            try:
                self._client.hold(self._group, partial(self._wish, name, header, mine), about, self._session,
                                  HeldHere(self, about))
            except NOT_HELD as refused:
                self.settle(refused)
        self.settle(None)

    def _wish(self, name: str | None, header: BatchHeader, records: list[Record]) -> HalfWish:
        return HalfWish([self._half(record) for record in records],
                        name if name is not None else self._sequence(header), _header(records[0], CHECK_BACK))

    def _half(self, record: Record) -> HalfMessage:
        _, timestamp_ms, key, value, headers, attributes, _ = record
        place = self._session.guard.place_in(self._topic.name, key, self._row.index)
        kept = encode_headers([pair for pair in headers if pair[0] not in TAKEN_OUT])
        return HalfMessage((place, value, kept, attributes, timestamp_ms))

    def _sequence(self, header: BatchHeader) -> str | None:
        """What an idempotent producer's batch is known by: no name that a header can give, since there is a NUL."""
        if header.producer_id < 0:
            return None
        return (f"\0{header.producer_id}\0{header.producer_epoch}\0{self._topic.partition_id(self._row.index)}"
                f"\0{header.base_sequence}")

    def tell(self, about: Document, stored: Stored) -> None:
        """One of the transactions is durable, or is not."""
        self._client.tell_held(self._group, about, stored)
        self.settle(stored.error)

    def settle(self, error: Exception | None) -> None:
        """One thing less to wait for. The first error is what the producer is told."""
        if error is not None and not self._row.error:
            self._row.refuse(code_of(error), str(error))
        self._waiting -= 1
        if not self._waiting:
            self._row.produce.settle()


class HeldHere(NamedTuple):
    """The token of one transaction of a batch."""

    batch: HeldBatch
    about: Document

    def on_stored(self, stored: Stored) -> None:
        self.batch.tell(self.about, stored)


# ---- decisions

class KafkaDeciding:
    """The decisions of one batch, once it is stored: its answer waits for the last."""

    def __init__(self, row: Produced, session: KafkaSession) -> None:
        self._row = row
        self._client = client_of(session)
        self._waiting = 1

    def take(self, records: list[Record]) -> None:
        """Carry out each decision, in order. The first that is refused is what the producer is told."""
        for record in records:
            self._waiting += 1
            self._client.decide(record[3], self._on_result)
        self._on_result(None)

    def _on_result(self, error: Exception | None) -> None:
        if error is not None and not self._row.error:
            code = INVALID_RECORD if isinstance(error, REFUSALS) else code_of(error)
            self._row.refuse(code, f"{getattr(error, 'code', 'internal_error')}: {error}")
        self._waiting -= 1
        if not self._waiting:
            self._row.produce.settle()


# ---- being asked

class CheckTopics:
    """The topics `txn-check.GROUP` that somebody reads. One per hub, in `Services.shared`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._members: dict[tuple[str, str], TopicMember] = {}

    @classmethod
    def of(cls, services: Services) -> CheckTopics:
        """The hub's."""
        return services.share(__name__, lambda: cls(services))

    def note_fetch(self, tenant: str, topic: str) -> None:
        """Somebody reads this topic, and is a member of its group for a while."""
        now_ms = self._services.now_ms()
        member = self._members.get((tenant, topic))
        if member is None or member.gone:
            self._members = {name: reader for name, reader in self._members.items() if not reader.gone}
            member = self._members[tenant, topic] = TopicMember(self._services, tenant, topic, now_ms)
            member.join()
        member.fetched_ms = now_ms


class TopicMember:  # decision 46: a real topic, for clients as they are
    """A topic that checks are written to; a member of its group for as long as somebody reads it."""

    def __init__(self, services: Services, tenant: str, topic: str, now_ms: int) -> None:
        self._services = services
        self._tenant = tenant
        self._topic = topic
        self._half = HalfListener(services, WORDS, topic, tenant, f"kafka topic {topic}", self._send,
                                  credit=CHECKS_AHEAD)
        self.gone = False
        self.fetched_ms = now_ms

    def join(self) -> None:
        """Be asked from now on."""
        self._half.join()

    def _send(self, document: Document) -> bool:
        """Where nobody has read for long, or there is no such topic, this is asked of others in time."""
        if self._services.now_ms() - self.fetched_ms <= ABSENT_MS and _write(
                self._services, self._tenant, self._topic, document):
            return True
        self.gone = True
        self._half.leave()
        return False


def client_of(session: KafkaSession) -> HalfClient:
    """Whoever sends by this connection. What is held is told in a topic; the answer to a decision is all that it gets.
    """
    def tell(topic: str, document: Document) -> bool:
        if topic.startswith(HELD) and "id" in document:
            _write(session.services, session.principal.tenant, topic, document)
        return True

    return HalfClient(session.guard, WORDS, tell)


def _write(services: Services, tenant: str, topic: str, document: Document) -> bool:
    """Write a record about the transaction of this `id`, its key, to a topic, if it exists."""
    kernel = services.kernel
    try:
        if kernel.topic(topic, tenant) is None:
            return False
        placement = kernel.place_in(topic, document["id"].encode(), tenant=tenant, may_create=False)
        kernel.append([(placement, orjson.dumps(document), encode_headers([]), 0, 0)], None)
    except KernelError:
        services.admission.trace.on_event("kafka", "notice_dropped")
        return False
    return True
