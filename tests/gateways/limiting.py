"""Limits of a hub that a test holds in its hand."""
from __future__ import annotations

from typing import Any

from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.state.topics import FAIL, TopicSettings


def set_limit(hub: FakeHub, of: str, id: str = "1", **amounts: Any) -> None:
    """A limit that holds from now on, in place of one with this id."""
    accounts = hub.admission.accounts
    before = accounts.limits.get(id)
    limit = accounts.limits[id] = read_limit({"of": of, **amounts}, id)
    hub.admission.on_limit_changed(before, limit)


def drop_limit(hub: FakeHub, id: str = "1") -> None:
    """Nothing is limited by it any more."""
    hub.admission.on_limit_changed(hub.admission.accounts.limits.pop(id), None)


def make_fast(hub: FakeHub, name: str = "fast") -> None:
    """A topic that refuses what is too much."""
    hub.kernel.create_topic(name, settings=TopicSettings(at_limit=FAIL))
    hub.kernel.flush()


def stored(hub: FakeHub, topic: str) -> list[bytes | None]:
    """The values that a topic holds."""
    hub.kernel.flush()
    found = hub.kernel.topic(topic)
    if found is None:
        return []
    return [record[3] for partition_id in found.partition_ids() for record in hub.kernel.records_of(partition_id)]
