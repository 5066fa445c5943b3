"""The list of circuits, and what those of the issuer, the catalogue and the meeting point do; at times of the test."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gatehouse.gateways.circuits import CATALOGUE_CIRCUIT, Circuits
from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings, CircuitState
from gatehouse.storage import CircuitCatalogue

A_MINUTE = 60_000
SETTINGS = CircuitSettings(failures=2, open_ms=A_MINUTE, longest_open_ms=8 * A_MINUTE, slow_ms=1_000)


def broken(now_ms: int = 0) -> CircuitBreaker:
    circuit = CircuitBreaker(SETTINGS)
    circuit.note(False, now_ms, reason="refused")
    circuit.note(False, now_ms, reason="refused")
    return circuit


def test_circuits_are_listed_by_tenant_and_say_why_they_are_open() -> None:
    circuits = Circuits(lambda now_ms: now_ms + 5)
    circuits.keep("webhook:b", CircuitBreaker(SETTINGS), lambda: None, "acme")
    circuits.keep("webhook:a", broken(), lambda: None, "acme")
    circuits.keep("issuer:jwt", CircuitBreaker(SETTINGS), lambda: None)
    assert circuits.ids("acme") == ["webhook:a", "webhook:b"]
    assert circuits.ids("/") == ["issuer:jwt"]
    assert circuits.describe("acme", "webhook:a") == {
        "id": "webhook:a", "circuit": "open", "by_hand": False, "opened": 1, "until": A_MINUTE + 5, "reason": "refused"}
    assert circuits.describe("/", "webhook:a") is None
    assert list(circuits.counts()) == [("issuer", "closed", 1), ("webhook", "closed", 1), ("webhook", "open", 1)]
    assert list(circuits.opened()) == [("issuer", 0), ("webhook", 1)]


def test_people_turn_them_and_whoever_asks_over_them_hears_of_it() -> None:
    circuits, heard = Circuits(int), []
    circuit = circuits.keep("relay:meeting-point", CircuitBreaker(SETTINGS), lambda: heard.append(1))
    assert circuits.turn("/", "relay:meeting-point", True)
    assert (circuit.state, circuit.by_hand, len(heard)) == (CircuitState.OPEN, True, 1)
    assert not circuit.may_pass(1 << 50)
    assert circuits.turn("/", "relay:meeting-point", False)
    assert circuit.may_pass(0)
    assert not circuits.turn("acme", "relay:meeting-point", True)
    circuits.forget("relay:meeting-point")
    assert not circuits.turn("/", "relay:meeting-point", True)


def test_slow_answers_open_a_circuit() -> None:
    circuit = CircuitBreaker(SETTINGS)
    assert not circuit.note(True, 0, took_ms=1_000)
    assert not circuit.note(True, 0, took_ms=1_001)
    assert circuit.note(True, 0, took_ms=2_500)
    assert (circuit.state, circuit.reason) == (CircuitState.OPEN, "an answer took 2.5 s")
    assert circuit.may_pass(A_MINUTE)
    assert circuit.note(True, A_MINUTE, took_ms=9_000)                       # a probe that is slow is no good sign
    assert circuit.until_ms == 3 * A_MINUTE


def test_a_circuit_that_flaps_is_tried_less_and_less() -> None:
    circuit, now_ms, waits = broken(), 0, []
    for _ in range(5):
        waits.append(circuit.until_ms - now_ms)
        now_ms = circuit.until_ms
        assert circuit.may_pass(now_ms)
        assert circuit.note(True, now_ms)                                    # back,
        circuit.note(False, now_ms + 1)                                      # and gone again
        circuit.note(False, now_ms + 1)
        now_ms += 1
    assert waits == [1 * A_MINUTE, 2 * A_MINUTE, 4 * A_MINUTE, 8 * A_MINUTE, 8 * A_MINUTE]


def test_one_that_was_well_for_long_begins_with_a_minute_again() -> None:
    circuit = broken()
    assert circuit.may_pass(A_MINUTE) and circuit.note(True, A_MINUTE)
    for _ in range(2):
        circuit.note(False, 10 * A_MINUTE)
    assert circuit.until_ms == 11 * A_MINUTE


class Database:
    """A catalogue that fails when it is told to."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.failing, self.fault, self.takes_ms = False, "", 0
        self.now_ms = 0

    def take(self, step: Any) -> None:
        self.steps.append(step)
        self.now_ms += self.takes_ms


def test_a_database_that_is_down_is_asked_once_a_minute() -> None:
    database = Database()
    database.failing, database.fault = True, "no route"
    circuit = CircuitBreaker(CATALOGUE_CIRCUIT)
    catalogue = CircuitCatalogue(cast(Any, database), circuit, lambda: database.now_ms)
    step = cast(Any, SimpleNamespace())
    for _ in range(90):                                                      # three minutes of checkpoints
        catalogue.take(step)
        database.now_ms += 2_000
    assert len(database.steps) == CATALOGUE_CIRCUIT.failures + 1
    assert circuit.reason == "no route"
    database.failing = False
    database.now_ms = circuit.until_ms
    for _ in range(10):
        catalogue.take(step)
    assert len(database.steps) == CATALOGUE_CIRCUIT.failures + 11
    assert circuit.state is CircuitState.CLOSED


def test_a_database_that_is_slow_does_not_hold_up_every_checkpoint() -> None:
    database = Database()
    database.takes_ms = CATALOGUE_CIRCUIT.slow_ms + 1
    catalogue = CircuitCatalogue(cast(Any, database), CircuitBreaker(CATALOGUE_CIRCUIT), lambda: database.now_ms)
    for _ in range(20):
        catalogue.take(cast(Any, SimpleNamespace()))
    assert len(database.steps) == CATALOGUE_CIRCUIT.failures
