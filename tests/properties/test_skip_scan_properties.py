"""The scan that skips finds what looking at every address finds, however it is cut into pages."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.addresses.filters import matches
from gatehouse.kernel.addresses.skip_scan import SkipScan, address_of, join_levels
from gatehouse.kernel.state.store import SortedCursor

LEVELS = st.sampled_from(["", "a", "b", "ab", "\x01", "!", "é", "$x", "temp"])
ADDRESSES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(bool)
FILTERS = st.lists(st.one_of(LEVELS, st.sampled_from(["+", "#"])), min_size=1, max_size=5).map("/".join).filter(bool)


@given(st.sets(ADDRESSES, max_size=60), FILTERS, st.integers(1, 9), st.integers(1, 50))
def test_the_same_as_looking_at_all(addresses: set[str], filter_text: str, page: int, steps: int) -> None:
    prefix = b"tenant\0"
    others = [b"tenan\0a", b"tenant", b"tenant2\0a", b"tenant\x01a"]
    keys = sorted([prefix + join_levels(address) for address in addresses] + others)
    pattern = tuple(filter_text.split("/"))
    expected = [key for key in keys if key.startswith(prefix)
                and matches(pattern, tuple(address_of(key[len(prefix):]).split("/")))]
    scan = SkipScan(prefix, pattern)
    found: list[bytes] = []
    start: bytes | None = prefix
    for _ in range(2_000):
        if start is None:
            break
        got = 0
        for key in scan.matches(SortedCursor(keys, {}), start, steps):
            found.append(key)
            got += 1
            if got == page:
                break
        start = scan.reached
    assert start is None, "it comes to an end"
    assert found == expected


@given(ADDRESSES)
def test_an_address_comes_back(address: str) -> None:
    assert address_of(join_levels(address)) == address


def test_what_cannot_match_is_not_looked_at() -> None:
    keys = sorted(join_levels(f"plant/{line}/{name}") for line in range(100) for name in range(100))

    class Counting(SortedCursor):
        steps = 0

        def next(self) -> bytes | None:
            self.steps += 1
            return super().next()

        def seek(self, key: bytes) -> bytes | None:
            self.steps += 1
            return super().seek(key)

    cursor = Counting(keys, {})
    assert len(list(SkipScan(b"", ("plant", "+", "50")).matches(cursor, b"", 10_000))) == 100
    assert cursor.steps < 1_200, "some twelve for each line, not a hundred"
    cursor = Counting(keys, {})
    assert len(list(SkipScan(b"", ("plant", "7", "#")).matches(cursor, b"", 10_000))) == 100
    assert cursor.steps < 120
