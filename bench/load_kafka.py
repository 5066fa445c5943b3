"""Load for a Kafka server: one writer with several Produce requests in flight, one reader of all partitions.

    Produce 7, Fetch 11, CreateTopics 2: versions without flexible fields, which Kafka 2.1 to 4 and this hub speak.

A batch is made once and sent again and again, since a server sets only its base offset; what differs between the
requests of two partitions are four bytes. The reader keeps a fetch session, as Java's clients do, so that a Fetch lists
what has changed; with `--no-session` it lists all partitions each time, as librdkafka does. It looks at the heads of
batches only, and passes over partitions that an answer has nothing of as one array: ten thousand of them must not make
the reader what is measured.
"""
from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from bench.load_pair import LoadFailed, Read, Written, dial, login, receive, receive_some, run_pair

PRODUCE, FETCH, SASL_HANDSHAKE, CREATE_TOPICS, SASL_AUTHENTICATE = 0, 1, 17, 19, 36
CREATE_TIMEOUT_MS: Final = 60_000
PRODUCE_TIMEOUT_MS: Final = 30_000
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 << 20
PARTITION_BYTES: Final = 1 << 20
TOPIC_EXISTS: Final = 36
NOT_YET: Final = (3, 5, 6)       # unknown partition, no leader, not the leader: for a moment after a creation
SETTLE_S: Final = 300.0
LOOK_AGAIN_S: Final = 0.2

WANT: Final = struct.Struct(">iiqqi")            # partition, leader epoch, offset, log start, max bytes
WANT_OFFSET_AT: Final = 8
# partition, error, high watermark, last stable, log start, no aborted transactions, preferred replica, bytes of batches
ANSWER: Final = struct.Struct(">ih24xiii")
ROWS: Final = np.dtype([("partition", ">i4"), ("error", ">i2"), ("offsets", "V24"), ("aborted", ">i4"),
                        ("replica", ">i4"), ("size", ">i4")])
assert ROWS.itemsize == ANSWER.size
FEWEST_ROWS: Final = 16          # are looked at as one array; twice as many with each array that has nothing
BATCH_HEAD: Final = struct.Struct(">qi")         # base offset, length of what follows
LAST_DELTA_AT, COUNT_AT, BATCH_HEAD_BYTES = 23, 57, 61


class Run(NamedTuple):
    """What a run is about."""

    port: int
    topic: str
    partitions: int
    batch: int
    size: int
    n: int
    acks: int
    window: int
    session: bool = True

    @property
    def batches(self) -> int:
        return self.n // self.batch


def zigzag(number: int) -> bytes:
    """A variable-length number as records have them; not negative here."""
    number <<= 1
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def record_batch(count: int, size: int) -> bytes:
    """RecordBatch v2: `count` records without key and headers, `size` bytes of value each, no producer id."""
    records = bytearray()
    for delta in range(count):
        # attributes, timestamp delta, offset delta, no key, value, no headers
        body = b"\x00\x00" + zigzag(delta) + b"\x01" + zigzag(size) + b"k" * size + b"\x00"
        records += zigzag(len(body)) + body
    now_ms = time.time_ns() // 1_000_000
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return BATCH_HEAD.pack(0, 9 + len(checked)) + struct.pack(">ibI", 0, 2, crc32c(checked)) + checked


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def request_head(key: int, version: int, body_bytes: int) -> bytes:
    """Length, API, version, correlation id 7, client id."""
    head = struct.pack(">hhi", key, version, 7) + text("bench")
    return struct.pack(">i", len(head) + body_bytes) + head


def enter(port: int) -> socket.socket:
    """A connection, logged in by SASL PLAIN where the load has a login. Raises LoadFailed."""
    connection, shown = dial(port), login()
    if shown is not None:
        message = f"\0{shown[0]}\0{shown[1]}".encode()
        for key, version, body in ((SASL_HANDSHAKE, 1, text("PLAIN")),
                                   (SASL_AUTHENTICATE, 1, struct.pack(">i", len(message)) + message)):
            connection.sendall(request_head(key, version, len(body)) + body)
            answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
            error: int = struct.unpack_from(">h", answer, 4)[0]
            if error:
                raise LoadFailed(f"the login was answered with error {error}")
    return connection


