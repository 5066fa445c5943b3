"""The demo's Spark: the archive and the statistics as two queries of one session, until told to stop.

    python -m gatehouse.demo.jobs URL FOLDER
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from gatehouse.spark.jobs import analytics
from gatehouse.spark.jobs.archive import Archive
from gatehouse.spark.jobs.failure import exit_code
from gatehouse.spark.jobs.progress import follow
from gatehouse.spark.jobs.session import make_session
from gatehouse.spark.jobs.settings import AnalyticsSettings, ArchiveSettings

ARCHIVED: Final = ("machine", "events", "statistics")
WINDOW_S: Final = 10.0
LATENESS_S: Final = 5.0
COMMIT_EVERY_S: Final = 5.0


def archive_settings(url: str, folder: Path) -> ArchiveSettings:
    """Everything that the demo moves, statistics too, in a commit every few seconds."""
    return ArchiveSettings(url=url, topics=ARCHIVED, to=str(folder / "archive"), trigger_s=COMMIT_EVERY_S)


def analytics_settings(url: str, folder: Path) -> AnalyticsSettings:
    """Short windows: whoever looks at the page wants to see them close."""
    return AnalyticsSettings(url=url, topics=("machine",), checkpoint=str(folder / "analytics"), window_s=WINDOW_S,
                             lateness_s=LATENESS_S, starting="latest")


def main(url: str, folder: Path) -> None:
    """Run both. Raises JobFailed."""
    spark = make_session("gatehouse demo", "local[2,4]")
    follow(spark, [lambda: analytics.start(spark, analytics_settings(url, folder)),
                   lambda: Archive(archive_settings(url, folder)).start(spark)])


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1], Path(sys.argv[2]))))
