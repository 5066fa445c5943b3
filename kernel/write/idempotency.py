"""The deduplication window for idempotency keys: a repeated request gets the first one's answer and stores nothing.

The answer travels as a state record in the frame of the messages themselves. Keys leave the window by age, number or
bytes, oldest first; the deletion is recorded with the next frame, so that a start finds what was there.

An answer, big-endian. Messages of one partition mostly follow each other, so positions are runs and each message's run:

    version      u8      3
    fingerprint  16 B
    append_ms    u64
    stored_ms    u64     by hub time; not in version 2
    runs         u32
    messages     u32
    each run     partition id u64, offset of its first message i64, id of its first message i64
    run numbers  u16 per message, u32 where there are more runs than that; left out where there is one run
"""
from __future__ import annotations

import json
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.errors import IdempotencyConflict
from gatehouse.kernel.message import NOW, RETAIN, Message, Owner, StateRecord, When
from gatehouse.kernel.records.batch import HEADER_BYTES, encode_headers, read_headers
from gatehouse.kernel.records.headers import EXPIRES_HEADER
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame, Places, Repeatable, Submission
from gatehouse.tracing.context import HEADER, STATE

if TYPE_CHECKING:
    from gatehouse.kernel.write.committer import Committer

_VERSION: Final = 3
_HEAD = struct.Struct(">B16sQQII")
_HEAD_2 = struct.Struct(">B16sQII")
_RUN = struct.Struct(">Qqq")
_MAX_SHORT: Final = 1 << 16
OF_A_TRY: Final = re.compile(b"|".join([EXPIRES_HEADER, HEADER, STATE]))
"""Headers whose values a sender, or the library that traces its requests, gives anew to each try."""


class Answer(NamedTuple):
    fingerprint: bytes
    append_ms: int
    stored_ms: int              # by hub time, which the window counts in
    positions: list[tuple[int, int, int]]


def fingerprint(messages: list[Message], whens: Sequence[When] = ()) -> bytes:
    """Tells whether a repeated key comes with the same messages, for the same times. What is another each time that the
    same is sent does not count: when a message expires that is to live for so long, and the trace of the try."""
    digest = blake2b(digest_size=16)
    for placement, value, headers, attributes, timestamp_ms in messages:
        if OF_A_TRY.search(headers) is not None:
            headers = encode_headers([header for header in read_headers(headers, 0)[0]
                                      if OF_A_TRY.fullmatch(header[0]) is None])
        for part in (placement.address.encode(), value, headers, timestamp_ms.to_bytes(8, "big", signed=True)):
            digest.update(b"\0" if part is None else len(part).to_bytes(8, "big") + b"\1" + part)
        if attributes & RETAIN:
            digest.update(b"\2")
    for index, when in enumerate(whens):
        if when != NOW:
            digest.update(b"\3" + repr((index, *when)).encode())
    return digest.digest()


def fingerprint_batches(batches: list[tuple[int, bytes]]) -> bytes:
    """The fingerprint of record batches by partition: their records, and not when the sender put them together."""
    digest = blake2b(digest_size=16)
    for partition_id, batch in batches:
        digest.update(partition_id.to_bytes(8, "big") + len(batch).to_bytes(8, "big"))
        digest.update(memoryview(batch)[HEADER_BYTES:])
    return digest.digest()


def encode_answer(answer: Answer) -> bytes:
    runs: list[tuple[int, int, int]] = []
    open_runs: dict[int, tuple[int, int, int]] = {}          # by partition id: its run, and what would follow in it
    numbers = array("I")
    for partition_id, offset, message_id in answer.positions:
        number, *following = open_runs.get(partition_id, (-1, 0, 0))
        if number < 0 or following != [offset, message_id]:
            number = len(runs)
            runs.append((partition_id, offset, message_id))
        open_runs[partition_id] = (number, offset + 1, message_id + 1)
        numbers.append(number)
    head = _HEAD.pack(_VERSION, answer.fingerprint, answer.append_ms, answer.stored_ms, len(runs), len(numbers))
    return head + b"".join([_RUN.pack(*run) for run in runs]) + _pack_numbers(numbers, len(runs))


def decode_answer(value: bytes) -> Answer:
    _, fingerprint_, append_ms, stored_ms, run_count, count = _HEAD.unpack_from(value)
    at = _HEAD.size + run_count * _RUN.size
    runs = list(_RUN.iter_unpack(value[_HEAD.size:at]))
    seen = [0] * run_count
    positions: list[tuple[int, int, int]] = []
    for number in _unpack_numbers(value[at:], run_count, count):
        partition_id, offset, message_id = runs[number]
        positions.append((partition_id, offset + seen[number], message_id + seen[number]))
        seen[number] += 1
    return Answer(fingerprint_, append_ms, stored_ms, positions)


