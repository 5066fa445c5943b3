"""What something costs in lines of Python that run: the same on every machine, however busy it is."""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

TESTS: Final = str(Path(__file__).parents[2])


def steps_of(call: Callable[[], object]) -> int:
    """Compiled modules count as nothing; they are the same source, and are counted where they run plain. Fakes of the
    tests count as nothing either."""
    steps = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename.startswith(TESTS):
            return None
        steps += event == "line"
        return count
    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps
