"""What admission asks of the world: a thread for what takes long, timers, chance. All of it optional in tests."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gatehouse.kernel.ports import Loop, Worker


@dataclass(frozen=True, slots=True)
class Outside:
    """The hub gives all of it; a command on a data directory that is not running has a worker that works at once."""

    loop: Loop
    passwords: Worker
    """Checks passwords, as many at a time as `attempt.CHECKS_AT_ONCE`."""

    accounts: Worker
    """Changes the database."""

    fetching: Worker
    """Reads key sets of token issuers."""

    random: Callable[[int], bytes]
    """So many bytes that nobody can guess."""

    fetch: Callable[[str], bytes]
    """A file or an https address, bounded in size and time. Raises OSError."""

    lasting_secret: bytes
    """Known to this hub alone, and the same after every start: what a stranger is told by it does not change."""
