"""The pages and files for people who run a hub agree with the hub."""
from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from gatehouse import exits
from gatehouse.gateways.connections.capacity import RESERVED_DESCRIPTORS
from gatehouse.metrics import COUNTER, HISTOGRAM, METRICS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
RULES = (ROOT / "packaging" / "prometheus-rules.yml").read_text()
UNIT = (ROOT / "packaging" / "gatehouse.service").read_text()
DOCKERFILE = (ROOT / "packaging" / "Dockerfile").read_text()
EXPOSED = {f"{name}_total" if metric.kind == COUNTER else name for name, metric in METRICS.items()}
BUCKETS = {f"{name}_{part}" for name, metric in METRICS.items() if metric.kind == HISTOGRAM
           for part in ("bucket", "sum", "count")}
DASHBOARD = json.loads((ROOT / "packaging" / "grafana-dashboard.json").read_text())
ALERTS = re.findall(r"- alert: (\w+)", RULES)


@pytest.mark.parametrize("name", sorted(EXPOSED))
def test_every_metric_says_what_to_do_when(name: str) -> None:
    told = re.findall(r"`(gatehouse_[a-z_*]+)`", PAGE)
    assert any(fnmatch(name, pattern) for pattern in told), f"docs/operations.md says nothing of {name}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bgatehouse_[a-z_]+", PAGE + RULES))))
def test_every_metric_that_is_named_exists(name: str) -> None:
    assert name in EXPOSED | BUCKETS \
        or any(exposed.startswith(name) for exposed in EXPOSED if f"`{name}*`" in PAGE), name


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_to_do(alert: str) -> None:
    assert f"**{alert}**" in PAGE


def test_alerts_use_metrics_and_have_one_name_each() -> None:
    assert len(set(ALERTS)) == len(ALERTS) > 5
    for expression in re.findall(r"expr: (.*)", RULES):
        assert re.search(r"\b(gatehouse_|up\b)", expression)
        assert expression.count("(") == expression.count(")")


def test_the_dashboard_shows_metrics_that_exist_with_their_labels() -> None:
    panels = DASHBOARD["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(expressions) > 10 and len({panel["id"] for panel in panels}) == len(panels)
    for expression in expressions:
        names = set(re.findall(r"\bgatehouse_[a-z_]+", expression))
        assert names <= EXPOSED | BUCKETS and (names or "process_" in expression), expression
        assert expression.count("(") == expression.count(")"), expression
    for panel in panels:
        for target in panel["targets"]:
            for name in re.findall(r"\bgatehouse_[a-z_]+", target["expr"]):
                metric = METRICS[re.sub(r"_(total|bucket)$", "", name)]
                assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= set(metric.labels), target
    covered = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(covered) == len(panels), "no two lie on each other"


def test_the_alert_about_connections_counts_what_the_hub_keeps_for_itself() -> None:
    """Of a small limit that is most: measured by the whole limit it would come too late, or never."""
    expression, = re.findall(r"expr: (.*gatehouse_descriptors_limit.*)", RULES)
    assert f"(gatehouse_descriptors_limit - {RESERVED_DESCRIPTORS})" in expression


def test_the_unit_and_the_image_run_what_there_is() -> None:
    from gatehouse.cli.main import cli
    from gatehouse.reference import commands_of
    for command in re.findall(r"bin/gatehouse (\w+)", UNIT):
        assert command in commands_of(cli)
    assert f'CMD ["{"serve"}"' in DOCKERFILE
    numbers = re.search(r"RestartPreventExitStatus=(.*)", UNIT)
    assert numbers is not None
    assert {int(number) for number in numbers[1].split()} <= set(exits.MEANING)
    assert exits.STORAGE not in {int(number) for number in numbers[1].split()}, "a failed disk is recovered from"


def test_nothing_of_the_unit_fails_before_the_hub_whose_exit_code_decides_about_a_restart() -> None:
    """RestartPreventExitStatus looks at ExecStart alone: a check before it would be tried again for ever."""
    assert re.findall(r"^(ExecStart\w*|ExecCondition)=", UNIT, re.MULTILINE) == ["ExecStart"]
    reload = re.findall(r"^ExecReload=(.*)", UNIT, re.MULTILINE)
    assert " check " in reload[0] and reload[1:] == ["/bin/kill -HUP $MAINPID"]


def test_the_image_has_every_package_of_the_hub() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))
    linked = {entry.name for entry in (ROOT / "gatehouse").iterdir() if entry.is_symlink()}
    assert linked
    assert copied == linked | {"gatehouse", "pyspark_gatehouse", "client"}
