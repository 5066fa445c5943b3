"""Sets of ids, timers and records of transactions against what they stand for."""
from __future__ import annotations

from array import array
from itertools import islice

from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.kernel.halves.half_records import (
    PAGE_BYTES,
    HeldMessage,
    cut_pages,
    decode_page,
    decode_rows,
    encode_page,
    encode_place,
    held,
    size_of,
)
from gatehouse.kernel.scheduling.schedule_records import Pending
from gatehouse.transactions.due import MAX_ATTEMPTS, MAX_LISTED, DueTransaction
from gatehouse.transactions.id_set import IdSet
from gatehouse.transactions.outcomes import Outcomes
from gatehouse.transactions.records import CheckMade, Transaction, decode, decode_brief, encode
from gatehouse.transactions.settings import CheckSettings
from gatehouse.transactions.shared_records import (
    Ended,
    decode_begun,
    decode_ended,
    decode_ending,
    encode_begun,
    encode_ended,
    ending_of,
)
from gatehouse.transactions.states import State
from gatehouse.transactions.timers import BUCKET_MS, LATE_PART, Timers, due_at

IDS = st.integers(1, 60)
U32, U63 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 63) - 1)
TEXT = st.text(max_size=20)


@given(st.lists(st.tuples(st.sampled_from(("add", "add", "discard", "take")), st.one_of(IDS, st.integers(1, 1 << 63)))))
@example([("add", one) for one in (*range(5_000, 0, -1), 9_000)] + [("discard", one) for one in range(1, 4_900)])
def test_an_id_set_is_a_sorted_set(steps: list[tuple[str, int]]) -> None:
    ids, model = IdSet(), set[int]()
    for what, one in steps:
        if what == "take":
            taken = ids.take(one % 40)
            assert taken == sorted(model)[:one % 40]
            model.difference_update(taken)
            continue
        if what == "add":
            ids.add(one)
            model.add(one)
        else:
            ids.discard(one)
            model.discard(one)
        assert len(ids) == len(model) and (one in ids) == (what == "add")
    assert list(ids) == sorted(model)
    for one in (0, 7, *list(model)[:20]):
        assert list(ids.after(one)) == sorted(known for known in model if known > one)


WAITS_MS = st.sampled_from((0, 30_000, 1_000_000, 2_592_000_000))


@given(st.lists(st.one_of(
    st.tuples(st.just("add"), IDS, st.integers(0, 3_000), WAITS_MS),
    st.tuples(st.just("discard"), IDS, st.just(0), st.just(0)),
    st.tuples(st.just("take"), st.integers(1, 5), st.integers(0, 4_000), st.just(0)))))
def test_timers_give_what_is_due_once_and_never_early(steps: list[tuple[str, int, int, int]]) -> None:
    timers, model = Timers(), dict[int, tuple[int, int]]()
    for what, one, when_ms, wait_ms in steps:
        if what == "add" and one not in model:
            timers.add(when_ms, one, wait_ms)
            model[one] = when_ms, wait_ms
        elif what == "discard" and one in model:
            when_ms, wait_ms = model.pop(one)
            timers.discard(when_ms, one, wait_ms)
        elif what == "take":
            taken = timers.take(when_ms, one)
            due = {known for known, at in model.items() if due_at(*at) <= when_ms}
            assert len(taken) == len(set(taken)) == min(one, len(due)) and due.issuperset(taken)
            for known in taken:
                del model[known]
    assert timers.next_ms() == min((due_at(*at) for at in model.values()), default=None)


@given(st.integers(0, 1 << 42))
def test_what_is_put_back_is_due(now_ms: int) -> None:
    timers = Timers()
    timers.put_back(now_ms, 1)
    assert timers.take(now_ms, 5) == [1] and timers.next_ms() is None


@given(st.integers(0, 1 << 42), st.integers(0, 2_592_000_000))
def test_a_bucket_is_never_early_and_little_late(when_ms: int, wait_ms: int) -> None:
    assert 0 <= due_at(when_ms, wait_ms) - when_ms < max(BUCKET_MS, wait_ms / LATE_PART)


