"""What a running job tells its user: one line on standard error that stays where it is on a terminal, else one every
ten seconds; and how it ends: by itself, by Ctrl-C or SIGTERM, or by an error in one line.
"""
from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.jobs.failure import JobFailed

LOOK_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
CAUSE_CHARACTERS: Final = 500
RAISED: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w*: (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""


class Count:
    """Rows of one query so far, from the progress that Spark reports after each micro-batch."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.rows = 0
        self._rate = 0.0
        self._batch = -1

    def add(self, progress: Any) -> None:
        """Take over a micro-batch's report, which may have been seen before; an idle query repeats its last."""
        if progress["numInputRows"] == 0 or progress["batchId"] <= self._batch:
            return
        self.rows += progress["numInputRows"]
        self._rate = progress["processedRowsPerSecond"] or 0.0
        self._batch = progress["batchId"]

    def text(self) -> str:
        """`archive: 1,200,000 rows, 350,000 a second, batch 12`"""
        if self._batch < 0:
            return f"{self._name}: nothing new yet"
        return f"{self._name}: {self.rows:,} rows, {self._rate:,.0f} a second, batch {self._batch}"


class ProgressLine:
    """Shows texts: over each other on a terminal, rarely and line by line elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = ""
        self._shown_at = 0.0

    def show(self, text: str, now: float) -> None:
        """Show a text unless it was shown last."""
        if text == self._last or (not self._out.isatty() and now - self._shown_at < LINE_EVERY_S and self._last):
            return
        self._out.write(f"\r\x1b[K{text}" if self._out.isatty() else text + "\n")
        self._out.flush()
        self._last, self._shown_at = text, now

    def end(self, text: str) -> None:
        """Leave a last line."""
        if text != self._last or self._out.isatty():
            self._out.write(("\r\x1b[K" if self._out.isatty() else "") + text + "\n")
            self._out.flush()


def follow(spark: SparkSession, queries: Sequence[StreamingQuery]) -> None:
    """Show the queries' progress until all have ended or somebody stops them. Raises JobFailed where one fails."""
    counts = {query.id: Count(query.name) for query in queries}
    line = ProgressLine(sys.stderr)
    failure = None
    with stop_signals() as stopped:
        while not stopped.wait(LOOK_S):
            _look(queries, counts)
            line.show(_text(counts), time.monotonic())
            failure = next((found for query in queries if (found := query.exception()) is not None), None)
            if failure is not None or not any(query.isActive for query in queries):
                break
        for query in queries:
            query.stop()
    _look(queries, counts)
    line.end(_text(counts))
    spark.stop()
    if failure is not None:
        raise JobFailed(cause_of(failure))


def _look(queries: Sequence[StreamingQuery], counts: dict[str, Count]) -> None:
    for query in queries:
        for progress in query.recentProgress:
            counts[query.id].add(progress)


def _text(counts: dict[str, Count]) -> str:
    return " · ".join(count.text() for count in counts.values())


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cause_of(failure: StreamingQueryException) -> str:
    """The line of a failed query that says what to do: the last error that was raised in Python, else Spark's first."""
    text = str(failure).partition("=== Streaming Query ===")[0]
    raised = RAISED.findall(text)
    found: str = raised[-1] if raised else text.strip().partition("\n")[0]
    return found[:CAUSE_CHARACTERS]
