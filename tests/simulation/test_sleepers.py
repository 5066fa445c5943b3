"""Devices with sessions in the simulator, and whether it would notice a promise to them that is not kept."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.kernel.sessions.attached import Attached
from gatehouse.kernel.sessions.keeper import Keeper
from gatehouse.kernel.sessions.session import OF_FLIGHT, OF_RECEIVED, Session
from tests.simulation.rounds import Failure, crash_at_every_write, simulate

SEEDS_TO_NOTICE = range(1, 41)


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_random_plan_of_devices(seed: int) -> None:
    simulate(seed, 200, about="sleepers")


@pytest.mark.parametrize("seed", [4, 7])
def test_devices_and_a_crash_at_every_write(seed: int) -> None:
    assert crash_at_every_write(seed, 40, about="sleepers") > 20


# ---- with a promise taken out

Patch = Callable[[pytest.MonkeyPatch], None]


def handing_out_before_the_packet_id_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Attached._hand_fresh

    def hand_fresh(attached: Any) -> None:
        answer = attached._hub.keeper.touch

        class Now:
            def answer(self, owner: Any, messages: Any) -> None:
                attached._storing = False
                attached.listener.on_messages(messages)

        def touch(session: Session, what: int) -> Any:
            answer(session, what)
            return Now()

        attached._hub.keeper.touch = touch
        try:
            real(attached)
        finally:
            attached._hub.keeper.touch = answer

    patch.setattr(Attached, "_hand_fresh", hand_fresh)


def forgetting_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    real = Keeper._write
    patch.setattr(Keeper, "_write", lambda keeper, frame, session, what: real(keeper, frame, session,
                                                                              what & ~OF_FLIGHT))


def forgetting_what_came_in(patch: pytest.MonkeyPatch) -> None:
    real = Keeper._write
    patch.setattr(Keeper, "_write", lambda keeper, frame, session, what: real(keeper, frame, session,
                                                                              what & ~OF_RECEIVED))


def counting_a_filter_from_later_on(patch: pytest.MonkeyPatch) -> None:
    real = Keeper.since
    patch.setattr(Keeper, "since", lambda keeper, partition_id: real(keeper, partition_id) + 1)


def going_on_behind_what_was_in_flight(patch: pytest.MonkeyPatch) -> None:
    real = Session.load_flight
    patch.setattr(Session, "load_flight", lambda session, following, dropped, flight: real(session, following, dropped,
                                                                                           {}))


@pytest.mark.parametrize("mutant", [
    handing_out_before_the_packet_id_is_durable, forgetting_what_is_in_flight, forgetting_what_came_in,
    counting_a_filter_from_later_on, going_on_behind_what_was_in_flight])
def test_a_promise_that_is_not_kept_is_noticed(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Failure):
        for seed in SEEDS_TO_NOTICE:
            simulate(seed, 200, about="sleepers")