def test_long_waits_have_few_buckets() -> None:
    """A month's transactions, one after the other."""
    month_ms = 2_592_000_000
    assert len({due_at(when_ms, month_ms) for when_ms in range(0, month_ms, 10_007)}) <= LATE_PART + 1


TRANSACTIONS = st.builds(
    Transaction, U63, st.sampled_from(State), TEXT, TEXT, TEXT, TEXT, U63, U63,
    st.builds(CheckSettings, U32, U32, st.integers(0, 1_000)), U32, U32, U63, st.integers(0, 1_000),
    st.lists(st.builds(CheckMade, U63, TEXT), max_size=5).map(tuple), U63, TEXT)


@given(TRANSACTIONS)
def test_a_transaction_reads_as_it_was_written(one: Transaction) -> None:
    assert decode(one.id, encode(one)) == one


@given(TRANSACTIONS, st.sampled_from([State.COMMITTED, State.ROLLED_BACK, State.EXPIRED]), U63, TEXT)
def test_a_decision_changes_the_decision_alone(one: Transaction, state: State, when_ms: int, by: str) -> None:
    assert one.ended(state, when_ms, by) == one._replace(state=state, next_ms=0, decided_ms=when_ms, decided_by=by)


@given(TRANSACTIONS.filter(lambda one: one.state is State.OPEN), U63, st.one_of(st.just(""), TEXT), st.booleans())
def test_a_check_changes_what_it_should_alone(one: Transaction, at_ms: int, to: str, counts: bool) -> None:
    at_ms %= 1 << 62
    silent = DueTransaction(one.id, encode(one))
    assert (silent.name, silent.by) == ((one.tenant, one.group), one.by)
    assert (silent.next_ms, silent.wait_ms, silent.unasked) == (one.next_ms, one.wait_ms, one.unasked)
    silent.check(at_ms, to, counts)
    after = one._replace(attempts=one.attempts + counts, next_ms=at_ms + one.settings.every_ms,
                         checks=(*one.checks, CheckMade(at_ms, to)))
    assert decode(one.id, silent.value) == after
    assert (silent.next_ms, silent.wait_ms, silent.unasked) == (after.next_ms, after.wait_ms, after.unasked)
    assert (silent.due_ms, silent.waited_ms, silent.was_unasked) == (one.next_ms, one.wait_ms, one.unasked)
    brief = decode_brief(silent.value)
    assert (brief.next_ms, brief.wait_ms, brief.unasked) == (after.next_ms, after.wait_ms, after.unasked)


@given(TRANSACTIONS.filter(lambda one: one.state is State.OPEN), st.integers(MAX_LISTED, MAX_LISTED + 5))
def test_the_last_checks_are_listed(one: Transaction, times: int) -> None:
    value = encode(one._replace(checks=(), attempts=MAX_ATTEMPTS - 1))
    for at_ms in range(times):
        silent = DueTransaction(one.id, value)
        silent.check(at_ms, f"member {at_ms}", True)
        value = silent.value
    found = decode(one.id, value)
    assert found.attempts == MAX_ATTEMPTS
    assert found.checks == tuple(CheckMade(at_ms, f"member {at_ms}") for at_ms in range(times - MAX_LISTED, times))


DECIDED = st.sets(st.one_of(U63, st.integers(0, 3_000)), min_size=1, max_size=3).map(sorted)


@given(st.lists(st.tuples(st.sampled_from(("a", "b")), st.integers(0, 9), DECIDED)),
       st.lists(st.tuples(st.sampled_from(("a", "b")), st.integers(0, 3), DECIDED)),
       st.integers(0, 5))
