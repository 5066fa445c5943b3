"""What can be set about the jobs: the tables `[spark.archive]` and `[spark.analytics]`, and the jobs' options.

Each field says what it does; the command line, the configuration file and the reference page are made from here.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What every job needs: the hub, what to read, and the Spark to run in."""

    url: str = field(default="", metadata={
        "help": "HTTP door of the hub; left empty, the one in the configuration file."})
    topics: tuple[str, ...] = field(default=(), metadata={
        "help": "Topics to read."})
    pattern: str = field(default="", metadata={
        "help": "Instead of `topics`: a regular expression of their names."})
    filter: str = field(default="", metadata={
        "help": "Instead of `topics`: an address filter like `plant/+/temp`."})
    starting: str = field(default="earliest", metadata={
        "choices": ("earliest", "latest"),
        "help": "Where the first start begins; later starts go on where the one before ended."})
    max_rows: int = field(default=1_000_000, metadata={
        "min": 1, "help": "Most messages of one micro-batch."})
    fail_on_data_loss: bool = field(default=True, metadata={
        "help": "Whether the job ends when retention has deleted what it had not read; otherwise it goes on behind "
                "it."})
    user: str = field(default="", metadata={
        "help": "User of the hub."})
    password: str = field(default="", metadata={
        "secret": True, "help": "Password of that user."})
    token: str = field(default="", metadata={
        "secret": True, "help": "Bearer token, instead of user and password."})
    tls_ca: str = field(default="", metadata={
        "help": "File of the authority that signed the hub's certificate, where the system does not know it."})
    master: str = field(default="local[*,4]", metadata={
        "help": "Where Spark runs, unless spark-submit says it; `local[*,4]` tries a failed task up to four times."})

    def __post_init__(self) -> None:
        if sum(map(bool, (self.topics, self.pattern, self.filter))) != 1:
            raise ValueError("one of topics, pattern and filter says what to read")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings(JobSettings):
    """[spark.archive]"""

    to: str = field(default="archive", metadata={
        "help": "Folder of the table; on a cluster one that every machine sees under this name."})
    format: str = field(default="delta", metadata={
        "choices": ("delta", "parquet"),
        "help": "`delta` for a Delta table, `parquet` for a folder of files."})
    checkpoint: str = field(default="", metadata={
        "help": "Folder that remembers how far the archive is; left empty, `_checkpoint` in the table's folder."})
    trigger_s: float = field(default=10.0, metadata={
        "min": 0.0, "max": 86400.0, "help": "Seconds from one micro-batch to the next, each a commit."})
    compact_files: int = field(default=20, metadata={
        "min": 2, "help": "A topic's day is compacted when it has so many files smaller than half a full one."})
    file_bytes: int = field(default=128 * MIB, metadata={
        "min": MIB, "help": "Size, in bytes, of a full file."})
    vacuum_hours: int = field(default=168, metadata={
        "min": 0, "help": "Hours after which files that compaction replaced are deleted; a query may not run longer."})

    def __post_init__(self) -> None:
        JobSettings.__post_init__(self)
        _refuse_object_store(self.to)
        _refuse_object_store(self.checkpoint)

    @property
    def checkpoint_folder(self) -> str:
        """Readers of tables skip what begins with an underscore."""
        return self.checkpoint or f"{self.to.rstrip('/')}/_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSettings(JobSettings):
    """[spark.analytics]"""

    to: str = field(default="statistics", metadata={
        "help": "Topic of the results; those of the address `a/b` have the address `TOPIC/a/b`."})
    checkpoint: str = field(default="spark-analytics", metadata={
        "help": "Folder that remembers open windows and how far the job is."})
    value_field: str = field(default="", metadata={
        "help": "Field of the JSON object in the message's value, like `temp` or `sensor.temp`; left empty, the value "
                "is the number."})
    window_s: float = field(default=60.0, metadata={
        "min": 0.1, "max": 86400.0, "help": "Length of a window, in seconds of the messages' own time."})
    lateness_s: float = field(default=30.0, metadata={
        "min": 0.0, "max": 86400.0,
        "help": "Seconds a window stays open behind the newest reading. What comes later is counted, nothing else."})
    percentiles: tuple[float, ...] = field(default=(50.0, 95.0, 99.0), metadata={
        "min": 1, "max": 20, "help": "Percentiles of each window, each from 0 to 100."})
    trigger_s: float = field(default=1.0, metadata={
        "min": 0.0, "max": 86400.0,
        "help": "Seconds from one micro-batch to the next, each an update of open windows."})

    def __post_init__(self) -> None:
        JobSettings.__post_init__(self)
        _refuse_object_store(self.checkpoint)
        if not all(0 <= percentile <= 100 for percentile in self.percentiles):
            raise ValueError("percentiles are numbers from 0 to 100")
        if self.to in self.topics:
            raise ValueError(f"the results go to {self.to!r}, which cannot be read at the same time")


def _refuse_object_store(folder: str) -> None:
    if "://" in folder:
        raise ValueError(f"{folder!r} is no folder: object stores are not built yet")
