"""How much is in topics, and how far groups are behind: for lists, so in pieces between which others have a turn."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.state.topics import Topic

GROUPS_AT_ONCE: Final = 100
"""Groups looked at before others have a turn: a millisecond or two."""


async def count_topics(guard: Guard, topics: list[Topic]) -> list[dict[str, int]]:
    """Three counts for each topic: the `messages` it holds, the `groups` that read it, and the `lag` of the group that
    is furthest behind."""
    counts = [{"messages": _messages_in(guard, topic), "groups": 0, "lag": 0} for topic in topics]
    of_topic = {topic.id: number for number, topic in enumerate(topics)}
    start = 0
    while (rows := guard.groups.behind(topics, start, GROUPS_AT_ONCE)) is not None:
        for topic_id, lag in rows:
            topic_counts = counts[of_topic[topic_id]]
            topic_counts["groups"] += 1
            topic_counts["lag"] = max(topic_counts["lag"], lag)
        start += GROUPS_AT_ONCE
        await asyncio.sleep(0)
    return counts


def _messages_in(guard: Guard, topic: Topic) -> int:
    bounds = np.frombuffer(guard.bounds_of(topic), np.int64)
    return int(bounds[1::2].sum() - bounds[::2].sum())


def matching(name: str, query: dict[str, Any]) -> bool:
    """Whether a name has the text of `contains` in it, in whatever case."""
    return str(query.get("contains", "")).casefold() in name.casefold()
