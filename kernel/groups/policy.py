"""What a group does with its messages besides handing them out: the moments at which it asks its policies.

    read ─► judge ─► handed out ─► settled
              └────► settled at once, set aside, or given up (on_given_up) and settled

A group has a list of policies (`kernel.groups.leasing.Policies`) and asks them in this order, always about a whole
batch. A new one is a class like `Selecting` and `Ordering` here and those in `expiry`, `max_length` and
`dead_lettering`, and a line in that list.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, Final

from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.batch import read_headers
from gatehouse.kernel.selectors.selector import parse_selector
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.handing_out import Prefetcher, Verdict
    from gatehouse.kernel.groups.leasing import Core

# Why a message came to its end without an ack.
EXPIRED: Final = "expired"
ATTEMPTS: Final = "attempts"           # it was handed out as often as the group allows
REJECTED: Final = "rejected"
OVERFLOW: Final = "overflow"


class Policy:  # decision 141
    """Each moment does nothing here; a policy has those that concern it. A moment may raise Stopping."""

    moments: ClassVar[frozenset[str]] = frozenset()
    """Names of those at which it has something to say. At `judge`, `on_settled`, `on_ready` and `on_idle`, which come
    with every batch, no other policy is asked."""

    judges_all = False
    """Whether it judges whatever leaves a cursor, and not only what is to be handed out."""

    judges_plain = False
    """Whether it has a say about *plain* messages, too: those that were never handed out and do not say when they
    expire. It may change when the group is configured."""

    def __init_subclass__(cls) -> None:
        cls.moments = frozenset(name for name, moment in vars(Policy).items()
                                if isinstance(moment, FunctionType) and getattr(cls, name) is not moment)

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        """Of these, in hand now, those that may be handed out. What becomes of each other one is said to `verdict`, or
        the prefetcher sets it aside."""
        return messages

    def on_given_up(self, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        """These end without an ack: what is to be kept of them goes into the frame that settles them."""

    def on_settled(self, prefetcher: Prefetcher, offsets: list[int]) -> None:
        """These are done with, in the pending frame."""

    def on_start(self) -> None:
        """Everything is open: what happens without anybody's doing begins."""

    def on_ready(self) -> None:
        """Messages entered, or are ready again; nobody has been handed any."""

    def on_idle(self) -> None:
        """Something is ready, and nobody takes."""

    def on_loaded(self, prefetcher: Prefetcher) -> None:
        """A cursor was read from the state: at a start, or after a frame that was refused."""

    def on_put_back(self, prefetcher: Prefetcher) -> None:
        """What was in hand, and set aside, is ready again."""

    def on_reset(self, prefetcher: Prefetcher) -> None:
        """The cursor goes on elsewhere: nothing of what was read of it counts."""

    def on_configured(self) -> None:
        """The group has other settings, or its topic has."""

    @property
    def is_watching(self) -> bool:
        """Whether something is to happen by itself, so that the group must stay in memory."""
        return False


def speakers(policies: list[Policy], moment: str) -> list[Policy]:
    """Those that have something to say at this moment."""
    return [policy for policy in policies if moment in policy.moments]


class Selectors:
    """What selectors mean. `names` are those without quotes that mean a header of another name, as doors call it."""

    def __init__(self, names: Mapping[str, str], topics: Topics, routes: Routes) -> None:
        self._names = names
        self._topics = topics
        self._routes = routes

    def check(self, text: str) -> None:
        """Raises InvalidSelector."""
        if text:
            parse_selector(text, self._names)

    def wants(self, text: str) -> Callable[[Leased], bool] | None:
        """Whether a message is wanted; None where all are. Raises InvalidSelector."""
        if not text:
            return None
        selector = parse_selector(text, self._names)
        reads_address = selector.reads_address

        def wanted(message: Leased) -> bool:
            (partition_id, _, _), _, _, _, timestamp_ms, key, value, headers, _ = message
            topic_partition = self._topics.of_partition(partition_id)
            topic = topic_partition[0].name if topic_partition is not None else ""
            try:
                address = self._routes.address_of(topic, key, read_headers(headers, 0)[0]) if reads_address else ""
                return selector.matches_encoded(headers, key, address, topic, timestamp_ms, value)
            except CorruptBatch:          # a producer wrote headers that make no sense
                return False

        return wanted


class Selecting(Policy):
    """A group wants a part of its messages, as its selector says; the rest counts as settled. Raises
    InvalidSelector."""

    def __init__(self, selectors: Selectors, group: LeasedGroup) -> None:
        self._selectors = selectors
        self._group = group
        self.on_configured()

    def judge(self, prefetcher: Prefetcher, messages: list[Leased], verdict: Verdict) -> list[Leased]:
        if self._wants is None:
            return messages
        wanted: list[Leased] = []
        for message in messages:
            if self._wants(message):
                wanted.append(message)
            else:
                verdict.settle(message)
        return wanted

    def on_configured(self) -> None:
        self._wants = self._selectors.wants(self._group.settings.selector)
        self.judges_plain = self._wants is not None


class KeyOrder:
    """Which message of one cursor has a key, and which ones wait for it. Keeps offsets alone."""

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
    """A group keeps the order of keys, where its settings say `ordered`: one message of a key at a time, others of its
    key wait behind it."""

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
