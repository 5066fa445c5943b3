"""The page at `/docs` in Debian's chromium: somebody logs in, looks a call up and tries it."""
from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import Browser, Tab
from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub
from tests.running_hub import DEADLINE_S, RunningHub, running_hub

PHONE_PX = 390


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http", kernel='fsync = "never"') as hub:
        yield hub


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


def open_page(browser: Browser, port: int, place: str = "", **window: int) -> Tab:
    tab = browser.open(f"http://127.0.0.1:{port}/docs{place}", **window)
    tab.wait("document.body.dataset.ready")
    return tab


def test_a_message_is_published_and_read(browser: Browser, hub: RunningHub) -> None:
    tab = open_page(browser, hub.port("http"), "#post_publish_address")
    tab.click("summary", "Request headers")
    tab.type("X-Priority", "7")
    tab.click("details[open] select[aria-label='content type']")
    tab.evaluate("document.querySelector('#post_publish_address textarea').value = '21.5'")
    tab.click("#post_publish_address button", "Send")
    tab.wait_text("201", "#post_publish_address .answer")
    tab.wait_text('"address": "plant/line1/temp"', "#post_publish_address .answer")
    assert "curl -X POST" in tab.text("#post_publish_address")
    assert tab.evaluate("""[...document.querySelectorAll("pre")].filter(one =>
        one.scrollHeight > one.clientHeight && one.tabIndex < 0).length""") == 0, "keys can scroll what is long"
    assert tab.evaluate("document.querySelectorAll('pre[tabindex]').length") > 0
    tab.evaluate("location.hash = '#get_topics_topic_messages'")
    tab.click("#get_topics_topic_messages button", "Send")
    tab.wait_text('"priority": 7', "#get_topics_topic_messages .answer")
    assert tab.said == []
    tab.close()


def test_a_refusal_is_shown_and_a_call_is_found(browser: Browser, hub: RunningHub) -> None:
    tab = open_page(browser, hub.port("http"), "#get_groups_group")
    tab.click("#get_groups_group button", "Send")
    tab.wait_text("unknown_group", "#get_groups_group .answer")
    tab.type("find a call", "redrive")
    tab.wait("[...document.querySelectorAll('#index a')].filter(one => one.checkVisibility()).length === 1")
    tab.close()


def test_a_stream_is_shown_as_it_comes(browser: Browser, hub: RunningHub) -> None:
    tab = open_page(browser, hub.port("http"), "#get_status_events")
    tab.click("#get_status_events button", "Send")
    tab.wait_text("event: status", "#get_status_events .answer")
    tab.click("#get_status_events button", "Stop")
    tab.wait("!document.querySelector('#get_status_events button.send').disabled")
    tab.close()


def test_who_logs_in_may_more(browser: Browser, guarded: GuardedHub) -> None:
    tab = open_page(browser, guarded.ports("http")[0], "#get_topics")
    tab.click("#get_topics button", "Send")
    tab.wait_text("not_authenticated", "#get_topics .answer")
    tab.evaluate("""document.getElementById("scheme").value = "basic";
                    document.getElementById("scheme").dispatchEvent(new Event("change", {bubbles: true}))""")
    tab.type("user", "root")
    tab.type("password", PASSWORD)
    tab.click("#get_topics button", "Send")
    tab.wait_text('"topics"', "#get_topics .answer")
    assert PASSWORD not in tab.text() and "-u USER" in tab.text("#get_topics")
    tab.close()


def test_it_fits_a_phone(browser: Browser, hub: RunningHub, tmp_path: Path) -> None:
    tab = open_page(browser, hub.port("http"), "#post_publish_address", width=PHONE_PX)
    assert not tab.overflows()
    tab.screenshot(tmp_path / "docs.png")
    tab.close()


def test_it_loads_nothing_from_elsewhere(hub: RunningHub) -> None:
    for name in ("", "/docs.css", "/docs.js"):
        with urllib.request.urlopen(f"http://127.0.0.1:{hub.port('http')}/docs{name}", timeout=DEADLINE_S) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert b"//" not in answer.read().replace(b"// ", b"")
