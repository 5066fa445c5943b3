"""How far one group is in one partition: what is settled, leased, waiting or ready again.

Hot, and pure: no clock, no log.

    offset < committed            settled
    committed <= offset < next    settled (a bit in its page's mask), leased, waiting for a time, ready again, or in
                                  hand: read for a member and not leased yet
    offset >= next                nobody has had it

A page is 256 offsets; pages are what is stored. A cursor remembers which pages differ from what is stored, and every
change is made here at once: whoever calls puts what `seal` gives into the pending frame and shows nothing of it before
that frame is durable.

Whole pages that are passed over at once (nothing is there: a producer's batch claimed it, or the log lost it) are one
*span*, however many: a gap of two milliards of offsets costs what a gap of one page does.

A page is stored under (partition id, page, group):

    flags        u8      1: a mask follows, 2: the end of a span
    mask         32 B    little-endian bits of settled offsets above the committed one
    span         u64     the first page that is behind it: everything from this page until there is settled
    runs, each:
      first      u8      within the page
      last       u8
      state      u8      see below
      attempt    u16     how often it was leased so far
      time_ms    i64     of LEASED_UNTIL and WAITING

A lease that its holder's end ends is over after a start of the hub, since no connection lives as long: it is read back
as ready again. The committed travels as the group's committed offset, and beside it, where others commit metadata, the
epoch of the cursor (u64, nothing for 0).
"""
from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

from gatehouse.kernel.message import Handle
from gatehouse.kernel.retention.holders import Stretch

PAGE_SHIFT: Final = 8
PAGE_OFFSETS: Final = 1 << PAGE_SHIFT
PAGE_MASK: Final = PAGE_OFFSETS - 1

LEASED_BY_HOLDER: Final = 1
LEASED_UNTIL: Final = 2
WAITING: Final = 3
READY_AGAIN: Final = 4
MAX_ATTEMPT: Final = 0xFFFF
ENDLESS_MS: Final = 1 << 60           # LEASED_UNTIL this: until whoever answers for it says so

_HAS_MASK: Final = 1
_HAS_SPAN: Final = 2
_RUN = struct.Struct("<BBBHq")
_KEY = struct.Struct(">QQ")
_EPOCH = struct.Struct(">Q")
_SPAN = struct.Struct(">Q")

Run = tuple[int, int, int, int, int]
"""First and last offset within the page, state, attempt, time (ms)."""

NO_PAGE: Final = 1 << 60              # above every page
CHANGES_MAX: Final = 10_000           # noted for who follows a cursor: more, and he looks at all of it

Key = tuple[int, int, str]  # decision 143
"""What names a cursor outside the kernel: partition id, epoch, group."""


def page_key(partition_id: int, page: int, group: bytes) -> bytes:
    return _KEY.pack(partition_id, page) + group


def decode_page_key(key: bytes) -> tuple[int, int, str]:
    """Partition id, page, group."""
    partition_id, page = _KEY.unpack_from(key)
    return partition_id, page, key[_KEY.size:].decode()


def encode_epoch(epoch: int) -> bytes:
    return _EPOCH.pack(epoch) if epoch else b""


def decode_epoch(metadata: bytes) -> int:
    """0 where there is none: offsets that were committed before the group leased messages."""
    return int(_EPOCH.unpack(metadata)[0]) if len(metadata) == _EPOCH.size else 0


def encode_span(behind: int) -> bytes:
    """The page that a span of settled pages begins with; `behind` is the first page that is not in it."""
    return bytes((_HAS_SPAN,)) + _SPAN.pack(behind)


def encode_page(mask: int, runs: list[Run]) -> bytes | None:
    """A page with these bits settled; None where there is nothing to say."""
    if not runs and not mask:
        return None
    assert 0 <= mask < 1 << PAGE_OFFSETS, "a bit for each offset of the page"
    body = b"".join([_RUN.pack(*run) for run in runs])
    return b"\x01" + mask.to_bytes(32, "little") + body if mask else b"\0" + body


def decode_page(value: bytes) -> tuple[int, int, list[Run]]:
    """Mask, the page behind a span that begins here (0: none does), runs."""
    at = 1
    mask = behind = 0
    if value[0] & _HAS_MASK:
        mask = int.from_bytes(value[1:33], "little")
        at = 33
    if value[0] & _HAS_SPAN:
        behind = int(_SPAN.unpack_from(value, at)[0])
        at += _SPAN.size
    return mask, behind, list(_RUN.iter_unpack(value[at:]))


