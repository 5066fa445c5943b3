"""The deduplication window for idempotency keys: a repeated request gets the first one's answer and stores nothing.

The answer travels as a state record in the frame of the messages themselves. Keys leave the window by age or number,
oldest first; the deletion is recorded with the next frame, so that a start finds what was there.
"""
from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from kernel.batch import HEADER_BYTES
from kernel.message import Message


class Answer(NamedTuple):
    fingerprint: bytes
    append_ms: int
    positions: list[tuple[int, int, int]]


def fingerprint(messages: list[Message]) -> bytes:
    """Tells whether a repeated key comes with the same messages."""
    digest = blake2b(digest_size=16)
    for placement, value, headers, _, timestamp_ms in messages:
        for part in (placement.address.encode(), value, headers, timestamp_ms.to_bytes(8, "big", signed=True)):
            digest.update(b"\0" if part is None else len(part).to_bytes(8, "big") + b"\1" + part)
    return digest.digest()


def fingerprint_batches(batches: list[tuple[int, bytes]]) -> bytes:
    """The same for record batches by queue: their records, and not when the sender put them together."""
    digest = blake2b(digest_size=16)
    for queue_id, batch in batches:
        digest.update(queue_id.to_bytes(8, "big") + len(batch).to_bytes(8, "big"))
        digest.update(memoryview(batch)[HEADER_BYTES:])
    return digest.digest()


def encode_answer(answer: Answer) -> bytes:
    return json.dumps([answer.fingerprint.hex(), answer.append_ms, answer.positions]).encode()


def decode_answer(value: bytes) -> Answer:
    print_hex, append_ms, positions = json.loads(value)
    return Answer(bytes.fromhex(print_hex), append_ms, [(queue_id, at, first) for queue_id, at, first in positions])


class Window:
    """Answers by key, oldest first."""

    def __init__(self, age_ms: int, max_keys: int) -> None:
        self._age_ms = age_ms
        self._max_keys = max_keys
        self._answers: dict[str, Answer] = {}

    def load(self, found: Iterable[tuple[str, Answer]]) -> None:
        self._answers = dict(sorted(found, key=lambda pair: pair[1].append_ms))

    def get(self, key: str, now_ms: int) -> Answer | None:
        answer = self._answers.get(key)
        return answer if answer is not None and answer.append_ms > now_ms - self._age_ms else None

    def put(self, key: str, answer: Answer) -> None:
        self._answers.pop(key, None)
        self._answers[key] = answer

    def expired(self, now_ms: int) -> list[str]:
        """The keys that have left the window; `forget` them once that is durable."""
        gone: list[str] = []
        excess = len(self._answers) - self._max_keys
        for key, answer in self._answers.items():
            if len(gone) >= excess and answer.append_ms > now_ms - self._age_ms:
                break
            gone.append(key)
        return gone

    def forget(self, keys: list[str]) -> None:
        for key in keys:
            self._answers.pop(key, None)
