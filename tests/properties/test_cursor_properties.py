"""A cursor and its pages against a dictionary that says of every offset what it is."""
from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.kernel.groups.cursor import PAGE_OFFSETS, PAGE_SHIFT, Cursor, Lease

END = 6 * PAGE_OFFSETS
PARTITION_ID = 7
MAX_UNTIL_MS = 10_000


@dataclass
class Known:
    """One offset: what it is, and how often it was leased."""

    state: str = "fresh"            # fresh, in hand, leased, waiting, again, settled
    tries: int = 0
    until_ms: int = 0               # of a lease (0: a holder's) or a wait


class PlainLine:
    """A cursor beside the plain truth about it, and the records that a log would hold."""

    def __init__(self, committed: int) -> None:
        self.cursor = Cursor(PARTITION_ID, "group", committed)
        self.first = committed
        self.known = {offset: Known() for offset in range(committed, END)}
        self.records: dict[int, bytes] = {}
        self.stored_committed = committed

    def of(self, state: str) -> list[int]:
        return [offset for offset, known in self.known.items() if known.state == state]

    # ---- what a group does with a cursor

    def lease(self, count: int, until_ms: int) -> None:
        """Ready ones first, then fresh ones."""
        again = self.cursor.take_again(count)
        assert again == sorted(self.of("again"))[:count]
        fresh = self.of("fresh")[:count - len(again)]
        if fresh:
            self.cursor.take_to(fresh[-1] + 1)
        for tries in sorted({self.known[offset].tries for offset in again + fresh}):
            offsets = [offset for offset in again + fresh if self.known[offset].tries == tries]
            self.cursor.lease(Lease(None if until_ms else self, until_ms, tries + 1, offsets))
            for offset in offsets:
                self.known[offset] = Known("leased", tries + 1, until_ms)

    def take_in_hand(self, count: int) -> None:
        for offset in self.cursor.take_again(count):
            self.known[offset].state = "in hand"

    def put_back(self) -> None:
        offsets = self.of("in hand")
        self.cursor.put_back(offsets)
        for offset in offsets:
            self.known[offset].state = "again"

    def settle(self, offsets: list[int]) -> None:
        """Those of them that a group may settle: leased, in hand, settled before."""
        mine = [offset for offset in offsets if self.known[offset].state in ("leased", "in hand", "settled")]
        self.cursor.settle(mine)
        for offset in mine:
            self.known[offset] = Known("settled")

    def release(self, offsets: list[int], not_before_ms: int) -> None:
        mine = [offset for offset in offsets if self.known[offset].state == "leased"]
        self.cursor.release(mine, not_before_ms)
        for offset in mine:
            self.known[offset] = Known("waiting" if not_before_ms else "again", self.known[offset].tries, not_before_ms)

    def doom(self, offsets: list[int]) -> None:
        mine = [offset for offset in offsets if self.known[offset].state == "leased"]
        self.cursor.doom(mine)
        for offset in mine:
            self.known[offset] = Known("in hand", self.known[offset].tries)

    def extend(self, offsets: list[int], until_ms: int) -> None:
        mine = [offset for offset in offsets if self.known[offset].state == "leased"]
        leases = self.cursor.extend(mine, until_ms)
        assert {(lease.attempt, tuple(lease.offsets)) for lease in leases} == {
            (tries, tuple([offset for offset in mine if self.known[offset].tries == tries]))
            for tries in {self.known[offset].tries for offset in mine}}
        for offset in mine:
            self.known[offset].until_ms = until_ms

    def wake(self, now_ms: int) -> None:
        for offset in self.of("waiting"):
            when_ms = self.known[offset].until_ms
            assert not self.cursor.wake(offset, when_ms + 1)
            if when_ms <= now_ms:
                assert self.cursor.wake(offset, when_ms)
                self.known[offset] = Known("again", self.known[offset].tries)

    def skip(self, count: int) -> None:
        """Retention has overtaken what is fresh."""
        to = min(END, self.cursor.next + count)
        for offset in self.of("fresh"):
            if offset < to:
                self.known[offset] = Known("settled")
        self.cursor.skip_to(to)

    # ---- the log

    def store(self) -> None:
        """What a frame would take along."""
        has_moved, pages = self.cursor.seal()
        assert has_moved == (self.cursor.committed != self.stored_committed)
        for page, value in pages:
            if value is None:
                del self.records[page]
            else:
                self.records[page] = value
        self.stored_committed = self.cursor.committed

    def restart(self) -> None:
        self.store()
        self.cursor = Cursor(PARTITION_ID, "group", self.stored_committed)
        self.cursor.load(self.records.items(), END)
        for offset, known in self.known.items():
            if known.state == "in hand" or known.state == "leased" and not known.until_ms:
                known.state = "again"
            if known.state == "again" and offset >= self.cursor.next:
                assert not known.tries
                known.state = "fresh"

    # ---- whether they agree

    def check(self) -> None:
        cursor, known = self.cursor, self.known
        settled = set(self.of("settled"))
        open_offsets = [offset for offset in known if offset not in settled]
        assert cursor.committed == min(open_offsets, default=END)
        assert [cursor.is_settled(offset) for offset in known] == [offset in settled for offset in known]
        assert cursor.settled_ahead == sum(offset > cursor.committed for offset in settled)
        assert {offset: (lease.attempt, lease.until_ms) for offset, lease in cursor._out.items()} == \
            {offset: (known[offset].tries, known[offset].until_ms) for offset in self.of("leased")}
        assert sorted(cursor._again) == self.of("again")
        assert cursor._waiting == {offset: known[offset].until_ms for offset in self.of("waiting")}
        for lease in set(cursor._out.values()):
            assert lease.left == sum(one is lease for one in cursor._out.values())
        for offset in self.of("waiting") + self.of("again") + self.of("in hand"):
            assert cursor._tries.get(offset, 0) == known[offset].tries, offset
        assert set(cursor._tries) <= set(self.of("waiting") + self.of("again") + self.of("in hand"))
        assert cursor._stored == set(self.records)
        assert {page for page in self.records if page not in cursor._dirty} <= {
            page for page in range(END >> PAGE_SHIFT) if (page + 1) << PAGE_SHIFT > cursor.committed}


