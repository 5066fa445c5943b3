"""Those who talk to the hub in the simulator: publishers, idempotent producers, listeners."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.errors import StorageFull, UnknownPartition
from gatehouse.kernel.message import Delivery, Stored
from tests.simulation.checker import Attempt, Broken, Ledger

SCHEDULED: Final = "later/"
"""What begins the addresses of messages for later."""

LEASED: Final = "work/"
"""What begins the addresses of messages for leased groups."""

HALVES: Final = "half/"
"""What begins the addresses of half messages."""

ELSEWHERE: Final = (SCHEDULED, LEASED, HALVES)

FILTERS: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    ("#", lambda address: True),
    ("t0/#", lambda address: address == "t0" or address.startswith("t0/")),
    ("+/k1", lambda address: address.count("/") == 1 and address.endswith("/k1")),
    ("t1/k0", lambda address: address == "t1/k0"),
)
"""Filters, and what they match said once more."""


class Asking:
    """One call's token: which attempt it is for, and what becomes durable with it."""

    def __init__(self, attempt: Attempt | None, order: int, told: Callable[[Stored], None] | None, lane: int) -> None:
        self.attempt = attempt
        self.order = order
        self.lane = lane
        self.told = told
        self.repeat = attempt is not None and attempt.calls > 0     # may be answered with its first call


class Client:
    """An owner of calls, in one life of the hub: answers must come in the order of the calls; of batches, which may
    have to be opened on another thread, in the order of those for the same partition."""

    def __init__(self, ledger: Ledger, on_refused: Callable[[], None], has_partition: Callable[[int], bool]) -> None:
        self._ledger = ledger
        self._on_refused = on_refused
        self._has_partition = has_partition
        self._asked = 0
        self._answered: dict[int, int] = {}

    def ask(self, attempt: Attempt | None, told: Callable[[Stored], None] | None = None, *, lane: int = 0) -> Asking:
        """A token for a call that has been, or is just being, made. `lane` is the partition that a batch is for."""
        self._asked += 1
        asking = Asking(attempt, self._asked, told, lane)
        if attempt is not None:
            attempt.waiting += 1
            attempt.calls += 1
        return asking

    def take_back(self, asking: Asking) -> None:
        """The call was refused at once."""
        assert asking.order == self._asked
        self._asked -= 1
        if asking.attempt is not None:
            asking.attempt.waiting -= 1
            asking.attempt.calls -= 1

    def on_stored(self, stored: list[Stored]) -> None:
        refused = False
        for one in stored:
            asking = one.token
            assert isinstance(asking, Asking)
            if not asking.repeat:
                if asking.order <= self._answered.get(asking.lane, 0):
                    raise Broken(f"answer {asking.order} came after {self._answered[asking.lane]}")
                self._answered[asking.lane] = asking.order
            refused = self._take(asking, one) or refused
        if refused:
            self._on_refused()

    def _take(self, asking: Asking, stored: Stored) -> bool:
        if not (stored.error is None or isinstance(stored.error, StorageFull) or self._was_deleted(asking, stored)):
            raise Broken(f"refused for no good reason: {stored.error!r}")
        if asking.attempt is not None:
            self._ledger.acknowledge(asking.attempt, None if stored.error else stored.positions, stored.append_ms)
        if asking.told is not None:
            asking.told(stored)
        return isinstance(stored.error, StorageFull)

    def _was_deleted(self, asking: Asking, stored: Stored) -> bool:
        """A batch was being opened on another thread while its topic was deleted."""
        return isinstance(stored.error, UnknownPartition) and asking.attempt is not None \
            and asking.attempt.kind == "batch" and not self._has_partition(asking.lane)


class Listener:
    """A live subscriber of one filter, in one life of the hub."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.filter, self._matches = FILTERS[number % len(FILTERS)]
        self._ledger = ledger
        self._heard: set[tuple[int, int]] = set()
        self._last: dict[int, int] = {}                      # offset by partition
        self.owed: list[Attempt] = []                        # sent while this one listens

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        for placement, messages, first_offset, _ in deliveries:
            if placement.address.startswith(ELSEWHERE):
                continue                                     # `scheduled` and `leasing` look after those
            for i, message in enumerate(messages):
                self._hear(message[1], first_offset + i)

    def _hear(self, value: bytes | None, offset: int) -> None:
        found = self._ledger.identify(value)
        attempt = self._ledger.attempts[found[0]]
        sent = attempt.messages[found[1]]
        if found in self._heard:
            raise Broken(f"doubled: {found} was delivered twice to {self.filter}")
        if not self._matches(sent.address):
            raise Broken(f"{found} at {sent.address} was delivered to {self.filter}")
        if attempt.kind == "mqtt":                           # nobody is told its partition
            self._heard.add(found)
            self._ledger.promise(*found)
            return
        partition_id = sent.partition_id
        if attempt.kind != "batch":
            if attempt.positions is None:
                raise Broken(f"{found} was delivered before its sender had an answer")
            partition_id = attempt.positions[found[1]][0]
        if offset <= self._last.get(partition_id, -1):
            raise Broken(f"disorder: {self.filter} heard offset {offset} of partition {partition_id} late")
        self._heard.add(found)
        self._last[partition_id] = offset
        self._ledger.note(partition_id, offset, *found, None)

    def check(self, partition_ids: set[int]) -> None:
        """At rest: everything acknowledged that matches has been heard, but for producers' batches whose topic was
        deleted meanwhile."""
        for attempt in self.owed:
            for index, sent in enumerate(attempt.messages):
                if attempt.answered and self._matches(sent.address) and (attempt.number, index) not in self._heard \
                        and (attempt.kind != "batch" or sent.partition_id in partition_ids):
                    raise Broken(f"{self.filter} never heard {attempt.number}.{index} at {sent.address}")
        self.owed.clear()


class Cursor:
    """What one producer sends to one partition: sequences in order, at most five without an answer."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.batches: list[Attempt] = []

    @property
    def unanswered(self) -> list[Attempt]:
        return [batch for batch in self.batches if not batch.acknowledged]


class Producer:
    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.lines: dict[int, Cursor] = {}
