"""What a running job tells its user: one line on standard error that stays where it is on a terminal, else one every
ten seconds; and how it ends: by itself, by Ctrl-C or SIGTERM, or by an error in one line.
"""
from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gatehouse.spark.jobs.failure import JobFailed

LOOK_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
START_ATTEMPTS: Final = 5
START_AGAIN_S: Final = 1.0
MAX_IN_VAIN: Final = 3
PASSING: Final = ("failed to connect back", "exited unexpectedly", "Stream closed")
"""What Spark says of its processes for Python: on a busy machine they need longer to start than it waits."""

CAUSE_CHARACTERS: Final = 500
RAISED: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w*: (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""
CALL_FAILED: Final = "An error occurred while calling"
FROM_JAVA: Final = re.compile(r"^: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
"""What py4j says of a Java error, and in the line after that the error itself."""


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


class Run:
    """One query of a job, started again where it ends in an error after it had got somewhere."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self.query = started(start)
        self.count = Count(self.query.name)
        self._rows_at_start = 0
        self._in_vain = 0

    def add_progress(self) -> None:
        """Take over what Spark has reported since."""
        for progress in self.query.recentProgress:
            self.count.add(progress)

    def start_again(self) -> str | None:
        """Where the query has ended in an error: start it again; the cause of that.

        Raises JobFailed where it had got nowhere and the error is none that passes by itself: the next start would end
        like this one.
        """
        failure = self.query.exception()
        if failure is None:
            return None
        cause = cause_of(failure)
        if self.count.rows > self._rows_at_start:
            self._in_vain = 0
        elif self._in_vain == MAX_IN_VAIN or not any(sign in str(failure) for sign in PASSING):
            raise JobFailed(cause)
        self._in_vain += 1
        self._rows_at_start = self.count.rows
        self.query = started(self._start, START_ATTEMPTS)
        return cause


def started(start: Callable[[], StreamingQuery], attempts: int = 1) -> StreamingQuery:
    """A query. Raises JobFailed where it cannot be started.

    Of several attempts the first may meet what a failure has left behind: Spark's processes for Python that were killed
    are noticed when they are next used.
    """
    for left in reversed(range(attempts)):
        try:
            return start()
        except (PySparkException, Py4JError) as error:
            if not left:
                raise JobFailed(cause_of(error)) from None
            time.sleep(START_AGAIN_S)
    raise ValueError("at least one attempt")


def follow(spark: SparkSession, starts: Sequence[Callable[[], StreamingQuery]]) -> None:
    """Start the queries and show their progress until all have ended or somebody stops them. Raises JobFailed."""
    line = ProgressLine(sys.stderr)
    runs: list[Run] = []
    with stop_signals() as stopped:
        try:
            for start in starts:
                runs.append(Run(start))
            while not stopped.wait(LOOK_S):
                have_ended = not any(run.query.isActive for run in runs)      # asked first: then it is known how
                if not _look(runs, line) and have_ended:
                    break
        finally:
            for run in runs:
                run.query.stop()
                run.add_progress()
            if runs:
                line.end(_text(runs))
            spark.stop()


def _look(runs: Sequence[Run], line: ProgressLine) -> bool:
    """Show how far they are; whether one was started again. Raises JobFailed."""
    started_again = False
    for run in runs:
        run.add_progress()
        cause = run.start_again()
        if cause is not None:
            line.end(f"{run.query.name} is started again: {cause}")
            started_again = True
    line.show(_text(runs), time.monotonic())
    return started_again


def _text(runs: Sequence[Run]) -> str:
    return " · ".join(run.count.text() for run in runs)


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


def cause_of(failure: Exception) -> str:
    """The line of a failed query that says what to do: the last error that was raised in Python, else Spark's first."""
    exception = failure.java_exception if isinstance(failure, Py4JJavaError) else failure
    text = str(exception).partition("=== Streaming Query ===")[0]
    raised = [line for line in RAISED.findall(text) if not line.startswith(CALL_FAILED)] or FROM_JAVA.findall(text)
    cause: str = raised[-1] if raised else text.strip().partition("\n")[0]
    return cause[:CAUSE_CHARACTERS]
