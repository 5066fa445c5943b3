"""The metrics page: every sample is declared, and the page says what the sources say."""
from __future__ import annotations

import pytest

from gatehouse.cli_state import describe, read_samples
from gatehouse.metrics import Metrics


def test_the_page_asks_its_sources_each_time():
    counted = [1]
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_messages_in", (), counted[0])])
    metrics.add(lambda: [("gatehouse_connections", ("mqtt",), 3), ("gatehouse_connections", ("kafka",), 4)])
    assert b"gatehouse_messages_in_total 1.0" in metrics.render()
    counted[0] = 7
    page = metrics.render().decode()
    assert "gatehouse_messages_in_total 7.0" in page
    assert 'gatehouse_connections{door="mqtt"} 3.0\ngatehouse_connections{door="kafka"} 4.0' in page


def test_a_sample_that_is_not_declared_is_our_own_fault():
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_unheard_of", (), 1)])
    with pytest.raises(KeyError):
        metrics.render()


def test_a_label_may_hold_anything():
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_events", ("mqtt", 'a "quoted"\nword\\'), 1)])
    assert ("gatehouse_events_total", {"door": "mqtt", "event": 'a "quoted"\nword\\'}, 1.0) in read_samples(
        metrics.render().decode())


def test_status_is_read_from_the_page():
    metrics = Metrics()
    metrics.add(lambda: [
        ("gatehouse_info", ("hub-1", "0.1.0"), 1), ("gatehouse_epoch", (), 3), ("gatehouse_messages_in", (), 12),
        ("gatehouse_connections", ("mqtt",), 2), ("gatehouse_connections_accepted", ("mqtt",), 9),
        ("gatehouse_resident_bytes", (), 2**20)])
    told = describe(read_samples(metrics.render().decode()), True, 5, "http://hub")
    assert (told["hub"], told["version"], told["epoch"], told["topics"], told["messages_in"], told["memory_mib"]) == (
        "hub-1", "0.1.0", 3, 5, 12, 1.0)
    assert told["doors"] == {"mqtt": {"connections": 2, "accepted": 9, "refused": 0, "faults": 0}}
