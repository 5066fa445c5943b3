"""Which policies a group has: the one list."""
from __future__ import annotations

from functools import partial

from gatehouse.kernel.groups.core import Core
from gatehouse.kernel.groups.dead_lettering import DeadLettering, DeadLetters
from gatehouse.kernel.groups.expiry import Expiry, QueueExpiry
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.max_length import MaxLengths
from gatehouse.kernel.groups.ordering import Ordering
from gatehouse.kernel.groups.policy import Policy
from gatehouse.kernel.groups.selecting import Selecting, Selectors
from gatehouse.kernel.state.topics import Topics


class Policies:
    """Gives groups their policies. Messages are judged in the order of the list."""

    def __init__(self, core: Core, topics: Topics, letters: DeadLetters, selectors: Selectors, max_lengths: MaxLengths
                 ) -> None:
        self._core = core
        self._topics = topics
        self._letters = letters
        self._selectors = selectors
        self._max_lengths = max_lengths

    def give(self, group: LeasedGroup) -> None:
        """Raises InvalidSelector."""
        queue = group.queue
        policies: list[Policy] = [
            Expiry(partial(self._ttl_ms, group.topic_id)) if queue is None else QueueExpiry(self._core, group, queue),
            DeadLettering(self._letters, group),
            Selecting(self._selectors, group),
            Ordering(self._core, group)]
        if queue is not None and queue.settings.limited:
            policies.append(self._max_lengths.limit(self._core, group, queue))
        group.follow(policies)

    def _ttl_ms(self, topic_id: int) -> int:
        topic = self._topics.by_id(topic_id)
        return topic.settings.message_ttl_ms or 0 if topic is not None else 0
