"""How a job fails: one line that says what to do."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

FAILED: Final = 1


class JobFailed(Exception):  # decision 107
    """A job could not start, or its query ended in an error."""


def exit_code(run: Callable[[], None]) -> int:
    """Run a job; its error goes to standard error as one line."""
    try:
        run()
    except JobFailed as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0