some_pages = st.integers(0, 5).map(lambda page: list(range(page << PAGE_SHIFT, (page + 1) << PAGE_SHIFT)))
some_offsets = st.one_of(
    some_pages,
    st.lists(st.integers(0, END - 1), max_size=20, unique=True),
    st.tuples(st.integers(0, END - 1), st.integers(1, 400)).map(lambda of: list(range(of[0], min(END, sum(of))))),
    st.tuples(st.integers(0, 300), st.integers(1, 7)).map(lambda of: list(range(of[0], END, of[1]))))
some_times = st.integers(1, MAX_UNTIL_MS)
some_step = st.one_of(
    st.tuples(st.just("lease"), st.sampled_from([1, 3, 40, 300, END]), st.one_of(st.just(0), some_times)),
    st.tuples(st.just("take_in_hand"), st.integers(1, 50)),
    st.tuples(st.just("put_back")),
    st.tuples(st.just("settle"), some_offsets),
    st.tuples(st.just("settle"), some_pages),
    st.tuples(st.just("release"), some_offsets, st.one_of(st.just(0), some_times)),
    st.tuples(st.just("doom"), some_offsets),
    st.tuples(st.just("extend"), some_offsets, some_times),
    st.tuples(st.just("wake"), some_times),
    st.tuples(st.just("skip"), st.one_of(st.integers(1, 400), st.integers(400, END))),
    st.tuples(st.just("store")), st.tuples(st.just("restart")))
some_steps = st.tuples(st.sampled_from([[], [("lease", END, 0)], [("lease", END, MAX_UNTIL_MS)]]),
                       st.lists(some_step, max_size=25)).map(lambda parts: parts[0] + parts[1])


@settings(max_examples=300, deadline=None)
@given(committed=st.integers(0, 400), steps=some_steps)
def test_a_line_is_what_a_dictionary_says_it_is(committed: int, steps: list[tuple[str, object]]) -> None:
    plain = PlainLine(committed)
    for verb, *numbers in steps:
        if numbers and isinstance(numbers[0], list):
            numbers[0] = [offset for offset in numbers[0] if offset >= committed]
        getattr(plain, verb)(*numbers)
        plain.check()
    plain.restart()
    plain.check()


@settings(max_examples=200, deadline=None)
@given(committed=st.integers(0, 400), steps=some_steps)
def test_a_line_that_is_settled_leaves_no_pages(committed: int, steps: list[tuple[str, object]]) -> None:
    plain = PlainLine(committed)
    for verb, *numbers in steps:
        if numbers and isinstance(numbers[0], list):
            numbers[0] = [offset for offset in numbers[0] if offset >= committed]
        getattr(plain, verb)(*numbers)
    plain.wake(MAX_UNTIL_MS)
    plain.lease(END, 0)
    plain.settle(plain.of("leased") + plain.of("in hand"))
    plain.store()
    assert (plain.cursor.committed, plain.cursor._settled, plain.cursor._out, plain.cursor._tries) == (END, {}, {}, {})
    assert (plain.records, plain.cursor._stored) == ({}, set())
