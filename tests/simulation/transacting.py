"""Half messages in the simulator: steps that begin, add, decide and ask, and whether the hub kept its word.

    visible    seen in the topic, or by a live subscriber, though it is not committed
    lost       committed, and not all of it is there; or expired, and not all of it is a dead letter; or unknown
    doubled    at two places
    undone     another outcome than was answered or shown before, or another time of it
    asked      about one that was decided, as its sender had been told
    forgotten  a check that somebody heard of is not written down
    early      given up before it was asked as often as it should be; or somebody was told of what is not stored yet
    late       due for long, the hub at rest, and nothing has happened
    torn       offsets without the messages, or messages without the offsets

They go to a topic of a tenant of their own, so that `checker` need not know of them.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.errors import AlreadyDecided, KeptFull, StorageFull
from gatehouse.kernel.halves.half_records import Half
from gatehouse.kernel.message import Delivery, Fetched, Record, Stored
from gatehouse.kernel.records.batch import NO_HEADERS, records_of
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.checking import BUSY_MS
from gatehouse.transactions.coordinator import (
    Check,
    CheckSettings,
    Decision,
    Membership,
    State,
    Transaction,
    Transactions,
    TransactionSettings,
)
from gatehouse.transactions.fresh import decode_batch
from gatehouse.transactions.loading import GRACE_MS
from gatehouse.transactions.records import BEGUN, ENDED, decode, open_key
from gatehouse.transactions.shared_records import decode_ended
from gatehouse.transactions.timers import BUCKET_MS
from tests.simulation.checker import Broken
from tests.simulation.clients import HALVES

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

TENANT: Final = "halves"
GROUP: Final = "senders"
LETTERS: Final = "$dead-letters/" + GROUP
CHECKS: Final = CheckSettings(700, 2_000, 3)
SETTINGS: Final = TransactionSettings(CHECKS, {}, timeout_ms=4_000, remembered_ms=1 << 50, slice=3)
DELAYS_MS: Final = (0, 0, 0, 1_500, 20_000)
SIZES: Final = (10, 10, 100, 3_000)
LARGE: Final = 120_000                  # three of them are two pages
LATE_MS: Final = 3_000
RETRIED_MS: Final = 2_500               # after this what the disk refused has been tried again
MEMBERS_MAX: Final = 3
OUTCOMES: Final = frozenset(State)


class Message:
    """One half message."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.id: int | None = None               # told: it is stored
        self.refused = False
        self.places: set[tuple[int, int]] = set()
        self.letters: set[int] = set()


class Sent:
    """One transaction as its sender knows it."""

    def __init__(self, number: int, group: str) -> None:
        self.number = number
        self.group = group
        self.messages: list[Message] = []
        self.id: int | None = None
        self.refused = False
        self.possible: frozenset[State] = OUTCOMES
        self.decided_ms = 0
        self.heard = 0                           # checks

    def learn(self, why: str, *states: State) -> None:
        """It is one of these, and has been or will be nothing else that is decided."""
        self.possible &= frozenset(states)
        if not self.possible:
            raise Broken(f"{why}: {self.number} is {' or '.join(state.name for state in states)} all of a sudden")

    def learn_time(self, decided_ms: int) -> None:
        self.decided_ms = self.decided_ms or decided_ms
        if decided_ms != self.decided_ms:
            raise Broken(f"undone: {self.number} was decided at {self.decided_ms}, and at {decided_ms}")


class Told:
    """The owner of one call, in one life of the hub."""

    def __init__(self, then: Callable[[Stored], None]) -> None:
        self._then = then

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            if not isinstance(answer.error, StorageFull | AlreadyDecided | KeptFull | None):
                raise Broken(f"refused for no good reason: {answer.error!r}")
            self._then(answer)


class Sender:
    """A member that is asked; some answer at once."""

    def __init__(self, transacting: Transacting) -> None:
        self._transacting = transacting
        self.membership: Membership | None = None

    def on_checks(self, checks: list[Check]) -> None:
        for check in checks:
            self._transacting.asked(check)


