"""The promises, checked against what can be read after a restart.

1. An acknowledged message is there, once; one without an answer is there once or not at all; a refused one is not
there. 2. Of each writer the order of sending is the order in its partition.
3. Partitions have no gaps. What lay at an offset before a crash lies there after it, if it was acknowledged or read.
4. Where an answer told partition and offset, there it lies. What a subscriber was given is there.

Retention may take the oldest away, and nothing that was sent after the answer to what is still there. A copy of a
moment lacks what was answered later.
"""
from __future__ import annotations

import math
from collections.abc import Collection

from tests.faults.oplog import ACKNOWLEDGED, LOST, REFUSED, OperationLog, identify
from tests.faults.readers import Partitions


class Checker:
    """Keeps what was found in earlier checks; offsets never change their message."""

    def __init__(self, log: OperationLog, *, forgets: bool = False, until_s: float = math.inf) -> None:
        self._log = log
        self._until_s = until_s                                     # what is read is a copy of this moment
        self._forgets = forgets                                     # retention is at work
        self.places: dict[tuple[str, int], tuple[int, int]] = {}    # by writer and number: partition and offset
        self._found: dict[tuple[int, int], bytes] = {}
        self._forgiven: set[tuple[int, int]] = set()                # partition and offset of what was damaged
        self._forgiven_anywhere = 0                                 # messages that nobody had read yet

    def forgive(self, names: Collection[tuple[str, int]]) -> None:
        """The bytes of these messages were damaged on the disk: from now on they may be gone."""
        for name in names:
            operation = self._log.operations[name]
            operation.state = LOST
            place = self.places.pop(name, None) or operation.place
            if place is None:
                self._forgiven_anywhere += 1
            else:
                self._forgiven.add(place)
                self._found.pop(place, None)
        self._log.heard = {value for value in self._log.heard if identify(value) not in names}
        self._log.seen = {place: value for place, value in self._log.seen.items() if identify(value) not in names}

    def next_starts(self, overlap: int) -> dict[int, int]:
        """Where to read on, some of what is known included."""
        ends: dict[int, int] = {}
        for partition, offset in self._found:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return {partition: max(0, end - overlap) for partition, end in ends.items()}

    def check(self, partitions: Partitions, *, whole: bool) -> None:
        """`whole`: the partitions were read from their beginnings."""
        for partition, messages in partitions.items():
            self._check_partition(partition, messages)
        self._check_seen(partitions)
        self._check_order()
        present = {identify(value) for messages in partitions.values() for _, _, value in messages}
        self._check_acknowledged(present if whole else self.places)

    def _check_partition(self, partition: int, messages: list[tuple[int, str, bytes]]) -> None:
        for (before, _, _), (after, _, _) in zip(messages, messages[1:], strict=False):
            missing = [offset for offset in range(before + 1, after) if (partition, offset) not in self._forgiven]
            assert before < after and len(missing) <= self._forgiven_anywhere, \
                f"partition {partition} jumps from offset {before} to {after}"
        for offset, key, value in messages:
            known = self._found.setdefault((partition, offset), value)
            assert known == value, f"partition {partition} offset {offset} was {known!r} and is now {value!r}"
            name = identify(value)
            place = self.places.setdefault(name, (partition, offset))
            assert place == (partition, offset), f"{name} lies at {place} and at {(partition, offset)}"
            operation = self._log.operations[name]
            assert operation.value == value and operation.key == key, f"{name} is not as it was sent: {key} {value!r}"
            assert operation.state != REFUSED, f"{name} was refused and is stored at {(partition, offset)}"
            assert operation.place in (None, place), f"{name} was answered {operation.place} and lies at {place}"
        start, end = (messages[0][0], messages[-1][0] + 1) if messages else (0, 0)
        lost = [offset for of_partition, offset in self._found if of_partition == partition and
                (offset >= end if messages else not self._forgets)]
        assert not lost, f"partition {partition} now holds {start} to {end}, and {lost[:5]} have been there"
        assert self._forgets or start == 0 or (partition,
                                               start - 1) in self._found, f"partition {partition} begins at {start}"

    def _check_seen(self, partitions: Partitions) -> None:
        for (partition, offset), value in list(self._log.seen.items()):
            copied = self._until_s == math.inf or partitions.get(partition) and offset <= partitions[partition][-1][0]
            if partition in partitions and partitions[partition] and offset >= partitions[partition][0][0] and copied:
                assert self._found.get((partition, offset)) == value, \
                    f"a reader was given {value!r} from partition {partition} offset {offset}, which is not there"
        for value in list(self._log.heard):
            name = identify(value)
            assert name in self.places or self._forgets or self._until_s < math.inf, \
                f"a subscriber was given {name}, which is not there"

    def _check_order(self) -> None:
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for (writer, number), (partition, offset) in sorted(self.places.items()):
            before = last.get((writer, partition))
            assert before is None or before[1] < offset, \
                f"{writer}: {before} (number, offset) comes before {(number, offset)} in partition {partition}"
            last[writer, partition] = number, offset

    def _check_acknowledged(self, present: Collection[tuple[str, int]]) -> None:
        operations = self._log.operations
        oldest_s = min((operations[name].answered_s for name in present if operations[name].state == ACKNOWLEDGED),
                       default=math.inf)
        for name, operation in list(operations.items()):
            if operation.state == ACKNOWLEDGED and operation.answered_s <= self._until_s and name not in present:
                assert self._forgets and operation.sent_s < oldest_s, f"{name} was acknowledged and is not there"