def test_what_is_remembered_is_listed_and_forgotten_in_order(
        old: list[tuple[str, int, list[int]]], new: list[tuple[str, int, list[int]]], dropped: int) -> None:
    """New ones may be older than what was read: the clock was set back."""
    remembered, model, at_ms = Outcomes(), list[tuple[int, str, list[int]]](), 3
    remembered.begin_loading()
    for tenant, after_ms, ids in new:
        at_ms += after_ms
        remembered.add(Ended(at_ms, tenant, array("Q", ids)))
        model.append((at_ms, tenant, ids))
    for at_ms, tenant, ids in sorted((at_ms, tenant, ids) for tenant, at_ms, ids in old):
        if (at_ms, ids[0]) not in {(at_ms, ids[0]) for at_ms, _, ids in model[:len(new)]}:
            model.append((at_ms, tenant, ids))
        remembered.load(Ended(at_ms, tenant, array("Q", ids)))
    remembered.loaded()
    for gone in list(islice(remembered, dropped)):
        assert gone.decided_ms == min(at_ms for at_ms, _, _ in model)
        model.remove((gone.decided_ms, gone.tenant, list(gone.ids)))
        remembered.drop(gone)
    assert remembered.count == sum(len(ids) for _, _, ids in model)
    for wanted in ("a", "b"):
        mine = [(at_ms, ids) for at_ms, tenant, ids in model if tenant == wanted]
        expected = sorted(((at_ms, one) for at_ms, ids in mine for one in ids), reverse=True)
        assert [(entry.decided_ms, one) for entry, one in remembered.newest(wanted)] == expected
        for before in expected[:3]:
            found = [(entry.decided_ms, one) for entry, one in remembered.newest(wanted, before)]
            assert found == [one for one in expected if one < before]
    entries = {(at_ms, tenant, tuple(ids)) for at_ms, tenant, ids in model}
    for one in {one for _, _, ids in (*old, *new) for one in ids}:
        ended = remembered.find(one)
        known = (ended.decided_ms, ended.tenant, tuple(ended.ids)) if ended is not None else None
        assert known in entries if any(one in ids for _, _, ids in entries) else known is None


@given(U63, TEXT, st.lists(TRANSACTIONS, min_size=1, max_size=8, unique_by=lambda one: one.id))
def test_what_was_decided_together_reads_as_it_was(when_ms: int, tenant: str, ones: list[Transaction]) -> None:
    ones = [one.ended(State.COMMITTED, when_ms, one.by)._replace(tenant=tenant, pages=0) for one in ones]
    ended, record = encode_ended(when_ms, tenant, [ending_of(one) for one in ones])
    assert record.key == ended.key and decode_ended(record.key, record.value or b"") == ended
    assert list(ended.ids) == sorted(one.id for one in ones)
    for one in ones:
        assert decode_ending(record.value or b"", one.id) == one


@given(U63, st.lists(st.tuples(st.binary(max_size=5), st.integers(0, 5)), max_size=8), st.binary(max_size=10))
def test_what_began_together_reads_as_it_was(begun_ms: int, ones: list[tuple[bytes, int]], page: bytes) -> None:
    assert decode_begun(encode_begun(begun_ms, ones, page)) == (begun_ms, ones, page)


PLACES = st.builds(
    Pending, U63, st.booleans(), U63, U63, st.just(0), st.just(0), st.just(0), TEXT, TEXT, TEXT, st.booleans(),
    st.booleans(), st.booleans(), st.integers(-1, 10), st.one_of(st.none(), st.lists(U63, max_size=3).map(tuple)),
    st.one_of(st.none(), st.binary(max_size=10)), TEXT, st.just(b""), st.none())
BYTES = st.binary(max_size=10)
VALUES = st.one_of(st.none(), BYTES, st.just(bytes(200_000)))


@given(st.lists(st.tuples(U63, PLACES, VALUES, BYTES, st.integers(0, 255), U63), min_size=1, max_size=8),
       st.integers(1, 1 << 62))
def test_pages_hold_their_messages_in_order(
        messages: list[tuple[int, Pending, bytes | None, bytes, int, int]], first_id: int) -> None:
    rows = [(encode_place(delay_ms, place), *own) for delay_ms, place, *own in messages]
    found: list[HeldMessage] = []
    for of_page in cut_pages(rows):
        assert size_of(of_page[:-1]) <= PAGE_BYTES
        page = encode_page(first_id + len(found), of_page)
        assert decode_rows(page) == (first_id + len(found), of_page) and decode_page(page, 1) == decode_page(page)[:1]
        found += decode_page(page)
    assert found == held(first_id, rows) == [
        HeldMessage(first_id + number, delay_ms, place._replace(value=value, headers=headers, attributes=attributes,
                                                         timestamp_ms=timestamp_ms))
        for number, (delay_ms, place, value, headers, attributes, timestamp_ms) in enumerate(messages)]
