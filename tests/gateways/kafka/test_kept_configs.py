"""Settings that the door keeps: they hold from when they are durable, and each change begins from the one before."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from gatehouse.gateways.kafka.kept_configs import KeptConfigs
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.message import Stored
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed

GROUP, TOPIC, SET = 32, 2, 0
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
NAME = ("/", "one")


class Told:
    def __init__(self) -> None:
        self.answers: list[tuple[object, Exception | None]] = []

    def on_stored(self, stored: list[Stored]) -> Iterator[None] | None:
        self.answers += [(one.token, one.error) for one in stored]
        return None


def test_what_is_put_holds_once_it_is_durable() -> None:
    peer, told = Peer(), Told()
    kept = KeptConfigs(peer.services, "space")
    kept.put(NAME, {"a": "1"}, told, "token")
    assert (dict(kept.get(NAME)), dict(kept.latest(NAME)), kept.names()) == ({}, {"a": "1"}, {NAME})
    assert told.answers == []
    peer.kernel.flush()
    assert dict(kept.get(NAME)) == {"a": "1"} and told.answers == [("token", None)]
    kept.put(NAME, {})
    assert dict(kept.get(NAME)) == {"a": "1"} and dict(kept.latest(NAME)) == {}
    peer.kernel.flush()
    assert (dict(kept.get(NAME)), kept.names()) == ({}, set())


def test_what_the_disk_refuses_never_held() -> None:
    peer, told, error = Peer(), Told(), StorageFailed("no room")
    kept = KeptConfigs(peer.services, "space")
    kept.put(NAME, {"a": "1"})
    peer.kernel.flush()
    kept.put(NAME, {"a": "2"}, told, 7)
    kept.put(NAME, {"a": "3"}, told, 8)
    peer.kernel.flush(error)
    assert dict(kept.get(NAME)) == dict(kept.latest(NAME)) == {"a": "1"}
    assert told.answers == [(7, error), (8, error)]


def alter(kind: int, name: str, **configs: str) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(version=1, validate_only=False, resources=[
        resource(version=1, resource_type=kind, resource_name=name, configs=[
            resource.AlterableConfig(version=1, name=config.replace("_", "."), config_operation=SET, value=value)
            for config, value in configs.items()])])


def settings(peer: Peer, kind: int, name: str, *wanted: str) -> list[str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(version=4, resources=[
        resource(version=4, resource_type=kind, resource_name=name, configuration_keys=None)])
    answer = decoded(DescribeConfigsResponse, 4, *peer.send(framed(request, 5)), 5)
    values = {config.name: config.value for config in answer.results[0].configs}
    return [values[one] for one in wanted]


@pytest.mark.parametrize(("kind", "first", "second"), [
    (GROUP, {HEARTBEAT: "2000"}, {SESSION: "60000"}), (TOPIC, {"flush.ms": "7"}, {"segment.ms": "90000"})])
def test_two_changes_that_come_together_are_both_made(kind: int, first: dict[str, str], second: dict[str, str]) -> None:
    peer = Peer()
    peer.kernel.create_topic("plant")
    peer.kernel.flush()
    other, third = Peer(peer.kernel), Peer(peer.kernel)
    other.services.shared = third.services.shared = peer.services.shared
    wanted = [*first, *second]
    before = settings(peer, kind, "plant", *wanted)
    assert peer.send(framed(alter(kind, "plant", **first), 5)) == []
    assert other.send(framed(alter(kind, "plant", **second), 5)) == []
    assert settings(third, kind, "plant", *wanted) == before
    peer.kernel.flush()
    for one in (peer, other):
        answer = decoded(IncrementalAlterConfigsResponse, 1, *one.link.frames(), 5)
        assert [row.error_code for row in answer.responses] == [0]
    assert settings(peer, kind, "plant", *wanted) == [*first.values(), *second.values()]


@pytest.mark.parametrize(("kind", "config"), [(GROUP, HEARTBEAT), (TOPIC, "flush.ms")])
def test_a_change_that_the_disk_refuses_is_answered_so(kind: int, config: str) -> None:
    peer = Peer()
    peer.kernel.create_topic("plant")
    peer.kernel.flush()
    before = settings(peer, kind, "plant", config)
    assert peer.send(framed(alter(kind, "plant", **{config: "1234"}), 5)) == []
    peer.kernel.flush(StorageFailed("no room"))
    answer = decoded(IncrementalAlterConfigsResponse, 1, *peer.link.frames(), 5)
    assert [row.error_code for row in answer.responses] == [56]
    assert settings(peer, kind, "plant", config) == before
