"""The log of events on standard error: lines for people, or one JSON object per line.

    {"at": "2026-11-24T10:00:00Z", "level": "info", "logger": "gatehouse.gateways", "message": "...", "door": "amqp"}

What a line tells of in fields of its own (door, peer, trace_id) is given with it (`extra={"fields": {...}}`); lines for
people have it in their words.
"""
from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line, whatever the message holds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name,
                                "message": record.getMessage()}
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= fields
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def begin() -> None:
    """Lines for people from the start, until the configuration is read."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=TEXT)


def configure(level: str, line_format: str) -> None:
    """As the configuration says from here on."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        handler.setFormatter(JsonLines() if line_format == "json" else logging.Formatter(TEXT))
