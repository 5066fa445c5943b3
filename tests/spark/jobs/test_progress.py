"""What a job tells while it runs, and the line with which it fails."""
from __future__ import annotations

import io
from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from gatehouse.spark.jobs.failure import JobFailed
from gatehouse.spark.jobs.progress import MAX_IN_VAIN, Count, ProgressLine, Run, cause_of, follow

FAILURE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python data source perform read: Traceback
  File "worker.py", line 3, in read
    raise DataLoss("x")
spark.errors.DataLoss: the topic 'plant' is gone; the stream had read its partitions up to {0: 3}
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: archive
Other: not this
"""


def progress(batch: int, rows: int, rate: float = 100.0) -> dict[str, object]:
    return {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": rate}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeQuery:
    """A query that has ended as it was told to."""

    name = "archive"

    def __init__(self, reports: list[dict[str, object]], failure: Exception | None) -> None:
        self.recentProgress = reports
        self._failure = failure

    def exception(self) -> Exception | None:
        return self._failure


class LateFailure(FakeQuery):
    """It fails just after it was first asked whether it has."""

    isActive = True

    def exception(self) -> Exception | None:
        failure = None if self.isActive else self._failure
        self.isActive = False
        return failure

    def stop(self) -> None:
        """It has ended."""


class FakeSession:
    def stop(self) -> None:
        """Nothing runs."""


def test_rows_are_counted_once_however_often_spark_reports_them():
    count = Count("archive")
    for _ in range(3):
        for report in (progress(0, 1000), progress(1, 500, 250.0), progress(1, 0)):
            count.add(report)
    assert count.rows == 1500
    assert count.text() == "archive: 1,500 rows, 250 a second, batch 1"


def test_nothing_is_said_to_be_nothing():
    assert Count("archive").text() == "archive: nothing new yet"


def test_a_terminal_has_one_line_and_a_file_few():
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        line = ProgressLine(out)
        for second in range(25):
            line.show(f"{second} rows", float(second))
        line.end("25 rows")
    assert terminal.getvalue().count("\n") == 1
    assert file.getvalue() == "0 rows\n10 rows\n20 rows\n25 rows\n"


def test_the_cause_is_what_python_raised():
    assert cause_of(ValueError(FAILURE)) == "the topic 'plant' is gone; the stream had read its partitions up to {0: 3}"
    java = "py4j.protocol.Py4JJavaError: An error occurred while calling o28.save.\n: java.io.IOException: Closed\n"
    assert cause_of(ValueError(java)) == "Closed"
    assert cause_of(ValueError("[CONDITION] Spark's own words\nat org.apache")) == "[CONDITION] Spark's own words"


def test_a_query_that_got_somewhere_is_started_again_and_one_that_did_not_is_not():
    queries = iter([FakeQuery([progress(0, 10)], ValueError("lost")), FakeQuery([], ValueError("lost"))])
    run = Run(lambda: next(queries))
    run.add_progress()
    assert run.start_again() == "lost"
    run.add_progress()
    with pytest.raises(JobFailed, match="lost"):
        run.start_again()


def test_what_passes_by_itself_is_tried_again_some_times():
    starts = []

    def start() -> FakeQuery:
        starts.append(True)
        return FakeQuery([], ValueError("Python worker failed to connect back."))

    run = Run(start)
    for _ in range(MAX_IN_VAIN):
        run.start_again()
    with pytest.raises(JobFailed, match="connect back"):
        run.start_again()
    assert len(starts) == MAX_IN_VAIN + 1


def test_a_query_that_fails_while_it_is_looked_at_has_not_ended_well():
    with pytest.raises(JobFailed, match="lost"):
        follow(cast(SparkSession, FakeSession()), [lambda: cast(StreamingQuery, LateFailure([], ValueError("lost")))])
