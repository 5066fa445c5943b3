"""The metrics page: every sample is declared, and the page says what the sources say."""
from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

from gatehouse.metrics import SUM, Metrics


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


def test_a_bucket_has_a_message_that_was_counted_there_for_who_knows_openmetrics():
    metrics = Metrics()
    metrics.add(lambda: [("gatehouse_durable_seconds", (bound,), count) for bound, count in (
        ("0.001", 1), ("+Inf", 2), (SUM, 0.5))])
    metrics.add_exemplars(lambda: [("gatehouse_durable_seconds", "+Inf", Exemplar({"trace_id": "ab" * 16}, 0.49, 7.0))])
    families = {family.name: family for family in text_string_to_metric_families(metrics.render_openmetrics().decode())}
    shown = {sample.labels["le"]: sample.exemplar for sample in families["gatehouse_durable_seconds"].samples
             if sample.name.endswith("_bucket")}
    assert shown["0.001"] is None and shown["+Inf"].labels == {"trace_id": "ab" * 16}
    assert b"ab" * 16 not in metrics.render()
