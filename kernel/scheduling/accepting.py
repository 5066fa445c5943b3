"""Messages that are to be delivered later come in; among them may be some that are due at once."""
from __future__ import annotations

from functools import partial
from typing import Final

from kernel.addresses.stated import STATED, stated
from kernel.appending.appending import KEPT_FULL, Appending
from kernel.appending.burst import check
from kernel.appending.committer import Committer
from kernel.appending.gathering import Gathering, Places, Submission
from kernel.errors import InvalidDelay, KeptFull, TooManyScheduled
from kernel.leasing.settings import LightQueue
from kernel.message import Message, Owner, When
from kernel.parts import Parts
from kernel.scheduling.book import Book
from kernel.scheduling.records import Pending
from kernel.scheduling.schedule import parse_schedule

MAX_DELAY_MS: Final = 3_653 * 24 * 3_600_000        # ten years
STATE_BYTES: Final = 200                             # of its state beside value and headers, for the kernel's bound


NOW: Final = When()


class Accepting:
    def __init__(self, parts: Parts, committer: Committer, appending: Appending, book: Book) -> None:
        self._parts = parts
        self._committer = committer
        self._appending = appending
        self._book = book

    def schedule(self, messages: list[Message], whens: list[When], owner: Owner | None, token: object,
                 idempotency_key: str | None) -> None:
        """See `Kernel.schedule`."""
        now_ms = self._parts.loop.now_ms()
        firsts = [first_due_ms(when, now_ms) for when in whens]
        waiting = sum([due_ms > 0 for due_ms in firsts])
        if waiting and self._parts.kept_full:
            raise KeptFull(KEPT_FULL)
        if waiting and self._book.counts.pending + waiting > self._parts.settings.max_scheduled:
            raise TooManyScheduled(f"{self._book.counts.pending} messages are waiting for their time already")
        add = partial(self._add, whens, firsts)
        if idempotency_key is not None:
            self._appending.append_once(messages, owner, token, idempotency_key, add)
            return
        self._parts.room.require()
        gathering = self._committer.gather()
        check(messages, self._appending.refresh)
        places: Places = []
        add(gathering, messages, places)
        if owner is not None:
            gathering.submissions.append(Submission(owner, token, places, None))
        self._committer.note_size()

    def _add(self, whens: list[When], firsts: list[int], gathering: Gathering, messages: list[Message],
             places: Places) -> None:
        burst = gathering.burst
        for message, when, due_ms in zip(messages, whens, firsts, strict=True):
            if not due_ms:
                burst.add([message], places)
                continue
            start_ms = when.due_ms or burst.now_ms
            one = pending_of(message, due_ms, burst.now_ms, start_ms, when.repeat)
            places.append((self._book.plan_of(gathering).accept(one), 0))
            burst.size_bytes += len(one.headers) + len(one.value or b"") + STATE_BYTES


def first_due_ms(when: When, now_ms: int) -> int:
    """When it falls due first; 0: at once, and once. Raises InvalidDelay, InvalidSchedule."""
    due_ms = when.due_ms if when.due_ms > now_ms else 0
    if when.repeat:
        found = parse_schedule(when.repeat, when.due_ms or now_ms).next_after(max(when.due_ms, now_ms) - 1)
        if found is None:
            raise InvalidDelay(f"the repetition {when.repeat!r} never falls due")
        due_ms = found
    if due_ms > now_ms + MAX_DELAY_MS:
        raise InvalidDelay("a message can wait for ten years at most")
    return due_ms


def pending_of(message: Message, due_ms: int, now_ms: int, start_ms: int, repeat: str) -> Pending:
    """A message that enters no queue yet."""
    to, value, headers, attributes, timestamp_ms = stated(message) if STATED in message[2] else message
    topic, queue = to.topic, to.queue if to.fixed_queue else -1
    if isinstance(to.light, LightQueue):
        topic, queue = to.light.name, to.queue_id - to.light.first_queue_id
    return Pending(due_ms, now_ms, start_ms, timestamp_ms, 0, attributes, to.tenant, to.address, topic, to.fixed_topic,
                   to.may_create, to.light is not None, queue, to.routed, to.key, repeat, headers, value)
