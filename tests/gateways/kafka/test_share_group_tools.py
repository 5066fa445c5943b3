"""Share groups (KIP-932) as tools see them, and change them."""
from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

from gatehouse.gateways.admission.decision import Operation
from tests.gateways.kafka.share_rig import ACCEPT, MEMBER, Rig, acquired, joined, rows_of


def test_tools_see_the_group_and_its_members() -> None:
    rig = Rig()
    client = rig.connect()
    epoch = client.beat(0, ["jobs"], rack="r1")["member_epoch"]
    missing, group = client.ask(77, group_ids=["none", "g"], include_authorized_operations=True)["groups"]
    assert missing["error_code"] == 69
    assert (group["group_state"], group["group_epoch"], group["authorized_operations"]) == ("Stable", epoch, 328)
    member, = group["members"]
    assert (member["member_id"], member["rack_id"], member["member_epoch"]) == (MEMBER, "r1", epoch)
    assert member["client_id"] == "c"
    assert member["subscribed_topic_names"] == ["jobs"]
    assert member["assignment"]["topic_partitions"][0]["partitions"] == [0, 1]


def test_tools_see_how_far_it_is_and_move_it() -> None:
    rig = Rig()
    client = joined(rig)
    rig.publish(5)
    client.fetch(most=2)
    client.acknowledge({0: [(0, 1, [ACCEPT])]})

    def offsets(topics: list[Row] | None = None) -> dict[int, tuple[int, int, int]]:
        group, = client.ask(90, groups=[Row(group_id="g", topics=topics)])["groups"]
        return {row["partition_index"]: (row["start_offset"], row["lag"], row["error_code"])
                for row in group["topics"][0]["partitions"]}

    assert offsets()[0] == (2, 3, 0)
    assert offsets([Row(topic_name="jobs", partitions=[0, 9])]) == {0: (2, 3, 0), 9: (-1, -1, 3)}
    assert offsets([Row(topic_name="none", partitions=[0])]) == {0: (-1, -1, 3)}

    def move(offset: int, partition: int = 0) -> Any:
        return client.ask(91, group_id="g", topics=[Row(topic_name="jobs", partitions=[
            Row(partition_index=partition, start_offset=offset)])])

    assert move(0)["error_code"] == 68, "it has a member"
    client.beat(-1)
    client.fetch(epoch=-1)
    assert move(99)["responses"][0]["partitions"][0]["error_code"] == 1
    assert move(0, 7)["responses"][0]["partitions"][0]["error_code"] == 3
    assert move(1)["responses"][0]["partitions"][0]["error_code"] == 0
    assert offsets()[0] == (1, 4, 0)
    assert client.ask(91, group_id="none", topics=[])["error_code"] == 69


def test_tools_delete_how_far_it_is_in_a_topic() -> None:
    rig = Rig()
    rig.hub.kernel.create_topic("other", partitions=1)
    rig.hub.kernel.flush()
    client = joined(rig)
    rig.publish(3)
    client.fetch(most=2)
    client.acknowledge({0: [(0, 0, [ACCEPT])]})

    def delete(*topics: str, group: str = "g") -> Any:
        return client.ask(92, group_id=group, topics=[Row(topic_name=topic) for topic in topics])

    assert delete("jobs")["error_code"] == 68, "it has a member"
    assert delete("jobs", group="none")["error_code"] == 69
    client.beat(-1)
    there, other, missing = delete("jobs", "other", "none")["responses"]
    assert (there["error_code"], there["topic_id"].bytes) == (0, rig.topic.uuid)
    assert other["error_code"] == missing["error_code"] == 3 and other["error_message"]
    assert client.ask(90, groups=[Row(group_id="g", topics=None)])["groups"][0]["topics"] == []
    assert rows_of(client.acknowledge({0: [(1, 1, [ACCEPT])]}))[0]["error_code"] == 121, "its lease has ended"
    client.beat(0, ["jobs"])
    rig.publish(1)
    assert acquired(rows_of(client.fetch())[0]) == [(3, 3, 1)], "as a new one begins"


def test_rights_to_delete_are_asked_for() -> None:
    rights = {"g": set(Operation), "jobs": set(Operation)}
    rig = Rig(lambda principal, operation, name: operation in rights.get(name.partition("/")[0], ()))
    client = joined(rig)
    client.beat(-1)
    rights["jobs"] = set()
    fields: dict[str, Any] = {"group_id": "g", "topics": [Row(topic_name="jobs")]}
    assert client.ask(92, **fields)["responses"][0]["error_code"] == 29
    rights["g"] = {Operation.CONSUME}
    assert client.ask(92, **fields)["error_code"] == 30
