"""How `gatehouse` ends: every exit code in one place. `docs/commands.md` shows this table."""
from __future__ import annotations

from typing import Final


class Refused(Exception):
    """A command cannot do what it was asked: one line that says what to do, and how the process ends."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_BUILT: Final = 3
CANNOT_LISTEN: Final = 4
DATA_IN_USE: Final = 5
DATA_FORMAT: Final = 6
OWN_FAULT: Final = 70        # EX_SOFTWARE of sysexits.h
STORAGE: Final = 74          # EX_IOERR of sysexits.h
INTERRUPTED: Final = 130     # 128 + SIGINT, as shells report it

MEANING: Final = {
    OK: "done; for `serve`: drained and stopped as asked",
    FAILED: "the hub refused, or could not be reached",
    USAGE: "wrong arguments, or the configuration is not valid",
    NOT_BUILT: "the hub does not do what was asked for",
    CANNOT_LISTEN: "a door could not listen, most often because its port is in use",
    DATA_IN_USE: "another hub, backup or restore has the folder, or (`reload`) no hub has it",
    DATA_FORMAT: "the data directory or the backup is of a newer Gatehouse, or a restore was cut off",
    OWN_FAULT: "a mistake of the hub's own, in its kernel; the next start recovers what was acknowledged",
    STORAGE: "the disk failed or is full; the next start recovers what was acknowledged",
    INTERRUPTED: "interrupted by Ctrl-C",
}
