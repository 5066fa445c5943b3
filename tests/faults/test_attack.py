"""A short attack: what `python -m tests.faults.attack` does for hours; and what it is made of."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.log.segments import RealDisk, SegmentLog
from gatehouse.kernel.records.batch import check_batch
from tests.faults.attack import Attack
from tests.faults.bit_flips import flip
from tests.faults.hostile import poisons
from tests.faults.nursery import Nursery

ROUNDS = 4


@pytest.mark.timeout(300)
def test_a_hub_keeps_its_promises_under_attack(nursery: Nursery, tmp_path: Path) -> None:
    attack = Attack(nursery, tmp_path, seed=1)
    attack.run(ROUNDS)
    assert attack.poison.refused and attack.logins.wrong and attack.logins.right and attack.garbage.sent


def test_poison_has_right_checksums_and_lengths() -> None:
    for what, data in poisons().items():
        try:
            check_batch(data)
        except KernelError as refusal:
            assert "CRC" not in str(refusal) and "length field" not in str(refusal), what


def test_a_flipped_bit_is_one_bit_and_names_the_messages_of_its_frame(tmp_path: Path) -> None:
    log = SegmentLog(RealDisk(tmp_path), segment_bytes=1000)
    assert list(log.recover(0, 0, lambda damage: None)) == []
    for number in range(20):
        log.append(b"head", b"mqtt-a:%d:" % number + b"." * 300)
    log.sync()
    log.close()
    before = {file: file.read_bytes() for file in tmp_path.glob("*/*.log")}
    kinds = set()
    for seed in range(50):
        flipped = flip(tmp_path, random.Random(seed))
        if flipped is None:
            continue
        kinds.add(flipped.kind)
        data, was = flipped.file.read_bytes(), before[flipped.file]
        changed = [at for at, (one, other) in enumerate(zip(data, was, strict=True)) if one != other]
        assert changed == [flipped.at] and (data[flipped.at] ^ was[flipped.at]).bit_count() == 1
        assert len(flipped.lost) == (flipped.kind == "message")
        flipped.file.write_bytes(was)
    assert {"segment header", "message"} <= kinds
