"""Records of another hub as they enter this one: each with the headers that say where it comes from. Hot.

Most messages of a link need no look of their own: their keys are known, their headers say nothing that concerns a link,
and they go to one partition and nowhere else. Such are taken record by record where they lie, and gathered by the
partition that they enter; no object is made of them. Of a key that somebody listens to, or that has a place of its own
kind, a message is made. The first record that has to be looked at ends it.

`mark` is native in the compiled wheel (native_marking.c), and says the same as `mark_plain`.
"""
# decision 300: what needs no look is no object
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.addresses.routes import STATED
from gatehouse.kernel.message import RETAIN, SHOWN_ORIGIN, FirstLevel, Message, Placement
from gatehouse.kernel.records.batch import (
    MARK,
    NO_HEADERS,
    OpenPiece,
    add_header,
    encode_key,
    encode_record,
    skip_records,
    split_records,
)
from gatehouse.kernel.records.headers import CONTEXT_MARK, EXPIRES_HEADER, RECEIPT_MARK, TRACE_MARK
from gatehouse.relay.origins import Ending, ending_of

AT_ONCE: Final = 4_096
"""Records of one call: each takes some bytes of memory until they are gathered."""

FOR_LINK: Final = (MARK, STATED, SHOWN_ORIGIN)
FOR_LINK_APART: Final = (*FOR_LINK, EXPIRES_HEADER)
"""What headers hold that a link has to look at; `FOR_LINK_APART`: where the clocks of the hubs are apart."""

FOR_KERNEL: Final = (RECEIPT_MARK, TRACE_MARK, CONTEXT_MARK)
"""What headers hold that the kernel has to look at."""

Gathered = tuple[int, int, bytes, int]
"""(partition id, how many records, the records, their largest time)."""

Marked = tuple[int, int, list[Gathered]]
"""How many records were taken; where the next one lies; those that go to tracks."""


class Tracks:
    """Keys of a topic of another hub whose messages enter one partition here, and nothing else: a track for each
    partition."""

    def __init__(self) -> None:
        self.places: dict[bytes | None, Placement] = {}
        """Of messages that say no address of their own, by key."""

        self.of: dict[bytes | None, int] = {}
        self.partition_ids: list[int] = []
        self.limit_bytes: int = 1 << 62
        """Of headers and value, whatever the key."""

        self._numbers: dict[int, int] = {}
        self._levels: dict[FirstLevel, int] = {}

    def place(self, key: bytes | None, placement: Placement) -> None:
        """Messages of this key go there."""
        self.places[key] = placement
        self.limit_bytes = min(self.limit_bytes, placement.max_message_bytes)

    def forget(self) -> None:
        """Where they go may have changed."""
        self.places.clear()
        self.limit_bytes = 1 << 62
        self._forget_tracks()

    def _forget_tracks(self) -> None:
        self.of.clear()
        self.partition_ids.clear()
        self._numbers.clear()
        self._levels.clear()

    def check(self) -> None:
        """Nothing goes by a track any more where somebody has begun to listen, or a topic has changed, since."""
        for level, version in self._levels.items():
            if level.version != version:
                self._forget_tracks()
                return

    def learn(self, keys: list[bytes | None]) -> None:
        """Messages of these keys were appended: what they enter is known."""
        for key in keys:
            placement = self.places.get(key)
            if placement is None or placement.version != placement.first_level.version or placement.targets \
                    or placement.also or placement.fleeting or placement.limited or placement.compact \
                    or placement.address_header or placement.queue is not None or placement.key != key:
                continue                         # the last: a rename gives it another
            level, partition_id = placement.first_level, placement.partition_id
            if self._levels.setdefault(level, level.version) != level.version:
                continue                         # `check` forgets them all
            self.limit_bytes = min(self.limit_bytes, placement.max_message_bytes)
            number = self._numbers.get(partition_id)
            if number is None:
                number = self._numbers[partition_id] = len(self.partition_ids)
                self.partition_ids.append(partition_id)
            self.of[key] = number


def mark_plain(opened: OpenPiece, count: int, first_offset: int, first_id: int, places: dict[bytes | None, Placement],
               tracks: dict[bytes | None, int], partition_ids: list[int], limit_bytes: int, for_link: tuple[bytes, ...],
               for_kernel: tuple[bytes, ...], ending: Ending, messages: list[Message], met: list[bytes | None]
               ) -> Marked:
    """Take up to `count` records (AT_ONCE at most), the first of which has this offset and id, until one has to be
    looked at: its key has no place, it is to be retained, makes no sense, is larger than `limit_bytes`, or its headers
    hold something of `for_link`. Those that have no track, or whose headers hold something of `for_kernel`, become
    messages, and their keys are added to `met`; such a key has no track any more, for what follows must not overtake
    it. Times of what is gathered count from the same as those of the records."""
    data, at, base_ms, fixed_ms = opened
    gathered: dict[int, list[bytes]] = {}
    largest_ms: dict[int, int] = {}
    taken = 0
    while taken < min(count, AT_ONCE):
        passed, behind = skip_records(data, at, 1, len(data), len(data))
        records = split_records(None, data, at, 1, first_offset + taken, base_ms, first_id + taken, fixed_ms, True)
        if not passed or not records:
            break
        _, offset, _, message_id, time_ms, key, value, headers, attributes = records[0]
        placement = places.get(key)
        has_headers = headers != NO_HEADERS
        if placement is None or attributes & RETAIN or time_ms <= 0 or has_headers and _holds(headers, for_link):
            break
        headers = add_header(headers, ending_of(ending, offset, message_id), 2)
        if len(headers) + (0 if value is None else len(value)) > limit_bytes:
            break
        if has_headers and _holds(headers, for_kernel):
            tracks.pop(key, None)
        track = tracks.get(key)
        if track is None:
            messages.append((placement, value, headers, attributes, time_ms))
            met.append(key)
        else:
            gathered.setdefault(track, []).append(
                encode_record(attributes, time_ms - base_ms, encode_key(key), value, headers))
            largest_ms[track] = max(largest_ms.get(track, 0), time_ms)
        taken += 1
        at = behind
    return taken, at, [(partition_ids[track], len(parts), b"".join(parts), largest_ms[track])
                       for track, parts in sorted(gathered.items())]


def _holds(headers: bytes, names: tuple[bytes, ...]) -> bool:
    for name in names:
        if headers.find(name) >= 0:
            return True
    return False


Mark = Callable[[OpenPiece, int, int, int, dict[bytes | None, Placement], dict[bytes | None, int], list[int], int,
                 tuple[bytes, ...], tuple[bytes, ...], Ending, list[Message], list[bytes | None]], Marked]

mark: Mark = mark_plain
try:
    from gatehouse.relay import native_marking
    mark = native_marking.mark
except ImportError:
    pass