def create_topic(run: Run) -> None:
    """Create it, and wait until all partitions can be read; one that exists is as good. Raises LoadFailed."""
    body = struct.pack(">i", 1) + text(run.topic) + struct.pack(">ihii", run.partitions, 1, 0, 0)
    body += struct.pack(">ib", CREATE_TIMEOUT_MS, 0)
    with enter(run.port) as connection:
        connection.settimeout(CREATE_TIMEOUT_MS / 1000)
        connection.sendall(request_head(CREATE_TOPICS, 2, len(body)) + body)
        answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
        error: int = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(run.topic))[0]
        if error not in (0, TOPIC_EXISTS):
            raise LoadFailed(f"CreateTopics answered error {error}")
        reader, end_s = Reader(run), time.monotonic() + SETTLE_S
        while True:
            reader.step(connection)
            if not reader.not_yet:
                return
            if time.monotonic() > end_s:
                raise LoadFailed(f"{reader.not_yet} of {run.partitions} partitions have no leader")
            time.sleep(LOOK_AGAIN_S)


class Writer:
    """Batches to the partitions in turn, a window of requests in flight."""

    def __init__(self, run: Run) -> None:
        self.connection = enter(run.port)
        self.run = run
        self.batch = record_batch(run.batch, run.size)
        front = struct.pack(">hhii", -1, run.acks, PRODUCE_TIMEOUT_MS, 1) + text(run.topic)
        front = request_head(PRODUCE, 7, len(front) + 12 + len(self.batch)) + front
        self.heads = [front + struct.pack(">iii", 1, number, len(self.batch))
                      for number in range(min(run.partitions, run.batches))]
        self.error_at = 4 + 4 + 4 + 2 + len(run.topic) + 4 + 4
        self.answer_bytes = self.error_at + 2 + 8 + 8 + 8 + 4
        self.answers = b""
        self.sent = self.answered = 0

    def step(self) -> None:
        """Fill the window, take the answers that are there. Raises LoadFailed with the server's error."""
        heads, batch = self.heads, self.batch
        end = min(self.answered + self.run.window, self.run.batches)
        if self.sent < end:
            parts = [part for number in range(self.sent, end) for part in (heads[number % len(heads)], batch)]
            self.connection.sendall(b"".join(parts))
            self.sent = end
        self.answers += receive_some(self.connection, 1 << 16)
        whole = len(self.answers) // self.answer_bytes
        for number in range(whole):
            error = struct.unpack_from(">h", self.answers, number * self.answer_bytes + self.error_at)[0]
            if error:
                raise LoadFailed(f"Produce answered error {error}")
        self.answers = self.answers[whole * self.answer_bytes:]
        self.answered += whole


def write(run: Run, tell: Callable[[Written], None]) -> None:
    """Send all batches, and tell when the last has been acknowledged."""
    writer = Writer(run)
    began_s = time.perf_counter()
    while writer.answered < run.batches:
        writer.step()
    tell(Written(began_s, time.perf_counter()))


