"""How much a user may send: kept with the user, and one of the limits of `limits.book`. Pure."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one user, summed over all its connections on all doors. 0: no limit."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