class Transacting:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._sent: list[Sent] = []
        self._members: list[Sender] = []
        self._refused = (0, 0)                   # flushes, and when that was seen
        self._started_ms = 0
        self._dropped = False                    # retention has taken something of the topic

    @property
    def _now_ms(self) -> int:
        return self._simulation.hub.world.loop.now_ms()

    @property
    def _transactions(self) -> Transactions:
        return self._simulation.hub.transactions

    def begin(self) -> None:
        """A new life of the hub."""
        self._members.clear()
        self._started_ms = self._now_ms
        self._refused = (0, 0)
        self._simulation.hub.kernel.subscribe(f"{HALVES}#", self, tenant=TENANT)

    # ---- steps

    def begin_half(self, key: int, count: int, size: int, group: int) -> None:
        one = Sent(len(self._sent), GROUP if group % 4 else "")
        self._sent.append(one)
        halves = self._halves(one, key, 1 + count % 4, size)

        def answered(answer: Stored) -> None:
            if answer.error is not None:
                one.refused = True
                return
            self._told_ids(one.messages, answer)
            self._identify(one, answer.positions[0][2])
            if self._stored(answer.positions[0][2]) is None:
                raise Broken(f"early: {one.number} is held, its sender was told, and it is not stored")

        try:
            self._transactions.begin(halves, group=one.group, tenant=TENANT, by="simulator", owner=Told(answered))
        except KeptFull:
            one.refused = True

    def add_half(self, which: int, key: int, count: int, size: int) -> None:
        one = self._some(which)
        if one is None:
            return
        before = len(one.messages)
        halves = self._halves(one, key, 1 + count % 3, size)
        mine = one.messages[before:]

        def answered(answer: Stored) -> None:
            if answer.error is None:
                self._told_ids(mine, answer)
                stored = self._stored(one.id or 0)
                if stored is None or stored.messages < sum(message.id is not None for message in one.messages):
                    raise Broken(f"early: something was added to {one.number}, and is not stored")
                return
            for message in mine:
                message.refused = True
            if isinstance(answer.error, AlreadyDecided):
                one.learn("undone", State[answer.error.state.upper()])

        self._transactions.add(one.id or 0, halves, tenant=TENANT, owner=Told(answered))

    def decide_half(self, which: int, decision: int, again: int, *_: int) -> None:
        """Perhaps twice, perhaps contrary."""
        one = self._some(which)
        if one is not None:
            self._decide(one, bool(decision % 3))
            if again % 4 == 0:
                self._decide(one, bool(again % 8))

    def join_senders(self, credit: int, *_: int) -> None:
        if len(self._members) < MEMBERS_MAX:
            sender = Sender(self)
            self._members.append(sender)
            sender.membership = self._transactions.join(GROUP, TENANT, sender, name=f"m{credit}",
                                                        credit=credit % 4 or None)

    def leave_senders(self, which: int, *_: int) -> None:
        if self._members:
            sender = self._members.pop(which % len(self._members))
            assert sender.membership is not None
            sender.membership.leave()

    def check_half(self, which: int, *_: int) -> None:
        one = self._some(which)
        if one is not None:
            self._transactions.check_now(one.id or 0, tenant=TENANT, owner=Told(lambda answer: None))

    # ---- how they do it

    def _some(self, which: int) -> Sent | None:
        """One whose id is known; rather one of the last."""
        known = [one for one in self._sent if one.id is not None]
        return known[-1 - which % min(len(known), 12)] if known else None

    def _halves(self, one: Sent, key: int, count: int, size: int) -> list[Half]:
        halves: list[Half] = []
        placement = self._simulation.hub.kernel.place(f"{HALVES}{key % 3}", tenant=TENANT)
        padding = b"x" * (LARGE if size % 97 == 0 else SIZES[size % len(SIZES)])
        for _ in range(count):
            message = Message(DELAYS_MS[(one.number + len(one.messages)) % len(DELAYS_MS)])
            value = b"%d.%d:" % (one.number, len(one.messages)) + padding
            halves.append(Half((placement, value, NO_HEADERS, 1, 0), None, message.delay_ms))
            one.messages.append(message)
        return halves

    @staticmethod
    def _told_ids(messages: list[Message], answer: Stored) -> None:
        for message, (_, _, message_id) in zip(messages, answer.positions, strict=True):
            message.id = message_id

    def _stored(self, transaction_id: int) -> Transaction | None:
        """As it stands in the log this moment while it is open: whoever is told something finds it here. A crash behind
        an answer that came too early proves the same, once in some hundred rounds."""
        state = self._simulation.hub.kernel._state
        own = state.get(Kind.TRANSACTION, open_key(transaction_id))
        if own is not None:
            return decode(transaction_id, own)
        ended = [decode_ended(*found) for found in state.scan(Kind.TRANSACTION, ENDED)]
        begun = [one for _, value in state.scan(Kind.TRANSACTION, BEGUN) for one in decode_batch(value)]
        is_over = any(transaction_id in known.ids for known in ended)
        return next((one.transaction() for one in begun if one.id == transaction_id and not is_over), None)

    def _identify(self, one: Sent, transaction_id: int) -> None:
        if one.id not in (None, transaction_id) or any(
                other.id == transaction_id for other in self._sent if other is not one):
            raise Broken(f"the transaction {one.number} is {one.id} and {transaction_id}")
        one.id = transaction_id

    def _decide(self, one: Sent, commits: bool) -> None:
        def answered(answer: Stored) -> None:
            if not isinstance(answer.error, StorageFull) and self._stored(one.id or 0) is not None:
                raise Broken(f"early: {one.number} is decided, somebody was told, and it is not stored")
            if isinstance(answer.error, AlreadyDecided):
                state = State[answer.error.state.upper()]
                if (state is State.COMMITTED) == commits:
                    raise Broken(f"{one.number} is {state.name}, and that was refused again")
                one.learn("undone", state)
                one.learn_time(answer.error.when_ms)
            elif answer.error is None:
                one.learn("undone", *((State.COMMITTED,) if commits else (State.ROLLED_BACK, State.EXPIRED)))
                one.learn_time(answer.append_ms)

        offsets = {f"g{one.number}": {self._partition_ids()[0]: (one.number + 1, b"")}} if one.number % 2 else {}
        self._transactions.decide(one.id or 0, Decision.COMMIT if commits else Decision.ROLLBACK, tenant=TENANT,
                                  by="simulator", offsets=offsets, owner=Told(answered))

    def asked(self, check: Check) -> None:
        one, index = self._of(check.value)
        if one.refused or index:
            raise Broken(f"invented: {one.number} was refused, or has another first message, and is asked about")
        if State.OPEN not in one.possible:
            raise Broken(f"asked: {one.number} was decided")
        self._identify(one, check.id)
        one.heard += 1
        stored = self._stored(check.id)
        if stored is not None and sum(bool(made.to) for made in stored.checks) < one.heard:
            raise Broken(f"early: {one.number} is asked about, and that is not stored")
        if check.id % 3 == 0:
            self._decide(one, bool(one.number % 2))

    # ---- what is seen

    def _of(self, value: bytes | None) -> tuple[Sent, int]:
        number, _, index = (value or b"").partition(b":")[0].partition(b".")
        return self._sent[int(number)], int(index)

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """A live subscriber."""
        for placement, messages, first_offset, _ in deliveries:
            for number, message in enumerate(messages):
                self._see(message[1], placement.partition_id, first_offset + number, None)

    def _see(self, value: bytes | None, partition_id: int, offset: int, message_id: int | None) -> None:
        one, index = self._of(value)
        message = one.messages[index]
        one.learn("visible", State.COMMITTED)
        if one.refused or message.refused:
            raise Broken(f"visible: {one.number}.{index} was refused")
        message.places.add((partition_id, offset))
        if len(message.places) > 1:
            raise Broken(f"doubled: {one.number}.{index} is at {sorted(message.places)}")
        if message_id is not None and message.id not in (None, message_id):
            raise Broken(f"{one.number}.{index} has id {message.id}, came as {message_id}")

    def _see_letter(self, record: Record) -> None:
        one, index = self._of(record[3])
        one.learn("visible", State.EXPIRED)
        message = one.messages[index]
        message.letters.add(record[0])
        if len(message.letters) > 1 or message.id not in (None, record[6]) or not one.group:
            raise Broken(f"doubled: {one.number}.{index}, of {one.group!r}, is a dead letter at "
                         f"{sorted(message.letters)} as {record[6]}")

    # ---- checks

    def check(self, *, rests: bool) -> None:
        """`rests`: the hub has nothing left to do, and its disk is not full."""
        kernel = self._simulation.hub.kernel
        refused = kernel.statistics()["refused_flushes_total"]
        if refused != self._refused[0]:
            self._refused = refused, self._now_ms
        rests = rests and self._now_ms > self._refused[1] + RETRIED_MS and not self._put_off()
        while True:                              # reading may let a flush be applied: then once more
            before = kernel.statistics()["flushes_total"]
            records = {partition_id: self._read(partition_id) for partition_id in self._partition_ids()}
            letters = self._read_letters()
            shown = {one.number: self._show(one.id) for one in self._sent if one.id is not None}
            if kernel.statistics()["flushes_total"] == before:
                break
        for partition_id, of_partition in records.items():
            for record in of_partition:
                self._see(record[3], partition_id, record[0], record[6])
        for record in letters:
            self._see_letter(record)
        for one in self._sent:
            if one.id is not None:
                self._compare(one, shown[one.number], rests)

    def _put_off(self) -> bool:
        """Checks wait for a checkpoint, and look again in a moment."""
        looks_ms = self._transactions._checking._alarm.when_ms
        return looks_ms is not None and looks_ms <= self._now_ms + BUSY_MS + BUCKET_MS

    def _compare(self, one: Sent, what: Transaction | None, rests: bool) -> None:
        if what is None:
            raise Broken(f"lost: {one.number} is unknown")
        if what.state is State.OPEN:
            if State.OPEN not in one.possible:
                raise Broken(f"undone: {one.number} was decided, and is open")
            due_ms = max(what.next_ms, self._started_ms + GRACE_MS)
            if rests and due_ms < self._now_ms - LATE_MS:
                raise Broken(f"late: {one.number} has been due for {self._now_ms - due_ms} ms")
        else:
            one.learn("undone", what.state)
            one.learn_time(self._simulation.hub.kernel._clock.wall_of(what.decided_ms))
        if sum(bool(check.to) for check in what.checks) < one.heard:
            raise Broken(f"forgotten: {one.number} was asked {one.heard} times, written down are {what.checks}")
        if what.state is State.EXPIRED and (what.attempts < what.settings.max_checks or what.decided_ms <
                                            what.begun_ms + (CHECKS.first_ms if one.group else SETTINGS.timeout_ms)):
            raise Broken(f"early: {one.number} was given up after {what.attempts} checks")
        self._count(one, what, rests)

    def _count(self, one: Sent, what: Transaction, rests: bool) -> None:
        """All of its messages are where they should be."""
        committed = what.state is State.COMMITTED
        letters = what.state is State.EXPIRED and bool(one.group)
        seen = 0
        for index, message in enumerate(one.messages):
            seen += bool(message.places or message.letters)
            due_ms = what.decided_ms + message.delay_ms
            waits = committed and message.delay_ms and not (rests and self._now_ms > due_ms + LATE_MS)
            there = bool(message.places) or waits or self._dropped or not committed
            if message.id is not None and not (there and (bool(message.letters) or not letters)):
                raise Broken(f"lost: {one.number}.{index} of a transaction that is {what.state.name}")
            seen += bool(waits and not message.places and message.id is not None)
        stored = sum(message.id is not None for message in one.messages)
        if (committed and not self._dropped or letters) and stored and not stored <= what.messages:
            raise Broken(f"lost: {one.number} has {what.messages} messages, {stored} were stored")
        if seen > what.messages:
            raise Broken(f"torn: {one.number} has {what.messages} messages, {seen} are there")
        offsets = self._simulation.hub.kernel.groups.committed(f"g{one.number}", TENANT)
        if bool(offsets) != (committed and bool(one.number % 2)):
            raise Broken(f"torn: {one.number} is {what.state.name}, its offsets are {offsets}")

    # ---- reading

    def _partition_ids(self) -> list[int]:
        topic = self._simulation.hub.kernel.topic(HALVES[:-1], TENANT)
        return list(topic.partition_ids()) if topic is not None else []

    def _read(self, partition_id: int, *, kept: bool = False) -> list[Record]:
        kernel = self._simulation.hub.kernel
        records: list[Record] = []
        at, high = kernel.bounds(partition_id)
        at = 0 if kept else at
        self._dropped = self._dropped or at > 0
        while at < high:
            answers: list[Fetched] = []
            kernel.fetch([(partition_id, at, 1 << 30)], 1 << 30, answers.extend, kept=kept)
            self._wait_for(answers)
            pieces = answers[0].pieces
            if not pieces and not kept:                              # retention went on meanwhile
                return self._read(partition_id)
            if not pieces:
                raise Broken(f"lost: dead letters from {at} to {high}: {answers[0].error!r}")
            records += [record for piece in pieces for record in records_of(piece) if record[0] >= at]
            at = pieces[-1].first_offset + pieces[-1].count
        return records

    def _read_letters(self) -> list[Record]:
        queue = self._simulation.hub.kernel.groups.queue(LETTERS, TENANT)
        return [] if queue is None else self._read(queue.first_partition_id, kept=True)

    def _show(self, transaction_id: int | None) -> Transaction | None:
        found: list[Transaction | None] = []
        self._transactions.show(transaction_id or 0, TENANT, found.append)
        self._wait_for(found)
        return found[0]

    def _wait_for(self, answers: list[Any]) -> None:
        world = self._simulation.hub.world
        while not answers and (world.reader_worker.step() or world.loop.step()):
            pass

    def check_end(self) -> None:
        """Whoever was silent is given up, and nothing is left of half messages."""
        for _ in range(CHECKS.max_checks + 2):
            self._simulation.hub.advance(GRACE_MS)
            self._simulation.settle()
        left = [one.number for one in self._sent if one.id is not None and State.OPEN in one.possible]
        if left:
            raise Broken(f"late: {left} are open in the end")
        statistics = self._transactions.statistics()
        if statistics["transactions_open"] or statistics["transactions_open_bytes"]:
            raise Broken(f"nothing is open, and counted are {statistics}")
