"""The page of a journey: a long one, and one over a link; wide, narrow and dark."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.console.asking import ask, group_path, publish
from tests.console.browser import Tab
from tests.relay.processes import link_of
from tests.relay.test_processes import join, two_hubs
from tests.running_hub import RunningHub
from tests.waiting import until

PHONE = {"width": 390, "height": 1400}
WIDE = {"width": 1280, "height": 1400}
HOPS = "[...document.querySelectorAll('.timeline .hop')].map((bar) => bar.getBoundingClientRect().toJSON())"
TRACKS = "[...document.querySelectorAll('.timeline .track')].map((track) => track.getBoundingClientRect().toJSON())"
STEPS = "[...document.querySelectorAll('.timeline b')].map((what) => what.textContent)"


def tried(hub: RunningHub, group: str, topic: str, times: int) -> str:
    """Hand a message out and give it back so often, then for good; its id."""
    for number in range(times):
        letter, = ask(hub, "POST", f"{group_path(group)}/pop?topic={topic}&wait=30&max=1")["messages"]
        ask(hub, "POST", f"{group_path(group)}/release", {
            "receipt_handles": [letter["receipt_handle"]], "dead_letter": number == times - 1})
    return str(letter["id"])


def redriven(hub: RunningHub, group: str, topic: str) -> None:
    ask(hub, "POST", "/v1/dead-letters/redrive", {"group": group, "all": True})
    letter, = ask(hub, "POST", f"{group_path(group)}/pop?topic={topic}&wait=30&max=1")["messages"]
    ask(hub, "POST", f"{group_path(group)}/ack", {"receipt_handles": [letter["receipt_handle"]]})


def drawn_within(tab: Tab) -> None:
    """The page is no wider than its window, and each bar lies on its track, where it is to be seen."""
    assert not tab.overflows()
    assert ", until " in tab.text(".timeline") and "object" not in tab.text("main")
    hops, tracks = tab.evaluate(HOPS), tab.evaluate(TRACKS)
    assert len(hops) == len(tracks) > 1
    for hop, track in zip(hops, tracks, strict=True):
        assert track["width"] > 50 and hop["width"] >= 2
        assert track["left"] - 1 <= hop["left"] and hop["right"] <= track["right"] + 1, (hop, track)


def test_a_long_journey_is_drawn_wide_narrow_and_dark(hub: RunningHub, open_tab: Callable[..., Tab], shots: Path
                                                      ) -> None:
    ask(hub, "PUT", group_path("couriers"), {"retry": {"delays_ms": [50, 100, 200]}, "max_attempts": 0})
    publish(hub, {"address": "letters/a/very/long/address/that/goes/on/and/on/for/a/while/1", "value": "a letter"})
    message_id = tried(hub, "couriers", "letters", 8)
    redriven(hub, "couriers", "letters")
    for name, window in (("wide", WIDE), ("narrow", PHONE), ("dark", {**WIDE, "dark": True})):
        tab = open_tab(hub, f"trace/id/{message_id}", **window)
        tab.wait_text("acked", ".timeline")
        steps = tab.evaluate(STEPS)
        assert steps[0] == "stored" and steps.count("released") == 7 and steps[-4:] == [
            "given up", "redriven", "handed out", "acked"]
        drawn_within(tab)
        tab.screenshot(shots / f"journey-{name}.png")


def test_a_journey_over_a_link_is_drawn_at_both_hubs(tmp_path: Path, open_tab: Callable[..., Tab], shots: Path) -> None:
    with two_hubs(tmp_path) as (a, b, _):
        join(a, b)
        sent: Any = ask(a, "POST", "/v1/publish", {"messages": [{"address": "plant/1", "value": "x"}]})
        here = sent["messages"][0]["id"]
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        origin = ask(a, "GET", f"/v1/trace/{here}")["origin"]
        there = ask(b, "GET", f"/v1/trace?origin={origin.replace('/', '%2F')}")["messages"][0]["id"]
        for window, name in ((WIDE, "wide"), (PHONE, "narrow")):
            left, right = open_tab(a, f"trace/id/{here}", **window), open_tab(b, f"trace/id/{there}", **window)
            left.wait_text("settled", "tbody")
            right.wait_text(f"over link link, {here} on hub", ".timeline")
            for tab, side in ((left, "left"), (right, "right")):
                assert not tab.overflows()
                tab.screenshot(shots / f"link-{side}-{name}.png")
