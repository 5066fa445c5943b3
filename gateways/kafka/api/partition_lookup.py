"""What a request asks about partitions one by one: it is answered when each of them has its row."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Request
from gatehouse.gateways.kafka.topics import find_topic
from gatehouse.kernel.errors import KernelError


class PartitionLookup:
    """One request until every partition has its answer. `response` is the schema of that."""

    def __init__(self, request: Request, response: Any) -> None:
        self.request = request
        self.topics: list[Row] = []
        self.epoch = request.session.kernel.epoch
        self._response = response
        self._pending = 1                    # partitions being looked up; one more while the request is gone through

    def look_up(self, topic_name: str, asked: Sequence[tuple[Row, int, Any]]) -> Iterator[None]:
        """The partitions of a topic: (row, number, what is asked). What is wrong with one stands in its row."""
        yield
        session = self.request.session
        try:
            topic, version = find_topic(session, topic_name, Operation.CONSUME), session.guard.version
        except (KernelError, Denied) as refusal:
            for row, _, _ in asked:
                row.error_code = code_of(refusal)
            return
        for row, number, partition in asked:
            pending = self._pending
            try:
                if session.guard.version is not version:           # rights have changed since the last step
                    topic, version = find_topic(session, topic_name, Operation.CONSUME), session.guard.version
                partition_id = topic.partition_id(number)
                current = partition.current_leader_epoch
                if current >= 0 and current != self.epoch:
                    row.error_code = FENCED_LEADER_EPOCH if current < self.epoch else UNKNOWN_LEADER_EPOCH
                else:
                    self.look_up_one(row, partition_id, partition)
            except (KernelError, Denied) as refusal:
                row.error_code, self._pending = code_of(refusal), pending
            yield

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        """Fill a row, now or after `expect`, which a `settle` ends."""
        raise NotImplementedError

    def expect(self) -> None:
        """One row is filled later."""
        self._pending += 1

    def settle(self) -> None:
        """That row is filled, or all of the request was gone through."""
        self._pending -= 1
        if not self._pending:
            self.request.answer(self._response, throttle_time_ms=0, topics=self.topics)
