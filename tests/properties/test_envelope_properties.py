"""Any message can be dressed for any door, what is not lost comes back, and no peer's properties break the way in."""
from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.properties.envelope import FIELDS, Where
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope, to_door
from tests.gateways.columns import COLUMNS
from tests.properties.strategies import raw_texts

NOW = 1_700_000_000_000

doors = st.sampled_from(sorted(COLUMNS))
values = st.one_of(st.none(), st.binary(max_size=6), raw_texts.map(str.encode),
                   st.sampled_from([b"true", b"7", b"1700000060000", b"a/b; charset=x", b"$queue/a"]))
field_names = st.sampled_from([row.name.encode() for row in FIELDS])
names = st.one_of(field_names, st.binary(max_size=4), raw_texts.map(str.encode))
user_names = st.text("abc.~-", min_size=1, max_size=4).map(lambda name: b"u" + name.encode())
envelopes = st.builds(
    Envelope, st.lists(st.tuples(names, values), max_size=5), st.one_of(st.none(), st.binary(max_size=4)),
    st.sampled_from([0, 1, NOW]), st.booleans(), st.booleans())

cell_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.binary(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5)


@given(doors, envelopes)
def test_any_message_can_be_dressed_for_any_door(door: str, envelope: Envelope) -> None:
    dressed = to_door(COLUMNS[door], envelope, NOW)
    from_door(COLUMNS[door], dressed, NOW)
    if door in ("amqp", "kafka") and all(_is_text(name) for name, _ in envelope.headers):
        assert not [name for name in dressed.lost if name.startswith("header ")]


@given(doors.filter(lambda door: door != "mqtt3"), st.lists(st.tuples(user_names, values), max_size=5))
def test_the_users_headers_come_back_or_are_named(door: str, headers: list[tuple[bytes, bytes | None]]) -> None:
    dressed = to_door(COLUMNS[door], Envelope(list(headers)), NOW)
    back = from_door(COLUMNS[door], dressed, NOW)[0].headers
    lost = [name.removeprefix("header ").encode() for name in dressed.lost]
    assert Counter([name for name, _ in back] + lost) == Counter(name for name, _ in headers)
    if door == "amqp":                   # a table groups the values of a name
        assert Counter(back) == Counter(headers)
    else:
        rest = iter(headers)
        assert all(pair in rest for pair in back)


@given(doors, st.data())
def test_no_peers_properties_break_the_way_in(door: str, data: st.DataObject) -> None:
    cells = [cell for cells in COLUMNS[door].cells.values() for cell in cells
             if cell.name not in ("qos", "response_topic")]
    properties: dict[str, Any] = {}
    headers: list[tuple[str, Any]] = []
    for cell in cells:
        if data.draw(st.booleans()):
            value = data.draw(cell_values)
            if cell.where is Where.PROPERTY:
                properties[cell.name] = value
            else:
                headers.append((cell.name, value))
    headers += data.draw(st.lists(st.tuples(st.sampled_from(["a", "x-dup-a", "x-dup-", ""]), cell_values), max_size=3))
    envelope, problems = from_door(COLUMNS[door], DoorProperties(properties, headers), NOW)
    assert all(isinstance(problem, str) for problem in problems)
    to_door(COLUMNS[door], envelope, NOW)


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
