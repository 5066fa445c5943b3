"""The table of what clients ask for is whole: methods, properties, arguments; the README tells what has no effect."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.gateways.amqp import arguments, asked, mapping, properties
from gatehouse.gateways.amqp.asked import ASKED, Fate
from gatehouse.gateways.amqp.dead_letters import DEATHS
from gatehouse.gateways.amqp.methods import METHODS
from gatehouse.gateways.amqp.publishing import DELAY, IDEMPOTENT
from gatehouse.gateways.amqp.recalling import DELAY_KEY
from gatehouse.gateways.amqp.streams import FILTER_VALUE
from tests.gateways.amqp.fakes import Hub

README = (Path(__file__).parents[3] / "gateways" / "amqp" / "README.md").read_text()
FROM_THE_HUB = ("connection.start", "connection.secure", "connection.tune", "connection.blocked",
                "connection.unblocked", "basic.return", "basic.deliver", "basic.get-empty")
"""Methods that the hub sends. What ends in -ok is somebody's answer."""


def names(where: str) -> set[str]:
    return {row.name for row in ASKED if row.where == where}


def test_nothing_stands_in_it_twice() -> None:
    assert len({(row.where, row.name) for row in ASKED}) == len(ASKED)


@pytest.mark.parametrize("spec", [spec for spec in METHODS.values() if spec.name not in FROM_THE_HUB and (
    not spec.name.endswith("-ok") or spec.name in ("connection.start-ok", "connection.tune-ok"))],
    ids=lambda spec: spec.name)
def test_every_field_of_a_method_stands_in_it(spec: tuple[str, tuple[tuple[str, str], ...]]) -> None:
    name, fields = spec
    assert {field for field, _ in fields} - {"_"} <= names(name)


def test_every_property_and_every_header_that_is_read_stands_in_it() -> None:
    assert names("property") == set(properties.NAMES)
    assert names("header") == {*mapping.CARBON_COPIES, mapping.HALF, mapping.HALF_ID, mapping.HALF_CHECK, DELAY, DEATHS,
                               DELAY_KEY, IDEMPOTENT, FILTER_VALUE}


def test_every_argument_that_is_read_stands_in_it() -> None:
    fields = {name for spec in METHODS.values() for name, _ in spec.fields}
    assert names("queue.declare") - fields == arguments.OF_QUEUES | {asked.UNKNOWN}
    assert names("basic.consume") - fields == arguments.OF_CONSUMERS | arguments.OF_STREAM_CONSUMERS
    assert names("exchange.declare") - fields == arguments.OF_EXCHANGES


@pytest.mark.parametrize("row", [row for row in ASKED if row.instead], ids=lambda row: f"{row.where} {row.name}")
def test_the_readme_says_what_happens_instead(row: asked.Asked) -> None:
    assert row.fate in (Fate.NO_EFFECT, Fate.COUNTED)
    assert row.instead in README
    assert row.where == "access.request" or f"`{row.name}`" in README


def test_what_has_no_effect_says_why() -> None:
    assert all(bool(row.instead) == (row.fate in (Fate.NO_EFFECT, Fate.COUNTED)) for row in ASKED)


def test_old_clients_are_given_a_ticket() -> None:
    client = Hub().client().login()
    assert client.ask("access.request", realm="/data", active=True)[0][1:] == ("access.request-ok", {"ticket": 1})