class Lease:
    """Messages of one cursor handed out together: to one holder, until one time, for the same number of times."""

    def __init__(self, holder: Any, until_ms: int, attempt: int, offsets: list[int]) -> None:
        self.holder: Any = holder              # whose end ends the lease; None for a lease that only time ends
        self.until_ms: int = until_ms          # 0: for as long as its holder lives
        self.attempt: int = attempt            # 1 the first time
        self.offsets: list[int] = offsets      # what it was given for; nothing once it has ended
        self.left: int = 0                     # messages of it that are still out
        self._bucket: dict[Lease, Any] | None = None  # the leases whose time is up together with this one's

    def take(self, count: int) -> None:
        """So many more messages of it are out."""
        self.left += count

    def give(self, count: int) -> None:
        """So many of them are not out any more."""
        assert 0 < count <= self.left, "a message of a lease is given back once"
        self.left -= count
        if self.left <= 0:
            self.end()
            self.holder = None                 # who knows it, too: nobody need look for that circle

    def end_with(self, bucket: dict[Lease, Any]) -> None:
        """Its time is up together with that of the leases in this bucket, which it leaves when it ends."""
        self._bucket = bucket

    def end(self) -> None:
        """Nothing of it is out any more."""
        self.left = 0
        self.offsets = []
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None


