"""The console's page of links: joined, seen and paused by people at two hubs."""
from __future__ import annotations

from pathlib import Path

from tests.relay.processes import ask, link_of
from tests.relay.test_processes import join, restarted, two_hubs
from tests.waiting import until

DRAWN = "document.querySelector('svg.links').textContent"


def test_links_are_joined_drawn_and_paused(tmp_path: Path, open_tab) -> None:
    with two_hubs(tmp_path) as (a, b, _):
        left, right = open_tab(a, "links"), open_tab(b, "links")
        left.wait_text("online", "dd")
        left.wait_text("not joined", "tbody")
        left.click("button", "Invite")
        left.wait_text("ghl1.", "code")
        invitation = left.evaluate("document.querySelector('.invitation code').innerText")
        right.type("Join with an invitation", invitation)
        right.click("button", "Join")
        right.wait_text("joined link", "form")
        for tab in (left, right):
            tab.wait_text("open", "tbody")
            tab.wait("document.querySelectorAll('svg.links line.good').length === 2")
        left.type("Link", "link")
        left.type("Address", "plant/1")
        left.click("button", "Explain")
        left.wait_text("Sent, and the other hub takes it. From there it is not taken.", "form")
        left.click("button", "Pause")
        left.wait_text("paused", "tbody")
        ask(a, "POST", "/v1/publish/plant/1", body=b"later")
        left.wait(f"{DRAWN}.includes('paused, 1 message to send')")
        left.click("button", "Resume")
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        left.wait(f"{DRAWN}.includes('open') && !{DRAWN}.includes('to send')")


def test_what_is_kept_and_what_is_lost_is_shown(tmp_path: Path, open_tab) -> None:
    with two_hubs(tmp_path, "spool = true\n", 'spool = "spool"\n', "spool_bytes = 1000000\n") as (a, b, _):
        join(a, b)
        ask(a, "POST", "/v1/publish/plant/1", body=b"0")
        until(lambda: link_of(a)["lag"]["messages"] == 0, lambda: link_of(a))
        tab = open_tab(a, "links")
        tab.wait_text("open", "tbody")
        assert "Lost, or came twice" not in tab.text("main")
        b.kill()
        ask(a, "POST", "/v1/publish/plant/1", body=b"1")
        tab.wait_text("1, ", "tbody")
        ask(a, "DELETE", "/v1/topics/plant")
        again = restarted(b)
        try:
            tab.wait_text("the topic was deleted", "main")
            assert not tab.overflows()
        finally:
            again.kill()


def test_a_hub_without_a_relay_says_so(hub, open_tab) -> None:
    tab = open_tab(hub, "links")
    tab.wait_text("has no [relay]", ".empty")
