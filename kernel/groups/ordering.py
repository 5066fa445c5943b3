"""Groups that keep the order of keys: one message of a key at a time, others of its key wait behind it."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gatehouse.kernel.groups.policy import Policy
from gatehouse.kernel.message import Leased
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.core import Core
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.prefetcher import Prefetcher, Verdict


class KeyOrder:
    """Of one cursor: which message has a key, and which ones wait for it. Keeps offsets alone."""

    def __init__(self) -> None:
        self._holder: dict[bytes, int] = {}              # key: the offset that has it
        self._key_of: dict[int, bytes] = {}
        self._waiting: dict[bytes, list[int]] = {}       # key: offsets that are set aside, in order

    def claim(self, key: bytes, offset: int) -> bool:  # decision 27
        """Whether the message has its key to itself now; else it waits for it."""
        if self._holder.setdefault(key, offset) == offset:
            self._key_of[offset] = key
            return True
        self._waiting.setdefault(key, []).append(offset)
        return False

    def holder_of(self, key: bytes) -> int:
        """The offset that has a key; -1 where none has."""
        return self._holder.get(key, -1)

    def hold(self, key: bytes, offset: int) -> None:
        """The message was handed out before a start; another one of its key may have been, too."""
        self._holder.setdefault(key, offset)
        self._key_of[offset] = key

    def free(self, offsets: list[int]) -> list[int]:
        """These are settled: the messages that have the keys now."""
        heirs: list[int] = []
        for offset in offsets:
            key = self._key_of.pop(offset, None)
            if key is None or self._holder.get(key) != offset:
                continue
            del self._holder[key]
            waiting = self._waiting.get(key)
            assert waiting is None or waiting, "a key that nobody waits for is not in here"
            if waiting:                    # the key is its own at once: it may be settled without ever being leased
                heir = waiting.pop(0)
                self._holder[key] = heir
                self._key_of[heir] = key
                heirs.append(heir)
                if not waiting:
                    del self._waiting[key]
        return heirs

    def forget_waiting(self) -> None:
        """Nothing is set aside any more."""
        self._waiting.clear()

    @property
    def any_held(self) -> bool:
        return bool(self._key_of)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any key."""
        return not (self._holder or self._key_of or self._waiting)


class Ordering(Policy):
    """A group's, where its settings say `ordered`."""

    def __init__(self, core: Core, group: LeasedGroup) -> None:
        self._core = core
        self._group = group
        self._by_cursor: dict[Prefetcher, KeyOrder] = {}
        self.on_configured()

    def on_configured(self) -> None:
        begins = self._group.settings.ordered and not self.judges_plain
        self.judges_plain = self._group.settings.ordered
        if begins:
            for prefetcher in self._group.prefetchers.values():
                self.on_loaded(prefetcher)

    def keys_of(self, prefetcher: Prefetcher) -> KeyOrder:
        """What is known of the keys of a cursor."""
        return self._by_cursor.setdefault(prefetcher, KeyOrder())

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        if not self._group.settings.ordered:
            return messages
        keys = self.keys_of(prefetcher)
        may_go: list[Leased] = []
        for message in messages:
            if message[5] is None or keys.claim(message[5], message[1]):
                may_go.append(message)
            else:
                prefetcher.set_aside(message)
        return may_go

    def on_settled(self, prefetcher: Prefetcher, offsets: list[int]) -> None:
        keys = self._by_cursor.get(prefetcher)
        if keys is not None and keys.any_held:
            self._core.when_stored(KeysFreed(self._group, prefetcher, keys, offsets))

    def on_loaded(self, prefetcher: Prefetcher) -> None:
        """What was leased or waits has its keys: nothing goes out before these are known."""
        if self._group.settings.ordered:
            cursor = prefetcher.cursor
            offsets = cursor.leased_offsets() + [offset for offset, _ in cursor.waits()]
            prefetcher.read_first(offsets, partial(self._on_read, prefetcher))

    def _on_read(self, prefetcher: Prefetcher, messages: list[Leased]) -> None:
        keys = self.keys_of(prefetcher)
        for message in messages:
            if message[5] is not None and not prefetcher.cursor.is_settled(message[1]):
                keys.hold(message[5], message[1])

    def on_put_back(self, prefetcher: Prefetcher) -> None:
        if prefetcher in self._by_cursor:
            self._by_cursor[prefetcher].forget_waiting()

    def on_reset(self, prefetcher: Prefetcher) -> None:
        self._by_cursor.pop(prefetcher, None)


class KeysFreed:  # decision 28
    """Keys of messages that are being settled: the next ones of them come once that is durable, so that no crash
    brings back a message behind those that came after it."""

    def __init__(self, group: LeasedGroup, prefetcher: Prefetcher, keys: KeyOrder, offsets: list[int]) -> None:
        self._group = group
        self._prefetcher = prefetcher
        self._keys = keys
        self._offsets = offsets
        self._moved = prefetcher.cursor.moved

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The cursor says it all."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """The next ones come."""
        if self._moved == self._prefetcher.cursor.moved:
            heirs = self._keys.free(self._offsets)
            if heirs:
                self._prefetcher.bring_back(heirs)
                self._group.cursor_ready(self._prefetcher)

    def failed(self, frames: list[PendingFrame]) -> None:
        """The cursor has been put back to what is stored."""
