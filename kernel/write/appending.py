"""Messages enter the pending frame; producers' batches by `batches`."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.errors import KeptFull
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import RETAIN, Encoded, Judge, Message, Origin, Owner, Placement, Speaker
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.idempotency import Idempotency, fingerprint
from gatehouse.kernel.write.pending_frame import Entering, PendingFrame, check
from gatehouse.kernel.write.pending_frame import Places as MessagePlaces

Adding = Callable[[PendingFrame, list[Message], MessagePlaces], None]
"""Puts messages into a frame and tells the place of each."""

UNFOLLOWED: Final = 1 << 60
"""Messages before one that is followed, where nobody records journeys."""

KEPT_FULL = "what is kept beyond retention has reached kept_bytes: nothing that would have to be kept is taken"


class QueueLimits(Protocol):
    """What queues that are full refuse."""

    def refuse_full(self, messages: list[Message]) -> None:
        """Raises QueueFull for messages that have no room in a queue they would enter; else they are counted."""

    def require_room(self, messages: list[Message]) -> object:
        """Raises QueueFull for messages that will enter a queue later, and have no room there now."""


class ReceiptKeeper(Protocol):
    """Who tells senders what became of their messages: see `kernel.receipts`. `judge` says of an address what the
    sender may there."""

    def asking(self, messages: list[Any], placements: dict[int, Placement] | None, candidates: list[int],
               judge: Judge | None) -> list[Any]:
        """Those of these candidates that ask for a receipt. Raises ReceiptDenied."""

    def judged(self, asks: list[Any], judge: Judge | None) -> list[Any]:
        """Which records of a producer's batch ask for a receipt, of (index, what is asked, tenant, address). Raises
        ReceiptDenied."""

    def on_entered(self, frame: PendingFrame, askings: list[Any], places: MessagePlaces) -> None:
        """They are in the pending frame, each in its place by its index."""


class Appending:
    """What `check` finds is refused before anything of a call is taken."""

    def __init__(self, *, committer: Committer, places: Places, disk_guard: DiskGuard, idempotency: Idempotency,
                 queue_limits: QueueLimits, receipts: ReceiptKeeper, speaker: Speaker,
                 recorder: Recorder | None = None) -> None:
        self._committer = committer
        self._places = places
        self._disk_guard = disk_guard
        self._idempotency = idempotency
        self._queue_limits = queue_limits
        self._receipts = receipts
        self._speaker = speaker
        self._recorder = recorder
        self.unfollowed: int = UNFOLLOWED if recorder is None else recorder.gap()     # until one is looked at
        if recorder is not None:
            recorder.on_calm(self._shorten)

    def _shorten(self, gap: int) -> None:
        """At most so many messages pass before one that may be followed."""
        self.unfollowed = min(self.unfollowed, gap)

    def append(self, messages: list[Entering], owner: Owner | None, token: object, positions: bool,
               placements: dict[int, Placement] | None = None, judge: Judge | None = None,
               encoded: Sequence[Encoded] = ()) -> None:
        """See `Kernel.append`. With `placements` the messages have numbers of them in front: raises UnknownPlace for
        others. What is `encoded` enters before them; none of it may be followed."""
        if self._disk_guard.short:
            self._disk_guard.refuse()
        pending_frame = self._committer.open_frame()
        candidates: list[int] = []
        tracing: list[int] | None = [] if self._speaker.origin.traces else None
        limited = check(messages, self._places.refresh, placements, candidates, tracing)
        askings = self._receipts.asking(messages, placements, candidates, judge) if candidates else None
        if limited or self._disk_guard.kept_full:
            placed: list[Message] = messages if placements is None else [
                (placements[message[0]], *message[1:]) for message in messages]
            if limited:
                placed = self._places.choose(placed)
                messages, placements = placed, None
            if self._disk_guard.kept_full:
                self.refuse_owed(placed)
            if limited:
                self._queue_limits.refuse_full(placed)
        places: MessagePlaces | None = [] if positions or askings else None
        if encoded:
            self._add_encoded(pending_frame, encoded)
        self.unfollowed -= len(messages)                # decision 199
        if self.unfollowed < 0 or tracing:
            self._add_followed(pending_frame, messages, places, placements, tracing or ())
        else:
            pending_frame.builder.add(messages, places, None, placements, *self._authors())
        if askings:
            self._receipts.on_entered(pending_frame, askings, places or [])
        pending_frame.wait(owner, token, places if positions else None)
        self._committer.note_size()

    def _add_encoded(self, pending_frame: PendingFrame, encoded: Sequence[Encoded]) -> None:
        origin = self._speaker.origin
        for records in encoded:
            pending_frame.builder.add_encoded(records, origin if origin.door else None)
            self.unfollowed -= records.record_count

    def append_once(self, messages: list[Message], owner: Owner | None, token: object, key: str,
                    add: Adding | None = None, judge: Judge | None = None) -> None:
        """Unless the key is known: then its first answer is given again. `add` puts them elsewhere than in
        partitions."""
        pending_frame = self._committer.open_frame()
        mine = fingerprint(messages)
        if self._idempotency.answered(pending_frame, mine, owner, token, key):
            return
        if self._disk_guard.short:
            self._disk_guard.refuse()
        candidates: list[int] = []
        tracing: list[int] | None = [] if self._speaker.origin.traces else None
        limited = check(messages, self._places.refresh, None, candidates, tracing)
        if limited:
            messages = self._places.choose(messages)
        askings = self._receipts.asking(messages, None, candidates, judge) if candidates else None
        if self._disk_guard.kept_full:
            self.refuse_owed(messages)
        if limited and add is None:
            self._queue_limits.refuse_full(messages)
        places: MessagePlaces = []
        if add is not None:
            add(pending_frame, messages, places)
        else:
            self.unfollowed -= len(messages)
            if self.unfollowed < 0 or tracing:
                self._add_followed(pending_frame, messages, places, None, tracing or ())
            else:
                pending_frame.builder.add(messages, places, None, None, *self._authors())
        if askings and add is None:
            self._receipts.on_entered(pending_frame, askings, places)
        self._idempotency.remember(pending_frame, mine, places, key)
        pending_frame.wait(owner, token, places)
        self._committer.note_size()

    def _add_followed(self, pending_frame: PendingFrame, messages: list[Entering], places: MessagePlaces | None,
                      placements: dict[int, Placement] | None, asking: Sequence[int]) -> None:
        """Some of these may be followed: they are told to whoever records journeys."""
        recorder = self._recorder
        assert recorder is not None, "nobody speaks, and nobody counts down, to what is not recorded"
        followed, self.unfollowed = recorder.follow(messages, placements, self.unfollowed + len(messages), asking)
        all_places: MessagePlaces = [] if places is None else places
        pending_frame.builder.add(messages, all_places if followed else places, None, placements, *self._authors())
        if followed:
            recorder.on_entered(pending_frame, messages, placements, all_places)

    def _authors(self) -> tuple[Origin | None, list[int] | None, list[Origin] | None]:
        """Who publishes what enters now, as `BatchBuilder.add` takes it."""
        speaker = self._speaker
        if speaker.stops:
            return None, speaker.stops, speaker.origins
        return (speaker.origin if speaker.origin.door else None), None, None

    def require(self, messages: list[Message]) -> None:
        """Messages that will enter later. Raises StorageFull, KeptFull, QueueFull, and what `check` raises."""
        self._disk_guard.require()
        if self._disk_guard.kept_full:
            raise KeptFull(KEPT_FULL)
        if check(messages, self._places.refresh):
            self._queue_limits.require_room(messages)

    def refuse_full(self, messages: list[Message]) -> None:
        """These enter now, and were checked. Raises KeptFull, QueueFull, with nothing done."""
        if self._disk_guard.kept_full:
            self.refuse_owed(messages)
        self._queue_limits.refuse_full(messages)

    def check_entering(self, messages: list[Message]) -> None:
        """These are about to enter. Raises QueueFull, and what `check` raises."""
        if check(messages, self._places.refresh):
            self._queue_limits.refuse_full(messages)

    @staticmethod
    def refuse_owed(messages: list[Message]) -> None:
        """Nothing new is taken that would have to outlive retention. Raises KeptFull, with nothing done."""
        for placement, value, _, attributes, _ in messages:
            if placement.queue is not None or placement.also or value and (placement.compact or attributes & RETAIN):
                raise KeptFull(KEPT_FULL)
