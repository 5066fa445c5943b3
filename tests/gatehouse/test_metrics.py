"""The metrics page: every sample is declared, and the page says what the sources say."""
from __future__ import annotations

import pytest

from gatehouse.metrics import Metrics


def test_the_page_asks_its_sources_each_time():
    counted = [1]
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_flushes", (), counted[0])])
    metrics.add(lambda: [("gatehouse_connections", ("mqtt",), 3), ("gatehouse_connections", ("kafka",), 4)])
    assert b"gatehouse_flushes_total 1.0" in metrics.render()
    counted[0] = 7
    page = metrics.render().decode()
    assert "gatehouse_flushes_total 7.0" in page
    assert 'gatehouse_connections{door="mqtt"} 3.0\ngatehouse_connections{door="kafka"} 4.0' in page


def test_a_sample_that_is_not_declared_is_our_own_fault():
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_unheard_of", (), 1)])
    with pytest.raises(KeyError):
        metrics.render()


def test_a_label_may_hold_anything():
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_events", ("mqtt", 'a "quoted"\nword\\'), 1)])
    assert rb'gatehouse_events_total{door="mqtt",event="a \"quoted\"\nword\\"} 1.0' in metrics.render()
