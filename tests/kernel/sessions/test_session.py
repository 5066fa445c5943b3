"""The filters of one session: which are heard, and from which offset until before which."""
from __future__ import annotations

from gatehouse.kernel.sessions.session import CONNECTED, Session
from gatehouse.kernel.sessions.session_records import OPEN, Stint
from gatehouse.kernel.sessions.session_values import Subscribed


def session() -> Session:
    return Session("default", "device", "ann", 1, 0, 60_000, CONNECTED)


def spans(one: Session, filter_text: str) -> list[tuple[int, int]]:
    return [(stint.since, stint.until) for stint in one.stints_of(filter_text)]


def test_a_filter_is_found_among_others_with_every_time_that_it_was_heard() -> None:
    device = session()
    for name in ("plant/1", "plant/10", "plant", "fleet/#", "plant/1/x"):
        assert device.subscribe(Subscribed(name, 1), 3)
    assert not device.subscribe(Subscribed("plant/1", 2), 5)
    assert device.unsubscribe("plant/1", 9)
    assert not device.unsubscribe("plant/1", 10) and not device.unsubscribe("plant/2", 10)
    assert device.subscribe(Subscribed("plant/1", 0), 12)
    assert spans(device, "plant/1") == [(3, 5), (5, 9), (12, OPEN)]
    assert spans(device, "plant/10") == [(3, OPEN)] and spans(device, "plant/2") == []
    heard = device.open_stint("plant/1")
    assert heard is not None and (heard.since, heard.qos) == (12, 0)
    assert device.bound_filters(transient=False) == ["fleet/#", "plant", "plant/1/x", "plant/10"]


def test_a_filter_that_heard_nothing_leaves_nothing() -> None:
    device = session()
    for _ in range(3):
        assert device.subscribe(Subscribed("plant/#", 1), 7)
        assert not device.subscribe(Subscribed("plant/#", 1), 7)
        assert device.unsubscribe("plant/#", 7)
    assert device.stints == ()


def test_filters_are_read_in_whatever_order_they_were_written() -> None:
    device = session()
    device.load_stints([Stint("b", 8, OPEN, 1, False, False, 0, 0), Stint("a", 9, OPEN, 1, False, False, 0, 0),
                        Stint("b", 8, 8, 1, False, False, 0, 0), Stint("b", 2, 5, 1, False, False, 0, 0)])
    assert spans(device, "b") == [(2, 5), (8, OPEN)] and spans(device, "a") == [(9, OPEN)]
