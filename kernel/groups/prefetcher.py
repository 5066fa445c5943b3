"""The messages of one cursor, read ahead of its members: what is ready again first, then what nobody has had.

    again ──fetch──► front ─┐
                            ├─ take ─► screened (expired, not wanted, key busy) ─► leased by the group
    fresh ──fetch──► ahead ─┘

At most one fetch of a cursor is under way. What is in `front` is in hand: below the cursor's `next` and not leased.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from gatehouse.kernel.errors import OffsetOutOfRange
from gatehouse.kernel.groups.cursor import Cursor, Stretch
from gatehouse.kernel.groups.dead_letter_answer import DeadLetterAnswer
from gatehouse.kernel.message import Fetched, Leased, Piece
from gatehouse.kernel.records.batch import leased_of, missing
from gatehouse.kernel.records.record import read_headers
from gatehouse.kernel.records.unreadable import Unreadable

FETCH_BYTES: Final = 256 << 10
STRETCHES: Final = 16                  # of one fetch: what is wanted beyond the reader's COLD_BYTES stays empty
NEAR: Final = 32                       # offsets that lie so near each other are read together
AGAIN_AT_ONCE: Final = 1_000           # offsets that are read again by one fetch, at most
EXPIRES: Final = b"expires-at"         # the envelope's header: milliseconds since 1970, as text
ENTERED_KEPT: Final = 1_000            # before those of settled messages are forgotten
MAX_PARKED: Final = 10_000             # messages of a cursor that wait for their key

Fetch = Callable[[list[tuple[int, int, int]], int, Callable[[list[Fetched]], None]], None]


class Rules(NamedTuple):
    """What decides whether a message may be handed out."""

    wants: Callable[[Leased], bool] | None     # None: everything
    ttl_ms: int                                # after its timestamp, 0: never
    ordered: bool
    max_attempts: int                          # 0: any number


class Taken(NamedTuple):
    """What `take` found: to be leased, and to be settled without."""

    leased: list[Leased]
    expired: list[Leased]
    unwanted: list[int]
    doomed: list[Leased]


def expires_at(headers_encoded: bytes) -> int:
    """When a message expires by its own word, in ms since 1970; 0: never, or no number."""
    if EXPIRES not in headers_encoded:
        return 0
    for name, value in read_headers(headers_encoded, 0)[0]:
        if name == EXPIRES and value is not None and value.isdigit():
            return int(value)
    return 0


def stretches_of(offsets: list[int]) -> list[list[int]]:
    """Sorted offsets as stretches of near ones: each is read at once, with what lies between."""
    stretches: list[list[int]] = []
    for offset in offsets:
        if stretches and offset - stretches[-1][-1] <= NEAR:
            stretches[-1].append(offset)
        else:
            stretches.append([offset])
    return stretches


def _is_left_out(answer: Fetched, offset: int) -> bool:
    """Whether a fetch that gave nothing had no room for this partition, and the offset may well be there."""
    return answer.error is None and answer.next_offset < 0 and offset < answer.high_watermark


class Prefetcher:
    """One cursor with what was read of it. `end()` is the partition's next offset, `start()` its first."""

    def __init__(self, cursor: Cursor, fetch: Fetch, end: Callable[[], int], start: Callable[[], int],
                 unreadable: Unreadable) -> None:
        self.cursor = cursor
        self.end = end
        self.start = start
        self.fetch = fetch
        self._unreadable = unreadable
        self.front: list[Leased] = []
        self.ahead: list[Leased] = []
        self._at = 0                                    # index of the next one in `ahead`
        self._read_to = 0                               # nothing but what is in `ahead` lies below this offset
        self._plain = True                              # nothing in `ahead` expires or is settled
        self.fetching = False
        self.queued = False                             # among those its group will look at
        self.failed = False                             # the last read failed: not tried again before something comes
        self.lost = 0
        self.dated = False                              # what the cursor holds expires so long after it entered it
        self._entered: list[tuple[int, int]] = []       # first offset of what was read, and when it entered
        self._oldest = (-1, 0)                           # an offset, and when it was appended
        self.busy: dict[bytes, int] = {}                # key: the offset that has it
        self.key_of: dict[int, bytes] = {}
        self.parked: dict[bytes, list[Leased]] = {}
        self._parked_count = 0
        self._coming = -1                               # the lowest offset that is being read again; -1: none
        self._doomed = 0                                # being read to be dead-lettered
        self.being_read: list[int] = []                 # ready again, and in hand until the read is done
        self._keys_wanted: list[int] = []               # outstanding at a start: their keys are read first

    # ---- taking

    def take(self, count: int, wall_ms: int, rules: Rules) -> Taken:
        """Up to `count` messages that are in memory and may be leased now."""
        taken = Taken([], [], [], [])
        if self._keys_wanted or self._is_overtaken():
            return taken
        while self.front and len(taken.leased) < count:
            messages = self.front[:count - len(taken.leased)]
            del self.front[:len(messages)]
            self._screen(messages, wall_ms, rules, taken)
        if self.cursor.first_again < 0 and not self.fetching:
            self._take_ahead(count, wall_ms, rules, taken)
        return taken

    def _is_overtaken(self) -> bool:
        """Something came back meanwhile that lies before what is in hand: it is read first."""
        if not self.front:
            return False
        last = self.front[-1][1]
        return 0 <= self.cursor.first_again < last or 0 <= self._coming < last

    def _take_ahead(self, count: int, wall_ms: int, rules: Rules, taken: Taken) -> None:
        cursor = self.cursor
        while self._at < len(self.ahead) and len(taken.leased) < count and self._parked_count < MAX_PARKED:
            messages = self.ahead[self._at:self._at + count - len(taken.leased)]
            self._at += len(messages)
            if messages[-1][1] - cursor.next >= len(messages):
                self._pass_gaps(messages)
            cursor.take_to(messages[-1][1] + 1)
            if self._plain and not rules.ttl_ms and rules.wants is None and not rules.ordered:
                taken.leased.extend(messages)
            else:
                self._screen([message for message in messages if not cursor.is_settled(message[1])], wall_ms, rules,
                             taken)
        if self._at >= len(self.ahead):
            self.ahead, self._at = [], 0
            self.lose(self._read_to)

    def _pass_gaps(self, messages: list[Leased]) -> None:
        """Offsets between these that are not there (damaged, gone, claimed, or control records) are done with."""
        for message in messages:
            self.lose(message[1])
            self.cursor.take_to(message[1] + 1)

    def lose(self, stop: int) -> None:
        """There is nothing from the cursor's `next` until before this offset."""
        if self.cursor.next < stop:
            self.lost += stop - self.cursor.next
            self.cursor.skip_to(stop)

    def _screen(self, messages: list[Leased], wall_ms: int, rules: Rules, taken: Taken) -> None:
        for message in messages:
            expires_ms = self.due_ms(message, rules.ttl_ms)
            if expires_ms and expires_ms <= wall_ms:
                taken.expired.append(message)
            elif 0 < rules.max_attempts < message[2]:
                taken.doomed.append(message)
            elif rules.wants is not None and not rules.wants(message):
                taken.unwanted.append(message[1])
            elif not rules.ordered or message[5] is None or self._claim_key(message[5], message):
                taken.leased.append(message)

    def due_ms(self, message: Leased, ttl_ms: int) -> int:
        """When a message expires, 0 for never: by its own word, and so long after its timestamp, or after it entered
        a cursor that is `dated`."""
        expires_ms = expires_at(message[7])
        if not ttl_ms:
            return expires_ms
        at = bisect_right(self._entered, message[1], key=itemgetter(0)) - 1 if self.dated else -1
        by_cursor = (message[4] if at < 0 else self._entered[at][1]) + ttl_ms
        return min(expires_ms, by_cursor) if expires_ms else by_cursor

    def _note_entered(self, piece: Piece) -> None:
        entered = self._entered
        at = bisect_right(entered, piece.first_offset, key=itemgetter(0))
        if not at or entered[at - 1][0] != piece.first_offset:
            entered.insert(at, (piece.first_offset, piece.append_ms))
        if len(entered) > ENTERED_KEPT:                 # of what is settled nobody asks
            first = bisect_right(entered, self.cursor.committed, key=itemgetter(0)) - 1
            del entered[:max(0, first)]

    def _claim_key(self, key: bytes, message: Leased) -> bool:  # decision 27
        """Whether the message has its key to itself now; else it is parked behind the one that has it."""
        offset = message[1]
        if self.busy.setdefault(key, offset) == offset:
            self.key_of[offset] = key
            return True
        self.parked.setdefault(key, []).append(message)
        self._parked_count += 1
        return False

    def free_keys(self, offsets: list[int]) -> bool:
        """These are settled: whoever waits for their keys comes next. True where somebody does."""
        woken = False
        for offset in offsets:
            key = self.key_of.pop(offset, None)
            if key is None or self.busy.get(key) != offset:
                continue
            del self.busy[key]
            waiting = self.parked.get(key)
            if waiting:                    # the key is its own at once: it may be settled without ever being leased
                self.front.append(waiting.pop(0))
                self.busy[key] = self.front[-1][1]
                self.key_of[self.front[-1][1]] = key
                self._parked_count -= 1
                woken = True
                if not waiting:
                    del self.parked[key]
        return woken

    # ---- reading

    @property
    def has_more(self) -> bool:
        """Whether there is something to take, in memory or to be read."""
        cursor = self.cursor
        if self.failed:
            return False
        if self.front or cursor.first_again >= 0 or self._keys_wanted:
            return True
        return (self._at < len(self.ahead) or cursor.next < self.end()) and self._parked_count < MAX_PARKED

    @property
    def head(self) -> int:
        """The oldest offset that is ready; -1 where none is."""
        cursor = self.cursor
        if self._at < len(self.ahead):
            fresh = self.ahead[self._at][1]
        else:
            fresh = cursor.next if cursor.next < self.end() else -1
        ready = [message[1] for message in self.front[:1]] + [cursor.first_again]
        return min([offset for offset in ready if offset >= 0], default=fresh)

    def peek(self, offset: int) -> Leased | None:
        """The message at the head, where it is in memory."""
        for message in self.front[:1] + self.ahead[self._at:self._at + 1]:
            if message[1] == offset:
                return message
        return None

    @property
    def in_hand(self) -> int:
        """Messages below the cursor's `next` that are neither leased nor settled, and may be."""
        return len(self.front) + self._parked_count + self._doomed

    def oldest_ms(self, append_ms: Callable[[int, int], int]) -> int:
        """When the first message that is not settled was appended; `append_ms` is asked once for each."""
        first = max(self.cursor.committed, self.start())
        if self._oldest[0] != first:
            self._oldest = first, append_ms(self.cursor.partition_id, first)
        return self._oldest[1]

    @property
    def rests(self) -> bool:
        """Whether nothing of the cursor is known that its committed does not say."""
        return not (self.fetching or self.in_hand) and self.cursor.rests

    def read(self, on_done: Callable[[], None]) -> None:
        """Read what `take` lacks; `on_done` when there may be something, before this returns or later."""
        cursor = self.cursor
        if self.fetching:
            return
        if self._keys_wanted:
            self._read_offsets(self._keys_wanted, self._keys_read, on_done)
        elif cursor.first_again >= 0:
            offsets = cursor.take_again(AGAIN_AT_ONCE)
            self.being_read = offsets
            self._coming = offsets[0]
            self._read_offsets(offsets, self._again_read, on_done)
        elif self._at >= len(self.ahead) and cursor.next < self.end():
            if cursor.group:
                self._skip_lost()
            wanted, moved = cursor.next, cursor.moved
            self.fetching = True
            self.fetch([(cursor.partition_id, wanted, FETCH_BYTES)], FETCH_BYTES,
                        lambda answers: self._fresh_read(answers[0], wanted, moved, on_done))

    def _skip_lost(self) -> None:
        """Retention has overtaken the group: what is gone is lost to it."""
        self.overtake(self.start())

    def overtake(self, start: int) -> None:
        """What nobody has had yet below `start` is lost to the group."""
        if self.cursor.next < start:
            self.lose(start)
            self.ahead, self._at = [message for message in self.ahead[self._at:] if message[1] >= start], 0

    def _fresh_read(self, answer: Fetched, wanted: int, moved: int, on_done: Callable[[], None]) -> None:
        self.fetching = False
        if moved == self.cursor.moved:
            wanted = max(wanted, self.cursor.next)           # settled without being read, meanwhile
            if not answer.pieces:
                self._nothing_read(answer)
            for piece in answer.pieces:
                self.ahead += self.open(piece)
                self._read_to = piece.first_offset + piece.count
            if self.ahead and self.ahead[0][1] < wanted:
                self.ahead = [message for message in self.ahead if message[1] >= wanted]
            if not self.ahead:
                self.lose(self._read_to)
            # A search through a run's bytes for what may be nowhere in it costs a fiftieth of one through its records.
            headers = [message[7] for message in self.ahead] if any(piece.whole for piece in answer.pieces) \
                else [piece.data for piece in answer.pieces]
            self._plain = not self.cursor.settled_ahead and not any(EXPIRES in encoded for encoded in headers)
        on_done()

    def _nothing_read(self, answer: Fetched) -> None:
        if isinstance(answer.error, OffsetOutOfRange):
            self._skip_lost()
        elif answer.error is None and answer.next_offset > self.cursor.next:
            self.overtake(answer.next_offset)      # what was there cannot be read
        else:
            self.failed = True

    def open(self, piece: Piece) -> list[Leased]:
        """Its messages, as nobody has had them before."""
        if self.dated:
            self._note_entered(piece)
        messages = leased_of(piece, self.cursor)
        if len(messages) < piece.count:
            self._unreadable.note(self.cursor.partition_id, missing(piece, [message[1] for message in messages]))
        return messages

    def _read_offsets(self, offsets: list[int], then: Callable[[list[int], list[Leased]], None],
                      on_done: Callable[[], None]) -> None:
        """Read exactly these offsets: one want per stretch of neighbours."""
        self.fetching = True
        moved = self.cursor.moved
        self._read_stretches(stretches_of(offsets), [],
                             lambda messages: self._offsets_read(offsets, messages, moved, then, on_done))

    def _read_stretches(self, stretches: list[list[int]], messages: list[Leased],
                        on_done: Callable[[list[Leased] | None], None]) -> None:
        """`on_done` is given what is there of them, or None where the disk could not be read."""
        if not stretches:
            on_done(messages)
            return
        wants = [(self.cursor.partition_id, stretch[0], FETCH_BYTES) for stretch in stretches[:STRETCHES]]
        self.fetch(wants, FETCH_BYTES * len(wants), lambda answers: self._stretches_read(stretches, messages, answers,
                                                                                          on_done))

    def _stretches_read(self, stretches: list[list[int]], messages: list[Leased], answers: list[Fetched],
                        on_done: Callable[[list[Leased] | None], None]) -> None:
        left = stretches[len(answers):]
        for stretch, answer in zip(stretches, answers, strict=False):
            if answer.error is not None and not isinstance(answer.error, OffsetOutOfRange):
                on_done(None)
                return
            wanted = set(stretch)
            reached = stretch[0]
            for piece in answer.pieces:
                messages += [message for message in self.open(piece) if message[1] in wanted]
                reached = max(reached, piece.first_offset + piece.count)
            rest = [offset for offset in stretch if offset >= reached]
            if rest and (answer.pieces or _is_left_out(answer, rest[0])):
                left.append(rest)
        self._read_stretches(left, messages, on_done)

    def _offsets_read(self, offsets: list[int], messages: list[Leased] | None, moved: int,
                      then: Callable[[list[int], list[Leased]], None], on_done: Callable[[], None]) -> None:
        self.fetching = False
        self.being_read = []
        if moved == self.cursor.moved:
            if messages is not None:
                then(offsets, sorted(messages, key=itemgetter(1)))
            else:
                self._not_read(offsets)
        on_done()

    def _not_read(self, offsets: list[int]) -> None:
        """Nothing is known of them: they are where they were."""
        self.failed = True
        self._coming = -1
        if not self._keys_wanted:
            self.cursor.put_back(offsets)

    def _again_read(self, offsets: list[int], messages: list[Leased]) -> None:
        self._coming = -1
        cursor = self.cursor
        self.front += [(message[0], message[1], cursor.attempt_of(message[1]) + 1, *message[3:])
                       for message in messages if not cursor.is_settled(message[1])]
        self.front.sort(key=itemgetter(1))
        if len(messages) < len(offsets):
            there = {message[1] for message in messages}
            missing = [offset for offset in offsets if offset not in there]
            self.lost += len(missing)
            self.cursor.settle(missing)

    def read_doomed(self, offsets: list[int], then: Callable[[list[Leased]], None],
                    dead_letter_answer: DeadLetterAnswer | None) -> None:
        """Read these to dead_letter them, beside whatever else is being read; `dead_letter_answer` is told whatever has
        come of it."""
        moved = self.cursor.moved
        self._doomed += len(offsets)
        self._read_stretches(stretches_of(sorted(offsets)), [],
                             lambda messages: self._doomed_read(offsets, messages, moved, then, dead_letter_answer))

    def _doomed_read(self, offsets: list[int], messages: list[Leased] | None, moved: int,
                     then: Callable[[list[Leased]], None], dead_letter_answer: DeadLetterAnswer | None) -> None:
        self._doomed -= len(offsets)
        if moved == self.cursor.moved:
            if messages is None:           # they come again, and may be given up again
                self.cursor.put_back(offsets)
            else:
                cursor = self.cursor
                then([(message[0], message[1], max(cursor.attempt_of(message[1]), 1), *message[3:])
                      for message in messages])
                missing = set(offsets) - {message[1] for message in messages}
                if missing:
                    self.lost += len(missing)
                    self.cursor.settle(sorted(missing))
        if dead_letter_answer is not None:
            dead_letter_answer.on_dead_lettered()

    # ---- keys at a start

    def want_keys(self, offsets: list[int]) -> None:
        """These were leased or waiting when the hub ended: nothing of an ordered cursor goes out before their keys are
        known."""
        self._keys_wanted = sorted(offsets)

    def _keys_read(self, offsets: list[int], messages: list[Leased]) -> None:
        self._keys_wanted = []
        for message in messages:
            key = message[5]
            if key is not None and not self.cursor.is_settled(message[1]):
                self.busy.setdefault(key, message[1])
                self.key_of[message[1]] = key

    # ---- letting go

    def forget(self) -> None:
        """Nobody takes any more, or the cursor starts anew: what is in hand is ready again."""
        in_hand = [message[1] for message in self.front] \
            + [message[1] for waiting in self.parked.values() for message in waiting]
        self.cursor.put_back(in_hand)
        self.front = []
        self._drop_ahead()
        self.parked.clear()
        self._parked_count = 0

    def _drop_ahead(self) -> None:
        """What was read ahead is read again when it is wanted."""
        self.ahead, self._at, self._read_to = [], 0, 0

    def purge(self, end: int) -> int:
        """Settle everything before `end` that is ready; how many messages that was."""
        self.forget()
        cursor = self.cursor
        ready = [*cursor.take_again(cursor.again_count), *self.being_read]
        cursor.settle(ready)
        fresh = max(0, end - cursor.next)
        if fresh:
            cursor.skip_to(end)
        return len(ready) + fresh

    def take_back(self, offsets: list[int], gaps: Sequence[Stretch]) -> None:
        """These are in hand from now on, wherever in the cursor they were; none of them is leased. There is nothing in
        `gaps`."""
        self.forget()
        self.lost += self.cursor.take_back(offsets, gaps)

    def begin_anew(self, offset: int, epoch: int) -> None:
        """Go on from this offset, with another cursor."""
        self.cursor = self.cursor.anew(offset, epoch)
        self.reset()

    def reset(self) -> None:
        """The cursor was reset: nothing of what was read counts."""
        self.front = []
        self._drop_ahead()
        self._coming = -1
        self.parked.clear()
        self._parked_count = 0
        self.busy.clear()
        self.key_of.clear()
        self._keys_wanted = []
