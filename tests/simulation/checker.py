"""What was asked of the hub and what it said, and whether what it holds agrees.

Every value that is sent names its attempt and its place in it, so that whatever comes back tells what it is.

    lost       acknowledged, fetched or delivered, and not there any more, though retention does not say so
    doubled    one attempt stored twice; a retry under the same idempotency key or sequence is the same attempt
    invented   a value that nobody sent, or that was refused
    torn       one call's messages are there in part
    disorder   messages of one partition are not in the order they were sent in
    moved      an offset or a message id that is another one now
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gatehouse.kernel.message import Headers, Record
from gatehouse.kernel.settings import KernelSettings

Partitions = dict[int, tuple[int, int, list[Record]]]
"""By partition id: log start, high watermark, all records."""


class Broken(AssertionError):
    """A promise was broken."""


class Sent(NamedTuple):
    """One message as it was sent."""

    address: str
    partition_id: int
    key: bytes | None
    value: bytes
    headers: Headers
    attributes: int


class Attempt:
    """Something a client wants stored, however often it has to ask."""

    def __init__(self, number: int, kind: str, writer: str, now_ms: int) -> None:
        self.number = number
        self.kind = kind                                     # plain, mqtt, once (idempotency key), batch (sequence)
        self.writer = writer                                 # whose order must be kept
        self.key = ""                                        # idempotency key
        self.sequence = -1
        self.batch = b""
        self.messages: list[Sent] = []
        self.waiting = 0                                     # calls without an answer yet
        self.unknown = False                                 # a call was cut off by a crash: it may be stored
        self.calls = 0
        self.positions: list[tuple[int, int, int]] | None = None
        self.confirmed = False                               # acknowledged without positions
        self.first_ms = now_ms                               # it may have been stored since then,
        self.last_ms = now_ms                                # and until after this, when it was last asked for
        self.stored_ms = 0
        self.log_end = 0                                     # of the log when it was first heard of

    @property
    def acknowledged(self) -> bool:
        return self.positions is not None

    @property
    def answered(self) -> bool:
        """It was said to be stored, with or without its positions."""
        return self.acknowledged or self.confirmed

    @property
    def possible(self) -> bool:
        """It may be in the log."""
        return self.answered or self.unknown or self.waiting > 0

    def lost_call(self) -> None:
        """The connection or the hub went before the answer came."""
        self.waiting -= 1
        self.unknown = True


def value_of(number: int, index: int, size: int) -> bytes:
    return b"%d.%d:" % (number, index) + b"x" * size


class Ledger:
    """Everything the hub was asked and said, over all its lives."""

    def __init__(self, settings: KernelSettings, hub_ms: Callable[[int], int]) -> None:
        self._settings = settings
        self._hub_ms = hub_ms                                         # of an append time
        self.attempts: list[Attempt] = []
        self.seen: dict[tuple[int, int], tuple[int, int]] = {}        # (partition, offset): (attempt, index in it)
        self.ids: dict[tuple[int, int], int] = {}                     # (partition, offset): message id
        self.promised: set[tuple[int, int]] = set()                   # (attempt, index) that must be somewhere
        self.log_end = 0                                              # of the log, as far as the test knows
        self.largest_segment = settings.segment_bytes                 # of one frame, where that is larger
        self.topic_retention_ms: dict[int, int] = {}                  # by partition: the shortest it ever had

    def attempt(self, kind: str, writer: str, now_ms: int) -> Attempt:
        made = Attempt(len(self.attempts), kind, writer, now_ms)
        self.attempts.append(made)
        return made

    def crashed(self) -> None:
        for attempt in self.attempts:
            if attempt.waiting:
                attempt.waiting = 0
                attempt.unknown = True

    # ---- what the hub says

    def acknowledge(self, attempt: Attempt, positions: list[tuple[int, int, int]] | None, append_ms: int) -> None:
        """The answer to one call: positions, or None where it was refused."""
        if attempt.waiting < 1:
            raise Broken(f"attempt {attempt.number} was answered more often than it was asked")
        attempt.waiting -= 1
        if positions is None:
            return
        if attempt.kind == "batch":
            (partition_id, base, first_id), = positions
            positions = [(partition_id, base + i, first_id + i if first_id >= 0 else -1)
                         for i in range(len(attempt.messages))]
        if attempt.positions is None:
            attempt.positions, attempt.stored_ms = positions, self._hub_ms(append_ms)
            for index, (partition_id, offset, message_id) in enumerate(positions):
                self.note(partition_id, offset, attempt.number, index, message_id if message_id >= 0 else None)
        elif [position[:2] for position in attempt.positions] != [position[:2] for position in positions]:
            raise Broken(f"attempt {attempt.number} was answered {attempt.positions}, its repeat {positions}")

    def confirm(self, attempt: Attempt) -> None:
        """The answer to one call, without positions."""
        attempt.waiting -= 1
        attempt.confirmed = True
        for index in range(len(attempt.messages)):
            self.promise(attempt.number, index)

    def promise(self, number: int, index: int) -> None:
        """Somebody was told that this message is stored, or was given it: from now on it must be."""
        self.promised.add((number, index))
        self.attempts[number].log_end = self.attempts[number].log_end or self.log_end

    def note(self, partition_id: int, offset: int, number: int, index: int, message_id: int | None) -> None:
        """Somebody was told that this message lies there: from now on it must."""
        known = self.seen.setdefault((partition_id, offset), (number, index))
        self.attempts[number].log_end = self.attempts[number].log_end or self.log_end
        if known != (number, index):
            raise Broken(f"moved: partition {partition_id} offset {offset} was {known}, is {(number, index)}")
        if message_id is not None and self.ids.setdefault((partition_id, offset), message_id) != message_id:
            known_id = self.ids[partition_id, offset]
            raise Broken(f"moved: partition {partition_id} offset {offset} had id {known_id}, has {message_id}")

    def identify(self, value: bytes | None) -> tuple[int, int]:
        """Attempt and index of a value."""
        try:
            number, index = map(int, (value or b"").partition(b":")[0].split(b"."))
            sent = self.attempts[number].messages[index]
        except (ValueError, IndexError):
            raise Broken(f"invented: {value!r}") from None
        if sent.value != value:
            raise Broken(f"invented: {value!r} is not what was sent as {number}.{index}")
        return number, index

    def see(self, partition_id: int, record: Record, *, knows_id: bool = True) -> tuple[int, int]:
        """A record was read."""
        offset, _, key, value, headers, attributes, message_id = record
        number, index = self.identify(value)
        attempt = self.attempts[number]
        sent = attempt.messages[index]
        if not attempt.possible:
            raise Broken(f"invented: attempt {number} was refused and is there")
        if (sent.key, sent.headers, sent.attributes) != (key, headers, attributes):
            raise Broken(f"attempt {number}.{index} was sent as {sent}, read as {record}")
        self.note(partition_id, offset, number, index, message_id if knows_id else None)
        return number, index

    # ---- the whole of it

    def check(self, partitions: Partitions, now_ms: int) -> None:
        """`partitions` holds every partition of every topic."""
        places: dict[tuple[int, int], int] = {}
        for partition_id, (start, high, records) in partitions.items():
            if [record[0] for record in records] != list(range(start, high)):
                raise Broken(f"partition {partition_id} from {start} to {high} has a gap: "
                             f"{[record[0] for record in records]}")
            self._check_partition(partition_id, records, places)
        self._check_seen(partitions, now_ms)
        self._check_promised(partitions, places, now_ms)
        self._check_whole(partitions, places)

    def _check_partition(self, partition_id: int, records: Sequence[Record],
                         places: dict[tuple[int, int], int]) -> None:
        last_id = -1
        last: dict[str, tuple[int, int]] = {}
        for record in records:
            found = self.see(partition_id, record)
            if found in places:
                raise Broken(f"doubled: {found} is in partition {places[found]} and again in {partition_id}")
            places[found] = partition_id
            if record[6] <= last_id:
                raise Broken(f"message ids of partition {partition_id} do not grow at offset {record[0]}")
            last_id = record[6]
            attempt = self.attempts[found[0]]
            if attempt.kind != "once":
                writer = "" if attempt.kind == "plain" else attempt.writer
                if last.get(writer, (-1, -1)) > found:
                    raise Broken(f"disorder in partition {partition_id}: {last[writer]} before {found}")
                last[writer] = found

    def _check_seen(self, partitions: Partitions, now_ms: int) -> None:
        for (partition_id, offset), (number, index) in self.seen.items():
            if partition_id not in partitions:
                continue                                     # its topic is deleted; see `definitions`
            start, high, _ = partitions[partition_id]
            if offset >= high:
                raise Broken(f"lost: {number}.{index} was at partition {partition_id} offset {offset}, "
                             f"which ends at {high}")
            if offset < start and not self._may_be_dropped(self.attempts[number], partition_id, now_ms):
                raise Broken(f"lost: {number}.{index} at partition {partition_id} offset {offset} "
                             f"was dropped up to {start}")

    def _check_promised(self, partitions: Partitions, places: dict[tuple[int, int], int], now_ms: int) -> None:
        for number, index in self.promised:
            attempt = self.attempts[number]
            partition_id = attempt.messages[index].partition_id
            if (number, index) not in places and partition_id in partitions \
                    and not self._may_be_dropped(attempt, partition_id, now_ms):
                raise Broken(f"lost: {number}.{index} was acknowledged or delivered and is nowhere")
        self.promised.clear()                                # what was found is in `seen` now

    def _may_be_dropped(self, attempt: Attempt, partition_id: int, now_ms: int) -> bool:
        settings = self._settings
        stored_ms = attempt.stored_ms or attempt.first_ms
        age_ms = min(settings.retention_ms, self.topic_retention_ms.get(partition_id, settings.retention_ms))
        if stored_ms < now_ms - age_ms:
            return True
        return self.log_end - attempt.log_end > settings.retention_bytes - 2 * self.largest_segment

    def _check_whole(self, partitions: Partitions, places: dict[tuple[int, int], int]) -> None:
        """A call of several messages, or of unknown outcome, is there whole or not at all."""
        there: dict[int, int] = {}
        for number, _ in places:
            there[number] = there.get(number, 0) + 1
        for number, found in there.items():
            missing = len(self.attempts[number].messages) - found
            if missing and not any(sent.partition_id not in partitions or partitions[sent.partition_id][0] > 0
                                   for sent in self.attempts[number].messages):
                raise Broken(f"torn: {missing} of the {found + missing} messages of attempt {number} are missing")


def difference(before: dict[str, object], after: dict[str, object]) -> str:
    """What is only in one of two dumps."""
    found = []
    for name, was in before.items():
        now = after[name]
        if isinstance(was, dict) and isinstance(now, dict):
            was, now = sorted(was.items()), sorted(now.items())
        if isinstance(was, (list, tuple)) and isinstance(now, (list, tuple)):
            was, now = [one for one in was if one not in now], [one for one in now if one not in was]
        if was != now:
            found.append(f"{name}: {was!r} to {now!r}"[:1_000])
    return "; ".join(found)
