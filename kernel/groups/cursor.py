"""How far one group is in one partition: what is settled, leased, waiting or ready again.

Hot, and pure: no clock, no log.

    offset < committed            settled
    committed <= offset < next    settled (a bit in its page's mask), leased, waiting for a time, ready again, or in
                                  hand: read for a member and not leased yet
    offset >= next                nobody has had it

A page is 256 offsets; pages are what is stored (see `kernel.groups.pages`). A cursor remembers which pages differ from
what is stored, and every change is made here at once: whoever calls writes the pages into the pending frame and
shows nothing of it before that frame is durable.

Whole pages that are passed over at once (nothing is there: a producer's batch claimed it, or the log lost it) are one
*span*, however many: a gap of two milliards of offsets costs what a gap of one page does.
"""
from __future__ import annotations

from bisect import bisect_right, insort
from heapq import heapify, heappop, heappush
from typing import Any, Final

PAGE_SHIFT: Final = 8
PAGE_OFFSETS: Final = 1 << PAGE_SHIFT
PAGE_MASK: Final = PAGE_OFFSETS - 1
NO_PAGE: Final = 1 << 60              # above every page


class Lease:
    """Messages of one cursor handed out together: to one holder, until one time, for the same number of times."""

    def __init__(self, holder: Any, until_ms: int, attempt: int) -> None:
        self.holder: Any = holder              # whose end ends the lease; None for a lease that only time ends
        self.until_ms: int = until_ms          # 0: for as long as its holder lives
        self.attempt: int = attempt            # 1 the first time
        self.left: int = 0                     # messages of it that are still out
        self.offsets: list[int] = []           # what it was given for
        self.bucket: dict[Lease, None] | None = None  # the leases whose time is up together with this one's
        self.prefetcher: Any = None                # the cursor's prefetcher, for whom it is when the time is up

    def end(self) -> None:
        """Nothing of it is out any more."""
        self.offsets = []
        if self.bucket is not None:
            self.bucket.pop(self, None)
            self.bucket = None


