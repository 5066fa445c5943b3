"""Settings of consumer groups (resource kind GROUP): shown, changed, kept, and what they do to members."""
from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka import kept_configs
from gatehouse.gateways.kafka.kept_configs import HEARTBEAT, SESSION
from gatehouse.kernel.errors import StorageFull
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.test_administration import altered, ask
from tests.gateways.kafka.test_consumer_groups import JOINING, beat
from tests.gateways.kafka.test_membership import consumer

GROUP = 32
SET, DELETE, APPEND = 0, 1, 2


def described(peer: Peer, name: str = "g") -> dict[str, Any]:
    answer = ask(peer, "DescribeConfigs", include_synonyms=True, include_documentation=True, resources=[
        Row(resource_type=GROUP, resource_name=name, configuration_keys=None)])
    row, = answer.results
    return {"error": row.error_code, **{config.name: (config.value, config.config_source) for config in row.configs}}


def set_group(peer: Peer, *steps: tuple[int, str, str | None], **fields: Any) -> int:
    return altered(peer, *steps, kind=GROUP, **{"name": "g", **fields})[0]


def test_settings_of_a_group_are_the_doors_until_they_are_set() -> None:
    peer = consumer()
    of_share = {"share.heartbeat.interval.ms": ("5000", 4), "share.session.timeout.ms": ("45000", 4),
                "share.record.lock.duration.ms": ("30000", 4), "share.auto.offset.reset": ("latest", 4),
                "share.isolation.level": ("read_uncommitted", 4)}
    assert described(peer) == {"error": 0, HEARTBEAT: ("3000", 4), SESSION: ("45000", 4), **of_share}
    assert beat(peer, **JOINING).interval_ms == 3_000
    assert set_group(peer, (SET, HEARTBEAT, "700"), (SET, SESSION, "5000"), validate_only=True) == 0
    assert beat(peer, epoch=1).interval_ms == 3_000
    assert set_group(peer, (SET, HEARTBEAT, "700"), (SET, SESSION, "5000")) == 0
    assert described(peer) == {"error": 0, HEARTBEAT: ("700", 8), SESSION: ("5000", 8), **of_share}
    assert beat(peer, epoch=1).interval_ms == 700
    peer.kernel.pass_time(5_000)
    assert beat(peer, epoch=1).error == 25                                     # it was silent for too long
    other = Peer(peer.kernel)                                                  # as after a start: what is kept is read
    assert described(other)[SESSION] == ("5000", 8)
    listed = ask(peer, "ListConfigResources", resource_types=[GROUP]).config_resources
    assert [(row.resource_name, row.resource_type) for row in listed] == [("g", GROUP)]
    assert set_group(peer, (DELETE, HEARTBEAT, None), (DELETE, SESSION, None)) == 0
    assert described(peer)[SESSION] == ("45000", 4) and not peer.kernel.kept


def test_a_change_waits_for_the_disk() -> None:
    peer = consumer()
    assert altered(peer, (SET, SESSION, "5000"), kind=GROUP, name="g", error=StorageFull("full"))[0] == 56


@pytest.mark.parametrize(("steps", "error"), [
    ([(SET, "retention.ms", "5")], 40), ([(SET, HEARTBEAT, "x")], 40), ([(SET, HEARTBEAT, "0")], 40),
    ([(SET, HEARTBEAT, None)], 40), ([(SET, HEARTBEAT, "45000")], 40), ([(SET, SESSION, "99999999999")], 40),
    ([(DELETE, "unknown", None)], 40), ([(APPEND, HEARTBEAT, "5")], 40), ([(SET, "share.isolation.level", "x")], 40),
    ([(SET, "share.auto.offset.reset", "by_duration:P")], 40), ([(SET, "share.auto.offset.reset", "PT1H")], 40),
    ([(SET, "share.auto.offset.reset", "by_duration:PT")], 40), (
        [(SET, "share.auto.offset.reset", "by_duration:PT-1H")], 40),
    ([(SET, "share.heartbeat.interval.ms", "45000")], 40),
    ([(SET, "share.delivery.count.limit", "7")], 40)])
def test_what_is_not_offered_is_refused(steps: list[tuple[int, str, str | None]], error: int) -> None:
    peer = consumer()
    assert set_group(peer, *steps) == error and not peer.kernel.kept


def test_groups_have_names_and_not_too_many_have_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = consumer()
    monkeypatch.setattr(kept_configs, "MAX_GROUPS", 1)
    assert altered(peer, (SET, SESSION, "5000"), kind=GROUP, name="")[0] != 0
    assert set_group(peer, (SET, SESSION, "5000")) == 0
    assert set_group(peer, (SET, SESSION, "5000"), name="h") == 44


def test_settings_take_the_right_to_the_group() -> None:
    peer = Peer(decision=lambda _, operation, name: operation is Operation.CONSUME and name == "g")
    assert described(peer)["error"] == 0 and described(peer, "h")["error"] == 30
    assert set_group(peer, (SET, SESSION, "5000")) == 30
