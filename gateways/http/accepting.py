"""What a client wants of several things that could be answered: the `Accept` family of RFC 9110, 12.5. Pure."""
from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_QUALITY: Final = re.compile(r";\s*q\s*=\s*(0(\.\d{0,3})?|1(\.0{0,3})?)\s*(;|$)", re.I | re.ASCII)
MAX_RANGES: Final = 64
"""The most ranges of one header that are read; those behind them count as not said."""


def accepts(accept: str, offered: Collection[str]) -> bool:
    """Whether an `Accept` header takes one of these media types. Of ranges that match, the most specific counts
    (12.5.1); what cannot be read is passed over."""
    ranges = [_range(part) for part in accept.split(",")[:MAX_RANGES]]
    return any(_quality(ranges, media) > 0 for media in offered)


def _range(part: str) -> tuple[str, float]:
    match = _QUALITY.search(part)
    return part.partition(";")[0].strip().lower(), float(match.group(1)) if match else 1.0


def _quality(ranges: list[tuple[str, float]], media: str) -> float:
    kind = media.partition("/")[0]
    for wanted in (media, f"{kind}/*", "*/*"):
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0
