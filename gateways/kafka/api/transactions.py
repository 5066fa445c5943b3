"""Transactions of producers: InitProducerId 0 to 5, AddPartitionsToTxn 0 to 3, AddOffsetsToTxn 0 to 4,
TxnOffsetCommit 0 to 4, EndTxn 0 to 4, and what tools see of them: DescribeTransactions 0, ListTransactions 0 and 1.

What a transaction writes is held until its producer commits (`kernel.halves.producer_transactions`): it has no offset
before, so a batch of it is answered with offset -1, and readers with and without `read_committed` read the same.
A transactional id is a name, and using it takes the right `transact` on the group of that name.

Newer versions leave a producer's partitions to the broker and give it another epoch after each transaction; clients ask
for them where the feature `transaction.version` is offered, which it is not.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.kafka.api.offsets import offset_of
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_NOT_FOUND,
)
from gatehouse.gateways.kafka.mapping import Refused, code_of, coordinator_code_of
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.kernel.errors import FencedProducer, GroupIsLeased, InvalidAddress, KernelError, RecordsRefused
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

Answer = Callable[[int], None]
"""Called with Kafka's error number, or NONE."""

NAMES: Final = {"new": "Empty", "open": "Ongoing", "committed": "CompleteCommit", "rolled_back": "CompleteAbort"}
"""The states of a transaction, as Kafka calls them."""

PREPARING: Final = "PrepareCommit"
STATES: Final = (*NAMES.values(), PREPARING, "PrepareAbort", "Dead", "PrepareEpochFence")

LASTING: Final = (RecordsRefused, InvalidAddress, GroupIsLeased)
"""Why a commit is refused however often it is asked for: a topic has been set otherwise since its batches were held, or
a group hands out leases by now."""


def transaction_code_of(error: Exception, fenced: int = PRODUCER_FENCED) -> int:
    """Kafka's number for a refusal in a request about a transaction. `fenced`: what an older epoch is called."""
    if isinstance(error, FencedProducer):
        return fenced
    return TRANSACTIONAL_ID_AUTHORIZATION_FAILED if isinstance(error, Denied) else coordinator_code_of(error)


class Waiting:
    """A request that is answered once something is durable, or refused."""

    __slots__ = ("answer", "fenced", "lasting")

    def __init__(self, answer: Answer, fenced: int = PRODUCER_FENCED, lasting: int | None = None) -> None:
        """`lasting`: what is answered to a commit that will be refused however often it is asked for."""
        self.answer = answer
        self.fenced = fenced
        self.lasting = lasting

    def start(self, step: Callable[[Waiting], None]) -> None:
        """Have the kernel begin; this is the token."""
        try:
            step(self)
        except (KernelError, Denied) as refusal:
            self.refuse(refusal)

    def on_stored(self, stored: Stored) -> None:
        if stored.error is None:
            self.answer(NONE)
        else:
            self.refuse(stored.error)

    def refuse(self, refusal: Exception) -> None:
        """Say why it is not done."""
        if self.lasting is not None and isinstance(refusal, LASTING):
            self.answer(self.lasting)
        else:
            self.answer(transaction_code_of(refusal, self.fenced))


def require_name(session: KafkaSession, name: str) -> None:
    """Raises Denied where the client may not use this transactional id."""
    session.guard.require_group(Operation.TRANSACT, name)


def fenced_of(request: Request, since: int) -> int:
    """What an older epoch is called: clients know PRODUCER_FENCED from that version on."""
    return PRODUCER_FENCED if request.version >= since else INVALID_PRODUCER_EPOCH


# ---- producer ids

FENCED_SINCE: Final = 2              # AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
IDENTIFIED_FENCED_SINCE: Final = 4   # InitProducerId
NO_PRODUCER: Final = -1


class NewProducer:
    """Waits until the id is durable: an id that a restart could give again would merge two producers."""

    __slots__ = ("request", "has_name")

    def __init__(self, request: Request, has_name: bool) -> None:
        self.request = request
        self.has_name = has_name             # a coordinator is asked about it, in whose words it is refused

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.refuse(stored.error)
        else:
            producer_id, epoch, _ = stored.positions[0]
            self.answer(NONE, producer_id, epoch)

    def refuse(self, refusal: Exception) -> None:
        fenced = fenced_of(self.request, IDENTIFIED_FENCED_SINCE)
        self.answer(transaction_code_of(refusal, fenced) if self.has_name else code_of(refusal))

    def answer(self, error: int, producer_id: int = NO_PRODUCER, epoch: int = -1) -> None:
        self.request.answer(InitProducerIdResponse, throttle_time_ms=0, error_code=error, producer_id=producer_id,
                            producer_epoch=epoch)


def give_producer_id(request: Request) -> None:
    """As in Kafka, a producer without a transactional id always gets a new id with epoch 0, even if it names the one it
    has."""
    asked = request.decode(InitProducerIdRequest)
    session, name = request.session, asked.transactional_id
    waiting = NewProducer(request, name is not None)
    if name == "":
        waiting.answer(INVALID_REQUEST)
        return
    try:
        if name is None:
            session.guard.new_producer_id(session, waiting)
        else:
            require_name(session, name)
            session.kernel.producing.identify(
                session.principal.tenant, name, asked.transaction_timeout_ms,
                getattr(asked, "producer_id", NO_PRODUCER), getattr(asked, "producer_epoch", -1), session, waiting)
    except (KernelError, Denied) as refusal:
        waiting.refuse(refusal)


