"""How much may be stored of a tenant or in a topic: what the kernel knows of it, looked up now and then, and what was
taken since. Pure.

    a look begins      what was taken up to here is in what it finds, or on its way there
    a look ends        what is there is known; only what was taken since it began is added

So nothing is looked up per message, and what retention frees is free at the next look.
"""
# decision 253: what is stored is looked up now and then, and what was taken since is added
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gatehouse.gateways.admission.limits.meter import Meter
    from gatehouse.kernel.api import HubPort
    from gatehouse.kernel.state.topics import Topic

NO_BOUND: Final = 1 << 62


class StoredBound:
    """How much may be stored of one tenant or topic, as one limit says, and how much is."""

    __slots__ = ("_began", "_found", "_most", "_since", "is_looking")

    def __init__(self, messages: int | None, size_bytes: int | None) -> None:
        self._most = _most(messages, size_bytes)
        self._found = (0, 0)
        self._since = (0, 0)
        self._began = (0, 0)
        self.is_looking = False
        """Whether a look has begun and not ended."""

    def change(self, messages: int | None, size_bytes: int | None) -> None:
        """Other bounds from now on."""
        self._most = _most(messages, size_bytes)

    @property
    def counts_bytes(self) -> bool:
        """Whether a look is to find the bytes too, which the index knows and not memory alone."""
        return self._most[1] < NO_BOUND

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be stored."""
        return any(held >= most for held, most in zip(self.held(), self._most, strict=True))

    def add(self, messages: int, size_bytes: int) -> None:
        """So much was taken."""
        self._since = self._since[0] + messages, self._since[1] + size_bytes

    def begin_look(self) -> None:
        """Somebody looks from here on."""
        self._began = self._since
        self.is_looking = True

    def end_look(self, messages: int, size_bytes: int) -> None:
        """So much is stored."""
        self._found = messages, size_bytes
        self._since = self._since[0] - self._began[0], self._since[1] - self._began[1]
        self._began = (0, 0)
        self.is_looking = False

    def held(self) -> tuple[int, int]:
        """How many messages and bytes there are, about."""
        return self._found[0] + self._since[0], self._found[1] + self._since[1]

    def left(self) -> tuple[int | None, int | None]:
        """What is left of each that is bounded, for people; below 0: so much is too much."""
        held, most = self.held(), self._most
        return (most[0] - held[0] if most[0] < NO_BOUND else None, most[1] - held[1] if most[1] < NO_BOUND else None)

    def room(self) -> tuple[int, int]:
        """How much more may be stored; 0: nothing."""
        held = self.held()
        return max(0, self._most[0] - held[0]), max(0, self._most[1] - held[1])


def look_at(meter: Meter, topics: Iterable[Topic], kernel: HubPort) -> None:
    """Find what these topics hold: of each, one copy of what the kernel knows of all its partitions. Bytes are those
    that the index knows, found on another thread."""
    stored = meter.stored
    if stored is None or stored.is_looking:
        return
    stored.begin_look()
    messages = 0
    partition_ids: list[int] = []
    for topic in topics:
        bounds = kernel.bounds_of(topic)
        messages += sum(bounds[1::2]) - sum(bounds[::2])
        if stored.counts_bytes:
            partition_ids += topic.partition_ids()
    if not stored.counts_bytes:
        stored.end_look(messages, 0)
        return
    kernel.sizes(partition_ids, partial(_on_sizes, stored, messages))


def _on_sizes(stored: StoredBound, messages: int, sizes: list[int]) -> None:
    stored.end_look(messages, sum(sizes))


def _most(messages: int | None, size_bytes: int | None) -> tuple[int, int]:
    return NO_BOUND if messages is None else messages, NO_BOUND if size_bytes is None else size_bytes
