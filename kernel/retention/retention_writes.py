"""What retention writes through the kernel: watermarks and kept records, and the checkpoints between."""
from __future__ import annotations

from collections.abc import Callable

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.index.checkpoints import Checkpoints
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Stored
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.retention import Kept
from gatehouse.kernel.retention.segment_scan import Name
from gatehouse.kernel.state.topics import Topic
from gatehouse.kernel.state.views import heads_record
from gatehouse.kernel.write.appending import Appending


class _Told:
    """An owner that passes on whether it was stored."""

    def __init__(self, on_done: Callable[[bool], None]) -> None:
        self._on_done = on_done

    def on_stored(self, stored: list[Stored]) -> None:
        self._on_done(stored[0].error is None)


class RetentionWrites:
    """`kernel.retention.retention.Writes`."""

    def __init__(self, parts: Parts, appending: Appending, checkpoints: Checkpoints) -> None:
        self._parts = parts
        self._appending = appending
        self._checkpoints = checkpoints

    def append_watermarks(self, pages: dict[int, bytes], gone: list[Name], on_done: Callable[[bool], None]) -> None:
        records = [heads_record(number, page) for number, page in pages.items()]
        self._appending.delete_state([StateRecord(kind, key, None) for kind, key in gone
                                      if self._parts.state.recent(kind, key) is None])
        try:
            self._appending.put_state(records, _Told(on_done), None)
        except Stopping:
            on_done(False)

    def absorb_kept(self, kept: Kept) -> None:
        assert kept.end >= self._checkpoints.kept_end, "the kept chain grows"
        for position, records in kept.frames:
            self._parts.state.absorb_kept(position, records)
        self._checkpoints.kept_end = kept.end

    def checkpoint(self, on_done: Callable[[], None]) -> None:
        self._checkpoints.take(on_done)

    def topics(self) -> list[Topic]:
        return self._parts.topics.all()
