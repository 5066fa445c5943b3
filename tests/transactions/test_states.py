"""The table of transactions: what its text says is what it does."""
from __future__ import annotations

import re

import pytest

import gatehouse.transactions.states
from gatehouse.transactions.states import TABLE, Answer, Effect, Event, State, due_event, step

STATES: dict[str, State | None] = {"open": State.OPEN, "committed": State.COMMITTED, "rolled_back": State.ROLLED_BACK,
                                   "expired": State.EXPIRED, "unknown": None}
ANSWERS = {"refused": Answer.REFUSED, "answered again": Answer.AGAIN, "unknown": Answer.UNKNOWN, "-": Answer.NOBODY}


def specified() -> list[tuple[str, str, str]]:
    """(event, state, what the text says) of every cell."""
    lines = (gatehouse.transactions.states.__doc__ or "").splitlines()
    head = next(number for number, line in enumerate(lines) if line.strip().startswith("event "))
    columns = re.split(r"\s{2,}", lines[head].strip())[1:]
    cells = []
    for line in lines[head + 1:head + 6]:
        event, *texts = re.split(r"\s{2,}", line.strip())
        cells += [(event, column, text) for column, text in zip(columns, texts, strict=True)]
    return cells


def test_every_state_and_event_has_its_cell():
    assert {(STATES[state], Event(event)) for event, state, _ in specified()} == set(TABLE)
    assert set(TABLE) == {(state, event) for state in STATES.values() for event in Event}


@pytest.mark.parametrize(("event", "state", "text"), specified(), ids=lambda one: one.replace(" ", "_"))
def test_a_cell_does_what_the_text_says(event: str, state: str, text: str):
    before = STATES[state]
    after, effect, answer = step(before, Event(event))
    if before is not State.OPEN:
        assert (after, effect, answer) == (before, Effect.NOTHING, ANSWERS[text])
        return
    words, _, becomes = text.partition("; ")
    assert Effect(words.split()[0].rstrip(",")) is effect
    assert after is STATES.get(becomes, State.OPEN)
    assert answer is (Answer.NOBODY if event in ("check", "silence") else Answer.STORED)


def test_a_decision_is_for_ever():
    for (before, _), (after, effect, _) in TABLE.items():
        if before is not State.OPEN:
            assert after is before and effect is Effect.NOTHING


@pytest.mark.parametrize(("attempts", "event"), [(0, Event.CHECK), (14, Event.CHECK), (15, Event.SILENCE)])
def test_the_last_check_is_followed_by_the_end(attempts: int, event: Event):
    assert due_event(attempts, 15) is event


def test_what_nobody_can_be_asked_about_has_a_time():
    assert due_event(0, 0) is Event.SILENCE
