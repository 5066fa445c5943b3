"""Backups under full load through every door, with kills of hub and backup: what was acknowledged before one began is
in what is restored from it, once, in order, where it was said to be."""
from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gatehouse import exits
from tests.faults.campaign import DURABLE, NEVER, SMALL_SEGMENTS, Campaign, Plan
from tests.faults.checker import Checker
from tests.faults.clients import post, request
from tests.faults.conftest import Start
from tests.faults.nursery import ROOT, ForkedHub, Nursery
from tests.faults.readers import get, read_at_rest, read_over_http

COMMAND_S = 120
COMMAND = "from gatehouse.cli.main import main; main()"
LIMITED = ("import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), -1)); "
           "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " + COMMAND)


def gatehouse(*arguments: object, code: str = COMMAND) -> subprocess.Popen[str]:
    """A command as a process of its own."""
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ})


def done(command: subprocess.Popen[str], code: int = exits.OK) -> str:
    """What it said, once it has ended with this code."""
    out, err = command.communicate(timeout=COMMAND_S)
    assert command.returncode == code, err
    assert "Traceback" not in err
    return out or err


def back_up(folder: Path, port: int) -> subprocess.Popen[str]:
    return gatehouse("backup", folder, "--url", f"http://127.0.0.1:{port}", "--json")


def restored(campaign: Campaign, nursery: Nursery, backup: Path, folder: Path) -> tuple[ForkedHub, dict[str, Any]]:
    """A hub on what the backup holds, in place of the campaign's."""
    folder.mkdir()
    told = json.loads(done(gatehouse("restore", backup, "--data", folder / "data", "--json")))
    hub = nursery.start(folder, campaign.config())
    assert hub.wait_ready(), hub.log
    return hub, told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", [DURABLE, SMALL_SEGMENTS], ids=["durable", "small segments and retention"])
def test_what_was_acknowledged_before_a_backup_began_is_restored(nursery: Nursery, tmp_path: Path, plan: Plan) -> None:
    chance = random.Random(7)
    (tmp_path / "hub").mkdir()
    campaign = Campaign(nursery, tmp_path / "hub", plan, seed=7)
    backup = tmp_path / "backup"
    apart: list[float] = []                            # this test's clock from the hub's, which may be set meanwhile
    with campaign.told():
        for number in range(4):
            hub = campaign.start({"retention": 0.2} if plan.forgets else {})
            with campaign.loaded():
                apart.append(time.monotonic() - time.time())
                time.sleep(chance.uniform(0.3, 0.8))
                done(back_up(backup, campaign.ports["http"]))
                cut_off = back_up(backup, campaign.ports["http"])
                time.sleep(chance.uniform(0.4, 1.2))
                if number % 2:
                    cut_off.kill()
                hub.kill()
                cut_off.communicate(timeout=COMMAND_S)
                apart.append(time.monotonic() - time.time())
        given_out = last_id(campaign)
        hub, told = restored(campaign, nursery, backup, tmp_path / "again")
        cut_s = json.loads((backup / "manifest.json").read_text())["created"] / 1000 + min(apart)
        Checker(campaign.log, forgets=plan.forgets, until_s=cut_s).check(read_at_rest(campaign.ports["http"]),
                                                                            whole=True)
        assert told["damaged_ranges"] == 0
        status, answer = post(campaign.ports["http"], b"restored:0:")
        assert status == 201 and int(answer["id"]) > given_out
        assert hub.stop() == exits.OK
        assert "Traceback" not in hub.log


def last_id(campaign: Campaign) -> int:
    """The greatest message id that the original hub gave."""
    hub = campaign.start(NEVER)
    path, found = "/v1/topics/plant", []
    for partition in get(campaign.ports["http"], path)["bounds"]:
        start = partition["high_watermark"] - 1
        if start >= partition["log_start_offset"]:
            found += get(campaign.ports["http"],
                         f"{path}/messages?partition={partition['partition']}&from={start}")["messages"]
    hub.kill()
    return max(int(message["id"]) for message in found)