class Cursor:  # decision 20
    """How far one group is in one partition: what is settled, leased, waiting or ready again. `partition_id` is what it
    reads, `group` what it reads for ("" for a queue's own).

    `topic_id` says whose partition it is (0: a queue's); handles of another `epoch` are void.
    """

    def __init__(self, partition_id: int, group: str, committed: int, topic_id: int = 0, epoch: int = 0) -> None:
        self.partition_id: int = partition_id
        self.group: str = group
        self.topic_id: int = topic_id
        self.epoch: int = epoch
        self.key: Key = (partition_id, epoch, group)
        self.committed: int = committed
        self.next: int = committed
        self.moved: int = 0                               # counts resets: work begun before one is void
        self._settled: dict[int, int] = {}  # page: bits of settled offsets, where any is above the committed
        self._spans: list[Stretch] = []                   # pages, first and behind the last, of which all is settled
        self._beyond: int = 0                             # settled offsets above the committed
        self._out: dict[int, Lease] = {}
        self._waiting: dict[int, int] = {}                # offset: not before this time (ms)
        self._tries: dict[int, int] = {}                  # offset: how often it was leased, for those not leased now
        self._again: list[int] = []                       # ready again, a heap
        self._dirty: set[int] = set()
        self._stored: set[int] = set()                    # pages that have a record
        self._stored_committed: int = committed
        self._followed: int = 0                           # who follows it, by a number of his; 0: nobody does
        self._changes: list[int] = []                     # offsets that were leased, given back or settled since
        self._changes_lost: bool = False                  # there were more of them, or whole stretches

    # ---- who follows what becomes of single messages

    def follow(self) -> int:
        """Note from now on what `changes` tells; whoever followed it before is told nothing any more."""
        self._followed += 1
        self._changes = []
        self._changes_lost = True
        return self._followed

    def changes(self, follower: int) -> list[int] | None:
        """Offsets that may have been leased, given back or settled since the last call; None: any may. `follower` is
        what `follow` gave."""
        if follower != self._followed:
            return None
        changes, lost = self._changes, self._changes_lost
        self._changes = []
        self._changes_lost = False
        return None if lost else changes

    def _note_changes(self, offsets: Sequence[int]) -> None:
        if self._followed and not self._changes_lost:
            self._changes.extend(offsets)
            if len(self._changes) > CHANGES_MAX:
                self._lose_changes()

    def _lose_changes(self) -> None:
        self._changes = []
        self._changes_lost = True

    # ---- taking

    def take_again(self, count: int) -> list[int]:
        """Offsets that are ready again, lowest first; they are in hand now."""
        offsets: list[int] = []
        again = self._again
        while again and len(offsets) < count:
            offsets.append(heappop(again))
        return offsets

    def take_to(self, stop: int) -> None:
        """Everything before this offset that nobody has had is in hand now."""
        if self.next < stop:
            self.next = stop

    def lease(self, lease: Lease) -> None:
        """Its offsets are in hand and are leased from now on."""
        offsets = lease.offsets
        assert offsets and min(offsets) >= self.committed and max(offsets) < self.next, "what is leased is in hand"
        lease.take(len(offsets))
        self._note_changes(offsets)
        out = self._out
        tries = self._tries
        dirty = self._dirty
        page = -1
        for offset in offsets:
            out[offset] = lease
            if tries:
                tries.pop(offset, None)
            if offset >> PAGE_SHIFT != page:
                page = offset >> PAGE_SHIFT
                dirty.add(page)

    def put_back(self, offsets: list[int]) -> None:
        """These were in hand and are not leased after all: ready again, with as many tries as before."""
        for offset in offsets:
            heappush(self._again, offset)

    def take_back(self, offsets: Sequence[int], gaps: Iterable[Stretch]) -> int:
        """These are to be settled wherever they are, and none is leased: in hand from now on. What lies before them
        and nobody has had is ready again, but for `gaps`, in order: there is nothing there. How much of that there
        was."""
        gone = set(offsets)
        stop = max(offsets) + 1
        passed: list[int] = []
        lost = 0
        for first, behind in [*gaps, (stop, stop)]:
            until = max(self.next, min(first, stop))
            passed += [offset for offset in range(self.next, until) if offset not in gone]
            self.next = until
            if first <= until < behind <= stop:
                lost += behind - until
                self.skip_to(behind)
        self._again = [offset for offset in self._again + passed if offset not in gone]
        heapify(self._again)
        return lost

    # ---- ending leases

    def ended(self, handles: Sequence[Handle], start: int, stop: int) -> list[int]:
        """Which handles from `start` until before `stop` name leases of this cursor that do not run any more. Text
        and pages say MAX_ATTEMPT of all attempts from there on."""
        out = self._out
        ended: list[int] = []
        for i in range(start, stop):
            handle = handles[i]
            lease = out.get(handle[1])
            if lease is None or lease.attempt != handle[2] and not lease.attempt > handle[2] == MAX_ATTEMPT:
                ended.append(i)
        return ended

    def lease_at(self, offset: int) -> Lease | None:
        """The lease of a message that is out."""
        return self._out.get(offset)

    def waits_until(self, offset: int) -> int:
        """From when on a message that waits may come again (ms); 0 where it does not wait."""
        return self._waiting.get(offset, 0)

    def is_leased(self, offset: int) -> bool:
        return offset in self._out

    def held(self, lease: Lease) -> list[int]:
        """What of a lease is still out."""
        out = self._out
        return [offset for offset in lease.offsets if out.get(offset) is lease]

    def leased_as_often(self, offsets: list[int], attempt: int) -> list[int]:
        """Those of these leased offsets that were leased this often or more."""
        out = self._out
        return [offset for offset in offsets if out[offset].attempt >= attempt]

    def attempt_of(self, offset: int) -> int:
        """How often a message was leased so far, this time included where it is leased."""
        lease = self._out.get(offset)
        return self._tries.get(offset, 0) if lease is None else lease.attempt

    @property
    def may_have_tries(self) -> bool:
        """Whether anything that is not leased now was before."""
        return len(self._tries) > 0

    def settle(self, offsets: list[int]) -> None:
        """These are done with: leased, in hand or waiting before. Offsets that are settled already do no harm."""
        self._note_changes(offsets)
        out = self._out
        dirty = self._dirty
        committed = self.committed
        page = -1
        bits = 0
        spanned = False
        last_lease: Lease | None = None
        given = 0
        for offset in offsets:
            lease = out.pop(offset, None)
            if lease is not None:
                if lease is not last_lease:
                    if last_lease is not None:
                        last_lease.give(given)
                    last_lease = lease
                    given = 0
                given += 1
            elif self._tries or self._waiting:
                self._tries.pop(offset, None)
                self._waiting.pop(offset, None)
            if offset < committed:
                continue
            if offset >> PAGE_SHIFT != page:
                if bits:
                    self._mark(page, bits)
                page = offset >> PAGE_SHIFT
                bits = 0
                spanned = len(self._spans) > 0 and self._in_span(page)
                if not spanned:
                    dirty.add(page)
            if not spanned:
                bits |= 1 << (offset & PAGE_MASK)
        if bits:
            self._mark(page, bits)
        if last_lease is not None:
            last_lease.give(given)
        self._advance()

    def skip_to(self, offset: int) -> None:
        """Nobody will have what lies between `next` and this offset."""
        assert offset >= self.next, "what was passed over stays so"
        self._lose_changes()
        if self.committed == self.next:
            self.committed = self.next = offset
            self._dirty.update(self._stored)                 # it says all that they do
            self._settled.clear()
            self._spans.clear()
            self._beyond = 0
            return
        first, last = -(-self.next >> PAGE_SHIFT), offset >> PAGE_SHIFT        # the whole pages between
        if first < last:
            self._skip_within_page(self.next, first << PAGE_SHIFT)
            self._add_span(first, last)
            self._dirty.add(first)
            self._skip_within_page(last << PAGE_SHIFT, offset)
        else:
            middle = min(offset, (self.next | PAGE_MASK) + 1)
            self._skip_within_page(self.next, middle)
            self._skip_within_page(middle, offset)
        self.next = offset

    def _skip_within_page(self, start: int, stop: int) -> None:
        if start < stop:
            self._dirty.add(start >> PAGE_SHIFT)
            self._mark(start >> PAGE_SHIFT, (1 << (stop - start)) - 1 << (start & PAGE_MASK))

    def _add_span(self, first: int, stop: int) -> None:  # decision 116
        """Everything in these pages is settled. Nothing of them was known before, and the committed is not behind
        them."""
        assert first < stop and first << PAGE_SHIFT >= self.committed, "a span has pages, above the committed"
        insort(self._spans, (first, stop))
        self._beyond += stop - first << PAGE_SHIFT

    def _mark(self, page: int, bits: int) -> None:
        before = self._settled.get(page, 0)
        self._settled[page] = before | bits
        self._beyond += (bits & ~before).bit_count()

    def _advance(self) -> None:
        """The committed is the first offset that is not settled."""
        settled = self._settled
        committed = self.committed
        while True:
            page = committed >> PAGE_SHIFT
            mask = settled.get(page)
            if mask is None:
                if not self._spans or self._spans[0][0] != page:
                    break
                stop = self._spans.pop(0)[1]
                self._beyond -= stop - page << PAGE_SHIFT
                self._dirty.add(page)
                committed = stop << PAGE_SHIFT
                continue
            rest = mask >> (committed & PAGE_MASK)
            count = (~rest & (rest + 1)).bit_length() - 1
            committed += count
            self._beyond -= count
            if committed >> PAGE_SHIFT == page:
                if not mask >> (committed & PAGE_MASK):        # nothing settled above the committed in its page
                    del settled[page]
                break
            del settled[page]
            self._dirty.add(page)                           # it may have a record, which nobody needs any more
        assert committed >= self.committed and self._beyond >= 0, "the committed never falls, and counts what it passes"
        self.committed = committed
        if self.next < committed:
            self.next = committed

    def release(self, offsets: list[int], not_before_ms: int) -> None:
        """End the leases of these: ready again at once (0), or from a time on."""
        self.doom(offsets)
        for offset in offsets:
            if not_before_ms:
                self._waiting[offset] = not_before_ms
            else:
                heappush(self._again, offset)

    def doom(self, offsets: list[int]) -> None:
        """End the leases of these for good: in hand until they are settled, ready again should the hub end."""
        self._note_changes(offsets)
        for offset in offsets:
            lease = self._out.pop(offset)
            lease.give(1)
            self._tries[offset] = lease.attempt
            self._dirty.add(offset >> PAGE_SHIFT)

    def unlease(self, offsets: list[int]) -> None:
        """Nobody has had these after all: ready again, with as many tries as before they were leased."""
        self._note_changes(offsets)
        for offset in offsets:
            lease = self._out.pop(offset)
            lease.give(1)
            if lease.attempt > 1:
                self._tries[offset] = lease.attempt - 1
            self._dirty.add(offset >> PAGE_SHIFT)
            heappush(self._again, offset)

    def extend(self, offsets: list[int], until_ms: int) -> list[Lease]:
        """These are out: as often as they are, and until this time. The leases that they have now."""
        by_attempt: dict[int, list[int]] = {}
        for offset in offsets:
            by_attempt.setdefault(self._out[offset].attempt, []).append(offset)
        leases = [Lease(None, until_ms, attempt, of_attempt) for attempt, of_attempt in by_attempt.items()]
        for lease in leases:
            for offset in lease.offsets:
                self._out[offset].give(1)
                self._out[offset] = lease
                self._dirty.add(offset >> PAGE_SHIFT)
            lease.take(len(lease.offsets))
        return leases

    def wake(self, offset: int, not_before_ms: int) -> bool:
        """The time of one that waits has come. False where it waits no longer, or for another time."""
        if self._waiting.get(offset) != not_before_ms:
            return False
        del self._waiting[offset]
        heappush(self._again, offset)
        self._dirty.add(offset >> PAGE_SHIFT)
        return True

    # ---- looking

    def is_settled(self, offset: int) -> bool:
        return offset < self.committed or bool(self._settled.get(offset >> PAGE_SHIFT, 0) >> (offset & PAGE_MASK) & 1) \
            or len(self._spans) > 0 and self._in_span(offset >> PAGE_SHIFT)

    def _in_span(self, page: int) -> bool:
        at = bisect_right(self._spans, (page, NO_PAGE)) - 1
        return at >= 0 and page < self._spans[at][1]

    def _span_from(self, page: int) -> int:
        """The page behind the span that begins with this page; 0 where none does."""
        at = bisect_right(self._spans, (page, NO_PAGE)) - 1
        return self._spans[at][1] if at >= 0 and self._spans[at][0] == page else 0

    @property
    def first_again(self) -> int:
        """The lowest offset that is ready again; -1 where none is."""
        return self._again[0] if self._again else -1

    @property
    def again_count(self) -> int:
        """Messages that are ready again."""
        return len(self._again)

    @property
    def leased_count(self) -> int:
        """Messages that are leased."""
        return len(self._out)

    @property
    def waiting_count(self) -> int:
        """Messages that wait for a time."""
        return len(self._waiting)

    @property
    def settled_ahead(self) -> int:
        """Settled offsets above the committed."""
        return self._beyond

    @property
    def rests(self) -> bool:
        """Whether nothing of it is known that its committed offset does not say, and that is stored."""
        return not (self._out or self._tries or self._again or self._settled or self._dirty or self._stored
                    or self.next > self.committed or self.committed != self._stored_committed)

    def leased_offsets(self) -> list[int]:
        """What is leased, in no order."""
        return list(self._out)

    def waits(self) -> list[tuple[int, int]]:
        """(offset, not before this time) of every message that waits."""
        return list(self._waiting.items())

    def ready(self, end: int) -> int:
        """Messages that could be leased now; `end` is the partition's next offset."""
        return max(0, end - self.next) + len(self._again)

    def passed_over(self, end: int) -> int:
        """Offsets that are settled already, and that the partition, whose next is `end`, does not have yet."""
        return max(0, self.next - end)

    def unsettled_stretches(self, start: int, stop: int) -> list[Stretch]:
        """The offsets in [start, stop) that are not settled, as (first, behind the last). Looks at nothing but pages
        in which something is settled."""
        stretches: list[Stretch] = []
        at = max(start, self.committed)
        page_ranges = [*self._spans, *[(page, page) for page in self._settled]]
        page_ranges.sort()
        for first, behind in page_ranges:
            base = first << PAGE_SHIFT
            if base >= stop:
                break
            if first < behind:                                       # a span
                if at < base:
                    stretches.append((at, base))
                at = max(at, behind << PAGE_SHIFT)
                continue
            end = min(stop, base + PAGE_OFFSETS)
            if end <= at:
                continue
            if at < base:
                stretches.append((at, base))
                at = base
            stretches += [(offset, offset + 1) for offset in range(at, end) if not self.is_settled(offset)]
            at = end
        if at < stop:
            stretches.append((at, stop))
        return stretches

    def _unsettled(self, start: int, stop: int) -> list[int]:
        """The offsets in [start, stop) that are not settled, one by one."""
        return [offset for first, behind in self.unsettled_stretches(start, stop) for offset in range(first, behind)]

    def settled_stretches(self) -> list[Stretch]:
        """What is settled above the committed, in no order."""
        stretches = [(first << PAGE_SHIFT, behind << PAGE_SHIFT) for first, behind in self._spans]
        for page, mask in self._settled.items():
            base = page << PAGE_SHIFT
            if base < self.committed:
                mask &= -1 << (self.committed - base)
            while mask:
                first = (mask & -mask).bit_length() - 1
                count = (~(mask >> first) & ((mask >> first) + 1)).bit_length() - 1
                mask &= -1 << (first + count)
                stretches.append((base + first, base + first + count))
        return stretches

    # ---- what is stored

    def seal(self) -> tuple[bool, list[tuple[int, bytes | None]]]:
        """What has changed since it was stored, for the frame that stores it: whether the committed offset (or the
        epoch) has; and the changed pages, None for one that is to be deleted."""
        assert self.committed <= self.next, "nobody had what comes after the next"
        has_moved = self.committed != self._stored_committed
        self._stored_committed = self.committed
        pages: list[tuple[int, bytes | None]] = []
        for page in self._dirty:
            value = self.page_record(page)
            if value is not None:
                self._stored.add(page)
            elif page in self._stored:
                self._stored.discard(page)
            else:
                continue
            pages.append((page, value))
        self._dirty = set()
        return has_moved, pages

    def write_committed(self) -> None:
        """The next `seal` says the committed offset, wherever it stood."""
        self._stored_committed = -1

    @property
    def stored_pages(self) -> list[int]:
        """Pages that have a record, once what was sealed is durable."""
        return list(self._stored)

    def page_record(self, page: int) -> bytes | None:  # decision 21
        """The record of a page; None where the committed offset says it all."""
        start = max(page << PAGE_SHIFT, self.committed)
        stop = min((page + 1) << PAGE_SHIFT, self.next)
        behind = self._span_from(page) if self._spans else 0
        if behind:
            assert behind > page, "a span goes on"
            return encode_span(behind)
        if stop <= start:
            return None
        return encode_page(self._settled.get(page, 0), self._runs(start, stop))

    def _runs(self, start: int, stop: int) -> list[Run]:
        """What is leased, waits or is ready again after it was leased, within one page."""
        out = self._out
        tries = self._tries
        waiting = self._waiting
        runs: list[Run] = []
        if not out and not tries:
            return runs
        first = -1
        state = 0
        attempt = 0
        time_ms = 0
        last_lease: Lease | None = None
        for offset in range(start, stop):
            lease = out.get(offset)
            if lease is not None and lease is last_lease:
                continue
            new_state = 0
            new_attempt = 0
            new_time = 0
            if lease is not None:
                new_state = LEASED_UNTIL if lease.until_ms else LEASED_BY_HOLDER
                new_attempt = min(lease.attempt, MAX_ATTEMPT)
                new_time = lease.until_ms
            elif tries and offset in tries:
                new_attempt = min(tries[offset], MAX_ATTEMPT)
                new_time = waiting.get(offset, 0)
                new_state = WAITING if new_time else READY_AGAIN
            last_lease = lease
            if new_state == state and new_attempt == attempt and new_time == time_ms:
                continue
            if state:
                runs.append((first & PAGE_MASK, (offset - 1) & PAGE_MASK, state, attempt, time_ms))
            first = offset
            state = new_state
            attempt = new_attempt
            time_ms = new_time
        if state:
            runs.append((first & PAGE_MASK, (stop - 1) & PAGE_MASK, state, attempt, time_ms))
        return runs

    def load(self, pages: Iterable[tuple[int, bytes]], end: int) -> list[Lease]:
        """Take every stored page into a cursor of which only the committed offset is known; the leases that run on.

        `end` is the partition's next offset: a record can be older than a topic that was made anew.
        """
        self._lose_changes()
        running: list[Lease] = []
        for page, value in sorted(pages):
            running += self._load_page(page, value, end)
        if self.next > self.committed:         # of what nothing is known was in hand when the hub ended
            self._load_again([offset for offset in self._unsettled(self.committed, self.next)
                              if offset not in self._out and offset not in self._tries])
        return running

    def _load_page(self, page: int, value: bytes, end: int) -> list[Lease]:
        base = page << PAGE_SHIFT
        self._stored.add(page)
        mask, behind, runs = decode_page(value)
        if self.committed > base:
            mask &= -1 << min(self.committed - base, PAGE_OFFSETS)
        if mask:
            self._settled[page] = mask
            self._beyond += mask.bit_count()
            self.next = max(self.next, min(end, base + mask.bit_length()))
        if behind:
            first_page = max(page, -(-self.committed >> PAGE_SHIFT))
            if first_page < behind and behind << PAGE_SHIFT <= end:
                self._add_span(first_page, behind)
                self.next = max(self.next, behind << PAGE_SHIFT)
        running: list[Lease] = []
        for first, last, state, attempt, time_ms in runs:
            offsets = [offset for offset in range(base + first, base + last + 1)
                       if self.committed <= offset < end and not self.is_settled(offset)]
            if not offsets:
                continue
            self.next = max(self.next, offsets[-1] + 1)
            if state == LEASED_UNTIL:
                lease = Lease(None, time_ms, attempt, offsets)
                lease.take(len(offsets))
                self._out.update(dict.fromkeys(offsets, lease))
                running.append(lease)
                continue
            for offset in offsets:
                self._tries[offset] = attempt
                if state == WAITING:
                    self._waiting[offset] = time_ms
            if state != WAITING:
                self._load_again(offsets)
        return running

    def _load_again(self, offsets: list[int]) -> None:
        """Ready again after a start."""
        self._again += offsets
        heapify(self._again)

    def restore(self, committed: int, pages: Iterable[tuple[int, bytes]], end: int) -> tuple[list[Lease], list[Lease]]:
        """What was not stored is undone: as at a start, but what members hold stays with them. The leases that run on
        until a time, and those of members."""
        held = {offset: lease for offset, lease in self._out.items() if lease.holder is not None}
        spans = list(self._spans)
        self.reset(committed)
        self._dirty = set()
        self._stored = set()
        self._stored_committed = committed
        running = self.load(pages, end)
        self._hold({offset: lease for offset, lease in held.items() if not self.is_settled(offset)}, spans)
        held_leases = list(dict.fromkeys(held.values()))
        assert all(lease.left <= len(lease.offsets) for lease in held_leases), "a lease is of what is out, at most"
        return [lease for lease in running if lease.left], [lease for lease in held_leases if lease.left]

    def _hold(self, leases: dict[int, Lease], spans: list[Stretch]) -> None:
        """These are with their holders still. `spans` were known before: nothing is there."""
        if not leases:
            return
        self._lose_changes()
        for offset, lease in leases.items():
            before = self._out.get(offset)
            if before is not None:
                before.give(1)
            lease.take(1)
            lease.offsets.append(offset)
            self._tries.pop(offset, None)
            self._waiting.pop(offset, None)
        self._out.update(leases)
        stop = max(leases) + 1
        for span in spans:
            if self.next <= span[0] << PAGE_SHIFT and span[1] << PAGE_SHIFT <= stop:
                self._add_span(span[0], span[1])
                self._dirty.add(span[0])
        passed = self._unsettled(self.next, stop)
        self.next = max(self.next, stop)
        assert all(self.committed <= offset < self.next for offset in leases), "what is held is not settled"
        self._again = [offset for offset in self._again + passed if offset not in leases]
        heapify(self._again)

    # ---- starting anew

    def reset(self, committed: int) -> None:
        """Go on from `committed`, forward or back: nothing from there on is settled, leased or waiting."""
        assert committed >= 0, "offsets count from 0"
        self._dirty.update(self._stored)
        self._dirty.update(self._settled)
        self._dirty.update([span[0] for span in self._spans])
        self._dirty.update([offset >> PAGE_SHIFT for offset in self._out])
        self.clear()
        self.committed = self.next = committed
        self.moved += 1

    def anew(self, committed: int, epoch: int) -> Cursor:  # decision 31
        """A cursor that goes on from `committed` in place of this one, with attempts counted anew: whatever handle
        somebody has of this one is void, and so is what was begun for it."""
        assert epoch != self.epoch, "handles of this one are void"
        self.reset(committed)
        cursor = Cursor(self.partition_id, self.group, committed, self.topic_id, epoch)
        cursor._follow(self._dirty, self._stored, self.moved)
        return cursor

    def _follow(self, dirty: set[int], stored: set[int], moved: int) -> None:
        """It takes the place of one with these pages, and is written down wherever that stood."""
        self._dirty = dirty
        self._stored = stored
        self._stored_committed = -1
        self.moved = moved

    def clear(self) -> None:
        """Nothing of it is known but where it goes on."""
        self._lose_changes()
        for lease in set(self._out.values()):
            lease.end()
        self._settled.clear()
        self._spans.clear()
        self._out.clear()
        self._waiting.clear()
        self._tries.clear()
        self._again = []
        self._beyond = 0
