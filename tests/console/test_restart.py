"""The console stays open while its hub goes and comes back."""
from __future__ import annotations

from tests.console.asking import publish
from tests.running_hub import RunningHub, config_of, free_port


def test_it_says_that_the_hub_is_gone_and_goes_on_when_it_is_back(tmp_path, open_tab):
    config = config_of(("http",), 'fsync = "never"').replace("127.0.0.1:0", f"127.0.0.1:{free_port()}")
    first = RunningHub(tmp_path, config)
    try:
        first.wait_ready()
        publish(first, {"address": "plant/a", "value": "before"})
        tab = open_tab(first, "topics/plant")
        tab.wait_text("before", ".messages")
        tab.wait_text("live", "#link-state")
        assert first.stop()[0] == 0
        tab.wait_text("The hub does not answer", "#alert")
        tab.wait_text("no connection, trying again", "#link-state")
    finally:
        first.kill()
    second = RunningHub(tmp_path, config)
    try:
        second.wait_ready()
        tab.wait_text("live", "#link-state")
        tab.wait_gone("The hub does not answer")
        publish(second, {"address": "plant/a", "value": "after the restart"})
        tab.wait_text("after the restart", ".messages")
        assert tab.text(".messages").count("before") == 1
    finally:
        tab.said.clear()                 # a refused connection is told on the browser's console
        second.kill()
