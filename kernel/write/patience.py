"""How long a frame that could be sealed waits for more publishers, as few of them as there are. Pure. Hot.

    frame durable ─► 7 are answered, 3 wait ─► up to 10 are awaited ─► the next frame is sealed with all 10

Publishers with one message in flight answer an acknowledgement with the next publish. Were the next frame sealed with
whoever comes first, each frame would hold a few, and a frame costs the same with one message as with a hundred. So it
waits until as many have come as are awaited, for a few turns of the loop at most: some 100 µs, in which messages are
read. Who publishes from time to time is not waited for: a wait in vain is paid once in a while, ever more rarely.
"""
# decision 277: a frame waits for those who were answered a moment ago
from __future__ import annotations

from typing import Final

AWAITED_MAX: Final = 1_024             # more than that fill a frame anyhow
MOMENT_MS: Final = 1                   # after their answers; whoever comes later is far away
SKIPPED_MAX: Final = 256               # frames that are not waited with, after waits in vain


class Patience:
    """Of one committer: `turns` for each frame; 0: none."""

    def __init__(self, turns: int) -> None:
        self._turns: int = turns
        self._left: int = 0            # turns
        self._awaited: int = 0         # who would fill the frame that gathers
        self._enough: int = 0          # with whom the wait was not in vain
        self._until_ms: int = 0
        self._skip: int = 0            # frames
        self._skipped: int = 0         # frames after the wait before

    def on_answered(self, answered: int, waiting: int, now_ms: int) -> None:
        """A frame is durable: so many are answered, and so many wait for the next frame."""
        self._left = 0
        if not answered or answered + waiting < 2 or waiting >= AWAITED_MAX:
            return
        if self._skip:
            self._skip -= 1
            return
        self._left = self._turns
        self._awaited = min(answered + waiting, AWAITED_MAX)
        self._enough = waiting + (answered + 1) // 2
        self._until_ms = now_ms + MOMENT_MS

    def waits(self, waiting: int, now_ms: int) -> bool:
        """Whether the next frame, for which so many wait, is sealed in a later turn; it is asked again in that."""
        if not self._left:
            return False
        if waiting < self._awaited and now_ms <= self._until_ms:
            self._left -= 1
            if self._left:
                return True
        self._left = 0
        if waiting >= self._enough:
            self._skipped = 0
        else:
            self._skipped = min(2 * self._skipped + 1, SKIPPED_MAX)
            self._skip = self._skipped
        return False