INIT_PRODUCER_ID = Api(key=22, name="InitProducerId", first_version=0, last_version=5, first_flexible=2,
                       dispatch=give_producer_id, message=InitProducerIdRequest)


# ---- what a transaction is about

def add_partitions(request: Request) -> Iterator[None]:
    """Where one of them cannot be written to, none is added, and the others say so."""
    asked = request.decode(AddPartitionsToTxnRequest)
    session, name = request.session, asked.v3_and_below_transactional_id
    partition_ids: list[int] = []
    topics = [(topic.name, [Row(partition_index=index, partition_error_code=NONE) for index in topic.partitions])
              for topic in asked.v3_and_below_topics]
    rows = [row for _, of_topic in topics for row in of_topic]

    def answer(error: int) -> None:
        for row in rows:
            row.partition_error_code = row.partition_error_code or error
        request.answer(AddPartitionsToTxnResponse, throttle_time_ms=0, results_by_topic_v3_and_below=[
            Row(name=topic, results_by_partition=of_topic) for topic, of_topic in topics])

    for name_of_topic, of_topic in topics:
        yield
        try:
            topic = find_topic(session, name_of_topic, Operation.PUBLISH)
        except (KernelError, Denied) as refusal:
            for row in of_topic:
                row.partition_error_code = code_of(refusal)
            continue
        for row in of_topic:
            try:
                partition_ids.append(topic.partition_id(row.partition_index))
            except KernelError as refusal:
                row.partition_error_code = code_of(refusal)
            yield
    if len(partition_ids) < len(rows):
        answer(OPERATION_NOT_ATTEMPTED)
        return

    def begin(waiting: Waiting) -> None:
        require_name(session, name)
        session.kernel.producing.begin(session.principal.tenant, name, asked.v3_and_below_producer_id,
                                       asked.v3_and_below_producer_epoch, partition_ids, None, session, waiting)

    Waiting(answer, fenced_of(request, FENCED_SINCE)).start(begin)


ADD_PARTITIONS = Api(key=24, name="AddPartitionsToTxn", first_version=0, last_version=3, first_flexible=3,
                     dispatch=add_partitions, message=AddPartitionsToTxnRequest)


def add_group(request: Request) -> None:
    asked = request.decode(AddOffsetsToTxnRequest)
    session = request.session

    def answer(error: int) -> None:
        request.answer(AddOffsetsToTxnResponse, throttle_time_ms=0, error_code=error)

    def begin(waiting: Waiting) -> None:
        require_name(session, asked.transactional_id)
        session.kernel.producing.begin(session.principal.tenant, asked.transactional_id, asked.producer_id,
                                       asked.producer_epoch, [], asked.group_id, session, waiting)

    if not session.admission.may_group(session.principal, Operation.CONSUME, asked.group_id):
        answer(GROUP_AUTHORIZATION_FAILED)
    else:
        Waiting(answer, fenced_of(request, FENCED_SINCE)).start(begin)


ADD_OFFSETS = Api(key=25, name="AddOffsetsToTxn", first_version=0, last_version=4, first_flexible=3,
                  dispatch=add_group, message=AddOffsetsToTxnRequest)


def commit_offsets(request: Request) -> Iterator[None]:
    """What a group has read, from the commit of the transaction on. From version 3 on a request may name a member and
    its generation. One that names nobody is taken though the group has members, as in Kafka: most often its producer is
    a member's own, whose client knows no newer version."""  # decision 160
    asked = request.decode(TxnOffsetCommitRequest)
    session = request.session
    topics = [(topic, [Row(partition_index=partition.partition_index, error_code=NONE)
                       for partition in topic.partitions]) for topic in asked.topics]
    offsets: dict[int, tuple[int, bytes]] = {}

    def answer(error: int) -> None:
        for _, rows in topics:
            for row in rows:
                row.error_code = row.error_code or error
        request.answer(TxnOffsetCommitResponse, throttle_time_ms=0, topics=[
            Row(name=topic.name, partitions=rows) for topic, rows in topics])

    if not session.admission.may_group(session.principal, Operation.CONSUME, asked.group_id):
        answer(GROUP_AUTHORIZATION_FAILED)
        return
    for asked_topic, rows in topics:
        yield
        try:
            topic = find_topic(session, asked_topic.name, Operation.CONSUME)
        except (KernelError, Denied) as refusal:
            for row in rows:
                row.error_code = code_of(refusal)
            continue
        for row, partition in zip(rows, asked_topic.partitions, strict=True):
            try:
                partition_id = topic.partition_id(row.partition_index)
                offset = offset_of(partition, session.guard.bounds(partition_id)[0])
                if offset is None:
                    raise Refused(INVALID_REQUEST, "a transaction forgets no offset")
                offsets[partition_id] = offset
            except Refused as refusal:
                row.error_code = refusal.code
            except (KernelError, Denied) as refusal:
                row.error_code = code_of(refusal)
            yield

    def add(waiting: Waiting) -> None:
        tenant = session.principal.tenant
        require_name(session, asked.transactional_id)
        member_id, instance_id = getattr(asked, "member_id", ""), getattr(asked, "group_instance_id", None)
        generation = getattr(asked, "generation_id", -1)
        if not member_id and instance_id is None and generation < 0:
            session.kernel.groups.require_commits(asked.group_id, tenant)
        else:
            session.kernel.assigned.commit_offsets(asked.group_id, {}, None, None, member_id, instance_id, generation,
                                                   tenant)
        session.kernel.producing.add_offsets(tenant, asked.transactional_id, asked.producer_id, asked.producer_epoch,
                                             asked.group_id, offsets, session, waiting)

    Waiting(answer, INVALID_PRODUCER_EPOCH).start(add)