class Cursor:  # decision 20
    """See the module's text. `partition_id` is what it reads, `group` what it reads for ("" for a queue's own)."""

    def __init__(self, partition_id: int, group: str, committed: int) -> None:
        self.partition_id: int = partition_id
        self.group: str = group
        self.committed: int = committed
        self.next: int = committed
        self.settled: dict[int, int] = {}  # page: bits of settled offsets, where any is above the committed
        self.out: dict[int, Lease] = {}
        self.waiting: dict[int, int] = {}                 # offset: not before this time (ms)
        self.tries: dict[int, int] = {}                   # offset: how often it was leased, for those not leased now
        self.again: list[int] = []                        # ready again, a heap
        self.dirty: set[int] = set()
        self.stored: set[int] = set()                     # pages that have a record
        self.stored_committed: int = committed
        self.spans: list[tuple[int, int]] = []            # pages, first and behind the last, of which all is settled
        self.beyond: int = 0                              # settled offsets above the committed
        self.topic_id: int = 0                            # whose partition it is; 0: a queue's
        self.moved: int = 0                               # counts resets: work begun before one is void
        self.epoch: int = 0                               # handles of another one are void

    # ---- taking

    def take_again(self, count: int) -> list[int]:
        """Offsets that are ready again, lowest first; they are in hand now."""
        offsets: list[int] = []
        again = self.again
        while again and len(offsets) < count:
            offsets.append(heappop(again))
        return offsets

    def lease(self, offsets: list[int], lease: Lease) -> None:
        """These are in hand and are leased from now on."""
        lease.left += len(offsets)
        out = self.out
        tries = self.tries
        dirty = self.dirty
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
            heappush(self.again, offset)

    # ---- ending leases

    def holds(self, offset: int, attempt: int) -> bool:
        """Whether this very lease is still running."""
        lease = self.out.get(offset)
        return lease is not None and lease.attempt == attempt

    def settle(self, offsets: list[int]) -> None:
        """These are done with: leased, in hand or waiting before. Offsets that are settled already do no harm."""
        out = self.out
        dirty = self.dirty
        committed = self.committed
        page = -1
        bits = 0
        spanned = False
        for offset in offsets:
            lease = out.pop(offset, None)
            if lease is not None:
                lease.left -= 1
                if not lease.left:
                    lease.end()
            elif self.tries or self.waiting:
                self.tries.pop(offset, None)
                self.waiting.pop(offset, None)
            if offset < committed:
                continue
            if offset >> PAGE_SHIFT != page:
                if bits:
                    self._mark(page, bits)
                page = offset >> PAGE_SHIFT
                bits = 0
                spanned = len(self.spans) > 0 and self._in_span(page)
                if not spanned:
                    dirty.add(page)
            if not spanned:
                bits |= 1 << (offset & PAGE_MASK)
        if bits:
            self._mark(page, bits)
        self._advance()

    def skip_to(self, offset: int) -> None:
        """Nobody will have what lies between `next` and this offset."""
        if self.committed == self.next:
            self.committed = self.next = offset
            self.dirty.update(self.stored)                 # it says all that they do
            self.settled.clear()
            self.spans.clear()
            self.beyond = 0
            return
        first, last = -(-self.next >> PAGE_SHIFT), offset >> PAGE_SHIFT        # the whole pages between
        if first < last:
            self._skip_within_page(self.next, first << PAGE_SHIFT)
            self.add_span(first, last)
            self.dirty.add(first)
            self._skip_within_page(last << PAGE_SHIFT, offset)
        else:
            middle = min(offset, (self.next | PAGE_MASK) + 1)
            self._skip_within_page(self.next, middle)
            self._skip_within_page(middle, offset)
        self.next = offset

    def _skip_within_page(self, start: int, stop: int) -> None:
        if start < stop:
            self.dirty.add(start >> PAGE_SHIFT)
            self._mark(start >> PAGE_SHIFT, (1 << (stop - start)) - 1 << (start & PAGE_MASK))

    def add_span(self, first: int, stop: int) -> None:  # decision 116
        """Everything in these pages is settled. Nothing of them was known before, and the committed is not behind
        them."""
        insort(self.spans, (first, stop))
        self.beyond += stop - first << PAGE_SHIFT

    def _mark(self, page: int, bits: int) -> None:
        before = self.settled.get(page, 0)
        self.settled[page] = before | bits
        self.beyond += (bits & ~before).bit_count()

    def _advance(self) -> None:
        """The committed is the first offset that is not settled."""
        settled = self.settled
        committed = self.committed
        while True:
            page = committed >> PAGE_SHIFT
            mask = settled.get(page)
            if mask is None:
                if not self.spans or self.spans[0][0] != page:
                    break
                stop = self.spans.pop(0)[1]
                self.beyond -= stop - page << PAGE_SHIFT
                self.dirty.add(page)
                committed = stop << PAGE_SHIFT
                continue
            rest = mask >> (committed & PAGE_MASK)
            count = (~rest & (rest + 1)).bit_length() - 1
            committed += count
            self.beyond -= count
            if committed >> PAGE_SHIFT == page:
                if not mask >> (committed & PAGE_MASK):        # nothing settled above the committed in its page
                    del settled[page]
                break
            del settled[page]
            self.dirty.add(page)                           # it may have a record, which nobody needs any more
        self.committed = committed
        if self.next < committed:
            self.next = committed

    def release(self, offsets: list[int], not_before_ms: int) -> None:
        """End the leases of these: ready again at once (0), or from a time on."""
        self.doom(offsets)
        for offset in offsets:
            if not_before_ms:
                self.waiting[offset] = not_before_ms
            else:
                heappush(self.again, offset)

    def doom(self, offsets: list[int]) -> None:
        """End the leases of these for good: in hand until they are settled, ready again should the hub end."""
        for offset in offsets:
            lease = self.out.pop(offset)
            lease.left -= 1
            if not lease.left:
                lease.end()
            self.tries[offset] = lease.attempt
            self.dirty.add(offset >> PAGE_SHIFT)

    def hold(self, leases: dict[int, Lease], spans: list[tuple[int, int]]) -> None:
        """After a reload: these are with their holders still. `spans` were known before it: nothing is there."""
        if not leases:
            return
        for offset, lease in leases.items():
            before = self.out.get(offset)
            if before is not None:
                before.left -= 1
            lease.left += 1
            lease.offsets.append(offset)
            self.tries.pop(offset, None)
            self.waiting.pop(offset, None)
        self.out.update(leases)
        stop = max(leases) + 1
        for span in spans:
            if self.next <= span[0] << PAGE_SHIFT and span[1] << PAGE_SHIFT <= stop:
                self.add_span(span[0], span[1])
                self.dirty.add(span[0])
        passed = self.unsettled(self.next, stop)
        self.next = max(self.next, stop)
        self.again = [offset for offset in self.again + passed if offset not in leases]
        heapify(self.again)

    def extend(self, offsets: list[int], lease: Lease) -> None:
        """These are out and go over to another lease with the same attempt."""
        for offset in offsets:
            before = self.out[offset]
            before.left -= 1
            if not before.left:
                before.end()
            lease.left += 1
            self.out[offset] = lease
            self.dirty.add(offset >> PAGE_SHIFT)

    def wake(self, offset: int, not_before_ms: int) -> bool:
        """The time of one that waits has come. False where it waits no longer, or for another time."""
        if self.waiting.get(offset) != not_before_ms:
            return False
        del self.waiting[offset]
        heappush(self.again, offset)
        self.dirty.add(offset >> PAGE_SHIFT)
        return True

    # ---- looking

    def is_settled(self, offset: int) -> bool:
        return offset < self.committed or bool(self.settled.get(offset >> PAGE_SHIFT, 0) >> (offset & PAGE_MASK) & 1) \
            or len(self.spans) > 0 and self._in_span(offset >> PAGE_SHIFT)

    def _in_span(self, page: int) -> bool:
        at = bisect_right(self.spans, (page, NO_PAGE)) - 1
        return at >= 0 and page < self.spans[at][1]

    def span_from(self, page: int) -> int:
        """The page behind the span that begins with this page; 0 where none does."""
        at = bisect_right(self.spans, (page, NO_PAGE)) - 1
        return self.spans[at][1] if at >= 0 and self.spans[at][0] == page else 0

    def ready(self, end: int) -> int:
        """Messages that could be leased now; `end` is the partition's next offset."""
        return max(0, end - self.next) + len(self.again)

    def unsettled_stretches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The offsets in [start, stop) that are not settled, as (first, behind the last). Looks at nothing but pages
        in which something is settled."""
        stretches: list[tuple[int, int]] = []
        at = max(start, self.committed)
        page_ranges = [*self.spans, *[(page, page) for page in self.settled]]
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

    def unsettled(self, start: int, stop: int) -> list[int]:
        """The offsets in [start, stop) that are not settled, one by one."""
        return [offset for first, behind in self.unsettled_stretches(start, stop) for offset in range(first, behind)]

    # ---- starting anew

    def reset(self, committed: int) -> None:
        """Go on from `committed`, forward or back: nothing from there on is settled, leased or waiting."""
        self.dirty.update(self.stored)
        self.dirty.update(self.settled)
        self.dirty.update([span[0] for span in self.spans])
        self.dirty.update([offset >> PAGE_SHIFT for offset in self.out])
        self.clear()
        self.committed = self.next = committed
        self.moved += 1

    def anew(self, committed: int, epoch: int) -> Cursor:  # decision 31
        """A cursor that goes on from `committed` in place of this one, with attempts counted anew: whatever handle
        somebody has of this one is void, and so is what was begun for it."""
        self.reset(committed)
        cursor = Cursor(self.partition_id, self.group, committed)
        cursor.topic_id = self.topic_id
        cursor.dirty, cursor.stored = self.dirty, self.stored
        cursor.stored_committed = -1                            # written down, wherever it stood
        cursor.moved = self.moved
        cursor.epoch = epoch
        return cursor

    def clear(self) -> None:
        for lease in set(self.out.values()):
            lease.left = 0
            lease.end()
        self.settled.clear()
        self.spans.clear()
        self.out.clear()
        self.waiting.clear()
        self.tries.clear()
        self.again = []
        self.beyond = 0

    def load_again(self, offsets: list[int]) -> None:
        """Ready again after a start."""
        self.again += offsets
        heapify(self.again)