def test_retention_goes_on_after_a_backup_whose_reader_was_killed(start: Start, tmp_path: Path) -> None:
    reading = tmp_path / "reading"
    reading.touch()
    hub = start("segment_bytes = 1048576\nretention_bytes = 2097152\ncheckpoint_ms = 100",
                {"retention": 0.1, "read_backups": str(reading)})
    http = hub.port("http")
    for _ in range(10):
        assert post(http, bytes(100_000))[0] == 201
    backup = request(http, "POST", "/v1/backups")[1]
    piece = f"/v1/backups/{backup['id']}/{backup['files'][0]['name']}"
    for _ in range(50):
        assert post(http, bytes(100_000))[0] == 201
        assert request(http, "GET", piece)[0] == 200
    assert log_bytes(http) > 5_000_000, "held while it is read"
    reading.unlink()
    end_s = time.monotonic() + 60
    while log_bytes(http) > 3_300_000 and time.monotonic() < end_s:
        time.sleep(0.05)
    assert log_bytes(http) <= 3_300_000


def log_bytes(port: int) -> int:
    """What is in the log; its newest file is longer, for it has room allocated ahead."""
    return int(get(port, "/v1/status")["log"]["bytes"])


def test_a_full_disk_where_the_backup_goes_costs_neither_side_anything(start: Start, tmp_path: Path) -> None:
    hub = start("segment_bytes = 1048576")
    http = hub.port("http")
    for _ in range(15):
        assert post(http, bytes(100_000))[0] == 201
    backup = tmp_path / "backup"
    done(back_up(backup, http))
    for _ in range(15):
        assert post(http, bytes(100_000))[0] == 201
    cut_off = gatehouse(500_000, "backup", backup, "--url", f"http://127.0.0.1:{http}", code=LIMITED)
    told = done(cut_off, exits.STORAGE)
    assert told.count("\n") == 1 and "is full" in told
    assert post(http, b"and on")[0] == 201
    shutil.copytree(backup, tmp_path / "as it was")
    assert "went on with a backup" in done(gatehouse("backup", backup, "--url", f"http://127.0.0.1:{http}"))
    hub.kill()
    for source, count in ((tmp_path / "as it was", 15), (backup, 31)):
        shutil.rmtree(tmp_path / "data")
        done(gatehouse("restore", source, "--data", tmp_path / "data"))
        again = start("segment_bytes = 1048576")
        assert sum(map(len, read_over_http(again.port("http")).values())) == count
        again.kill()


def test_a_hub_that_is_killed_while_it_is_copied_leaves_a_backup_that_goes_on(start: Start, tmp_path: Path) -> None:
    hub = start(orders={"die": {"at": "kernel.backup.backups:Backups.read", "call": 20, "side": "before"}})
    for _ in range(30):
        assert post(hub.port("http"), bytes(1_000_000))[0] == 201
    backup = tmp_path / "backup"
    told = done(back_up(backup, hub.port("http")), exits.FAILED)
    assert "run the same again" in told
    assert "was cut off" in done(gatehouse("restore", backup, "--data", tmp_path / "again"), exits.FAILED)
    done(back_up(backup, start().port("http")))
    done(gatehouse("restore", backup, "--data", tmp_path / "again"))


def test_copies_at_the_same_time_do_not_hold_up_who_publishes(start: Start, tmp_path: Path) -> None:
    hub = start()
    http = hub.port("http")
    for _ in range(60):
        assert post(http, bytes(1_000_000))[0] == 201
    commands = [back_up(tmp_path / f"backup{number}", http) for number in range(2)]
    with closing(opened_copy(http)) as one, closing(opened_copy(http)) as other:
        for _ in range(50):                            # each time both are in the middle of the sixty
            assert len(one.read(1_000_000)) == len(other.read(1_000_000)) == 1_000_000
            assert post(http, b"meanwhile")[0] == 201
    while any(command.poll() is None for command in commands):
        assert post(http, b"meanwhile")[0] == 201
    for command in commands:
        done(command)


def opened_copy(port: int) -> http.client.HTTPResponse:
    """The largest file of a new backup, to be read."""
    backup = request(port, "POST", "/v1/backups")[1]
    file = max(backup["files"], key=lambda one: one["bytes"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=COMMAND_S)
    connection.request("GET", f"/v1/backups/{backup['id']}/{file['name']}")
    answer = connection.getresponse()
    assert answer.status == 200
    return answer