def _pack_numbers(numbers: array[int], runs: int) -> bytes:
    if runs <= 1:
        return b""
    packed = array("H", numbers) if runs <= _MAX_SHORT else numbers
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def _unpack_numbers(packed: bytes, runs: int, count: int) -> Iterable[int]:
    if runs <= 1:
        return (0,) * count
    numbers = array("H" if runs <= _MAX_SHORT else "I", packed)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _renewed(value: bytes) -> bytes:
    """An answer as version 1 recorded it, in JSON, or version 2, as this version does."""
    if value[0] == _VERSION:
        return value
    if value[0] == 2:
        _, print_, append_ms, run_count, count = _HEAD_2.unpack_from(value)
        return _HEAD.pack(_VERSION, print_, append_ms, append_ms, run_count, count) + value[_HEAD_2.size:]
    print_hex, append_ms, positions = json.loads(value)
    answer_positions = [(position[0], position[1], position[2]) for position in positions]
    return encode_answer(Answer(bytes.fromhex(print_hex), append_ms, append_ms, answer_positions))


class Window:
    """Answers by key, oldest first; encoded, since a request may have ten thousand messages."""

    def __init__(self, age_ms: int, max_keys: int, max_bytes: int) -> None:
        self._age_ms = age_ms
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._answers: dict[str, bytes] = {}
        self._bytes = 0

    def load(self, records: Iterable[tuple[str, bytes]]) -> None:
        renewed = [(key, _renewed(value)) for key, value in records]
        for key, value in sorted(renewed, key=lambda pair: _stored_ms(pair[1])):
            self.put(key, value)

    def get(self, key: str, now_ms: int) -> Answer | None:
        value = self._answers.get(key)
        if value is None or _stored_ms(value) <= now_ms - self._age_ms:
            return None
        return decode_answer(value)

    def put(self, key: str, value: bytes) -> None:
        self.forget([key])
        self._answers[key] = value
        self._bytes += len(value)

    def expired(self, now_ms: int) -> list[str]:
        """The keys that have left the window; `forget` them once that is durable."""
        gone: list[str] = []
        excess, excess_bytes = len(self._answers) - self._max_keys, self._bytes - self._max_bytes
        for key, value in self._answers.items():
            if len(gone) >= excess and excess_bytes <= 0 and _stored_ms(value) > now_ms - self._age_ms:
                break
            gone.append(key)
            excess_bytes -= len(value)
        return gone

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self._bytes -= len(self._answers.pop(key, b""))
        assert self._bytes >= 0 and (self._bytes > 0 or not self._answers), "bytes are those of the answers"

    def __len__(self) -> int:
        return len(self._answers)


def _stored_ms(value: bytes) -> int:
    stored_ms: int = _HEAD.unpack_from(value)[3]
    return stored_ms


class Idempotency:  # decision 17
    """Answers what is repeated under a key, and takes part in frames that bring or end keys; see
    `kernel.write.pending_frame.Participant`."""

    def __init__(self, window: Window, committer: Committer, now_ms: Callable[[], int]) -> None:
        self._window = window
        self._committer = committer
        self._now_ms = now_ms

    def load(self, records: Iterable[tuple[str, bytes]]) -> None:
        """The answers that a start finds, by key."""
        self._window.load(records)
        self._stay()

    def answered(self, frame: PendingFrame, mine: bytes, owner: Owner | None, token: object, key: str) -> bool:
        """Answer what is known by its key, stored or pending. Raises IdempotencyConflict where `mine`, a fingerprint,
        is another one."""
        for pending in (self._committer.flight, frame):
            first = pending.repeatable.get(key) if pending is not None else None
            if pending is not None and first is not None:
                _require_same(first.fingerprint, mine)
                pending.wait(owner, token, first.places)
                return True
        answer = self._window.get(key, self._now_ms())
        if answer is None:
            return False
        _require_same(answer.fingerprint, mine)
        if owner is not None:
            frame.submissions.append(Submission(owner, token, None, (answer.append_ms, answer.positions)))
        return True

    def knows(self, key: str) -> bool:
        """Whether what comes under this key is a repetition of something stored or pending."""
        frame, flight = self._committer.open_frame(), self._committer.flight
        return (key in frame.repeatable or flight is not None and key in flight.repeatable
                or self._window.get(key, self._now_ms()) is not None)

    def remember(self, frame: PendingFrame, mine: bytes, places: Places, key: str) -> None:
        """What is in these places of the frame came under this key."""
        frame.repeatable[key] = Repeatable(mine, places)
        frame.join(self)

    # ---- taking part in a frame

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The keys that leave the window, then those that come: one that is used again after its time has its deletion
        and its answer in one frame."""
        frame.expired = self._window.expired(frame.now_ms)
        for key in frame.expired:
            frame.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), None))
        for key, (fingerprint_, places) in frame.repeatable.items():
            assert all(run.first_id >= 0 for run, _ in places), "ids are given before answers are kept"
            positions = [(run.partition_id, run.first_offset + i, run.first_id + i) for run, i in places]
            answer = encode_answer(Answer(fingerprint_, frame.builder.now_ms, frame.now_ms, positions))
            frame.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), answer))
            frame.answered[key] = answer
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """The window is what the log says."""
        self._window.forget(frame.expired)
        for key, answer in frame.answered.items():
            self._window.put(key, answer)
        self._stay()

    def failed(self, frames: list[PendingFrame]) -> None:
        """The window is as it was."""
        self._stay()

    def _stay(self) -> None:
        """Keys may leave with any frame, as long as there are any."""
        if len(self._window):
            self._committer.join_next(self)


def _require_same(first: bytes, second: bytes) -> None:
    if first != second:
        raise IdempotencyConflict("this idempotency key came with another message before")