class Reader:
    """All partitions, each with the offset that is wanted next, in the form of the request that says so."""

    def __init__(self, run: Run) -> None:
        self.keeps_session = run.session
        self.session_id = self.epoch = 0
        self.topic = text(run.topic)
        self.wants = bytearray(b"".join([WANT.pack(number, -1, 0, -1, PARTITION_BYTES)
                                         for number in range(run.partitions)]))
        self.changed: set[int] = set()           # partitions whose offset the server has not heard of
        self.answer_session_at = 4 + 4 + 2
        self.partitions_at = self.answer_session_at + 4 + 4 + 2 + len(run.topic)
        self.messages = 0
        self.not_yet = 0           # partitions that the last answer said are not there yet

    def request(self) -> bytes:
        """All partitions, or in a session those that have changed."""
        wants: bytes | bytearray = self.wants
        if self.session_id:
            size = WANT.size
            wants = b"".join([wants[number * size:(number + 1) * size] for number in self.changed])
        self.changed.clear()
        session = (self.session_id, self.epoch) if self.keeps_session else (0, -1)
        front = struct.pack(">iiiibii", -1, FETCH_WAIT_MS, 1, FETCH_BYTES, 0, *session)
        front += struct.pack(">i", 1) + self.topic + struct.pack(">i", len(wants) // WANT.size) if wants \
            else struct.pack(">i", 0)
        back = struct.pack(">i", 0) + text("")
        return b"".join((request_head(FETCH, 11, len(front) + len(wants) + len(back)), front, wants, back))

    def take(self, answer: bytes) -> None:
        """Count the records of an answer and move on behind them. Raises LoadFailed with the server's error."""
        error, self.session_id, topics = struct.unpack_from(">hii", answer, self.answer_session_at - 2)
        if error:
            raise LoadFailed(f"Fetch answered error {error}")
        self.epoch = self.epoch + 1 if self.session_id else 0
        count: int = struct.unpack_from(">i", answer, self.partitions_at)[0] if topics else 0
        at = self.partitions_at + 4
        self.not_yet = 0
        row_of, row_bytes = ANSWER.unpack_from, ANSWER.size
        while count:
            partition, error, aborted, _, size = row_of(answer, at)
            if not (error or size > 0 or aborted > 0):
                empty = self._empty_rows(answer, at, count)
                at += empty * row_bytes
                count -= empty
                continue
            at += row_bytes
            count -= 1
            if error or aborted > 0:
                self._judge(error)
            if size > 0:
                self._take_batches(answer, at, at + size, partition)
                at += size

    @staticmethod
    def _empty_rows(answer: bytes, at: int, count: int) -> int:
        """How many of the rows from here on say that there is nothing; the first one does."""
        empty, together = 0, FEWEST_ROWS
        while empty < count:
            first = at + empty * ANSWER.size
            most = min(count - empty, together, (len(answer) - first) // ANSWER.size)
            rows = np.frombuffer(answer, ROWS, most, first)
            there = (rows["error"] != 0) | (rows["aborted"] > 0) | (rows["size"] > 0)
            if there.any():
                return empty + int(there.argmax())
            empty += most
            together *= 2
        return empty

    def _judge(self, error: int) -> None:
        if error not in NOT_YET:
            raise LoadFailed(f"Fetch answered error {error}, or of a transaction, which nobody here wrote")
        self.not_yet += 1

    def _take_batches(self, answer: bytes, at: int, end: int, partition: int) -> None:
        while end - at >= BATCH_HEAD_BYTES:
            base, size = BATCH_HEAD.unpack_from(answer, at)
            if end - at < BATCH_HEAD.size + size:
                return    # the server cut it at the byte limit; it comes whole next time
            self.messages += struct.unpack_from(">i", answer, at + COUNT_AT)[0]
            following = base + struct.unpack_from(">i", answer, at + LAST_DELTA_AT)[0] + 1
            struct.pack_into(">q", self.wants, partition * WANT.size + WANT_OFFSET_AT, following)
            self.changed.add(partition)
            at += BATCH_HEAD.size + size

    def step(self, connection: socket.socket) -> None:
        """One Fetch. Raises LoadFailed with the server's error."""
        connection.sendall(self.request())
        self.take(receive(connection, struct.unpack(">i", receive(connection, 4))[0]))


def read(run: Run, ready: Event) -> Read:
    """Read until all have come, or the server falls silent."""
    connection = enter(run.port)
    reader = Reader(run)
    ended_s = time.perf_counter()
    ready.set()
    try:
        while reader.messages < run.batches * run.batch:
            before = reader.messages
            reader.step(connection)
            if reader.not_yet:
                raise LoadFailed(f"{reader.not_yet} partitions are gone")
            if reader.messages > before:
                ended_s = time.perf_counter()
    except TimeoutError:
        pass    # what is missing shows in the number
    return Read(reader.messages, ended_s)


def run_pipe(run: Run) -> tuple[Read, Written]:
    create_topic(run)
    return run_pair(partial(read, run), partial(write, run))
