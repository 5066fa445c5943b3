"""The demo's parts by themselves: readings, events, the page, a replay's messages."""
from __future__ import annotations

import http.client
import time

import pytest

from gatehouse.demo.events import MAX_PROCESSES, Alarm, process_events
from gatehouse.demo.page import SETTINGS_MARK, SOURCE, PageServer, page_with
from gatehouse.demo.replay import replayed
from gatehouse.demo.telemetry import Counters, Telemetry, rates


def test_readings_are_numbers_of_this_machine():
    telemetry = Telemetry(time.monotonic())
    found = dict(telemetry.read(time.monotonic() + 1))
    assert all(address.startswith("machine/") for address in found)
    assert 0 <= found["machine/memory/used_percent"] <= 100
    assert found["machine/processes/count"] > 0
    assert {"machine/cpu/total/percent", "machine/disk/used_percent", "machine/network/sent_bytes_per_s"} <= set(found)


def test_rates_are_over_the_time_between_and_never_negative():
    found = dict(rates(Counters(0, 0, 100, 500), Counters(1000, 0, 300, 0), 2.0))
    assert found == {"machine/disk/read_bytes_per_s": 500.0, "machine/disk/written_bytes_per_s": 0.0,
                     "machine/network/received_bytes_per_s": 100.0, "machine/network/sent_bytes_per_s": 0.0}


def test_processes_that_began_and_ended():
    assert process_events({1: "init", 2: "bash"}, {1: "init", 3: "curl"}) == [
        ("process/started", {"pid": 3, "name": "curl"}), ("process/ended", {"pid": 2, "name": "bash"})]
    many = process_events({}, dict.fromkeys(range(100), "make"))
    assert len(many) == MAX_PROCESSES + 1
    assert many[-1] == ("process/more", {"count": 100 - MAX_PROCESSES})


def test_an_alarm_does_not_flutter():
    alarm = Alarm()
    told = [alarm.look(percent, second) for second, percent in enumerate((10, 85, 79, 90, 51, 50, 20))]
    assert [None if event is None else event[1]["state"] for event in told] == [
        None, "busy", None, None, None, "calm", None]
    assert told[5] is not None and told[5][1]["lasted_s"] == 4


def test_nothing_in_a_setting_ends_the_page_script():
    assert SOURCE.read_text().count(SETTINGS_MARK) == 1
    page = page_with({"hub": "</script><b>"})
    assert b"</script><b>" not in page
    assert b'"hub": "\\u003c/script>' in page


def test_the_server_has_one_page():
    server = PageServer(0)
    server.start({"hub": "http://127.0.0.1:1"})
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        for path, status in (("/", 200), ("/?x=1", 200), ("/etc/passwd", 404)):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == status
            assert (b"http://127.0.0.1:1" in body) == (status == 200)
    finally:
        server.stop()


@pytest.mark.parametrize("seconds", [0, 1, 7])
def test_a_replay_has_every_reading_every_second(seconds: int):
    samples = [[("machine/cpu/total/percent", 1.0), ("machine/memory/available_bytes", 2e9)],
               [("machine/cpu/total/percent", 2.5), ("machine/memory/available_bytes", 3e9)]]
    found = list(replayed(samples, 5000, seconds))
    assert len(found) == 2 * seconds
    assert found[:3] == [("cpu/total/percent", "1", 5000), ("memory/available_bytes", "2000000000", 5000),
                         ("cpu/total/percent", "2.5", 6000)][:2 * seconds]
