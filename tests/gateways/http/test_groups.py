"""`/v1/groups` over the fake kernel: what changes while a call waits."""
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gatehouse.kernel.groups.group import Counts
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.message import Fetched
from gatehouse.kernel.state.topics import Topic
from tests.gateways.http.fake_kernel import FakeKernel
from tests.gateways.http.kit import Client, run_door


class GroupKernel(FakeKernel):
    """With one group over every topic, which is deleted as soon as something is fetched."""

    deleted = False
    made_again = False

    @property
    def groups(self) -> Any:
        return SimpleNamespace(settings=self.group_settings, topics=self.group_topics, group=self.group)

    def group_settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        return None if self.deleted else GroupSettings()

    def group_topics(self, name: str, tenant: str = "/") -> list[Topic]:
        return [] if self.deleted else self.topics(tenant)

    def group(self, name: str, topic: str, tenant: str = "/") -> Any:
        self.made_again = self.made_again or self.deleted
        found = self.topic(topic, tenant)
        assert found is not None
        unsettled = [(partition_id, 0) for partition_id in found.partition_ids() if self.bounds(partition_id)[1]]
        return SimpleNamespace(counts=lambda: Counts(1, *[0] * (len(Counts._fields) - 1)),
                               unsettled=lambda: unsettled)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              **how: Any) -> Any:
        self.deleted = True
        return super().fetch(wants, max_bytes, on_done, **how)


def test_a_group_that_is_deleted_while_it_is_read_is_not_made_again() -> None:
    kernel = GroupKernel()
    for topic in ("a", "b"):
        kernel.publish(f"{topic}/k", b"1")

    async def test(client: Client) -> None:
        told = (await client.ask("GET", "/v1/groups/shop")).json
        assert [(one["topic"], one["ready"], one["oldest"] > 0) for one in told["topics"]] == [
            ("a", 1, True), ("b", 1, True)]
        assert not kernel.made_again
    run_door(test, kernel=kernel)
