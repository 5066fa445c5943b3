"""Two tenants that use the same names share nothing: each hears, takes and sees what is its own."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.groups.leasing import PAUSE_MS
from gatehouse.kernel.message import RETAIN, Retained, When
from gatehouse.kernel.records.batch import encode_headers
from tests.kernel.batches import batch_of
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import Taker, handles, pop, values
from tests.kernel.rig import Rig, Witness

HERE, THERE = "red", "blue"


def test_live_subscribers_hear_their_own_tenant_alone() -> None:
    rig = Rig()
    heard = {tenant: Witness() for tenant in (HERE, THERE)}
    for tenant, witness in heard.items():
        rig.kernel.subscribe("plant/#", witness, tenant=tenant)
    for tenant in heard:
        rig.publish("plant/a", tenant.encode(), tenant=tenant)
    assert {tenant: [one[1] for one in witness.delivered] for tenant, witness in heard.items()} == \
        {HERE: [b"red"], THERE: [b"blue"]}
    assert not rig.kernel.unsubscribe("plant/#", heard[HERE]), "it is subscribed in its own tenant, not in the default"
    assert rig.kernel.unsubscribe("plant/#", heard[HERE], tenant=HERE)
    rig.publish("plant/a", b"again", tenant=HERE)
    assert len(heard[HERE].delivered) == 1


@pytest.mark.parametrize("filter_text", ["#", "+/a", "plant/a"])
def test_a_subscription_of_another_tenant_opens_no_producers_batch(filter_text: str) -> None:
    rig = Rig()
    mine, other = Witness(), Witness()
    rig.kernel.subscribe(filter_text, other, tenant=THERE)
    topic = rig.kernel.create_topic("plant", partitions=1, tenant=HERE)
    rig.kernel.append_batch(topic.partition_id(0), batch_of([(b"a", b"1", ())]), None)
    rig.run()
    assert not rig.kernel.deliveries.listens(topic)
    rig.kernel.subscribe(filter_text, mine, tenant=HERE)
    rig.kernel.append_batch(topic.partition_id(0), batch_of([(b"a", b"2", ())]), None)
    rig.run()
    assert [one[1] for one in mine.delivered] == [b"2"] and other.delivered == []


@pytest.mark.parametrize("restart", [False, True])
def test_bound_queues_take_their_own_tenants_messages_over_restarts(tmp_path: Path, restart: bool) -> None:
    rig = Rig(tmp_path)
    for tenant in (HERE, THERE):
        rig.kernel.groups.bind("plant/#", rig.kernel.groups.declare_queue("work", tenant=tenant))
    rig.run()
    if restart:
        rig.restart()
    rig.publish("plant/a", b"1", tenant=HERE)
    rig.publish("plant/a", b"2")
    found = {tenant: rig.kernel.groups.queue("work", tenant) for tenant in (HERE, THERE)}
    groups = {tenant: rig.kernel.groups.queue_group(queue) for tenant, queue in found.items() if queue}
    assert {tenant: values(pop(rig, group)) for tenant, group in groups.items()} == \
        {HERE: [b"1"], THERE: []}


@pytest.mark.parametrize("shared", ["$share/crew/plant/#", "$share/crew/plant/+/temp"])
def test_shared_groups_of_one_name_are_one_per_tenant(shared: str) -> None:
    rig = Rig()
    takers = {tenant: Taker() for tenant in (HERE, THERE)}
    for tenant, taker in takers.items():
        rig.kernel.groups.share(shared, taker, 10, tenant=tenant)
    rig.publish("plant/a/temp", b"1", tenant=HERE)
    rig.publish("plant/a/temp", b"2")
    rig.run()
    assert takers[HERE].values == [b"1"] and takers[THERE].values == []


def group_of(rig: Rig, tenant: str) -> LeasedGroup:
    return rig.kernel.groups.group("billing", "orders", tenant)


def test_groups_dead_letters_and_redrive_stay_in_their_tenant() -> None:
    rig = Rig()
    for tenant in (HERE, THERE):
        rig.kernel.groups.define("billing", GroupSettings(max_attempts=1, retry=Retry((0,))), tenant)
        rig.publish("orders/a", tenant.encode(), tenant=tenant)
    group_of(rig, HERE).release(handles(pop(rig, group_of(rig, HERE))))
    rig.run()
    assert [queue.name for queue in rig.kernel.groups.queues(HERE)] == ["$dead-letters/billing"]
    assert rig.kernel.groups.queues(THERE) == []
    queue = rig.kernel.groups.queue("$dead-letters/billing", HERE)
    assert queue is not None
    assert rig.kernel.groups.redrive(queue, rig.read_partition(queue.first_partition_id)) == [None]
    rig.run()
    assert values(pop(rig, group_of(rig, HERE))) == [b"red"]
    assert values(pop(rig, group_of(rig, THERE))) == [b"blue"]


def test_committed_offsets_are_the_tenants() -> None:
    rig = Rig()
    partition_ids = {tenant: rig.publish("orders/a", b"1", tenant=tenant)[0][0] for tenant in (HERE, THERE)}
    rig.kernel.groups.commit_offsets("kafka", {partition_ids[HERE]: (1, b"")}, None)
    rig.run()
    assert rig.kernel.groups.committed("kafka", HERE) == {partition_ids[HERE]: (1, b"")}
    assert rig.kernel.groups.committed("kafka", THERE) == {} and rig.kernel.groups.all(THERE) == []
    group = rig.kernel.groups.group("kafka", "orders", THERE)
    assert values(pop(rig, group)) == [b"1"], "a group of another tenant leases"
    assert [name for name, _ in rig.kernel.groups.all(HERE)] == ["kafka"]


def test_deleting_a_group_leaves_the_other_tenants() -> None:
    rig = Rig()
    partition_ids = {tenant: rig.publish("orders/a", b"1", tenant=tenant)[0][0] for tenant in (HERE, THERE)}
    for partition_id in partition_ids.values():
        rig.kernel.groups.commit_offsets("kafka", {partition_id: (1, b"")}, None)
    rig.run()
    rig.kernel.groups.delete("kafka", HERE)
    rig.run()
    assert rig.kernel.groups.committed("kafka", HERE) == {}
    assert rig.kernel.groups.committed("kafka", THERE) == {partition_ids[THERE]: (1, b"")}


def test_retained_values_and_what_is_scheduled_are_the_tenants() -> None:
    rig = Rig()
    found: dict[str, list[Retained]] = {}
    for tenant in (HERE, THERE):
        rig.publish("plant/a", tenant.encode(), attributes=2 | RETAIN, tenant=tenant)
        rig.kernel.retained("#", tenant, lambda page, *_, tenant=tenant: found.update({tenant: page}))  # type: ignore[misc]
    rig.run()
    assert {tenant: [one.record[3] for one in page] for tenant, page in found.items()} == \
        {HERE: [b"red"], THERE: [b"blue"]}
    heard = {tenant: Witness() for tenant in (HERE, THERE)}
    for tenant, witness in heard.items():
        rig.kernel.subscribe("later/#", witness, tenant=tenant)
    later = (rig.kernel.place("later/a", tenant=HERE), b"late", encode_headers([]), 2, 0)
    rig.kernel.schedule([later], [When(rig.world.loop.now_ms() + 1_000)], rig.witness)
    rig.run()
    message_id = rig.witness.stored[-1].positions[0][2]
    shown: list[object] = []
    rig.kernel.scheduling.show(message_id, THERE, shown.append)
    rig.run()
    assert shown == [None]
    rig.world.advance(2_000)
    rig.run()
    assert [one[1] for one in heard[HERE].delivered] == [b"late"] and heard[THERE].delivered == []


def test_a_binding_that_was_deleted_in_vain_is_the_tenants_as_before() -> None:
    rig = FullRig()
    queue = rig.kernel.groups.declare_queue("work", tenant=THERE)
    rig.kernel.groups.bind("orders/#", queue)
    rig.run()
    with rig.full():
        rig.kernel.groups.delete_queue(queue)
    rig.publish("orders/a", b"1", tenant=THERE)
    rig.publish("orders/a", b"2")
    found = rig.kernel.groups.queue("work", THERE)
    assert found is not None
    rig.world.advance(PAUSE_MS + 100)
    assert values(pop(rig, rig.kernel.groups.queue_group(found))) == [b"1"]


def test_queues_of_one_name_have_their_own_settings() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("work", QueueSettings(max_length=1), HERE)
    rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2), THERE)
    queues = [queue for tenant in (HERE, THERE) for queue in rig.kernel.groups.queues(tenant)]
    assert [queue.settings.max_length for queue in queues] == [1, 2]
