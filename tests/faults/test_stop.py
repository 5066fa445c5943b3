"""SIGTERM under load, and hubs that get in each other's way."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gatehouse import exits
from tests.faults.campaign import DURABLE, Campaign
from tests.faults.clients import post
from tests.faults.conftest import Start
from tests.faults.nursery import Nursery
from tests.running_hub import config_of


@pytest.mark.timeout(300)
def test_a_stop_under_load_keeps_every_promise(nursery: Nursery, tmp_path: Path) -> None:
    campaign = Campaign(nursery, tmp_path, DURABLE, seed=2)
    with campaign.told():
        for _ in range(3):
            campaign.drain()
        campaign.finish()


def test_a_second_hub_is_refused_and_the_first_does_not_notice(start: Start, nursery: Nursery, tmp_path: Path) -> None:
    first = start()
    second = nursery.start(tmp_path, config_of())
    assert not second.wait_ready()
    assert second.wait_ended() == exits.DATA_IN_USE
    assert second.log.splitlines()[-1].startswith(f"gatehouse: another hub (process {first.pid}) runs on ")
    assert post(first.port("http"), b"x")[0] == 201


@pytest.mark.parametrize("door", ["mqtt", "http", "kafka"])
def test_a_port_in_use_is_one_line_and_leaves_the_data_as_it_was(start: Start, nursery: Nursery, tmp_path: Path,
                                                                 door: str) -> None:
    hub = start()
    assert post(hub.port("http"), b"x")[0] == 201
    hub.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        advertise = f'advertise = "{address}"\n' if door == "kafka" else ""
        refused = nursery.start(tmp_path, f'[gateways.{door}]\nlisten = ["{address}"]\n{advertise}')
        assert not refused.wait_ready()
        assert refused.wait_ended() == exits.CANNOT_LISTEN
    assert f"gatehouse: the {door} door cannot listen on {address}: Address already in use" in refused.log
    assert "Traceback" not in refused.log
    assert post(start().port("http"), b"y")[1]["offset"] == 1
