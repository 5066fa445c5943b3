"""What fuzzing has found stays found; and the mutations reach what they are for."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from gatehouse.kernel.records.batch import check_batch
from tests.fuzz.corpus import CODECS, batch, corpus, produce
from tests.fuzz.framing import FRAMINGS, batch_of, with_records
from tests.fuzz.mutations import case
from tests.fuzz.runner import Fuzz
from tests.fuzz.seeds import read_seeds
from tests.running_hub import DOORS

SOME_CASES = 60


@pytest.mark.parametrize("door", DOORS)
def test_a_hub_keeps_well_under_kept_and_some_new_cases(door: str, tmp_path: Path) -> None:
    fuzz = Fuzz(door, 1, tmp_path)
    fuzz.play([*read_seeds(door).values(), *map(fuzz.case, range(SOME_CASES))])


@pytest.mark.parametrize("door", DOORS)
def test_taking_a_conversation_apart_and_putting_it_together_changes_nothing(door: str) -> None:
    framing = FRAMINGS[door]
    for turns in corpus(door):
        for turn in turns:
            frames = framing.split(turn)
            assert b"".join(frames) == turn


@pytest.mark.parametrize("codec", CODECS)
def test_changed_records_have_a_true_checksum_and_length(codec: int) -> None:
    request = produce(b"plant", batch(codec, 10))
    changed = with_records(request[4:], lambda records: records + records[:7])
    assert changed != request[4:]
    assert check_batch(batch_of(changed)).record_count == 10


@pytest.mark.parametrize("door", DOORS)
def test_a_case_is_decided_by_its_number(door: str, tmp_path: Path) -> None:
    one, other = Fuzz(door, 3, tmp_path), Fuzz(door, 3, tmp_path)
    assert [one.case(number) for number in range(50)] == [other.case(number) for number in range(50)]
    assert case(random.Random(1), door, corpus(door)) != case(random.Random(2), door, corpus(door))
