"""What a session's filter has beside its options, over a kill of the hub: a selector, and a history that it is owed."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import InvalidSelector
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.sessions.session_records import Terms, decode_terms, encode_terms
from gatehouse.kernel.sessions.session_values import Subscribed
from gatehouse.kernel.state.state import Kind
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import Client, publish

RED, BLUE = encode_headers(((b"colour", b"red"),)), encode_headers(((b"colour", b"blue"),))


def paint(rig: Rig, value: bytes, headers: bytes) -> None:
    rig.kernel.append([(rig.kernel.place("plant/1"), value, headers, 2, 0)], None)
    rig.run()


def subscribed(filter_text: str) -> Subscribed:
    return Subscribed(filter_text, 1)


def partition_of(rig: Rig) -> int:
    return rig.kernel.place("plant/1").partition_id


def test_terms_as_they_are_stored() -> None:
    terms = Terms(None, 7, {3: (1, 5), 9: (0, 2)})
    encoded = encode_terms(terms)
    assert encoded is not None
    again = decode_terms(encoded, lambda text: None)
    assert (again.since, again.owed, again.selector, again.waits) == (7, {3: (1, 5), 9: (0, 2)}, None, True)
    again.move({3: 4, 9: 2})
    assert again.owed == {3: (4, 5)}
    again.move({3: 5, 8: 1})
    assert (again.owed, encode_terms(again)) == ({}, None)


def test_a_selector_survives_a_kill_and_goes_with_its_filter(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", selector="colour = 'red'")                   # type: ignore[arg-type]
    client.sleep()
    paint(rig, b"1", RED)
    rig.restart()
    paint(rig, b"2", BLUE)
    paint(rig, b"3", RED)
    client.connect()
    assert [each.selector for each in client.held.subscriptions()] == ["colour = 'red'"]
    assert client.take_and_acknowledge() == [b"1", b"3"]
    client.held.unsubscribe("plant/#")
    rig.run()
    rig.restart()
    assert client.connect() and client.held.subscriptions() == []
    assert list(rig.kernel.link_states(Kind.TERMS)) == []


def test_a_selector_that_is_none_is_refused() -> None:
    client = Client(Rig())
    client.connect()
    with pytest.raises(InvalidSelector):
        client.subscribe("plant/#", selector="colour = ")                    # type: ignore[arg-type]
    assert client.held.subscriptions() == []


def test_what_is_new_waits_behind_a_history_over_a_kill(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    publish(rig, "plant/1", b"old", b"older")
    client = Client(rig)
    client.connect()
    client.held.subscribe(client_filter := subscribed("plant/#"))
    client.held.begin_history(client_filter.filter, {partition_of(rig): (0, 2)})
    publish(rig, "plant/1", b"new")
    assert client.values() == []
    client.held.move_history("plant/#", {partition_of(rig): 1})
    rig.world.advance(100)
    client.sleep()
    rig.restart()
    client.connect()
    assert client.held.histories() == {"plant/#": {partition_of(rig): (1, 2)}}
    assert client.values() == [], "the history has not been sent"
    client.held.end_history("plant/#")
    assert client.values() == [b"new"]
    client.held.move_history("plant/#", {partition_of(rig): 2})
    rig.world.advance(100)
    rig.restart()
    client.connect()
    assert client.held.histories() == {}


def test_other_filters_are_handed_out_up_to_where_the_history_began(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect(window=1)
    client.subscribe("fleet/#")
    publish(rig, "fleet/1", b"a", b"b")
    publish(rig, "plant/1", b"old")
    client.held.subscribe(wanted := subscribed("plant/#"))
    client.held.begin_history(wanted.filter, {partition_of(rig): (0, 1)})
    publish(rig, "fleet/1", b"c")
    assert client.take_and_acknowledge() == [b"a", b"b"]
    client.held.end_history("plant/#")
    assert client.take_and_acknowledge() == [b"c"]


def test_a_session_that_ends_leaves_no_terms(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    client = Client(rig)
    client.connect()
    client.subscribe("plant/#", selector="colour = 'red'")                   # type: ignore[arg-type]
    client.sleep(0)
    assert list(rig.kernel.link_states(Kind.TERMS)) == []
