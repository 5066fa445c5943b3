"""What a leased group hands out, and to whom: the messages of each of its cursors, read ahead, and its members.

    again ──fetch──► front ─┐
                            ├─ take ─► judged by the group's policies ─► leased by the group
    fresh ──fetch──► ahead ─┘                         └─► set aside ─► brought back: to the front

At most one fetch of a cursor is under way. What is in front or aside is in hand: below the cursor's `next` and not
leased. A group works with a prefetcher and its cursor by their methods; what `front`, `ahead` and the rest are is
nobody else's business.

Who takes messages: members, which are pushed them, and pops, which take them once. The group hands out; these know what
they were handed, how much more they take, and whom to tell of it.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gatehouse.kernel.errors import CorruptBatch, KernelError, OffsetOutOfRange, Stopping
from gatehouse.kernel.groups.cursor import Cursor, Key, Lease
from gatehouse.kernel.message import NOBODY, Fetched, Handle, Leased, Origin, Piece, Stored
from gatehouse.kernel.records.batch import LAST_OFFSET, missing, open_piece, skip_records, split_records
from gatehouse.kernel.records.headers import EXPIRES_HEADER
from gatehouse.kernel.records.opened import Unreadable
from gatehouse.kernel.retention.holders import Stretch

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.leasing import Core
    from gatehouse.kernel.groups.policy import Policy

# --- messages that are read ahead -------------------------------------------------------------------------------------

FETCH_BYTES: Final = 256 << 10
EACH_BYTES: Final = 4 << 10            # of a message that is read by itself; a larger one comes whole all the same
STRETCHES: Final = 16                  # of one fetch: what is wanted beyond the reader's COLD_BYTES stays empty
NEAR: Final = 32                       # offsets that lie so near each other are read together
AGAIN_AT_ONCE: Final = 1_000           # offsets that are read again by one fetch, at most,
AGAIN_BYTES: Final = 4 << 20           # and bytes, about
ENTERED_KEPT: Final = 1_000            # before those of settled messages are forgotten
MAX_ASIDE: Final = 10_000              # messages of a cursor that a policy holds back

Fetch = Callable[[list[tuple[int, int, int]], int, Callable[[list[Fetched]], None]], None]
Recent = Callable[[int, int, int], "list[Piece] | None"]
"""Of a partition from an offset on, so many bytes: what came a moment ago, where all of it is in memory."""


class Verdict:
    """What becomes of messages of one cursor that were taken and are not handed out. Without `on_plain` plain messages
    need none; `for_waiting`: they are for members that wait."""

    def __init__(self, policies: Sequence[Policy], wall_ms: int, on_plain: bool, for_waiting: bool = False) -> None:
        self._policies = policies
        self.wall_ms = wall_ms
        self.on_plain = on_plain
        self.for_waiting = for_waiting
        self.unwanted: list[int] = []                  # offsets
        self.given_up: dict[str, list[Leased]] = {}    # by reason

    def judge(self, prefetcher: Prefetcher, messages: list[Leased]) -> list[Leased]:
        """Those of these messages that every policy lets pass."""
        for policy in self._policies:
            if messages:
                messages = policy.judge(prefetcher, messages, self)
        return messages

    @property
    def count(self) -> int:
        """How many are not handed out, and come no more."""
        return len(self.unwanted) + sum([len(messages) for messages in self.given_up.values()])

    def settle(self, message: Leased) -> None:
        """It is done with, as nobody wants it."""
        self.unwanted.append(message[1])

    def give_up(self, message: Leased, reason: str) -> None:
        """It ends without an ack."""
        self.given_up.setdefault(reason, []).append(message)


def leased_of(piece: Piece, key: object, first: int = 0, last: int = LAST_OFFSET) -> list[Leased]:
    """Every record of the piece that makes sense, handed out for the first time of the cursor of this key; those at the
    offsets from `first` to `last` alone. Control batches, and what cannot be opened, give none."""
    before = max(0, first - piece.first_offset)
    count = min(piece.count, last + 1 - piece.first_offset) - before
    if count <= 0:
        return []
    data, at, base_ms, fixed_ms = piece.data, 0, piece.append_ms, -1
    if piece.whole:
        try:
            inside = open_piece(piece)
        except CorruptBatch:
            return []
        if inside is None:
            return []
        data, at, base_ms, fixed_ms = inside
    if before:
        passed, at = skip_records(data, at, before, len(data), len(data))
        if passed < before:                # a length that makes no sense: nothing behind it can be found
            return []
    return split_records(key, data, at, count, piece.first_offset + before, base_ms, piece.first_id + before, fixed_ms,
                         piece.whole)


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


class StretchRead:
    """The read of some offsets of a cursor, one fetch after the other. Those that memory answers at once come in one
    loop: each within the one before, thousands of them would be deeper than calls may be."""

    def __init__(self, prefetcher: Prefetcher, stretches: list[list[int]], messages: list[Leased],
                 on_done: Callable[[list[Leased] | None], None]) -> None:
        self._prefetcher = prefetcher
        self._stretches = stretches
        self._messages = messages
        self._on_done = on_done
        self._goes_on = False                           # an answer that comes now is looked for by the loop
        self._is_answered = False

    def go_on(self) -> None:
        """Read what is left, as far as no answer has to be waited for."""
        self._goes_on = True
        while self._stretches:
            wants = self._prefetcher.wants_of(self._stretches)
            self._is_answered = False
            self._prefetcher.fetch(wants, sum([most for _, _, most in wants]), self._read)
            if not self._is_answered:
                self._goes_on = False
                return
        self._on_done(self._messages)

    def _read(self, answers: list[Fetched]) -> None:
        left = self._stretches[len(answers):]
        for stretch, answer in zip(self._stretches, answers, strict=False):
            if answer.error is not None and not isinstance(answer.error, OffsetOutOfRange):
                self._is_answered = False               # and no loop goes on
                self._on_done(None)
                return
            wanted = set(stretch)
            reached = stretch[0]
            for piece in answer.pieces:
                self._messages += [message for message in self._prefetcher.open(piece, stretch[0], stretch[-1])
                                   if message[1] in wanted]
                reached = max(reached, piece.first_offset + piece.count)
            rest = [offset for offset in stretch if offset >= reached]
            if rest and (answer.pieces or _is_left_out(answer, rest[0])):
                left.append(rest)
        self._stretches = left
        self._is_answered = True
        if not self._goes_on:
            self.go_on()


class Prefetcher:  # decision 142
    """One cursor with what was read of it.

    `end()` is the partition's next offset, `start()` its first. `notes_entry`: it remembers when messages entered the
    partition, which is not when they were sent.
    """

    def __init__(self, cursor: Cursor, fetch: Fetch, recent: Recent, end: Callable[[], int], start: Callable[[], int],
                 unreadable: Unreadable, notes_entry: bool = False) -> None:
        self.cursor = cursor
        self.end = end
        self.start = start
        self.fetch = fetch
        self.recent = recent
        self.fetching = False
        self.failed = False                             # the last read failed: it rests
        self.lost = 0
        self.mean_bytes = 1                             # of a message, by the last read of what nobody has had
        self._unreadable = unreadable
        self._front: list[Leased] = []
        self._ahead: list[Leased] = []
        self._at = 0                                    # index of the next one in `_ahead`
        self._read_to = 0                               # nothing but what is in `_ahead` lies below this offset
        self._aside: dict[int, Leased] = {}             # by offset
        self._mentions_expiry = False
        self._skips_settled = False                     # something in `_ahead` may be settled
        self._notes_entry = notes_entry
        self._entered: list[tuple[int, int]] = []       # first offset of what was read, and when it entered
        self._forget_entered_at = ENTERED_KEPT
        self._oldest = (-1, 0)                           # an offset, and when it was appended
        self._coming = -1                               # the lowest offset that is being read again; -1: none
        self._doomed = 0                                # being read to be dead-lettered
        self._being_read: list[int] = []                # ready again, and in hand until the read is done
        self._first: list[int] = []                     # read before anything is taken
        self._on_first: Callable[[list[Leased]], None] | None = None
        self._missing: list[int] = []                   # see `take_missing`

    # ---- taking

    def take(self, count: int, verdict: Verdict) -> list[Leased]:
        """Up to `count` messages that are in memory and that the verdict lets pass; they are in hand now."""
        taken: list[Leased] = []
        if self._first or self._is_overtaken():
            return taken
        is_due = verdict.on_plain or self._mentions_expiry or self.cursor.may_have_tries
        while self._front and len(taken) < count:
            messages = self._front[:count - len(taken)]
            del self._front[:len(messages)]
            taken += verdict.judge(self, messages) if is_due else messages
        if self.cursor.first_again < 0 and not self.fetching:
            self._take_ahead(count, verdict if is_due else None, taken)
        return taken

    def _is_overtaken(self) -> bool:
        """Something came back meanwhile that lies before what is in hand: it is read first."""
        if not self._front:
            return False
        last = self._front[-1][1]
        return 0 <= self.cursor.first_again < last or 0 <= self._coming < last

    def _take_ahead(self, count: int, verdict: Verdict | None, taken: list[Leased]) -> None:
        cursor = self.cursor
        while self._at < len(self._ahead) and len(taken) < count and len(self._aside) < MAX_ASIDE:
            messages = self._ahead[self._at:self._at + count - len(taken)]
            self._at += len(messages)
            if messages[-1][1] - cursor.next >= len(messages):
                self._pass_gaps(messages)
            cursor.take_to(messages[-1][1] + 1)
            if self._skips_settled:
                messages = [message for message in messages if not cursor.is_settled(message[1])]
            taken += messages if verdict is None else verdict.judge(self, messages)
        if self._at >= len(self._ahead):
            self._ahead, self._at = [], 0
            self._lose(self._read_to)

    def _pass_gaps(self, messages: list[Leased]) -> None:
        """Offsets between these that are not there (damaged, gone, claimed, or control records) are done with."""
        for message in messages:
            self._lose(message[1])
            self.cursor.take_to(message[1] + 1)

    def _lose(self, stop: int) -> None:
        """There is nothing from the cursor's `next` until before this offset."""
        if self.cursor.next < stop:
            self.lost += stop - self.cursor.next
            self.cursor.skip_to(stop)

    def give_back(self, messages: list[Leased]) -> None:
        """These were taken last, and are the next to be taken."""
        self._front[:0] = messages

    def set_aside(self, message: Leased) -> None:
        """It stays in hand until it is brought back."""
        self._aside[message[1]] = message

    def bring_back(self, offsets: list[int]) -> None:
        """These were set aside: they can be taken again, behind what is in front."""
        for offset in offsets:
            message = self._aside.pop(offset, None)
            if message is not None:
                self._front.append(message)

    @property
    def mentions_expiry(self) -> bool:
        """Whether a message in memory may say when it expires."""
        return self._mentions_expiry

    def entered_ms(self, message: Leased) -> int:
        """When a message entered the partition, where that is noted; else its timestamp."""
        at = bisect_right(self._entered, message[1], key=itemgetter(0)) - 1 if self._notes_entry else -1
        return message[4] if at < 0 else self._entered[at][1]

    def note_entry(self) -> None:
        """When messages entered the partition is asked from now on: what was read before is read again."""
        if not self._notes_entry:
            self._notes_entry = True
            self.forget()

    def _note_entered(self, piece: Piece) -> None:
        entered = self._entered
        at = bisect_right(entered, piece.first_offset, key=itemgetter(0))
        if not at or entered[at - 1][0] != piece.first_offset:
            entered.insert(at, (piece.first_offset, piece.append_ms))
        if len(entered) > self._forget_entered_at:
            self._forget_entered()

    def _forget_entered(self) -> None:
        """Of what is settled nobody asks."""
        cursor, entered = self.cursor, self._entered
        unsettled = [*cursor.unsettled_stretches(cursor.committed, cursor.next), (cursor.next, LAST_OFFSET)]
        behind = [*[first for first, _ in entered[1:]], LAST_OFFSET]
        kept: list[tuple[int, int]] = []
        at = 0
        for row, stop in zip(entered, behind, strict=True):
            while unsettled[at][1] <= row[0]:
                at += 1
            if unsettled[at][0] < stop:
                kept.append(row)
        self._entered = kept
        self._forget_entered_at = max(ENTERED_KEPT, 2 * len(kept))

    # ---- reading

    @property
    def has_more(self) -> bool:
        """Whether there is something to take, in memory or to be read."""
        cursor = self.cursor
        if self.failed:
            return False
        if self._front or cursor.first_again >= 0 or self._first:
            return True
        return (self._at < len(self._ahead) or cursor.next < self.end()) and len(self._aside) < MAX_ASIDE

    @property
    def head(self) -> int:
        """The oldest offset that is ready; -1 where none is."""
        cursor = self.cursor
        if self._at < len(self._ahead):
            fresh = self._ahead[self._at][1]
        else:
            fresh = cursor.next if cursor.next < self.end() else -1
        ready = [message[1] for message in self._front[:1]] + [cursor.first_again]
        return min([offset for offset in ready if offset >= 0], default=fresh)

    def peek(self, offset: int) -> Leased | None:
        """The message at the head, where it is in memory."""
        for message in self._front[:1] + self._ahead[self._at:self._at + 1]:
            if message[1] == offset:
                return message
        return None

    @property
    def in_hand(self) -> int:
        """Messages below the cursor's `next` that are neither leased nor settled, and may be."""
        return len(self._front) + len(self._aside) + self._doomed

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

    def read_recent(self) -> None:  # decision 354
        """Read what `take` lacks, where it is in memory: what has just come. Else there is `read`."""
        cursor = self.cursor
        if self.failed or self.fetching or self._front or self._at < len(self._ahead) or cursor.next >= self.end() \
                or cursor.first_again >= 0 or self._first or len(self._aside) >= MAX_ASIDE:
            return
        if cursor.group:
            self._skip_lost()
        pieces = self.recent(cursor.partition_id, cursor.next, FETCH_BYTES)
        if pieces is not None:
            self._take_in(pieces, cursor.next)

    def read(self, on_done: Callable[[], None]) -> None:
        """Read what `take` lacks; `on_done` when there may be something, before this returns or later."""
        cursor = self.cursor
        if self.fetching:
            return
        if self._first:
            self._read_offsets(self._first, self._first_read, on_done)
        elif cursor.first_again >= 0:
            offsets = cursor.take_again(max(1, min(AGAIN_AT_ONCE, AGAIN_BYTES // self.mean_bytes)))
            self._being_read = offsets
            self._coming = offsets[0]
            self._read_offsets(offsets, self._again_read, on_done)
        elif self._at >= len(self._ahead) and cursor.next < self.end():
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
            self._lose(start)
            self._ahead, self._at = [message for message in self._ahead[self._at:] if message[1] >= start], 0

    def _fresh_read(self, answer: Fetched, wanted: int, moved: int, on_done: Callable[[], None]) -> None:
        self.fetching = False
        if moved == self.cursor.moved:
            if not answer.pieces:
                self._nothing_read(answer)
            self._take_in(answer.pieces, max(wanted, self.cursor.next))      # settled without being read, meanwhile
        on_done()

    def _take_in(self, pieces: list[Piece], wanted: int) -> None:
        """These were read of what nobody has had; nothing before `wanted` counts."""
        for piece in pieces:
            self._ahead += self.open(piece)
            self._read_to = piece.first_offset + piece.count
        if self._ahead:
            self.mean_bytes = 1 + sum([len(piece.data) for piece in pieces]) // len(self._ahead)
        if self._ahead and self._ahead[0][1] < wanted:
            self._ahead = [message for message in self._ahead if message[1] >= wanted]
        if not self._ahead:
            self._lose(self._read_to)
        # A search through a run's bytes for what may be nowhere in it costs a fiftieth of one through its records.
        headers = [message[7] for message in self._ahead] if any(piece.whole for piece in pieces) \
            else [piece.data for piece in pieces]
        if not self._front and not self._aside:
            self._mentions_expiry = False
        self._note_expiry(headers)
        self._skips_settled = self.cursor.settled_ahead > 0

    def _note_expiry(self, encoded: list[bytes]) -> None:
        for part in encoded:
            if self._mentions_expiry:
                return
            self._mentions_expiry = part.find(EXPIRES_HEADER) >= 0

    def _nothing_read(self, answer: Fetched) -> None:
        if isinstance(answer.error, OffsetOutOfRange):
            self._skip_lost()
        elif answer.error is None and answer.next_offset > self.cursor.next:
            self.overtake(answer.next_offset)      # what was there cannot be read
        else:
            self.failed = True

    def open(self, piece: Piece, first: int = 0, last: int = LAST_OFFSET) -> list[Leased]:
        """Its messages from offset `first` to `last`, as nobody has had them before."""
        if self._notes_entry:
            self._note_entered(piece)
        key = self.cursor.key
        messages = leased_of(piece, key, first, last)
        begin, end = max(first, piece.first_offset), min(last + 1, piece.first_offset + piece.count)
        if len(messages) < end - begin:
            offsets = [message[1] for message in leased_of(piece, key)]
            self._unreadable.note(self.cursor.partition_id, missing(piece, offsets))
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
        StretchRead(self, stretches, messages, on_done).go_on()

    def wants_of(self, stretches: list[list[int]]) -> list[tuple[int, int, int]]:
        """What one fetch reads of these."""
        most = FETCH_BYTES
        if len(stretches) == 1:                # the first of a fetch is given whatever its size
            most = min(FETCH_BYTES, (stretches[0][-1] - stretches[0][0] + 1) * EACH_BYTES)
        return [(self.cursor.partition_id, stretch[0], most) for stretch in stretches[:STRETCHES]]

    def _offsets_read(self, offsets: list[int], messages: list[Leased] | None, moved: int,
                      then: Callable[[list[int], list[Leased]], None], on_done: Callable[[], None]) -> None:
        self.fetching = False
        self._being_read = []
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
        if offsets is not self._first:
            self.cursor.put_back(offsets)

    def _again_read(self, offsets: list[int], messages: list[Leased]) -> None:
        self._coming = -1
        cursor = self.cursor
        self._front += [(message[0], message[1], cursor.attempt_of(message[1]) + 1, *message[3:])
                       for message in messages if not cursor.is_settled(message[1])]
        self._front.sort(key=itemgetter(1))
        self._note_expiry([message[7] for message in messages])
        if len(messages) < len(offsets):
            there = {message[1] for message in messages}
            self._lose_again([offset for offset in offsets if offset not in there])

    def read_doomed(self, offsets: list[int], then: Callable[[list[Leased]], None],
                    on_done: Callable[[], None] | None) -> None:
        """Read these to give them up, beside whatever else is being read; `on_done` is called whatever has come of
        it."""
        moved = self.cursor.moved
        self._doomed += len(offsets)
        self._read_stretches(stretches_of(sorted(offsets)), [],
                             lambda messages: self._doomed_read(offsets, messages, moved, then, on_done))

    def _doomed_read(self, offsets: list[int], messages: list[Leased] | None, moved: int,
                     then: Callable[[list[Leased]], None], on_done: Callable[[], None] | None) -> None:
        self._doomed -= len(offsets)
        if moved == self.cursor.moved:
            if messages is None:           # they come again, and may be given up again
                self.cursor.put_back(offsets)
            else:
                then(self.as_doomed(offsets, messages))
        if on_done is not None:
            on_done()

    def as_doomed(self, offsets: list[int], messages: list[Leased]) -> list[Leased]:
        """These messages with their attempts; what of the offsets is not there is lost, and settled."""
        missing = set(offsets) - {message[1] for message in messages}
        if missing:
            self._lose_again(sorted(missing))
        return [(message[0], message[1], max(self.cursor.attempt_of(message[1]), 1), *message[3:])
                for message in messages]

    def _lose_again(self, missing: list[int]) -> None:
        """These were handed out once, and are not there any more."""
        self.lost += len(missing)
        self.cursor.settle(missing)
        self._missing += missing

    def take_missing(self) -> list[int]:
        """What was handed out once, and is settled as it is not there any more; since the last call."""
        missing, self._missing = self._missing, []
        return missing

    def read_leased(self, offsets: list[int], on_read: Callable[[list[Leased] | None], None]) -> None:
        """Read what these were when they were handed out; None where that cannot be. Nothing changes."""
        self._read_stretches(stretches_of(sorted(offsets)), [], on_read)

    def read_first(self, offsets: list[int], on_read: Callable[[list[Leased]], None]) -> None:
        """Nothing is taken before `on_read` has been given what is there of these."""
        self._first = sorted(offsets)
        self._on_first = on_read

    def _first_read(self, offsets: list[int], messages: list[Leased]) -> None:
        on_read, self._on_first = self._on_first, None
        self._first = []
        if on_read is not None:
            on_read(messages)

    def try_again(self) -> None:
        """What could not be read may be there now."""
        self.failed = False

    def pause(self) -> None:
        """Nothing more is read until somebody asks again."""
        self.failed = True

    # ---- letting go

    def forget(self) -> None:
        """Nobody takes any more, or the cursor starts anew: what is in hand is ready again."""
        self.cursor.put_back([message[1] for message in self._front] + list(self._aside))
        self._front = []
        self._aside.clear()
        self._drop_ahead()

    def _drop_ahead(self) -> None:
        """What was read ahead is read again when it is wanted."""
        self._ahead, self._at, self._read_to = [], 0, 0

    def purge(self, end: int) -> int:
        """Settle everything before `end` that is ready; how many messages that was."""
        self.forget()
        cursor = self.cursor
        ready = [*cursor.take_again(cursor.again_count), *self._being_read]
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

    def restore(self, committed: int, pages: Iterable[tuple[int, bytes]]) -> tuple[list[Lease], list[Lease]]:
        """The cursor as it is stored; see `Cursor.restore`."""
        leases = self.cursor.restore(committed, pages, self.end())
        self.reset()
        return leases

    def reset(self) -> None:
        """The cursor was reset: nothing of what was read counts."""
        self._front = []
        self._aside.clear()
        self._drop_ahead()
        self._coming = -1
        self._first = []
        self._on_first = None
        self._missing = []


# --- who takes them ---------------------------------------------------------------------------------------------------

PRUNE_LEASES: Final = 64             # leases of a member, before those that are over are let go of

POP_BYTES: Final = 1 << 20
"""Of values and headers, after which a pop is given no more: its answer is held whole, and anybody may ask for one."""


class Member(Protocol):
    """Who is pushed messages."""

    def on_leased(self, messages: list[Leased]) -> None:
        """New messages, in order per cursor; at most the credit. Must not block or raise."""

    def on_gone(self) -> None:
        """The queue or topic was deleted; the membership is over."""


class HoldLimit(NamedTuple):  # decision 126
    """How long a member may hold a message without a word about it."""

    after_ms: int

    on_overdue: Callable[[], None]
    """Told when it has held one for longer: what it is on its door is to be ended, and what it holds to be given back.
    Until that happens the messages stay with it. An `after_ms` of 0: never."""

    take_back: Callable[[list[Handle]], list[Handle]] | None = None  # decision 225
    """Which of what is held for the group's invisible time may go to another; the rest stays, up to `after_ms`."""


class Budget:
    """How many messages several memberships may be handed together, whatever their own credits are."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._untold = 0                       # that were handed out, of which nobody was told yet

    def spend(self, count: int) -> None:
        """So many were handed out."""
        self.left -= count
        self._untold += count

    def note_told(self, count: int) -> None:
        """Of so many that were handed out their member was told, or never will be."""
        self._untold -= count

    def set_left(self, left: int) -> None:
        """So many may be handed out from now on, what members were handed and not told of yet among them."""
        self.left = left - self._untold


class Membership:
    """One member's place in a group; ended by `leave`.

    `is_once`: it is told, with nothing, when there is nothing to be had just now. `is_lazy`: what it is handed is noted
    with the next frame, whoever's that is. Without `keeps` what it gets counts as acked at once.
    """

    def __init__(self, group: LeasedGroup, member: Member, credit: int, *, keeps: bool = True,
                 budget: Budget | None = None, hold: HoldLimit | None = None, is_lazy: bool = False,
                 is_once: bool = False, priority: int = 0, taker: Origin = NOBODY) -> None:
        self._group = group
        self.priority = priority
        self._hold = hold
        self._member = member
        self._budget = budget
        self.credit = credit
        self.is_once = is_once
        self.taker = taker
        self.is_lazy = is_lazy
        self.keeps = keeps
        self._leases: dict[Lease, Prefetcher] = {}
        self._asked: set[Lease] = set()                        # whose invisible time is over, and which stay
        self._prune_at = PRUNE_LEASES
        self._outbox: list[Leased] = []

    def note(self, prefetcher: Prefetcher, lease: Lease, core: Core) -> None:
        """It holds this too. Leases that are over are let go of now and then."""
        self._leases[lease] = prefetcher
        if self._hold is not None:
            hold_ms = self._hold.after_ms if self._hold.take_back is None else self._group.settings.invisible_ms
            core.deadlines.hold_for(self._group, prefetcher, lease, hold_ms)
        if len(self._leases) > self._prune_at:
            self._leases = {held_lease: of for held_lease, of in self._leases.items() if held_lease.left}
            self._prune_at = max(PRUNE_LEASES, 2 * len(self._leases))

    def let_go(self) -> list[tuple[Lease, Prefetcher]]:
        """It holds nothing any more, and is told of nothing; what it held."""
        leases, self._leases = self._leases, {}
        self._take_outbox()
        return list(leases.items())

    def _take_outbox(self) -> list[Leased]:
        messages, self._outbox = self._outbox, []
        if self._budget is not None:
            self._budget.note_told(len(messages))
        return messages

    @property
    def room(self) -> int:
        """How many messages it may be handed now."""
        return self.credit if self._budget is None else min(self.credit, self._budget.left)

    def hand(self, messages: list[Leased]) -> None:
        """These are its own; `send` tells it."""
        assert 0 < len(messages) <= self.room, "a member is handed what it has room for"
        self.credit -= len(messages)
        if self._budget is not None:
            self._budget.spend(len(messages))
        self._outbox += messages

    @property
    def untold(self) -> int:
        """How many messages it was handed of which it has not been told."""
        return len(self._outbox)

    @property
    def has_news(self) -> bool:
        """Whether it was handed messages of which it has not been told."""
        return bool(self._outbox)

    def send(self) -> None:
        """Tell the member what it was handed."""
        self._member.on_leased(self._take_outbox())

    def end(self) -> None:
        """The group is not there any more."""
        self._member.on_gone()

    def add_credit(self, count: int) -> None:
        """It takes so many more messages, or fewer."""
        self.credit += count
        if self.room > 0:
            self._group.wake()

    def retire(self) -> None:
        """It is handed nothing more, and keeps what it holds until it settles that or leaves. Of what it was handed it
        is told now."""
        self._group.retire(self)
        if self._outbox:
            self.send()

    def leave(self, delay_ms: int | None = 0) -> None:
        """What it holds is ready again after `delay_ms`; None: as the group's retry says."""
        self._group.leave(self, delay_ms)

    def take_back(self, prefetcher: Prefetcher, lease: Lease, held: list[int], core: Core) -> list[int]:
        """It has held these (`held`) for the group's invisible time, or for too long; those that another may have."""
        hold = self._hold
        assert hold is not None, "a member without a limit has no deadlines"
        if hold.take_back is None or lease in self._asked:
            hold.on_overdue()
            return []
        key = prefetcher.cursor.key
        back = [handle[1] for handle in hold.take_back([(key, offset, lease.attempt) for offset in held])]
        if len(back) < len(held) and hold.after_ms:
            self._asked = {asked for asked in self._asked if asked.left} | {lease}
            left_ms = max(0, hold.after_ms - self._group.settings.invisible_ms)
            core.deadlines.hold_for(self._group, prefetcher, lease, left_ms)
        return back


class Pop:
    """One request for messages; `cancel` it when nobody waits for the answer any more."""

    def __init__(self, group: LeasedGroup, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None],
                 taker: Origin = NOBODY) -> None:
        self._group = group
        self._on_popped = on_popped
        self.count = count
        self.invisible_ms = invisible_ms
        self.taker = taker
        self.leased: list[Leased] = []
        self._leased_bytes = 0
        self.done = False
        self.error: KernelError | None = None

    @property
    def room(self) -> int:
        """How many messages more it takes."""
        return self.count - len(self.leased) if self._leased_bytes < POP_BYTES else 0

    def hand(self, messages: list[Leased]) -> None:
        """These are leased for it."""
        assert not self.done and len(messages) <= self.room, "a request is given what it asked for"
        self.leased += messages
        self._leased_bytes += _bytes_of(messages)

    def drop(self, key: Key) -> None:
        """What it has of the cursor of this key is not its own any more."""
        self.leased = [message for message in self.leased if message[0] != key]
        self._leased_bytes = _bytes_of(self.leased)

    def finish(self) -> None:
        """It gets no more; its answer waits for the frame of its leases."""
        self.done = True

    def cancel(self) -> None:
        """Nothing is leased for it any more; what was found meanwhile is ready again."""
        if not self.done:
            self.done = True
            self._group.drop_pop(self)

    def on_time(self) -> None:
        """It has waited long enough: answered with what it has, while more is being read, or with nothing."""
        if self.done:
            return
        if self.leased:
            with suppress(Stopping):
                self._group.answer_pop(self)
                return
        self.cancel()
        self._on_popped([])

    def fail(self, error: KernelError) -> None:
        """It is answered with nothing, for this reason."""
        self.done = True
        self.error = error
        self._on_popped([])

    def on_stored(self, stored: list[Stored]) -> None:
        """Its leases are durable, or were refused."""
        error = stored[0].error
        self.error = error if isinstance(error, KernelError) else None
        self._on_popped([] if error is not None else self.leased)


def _bytes_of(messages: list[Leased]) -> int:
    return sum([len(message[7]) + (0 if message[6] is None else len(message[6])) for message in messages])
