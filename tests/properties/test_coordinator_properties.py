"""Any order of begins, additions, decisions, checks, starts and full disks: what is there is what the table says."""
from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from gatehouse.kernel.errors import AlreadyDecided, StorageFull
from gatehouse.kernel.halves.half_records import Half
from gatehouse.kernel.message import Stored
from gatehouse.transactions.coordinator import CheckSettings, Decision, Membership, State
from gatehouse.transactions.states import Answer, Effect, step
from tests.kernel.full_log import FullLog
from tests.transactions.rig import Asked, TransactionRig

CHECKS = CheckSettings(700, 1_500, 2)
GROUPS = ("shop", "bank")


class Model:
    """One transaction as it should be."""

    def __init__(self, group: str, values: list[bytes]) -> None:
        self.group = group
        self.values = values
        self.state = State.OPEN
        self.decided_ms = 0
        self.by = ""


class Coordinator(RuleBasedStateMachine):
    transactions = Bundle("transactions")
    memberships = Bundle("memberships")

    @initialize()
    def open(self) -> None:
        self.log = FullLog()
        self.rig = TransactionRig(log=self.log)
        self.rig.kernel.create_topic("orders", partitions=1)
        self.rig.run()
        self.known: dict[int, Model] = {}
        self.committed: list[bytes] = []             # in the order of commits
        self.count = 0

    def _values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % (self.count - number) for number in range(count)]

    def _halves(self, values: list[bytes]) -> list[Half]:
        return [self.rig.half("orders/k", value) for value in values]

    def _answer(self) -> Stored:
        self.rig.run()
        return self.rig.witness.stored[-1]

    # ---- what senders do

    @rule(target=transactions, count=st.integers(1, 3), group=st.sampled_from(("", *GROUPS)))
    def begin(self, count: int, group: str) -> int:
        values = self._values(count)
        self.rig.transactions.begin(self._halves(values), group=group, settings=CHECKS if group else None,
                                    by="sender", owner=self.rig.witness)
        answer = self._answer()
        if self.log.full:
            assert isinstance(answer.error, StorageFull)
            return 0
        one = answer.positions[0][2]
        assert [message_id for _, _, message_id in answer.positions] == list(range(one, one + count))
        self.known[one] = Model(group, values)
        return one

    @rule(one=transactions, count=st.integers(1, 2))
    def add(self, one: int, count: int) -> None:
        if one not in self.known:
            return
        model, values = self.known[one], self._values(count)
        self.rig.transactions.add(one, self._halves(values), owner=self.rig.witness)
        error = self._answer().error
        if model.state is not State.OPEN:
            assert isinstance(error, AlreadyDecided)
        elif self.log.full:
            assert isinstance(error, StorageFull)
        else:
            assert error is None
            model.values += values

    @rule(one=transactions, decisions=st.lists(st.sampled_from(Decision), min_size=1, max_size=3))
    def decide(self, one: int, decisions: list[Decision]) -> None:
        """All of them at once, before any is answered."""
        if one not in self.known:
            return
        model, before = self.known[one], len(self.rig.witness.stored)
        for number, decision in enumerate(decisions):
            self.rig.transactions.decide(one, decision, by="decider", owner=self.rig.witness, token=number)
        self.rig.run()
        answers = {answer.token: answer for answer in self.rig.witness.stored[before:]}
        assert len(answers) == len(decisions)
        for number, decision in enumerate(decisions):
            self._decided(model, decision, answers[number])

    def _decided(self, model: Model, decision: Decision, answer: Stored) -> None:
        state, effect, told = step(model.state, decision.event)
        if self.log.full and model.state is State.OPEN:
            assert isinstance(answer.error, StorageFull)
            return
        if told is Answer.REFUSED:
            assert isinstance(answer.error, AlreadyDecided)
            assert (answer.error.state, answer.error.when_ms) == (model.state.name.lower(), model.decided_ms)
            return
        assert answer.error is None and state is not None
        model.decided_ms = model.decided_ms or answer.append_ms
        assert answer.append_ms == model.decided_ms
        model.state = state
        if effect is Effect.APPEND:
            self.committed += model.values

    # ---- what happens to everybody

    @rule(target=memberships, group=st.sampled_from(GROUPS), credit=st.sampled_from((None, 1, 3)))
    def join(self, group: str, credit: int | None) -> tuple[TransactionRig, Membership, Asked, int]:
        asked, membership = self.rig.join(group, "m", credit)
        return self.rig, membership, asked, self.rig.kernel.epoch

    @rule(one=consumes(memberships))
    def leave(self, one: tuple[TransactionRig, Membership, Asked, int]) -> None:
        _, membership, asked, epoch = one
        if epoch == self.rig.kernel.epoch:
            membership.leave()
        for check in asked.checks:
            assert check.id in self.known and check.value == self.known[check.id].values[0]
            assert check.group == self.known[check.id].group and 1 <= check.attempt <= CHECKS.max_checks

    @rule(by_ms=st.sampled_from((50, 400, 1_600, 7_000, 65_000)))
    def advance(self, by_ms: int) -> None:
        self.rig.advance(by_ms, max(100, by_ms // 20))
        for one, model in self.known.items():
            found = self.rig.show(one)
            assert found is not None
            if model.state is State.OPEN and found.state is State.EXPIRED:
                assert not self.log.full and found.attempts == (CHECKS.max_checks if model.group else 0)
                model.state, model.decided_ms = found.state, found.decided_ms

    @rule(lose_index=st.booleans())
    def restart(self, lose_index: bool) -> None:
        self.log.full = False
        self.rig.restart(lose_index=lose_index)

    @rule()
    def forget_memory(self) -> None:
        self.advance(self.rig.settings.checkpoint_ms + 100)

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        self.log.full = full

    # ---- what is there

    @invariant()
    def what_was_committed_is_there_once_and_in_order(self) -> None:
        if hasattr(self, "rig"):
            assert self.rig.values("orders") == self.committed

    @invariant()
    def what_expired_is_a_dead_letter(self) -> None:
        for group in GROUPS if hasattr(self, "rig") else ():
            queue = self.rig.kernel.groups.queue("$dead-letters/" + group)
            found = [] if queue is None else [record[3] for record in self.rig.read_partition(queue.first_partition_id)]
            assert sorted(value or b"" for value in found) == sorted(
                value for model in self.known.values() if model.state is State.EXPIRED and model.group == group
                for value in model.values)

    @invariant()
    def every_state_is_shown(self) -> None:
        for one, model in self.known.items() if hasattr(self, "rig") else ():
            found = self.rig.show(one)
            assert found is not None and (found.state, found.decided_ms) == (model.state, model.decided_ms)
            assert found.messages == len(model.values)

    @invariant()
    def what_is_open_is_counted(self) -> None:
        if hasattr(self, "rig"):
            open_ = [one for one, model in self.known.items() if model.state is State.OPEN]
            statistics = self.rig.transactions.statistics()
            assert statistics["transactions_open"] == len(open_) and self.rig.page()[0] == sorted(open_)
            assert bool(statistics["transactions_open_bytes"]) == bool(open_)


Coordinator.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCoordinator = Coordinator.TestCase
