"""What a test of running processes waits for."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 240
LOOK_S = 0.02


def until(look: Callable[[], T], what: str | Callable[[], object] = "it does not become so",
          within_s: float = WITHIN_S) -> T:
    """What `look` returns, as soon as that is true; AssertionError with `what` where it never is."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(LOOK_S)
    return seen
