"""Who may see what: logging in and out, wrong passwords, users who are no administrators, users who are sent away."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.asking import ask
from tests.interop.guarded_hub import PASSWORD, GuardedHub, guarded_hub

ROOT = ("root", PASSWORD)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHub]:
    with guarded_hub(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


def log_in(tab, user: str, secret: str) -> None:
    tab.wait_text("Log in", "h1")
    tab.type("User", user)
    tab.type("Password", secret)
    tab.click("button.main", "Log in")


def test_log_in_and_out(guarded, open_tab):
    tab = open_tab(guarded.hub, "topics")
    log_in(tab, "root", "not the password")
    tab.wait_text("This is not a user and password of this hub.", ".problem")
    log_in(tab, "root", PASSWORD)
    tab.wait_text("Topics", "h1")
    tab.wait_text("root", "#user")
    tab.wait_text("Users", "nav")
    tab.click("nav a", "Overview")
    tab.wait_text("Disk free", ".tile")
    kept = tab.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert PASSWORD not in kept and "root" not in kept
    tab.click("button", "Log out")
    tab.wait_text("Log in", "h1")
    assert "Disk free" not in tab.text() and "root" not in tab.text()
    log_in(tab, "", guarded.token("root"))
    tab.wait_text("Disk free", ".tile")
    tab.call("Page.reload")
    tab.wait_text("Log in", "h1")


def test_whoever_may_come_in_without_may_change_his_mind(hub, open_tab):
    tab = open_tab(hub)
    tab.wait_text("not logged in", "#user")
    tab.click("button", "Log in")
    tab.wait_text("Log in", "h1")
    tab.click("button", "Go on without")
    tab.wait_text("Overview", "h1")
    tab.wait_text("Disk free", ".tile")


def test_somebody_who_is_no_administrator(guarded, open_tab):
    for address in ("open/a", "closed/a"):
        ask(guarded.hub, "POST", "/v1/publish", {"messages": [{"address": address, "value": "x"}]}, ROOT)
    tab = open_tab(guarded.hub)
    log_in(tab, "ada", PASSWORD)
    tab.wait_text("shown to administrators")
    assert "Connections" not in tab.text("nav") and "Users" not in tab.text("nav")
    tab.click("nav a", "Topics")
    tab.wait_text("open", "tbody")
    assert "closed" not in tab.text("tbody")
    tab.click("nav a", "Publish")
    tab.type("Address", "closed/b")
    tab.click("button.main", "Publish")
    tab.wait_text("may not publish at 'closed/b'", ".problem")
    tab.type("Address", "open/b")
    tab.click("button.main", "Publish")
    tab.wait_text("Stored in open", ".good")
    for place in ("connections", "users", "topics/closed"):
        tab.evaluate(f"location.hash = '#/{place}'")
        tab.wait_text("ada may not", ".problem")


def test_users_and_rules_are_made_and_a_question_answered(guarded, open_tab):
    tab = open_tab(guarded.hub, "users")
    log_in(tab, "root", PASSWORD)
    tab.wait_text("eve", "tbody")
    tab.click("summary", "New user")
    tab.type("Name", "gwen")
    tab.type("Password", "short")
    tab.type("Groups", "crew, operators")
    tab.type("Password", "long enough for anybody")
    tab.click("button", "Make")
    tab.wait_text("gwen\tcrew, operators", "tbody")
    tab.click("summary", "New rule")
    tab.type("Who", "user:gwen")
    tab.type("Pattern", "gardens/#")
    tab.click("button", "Add")
    tab.wait_text("user:gwen", "tbody")
    ask(guarded.hub, "POST", "/v1/publish", {"messages": [{"address": "gardens/a", "value": "x"}]},
        ("gwen", "long enough for anybody"))
    tab.type("User", "gwen")
    tab.type("On", "gardens/b")
    tab.click("button", "Ask")
    tab.wait_text("Yes: ", "form p")
    tab.click("button", "Remove the rule of user:gwen")
    tab.click("dialog button", "Remove it")
    tab.wait_gone("user:gwen", "tbody")
    tab.click("button", "Ask")
    tab.wait_text("No: ", "form p")


def test_who_is_disabled_is_shown_out(guarded, open_tab):
    tab = open_tab(guarded.hub, "topics")
    log_in(tab, "eve", PASSWORD)
    tab.wait_text("Topics", "h1")
    other = open_tab(guarded.hub, "users")
    log_in(other, "root", PASSWORD)
    other.click("button", "Disable eve")
    other.click("dialog button", "Disable")
    tab.wait_text("You are not logged in any more", ".problem")
    other.click("button", "Enable eve")
    other.wait_seen("button", "Disable eve")
    log_in(tab, "eve", PASSWORD)
    tab.wait_text("Topics", "h1")
