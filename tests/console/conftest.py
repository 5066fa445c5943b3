"""One browser for all tests, and a hub with every door for each file of them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.console.browser import Browser, Tab
from tests.running_hub import DOORS, RunningHub, running_hub


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; it takes a second to start."""
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that lets anybody do anything, as one on loopback does that nobody has configured."""
    with running_hub(tmp_path_factory.mktemp("hub"), *DOORS, kernel='fsync = "never"') as hub:
        yield hub


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens a page of a hub's console; at the end nothing may have gone wrong in it, and no dialog have opened."""
    tabs: list[Tab] = []

    def open_tab(hub: RunningHub, place: str = "", **window: object) -> Tab:
        tab = browser.open(f"http://127.0.0.1:{hub.port('http')}/ui/#/{place}", **window)    # type: ignore[arg-type]
        tabs.append(tab)
        return tab

    yield open_tab
    for tab in tabs:
        assert (tab.said, tab.dialogs) == ([], [])
        tab.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go."""
    return tmp_path
