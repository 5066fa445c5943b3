"""A topic's history in the console leaves nothing out without saying so, and its filter looks at everything."""
from __future__ import annotations

import json
from typing import Any

from tests.console.asking import ask, bury, group_path, publish

ROWS = "document.querySelectorAll('.messages li').length"


def fill(hub: Any, topic: str, count: int, partitions: int = 1) -> None:
    ask(hub, "PUT", f"/v1/topics/{topic}", {"partitions": partitions})
    for first in range(0, count, 500):
        publish(hub, *({"address": f"{topic}/k{number % 7}", "value": f"number {number} of {topic}",
                        "headers": [["unit", "C" if number == 3 else "F"]]}
                       for number in range(first, min(count, first + 500))))


def test_what_is_not_shown_is_counted_and_can_be_asked_for(hub, open_tab):
    fill(hub, "long", 130)
    tab = open_tab(hub, "topics/long")
    tab.wait_text("110 older messages are not shown.", ".older")
    assert tab.evaluate(ROWS) == 20
    tab.click("button", "Show older")
    tab.wait_text("90 older messages are not shown.", ".older")
    for left in (70, 50, 30, 10):
        tab.click("button", "Show older")
        tab.wait_text(f"{left} older messages are not shown.", ".older")
    tab.click("button", "Show older")
    tab.wait_text("That is all that is stored.", ".older")
    assert tab.evaluate(ROWS) == 130
    shown = tab.evaluate("[...document.querySelectorAll('.messages li')].map(one => Number(one.dataset.offset))")
    assert shown == list(range(129, -1, -1))


def test_every_queue_is_counted(hub, open_tab):
    fill(hub, "spread", 60, partitions=3)
    tab = open_tab(hub, "topics/spread")
    tab.wait(f"{ROWS} > 0 && !document.querySelector('.older button').disabled")
    while "That is all" not in (said := tab.text(".older")):
        assert said.startswith(f"{60 - tab.evaluate(ROWS)} older message")
        tab.click("button", "Show older")
        tab.wait(f"document.querySelector('.older').innerText !== {json.dumps(said)}")
    assert tab.evaluate(ROWS) == 60


def test_a_filter_finds_what_is_far_back(hub, open_tab):
    fill(hub, "far-back", 3_000)
    tab = open_tab(hub, "topics/far-back")
    tab.wait_text("older messages are not shown.", ".older")
    tab.type("Only messages that", "unit = 'C'")
    tab.click("button", "Apply")
    tab.wait_text("1,000 older messages are not searched.", ".older")
    assert tab.evaluate(ROWS) == 0
    tab.click("button", "Search older")
    tab.wait_text("number 3 of far-back", ".messages")
    tab.wait_text("All that is stored was searched.", ".older")
    assert tab.evaluate(ROWS) == 1


def test_what_came_faster_than_it_is_shown_is_counted(hub, open_tab):
    ask(hub, "PUT", "/v1/topics/rapid", {"partitions": 1})
    tab = open_tab(hub, "topics/rapid")
    tab.wait_text("live, 0 since you look")
    for part in range(4):
        publish(hub, *({"address": "rapid/a", "value": f"number {part * 500 + number}"} for number in range(500)))
    tab.wait_text("number 1999", ".messages")
    tab.wait_text("1,900 older messages are not shown.", ".older")
    assert tab.evaluate(ROWS) == 100


def test_dead_is_what_is_dead_now(hub, open_tab):
    fill(hub, "mortal", 4)
    ask(hub, "PUT", "/v1/groups/buriers", {"start": "earliest"})
    bury(hub, "buriers", "mortal", 4)
    dead = "[...document.querySelectorAll('tbody tr')].find(one => one.innerText.includes('buriers'))" \
           "?.querySelector('[data-label=Dead]').innerText"
    tab = open_tab(hub, "groups")
    tab.wait(f"{dead} === '4'")
    one = open_tab(hub, "groups/buriers")
    one.wait("document.querySelector('[data-label=Dead]')?.innerText === '4'")
    ask(hub, "POST", "/v1/dead-letters/redrive", {"group": "buriers", "all": True})
    tab.wait(f"{dead} === '0'")
    one.wait("document.querySelector('[data-label=Dead]')?.innerText === '0'")
    ask(hub, "DELETE", group_path("buriers"))


def test_a_page_is_one_row_of_the_connections(hub, open_tab):
    tab = open_tab(hub, "connections")
    tab.wait_text("this page (", "tbody")
    other = open_tab(hub, "connections")
    other.wait_text("another console (", "tbody")
    own = "[...document.querySelectorAll('tbody tr')].filter(one => one.innerText.includes('this page')).length"
    assert tab.evaluate(own) == 1
    assert "unnamed" not in tab.text("tbody")