TXN_OFFSET_COMMIT = Api(key=28, name="TxnOffsetCommit", first_version=0, last_version=4, first_flexible=3,
                        dispatch=commit_offsets, message=TxnOffsetCommitRequest)


ABORTABLE_SINCE: Final = 4           # EndTxn: older clients know no number for it


def end(request: Request) -> None:
    asked = request.decode(EndTxnRequest)
    session = request.session

    def answer(error: int) -> None:
        request.answer(EndTxnResponse, throttle_time_ms=0, error_code=error)

    def decide(waiting: Waiting) -> None:
        require_name(session, asked.transactional_id)
        session.kernel.producing.end(session.principal.tenant, asked.transactional_id, asked.producer_id,
                                     asked.producer_epoch, asked.committed, session.guard.origin, session, waiting)

    lasting = TRANSACTION_ABORTABLE if asked.committed and request.version >= ABORTABLE_SINCE else None
    Waiting(answer, fenced_of(request, FENCED_SINCE), lasting).start(decide)


END_TXN = Api(key=26, name="EndTxn", first_version=0, last_version=4, first_flexible=3, dispatch=end,
              message=EndTxnRequest)


# ---- what tools see

def describe(request: Request) -> Iterator[None]:
    """Each id by itself."""
    session, rows = request.session, []
    for name in request.decode(DescribeTransactionsRequest).transactional_ids:
        yield
        row = Row(error_code=NONE, transactional_id=name, transaction_state="", transaction_timeout_ms=0,
                  transaction_start_time_ms=-1, producer_id=NO_PRODUCER, producer_epoch=-1, topics=[])
        rows.append(row)
        transaction = session.kernel.producing.find(session.principal.tenant, name)
        if not session.admission.may_group(session.principal, Operation.TRANSACT, name):
            row.error_code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif transaction is None:
            row.error_code = TRANSACTIONAL_ID_NOT_FOUND
        else:
            row.transaction_state = state_of(transaction)
            row.transaction_timeout_ms, row.transaction_start_time_ms = transaction.timeout_ms, transaction.begun_ms
            row.producer_id, row.producer_epoch = transaction.producer_id, transaction.epoch
            row.topics = [Row(topic=topic.name, partitions=numbers) for topic, numbers
                          in session.kernel.assigned.topics_of(transaction.partition_ids)
                          if session.admission.may_topic(session.principal, Operation.PUBLISH, topic.name)]
    request.answer(DescribeTransactionsResponse, throttle_time_ms=0, transaction_states=rows)


DESCRIBE_TRANSACTIONS = Api(key=65, name="DescribeTransactions", first_version=0, last_version=0, first_flexible=0,
                            dispatch=describe, shows=True, message=DescribeTransactionsRequest)


def state_of(transaction: Any) -> str:
    """As Kafka calls it."""
    return PREPARING if transaction.ending else NAMES[transaction.state]


def list_all(request: Request) -> Iterator[None]:
    """Those that the client may use, as it filters them: a duration is that of open ones, in ms."""
    asked, session = request.decode(ListTransactionsRequest), request.session
    rows = []
    longest_ms = getattr(asked, "duration_filter", -1)
    for transaction in session.kernel.producing.known(session.principal.tenant):
        yield
        state = state_of(transaction)
        lasted_ms = session.services.wall_ms() - transaction.begun_ms if transaction.begun_ms >= 0 else -1
        if (asked.state_filters and state not in asked.state_filters
                or asked.producer_id_filters and transaction.producer_id not in asked.producer_id_filters
                or longest_ms >= 0 and lasted_ms <= longest_ms
                or not session.admission.may_group(session.principal, Operation.TRANSACT, transaction.name)):
            continue
        rows.append(Row(transactional_id=transaction.name, producer_id=transaction.producer_id,
                        transaction_state=state))
    request.answer(ListTransactionsResponse, throttle_time_ms=0, error_code=NONE, transaction_states=rows,
                   unknown_state_filters=[state for state in asked.state_filters if state not in STATES])


LIST_TRANSACTIONS = Api(key=66, name="ListTransactions", first_version=0, last_version=1, first_flexible=0,
                        dispatch=list_all, shows=True, message=ListTransactionsRequest)
