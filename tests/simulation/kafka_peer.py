"""A Kafka client of the simulator: Produce 7 with acks=all, Fetch 4. Its own few lines of codec."""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from gatehouse.gateways.kafka import GATEWAY
from gatehouse.gateways.kafka.error_codes import NONE
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import read_header, records_of
from tests.simulation.checker import Attempt, Broken, Ledger
from tests.simulation.wire import Wire

PRODUCE: Final = 0
FETCH: Final = 1
KAFKA_STORAGE_ERROR: Final = 56
OUT_OF_ORDER: Final = 45             # of the sequence numbers of a producer
UNKNOWN_TOPIC: Final = 3
OFFSET_OUT_OF_RANGE: Final = 1

_I32 = struct.Struct(">i")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class KafkaPeer:
    """One connection. Answers come in the order of the requests, as Kafka's do."""

    spec = GATEWAY

    def __init__(self, wire: Wire, ledger: Ledger) -> None:
        self.wire = wire
        self._ledger = ledger
        self._buffer = b""
        self._next_id = 1
        self._waiting: dict[int, tuple[Callable[[bytes], None], Attempt | None]] = {}
        wire.client = self

    # ---- what it asks

    def produce(self, topic: str, partition: int, partition_id: int, attempt: Attempt) -> None:
        attempt.waiting += 1
        attempt.calls += 1
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + text(topic) + \
            struct.pack(">iii", 1, partition, len(attempt.batch)) + attempt.batch
        self._ask(PRODUCE, 7, body, lambda answer: self._produced(answer, partition_id, attempt), attempt)

    def fetch(self, topic: str, partition: int, partition_id: int, offset: int, max_bytes: int) -> None:
        body = struct.pack(">iiiibi", -1, 0, 0, max_bytes, 0, 1) + text(topic) + \
            struct.pack(">iiqi", 1, partition, offset, max_bytes)
        self._ask(FETCH, 4, body, lambda answer: self._fetched(answer, partition_id), None)

    def _ask(self, api: int, version: int, body: bytes, answered: Callable[[bytes], None],
             attempt: Attempt | None) -> None:
        header = struct.pack(">hhih", api, version, self._next_id, -1)
        self._waiting[self._next_id] = (answered, attempt)
        self._next_id += 1
        self.wire.send(_I32.pack(len(header) + len(body)) + header + body)

    # ---- what it is told

    def on_data(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._buffer)
            if len(self._buffer) < 4 + size:
                return
            answer, self._buffer = self._buffer[8:4 + size], self._buffer[4 + size:]
            if next(iter(self._waiting), None) != correlation_id:
                raise Broken(f"a Kafka answer to {correlation_id} where {next(iter(self._waiting), None)} is next")
            self._waiting.pop(correlation_id)[0](answer)

    def _produced(self, answer: bytes, partition_id: int, attempt: Attempt) -> None:
        at = 4 + 2 + struct.unpack_from(">h", answer, 4)[0] + 4
        _, error, base_offset, _, _ = struct.unpack_from(">ihqqq", answer, at)
        if error == NONE:
            self._ledger.acknowledge(attempt, [(partition_id, base_offset, -1)], 0)
        elif error in (KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC) \
                or error == OUT_OF_ORDER and self._follows_on_refused(attempt):
            self._ledger.acknowledge(attempt, None, 0)
        else:
            raise Broken(f"a Kafka producer was refused with {error}")

    def _follows_on_refused(self, attempt: Attempt) -> bool:
        """One before it, of its producer and partition, was not stored: the disk was full, or a crash took it."""
        return any(before.kind == "batch" and before.writer == attempt.writer and before.sequence < attempt.sequence
                   and before.messages[0].partition_id == attempt.messages[0].partition_id and not before.answered
                   for before in self._ledger.attempts)

    def _fetched(self, answer: bytes, partition_id: int) -> None:
        at = 4 + 4 + 2 + struct.unpack_from(">h", answer, 8)[0] + 4
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        at += 26 + 16 * max(aborted, 0)
        if error in (OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC):
            return
        if error != NONE:
            raise Broken(f"a Kafka consumer was refused with {error}")
        data = answer[at + 4:at + 4 + _I32.unpack_from(answer, at)[0]]
        while data:
            header = read_header(data)
            batch, data = data[:12 + header.length], data[12 + header.length:]
            if len(batch) == 12 + header.length:             # the last may be cut off, as Kafka does
                for record in records_of(Piece(header.base_offset, header.record_count, True, batch, 0, 0, 0)):
                    self._ledger.see(partition_id, record, knows_id=False)

    def on_lost(self) -> None:
        for _, attempt in self._waiting.values():
            if attempt is not None:
                attempt.lost_call()
        self._waiting.clear()
