"""Which doors there are, and what two of them cannot share."""
from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gatehouse.gateways import mqtt, registry
from gatehouse.gateways.contract import CONTRACT, GatewaySpec
from gatehouse.gateways.registry import GatewayClash, check_specs, load_specs


def spec(name: str = "smoke", door: int | None = None) -> GatewaySpec:
    return GatewaySpec(name=name, contract=CONTRACT, door=door, config=dict, default_listen=(),
                       session=print)  # type: ignore[arg-type]


SPEC = spec()
NOT_A_SPEC = "hello"
OF_A_NUMBER = spec(door=12)
OF_TOMORROW = replace(spec("later"), contract=CONTRACT + 1)


def plugins(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = [EntryPoint(f"plugin{n}", value, registry.ENTRY_POINT_GROUP) for n, value in enumerate(values)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.ENTRY_POINT_GROUP else [])


def test_the_built_in_doors_that_are_built() -> None:
    specs = load_specs()
    assert specs["mqtt"] is mqtt.GATEWAY
    assert [(name, spec.name) for name, spec in specs.items()] == [(name, name) for name in specs]


def test_a_plugin_is_a_door_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, f"{__name__}:SPEC")
    assert load_specs()["smoke"].door is None, "the hub gives it a number"


def test_a_plugin_that_declares_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, f"{__name__}:NOT_A_SPEC", f"{__name__}:SPEC")
    specs = load_specs()
    assert re.fullmatch("the plugin plugin0 .*NOT_A_SPEC.* is no GatewaySpec", specs.broken["plugin0"])
    assert "smoke" in specs, "others are not held up"


def test_a_plugin_for_another_contract_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, f"{__name__}:OF_TOMORROW", f"{__name__}:SPEC")
    specs = load_specs()
    assert specs.broken["plugin0"].endswith(
        f"was written for version {CONTRACT + 1} of the contract of doors; this hub has {CONTRACT}")
    assert "later" not in specs and "smoke" in specs


def test_a_plugin_that_does_not_load_is_named_with_its_package_and_holds_up_nobody(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "smoke_signals.py").write_text("raise RuntimeError('no wood,\\nno fire')")
    (tmp_path / "smoke_signals-1.0.dist-info").mkdir()
    (tmp_path / "smoke_signals-1.0.dist-info" / "METADATA").write_text("Name: smoke-signals\nVersion: 1.0\n")
    (tmp_path / "smoke_signals-1.0.dist-info" / "entry_points.txt").write_text(
        "[gatehouse.gateways]\nsmoke = smoke_signals:GATEWAY\nsmoke2 = nowhere.at.all:GATEWAY\n")
    monkeypatch.syspath_prepend(tmp_path)
    specs = load_specs()
    assert {"mqtt", "http", "amqp", "kafka"} <= set(specs) and "smoke" not in specs
    assert specs.broken["smoke"] == ("the plugin smoke of the package smoke-signals (entry point smoke_signals:GATEWAY)"
                                     " does not load: RuntimeError: no wood, no fire")
    assert "No module named 'nowhere'" in specs.broken["smoke2"]


def test_a_plugin_cannot_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, "gatehouse.gateways.mqtt:GATEWAY")
    with pytest.raises(GatewayClash, match="two gateways are called 'mqtt': gatehouse.gateways.mqtt and entry point"):
        load_specs()


def test_a_door_number_is_taken_once() -> None:
    with pytest.raises(GatewayClash, match=r"other \(b\) and smoke \(a\) both use door number 9"):
        check_specs([("a", spec(door=9)), ("b", spec("other", door=9))])


def test_a_plugin_that_states_a_number_or_no_contract_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no_contract.py").write_text(
        "from gatehouse.gateways.contract import GatewaySpec\n"
        "GATEWAY = GatewaySpec(name='smoke', config=dict, default_listen=(), session=print)\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins(monkeypatch, f"{__name__}:OF_A_NUMBER", "no_contract:GATEWAY")
    specs = load_specs()
    assert specs.broken["plugin0"].endswith("states a door number; a door from outside is given its number by each hub")
    assert "missing 1 required keyword-only argument: 'contract'" in specs.broken["plugin1"]
