"""Which of many sorted addresses match a filter, without looking at all of them. Pure.

A key is a prefix and an address whose levels are joined by NUL, which no address holds: NUL sorts before everything
else, so keys sort level by level, and all that lies below `plant/line1` lies between `plant NUL line1 NUL` and
`plant NUL line1 \\x01`. Where a key does not match, the next one that could is known from the levels alone, and the
scan goes there: `plant/+/temp` costs a few steps per line, whatever else the lines hold. From a MANY in mid-filter on
every key is looked at.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from gatehouse.kernel.addresses.filters import MANY, ONE, matches
from gatehouse.kernel.errors import InvalidAddress

NUL: Final = b"\0"
ABOVE_NUL: Final = b"\x01"
ABOVE_DOLLAR: Final = b"%"             # the character after `$`
MAX_KEY_BYTES: Final = (1 << 16) - 1   # of a state record
STEPS_BEFORE_SEEK: Final = 4           # a step costs a tenth of a seek


class SortedKeys(Protocol):
    """Sorted keys; see `kernel.state.store.StoreCursor`."""

    def seek(self, key: bytes) -> bytes | None: ...

    def next(self) -> bytes | None: ...


def retained_key(tenant: str, address: str) -> bytes:
    """The key of an address's retained value: tenant, NUL, its levels. Raises InvalidAddress for one that is too
    long."""
    key = tenant.encode() + NUL + join_levels(address)
    if len(key) > MAX_KEY_BYTES:
        raise InvalidAddress(f"an address of {len(key)} bytes with its tenant is too long to retain a value")
    return key


def join_levels(address: str) -> bytes:
    """An address as the rest of a key."""
    return address.encode().replace(b"/", NUL)


def address_of(levels: bytes) -> str:
    """The inverse of `join_levels`."""
    return levels.replace(NUL, b"/").decode()


class SkipScan:
    """One filter over the keys that begin with a prefix."""

    def __init__(self, prefix: bytes, pattern: tuple[str, ...]) -> None:
        self._prefix = prefix
        self._text = pattern
        self._pattern = [level.encode() for level in pattern]
        self._one, self._many = ONE.encode(), MANY.encode()
        self.reached: bytes | None = None
        """Where to go on: no key before this one matches that has not been given. None: there are no more."""

    def matches(self, keys: SortedKeys, start: bytes, steps: int) -> Iterator[bytes]:
        """The matching keys from `start` on, in order, after at most so many steps; `reached` is true at each."""
        key = keys.seek(max(start, self._prefix))
        size = len(self._prefix)
        while key is not None and key.startswith(self._prefix):
            self.reached = key
            if steps <= 0:
                return
            target = self._next_possible(key[size:].split(NUL))
            steps -= 1
            if target == b"":
                self.reached = key + NUL
                yield key
            if target is None:
                break
            key, used = _go(keys, self._prefix + target)
            steps -= used
        self.reached = None

    def _next_possible(self, levels: list[bytes]) -> bytes | None:
        """The least rest of a key after this one that could match; b"" if this one does, None if none does."""
        pattern, one_level, many = self._pattern, self._one, self._many
        if levels[0].startswith(b"$") and pattern[0] in (one_level, many):
            return ABOVE_DOLLAR
        for i, wanted in enumerate(pattern):
            if wanted == many:
                return self._below_many(levels, i)
            if i == len(levels):
                return NUL.join([*levels, b"" if wanted == one_level else wanted])
            if wanted not in (one_level, levels[i]):
                if levels[i] < wanted:
                    return NUL.join([*levels[:i], wanted])
                return self._after(levels, i)
        if len(levels) == len(pattern):
            return b""
        return self._after(levels, len(pattern))

    def _below_many(self, levels: list[bytes], i: int) -> bytes:
        if i == len(self._pattern) - 1 or matches(self._text, tuple(NUL.join(levels).decode().split("\0"))):
            return b""
        return NUL.join(levels) + NUL

    def _after(self, levels: list[bytes], i: int) -> bytes | None:
        """What comes after all keys that share the levels up to the last ONE before level `i`."""
        for at in range(i - 1, -1, -1):
            if self._pattern[at] == self._one:
                return NUL.join(levels[:at + 1]) + ABOVE_NUL
        return None


def _go(keys: SortedKeys, target: bytes) -> tuple[bytes | None, int]:
    """The first key at or above a target that lies ahead (b"" at the end of it: the next key), and the steps taken."""
    for steps in range(STEPS_BEFORE_SEEK):
        key = keys.next()
        if key is None or key >= target:
            return key, steps
    return keys.seek(target), STEPS_BEFORE_SEEK
