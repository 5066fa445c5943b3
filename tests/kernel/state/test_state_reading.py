"""The state read page by page: every key once, as it was when reading began, wherever it is."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.reading import StatePages, StateWalk
from gatehouse.kernel.state.state import Kind
from tests.kernel.state.test_state import Table

KEYS = st.integers(0, 30)
CHANGES = st.lists(st.tuples(KEYS, st.booleans()), max_size=40)


def put(table: Table, model: dict[bytes, bytes], changes: list[tuple[int, bool]], position: int) -> None:
    for number, (key, lives) in enumerate(changes):
        name, value = b"\2k%02d" % key, b"%d.%d" % (position, number)
        table.table.changes.absorb(position + number, [StateRecord(Kind.OFFSET, name, value if lives else None)])
        model[name] = value
        if not lives:
            del model[name]


@given(CHANGES, CHANGES, CHANGES, st.integers(1, 7), st.booleans(), st.lists(KEYS))
def test_pages_hold_everything_once_and_in_order(stored: list[tuple[int, bool]], frozen: list[tuple[int, bool]],
                                                 newest: list[tuple[int, bool]], limit: int, moves_on: bool,
                                                 asked: list[int]) -> None:
    table, model = Table(), dict[bytes, bytes]()
    put(table, model, stored, 100)
    table.log(200, b"another prefix", key=b"\1k")
    table.log(201, b"another prefix", key=b"\3k")
    table.checkpoint()
    put(table, model, frozen, 300)
    table.freeze()
    put(table, model, newest, 400)
    pages, walk = StatePages(table.table, Kind.OFFSET, b"\2"), StateWalk(table.table, Kind.OFFSET)
    found: list[tuple[bytes, bytes]] = []
    more = True
    while more:
        page, more = pages.page(limit)
        assert len(page) <= 2 * limit
        found += page
        if moves_on and table.table.frozen is not None:
            table.thaw()                         # the store learns what was read from memory
    assert found == sorted(model.items())
    for key in (*range(31), *asked):
        name = b"\2k%02d" % key
        assert walk.get(name) == model.get(name)
