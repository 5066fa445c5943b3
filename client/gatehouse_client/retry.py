"""How often a call is repeated, and after how long. Pure: chance is an argument."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeats after the first attempt, and the pause before each: it doubles, and half of it is left to chance.

    Chance keeps the clients of a hub that was away from coming back all at once.
    """

    retries: int = 3
    backoff_s: float = 0.5
    max_backoff_s: float = 10.0

    def pause_s(self, attempt: int, chance: float, asked_s: float = 0.0) -> float:
        """Seconds to wait after attempt `attempt` (from 0); `chance` from 0 to 1, `asked_s` what the hub asked for."""
        whole_s = min(self.max_backoff_s, self.backoff_s * 2.0 ** min(attempt, 30))
        return max(asked_s, whole_s / 2) + chance * whole_s / 2


NO_RETRY = Retry(retries=0)
