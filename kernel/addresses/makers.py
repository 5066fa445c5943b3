"""Who may still make topics: a bound for each maker, a pace, and one bound over all. Pure: time is an argument.

A maker is a text that the kernel does not look into: doors give the user's name. What administrators create has no
maker and no bound; what the hub makes of itself (a dead letter's topic, a delayed message's) has no maker either, and
goes to `unrouted` instead where there are as many as may be.
"""
from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from gatehouse.kernel.errors import TooManyTopics
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import Topics

PACED_MAX: Final = 10_000          # makers whose pace is known; who made something longest ago is forgotten, and may
                                   # then make as many at once as anybody new
MINUTE_MS: Final = 60_000
SHORT_OF: Final = 10               # a tenth of all is left: somebody should look


class Makers:  # decision 120
    """Asked before somebody makes a topic, and told of every topic that is there."""

    def __init__(self, topics: Topics, on_short: Callable[[], None]) -> None:
        """`on_short` is called when a tenth or less is left of the topics that users may make."""
        self._on_short = on_short
        self._is_short = False
        self._topics = topics
        self._paces: dict[str, tuple[float, int]] = {}         # what may be made at once, and as of when

    def check(self, maker: str, settings: KernelSettings, now_ms: int) -> None:
        """One more by this maker. Raises TooManyTopics."""
        if len(self._topics) >= settings.max_auto_topics:
            raise TooManyTopics("there are as many topics as users may make "
                                f"(kernel.max_auto_topics, {settings.max_auto_topics})")
        if self._topics.made_by(maker) >= settings.max_auto_topics_per_user:
            raise TooManyTopics(f"{maker} has made as many topics as one user may "
                                f"(kernel.max_auto_topics_per_user, {settings.max_auto_topics_per_user})")
        self.pace(maker, settings, now_ms)

    def pace(self, maker: str, settings: KernelSettings, now_ms: int) -> None:
        """One topic more that this maker makes or changes. Raises TooManyTopics."""
        self._spend(maker, settings.auto_topics_per_minute, now_ms)

    def look(self, settings: KernelSettings) -> None:
        """There are more topics than before, or these are the first that are known."""
        was_short = self._is_short
        self._is_short = (settings.max_auto_topics - len(self._topics)) * SHORT_OF <= settings.max_auto_topics
        if self._is_short and not was_short:
            self._on_short()

    def _spend(self, maker: str, per_minute: int, now_ms: int) -> None:
        left, at_ms = self._paces.pop(maker, (float(per_minute), now_ms))
        left = min(float(per_minute), left + max(0, now_ms - at_ms) * per_minute / MINUTE_MS)
        if len(self._paces) >= PACED_MAX:
            del self._paces[next(iter(self._paces))]
        self._paces[maker] = (left - 1 if left >= 1 else left), now_ms
        if left < 1:
            wait_ms = ceil((1 - left) * MINUTE_MS / per_minute) if per_minute else MINUTE_MS
            raise TooManyTopics(f"{maker} makes and changes topics faster than one user may "
                                f"(kernel.auto_topics_per_minute, {per_minute}); try again in {wait_ms} ms", wait_ms)
